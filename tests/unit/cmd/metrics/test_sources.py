# SPDX-License-Identifier: Apache-2.0
"""Where the figures of a node come from."""

import threading
import time
from unittest import mock

from sqlalchemy import exc
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.metrics import sources
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.storage import clones
from cinder_localclone.storage import handles
from cinder_localclone.storage import logical_volumes
from tests.helpers.inventory_rows import A
from tests.helpers.inventory_rows import lv


class SourceTest(testtools.TestCase):

    def test_answers_and_errors(self):
        for read, value, problem in (
                (lambda: 7, 7, ''), (lambda: 1 // 0, None, 'division')):
            source = sources.Source('s', read)
            source.begin()
            found = source.answer(time.monotonic() + 30)
            self.assertEqual(value, found.value)
            self.assertIn(problem, found.problem)

    def test_password_of_the_database(self):
        """SQLAlchemy 2.0 quotes a wrong URL."""
        source = sources.Source('s', mock.Mock(side_effect=exc.ArgumentError(
            'Could not parse SQLAlchemy URL from string \'c:Secret@db/x\'')))
        source.begin()
        problem = source.answer(time.monotonic() + 30).problem
        self.assertIn('Correct [database] connection', problem)
        self.assertNotIn('Secret', problem)

    def test_one_that_hangs_is_waited_for_once(self):
        go_on, asked = threading.Event(), []
        self.addCleanup(go_on.set)

        def read():
            asked.append(1)
            go_on.wait(30)
            return 'late'
        source = sources.Source('s', read)
        for _scrape in range(3):
            source.begin()
            found = source.answer(time.monotonic())
            self.assertEqual((None, 'no answer in time'),
                             (found.value, found.problem))
        self.assertEqual([1], asked)
        go_on.set()
        self.assertEqual('late', source.answer(
            time.monotonic() + 30).value)
        source.begin()
        source.answer(time.monotonic() + 30)
        self.assertEqual([1, 1], asked)

    def test_what_is_kept(self):
        asked, now = [], [0.0]
        source = sources.Source('s', lambda: asked.append(1) or 'x', 300,
                                lambda: now[0])
        for now[0], count in ((0.0, 1), (299.0, 1), (301.0, 2)):
            source.begin()
            self.assertEqual('x', source.answer(now[0] + 30).value)
            self.assertEqual(count, len(asked))

    def test_one_that_ends_its_thread_can_be_asked_again(self):
        asked = []

        def read():
            asked.append(1)
            raise SystemExit()
        source = sources.Source('s', read)
        for count in (1, 2):
            source.begin()
            self.assertTrue(source.answer(time.monotonic() + 30).problem)
            self.assertEqual(count, len(asked))

    def test_errors_are_not_kept(self):
        asked = []
        source = sources.Source('s', lambda: asked.append(1) or 1 // 0, 300)
        for count in (1, 2):
            source.begin()
            source.answer(time.monotonic() + 30)
            self.assertEqual(count, len(asked))


class ReadingTest(testtools.TestCase):
    """What the sources ask, and how often."""

    def storage(self, count):
        """With so many volumes that are copied, and re-encrypted."""
        ids = ['%08d-0000-4000-8000-00000000000a' % n for n in range(count)]
        made = [lv('volume-' + each, names.REENCRYPTED,
                   *names.tags(volume=each)) for each in ids]
        device = dm_tables.Device('', '', '253:7', 0, False, '')
        self.lvm = mock.create_autospec(
            logical_volumes.Lvm, instance=True, group='g', pool=None)
        self.handles = mock.create_autospec(handles.Handles, instance=True)
        self.clones = mock.create_autospec(clones.Clones, instance=True)
        self.handles.survey.return_value = survey.Survey(
            {each.name: each for each in made}, {
                names.clone(each): device for each in ids})
        self.lvm.space.return_value = (lvm_reports.FreeSpace(1, 1, False),
                                       lvm_reports.Capacity(1, 1, 1, 1))
        backend = mock.Mock()
        backend.lvm.return_value = self.lvm
        backend.handles.return_value = self.handles
        backend.clones.return_value = self.clones
        with mock.patch(
                'cinder_localclone.storage.privsep.reencrypt_process.running',
                return_value=ids[:1]) as running, mock.patch(
                'cinder_localclone.storage.privsep.reencrypt_process.'
                'progress_output',
                return_value='{"device_bytes": "1", "device_size": "2", '
                '"speed": "3", "eta_ms": "4"}'):
            found = sources.storage(backend)
        return found, running.call_count + sum(
            len(each.mock_calls)
            for each in (self.lvm, self.handles, self.clones))

    def test_as_many_commands_for_many_as_for_one(self):
        one, calls = self.storage(1)
        many, as_many = self.storage(9)
        self.assertEqual(calls, as_many)
        self.assertEqual((1, 9), (len(one.how_far), len(many.how_far)))
        self.assertEqual(1, len(many.reencrypting))

    def test_what_is_not_there_is_not_asked_for(self):
        _found, calls = self.storage(0)
        self.clones.clone_statuses.assert_not_called()
        self.assertEqual(2, calls)

    def test_doctor_looks_at_this_node_alone(self):
        backend = mock.Mock()
        with mock.patch(
                'cinder_localclone.cmd.doctor.doctor.node_checks',
                return_value=[checks.Finding('a', checks.OK)]), mock.patch(
                    'cinder_localclone.cmd.doctor.doctor.storage_checks',
                    side_effect=OSError('no LVM')), mock.patch.object(
                        checks, 'limits', return_value=[]):
            found = sources.doctor(backend)
        self.assertEqual([('a', 'OK'), ('storage', 'FAIL')], [
            (each.check, each.verdict) for each in found])
        backend.ask.assert_not_called()

    def test_one_that_fails_hides_no_other(self):
        backend = mock.Mock(host=A)
        backend.name = 'l'
        backend.db.inventory.all_moves.side_effect = OSError('no database')
        backend.call.return_value = {'events': {}}
        backend.lvm.side_effect = OSError('no LVM')
        with mock.patch.object(sources, 'doctor', return_value=[]):
            found = sources.Watch(backend, 30, 300).read()
        self.assertEqual(
            {'database': 'no database', 'storage': 'no LVM', 'service': '',
             'doctor': ''},
            {name: each.problem for name, each in found.items()})
        backend.call.assert_called_once_with(A, 'figures')
