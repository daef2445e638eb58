# SPDX-License-Identifier: Apache-2.0
"""Attachments in Cinder's database."""

from collections.abc import Callable
from collections.abc import Collection
import json
import types
import typing

from oslo_utils import timeutils
import sqlalchemy

from cinder_localclone.core import attachments
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import iscsi
from cinder_localclone.core import objects
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.db import base
from cinder_localclone.db import clock


class Attachments(records.Attachments):
    """Attachments, on a node with a way to match connectors to nodes.

    :param is_at: ``is_at(connector, host)`` returns whether a connector
        belongs to the node of a service host
    """

    def __init__(self, is_at: Callable[[objects.Connector, str], bool]):
        self._is_at = is_at

    def remote_to(self, host: str) -> list[Volume]:
        model = base.models.VolumeAttachment
        with base.reader() as session:
            ids = {row.volume_id for row in session.query(model).filter_by(
                deleted=False).filter(
                    model.connection_info.like(
                        '%%%s%%' % iscsi.REMOTE))}
        found = []
        for volume_id in sorted(ids):
            volume = base.volume(volume_id)
            if volume and any(self._is_remote(each, host)
                              for each in volume.volume_attachment):
                found.append(volume)
        return found

    def any_newer(self, ids: Collection[str], seconds: float) -> bool:
        model = base.models.VolumeAttachment
        with base.reader() as session:
            before = clock.ago(session, seconds)
            return session.query(model.id).filter_by(deleted=False).filter(
                model.id.in_(ids), sqlalchemy.or_(
                    model.created_at > before, model.updated_at > before)
            ).first() is not None

    def end_remote_attachments(self, volume_id: str, host: str) -> None:
        self._rewrite(
            volume_id, lambda each: self._is_remote(each, host),
            attachments.without_export)

    def readdress(self, volume_id: str, iqn: str, portal: str) -> None:
        self._rewrite(
            volume_id,
            lambda each: (each.connection_info or {}).get(
                'target_iqn') == iqn,
            lambda told: dict(told, target_portal=portal))

    @base.retried
    def drop_attachment(self, volume_id: str, attachment_id: str) -> None:
        with base.writer() as session:
            row = base.volume_row(session, volume_id, lock=True)
            found = session.query(base.models.VolumeAttachment).filter_by(
                id=attachment_id, deleted=False).with_for_update().first()
            if (row is None or found is None or found.connector
                    or found.attach_status != 'reserved'
                    or found.volume_id != volume_id):
                return
            found.update({
                'attach_status': 'detached', 'deleted': True,
                'detach_time': timeutils.utcnow(),
                'deleted_at': timeutils.utcnow()})
            others = session.query(base.models.VolumeAttachment.id).filter_by(
                volume_id=volume_id, deleted=False).filter(
                    base.models.VolumeAttachment.id != attachment_id,
                    ~base.models.VolumeAttachment.attach_status.startswith(
                        'error_'))
            if row.status == 'reserved' and not others.first():
                row.update({'status': statuses.FREE,
                            'attach_status': 'detached'})

    @staticmethod
    @base.retried
    def _rewrite(volume_id: str,
                 wanted: Callable[[objects.Attachment], bool],
                 change: Callable[[dict[str, typing.Any]],
                                  dict[str, typing.Any]]) -> None:
        """Change the recorded connection of some attachments of a volume.

        An attachment changed by Cinder before it is locked is left alone: it
        was detached, or has another connection.

        :param wanted: selects the attachments. It may ask other nodes, so it
            is called while no row is locked
        :param change: returns the new connection for the old one
        """
        model = base.models.VolumeAttachment
        with base.reader() as session:
            found = {
                row.id: (row.connector, row.connection_info)
                for row in session.query(model).filter_by(
                    volume_id=volume_id, deleted=False)}
        ids = [each for each, told in found.items()
               if wanted(_attachment(*told))]
        with base.writer() as session:
            for row in session.query(model).filter(
                    model.id.in_(ids)).filter_by(
                        deleted=False).with_for_update():
                if (row.connector, row.connection_info) == found[row.id]:
                    # Not through Cinder's object: it converts all values to
                    # strings.
                    row.connection_info = json.dumps(
                        change(json.loads(row.connection_info)))

    def _is_remote(self, attachment: objects.Attachment, host: str) -> bool:
        return attachments.remote_to(attachment, self._is_at, host) is not None


def _attachment(connector: str | None, connection_info: str | None
                ) -> objects.Attachment:
    """Return an attachment from the columns of its row."""
    return types.SimpleNamespace(
        connector=connector and json.loads(connector),
        connection_info=connection_info and json.loads(connection_info))
