# SPDX-License-Identifier: Apache-2.0
"""Tempest in a lab: its configuration, what it says, what is left out."""

import configparser
import pathlib
from unittest import mock

import ddt
import fixtures
import testtools

from lab.nova import compute
from lab.nova import online_extend
from lab.tempest import kept
from lab.tempest import results
from lab.tempest import service_logs
from lab.tempest import settings
from lab.tempest import skipped

VOLUME = 'tempest.api.volume.test_volumes_get.VolumesGetTest.'
ATTACH = 'tempest.api.compute.volumes.test_attach_volume.Attach.'

#: As testtools writes it: the body of a failed test, then of a clean-up.
TRACEBACK = '''
Traceback (most recent call last):

  File "/venv/tempest/common/waiters.py", line 312, in wait_for_status
    raise exceptions.VolumeResourceBuildErrorException(
             ^^^^^^^^^^

tempest.exceptions.VolumeResourceBuildErrorException: volume \
0a1b2c3d-0000-4000-8000-0a1b2c3d4e5f of \
tempest-VolumesGetTest-1234 failed within 300 s
Details: status ERROR, began at 1795343758

Traceback (most recent call last):
  File "/venv/x.py", line 1, in y
    z()
KeyError: 3
'''


class SettingsTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = configparser.RawConfigParser()
        self.conf.read_string(settings.tempest(
            settings.Cloud('image', 'other', 'small', 'large'),
            pathlib.Path('/run/x'), 2))

    def test_names_what_the_cloud_has(self):
        compute = self.conf['compute']
        self.assertEqual(
            ['image', 'other', 'small', 'large', '2'],
            [compute[name] for name in (
                'image_ref', 'image_ref_alt', 'flavor_ref', 'flavor_ref_alt',
                'min_compute_nodes')])

    def test_uses_the_accounts_and_the_endpoint_of_the_lab(self):
        self.assertEqual('http://192.0.2.1:5000/v3',
                         self.conf['identity']['uri_v3'])
        self.assertEqual(['admin', 'lab'], [
            self.conf['auth'][name] for name in (
                'admin_username', 'admin_password')])

    def test_what_a_driver_shall_have_is_on(self):
        features = self.conf['volume-feature-enabled']
        for name in ('snapshot', 'clone', 'manage_volume', 'manage_snapshot',
                     'volume_revert', 'extend_attached_volume'):
            self.assertTrue(features.getboolean(name), name)

    def test_everything_is_written_where_it_runs(self):
        self.assertEqual('/run/x/tempest.log',
                         self.conf['DEFAULT']['log_file'])
        self.assertEqual('/run/x/locks',
                         self.conf['oslo_concurrency']['lock_path'])


@ddt.ddt
class ResultsTest(testtools.TestCase):

    def outcome(self, test, status, cause=''):
        return results.Outcome(test, status, 1.5, cause)

    @ddt.data(('success', results.PASSED), ('skip', results.SKIPPED),
              ('fail', results.FAILED), ('inprogress', results.FAILED),
              ('uxsuccess', results.FAILED), ('xfail', results.PASSED))
    @ddt.unpack
    def test_status(self, said, status):
        self.assertEqual(status, results.outcome(
            VOLUME + 'test_x', said, 1, {}).status)

    def test_an_outcome_has_the_name_without_attributes(self):
        self.assertEqual(
            results.Outcome(VOLUME + 'test_x', results.SKIPPED, 1, 'off'),
            results.outcome(VOLUME + 'test_x[id-1,smoke]', 'skip', 1,
                            {'reason': 'off\n'}))

    def test_the_first_traceback_is_the_cause(self):
        self.assertEqual(
            results.cause(TRACEBACK), results.outcome(
                VOLUME + 'test_x', 'fail', 1,
                {'traceback': TRACEBACK, 'traceback-1': 'no'}).cause)

    def test_a_cause_has_neither_ids_nor_names_nor_times(self):
        self.assertEqual(
            'tempest.exceptions.VolumeResourceBuildErrorException: volume ID '
            'of NAME failed within N s Details: status ERROR, began at TIME',
            results.cause(TRACEBACK))

    def test_a_cause_is_not_endless(self):
        self.assertEqual(
            results.LENGTH + 3,
            len(results.cause('Traceback\n  File "x"\nE: ' + 'x' * 9999)))

    def test_what_says_nothing_ended_early(self):
        self.assertEqual(results.ENDED, results.outcome(
            VOLUME + 'test_x', 'inprogress', 0, {}).cause)

    @ddt.data((VOLUME + 'test_x', 'tempest.api.volume'),
              (ATTACH + 'test_x', 'tempest.api.compute.volumes'),
              ('tempest.api.volume_of.test_x', None),
              ('tempest.api.compute.servers.test_x', None))
    @ddt.unpack
    def test_suite(self, test, suite):
        self.assertEqual(suite, results.suite(test))

    def test_what_befalls_a_class_befalls_its_tests(self):
        own = self.outcome(VOLUME + 'test_own', results.PASSED)
        of_class = self.outcome('setUpClass (%s)' % VOLUME[:-1],
                                results.SKIPPED, 'off')
        found = results.of_all(
            [VOLUME + 'test_own', VOLUME + 'test_1', VOLUME + 'test_2'],
            [of_class, own])
        self.assertEqual(own, found[0])
        self.assertEqual(
            [(VOLUME + 'test_1', results.SKIPPED, 'off', 0),
             (VOLUME + 'test_2', results.SKIPPED, 'off', 0)],
            [(each.name, each.status, each.cause, each.seconds)
             for each in found[1:]])

    def test_a_test_that_is_never_heard_of_failed(self):
        self.assertEqual(
            [results.Outcome(VOLUME + 'test_1', results.FAILED, 0,
                             results.ENDED)],
            results.of_all([VOLUME + 'test_1'], []))

    def test_a_class_that_cannot_be_cleaned_up_is_a_failure(self):
        passed = self.outcome(VOLUME + 'test_1', results.PASSED)
        for status, more in ((results.FAILED, 1), (results.PASSED, 0)):
            found = results.of_all([passed.name], [passed, self.outcome(
                'tearDownClass (%s)' % VOLUME[:-1], status, 'left')])
            self.assertEqual(
                [passed] + [self.outcome(VOLUME + 'tearDownClass', status,
                                         'left')] * more, found)

    def test_causes_the_most_frequent_first(self):
        self.assertEqual(
            [('b', ['2', '3']), ('a', ['1'])],
            results.by_cause([
                self.outcome('1', results.FAILED, 'a'),
                self.outcome('2', results.FAILED, 'b'),
                self.outcome('3', results.FAILED, 'b'),
                self.outcome('4', results.SKIPPED, 'b'),
            ], results.FAILED))

    def test_a_row_for_each_suite_and_one_for_all(self):
        self.assertEqual(
            [('tempest.api.volume', 3, 1, 1, 1),
             ('tempest.api.compute.volumes', 1, 1, 0, 0),
             ('all', 4, 2, 1, 1)],
            results.rows([self.outcome(VOLUME + '1', results.PASSED),
                          self.outcome(VOLUME + '2', results.FAILED),
                          self.outcome(VOLUME + '3', results.SKIPPED),
                          self.outcome(ATTACH + '1', results.PASSED)]))


class KeptTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'kept.json'

    def test_what_has_passed_is_known_the_next_time(self):
        first = kept.Kept(self.path)
        passed = results.Outcome(VOLUME + 'a', results.PASSED, 2.5)
        for each in (passed,
                     results.Outcome(VOLUME + 'b', results.FAILED, 1, 'x'),
                     results.Outcome(VOLUME + 'c', results.SKIPPED, 1, 'y')):
            first.keep(each)
        self.assertEqual([passed], kept.Kept(self.path).outcomes(
            [VOLUME + each for each in 'abcd']))

    def test_what_does_not_exist_any_more_is_left_out(self):
        first = kept.Kept(self.path)
        first.keep(results.Outcome(VOLUME + 'a', results.PASSED, 2.5))
        self.assertEqual([], first.outcomes([VOLUME + 'b']))

    def test_without_a_file_all_run(self):
        nothing = kept.Kept(None)
        nothing.keep(results.Outcome(VOLUME + 'a', results.PASSED, 2.5))
        self.assertEqual([], nothing.outcomes([VOLUME + 'b']))


class ServiceLogsTest(testtools.TestCase):

    LOG = '''\
2026-11-22 10:00:01.5 968 ERROR cinder.manager Traceback (most recent call):
2026-11-22 10:00:01.5 968 ERROR cinder.manager   File "/x.py", line 3, in do
2026-11-22 10:00:01.5 968 ERROR cinder.manager     self.driver.clone(volume)
2026-11-22 10:00:01.5 968 ERROR cinder.manager   File "/y.py", line 8, in clone
2026-11-22 10:00:01.5 968 ERROR cinder.manager     raise NotImplementedError()
2026-11-22 10:00:01.5 968 ERROR cinder.manager NotImplementedError
2026-11-22 10:00:02.0 968 ERROR oslo [req-1] Exception: clone failed
2026-11-22 10:00:02.5 968 INFO cinder.manager x.Broken: said twice
2026-11-22 10:00:03.5 968 ERROR oslo   File "/y.py", line 8, in copy
2026-11-22 10:00:03.5 968 ERROR oslo x.Broken: no %s
2026-11-22 10:00:04.5 968 ERROR oslo   File "/y.py", line 8, in clone
2026-11-22 10:00:04.5 968 ERROR oslo NotImplementedError
''' % ('0a1b2c3d-0000-4000-8000-0a1b2c3d4e5f')

    def raised(self, began, ended):
        return service_logs.raised(
            self.LOG, *('2026-11-22 10:00:0%d' % each
                        for each in (began, ended)))

    def test_what_was_raised_is_told_once_with_its_function(self):
        self.assertEqual(
            ['clone: NotImplementedError', 'copy: x.Broken: no ID'],
            self.raised(0, 9))

    def test_only_while_the_test_ran(self):
        self.assertEqual(['copy: x.Broken: no ID'], self.raised(2, 3))
        self.assertEqual([], self.raised(5, 9))


@ddt.ddt
class SkippedTest(testtools.TestCase):

    REASONS = {r'tempest\.a\.': 'no a', r'tempest\.b\.test_1$': 'no b'}

    def test_the_file_has_a_reason_for_every_test(self):
        for pattern, reason in skipped.read(
                skipped.PATH.read_text()).items():
            self.assertTrue(results.suite(
                pattern.replace('\\', '').rstrip('.$')), pattern)
            self.assertGreater(len(reason), 20, pattern)

    def test_reads_reasons(self):
        self.assertEqual({'a': 'no two lines', 'b': 'no two lines'},
                         skipped.read('- reason: >-\n    no\n    two lines\n'
                                      '  tests: [a, b]\n'))

    @ddt.data('- tests: [a]', '- reason: x', '- {reason: x, tests: []}',
              '- {reason: x, tests: [a, a]}',
              '- {reason: x, tests: [a], more: 1}')
    def test_refuses_an_entry_that_says_too_little(self, text):
        self.assertRaises(ValueError, skipped.read, text)

    @ddt.data(('tempest.a.test_1', 'no a'), ('tempest.b.test_1', 'no b'),
              ('tempest.b.test_11', None), ('x.tempest.a.test_1', None))
    @ddt.unpack
    def test_reason(self, name, reason):
        self.assertEqual(reason, skipped.reason(self.REASONS, name))

    def test_unknown(self):
        self.assertEqual([r'tempest\.b\.test_1$'], skipped.unknown(
            self.REASONS, ['tempest.a.test_1', 'tempest.b.test_2']))


class OnlineExtendTest(testtools.TestCase):
    """What nova-compute gets is what the page about extending says."""

    def test_the_method_of_the_guide(self):
        extend = online_extend.method(online_extend.PAGE.read_text())
        self.assertEqual(2 << 30, extend(None, {}, 'instance', 2 << 30))

    def test_a_page_without_it_is_refused(self):
        self.assertRaises(ValueError, online_extend.method, 'nothing\n')

    def test_only_where_volumes_are_extended_in_use(self):
        lab = mock.Mock(settings={'options': {}}, python='python',
                        repo=pathlib.Path('/repo'))
        self.assertEqual('', compute._runner(lab))
        lab.settings['options']['localclone_enable_online_extend'] = True
        self.assertEqual('python /repo/lab/nova/online_extend.py ',
                         compute._runner(lab))
