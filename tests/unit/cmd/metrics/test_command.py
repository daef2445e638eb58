# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads of a node."""

import argparse
import dataclasses
import io
import json
import os
import pathlib
import socket
import stat
import subprocess
import sys
import threading
import time
import types
from unittest import mock
import urllib.request

import ddt
import fixtures
from prometheus_client import parser
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd import errors
from cinder_localclone.cmd import main
from cinder_localclone.cmd.metrics import command as metrics_command
from cinder_localclone.cmd.metrics import figures
from cinder_localclone.cmd.metrics import sources
from cinder_localclone.core import copies
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.db import interrupted
from cinder_localclone.db import inventory
from cinder_localclone.moves import queue
from cinder_localclone.storage import clone
from tests.helpers.inventory_rows import A
from tests.helpers.inventory_rows import B
from tests.helpers.inventory_rows import C
from tests.helpers.inventory_rows import GIB
from tests.helpers.inventory_rows import lv
from tests.helpers.inventory_rows import MIB
from tests.helpers.inventory_rows import moving
from tests.helpers.inventory_rows import row
from tests.helpers.inventory_rows import SHADOW
from tests.helpers.inventory_rows import V1
from tests.helpers.inventory_rows import V2
from tests.helpers.inventory_rows import V3


def storage(*lvs, clones=None, devices=None, pool=None, **more):
    return sources.Storage(
        survey.Survey({each.name: each for each in lvs}, devices or {}),
        lvm_reports.FreeSpace(5 * GIB, GIB, False),
        lvm_reports.Capacity(10 * GIB, 5 * GIB, 3 * GIB, 2), 'g', pool,
        clones or {}, **more)


def database(moves=(), volumes=(), turns=None, **more):
    return sources.Database(
        {A: True, B: False}, [inventory.Under(each, 1000.0)
                              for each in moves],
        0, list(volumes), turns or {}, **more)


def answers(**values):
    return {name: sources.Answer(values.get(name), '' if name in values
                                 else 'away', 0.5)
            for name in ('storage', 'database', 'service', 'doctor')}


def collected(host=B, **values):
    """All values: {(name, label values...): value}."""
    families = figures.Figures(host, 1060.0).collect(
        answers(**values), '1.2')
    return {(sample.name.removeprefix('localclone_'),
             *sample.labels.values()): sample.value
            for family in families for sample in family.samples}


@ddt.ddt
class FiguresTest(testtools.TestCase):

    def test_each_source_by_itself(self):
        self.assertEqual(
            {('info', '1.2'): 1, **{
                ('collector_' + what, name): value
                for name in ('storage', 'database', 'service', 'doctor')
                for what, value in (('success', 0), ('seconds', 0.5))}},
            collected())
        for name, value, shows in (
                ('storage', storage(), ('capacity_bytes',)),
                ('database', database(), ('volumes',)),
                ('service', {'events': {'stalled': 2}, 'refusals': {},
                             'copies': {}}, ('events_total', 'stalled')),
                ('doctor', [], ('doctor_checks', 'OK'))):
            found = collected(**{name: value})
            self.assertEqual(1, found['collector_success', name])
            self.assertIn(shows, found)

    def test_what_is_odd_in_one_hides_none_of_the_others(self):
        found = collected(
            storage=storage(), service={'events': None},
            database=database(volumes=[dataclasses.replace(
                row(V1), status=None, migration_status=7)]),
            doctor=[checks.Finding('a', 'odd')])
        self.assertEqual(
            {'storage': 1, 'database': 1, 'comparison': 0, 'service': 0,
             'doctor': 0},
            {key[1]: value for key, value in found.items()
             if key[0] == 'collector_success'})
        self.assertEqual(1, found['volumes',])

    @ddt.data((Phase.MIGRATING, True, B, 'migrating'),
              (Phase.MIGRATING, False, B, 'preparing'),
              (Phase.STARTING, True, B, 'starting'),
              (Phase.RELEASING, True, A, 'releasing'),
              (Phase.ROLLING_BACK, False, B, 'rolling-back'))
    @ddt.unpack
    def test_one_node_tells_of_a_move(self, phase, committed, host, shown):
        said = database([moving(phase=phase, committed=committed)])
        found = {each: collected(each, database=said) for each in (A, B, C)}
        self.assertEqual({host}, {
            each for each, values in found.items()
            if sum(values['moves', phase] for phase in figures.PHASES)})
        self.assertEqual(1, found[host]['moves', shown])
        self.assertEqual(60, found[host][
            'move_age_seconds', V1, A, B, shown])
        copied = phase not in state.OVER
        self.assertEqual(GIB if copied else None, found[host].get(
            ('move_bytes', V1, A, B)))

    def test_no_value_is_told_twice(self):
        """What moves of one volume have left has the labels of the next one.

        Who scrapes takes nothing at all then.
        """
        for phase, committed, host in (
                (Phase.ROLLING_BACK, False, B), (Phase.RELEASING, True, A)):
            found = figures.Figures(host, 1060.0).collect(answers(
                database=database([moving(), *(
                    moving(phase=phase, committed=committed, shadow=shadow)
                    for shadow in 'st')])), '1.2')
            for family in found:
                told = [tuple(sample.labels.values())
                        for sample in family.samples]
                self.assertEqual(sorted(set(told)), sorted(told),
                                 family.name)

    def test_the_oldest_of_what_is_left_is_told(self):
        left = [inventory.Under(moving(
            phase=Phase.RELEASING, shadow=shadow), began)
            for shadow, began in (('s', 1020.0), ('t', 1000.0),
                                  ('u', 1010.0))]
        found = collected(A, database=dataclasses.replace(
            database(), moves=left))
        self.assertEqual(
            60, found['move_age_seconds', V1, A, B, 'releasing'])
        self.assertEqual(3, found['moves', 'releasing'])

    def test_copies(self):
        turns = {shadow: queue.Turn(copies.Entry(
            shadow, V1, A, destination, stalled=stalled), place)
            for shadow, destination, place, stalled in (
                (SHADOW, B, 0, 7.0), ('t', B, 1, 0), ('u', C, 0, 0))}
        found = collected(database=database([moving()], turns=turns))
        self.assertEqual([1, 1, 1], [found['copies', name] for name in (
            'running', 'waiting', 'stalled')])
        self.assertEqual(1, found['move_stalled', V1, A, B])

    def test_services_and_volumes(self):
        found = collected(database=database(
            volumes=[row(V1), row(V2), row(V3, A)]))
        self.assertEqual(
            (1, 0, 2, 4 * GIB), (
                found['service_up', A], found['service_up', B],
                found['volumes',], found['volumes_bytes',]))

    def test_what_nobody_ends(self):
        found = collected(database=database(unended=[interrupted.Unended(
            'snapshot', 's', 'restoring', B, 9999)]))
        self.assertEqual((1, 0), (found['unended', 'snapshot'],
                                  found['unended', 'move']))

    def test_pool(self):
        found = collected(storage=storage(lv(
            'pool', size=10 * GIB, allocated=4 * GIB, metadata_size=8 * MIB,
            metadata_used=MIB), pool='pool'))
        self.assertEqual(
            (4 * GIB, 10 * GIB, 0.95, MIB, 8 * MIB, 0.75), tuple(
                found['pool_' + name, what] for what in ('data', 'metadata')
                for name in ('used_bytes', 'size_bytes', 'limit_ratio')))
        self.assertEqual((5 * GIB, GIB), (found['free_bytes', 'volumes'],
                                          found['free_bytes', 'metadata']))
        self.assertNotIn(('pool_used_bytes', 'data'),
                         collected(storage=storage()))

    def metadata(self):
        return lv(names.metadata_lv(SHADOW), *names.tags(volume=V1))

    def test_what_is_copied(self):
        status = dm_tables.CloneStatus(128, 1, 9, 16, 20, 0, True, 'rw')
        said = storage(self.metadata(), clones={SHADOW: status})
        found = collected(storage=said, service={
            'events': {}, 'refusals': {'source_busy': 3},
            'copies': {SHADOW: {'rate': 2.5}, 'of another': {'rate': 1}}})
        self.assertEqual(
            (16 * 128 * 512, 0, 2.5, 3), (
                found['copied_bytes', V1], found['clone_failed', V1],
                found['copy_rate_bytes', V1],
                found['refusals_total', 'source_busy']))
        self.assertNotIn(('copy_pace', V1, 'full'), found)  # older ones
        found = collected(storage=said, service={
            'events': {}, 'refusals': {},
            'copies': {SHADOW: {'rate': None, 'pace': 'floor'}}})
        self.assertEqual([0, 0, 1, 0], [found['copy_pace', V1, pace] for pace
                         in ('full', 'yielding', 'floor', 'limited')])
        failed = dataclasses.replace(status, mode='Fail')
        self.assertEqual(1, collected(storage=storage(
            self.metadata(), clones={SHADOW: failed}))['clone_failed', V1])

    def test_suspended(self):
        device = dm_tables.Device(
            'localclone-' + V1, 'u', '253:9', 0, True, '')
        self.assertEqual(2, collected(storage=storage(
            lv('x', suspended=True), devices={device.name: device}))[
                'suspended_devices',])

    def test_locked(self):
        opened = lv('volume-' + V1, names.OPENED, *names.tags(volume=V1))
        self.assertEqual(1, collected(storage=storage(opened))[
            'locked_volumes',])
        crypt = dm_tables.Device(names.crypt(V1), 'u', '253:9', 0, False, '')
        self.assertEqual(0, collected(storage=storage(
            opened, devices={crypt.name: crypt}))['locked_volumes',])

    def test_reencryption(self):
        found = collected(storage=storage(*(
            lv('volume-' + volume, *names.tags(volume=volume),
               names.REENCRYPTED, *more)
            for volume, more in ((V1, ()), (V2, (names.PAUSED,)), (V3, ()))),
            reencrypting=frozenset([V1]),
            how_far={V1: cryptsetup_cli.Progress(5, 9, 2, 2.0),
                     V2: cryptsetup_cli.Progress(1, 9, 2, 4.0)}))
        self.assertEqual([1, 1, 1], [found['reencryptions', name] for name in
                                     ('running', 'paused', 'waiting')])
        self.assertEqual((5, 9, 2), tuple(
            found['reencrypt' + name, V1] for name in (
                'ed_bytes', 'ion_bytes', 'ion_rate_bytes')))
        self.assertNotIn(('reencrypted_bytes', V2), found)

    def test_doctor(self):
        found = collected(doctor=[
            checks.Finding('pool', checks.OK),
            checks.Finding('pool', checks.FAIL),
            checks.Finding('clock', checks.WARN)])
        self.assertEqual((1, 1, 1, 2, 1), (
            *(found['doctor_checks', each] for each in figures.VERDICTS),
            found['doctor_check', 'pool'], found['doctor_check', 'clock']))

    def test_differences(self):
        handle = dm_tables.Device(
            names.handle(V1), names.device_uuid(names.handle(V1)), '253:7',
            0, False, '0 %d linear 253:1 0' % (2 * GIB // 512))
        here = dict(volumes=[row(V1), row(V2), row(V3, A)])
        right = storage(
            lv('volume-' + V1, *names.tags(volume=V1)),
            lv('volume-' + SHADOW, *names.tags(volume=V3), number='253:2'),
            devices={handle.name: handle})
        found = collected(storage=right, database=database(**here))
        self.assertEqual((1, 1), (found['differing_volumes',],
                                  found['unknown_lvs',]))
        found = collected(storage=right, database=database(volumes=[row(V1)]))
        self.assertEqual(0, found['differing_volumes',])

    def test_all_have_a_name_a_help_and_a_unit_of_their_own(self):
        for name, metric in figures.METRICS.items():
            self.assertRegex(name, '^localclone_[a-z_]+$')
            self.assertEqual(metric.kind == 'counter',
                             name.endswith('_total'))
            self.assertTrue(metric.help)
            self.assertFalse(set(metric.labels) & {'backend', 'host'})

    def test_labels_are_those_of_the_metric(self):
        made = figures.Figures(B, 0.0)
        for labels in ({}, {'label': 'x'}, {'version': '1', 'more': 'x'}):
            self.assertRaises(ValueError, made._add, 'info', 1, **labels)


class SourceTest(testtools.TestCase):

    def test_answers_and_errors(self):
        for read, value, problem in (
                (lambda: 7, 7, ''), (lambda: 1 // 0, None, 'division')):
            source = sources.Source('s', read)
            source.begin()
            found = source.answer(time.monotonic() + 30)
            self.assertEqual(value, found.value)
            self.assertIn(problem, found.problem)

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
        self.stack = mock.create_autospec(
            clone.Stack, instance=True, group='g', pool=None)
        self.stack.survey.return_value = survey.Survey(
            {each.name: each for each in made}, {
                names.clone(each): device for each in ids})
        self.stack.space.return_value = (lvm_reports.FreeSpace(1, 1, False),
                                         lvm_reports.Capacity(1, 1, 1, 1))
        backend = mock.Mock()
        backend.stack.return_value = self.stack
        with mock.patch(
                'cinder_localclone.storage.privsep.reencrypt_process.running',
                return_value=ids[:1]) as running, mock.patch(
                'cinder_localclone.storage.privsep.reencrypt_process.said',
                return_value='{"device_bytes": "1", "device_size": "2", '
                '"speed": "3", "eta_ms": "4"}'):
            found = sources.storage(backend)
        return found, len(self.stack.mock_calls) + running.call_count

    def test_as_many_commands_for_many_as_for_one(self):
        one, calls = self.storage(1)
        many, as_many = self.storage(9)
        self.assertEqual(calls, as_many)
        self.assertEqual((1, 9), (len(one.how_far), len(many.how_far)))
        self.assertEqual(1, len(many.reencrypting))

    def test_what_is_not_there_is_not_asked_for(self):
        _found, calls = self.storage(0)
        self.stack.clone_statuses.assert_not_called()
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
        backend.records.all_moves.side_effect = OSError('no database')
        backend.call.return_value = {'events': {}}
        backend.stack.side_effect = OSError('no LVM')
        with mock.patch.object(sources, 'doctor', return_value=[]):
            found = sources.Watch(backend, 30, 300).read()
        self.assertEqual(
            {'database': 'no database', 'storage': 'no LVM', 'service': '',
             'doctor': ''},
            {name: each.problem for name, each in found.items()})
        backend.call.assert_called_once_with(A, 'figures')


def reader():
    """Of one move and two events."""
    backend = types.SimpleNamespace(name='l', host=B)
    return metrics_command.Reader(types.SimpleNamespace(
        backend=backend, read=lambda: answers(
            database=database([moving()], [row(V1)]), service={
                'events': {'stalled': 2}, 'refusals': {}, 'copies': {}})))


def scrape():
    """Serve what there is, read it over HTTP, print it."""
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]

    def read():
        with urllib.request.urlopen(
                'http://127.0.0.1:%d/metrics' % port, timeout=30) as said:
            print(said.read().decode())
    with mock.patch.object(metrics_command, 'stay', read):
        metrics_command.serve(reader(), '127.0.0.1', port)


@ddt.ddt
class CommandTest(testtools.TestCase):

    @ddt.data(('9100', ('127.0.0.1', 9100)), (':1', ('127.0.0.1', 1)),
              ('0.0.0.0:9', ('0.0.0.0', 9)), ('[::]:9', ('::', 9)))
    @ddt.unpack
    def test_address(self, text, expected):
        self.assertEqual(expected, metrics_command.address(text))

    @ddt.data('', 'x', '0', '65536', 'host', 'host:')
    def test_what_is_no_address(self, text):
        self.assertRaises(
            argparse.ArgumentTypeError, metrics_command.address, text)

    def test_served(self):
        """By the library, over HTTP, the same as in a file."""
        # Not where another test may have made its threads green ones.
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c',
             'from tests.unit.cmd.metrics import test_command as here; '
             'here.scrape()'],
            stdout=subprocess.PIPE, text=True, timeout=120,
            cwd=pathlib.Path(__file__).parents[4])
        for line in ('localclone_moves{backend="l",host="b@l",'
                     'phase="migrating"} 1.0',
                     'localclone_events_total{backend="l",event="stalled",'
                     'host="b@l"} 2.0',
                     '# TYPE localclone_events_total counter'):
            self.assertIn(line, done.stdout)

    def test_port_that_is_taken(self):
        with socket.create_server(('127.0.0.1', 0)) as taken:
            error = self.assertRaises(
                errors.CommandError, metrics_command.serve, reader(),
                '127.0.0.1', taken.getsockname()[1])
        self.assertIn('can\'t be listened on', str(error))

    def run_command(self, *words):
        app = main.LocalClone()
        app.backend = mock.Mock(return_value=mock.Mock(host=B))
        app.backend.return_value.name = 'l'
        app.stdout = io.StringIO()
        app.options = argparse.Namespace(json='--json' in words, debug=True)
        self.useFixture(fixtures.MockPatchObject(sources.Watch, 'prepare'))
        self.useFixture(fixtures.MockPatchObject(
            sources.Watch, 'read', return_value=answers(
                database=database([moving()], [row(V1)]))))
        command = metrics_command.Metrics(app, None)
        command.run(command.get_parser('metrics').parse_args(
            [word for word in words if word != '--json']))
        return app.stdout.getvalue()

    def test_printed(self):
        text = self.run_command()
        self.assertIn('localclone_moves{backend="l",host="b@l",'
                      'phase="migrating"} 1.0\n', text)
        self.assertNotIn('localclone_capacity_bytes', text)  # no LVM
        self.assertIn({'Name': 'localclone_volumes', 'Value': 1.0,
                       'Labels': {'backend': 'l', 'host': B}},
                      json.loads(self.run_command('--json')))

    def test_written(self):
        directory = self.useFixture(fixtures.TempDir()).path
        path = os.path.join(directory, 'x.prom')
        for _time in range(2):
            self.assertEqual('', self.run_command('--textfile', path))
            self.assertEqual(
                [1.0], [sample.value for family in
                        parser.text_string_to_metric_families(
                            pathlib.Path(path).read_text())
                        for sample in family.samples
                        if sample.name == 'localclone_volumes'])
        # The node_exporter is another user.
        self.assertEqual(0o644, stat.S_IMODE(os.stat(path).st_mode))
        self.assertEqual(['x.prom'], os.listdir(directory))

    def test_a_file_that_cannot_be_replaced_stays(self):
        directory = self.useFixture(fixtures.TempDir()).path
        path = os.path.join(directory, 'x.prom')
        pathlib.Path(path).write_text('before')
        self.useFixture(fixtures.MockPatch(
            'prometheus_client.exposition.os.rename', side_effect=OSError))
        self.assertRaises(errors.CommandError, self.run_command,
                          '--textfile', path)
        self.assertEqual('before', pathlib.Path(path).read_text())
        self.assertEqual(['x.prom'], os.listdir(directory))

    def test_where_nothing_can_be_written(self):
        path = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'none', 'x.prom')
        error = self.assertRaises(errors.CommandError, self.run_command,
                                  '--textfile', path)
        self.assertEqual('%s can\'t be written: No such file or directory'
                         % path, str(error))

    def test_objects(self):
        found = list(figures.as_objects(reader().collect()))
        self.assertIn({'Name': 'localclone_moves',
                       'Labels': {'backend': 'l', 'host': B,
                                  'phase': 'migrating'},
                       'Value': 1.0}, json.loads(json.dumps(found)))
