# SPDX-License-Identifier: Apache-2.0
"""Every writer of the records: deadlocks and locks, on Cinder's own schema."""

import contextlib
import importlib
import inspect
import itertools
import json
import logging
import pkgutil
import re
import traceback
from unittest import mock

from cinder import objects
from cinder.tests.unit import utils
import ddt
import fixtures
from oslo_db import exception as db_exc
import sqlalchemy
from sqlalchemy.dialects import mysql
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import orm
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import rows as volume_rows
from cinder_localclone.core.state import Event
from cinder_localclone import db
from cinder_localclone.db import backups
from cinder_localclone.db import base
from tests.helpers import records_case
from tests.helpers import remote_case
from tests.helpers import snapshot_records_case

A, B = 'a@l', 'b@l'
ENCRYPTION = snapshot_records_case.ENCRYPTION
NEW = '%08d-0000-4000-8000-000000000000' % 8
#: What changes a row: a transaction of our own, or an object of Cinder's.
WRITES = re.compile(r'base\.writer\(\)|\.save\(\)|\.destroy\(\)')
#: A row is found, and locked, by its id. (Cinder deletes what belongs to an
#: attachment by the attachment's.)
BY_ID = re.compile(r'WHERE .*\b\w+\.(attachment_)?id (= |IN \()')


def writers():
    """All functions and methods of the records that change a row."""
    found = {}
    for info in pkgutil.iter_modules(db.__path__):
        module = importlib.import_module('cinder_localclone.db.' + info.name)
        for owner in [module, *(
                each for _name, each in inspect.getmembers(
                    module, inspect.isclass)
                if each.__module__ == module.__name__)]:
            for name, each in vars(owner).items():
                each = inspect.unwrap(getattr(each, '__func__', each))
                if (inspect.isfunction(each)
                        and each.__code__.co_filename == module.__file__
                        and WRITES.search(inspect.getsource(each))):
                    found['%s.%s' % (info.name, name)] = each
    return found


class Calls(snapshot_records_case.Case):
    """A call of each writer, on rows that it changes.

    ``call_MODULE__WRITER`` prepares the rows and returns the call.
    """

    def put(self, **values):
        self.volume.refresh()
        self.volume.update(values)
        self.volume.save()
        return self.reload()

    def snapshot(self, **values):
        return utils.create_snapshot(
            self.context, self.volume.id, **dict(
                {'status': 'available',
                 'provider_location': volume_rows.location(A)}, **values))

    def call_moves__begin(self):
        return self.begin

    def call_moves__advance(self):
        moving = self.begin()
        return lambda: self.moves.advance(moving, Event.FAILED)

    def call_moves__commit(self):
        moving = self.begin()
        return lambda: self.moves.commit(moving)

    def call_moves__roll_back(self):
        moving = self.moves.commit(self.begin())
        return lambda: self.moves.roll_back(moving)

    def call_moves__finish(self):
        moving = self.drain(self.moves.commit(self.begin()))
        return lambda: self.moves.finish(moving, Event.SOURCE_REMOVED)

    def call_attachments__drop_attachment(self):
        self.put(status='reserved')
        found = objects.VolumeAttachment(
            self.context, volume_id=self.volume.id, instance_uuid=NEW,
            attach_status='reserved')
        found.create()
        return lambda: self.attachments.drop_attachment(
            self.volume.id, found.id)

    def call_moves__relocate(self):
        moving = self.moves.commit(self.begin())
        return lambda: self.moves.relocate(moving, 'new,1 iqn:x 0')

    def call_snapshots__relocate_snapshot(self):
        snapshot = self.snapshot()
        return lambda: self.snapshots.relocate_snapshot(snapshot.id, A, B)

    def call_snapshots__locate(self):
        snapshot = self.snapshot(status='creating', provider_location=None)
        return lambda: self.snapshots.locate(snapshot.id, A)

    def call_volumes__set_home(self):
        self.put(status='creating')
        return lambda: self.volumes.set_home(
            self.volume.id, A + '#p', B + '#p')

    def call_volumes___set_encryption(self):
        volume = self.put(status='creating')
        return lambda: self.volumes.set_encryption(volume, ENCRYPTION)

    def call_volumes___replace_backing(self):
        volume = self.put(status='reverting')
        return lambda: self.volumes.replace_backing(volume, NEW, B)

    def call_volumes__keep(self):
        volume = self.put(status='reverting')
        return lambda: self.volumes.keep(volume.id, volume.name_id)

    def call_volumes__correct_services(self):
        self.put(service_uuid=self.service_rows[B].uuid)
        return lambda: self.volumes.correct_services(
            A, {self.volume.name})

    def call_volumes__correct_home(self):
        volume = self.put(
            host=B + '#p', service_uuid=self.service_rows[A].uuid)
        return lambda: self.volumes.correct_home(volume, A)

    def call_queue__note_stalled(self):
        moving = self.moves.commit(self.begin())
        return lambda: self.queue.note_stalled(moving, True)

    def call_attachments___rewrite(self):
        found = objects.VolumeAttachment(
            self.context, volume_id=self.volume.id, instance_uuid=NEW,
            attach_status='attached')
        found.create()
        found.connector = {'host': 'b', 'initiator': 'iqn.b'}
        found.connection_info = remote_case.PROPERTIES
        found.save()
        return lambda: self.attachments.readdress(
            self.volume.id, remote_case.PROPERTIES['target_iqn'], 'new:3260')

    def call_interrupted__end_dead(self):
        volume = self.put(status='reverting')
        self.snapshot(status='restoring')
        return lambda: self.interrupted.end_dead(
            volume.id, A, {volume.name: 1 << 30})

    def call_interrupted___end_one(self):
        self.put(status='maintenance', migration_status='migrating',
                 attach_status='detached')
        return lambda: self.interrupted.end_interrupted(A)

    def call_decommission__give_up_snapshot(self):
        snapshot = self.snapshot()
        return lambda: self.decommission.give_up_snapshot(snapshot.id, A)

    def call_decommission__give_up(self):
        volume = self.reload()
        return lambda: self.decommission.give_up(volume, B + '#p')

    def call_decommission__forget_service(self):
        return lambda: self.decommission.forget_service(A)

    def call_secrets__record(self):
        return lambda: self.secrets.record(self.volume.id, ENCRYPTION)

    def call_backups__end(self):
        self.put(status='backing-up', previous_status='available')
        backup = utils.create_backup(
            self.context, self.volume.id, status='creating')
        return lambda: backups.end(backup, exceptions.PoolFull(
            pool='g/p', host='h', usage='96 %'))


def prepared(case, name):
    return getattr(case, 'call_' + name.replace('.', '__'))()


@contextlib.contextmanager
def deadlock(times=1, error=db_exc.DBDeadlock):
    """The next commits of writers are rolled back, as Galera does it."""
    left = [times]

    def refuse(session):
        if left[0]:
            left[0] -= 1
            raise error()
    sqlalchemy_event.listen(orm.Session, 'before_commit', refuse)
    try:
        yield left
    finally:
        sqlalchemy_event.remove(orm.Session, 'before_commit', refuse)


class WritersTest(Calls):

    def test_each_has_a_call(self):
        self.assertEqual(sorted(writers()), sorted(
            name[len('call_'):].replace('__', '.', 1)
            for name in dir(self) if name.startswith('call_')))


@ddt.ddt
class DeadlockTest(Calls):
    """Galera: another server's transaction was certified first."""

    def setUp(self):
        super().setUp()
        # Only there: others sleep, too.
        patched = mock.patch('oslo_db.api.time', autospec=True)
        self.slept = patched.start().sleep
        self.addCleanup(patched.stop)

    def contents(self):
        """All rows that there are, but for times and made-up ids."""
        found = {}
        with base.main_context_manager.reader.using(
                base.admin()) as session:
            for table in ('volumes', 'snapshots', 'volume_attachment',
                          'services', 'backups'):
                found[table] = [
                    json.dumps({key: str(value) for key, value
                                in row._mapping.items()
                                if not key.endswith('_at')}, sort_keys=True)
                    for row in session.execute(
                        sqlalchemy.text('SELECT * FROM ' + table))]
        return found

    @ddt.data(*writers())
    def test_it_is_tried_again(self, name):
        call = prepared(self, name)
        before = self.contents()
        with deadlock() as left:
            call()
        self.assertEqual([0], left)
        self.assertNotEqual(before, self.contents())
        self.assertEqual(1, self.slept.call_count)

    def test_no_longer_than_its_callers_can_wait(self):
        """InnoDB gives up a lock after 50 s, with an error of this kind."""
        call = prepared(self, 'moves.commit')
        clock = itertools.count(100, 50)
        with deadlock(1000) as left, mock.patch.object(
                base.time, 'monotonic', lambda: next(clock)):
            self.assertRaises(db_exc.DBDeadlock, call)
        self.assertEqual([999], left)
        call()

    @ddt.data(db_exc.DBConnectionError, db_exc.DBDuplicateEntry,
              db_exc.DBError)
    def test_no_other_error(self, error):
        """The commit may be on record, and only its answer lost."""
        call = prepared(self, 'moves.commit')
        with deadlock(1000, error) as left:
            self.assertRaises(error, call)
        self.assertEqual([999], left)
        self.slept.assert_not_called()

    def test_not_for_ever(self):
        call = prepared(self, 'moves.commit')
        before = self.contents()
        with deadlock(1000):
            self.assertRaises(db_exc.DBDeadlock, call)
        self.assertEqual(before, self.contents())
        self.assertEqual(base._TRIES, self.slept.call_count)
        self.assertLessEqual(
            sum(each.args[0] for each in self.slept.call_args_list), 10)


@ddt.ddt
class AnswerTest(Calls):
    """An effect that is on record is not tried again for its answer.

    The second run would compare the rows with what the first has changed, and
    say that another service was first.
    """

    @contextlib.contextmanager
    def reads_fail(self):
        """The first read fails that follows the commit of a change.

        As with Galera, if a server waits in vain for what others committed.
        """
        wrote, left = set(), []

        def look(state):
            if state.is_update or state.is_delete:
                wrote.add(state.session)
            if state.is_select and left:
                left.clear()
                raise db_exc.DBDeadlock()

        def flushed(session, _context):
            wrote.add(session)

        def committed(session):
            if session in wrote:
                wrote.clear()
                left.append(session)
        events = (('do_orm_execute', look), ('after_flush', flushed),
                  ('after_commit', committed))
        for each in events:
            sqlalchemy_event.listen(orm.Session, *each)
        try:
            yield
        finally:
            for each in events:
                sqlalchemy_event.remove(orm.Session, *each)

    @ddt.data(*writers())
    def test_it_can_not_be_read(self, name):
        call = prepared(self, name)
        with self.reads_fail(), contextlib.suppress(db_exc.DBDeadlock):
            call()


class ComparisonTest(testtools.TestCase):

    def test_homes_are_compared_by_bytes(self):
        """For MySQL "N1" and "n1" are the same text, for SQLite not."""
        found = base.has_home('n1@l').compile(dialect=mysql.dialect())
        self.assertRegex(
            str(found), r'^CAST\(substr\(volumes\.host, .*\) AS BINARY\) = ')
        self.assertIn(b'n1@l#', found.params.values())
        self.assertIn(5, found.params.values())


#: Writers whose statements are Cinder's own.
OF_CINDER = 'backups.end', 'decommission.forget_service'


@ddt.ddt
class ValuesTest(Calls):
    """A statement that fails: its values are in no log, and in no error.

    Credentials of exports are among them, and SQLAlchemy quotes all values.
    """

    def refuse_writes(self):
        with base.main_context_manager.writer.using(base.admin()) as session:
            for table in ('volumes', 'snapshots', 'volume_attachment'):
                for event in ('INSERT', 'UPDATE'):
                    session.execute(sqlalchemy.text(
                        'CREATE TRIGGER no_%s_%s BEFORE %s ON %s BEGIN '
                        'SELECT RAISE(ABORT, "read-only"); END' % (
                            table, event, event, table)))

    def failed(self, call):
        """All that is said of a failed call."""
        log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        try:
            call()
        except db_exc.DBError as exc:
            return log.output + '\n'.join(traceback.format_exception(exc))
        return self.fail('it did not write')

    @ddt.data(*(each for each in writers() if each not in OF_CINDER))
    def test_writer(self, name):
        call = prepared(self, name)
        self.refuse_writes()
        said = self.failed(call)
        self.assertIn('read-only', said)
        self.assertNotIn('[parameters:', said)

    @ddt.data(('attachments._rewrite', '"auth_password": '),
              ('moves.begin', records_case.AUTH))
    @ddt.unpack
    def test_credentials(self, name, secret):
        call = prepared(self, name)
        self.refuse_writes()
        self.assertNotIn(secret, self.failed(call))


@ddt.ddt
class LocksTest(Calls):
    """InnoDB locks each row that it has to look at.

    Without an index all of the table: each attach and detach of the cloud
    would wait.
    """

    @ddt.data(*writers())
    def test_only_rows_by_their_ids(self, name):
        call = prepared(self, name)
        other = []

        def look(state):
            if not (state.is_update or state.is_delete or (
                    state.is_select
                    and state.statement._for_update_arg is not None)):
                return
            text = ' '.join(str(state.statement.compile(
                dialect=mysql.dialect())).split())
            if not BY_ID.search(text):
                other.append(text)
        sqlalchemy_event.listen(orm.Session, 'do_orm_execute', look)
        try:
            call()
        finally:
            sqlalchemy_event.remove(orm.Session, 'do_orm_execute', look)
        self.assertEqual([], other)

    @ddt.data(*writers())
    def test_what_is_changed_was_locked_when_it_was_read(self, name):
        """Otherwise what Cinder writes in between is lost."""
        call = prepared(self, name)
        locked, other = set(), []

        def look(state):
            if state.is_select and state.statement._for_update_arg is not None:
                text = str(state.statement.compile(dialect=mysql.dialect()))
                locked.update((state.session, table) for table in
                              re.findall(r'\b(?:FROM|JOIN) (\w+)', text))

        def flush(session, _context, _instances):
            other.extend(
                each.__tablename__ for each in session.dirty
                if session.is_modified(each)
                and (session, each.__tablename__) not in locked)
        events = ('do_orm_execute', look), ('before_flush', flush)
        for each in events:
            sqlalchemy_event.listen(orm.Session, *each)
        try:
            call()
        finally:
            for each in events:
                sqlalchemy_event.remove(orm.Session, *each)
        self.assertEqual([], other)
