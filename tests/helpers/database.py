# SPDX-License-Identifier: Apache-2.0
"""Cinder's base of tests with a database, which is copied from a template.

Cinder's own fixture runs its whole schema as SQL before each test.
"""

import functools
import sqlite3
from unittest import mock
import warnings

from cinder.tests.unit import test
import fixtures

from cinder_localclone.db import base

#: Cinder's own fixture, of which TestCase takes the name.
_Cinders = test.Database


def _engine():
    return base.main_context_manager.writer.get_engine()


@functools.cache
def _template() -> sqlite3.Connection:
    """Return a database with Cinder's schema; nothing writes to it."""
    made = sqlite3.connect(':memory:', check_same_thread=False)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # alembic's, of Cinder's migrations
        with _Cinders(), _engine().connect() as connection:
            connection.connection.dbapi_connection.backup(made)
    return made


class Database(fixtures.Fixture):
    """A new database with Cinder's schema."""

    def _setUp(self):
        template, engine = _template(), _engine()
        engine.dispose()
        self.addCleanup(engine.dispose)
        with engine.connect() as connection:
            template.backup(connection.connection.dbapi_connection)


class TestCase(test.TestCase):
    """Base of tests that have Cinder's database."""

    def setUp(self):
        with mock.patch.object(test, 'Database', Database):
            super().setUp()
        # Cinder's fixture shows what is deprecated in Cinder itself.
        warnings.simplefilter('ignore', DeprecationWarning)
