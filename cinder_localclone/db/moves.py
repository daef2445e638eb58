# SPDX-License-Identifier: Apache-2.0
"""Move records in Cinder's database.

A move record is a hidden volume row in status ``maintenance``; its columns
are those of :mod:`.core.move_record`.
"""

from collections.abc import Callable
import secrets
import uuid

from oslo_log import log as logging
from oslo_utils import timeutils

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.volume import Row
from cinder_localclone.core.volume import Volume
from cinder_localclone.db import base

LOG = logging.getLogger(__name__)

#: The columns swapped by the commit, beside ``_name_id``, which names the LV.
SWAPPED = ('host', 'availability_zone', 'service_uuid', 'provider_id')


class Moves(records.Moves):

    # -- reading

    def move_of(self, volume_id: str) -> state.Move | None:
        return next((move for move in self._of(volume_id)
                     if not move.is_over), None)

    def pending_cleanups(self, volume_id: str) -> list[state.Move]:
        return [move for move in self._of(volume_id) if move.is_over]

    @staticmethod
    def _of(volume_id: str) -> list[state.Move]:
        with base.reader() as session:
            row = base.volume_row(session, volume_id)
            return [base.to_move(record, row) for record in
                    base.records_of(session, volume_id)]

    def is_move(self, move_id: str) -> bool:
        with base.reader() as session:
            return bool(base.records(session).filter_by(
                id=move_id).count())

    def get_move(self, move_id: str) -> state.Move | None:
        with base.reader() as session:
            record = base.records(session).filter_by(
                id=move_id).first()
            if record is None:
                return None
            return base.to_move(record, base.volume_row(
                session, move_record.volume_of(record)))

    def moves_of(self, host: str) -> list[state.Move]:
        return [each for each in self.readable_moves()
                if host in (each.source, each.destination)]

    def readable_moves(self) -> list[state.Move]:
        moves = []
        with base.reader() as session:
            found = {record: move_record.volume_of(record)
                     for record in base.records(session)}
            volumes = {row.id: row for row in session.query(
                base.models.Volume).filter_by(deleted=False).filter(
                    base.models.Volume.id.in_(found.values()))}
            for record, volume_id in found.items():
                try:
                    moves.append(base.to_move(
                        record, volumes.get(volume_id)))
                except exceptions.InvalidToken as exc:
                    # The volume is left alone; all other moves continue.
                    LOG.error('The move record %(record)s can\'t be read and '
                              'is not changed: %(error)s',
                              {'record': record.id, 'error': exc})
        return moves

    # -- changing

    @base.retried
    def begin(self, volume: Volume, host: str, event: state.Event,
              geometry: state.Geometry, locate: Callable[[str], str],
              auth: str, initiator: str,
              asked_by: state.Asked = state.Asked.ATTACH) -> state.Move:
        move_id = str(uuid.uuid4())
        token = state.Token(state.Phase.ABSENT, secrets.token_hex(6),
                            geometry).after(event, committed=False)
        with base.writer() as session:
            row = base.volume_row(session, volume.id, lock=True)
            if (row is None or base.is_moving(session, row)
                    or row.host != volume.host
                    or base.home_by_move(session, row) is not None
                    or not Row.of(row).may_move(asked_by)):
                raise exceptions.StaleMove(volume=volume.id)
            service = base.service_row(session, host)
            record = base.models.Volume(
                id=move_id, user_id=row.user_id, size=row.size, host=host,
                status='maintenance', attach_status='detached',
                use_quota=False,
                availability_zone=(service.availability_zone if service
                                   else row.availability_zone),
                service_uuid=service.uuid if service else None,
                volume_type_id=row.volume_type_id, bootable=row.bootable,
                display_name='move of %s' % volume.id,
                shared_targets=False, **move_record.encode(
                    volume.id, token, locate(move_id), auth, initiator,
                    row.provider_id, names.service_host(row.host)))
            session.add(record)
            move_record.hold(row, record, asked_by)
            return base.to_move(record, row)

    @base.retried
    def advance(self, move: state.Move, event: state.Event) -> state.Move:
        token = move.token.after(event, move.committed)
        with base.writer() as session:
            volume, record = self._locked(session, move)
            move_record.enter(record, token)
            move_record.give_back(volume, record)
            return base.to_move(record, volume)

    @base.retried
    def relocate(self, move: state.Move, location: str) -> None:
        with base.writer() as session:
            record = base.unchanged_row(
                move, base.volume_row(session, move.move_id, lock=True))
            if record.provider_location != move.location:
                raise exceptions.StaleMove(volume=move.volume_id)
            record.provider_location = location

    @base.retried
    def commit(self, move: state.Move) -> state.Move:
        with base.writer() as session:
            volume, record = self._locked(session, move)
            if (move.committed or volume is None
                    or (names.service_host(volume.host), volume.name) != (
                        move.source, move.source_lv)
                    or move_record.has_lost_hold(volume, record)):
                raise exceptions.StaleMove(volume=move.volume_id)
            self._swap(volume, record, move.source)
            move_record.give_back(volume, record)
            return base.to_move(record, volume)

    @base.retried
    def roll_back(self, move: state.Move) -> state.Move:
        token = move.token.after(
            state.Event.DESTINATION_DETACHED, move.committed)
        with base.writer() as session:
            volume, record = self._locked(session, move)
            if (volume is None or volume.name_id != record.id
                    or move_record.home_of(record, volume)
                    != move.destination):
                raise exceptions.StaleMove(volume=move.volume_id)
            self._swap(volume, record, move.destination)
            move_record.enter(record, token)
            return base.to_move(record, volume)

    @base.retried
    def finish(self, move: state.Move, event: state.Event) -> None:
        move.token.after(event, move.committed)
        with base.writer() as session:
            volume, record = self._locked(session, move)
            self._correct_home(session, volume, record)
            record.update({
                **move_record.ended(), 'deleted': True,
                'deleted_at': timeutils.utcnow()})
            if (event is state.Event.SOURCE_REMOVED and volume is not None
                    and not Row.of(volume).is_migrated_by_cinder):
                volume.migration_status = 'success'

    @staticmethod
    def _correct_home(session: base.Session, volume: base.Row | None,
                      record: base.Row) -> None:
        """Correct a home that was written late, before its record ends."""
        if volume is not None and volume.name_id == record.id:
            home = move_record.home_of(record, volume)
            if base.is_misplaced(session, volume, home):
                base.set_home(session, volume, base.with_pool(volume, home))

    @staticmethod
    def _swap(volume: base.Row, record: base.Row, home: str) -> None:
        """:param home: service host of the home before the swap"""
        backing = volume.name_id
        volume._name_id = None if record.name_id == volume.id else (
            record.name_id)
        record._name_id = None if backing == record.id else backing
        # The record gets this host: it must not be one that was written late.
        volume.host = base.with_pool(volume, home)
        for column in SWAPPED:
            old = getattr(volume, column)
            setattr(volume, column, getattr(record, column))
            setattr(record, column, old)
        move_record.note_home(record, names.service_host(volume.host))
        volume.cluster_name = record.cluster_name = None

    @staticmethod
    def _locked(session: base.Session, move: state.Move
                ) -> tuple[base.Row | None, base.Row]:
        """Lock the rows of volume and record: the compare of each swap.

        :returns: (volume's row, None if it is gone; record's row)
        :raises StaleMove: if the record differs from the move
        """
        found = {key: base.volume_row(session, key, lock=True)
                 for key in sorted((move.volume_id, move.move_id))}
        return found[move.volume_id], base.unchanged_row(
            move, found[move.move_id])
