# SPDX-License-Identifier: Apache-2.0
"""Moves and volumes in Cinder's database.

:mod:`.interrupted` and :mod:`.inventory` add to it. No other package uses the
database.

A move record is a hidden volume row in status ``maintenance``; its columns
are those of :mod:`.core.move_record`. Until the commit it is the copy that is
built on the destination, afterwards the source that is drained: the commit
swaps names and hosts of the two rows in one transaction. The swap leaves the
token alone; only compare-and-swap changes it.
"""

from collections.abc import Callable, Iterable
import functools
import secrets
import time
import typing
import uuid

from cinder.common import constants
from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from oslo_config import cfg
from oslo_db import api as oslo_db_api
from oslo_db import exception as db_exc
from oslo_log import log as logging
from oslo_utils import timeutils

from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import objects as core_objects
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core import statuses

try:  # Cinder 29
    from cinder.db.api import main_context_manager
    from cinder.db import models
except ImportError:  # Cinder 27 and 28
    from cinder.db.sqlalchemy.api import main_context_manager
    from cinder.db.sqlalchemy import models

#: A row of Cinder's table "volumes", and a session of SQLAlchemy.
Row: typing.TypeAlias = typing.Any
Session: typing.TypeAlias = typing.Any

CONF = cfg.CONF
LOG = logging.getLogger(__name__)

#: What commit swaps. The LV's name follows from ``_name_id``.
SWAPPED = ('host', 'availability_zone', 'service_uuid', 'provider_id',
           'provider_geometry')
#: How often a transaction that has met a deadlock is tried again, after how
#: many seconds at first and at most: some five seconds altogether, which the
#: callers' own time limits allow for.
_TRIES, _FIRST, _LONGEST = 5, 0.2, 2
#: Seconds after which none is tried again: each may have waited for a lock.
_WITHIN = 10

_P = typing.ParamSpec('_P')
_T = typing.TypeVar('_T')


def retried(write: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a writer: try its transaction again after a deadlock.

    The database has rolled such a transaction back. InnoDB does so with one
    of two that wait for each other; Galera, at the commit, with one whose
    rows another server has changed first. Each writer reads and compares
    within its transaction, so that a second run decides by what is there
    then. A lock that was waited for in vain (InnoDB, after 50 s) is an error
    of the same kind: it has used up the time for further tries.
    """
    @functools.wraps(write)
    def within_limits(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        until = time.monotonic() + _WITHIN

        def may_succeed(exc: Exception) -> bool:
            return isinstance(exc, db_exc.DBDeadlock) and (
                time.monotonic() < until)
        again: Callable[_P, _T] = oslo_db_api.wrap_db_retry(
            retry_interval=_FIRST, max_retries=_TRIES,
            inc_retry_interval=True, max_retry_interval=_LONGEST,
            exception_checker=may_succeed)(write)
        return again(*args, **kwargs)
    return within_limits


def _admin() -> core_objects.Context:
    return cinder_context.get_admin_context()


def _to_move(shadow: Row, volume: Row | None) -> state.Move:
    """A move from its rows; the volume's may be gone already."""
    return move_record.decode(
        shadow, volume, CONF.volume_name_template % shadow.id)


class Records:
    """Volumes, attachments, moves and services, as Cinder has them."""

    # -- reading

    def volume(self, volume_id: str) -> core_objects.Volume | None:
        """A volume with its attachments; None if it is gone."""
        try:
            return objects.Volume.get_by_id(_admin(), volume_id)
        except cinder_exception.VolumeNotFound:
            return None

    def volumes_of(self, host: str) -> list[core_objects.Volume]:
        """All visible volumes whose home is a service host."""
        return [volume for volume in objects.VolumeList.get_all_by_host(
            _admin(), host) if not move_record.is_shadow(volume)]

    def move_of(self, volume_id: str) -> state.Move | None:
        """The move of a volume that is not over: there is one at most.

        :raises InvalidToken: if a record of the volume cannot be read
        """
        return next((move for move in self._moves_of_volume(volume_id)
                     if not move.is_over), None)

    def remains_of(self, volume_id: str) -> list[state.Move]:
        """The moves of a volume that are over but for a clean-up.

        The volume may be at rest, moving again, or deleted.

        :raises InvalidToken: if a record of the volume cannot be read
        """
        return [move for move in self._moves_of_volume(volume_id)
                if move.is_over]

    def _moves_of_volume(self, volume_id: str) -> list[state.Move]:
        with main_context_manager.reader.using(_admin()) as session:
            row = self._row(session, volume_id)
            return [_to_move(shadow, row) for shadow in
                    self._shadows(session, volume_id)]

    def is_move(self, shadow_id: str) -> bool:
        """Whether there is such a move, readable or not."""
        with main_context_manager.reader.using(_admin()) as session:
            return bool(self._shadow_query(session).filter_by(
                id=shadow_id).count())

    def get_move(self, shadow_id: str) -> state.Move | None:
        """The move with this shadow.

        :raises InvalidToken: if its record cannot be read
        """
        with main_context_manager.reader.using(_admin()) as session:
            shadow = self._shadow_query(session).filter_by(
                id=shadow_id).first()
            if shadow is None:
                return None
            return _to_move(shadow, self._row(
                session, move_record.volume_of(shadow)))

    def moves_of(self, host: str) -> list[state.Move]:
        """All moves from or to a service host, remains among them.

        Remains are those to be cleaned up there, and those of volumes that
        are there now.
        """
        return [each for each in self.moves()
                if host in (each.source, each.destination)]

    def moves(self) -> list[state.Move]:
        """All moves there are that can be read."""
        moves = []
        with main_context_manager.reader.using(_admin()) as session:
            found = {shadow: move_record.volume_of(shadow)
                     for shadow in self._shadow_query(session)}
            volumes = {row.id: row for row in session.query(
                models.Volume).filter_by(deleted=False).filter(
                    models.Volume.id.in_(found.values()))}
            for shadow, volume_id in found.items():
                try:
                    moves.append(_to_move(shadow, volumes.get(volume_id)))
                except exceptions.InvalidToken as exc:
                    # Its volume is left alone; all others go on.
                    LOG.error('The move record %(shadow)s can\'t be read and '
                              'is not changed: %(error)s',
                              {'shadow': shadow.id, 'error': exc})
        return moves

    def services(self) -> dict[str, bool]:
        """All volume services: host and whether it is alive."""
        services = objects.ServiceList.get_all(
            _admin(), {'binary': constants.VOLUME_BINARY})
        return {service.host: bool(service.is_up) for service in services}

    # -- changing

    @retried
    def begin(self, volume: core_objects.Volume, host: str, event: state.Event,
              geometry: state.Geometry, locate: Callable[[str], str],
              auth: str, initiator: str,
              asked_by: state.Asked = state.Asked.ATTACH) -> state.Move:
        """Record the intent to move a volume: create its shadow.

        :param host: the destination with its pool
        :param event: which kind of move begins
        :param locate: gives the export's provider_location for a shadow id
        :param auth: the export's one-time credentials
        :param initiator: who may log in to the export
        :param asked_by: unless by an attach, the move holds the row
        :raises StaleMove: if the volume is not at the home it was read
            with any more, has a move that is not over, or
            :func:`.rows.may_move` says no
        :raises InvalidToken: if a record of the volume cannot be read
        """
        shadow_id = str(uuid.uuid4())
        token = state.Token(state.Phase.ABSENT, secrets.token_hex(6),
                            geometry).after(event, committed=False)
        with main_context_manager.writer.using(_admin()) as session:
            row = self._row(session, volume.id, lock=True)
            busy = any(not _to_move(shadow, row).is_over for shadow in
                       self._shadows(session, volume.id))
            if (row is None or busy or row.host != volume.host
                    or not rows.may_move(
                        row, asked_by, rows.is_migrated_by_cinder(row))):
                raise exceptions.StaleMove(volume=volume.id)
            service = self._service_row(session, host)
            shadow = models.Volume(
                id=shadow_id, user_id=row.user_id, size=row.size, host=host,
                status='maintenance', attach_status='detached',
                use_quota=False,
                availability_zone=(service.availability_zone if service
                                   else row.availability_zone),
                service_uuid=service.uuid if service else None,
                volume_type_id=row.volume_type_id, bootable=row.bootable,
                display_name='move of %s' % volume.id,
                shared_targets=False, **move_record.encode(
                    volume.id, token, locate(shadow_id), auth, initiator,
                    row.provider_id))
            session.add(shadow)
            move_record.hold(row, shadow, asked_by)
            return _to_move(shadow, row)

    @retried
    def advance(self, move: state.Move, event: state.Event) -> state.Move:
        """Enter the phase that follows an event, by compare-and-swap.

        :raises InvalidTransition: if there is none
        :raises StaleMove: if another service was first
        """
        token = move.token.after(event, move.committed)
        with main_context_manager.writer.using(_admin()) as session:
            volume, shadow = self._locked(session, move)
            move_record.enter(shadow, token)
            move_record.give_back(volume, shadow)
            return _to_move(shadow, volume)

    @retried
    def relocate(self, move: state.Move, location: str) -> None:
        """Record where the source of a move is exported by now.

        :param location: a provider_location
        :raises StaleMove: if another service was first
        """
        with main_context_manager.writer.using(_admin()) as session:
            shadow = self._as_told(
                move, self._row(session, move.shadow_id, lock=True))
            if shadow.provider_location != move.location:
                raise exceptions.StaleMove(volume=move.volume_id)
            shadow.provider_location = location

    @retried
    def commit(self, move: state.Move) -> state.Move:
        """Swap the identities of volume and shadow in one transaction.

        :returns: the committed move
        :raises StaleMove: if either row is not as the move says
        """
        with main_context_manager.writer.using(_admin()) as session:
            volume, shadow = self._locked(session, move)
            if (move.committed or volume is None
                    or not rows.is_home(volume, move.source)
                    or move_record.has_lost_hold(volume, shadow)):
                raise exceptions.StaleMove(volume=move.volume_id)
            self._swap(volume, shadow)
            move_record.give_back(volume, shadow)
            return _to_move(shadow, volume)

    @retried
    def roll_back(self, move: state.Move) -> state.Move:
        """Swap the identities back and enter ``rolling-back``, in one.

        :raises InvalidTransition: if the move's phase allows no way back
        :raises StaleMove: if either row is not as the move says
        """
        token = move.token.after(
            state.Event.DESTINATION_DETACHED, move.committed)
        with main_context_manager.writer.using(_admin()) as session:
            volume, shadow = self._locked(session, move)
            if (volume is None
                    or not rows.is_home(volume, move.destination)):
                raise exceptions.StaleMove(volume=move.volume_id)
            self._swap(volume, shadow)
            move_record.enter(shadow, token)
            return _to_move(shadow, volume)

    @staticmethod
    def _swap(volume: Row, shadow: Row) -> None:
        backing = volume.name_id
        volume._name_id = None if shadow.name_id == volume.id else (
            shadow.name_id)
        shadow._name_id = None if backing == shadow.id else backing
        for column in SWAPPED:
            old = getattr(volume, column)
            setattr(volume, column, getattr(shadow, column))
            setattr(shadow, column, old)
        volume.cluster_name = shadow.cluster_name = None

    def _locked(self, session: Session, move: state.Move
                ) -> tuple[Row | None, Row]:
        """The rows of volume and shadow, locked: the compare of each swap.

        :returns: (volume, None if it is gone; shadow)
        :raises StaleMove: if the shadow is not as the move says
        """
        rows = {key: self._row(session, key, lock=True) for key in sorted(
            (move.volume_id, move.shadow_id))}
        return rows[move.volume_id], self._as_told(
            move, rows[move.shadow_id])

    @staticmethod
    def _as_told(move: state.Move, shadow: Row | None) -> Row:
        """The row of a shadow, if it is as the move says.

        :raises StaleMove: if it is not
        """
        if shadow is None or not move_record.is_as_told(shadow, move):
            raise exceptions.StaleMove(volume=move.volume_id)
        return shadow

    @retried
    def drop_attachment(self, volume_id: str, attachment_id: str) -> None:
        """Remove an attachment whose connection was refused.

        Nova asks for that of a live migration in one call with the connector.
        When that fails, Nova never learns the attachment's id, and Cinder
        would keep it (api/v3/attachments.py), reserved for good: the volume
        could not become available any more. An attachment that has gone on
        since stays. As in Cinder (``_get_statuses_from_attachments`` in
        cinder/db/api.py), attachments that have failed do not keep a volume
        reserved.
        """
        with main_context_manager.writer.using(_admin()) as session:
            row = self._row(session, volume_id, lock=True)
            found = session.query(models.VolumeAttachment).filter_by(
                id=attachment_id, deleted=False).with_for_update().first()
            if (row is None or found is None or found.connector
                    or found.attach_status != 'reserved'
                    or found.volume_id != volume_id):
                return
            found.update({
                'attach_status': 'detached', 'deleted': True,
                'detach_time': timeutils.utcnow(),
                'deleted_at': timeutils.utcnow()})
            others = session.query(models.VolumeAttachment.id).filter_by(
                volume_id=volume_id, deleted=False).filter(
                    models.VolumeAttachment.id != attachment_id,
                    ~models.VolumeAttachment.attach_status.startswith(
                        'error_'))
            if row.status == 'reserved' and not others.first():
                row.update({'status': statuses.FREE,
                            'attach_status': 'detached'})

    @retried
    def finish(self, move: state.Move, event: state.Event) -> None:
        """Forget a move: its shadow goes.

        In the same transaction the volume's migration status becomes
        ``success``, unless the move was rolled back, or Cinder itself
        migrates the volume by now.

        :raises InvalidTransition: if the move does not end with this event
        :raises StaleMove: if another service was first
        """
        move.token.after(event, move.committed)
        with main_context_manager.writer.using(_admin()) as session:
            volume, shadow = self._locked(session, move)
            shadow.update({
                **move_record.ended(), 'deleted': True,
                'deleted_at': timeutils.utcnow()})
            if (event is state.Event.SOURCE_REMOVED and volume is not None
                    and not rows.is_migrated_by_cinder(volume)):
                volume.migration_status = 'success'

    def _shadows(self, session: Session, volume_id: str) -> Iterable[Row]:
        return self._shadow_query(session).filter_by(
            migration_status=move_record.target(volume_id))

    def _give_home(self, session: Session, row: Row, host: str) -> None:
        """A volume's row says that a node is its home, and of what zone.

        :param host: service host with its pool
        """
        service = self._service_row(session, host)
        row.host, row.cluster_name = host, None
        if service:
            row.service_uuid = service.uuid
            row.availability_zone = service.availability_zone

    @staticmethod
    def _service_row(session: Session, host: str) -> Row | None:
        return session.query(models.Service).filter_by(
            host=names.service_host(host), binary=constants.VOLUME_BINARY,
            deleted=False).first()

    @staticmethod
    def _shadow_query(session: Session) -> typing.Any:
        return session.query(models.Volume).filter_by(deleted=False).filter(
            *move_record.are(models.Volume))

    @staticmethod
    def _row(session: Session, volume_id: str, lock: bool = False
             ) -> Row | None:
        query = session.query(models.Volume).filter_by(
            id=volume_id, deleted=False)
        return (query.with_for_update() if lock else query).first()
