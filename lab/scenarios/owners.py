# SPDX-License-Identifier: Apache-2.0
"""Whose work an effect is: by the ids in the names of what it is done to.

That of a volume is its own, and so is that of its moves, of its snapshots,
and of what is made of these or of it: what a user asks of one volume can then
be held at any of its steps, also before anybody has been told the id of a new
one. The same is true of one that is called "beside" another.
"""

import importlib
import logging
import re

LOG = logging.getLogger(__name__)

UUID = re.compile(
    '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}')

#: Of the name of a volume: it belongs to the one whose id follows.
BESIDE = 'beside'


class Owners:
    """The volumes that ids belong to.

    :param find: ``find(id)``: what an id that is not known yet belongs to;
        None if that can't be told (yet). As :func:`in_database`
    """

    def __init__(self, find):
        self._find = find
        self._known = {}

    def learn(self, texts, owner):
        """All ids in some names belong to one volume, unless known better."""
        for text in texts:
            for found in UUID.findall(text or ''):
                self._known.setdefault(found, owner)

    def of(self, key):
        """The volume that an id belongs to; None if nobody knows (now)."""
        if key not in self._known:
            try:
                found = self._find(key)
            except Exception:  # an effect must not fail with the database
                LOG.exception('Whose %s is can\'t be told.', key)
                return None
            owner = key if found == key else found and self.of(found)
            if owner is None:
                return None
            self._known[key] = owner
        return self._known[key]


def in_database(key):
    """What an id in Cinder's database belongs to: the next one up.

    Also of what was deleted.
    """
    base, record = [importlib.import_module(name) for name in (
        'cinder_localclone.db.base', 'cinder_localclone.core.move_record')]
    volume, snapshot = base.models.Volume, base.models.Snapshot
    with base.reader() as session:
        row = session.query(snapshot).filter_by(id=key).first()
        if row:
            return row.volume_id
        # An LV is named after the shadow of the move that made it.
        rows = [session.query(volume).filter_by(id=key).first(),
                *session.query(volume).filter(volume._name_id == key)]
        return next(filter(None, (
            moving_volume(row) if row.project_id == record.PROJECT
            else row.id if row.id != key
            else row.snapshot_id or row.source_volid
            or beside(row.display_name) or row.id
            for row in rows if row)), None)


def beside(name):
    """The volume that another was named after; None if it was not."""
    word, _space, volume = (name or '').partition(' ')
    return volume if word == BESIDE else None


def moving_volume(record):
    """The volume whose move a shadow records; None if that has ended."""
    kind, _colon, volume = (record.migration_status or '').partition(':')
    return volume if kind == 'target' else None
