# SPDX-License-Identifier: Apache-2.0
"""The clock of the database, shared by all nodes.

A node's own clock may be wrong, so the age of a row counts by this clock.
"""

import datetime
import typing

import sqlalchemy

Session: typing.TypeAlias = typing.Any
Row: typing.TypeAlias = typing.Any


def now(session: Session) -> datetime.datetime:
    """Return the time of the database (UTC, without a zone)."""
    # MySQL's current_timestamp() is in the session's time zone, SQLite's in
    # UTC.
    mysql = sqlalchemy.func.utc_timestamp(type_=sqlalchemy.DateTime)
    clocks = {'mysql': mysql, 'mariadb': mysql,
              'postgresql': sqlalchemy.func.timezone(
                  'UTC', sqlalchemy.func.now(), type_=sqlalchemy.DateTime)}
    found: datetime.datetime = session.query(clocks.get(
        session.get_bind().dialect.name,
        sqlalchemy.func.current_timestamp())).scalar()
    return found


def ago(session: Session, seconds: float) -> datetime.datetime:
    """Return the time of the database some seconds ago."""
    return now(session) - datetime.timedelta(seconds=seconds)


def age(session: Session, row: Row) -> float:
    """Return the seconds since the last change of a row."""
    since = row.updated_at or row.created_at
    return float((now(session) - since).total_seconds())
