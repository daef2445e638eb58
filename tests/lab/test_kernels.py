# SPDX-License-Identifier: Apache-2.0
"""The table of stock kernels, and ``make kernels``."""

import pathlib
import re
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
from lab.kernels import root

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
