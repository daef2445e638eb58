# SPDX-License-Identifier: Apache-2.0
"""The package that builds dm-clone, its table, and ``make kernels``."""

import io
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import kernels
from cinder_localclone.core import version
from lab.core import process
from lab.core import report as reports
from lab.kernels import __main__ as command
from lab.kernels import content
from lab.kernels import machine
from lab.kernels import root

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'doc/source/_ext'))
import kernels_table  # noqa: E402

PACKAGE = REPO / 'packaging/dkms'
INIT = (REPO / 'lab/kernels/init.sh').read_text()
DRIVER = ('drivers/md/dm-clone-target.c', 'drivers/md/dm-clone-metadata.c',
          'drivers/md/dm-clone-metadata.h', 'drivers/md/dm.h',
          'drivers/md/persistent-data/dm-bitset.h')
OTHERS = ('drivers/md/dm-crypt.c', 'drivers/md/bcache/util.h', 'README')


@testtools.skipUnless(shutil.which('xz'), 'needs xz')
@ddt.ddt
class PrepareTest(testtools.TestCase):
    """What DKMS runs before a build, on a machine that is a directory."""

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('bin', 'build', 'usr/src', 'var/lib/dpkg', 'etc/default',
                     'var/cache/cinder-localclone-dkms'):
            (self.path / name).mkdir(parents=True)
        (self.path / 'var/lib/dpkg/status').touch()
        self.versions(**{'linux-headers-6.1.0-57-amd64': '6.1.192-3',
                         'linux-source-6.1': '6.1.192-3'})

    def versions(self, **versions):
        """The installed packages, for dpkg-query."""
        script = self.path / 'bin/dpkg-query'
        script.write_text('#!/bin/sh\nfor name; do :; done\ncase $name in\n%s'
                          '*) exit 1;;\nesac\n' % ''.join(
                              '%s) printf %s;;\n' % each
                              for each in versions.items()))
        script.chmod(0o755)

    def archive(self, name, files=DRIVER + OTHERS, top='linux-source-6.1'):
        path = self.path / name
        with tarfile.open(path, 'w:xz') as tar:
            for each in files:
                member = tarfile.TarInfo('%s/%s' % (top, each))
                member.size = len(each)
                tar.addfile(member, io.BytesIO(each.encode()))
        return path

    def prepare(self, *words, kernel='6.1.0-57-amd64'):
        """Its exit code, and what it printed."""
        done = subprocess.run(
            ['sh', PACKAGE / 'prepare', *words, kernel],
            cwd=self.path / 'build', stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60,
            env={'PATH': '%s:/usr/sbin:/usr/bin:/bin' % (self.path / 'bin'),
                 'LOCALCLONE_ROOT': str(self.path)})
        return done.returncode, done.stdout

    @property
    def taken(self):
        build = self.path / 'build'
        return {str(path.relative_to(build)) for path in build.rglob('*')
                if path.is_file()}

    def lacks(self, reason, how, **more):
        """It fails, and says why at both places."""
        code, printed = self.prepare(**more)
        self.assertEqual(1, code, printed)
        self.assertEqual('cinder-localclone-dkms: %s\n    %s\n' % (
            reason, how.replace('ROOT', str(self.path))), printed)
        self.assertEqual(printed, (self.path / 'build/missing').read_text())
        self.assertEqual({'missing'}, self.taken)

    def test_driver_is_taken_and_nothing_else(self):
        self.archive('usr/src/linux-source-6.1.tar.xz')
        (self.path / 'build/missing').write_text('of an earlier build')
        code, printed = self.prepare()
        self.assertEqual(0, code, printed)
        self.assertEqual({each.removeprefix('drivers/md/')
                          for each in DRIVER}, self.taken)
        self.assertEqual('drivers/md/dm.h',
                         (self.path / 'build/dm.h').read_text())

    def test_find_only_prints(self):
        path = self.archive('usr/src/linux-source-6.1.tar.xz')
        self.assertEqual((0, '%s\n' % path), self.prepare('--find'))
        self.assertEqual(set(), self.taken)

    def test_no_source(self):
        self.lacks('the source of kernel 6.1.0-57-amd64 is not installed',
                   'apt install linux-source-6.1')

    def test_no_headers(self):
        self.archive('usr/src/linux-source-6.1.tar.xz')
        self.lacks('the headers of kernel 6.1.0-56-amd64 are not installed',
                   'apt install linux-headers-6.1.0-56-amd64',
                   kernel='6.1.0-56-amd64')

    @ddt.data('6.1.190-1', '6.1.19-3', '6.12.192-3')
    def test_source_of_another_version(self, version):
        self.archive('usr/src/linux-source-6.1.tar.xz')
        self.versions(**{'linux-headers-6.1.0-57-amd64': '6.1.192-3',
                         'linux-source-6.1': version})
        self.lacks('linux-source-6.1 is of %s, kernel 6.1.0-57-amd64 of '
                   '6.1.192-3' % version,
                   'cd ROOT/var/cache/cinder-localclone-dkms; apt-get '
                   'download linux-source-6.1=6.1.192-3')

    def test_source_of_another_revision(self):
        self.archive('usr/src/linux-source-6.1.tar.xz')
        self.versions(**{'linux-headers-6.1.0-57-amd64': '6.1.192-3',
                         'linux-source-6.1': '6.1.192-1'})
        self.assertEqual(0, self.prepare()[0])

    def test_downloaded_source_of_the_version(self):
        self.archive('usr/src/linux-source-6.1.tar.xz')
        self.versions(**{'linux-headers-6.1.0-57-amd64': '6.1.192-3',
                         'linux-source-6.1': '6.1.194-1'})
        path = self.path / ('var/cache/cinder-localclone-dkms/'
                            'linux-source-6.1_6.1.192-3_all.deb')
        path.touch()
        self.assertEqual((0, '%s\n' % path), self.prepare('--find'))

    def test_series_is_whole(self):
        self.archive('usr/src/linux-source-6.1.tar.xz')
        self.versions(**{'linux-headers-6.12.118+deb13-amd64': '6.12.118-1',
                         'linux-source-6.1': '6.1.192-3'})
        self.lacks('the source of kernel 6.12.118+deb13-amd64 is not '
                   'installed', 'apt install linux-source-6.12',
                   kernel='6.12.118+deb13-amd64')

    @ddt.data('dm-clone-target.c', 'dm-clone-metadata.c')
    def test_source_without_the_driver(self, name):
        path = self.archive('usr/src/linux-source-6.1.tar.xz', [
            each for each in DRIVER + OTHERS if not each.endswith(name)])
        code, printed = self.prepare()
        self.assertEqual(1, code)
        self.assertIn('%s can\'t be read, or lacks the files of dm-clone'
                      % path, printed)

    def settings(self, path):
        (self.path / 'etc/default/cinder-localclone-dkms').write_text(
            'LOCALCLONE_KERNEL_SOURCE=%s\n' % path)

    def test_directory_of_another_kernel(self):
        for each in DRIVER + OTHERS:
            path = self.path / 'linux' / each
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(each)
        self.settings(self.path / 'linux')
        code, printed = self.prepare(kernel='6.18.44')
        self.assertEqual(0, code, printed)
        self.assertEqual({each.removeprefix('drivers/md/')
                          for each in DRIVER}, self.taken)

    def test_archive_of_another_kernel(self):
        self.settings(self.archive('linux.tar.xz', top='linux-6.18.44'))
        self.assertEqual(0, self.prepare(kernel='6.18.44')[0])

    def test_setting_that_names_nothing(self):
        self.settings('/nowhere')
        self.lacks('/nowhere does not exist', 'correct '
                   'LOCALCLONE_KERNEL_SOURCE in ROOT/etc/default/'
                   'cinder-localclone-dkms', kernel='6.18.44')


class PackageTest(testtools.TestCase):

    def test_versions_agree(self):
        found = {name: set(re.findall(pattern, (PACKAGE / name).read_text()))
                 for name, pattern in (
                     ('dkms.conf', r'PACKAGE_VERSION="(.*)"'),
                     ('debian/changelog', r'(?m)^\S+ \((.*)\)'),
                     ('debian/install', r'cinder-localclone-(\d\S+)'),
                     ('debian/postinst', r'cinder-localclone/(\d\S+)'),
                     ('debian/prerm', r'cinder-localclone/(\d[\d.]+)'),
                     ('cinder-localclone-dkms.spec', r'Version: (.*)'))}
        self.assertEqual(dict.fromkeys(found, {version.VERSION}), found)

    def test_no_source_of_the_kernel(self):
        self.assertEqual([], [
            str(path) for path in PACKAGE.rglob('*')
            if path.suffix in ('.c', '.h', '.ko', '.patch')])

    def test_commands_of_the_table_are_for_its_packages(self):
        spec = (PACKAGE / 'cinder-localclone-dkms.spec').read_text()
        control = (PACKAGE / 'debian/control').read_text()
        self.assertIn('\nPackage: %s\n' % kernels.DKMS, control)
        self.assertIn('\nName: %s\n' % kernels.DKMS, spec)

    def test_how_to(self):
        how_to = runpy.run_path(str(PACKAGE / 'how-to'))
        self.assertEqual(
            {'ID': 'rocky', 'VERSION_ID': '9.4', 'NAME': 'Rocky Linux'},
            how_to['fields']('# x=1\nID="rocky"\nVERSION_ID=9.4\n'
                             '\nNAME="Rocky Linux"\n'))
        done = subprocess.run(
            [sys.executable, PACKAGE / 'how-to', '--kernel',
             '6.1.0-57-amd64'], input='ID=debian\nVERSION_ID="12"\n',
            text=True, stdout=subprocess.PIPE, timeout=60,
            env={'PATH': os.environ['PATH']})
        self.assertEqual(kernels.DEB + '\n', done.stdout)


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
