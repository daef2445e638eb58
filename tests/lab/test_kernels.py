# SPDX-License-Identifier: Apache-2.0
"""The table of stock kernels, and ``make kernels``."""

import hashlib
import pathlib
import re
import subprocess
import sys
from unittest import mock

import fixtures
import testtools

from cinder_localclone.core import kernels
from lab.core import process
from lab.core import report as reports
from lab.kernels import __main__ as command
from lab.kernels import content
from lab.kernels import machine
from lab.kernels import move
from lab.kernels import root
from lab.scenarios import payload

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'doc/source/_ext'))
import kernels_table  # noqa: E402

INIT = (REPO / 'lab/kernels/init.sh').read_text()


class TableTest(testtools.TestCase):

    row = kernels.Kernel(
        'Any 1', ('any',), ('1',), 'x', '1.2', kernels.YES, kernels.NO,
        kernels.UNKNOWN, kernels.YES, 'modules', 'get it', 'config', 'today',
        'get more', 'A remark.')

    def test_cells(self):
        lines = [line.strip() for line in kernels_table.rst([self.row])]
        begin = lines.index('* - Any 1')
        self.assertEqual(
            ['* - Any 1', '- yes', '- no', '- unknown', '- yes', '- modules',
             '- ``get it``'], lines[begin:begin + 7])
        begin = lines.index('* - Any 1', begin + 1)
        self.assertEqual(
            ['* - Any 1', '- 1.2', '- config', '- today',
             '- A remark. The iSCSI target: ``get more``.'],
            lines[begin:begin + 5])

    def test_every_kernel_has_two_rows(self):
        lines = kernels_table.rst(kernels.KERNELS)
        for each in kernels.KERNELS:
            self.assertEqual(2, lines.count('   * - ' + each.name))


class ContentTest(testtools.TestCase):

    before = content.source(1)

    def changed(self, region, block, data):
        found = bytearray(content.expected(self.before))
        at = region * content.REGION + block * content.BLOCK
        found[at:at + len(data)] = data
        return [(each.region, each.block, each.why)
                for each in content.differences(self.before, bytes(found))]

    def test_what_it_must_be(self):
        self.assertEqual([], content.differences(
            self.before, content.expected(self.before)))
        self.assertNotEqual([], content.differences(
            self.before, self.before))

    def test_a_write_that_was_lost(self):
        at = content.MEANWHILE[0] * content.REGION
        self.assertEqual(
            [(600, 0, 'the source\'s content, not what was written')],
            self.changed(600, 0, self.before[at:at + content.BLOCK]))

    def test_another_tenants_data(self):
        self.assertEqual([(5, 3, 'other content')],
                         self.changed(5, 3, b'\xee' * content.BLOCK))
        self.assertEqual([(1023, 15, 'zeroes')],
                         self.changed(1023, 15, bytes(content.BLOCK)))

    def test_the_rest_of_a_region_that_was_written_in_part(self):
        self.assertEqual([(24, 3, 'other content')],
                         self.changed(24, 3, b'\xee' * content.BLOCK))

    def test_at_the_power_cut_a_block_is_old_or_new(self):
        new = content.pattern('unflushed-700', content.REGION)
        self.assertEqual([], self.changed(700, 4, new[16384:20480]))
        self.assertEqual([(700, 5, 'other content')],
                         self.changed(700, 5, new[16384:20480]))
        other = content.pattern('unflushed-699', content.REGION)
        self.assertEqual([(699, 4, 'other content')],
                         self.changed(699, 4, other[16384:20480]))

    def test_discarded_regions_may_have_any(self):
        self.assertEqual([], self.changed(40, 0, b'\xee' * content.REGION))
        self.assertEqual(16, len(
            self.changed(48, 0, b'\xee' * content.REGION)))

    def test_a_disk_that_is_too_small(self):
        found, = content.differences(self.before, self.before[:-1])
        self.assertEqual('region 1023, block 0: the disk ends here',
                         str(found))

    def test_pattern(self):
        self.assertEqual(b'ab\nab\na', content.pattern('ab', 7))
        self.assertEqual(content.REGION, len(
            content.pattern('early-8', content.REGION)))

    def test_first_process_writes_the_same(self):
        wrote = re.findall(r'write clone (\w+) (\d+) (\d+)', INIT)
        regions = {}
        for kind, first, last in wrote:
            regions.setdefault(kind, []).extend(
                range(int(first), int(last) + 1))
        self.assertEqual(
            {kind: list(getattr(content, kind.upper())) for kind in (
                'early', 'rewritten', 'meanwhile', 'again', 'unflushed',
                'late')}, regions)
        for kind, first, last in re.findall(
                r'as_written clone (\w+) (\d+) (\d+)', INIT):
            self.assertIn((kind, first, last), wrote)
        first, last = map(int, re.search(
            r'partial\(\) \{\n    region=(\d+)\n.*-le (\d+)', INIT).groups())
        self.assertEqual(content.PARTIAL, range(first, last + 1))
        start, length = map(int, re.search(
            r'blkdiscard -o \$\(\((\d+) \* 65536\)\) \\\n +-l \$\(\((\d+) \*',
            INIT).groups())
        self.assertEqual((content.DISCARDED[0], content.REWRITTEN[-1] + 1),
                         (start, start + length))


class MachineTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(
            content, 'source', return_value=bytes(content.SIZE)))
        self.machine = machine.Machine(self.path, self.path, 1)

    def test_said(self):
        self.assertEqual(['kernel 6.1', 'ok it is', 'cut'], machine.said(
            'x lab: no\nlab: kernel 6.1\n[ 1.0] noise\nlab: ok it is \n'
            'lab: cut\n'))

    def wait(self, text, running):
        (self.path / 'console').write_text(text)
        qemu = mock.Mock(poll=mock.Mock(return_value=None if running else 0))
        return self.machine._wait(qemu, self.path / 'console')

    def test_power_is_cut_when_it_asks_for_it(self):
        self.assertTrue(self.wait('lab: ok x\r\nlab: cut\r\n', True))
        self.assertFalse(self.wait('lab: done\r\n', False))

    def test_it_does_not_wait_for_ever(self):
        self.useFixture(fixtures.MockPatchObject(
            machine, 'PHASE_TIMEOUT', 0.1))
        found = self.assertRaises(process.LabError, self.wait,
                                  'Kernel panic\r\n', True)
        self.assertIn('Kernel panic', str(found))

    def test_unhydrated_regions_show_if_they_are_served(self):
        self.assertEqual({0xee}, set(
            (self.path / 'destination').read_bytes()))


class CommandTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.report = reports.Report(mock.Mock(), 't')
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.root = mock.create_autospec(root.Root, instance=True)
        self.root.version.return_value = '6.1.192-3'
        self.machine = mock.create_autospec(machine.Machine, instance=True)
        self.machine.differences.return_value = []
        self.useFixture(fixtures.MockPatchObject(
            machine, 'Machine', return_value=self.machine))

    def boot(self, *phases):
        self.machine.run.side_effect = phases
        try:
            command._boot(self.root, '6.1', self.path / 'x', self.report, 1)
        except reports.Failed:
            pass
        return [(row.what, row.verdict) for row in self.report.rows
                if row.verdict == reports.FAILED]

    def test_all_is_well(self):
        self.assertEqual([], self.boot(['ok a', 'cut'], ['ok b', 'done']))
        self.assertIn(('Linux 6.1.192-3', 'a'), [
            (row.part, row.what) for row in self.report.rows])

    def test_a_phase_that_fails(self):
        self.assertEqual([('boot 1', 'FAILED')], self.boot(
            ['ok a', 'FAILED discard']))
        self.assertIn('FAILED discard', self.report.rows[-1].detail)

    def test_a_phase_that_does_not_come_to_its_end(self):
        self.assertEqual([('boot 2', 'FAILED')],
                         self.boot(['cut'], ['ok a']))

    def test_content_that_differs(self):
        self.machine.differences.return_value = [
            content.Difference(5, 3, 'zeroes')]
        self.assertEqual(
            [('content of the destination, by the host', 'FAILED')],
            self.boot(['cut'], ['done']))

    def test_releases_are_in_the_table_of_kernels(self):
        names = {each.name: each for each in kernels.KERNELS}
        for each in root.RELEASES:
            self.assertIs(kernels.NO, names[each.name].clone)

    def release(self, status, **modules):
        """Install, and update the kernel; what has failed."""
        self.useFixture(fixtures.MockPatchObject(
            command.roots, 'Root', return_value=self.root))
        self.useFixture(fixtures.MockPatchObject(command, '_boot'))
        self.root.kernels.side_effect = [['6.1.0-51'], ['6.1.0-57']]
        self.root.configured.return_value = ''
        self.root.status.return_value = status
        self.root.module.return_value = {
            'filename': '/updates/dkms/x', 'signer': 'x', **modules}
        command._release(root.RELEASES[0], self.path, self.report, 1, None,
                         False)
        return [row.what for row in self.report.rows
                if row.verdict == reports.FAILED]

    def test_update_of_the_kernel_before_its_source(self):
        self.assertEqual([], self.release(
            'MISSING  linux-source-6.1 is of 6.1.176-1, kernel ...'))
        self.assertEqual([
            mock.call('linux-image-amd64', 'linux-headers-amd64'),
            mock.call('linux-source')], self.root.update.call_args_list)

    def test_a_missing_source_that_is_not_named(self):
        self.assertEqual(['6.1.0-57: the missing source is named'],
                         self.release('ok'))

    def test_a_module_that_is_the_kernels_own_or_not_signed(self):
        for wrong in ({'filename': '/kernel/x'}, {'signer': ''}):
            self.assertEqual(2, len(self.release(
                'MISSING  linux-source-6.1', **wrong)))
            self.report.rows.clear()

    def test_a_whole_move(self):
        """It runs with the kernel that was updated."""
        run = self.useFixture(fixtures.MockPatchObject(
            command.subprocess, 'run', return_value=mock.Mock(
                returncode=0))).mock
        command._move(self.path / '6.1', self.report)
        self.assertEqual(str(self.path / '6.1'),
                         run.call_args.kwargs['env']['LOCALCLONE_LAB_KERNEL'])
        self.assertEqual([reports.OK], [
            row.verdict for row in self.report.rows])
        run.return_value.returncode = 1
        command._move(self.path / '6.1', self.report)
        run.side_effect = subprocess.TimeoutExpired('x', 1)
        command._move(self.path / '6.1', self.report)
        self.assertEqual([reports.FAILED] * 2, [
            row.verdict for row in self.report.rows[1:]])


class MoveTest(testtools.TestCase):
    """The whole content of a volume; no lab."""

    content = {'mib': 5, 'fills': [[0, 3, 'a'], [1, 1, 'b']], 'areas': [],
               'acknowledged': {}}

    def setUp(self):
        super().setUp()
        self.report = reports.Report(mock.Mock(), 't')
        self.node = mock.Mock()
        self.node.name = 'node1'
        self.lab = mock.Mock(
            nodes={'node1': self.node, 'node2': self.node},
            settings={'kernel': {'initrd': 'x', 'release': '6.1.0-57'}})
        self.move = move.Move(self.lab, self.report)
        self.disk = mock.Mock(occupied=256)
        self.disk.content.return_value = self.content
        self.copied = self.useFixture(fixtures.MockPatchObject(
            self.move, 'copied')).mock

    def verdicts(self):
        return [row.verdict for row in self.report.rows if row.verdict]

    def test_digest_of_fills_and_holes(self):
        wanted = hashlib.sha256()
        for data in (payload.known('a', 0), payload.known('b', 0),
                     payload.known('a', 2), bytes(payload.MIB),
                     bytes(payload.MIB)):
            wanted.update(data)
        self.assertEqual(wanted.hexdigest(), move.expected(self.content))

    def test_only_a_stock_kernel(self):
        self.lab.settings['kernel'] = {'release': '6.1'}
        self.assertRaises(process.LabError, self.move.run)

    def test_kernel_of_a_node(self):
        for release, file, taint, verdicts in (
                ('6.1.0-57', '/lib/updates/dkms/dm-clone.ko', 'OE',
                 [reports.OK] * 2),
                ('6.1.0-56', '/lib/updates/dkms/dm-clone.ko', 'O',
                 [reports.FAILED, reports.OK]),
                ('6.1.0-57', '/lib/kernel/dm-clone.ko', 'O',
                 [reports.OK, reports.FAILED]),
                ('6.1.0-57', '/lib/updates/dkms/dm-clone.ko', '',
                 [reports.OK, reports.FAILED])):
            self.report.rows.clear()
            self.node.run.side_effect = [
                mock.Mock(stdout=release + '\n'),
                mock.Mock(stdout='%s\nx%s\n' % (file, taint))]
            self.move.check_kernel(self.node)
            self.assertEqual(verdicts, self.verdicts())

    def test_each_place_has_the_digest(self):
        right = move.expected(self.content)
        for wrong in (None, 0, 1, 2):
            self.report.rows.clear()
            self.disk.verify.side_effect = [
                {'digest': 'x' if each == wrong else right}
                for each in range(3)]
            self.move.there(self.disk)
            self.assertEqual([reports.FAILED if each == wrong else reports.OK
                              for each in range(3)], self.verdicts())
        self.copied.assert_called_with(self.disk, self.node, self.node)

    def test_a_guest_that_wrote_nothing_proves_nothing(self):
        self.useFixture(fixtures.MockPatchObject(move, 'WRITES', 0))
        for blocks, verdict in ((7, reports.OK), (0, reports.FAILED)):
            self.report.rows.clear()
            self.disk.verify.return_value = {'blocks': blocks,
                                             'digest': 'x' * 64}
            self.move.back(self.disk)
            self.assertEqual([verdict], self.verdicts())

    def test_faults_of_the_kernel(self):
        self.node.run.return_value.stdout = (
            '[1.0] all is well\n[2.0] Oops: 0000\n'
            '[3.0] device-mapper: clone: metadata\n')
        self.assertEqual(2, len(self.move.faults(self.node)))


class CopiedTest(testtools.TestCase):
    """Of a move: what must hold when the volume lives on its new node."""

    def setUp(self):
        super().setUp()
        self.report = reports.Report(mock.Mock(), 't')
        self.observe = self.useFixture(fixtures.MockPatchObject(
            move, 'observe')).mock
        self.observe.clone_progress.return_value = (3, 16, 65536)
        for name in ('leftovers', 'volume_lvs', 'move_records'):
            getattr(self.observe, name).return_value = []
        self.old, self.new = mock.Mock(), mock.Mock()
        self.old.name, self.new.name = 'node1', 'node2'
        self.disk = mock.Mock()
        self.disk.home.return_value = 'node2'

    def failed(self, **how):
        self.report.rows.clear()
        move.Move(mock.MagicMock(), self.report).copied(
            self.disk, self.old, self.new, **how)
        return [row.what for row in self.report.rows
                if row.verdict == reports.FAILED]

    def test_all_is_well(self):
        self.assertEqual([], self.failed())
        self.disk.start.assert_not_called()
        self.assertEqual([], self.failed(writes=True))
        self.disk.check_running.assert_called_once_with()

    def test_a_copy_that_nobody_saw(self):
        for progress in (None, (16, 16, 65536)):
            self.observe.clone_progress.return_value = progress
            self.assertEqual(['node1 to node2: the copy is under way'],
                             self.failed())

    def test_leftovers(self):
        for name in ('leftovers', 'volume_lvs', 'move_records'):
            getattr(self.observe, name).return_value = ['x']
            self.assertEqual(['node1: nothing is left'], self.failed())
            getattr(self.observe, name).return_value = []

    def test_another_home(self):
        self.disk.home.return_value = 'node1'
        self.assertEqual(['home is node2'], self.failed())


class TargetTest(testtools.TestCase):

    def test_the_options_reach_the_suite(self):
        done = subprocess.run(
            ['make', '-n', '-C', REPO, 'kernels', 'EXPORT=/x', 'MOVE=1',
             'ONLY=Debian 12', 'SEED=7'], stdout=subprocess.PIPE, text=True,
            timeout=60)
        self.assertIn("lab.kernels --only 'Debian 12' --seed 7 --export '/x' "
                      '--move\n', done.stdout)
