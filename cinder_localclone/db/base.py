# SPDX-License-Identifier: Apache-2.0
"""Transactions and row queries, shared by the modules of this package.

A function with its own transaction takes its rows from here::

    with base.writer() as session:
        row = base.volume_row(session, volume_id, lock=True)
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import time
import typing

from cinder.common import constants
from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_db import api as oslo_db_api
from oslo_db import exception as db_exc
import sqlalchemy
import sqlalchemy.exc

from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import objects as core_objects
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types

try:  # Cinder 29
    from cinder.db.api import main_context_manager as main_context_manager
    from cinder.db import models as models
except ImportError:  # Cinder 27 and 28
    from cinder.db.sqlalchemy.api import (
        main_context_manager as main_context_manager)
    from cinder.db.sqlalchemy import models as models

#: Rows of Cinder's tables; sessions and models of SQLAlchemy.
Row: typing.TypeAlias = typing.Any
Session: typing.TypeAlias = typing.Any
Model: typing.TypeAlias = typing.Any

CONF = cfg.CONF

#: The number of retries of a transaction after a deadlock; the first and the
#: longest pause before a retry, in seconds. All pauses together take some five
#: seconds. The time limits of all callers are longer.
_TRIES, _FIRST, _LONGEST = 5, 0.2, 2
#: Seconds after which no retry begins. Each attempt may have waited for a
#: lock, too.
_WITHIN = 10

_P = typing.ParamSpec('_P')
_T = typing.TypeVar('_T')


# -- transactions

def retried(write: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a function to repeat its write transaction after a deadlock.

    The database has rolled back the transaction. InnoDB does so if two
    transactions wait for each other; Galera does so at the commit, if another
    server has changed the rows first. Each function reads and compares rows
    within its transaction, so a repetition decides by the present rows. A lock
    wait with a time-out (InnoDB, after 50 s) raises the same kind of error,
    but has used up the time for retries.

    A decorated function must not read after its transaction. A deadlock of
    this read would repeat the committed transaction, and the repetition would
    refuse the changed rows.
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


def admin() -> core_objects.Context:
    """Return a new context with the rights of an administrator."""
    return cinder_context.get_admin_context()


def reader() -> contextlib.AbstractContextManager[Session]:
    """Return a context manager: a read transaction, with its session."""
    using: contextlib.AbstractContextManager[Session] = (
        main_context_manager.reader.using(admin()))
    return using


@contextlib.contextmanager
def writer() -> Iterator[Session]:
    """Return a context manager: a write transaction, with its session.

    A function with a write transaction has the decorator :func:`retried`.

    An error of the transaction does not show the values of its statement:
    credentials of exports are among them.
    """
    try:
        with main_context_manager.writer.using(admin()) as session:
            yield session
    except db_exc.DBError as exc:
        failed = exc.inner_exception
        if isinstance(failed, sqlalchemy.exc.StatementError):
            failed.hide_parameters = True
            exc.args = str(failed),
        raise


# -- volumes and services

def volume(volume_id: str) -> Volume | None:
    """Return a volume with its attachments; None if the volume is gone.

    It has its own transactions. If its row names a former home, the move that
    has made its LV tells the home: see :mod:`.volumes.homes`.
    """
    found = cinder_volume(volume_id)
    if found is None:
        return None
    read = Volume.of(found)
    if read.name_id == read.id:
        return read  # it has never moved
    with reader() as session:
        home = home_by_move(session, read)
    return dataclasses.replace(read, home_by_move=home) if home else read


def cinder_volume(volume_id: str) -> core_objects.Volume | None:
    """Return Cinder's object of a volume; None if the volume is gone.

    It has its own transaction, and includes the attachments.
    """
    try:
        return objects.Volume.get_by_id(admin(), volume_id)
    except cinder_exception.VolumeNotFound:
        return None


def volume_row(session: Session, volume_id: str, lock: bool = False
               ) -> Row | None:
    """Return the row of a volume or of a move record; None if it is gone.

    :param lock: whether other transactions can't change the row until the end
        of this transaction
    """
    query = session.query(models.Volume).filter_by(
        id=volume_id, deleted=False)
    return (query.with_for_update() if lock else query).first()


def has_home(host: str) -> typing.Any:
    """Return an SQL condition: the volume's home is a service host.

    The comparison is by bytes. With LIKE, or MySQL's own comparison, "N1"
    would equal "n1".

    :param host: service host without pool; a volume in any of its pools
        matches
    """
    begin = host + '#'
    return sqlalchemy.cast(
        sqlalchemy.func.substr(models.Volume.host, 1, len(begin)),
        sqlalchemy.LargeBinary) == begin.encode()


def service_row(session: Session, host: str) -> Row | None:
    """Return the row of a volume service; None if there is none.

    :param host: its service host, with or without pool
    """
    return session.query(models.Service).filter_by(
        host=names.service_host(host), binary=constants.VOLUME_BINARY,
        deleted=False).first()


def service_of(session: Session, row: Row) -> Row | None:
    """Return the service that a volume's row names; None if it is gone."""
    return session.query(models.Service).filter_by(
        uuid=row.service_uuid, deleted=False).first()


def set_home(session: Session, row: Row, host: str) -> None:
    """Set the home in a volume's row, with the home's service and zone.

    Without a row of this service, service and zone are unchanged.

    :param host: service host with its pool
    """
    service = service_row(session, host)
    row.host, row.cluster_name = host, None
    if service:
        row.service_uuid = service.uuid
        row.availability_zone = service.availability_zone


def is_misplaced(session: Session, row: Row, host: str,
                 migrating: bool = False) -> bool:
    """Return whether the row of a volume at home on a host names another.

    The move that has made the LV tells the home, or else the service in the
    row. While Cinder creates or migrates a volume, it changes host and service
    itself.

    :param row: of a volume; a move record, or the copy of Cinder's own
        migration, is never misplaced
    :param migrating: whether a volume in migration may be misplaced
    """
    named = names.service_host(row.host)
    if (named == host or not names.same_backend(named, host)
            or row.status in statuses.BEING_CREATED
            or move_record.target_of(row) is not None
            or not migrating
            and row.migration_status not in statuses.NO_MIGRATION):
        return False
    home = home_by_move(session, row)
    if home is not None and (
            home == host or service_row(session, home) is not None):
        return home == host
    # The node that the move names has got another name, or was forgotten.
    service = service_row(session, host)
    return service is not None and row.service_uuid == service.uuid


def with_pool(row: Row, host: str) -> str:
    """Return a service host with the pool of a row."""
    found: str = volume_utils.append_host(
        host, volume_utils.extract_host(row.host, 'pool'))
    return found


def encrypted_rows(session: Session, model: Model) -> list[Row]:
    """Return the rows of volumes or snapshots encrypted by this driver.

    Rows of any version are returned: a secret is in use even if this version
    can't parse the row.

    :param model: the model of volumes or of snapshots
    """
    found: list[Row] = session.query(model).filter_by(
        deleted=False).filter(model.provider_id.like(
            volume_types.LIKE)).all()
    return found


def provider_id(encryption: volume_types.Recorded | None) -> str | None:
    """Return the provider_id of a volume or snapshot with an encryption.

    :param encryption: None: not encrypted, the result is None
    """
    return str(encryption) if encryption else None


# -- move records

def records(session: Session) -> typing.Any:
    """Return a query for all move records, of moves in any phase."""
    return session.query(models.Volume).filter_by(deleted=False).filter(
        *move_record.conditions(models.Volume))


def records_of(session: Session, volume_id: str) -> typing.Any:
    """Return a query for the move records of a volume."""
    return records(session).filter_by(
        migration_status=move_record.target(volume_id))


def home_by_move(session: Session, row: Row) -> str | None:
    """Return the service host of a home, if its row names another by mistake.

    The move that has made the LV of the row tells it: see
    :mod:`.volumes.homes`.

    :param row: of a volume, or a value of it
    :returns: None if the row is right, as far as moves tell
    """
    record = None if row.name_id == row.id else records(session).filter_by(
        id=row.name_id).first()
    if record is None or not move_record.is_committed(record):
        return None
    home = move_record.home_of(record, row)
    return None if home == names.service_host(row.host) else home


def to_move(record: Row, row: Row | None) -> state.Move:
    """Return the move of a move record.

    :param record: the row of the record
    :param row: the volume's row; None if the volume is gone
    :raises InvalidToken: if the record can't be read
    """
    return move_record.decode(
        record, row, CONF.volume_name_template % record.id)


def moves_of(session: Session, row: Row) -> list[state.Move]:
    """Return the moves of a volume, including moves with a pending cleanup.

    :raises InvalidToken: if a record of the volume cannot be read
    """
    return [to_move(record, row)
            for record in records_of(session, row.id)]


def is_moving(session: Session, row: Row) -> bool:
    """Return whether a volume has a move in progress.

    A move with a pending cleanup is no longer in progress.

    :raises InvalidToken: if a move record of the volume can't be read
    """
    return any(not move.is_over for move in moves_of(session, row))


def unchanged_row(move: state.Move, record: Row | None) -> Row:
    """Return the row of a move record, if it is unchanged since it was read.

    This is the compare of each compare-and-swap of a move record.

    :param move: the move as the caller has read it
    :param record: the locked row; None if it is gone
    :raises StaleMove: if the record is gone or differs from the move
    """
    if record is None or not move_record.is_unchanged(record, move):
        raise exceptions.StaleMove(volume=move.volume_id)
    return record
