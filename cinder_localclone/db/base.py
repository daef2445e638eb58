# SPDX-License-Identifier: Apache-2.0
"""What the classes of this package share: transactions, and finding rows.

A reader or writer takes rows from here within its own transaction::

    with base.writer() as session:
        row = base.volume_row(session, volume_id, lock=True)
"""

from collections.abc import Callable
import contextlib
import functools
import time
import typing

from cinder.common import constants
from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from oslo_config import cfg
from oslo_db import api as oslo_db_api
from oslo_db import exception as db_exc
import sqlalchemy

from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import objects as core_objects
from cinder_localclone.core import state
from cinder_localclone.core import volume_types

try:  # Cinder 29
    from cinder.db.api import main_context_manager as main_context_manager
    from cinder.db import models as models
except ImportError:  # Cinder 27 and 28
    from cinder.db.sqlalchemy.api import (
        main_context_manager as main_context_manager)
    from cinder.db.sqlalchemy import models as models

#: A row of one of Cinder's tables, and a session and a model of SQLAlchemy.
Row: typing.TypeAlias = typing.Any
Session: typing.TypeAlias = typing.Any
Model: typing.TypeAlias = typing.Any

CONF = cfg.CONF

#: How often a transaction that has met a deadlock is tried again, after how
#: many seconds at first and at most: some five seconds altogether, which the
#: callers' own time limits allow for.
_TRIES, _FIRST, _LONGEST = 5, 0.2, 2
#: Seconds after which none is tried again: each may have waited for a lock.
_WITHIN = 10

_P = typing.ParamSpec('_P')
_T = typing.TypeVar('_T')


# -- transactions

def retried(write: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a writer: try its transaction again after a deadlock.

    The database has rolled such a transaction back. InnoDB does so with one
    of two that wait for each other; Galera, at the commit, with one whose
    rows another server has changed first. Each writer reads and compares
    within its transaction, so that a second run decides by what is there
    then. A lock that was waited for in vain (InnoDB, after 50 s) is an error
    of the same kind: it has used up the time for further tries.

    No read may follow the transaction in a decorated function: if that read
    fails, the second run takes the change of the first for another's.
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
    """Return a new context of an administrator."""
    return cinder_context.get_admin_context()


def reader() -> contextlib.AbstractContextManager[Session]:
    """Begin a transaction that only reads."""
    using: contextlib.AbstractContextManager[Session] = (
        main_context_manager.reader.using(admin()))
    return using


def writer() -> contextlib.AbstractContextManager[Session]:
    """Begin a transaction that writes; its function is :func:`retried`."""
    using: contextlib.AbstractContextManager[Session] = (
        main_context_manager.writer.using(admin()))
    return using


# -- volumes and services

def volume(volume_id: str) -> core_objects.Volume | None:
    """Return a volume with its attachments; None if it is gone."""
    try:
        return objects.Volume.get_by_id(admin(), volume_id)
    except cinder_exception.VolumeNotFound:
        return None


def volume_row(session: Session, volume_id: str, lock: bool = False
               ) -> Row | None:
    """Return the row of a volume or of a move record; None if it is gone."""
    query = session.query(models.Volume).filter_by(
        id=volume_id, deleted=False)
    return (query.with_for_update() if lock else query).first()


def has_home(host: str) -> typing.Any:
    """Return what an SQL query demands of volumes at a service host.

    Letter by letter: to LIKE, and to MySQL, "N1" and "n1" are one.

    :param host: without its pool, whichever that is
    """
    begin = host + '#'
    return sqlalchemy.cast(
        sqlalchemy.func.substr(models.Volume.host, 1, len(begin)),
        sqlalchemy.LargeBinary) == begin.encode()


def service_row(session: Session, host: str) -> Row | None:
    """Return the row of a volume service.

    :param host: its service host, with or without pool
    """
    return session.query(models.Service).filter_by(
        host=names.service_host(host), binary=constants.VOLUME_BINARY,
        deleted=False).first()


def set_home(session: Session, row: Row, host: str) -> None:
    """Have a volume's row say that a node is its home, and of what zone.

    :param host: service host with its pool
    """
    service = service_row(session, host)
    row.host, row.cluster_name = host, None
    if service:
        row.service_uuid = service.uuid
        row.availability_zone = service.availability_zone


def encrypted_rows(session: Session, model: Model) -> list[Row]:
    """Return the rows of a table that say how this driver encrypts.

    Of any version: a secret is in use also by a row that is not understood.
    """
    found: list[Row] = session.query(model).filter_by(
        deleted=False).filter(model.provider_id.like(
            volume_types.LIKE)).all()
    return found


def provider_id(encryption: volume_types.Recorded | None) -> str | None:
    """Return what the row of a volume or snapshot says of its encryption."""
    return str(encryption) if encryption else None


# -- move records

def records(session: Session) -> typing.Any:
    """Return a query for all move records."""
    return session.query(models.Volume).filter_by(deleted=False).filter(
        *move_record.are(models.Volume))


def records_of(session: Session, volume_id: str) -> typing.Any:
    """Return a query for the move records of a volume."""
    return records(session).filter_by(
        migration_status=move_record.target(volume_id))


def to_move(record: Row, row: Row | None) -> state.Move:
    """Return a move by its record.

    :param row: the volume's; None if that is gone
    :raises InvalidToken: if the record cannot be read
    """
    return move_record.decode(
        record, row, CONF.volume_name_template % record.id)


def moves_of(session: Session, row: Row) -> list[state.Move]:
    """Return the moves of a volume, those that are over too.

    :raises InvalidToken: if a record of the volume cannot be read
    """
    return [to_move(record, row) for record in records_of(session, row.id)]


def is_moving(session: Session, row: Row) -> bool:
    """Return whether a volume has a move that is not over.

    :raises InvalidToken: if a record of the volume cannot be read
    """
    return any(not move.is_over for move in moves_of(session, row))


def as_told(move: state.Move, record: Row | None) -> Row:
    """Return the row of a record, if it is as the move says.

    :raises StaleMove: if it is not
    """
    if record is None or not move_record.is_as_told(record, move):
        raise exceptions.StaleMove(volume=move.volume_id)
    return record
