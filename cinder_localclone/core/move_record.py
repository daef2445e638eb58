# SPDX-License-Identifier: Apache-2.0
"""The move record: a move in the columns of a hidden volume row. Pure.

Other modules read and write these columns of a move record by the functions
here. The exceptions: ``host`` is read directly, and
:mod:`cinder_localclone.db.moves` writes ``size`` and ``host`` of a new record,
a new ``provider_location``, and the columns exchanged by the identity swap.

``migration_status``
    "target:" and the volume's id, as in the destination row of Cinder's own
    migration
``replication_driver_data``
    the token (:class:`.state.Token`): version, phase, nonce, geometry. Only
    compare-and-swap changes it, and the identity swap leaves it alone
``replication_extended_status``
    the requester of the move; for a stalled copy also the time of the latest
    report of the stall
``display_description``
    the initiator allowed to log in to the source's export
``provider_location``, ``provider_auth``
    the location and the credentials of the source's export
``provider_id``
    the encryption of the volume; the identity swap exchanges it with the
    volume's row, like the LV
``previous_status``
    the status of the volume before the move held it
``size``
    the size copied, in GiB
``host``, ``name_id``
    the node and the LV not in the volume's row: of the destination before the
    commit, of the source afterwards. The cleanup after the move removes this
    LV
``provider_geometry``
    the service host of the volume's home: of the source before the commit, of
    the destination afterwards. It counts only if the volume's row names the
    other node of the move, as Cinder may write a former home there: see
    :mod:`cinder_localclone.volumes.homes`. Otherwise the row counts, because
    ``cinder-manage volume update_host`` changes nothing but ``host``

A move of an available volume *holds* the volume, unless an attach has
requested it. From the creation of the record to the commit or the failure of
the move, the volume has the status ``maintenance`` instead of ``available``.
Cinder's API then refuses to attach, delete, extend or snapshot the volume:
Cinder would send such a request to the former home. Each change of
``previous_status`` is in the same transaction as the change of the volume's
status.
"""

import functools
import operator
from typing import Any

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types

#: The project of move records. Keystone never gives a project this id, so no
#: tenant sees the rows, neither by id nor in sums, and none is charged.
PROJECT = 'cinder-localclone'
_TARGET = 'target:'
_STALLED = '; stalled since '


def conditions(volumes: Any, *phases: state.Phase) -> list[Any]:
    """Return the SQL conditions for rows that are move records.

    :param volumes: SQLAlchemy's model of the table
    :param phases: phases of their moves; by default all
    """
    token = volumes.replication_driver_data
    found = [token.like('%s:%s:%%' % (state.TOKEN_VERSION, phase.value))
             for phase in phases] or [token.like(state.TOKEN_VERSION + ':%')]
    return [functools.reduce(operator.or_, found),
            volumes.migration_status.like(_TARGET + '%')]


def target(volume_id: str) -> str:
    """Return the ``migration_status`` of a volume's move records.

    The destination row of Cinder's own migration has the same value.
    """
    return _TARGET + volume_id


def target_of(row: Any) -> str | None:
    """Return the volume id in the ``migration_status`` of a row, or None.

    The row is a move record of this volume, or the destination of Cinder's own
    migration: see :func:`is_move_record`.
    """
    text = row.migration_status or ''
    return text[len(_TARGET):] if text.startswith(_TARGET) else None


def volume_of(record: Any) -> str:
    """Return the id of the volume of a move record."""
    return target_of(record) or ''


def is_move_record(volume: Any) -> bool:
    """Return whether a row is the move record of a move of this driver."""
    return target_of(volume) is not None and (
        volume.replication_driver_data or '').startswith(
            state.TOKEN_VERSION + ':')


def encode(volume_id: str, token: state.Token, location: str, auth: str,
           initiator: str, provider_id: str | None, home: str
           ) -> dict[str, Any]:
    """Return the columns of a new record, before :func:`hold`.

    ``size``, ``host`` and the columns without a meaning for the move are left
    to the caller.

    :param location: of the source's export, in the form of a provider_location
    :param auth: its one-time credentials, in the form of a provider_auth
    :param initiator: the only initiator allowed to log in to it
    :param provider_id: as in the row of the volume
    :param home: service host of the volume's home, the source
    """
    return {'project_id': PROJECT, 'migration_status': target(volume_id),
            'replication_driver_data': str(token),
            'display_description': initiator,
            'provider_location': location, 'provider_auth': auth,
            'provider_id': provider_id, 'provider_geometry': home}


def ended() -> dict[str, Any]:
    """Return the columns of a record after its move has ended."""
    return {'status': 'deleted', 'migration_status': 'deleting',
            'provider_auth': None}


def decode(record: Any, volume: Any | None, own_lv: str) -> state.Move:
    """Return the move in a record.

    :param volume: the row of the volume; None if it is gone
    :param own_lv: the LV name by the record's id, not by its ``name_id``: the
        destination LV of the move
    :raises InvalidToken: if the record can't be understood
    """
    committed = is_committed(record)
    ends = names.service_host(record.host), home_of(record, volume)
    source, destination = ends if committed else reversed(ends)
    if committed:
        source_lv, destination_lv = record.name, own_lv
    else:
        source_lv = volume.name if volume is not None else ''
        destination_lv = record.name
    return state.Move(
        volume_id=volume_of(record), move_id=record.id,
        token=state.Token.parse(record.replication_driver_data),
        committed=committed, source=source, destination=destination,
        source_lv=source_lv, destination_lv=destination_lv,
        size_gib=record.size, extra_bytes=_extra_bytes(record),
        location=record.provider_location, auth=record.provider_auth,
        initiator=record.display_description,
        volume_gib=volume.size if volume is not None else 0,
        asked_by=asked_by(record))


def home_of(record: Any, volume: Any | None) -> str:
    """Return the service host of the volume's home during a move.

    :param volume: the row of the volume; None if it is gone
    """
    recorded: str = record.provider_geometry
    named = names.service_host(volume.host) if volume is not None else ''
    return recorded if named in (
        '', names.service_host(record.host)) else named


def note_home(record: Any, host: str) -> None:
    """Record the service host of the volume's home."""
    record.provider_geometry = host


def is_committed(record: Any) -> bool:
    """Return whether the identities are swapped.

    Before the swap the LV of a record has the record's own id. Afterwards the
    record names the LV of the source.
    """
    return bool(record.name_id != record.id)


def is_unchanged(record: Any, move: state.Move) -> bool:
    """Return whether a record is unchanged since a move was read from it.

    This is the compare of each compare-and-swap. The token alone is not
    enough: a commit leaves the token unchanged. If the database commits but
    its answer is lost, the caller does not know of the commit.
    """
    return bool(record.replication_driver_data == str(move.token)
                and is_committed(record) == move.committed)


def phase_word(record: Any) -> str:
    """Return the text of the phase in a record's token, known or not."""
    word: str = record.replication_driver_data.split(':')[1]
    return word


def enter(record: Any, token: state.Token) -> None:
    """Write the token of a move's new phase; the caller has compared the old.
    """
    record.replication_driver_data = str(token)


def _extra_bytes(record: Any) -> int:
    """Return the bytes of the backing devices beyond the volume's size.

    The record tells the length of the header, because the row of the volume
    may be gone.

    :raises InvalidToken: if the encryption can't be understood
    """
    try:
        recorded = volume_types.Recorded.parse(record.provider_id)
    except ValueError:
        raise exceptions.InvalidToken(
            token=record.provider_id, reason='unknown encryption')
    return recorded.header_bytes if recorded else 0


# -- the requester, and the progress of the copy

def asked_by(record: Any) -> state.Asked:
    """Return the requester of a move; an attach if none is recorded."""
    word = (record.replication_extended_status or '').partition(';')[0]
    return state.Asked(word) if word in [each.value for each in state.Asked
                                         ] else state.Asked.ATTACH


def note_stalled(record: Any, since: int | None) -> None:
    """Record that a copy makes no progress, or has made progress again.

    :param since: the time of this report, not of the last progress, in seconds
        since the epoch. A copy without progress is reported again and again.
        None: the copy makes progress
    """
    record.replication_extended_status = asked_by(record).value + (
        '' if since is None else '%s%d' % (_STALLED, since))


def stalled_since(record: Any) -> float:
    """Return the time of the latest report of a stall; 0 without a stall.

    The unit is seconds since the epoch. The stall itself began earlier.
    """
    return float((record.replication_extended_status or '').partition(
        _STALLED)[2] or 0)


# -- the hold of a volume

def hold(row: Any, record: Any, asked_by: state.Asked) -> None:
    """Record the requester of a move, and hold the volume if necessary.

    An available volume is held, unless an attach has requested the move. The
    result of an earlier migration is removed from ``migration_status``. In a
    migration by Cinder this column stays ``migrating`` until Cinder's manager
    has recorded the new home. Until then no other move may begin.

    :param row: the row of the volume
    """
    record.replication_extended_status = asked_by.value
    if asked_by is not state.Asked.MIGRATION:
        row.migration_status = None
    if asked_by is not state.Asked.ATTACH and row.status == statuses.FREE:
        record.previous_status, row.status = statuses.FREE, statuses.HELD


def holds(record: Any) -> bool:
    """Return whether a move holds its volume."""
    return bool(record.previous_status)


def has_lost_hold(row: Any, record: Any) -> bool:
    """Return whether the status of a held volume was changed by another.

    An administrator can do so with a reset of the status, or a forced delete.
    The move must not commit then.
    """
    return holds(record) and bool(row.status != statuses.HELD)


def give_back(row: Any | None, record: Any) -> None:
    """End the hold of a volume, after its move has committed or failed.

    A volume without a hold, or with a changed status, keeps its status.
    """
    if holds(record) and row is not None and row.status == statuses.HELD:
        row.status = record.previous_status
    record.previous_status = None
