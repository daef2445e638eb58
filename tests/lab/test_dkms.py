# SPDX-License-Identifier: Apache-2.0
"""The package that builds dm-clone: on a machine that is a directory."""

import io
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tarfile

import ddt
import fixtures
import testtools

from cinder_localclone.core import kernels
from cinder_localclone.core import version

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / 'packaging/dkms'
DRIVER = ('drivers/md/dm-clone-target.c', 'drivers/md/dm-clone-metadata.c',
          'drivers/md/dm-clone-metadata.h', 'drivers/md/dm.h',
          'drivers/md/persistent-data/dm-bitset.h')
OTHERS = ('drivers/md/dm-crypt.c', 'drivers/md/bcache/util.h', 'README')
KERNEL = '6.1.0-57-amd64'
#: What prepare leaves: the driver, and the proof that it is whole.
TAKEN = {each.removeprefix('drivers/md/') for each in DRIVER} | {'prepared'}


def makefile(version):
    return 'VERSION = %s\nPATCHLEVEL = %s\nSUBLEVEL = %s\nNAME = x\n' % tuple(
        version.split('.'))


class Root(testtools.TestCase):
    """A machine that is a directory; its commands are scripts."""

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('bin', 'build', 'usr/src', 'var/lib/dpkg', 'etc/default',
                     'etc/dkms', 'var/cache/cinder-localclone-dkms'):
            (self.path / name).mkdir(parents=True)
        (self.path / 'var/lib/dpkg/status').touch()
        self.headers(KERNEL, '6.1.192')

    def headers(self, kernel, version):
        """The headers of a kernel, of an upstream version."""
        build = self.path / 'lib/modules' / kernel / 'build'
        path = build / 'include/generated/uapi/linux/version.h'
        path.parent.mkdir(parents=True)
        major, minor, patch = map(int, version.split('.'))
        path.write_text(
            '#define LINUX_VERSION_CODE %d\n#define KERNEL_VERSION(a,b,c) x\n'
            % ((major << 16) + (minor << 8) + min(patch, 255)))
        (build / 'Makefile').touch()

    def command(self, name, script):
        """A command; what it was called with goes to the file "calls"."""
        path = self.path / 'bin' / name
        path.write_text('#!/bin/sh\necho "%s $*" >>%s/calls\n%s\n' % (
            name, self.path, script))
        path.chmod(0o755)

    @property
    def calls(self):
        path = self.path / 'calls'
        return path.read_text().splitlines() if path.exists() else []

    def run_script(self, *words, **environment):
        """Its exit code, and what it printed."""
        done = subprocess.run(
            ['sh', *words], cwd=self.path / 'build', stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60,
            env={'PATH': '%s:/usr/sbin:/usr/bin:/sbin:/bin' % (
                self.path / 'bin'), 'LOCALCLONE_ROOT': str(self.path),
                **environment})
        return done.returncode, done.stdout


class Preparing(Root):
    """What DKMS runs before a build."""

    def setUp(self):
        super().setUp()
        if not shutil.which('xz'):
            self.skipTest('needs xz')
        self.versions(**{'linux-headers-' + KERNEL: '6.1.192-3',
                         'linux-source-6.1': '6.1.192-3'})

    def versions(self, state='installed', **versions):
        """The installed packages, for dpkg-query."""
        self.command('dpkg-query', 'for name; do :; done\ncase "$*/$name" in\n'
                     '*" -L "*) echo /usr/src/$name\n'
                     'echo /usr/src/$name.tar.xz; exit;;\n'
                     '%s*) exit 1;;\nesac' % ''.join(
                         '*/%s) echo %s %s;;\n' % (name, (
                             state if 'source' in name else 'installed'),
                             version)
                         for name, version in versions.items()))

    def archive(self, name='usr/src/linux-source-6.1.tar.xz',
                files=DRIVER + OTHERS, top='linux-source-6.1',
                version='6.1.192'):
        path = self.path / name
        with tarfile.open(path, 'w:xz') as tar:
            for each in (*files, 'Makefile', 'drivers/Makefile'):
                member = tarfile.TarInfo('%s/%s' % (top, each))
                text = makefile(version) if each == 'Makefile' else each
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
        return path

    def directory(self, version='6.18.44'):
        for each in (*DRIVER, *OTHERS, 'Makefile'):
            path = self.path / 'linux' / each
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(makefile(version) if each == 'Makefile' else each)
        return self.path / 'linux'

    def prepare(self, *words, kernel=KERNEL):
        """Its exit code, and what it printed."""
        return self.run_script(PACKAGE / 'prepare', *words, kernel)

    @property
    def taken(self):
        build = self.path / 'build'
        return {str(path.relative_to(build)) for path in build.rglob('*')
                if path.is_file()}

    def lacks(self, reason, how, **more):
        """It fails, says why at both places, and leaves nothing to build."""
        code, printed = self.prepare(**more)
        self.assertEqual(1, code, printed)
        self.assertTrue(printed.endswith(
            'cinder-localclone-dkms: %s\n    %s\n' % (
                reason.replace('ROOT', str(self.path)),
                how.replace('ROOT', str(self.path)))), printed)
        missing = (self.path / 'build/missing').read_text()
        self.assertTrue(printed.endswith(missing), missing)
        self.assertEqual({'missing'}, self.taken)

    def unreadable(self, path):
        self.lacks('%s can\'t be read, or lacks the files of dm-clone' % path,
                   'check it and the free space here; install it again')

    def settings(self, path):
        (self.path / 'etc/default/cinder-localclone-dkms').write_text(
            'LOCALCLONE_KERNEL_SOURCE=%s\n' % path)


@ddt.ddt
class PrepareTest(Preparing):

    def test_driver_is_taken_and_nothing_else(self):
        self.archive()
        (self.path / 'build/missing').write_text('of an earlier build')
        code, printed = self.prepare()
        self.assertEqual(0, code, printed)
        self.assertEqual(TAKEN, self.taken)
        self.assertEqual('drivers/md/dm.h',
                         (self.path / 'build/dm.h').read_text())
        self.assertEqual(KERNEL + '\n',
                         (self.path / 'build/prepared').read_text())

    def test_find_only_prints(self):
        path = self.archive()
        self.assertEqual((0, '%s\n' % path), self.prepare('--find'))
        self.assertEqual(set(), self.taken)
        path.unlink()
        self.assertEqual(1, self.prepare('--find')[0])
        self.assertEqual(set(), self.taken)

    def test_no_source(self):
        self.versions(**{'linux-headers-' + KERNEL: '6.1.192-3'})
        self.lacks('the source of kernel 6.1.0-57-amd64 is not installed',
                   'apt install linux-source-6.1')

    def test_source_whose_file_was_removed(self):
        self.lacks('the file of linux-source-6.1 was removed',
                   'apt install --reinstall linux-source-6.1')

    @ddt.data('half-installed', 'config-files', 'not-installed')
    def test_source_that_is_not_wholly_there(self, state):
        self.archive()
        self.versions(state, **{'linux-headers-' + KERNEL: '6.1.192-3',
                                'linux-source-6.1': '6.1.192-3'})
        self.lacks('the source of kernel 6.1.0-57-amd64 is not installed',
                   'apt install linux-source-6.1')

    @ddt.data('unpacked', 'half-configured', 'triggers-pending')
    def test_source_that_is_there_before_its_configuration(self, state):
        self.archive()
        self.versions(state, **{'linux-headers-' + KERNEL: '6.1.192-3',
                                'linux-source-6.1': '6.1.192-3'})
        self.assertEqual(0, self.prepare()[0])

    def test_a_file_that_is_not_of_the_package(self):
        """dpkg leaves one in a power cut."""
        self.archive('usr/src/linux-source-6.1.tar.xz.dpkg-new')
        self.archive('usr/src/linux-source-6.1.tar.bz2')
        self.lacks('the file of linux-source-6.1 was removed',
                   'apt install --reinstall linux-source-6.1')

    def test_no_headers(self):
        self.archive()
        self.lacks('the headers of kernel 6.1.0-56-amd64 are not installed',
                   'apt install linux-headers-6.1.0-56-amd64',
                   kernel='6.1.0-56-amd64')

    @ddt.data('6.1.190-1', '6.1.19-3', '6.12.192-3', '6.1.192-1',
              '6.1.192-3~bpo12+1')
    def test_source_of_another_version(self, version):
        """A revision, too: 6.1.192-2 and -3 have fixes of Debian's own."""
        self.archive()
        self.versions(**{'linux-headers-' + KERNEL: '6.1.192-3',
                         'linux-source-6.1': version})
        self.lacks('linux-source-6.1 is of %s, kernel 6.1.0-57-amd64 of '
                   '6.1.192-3' % version,
                   'cd ROOT/var/cache/cinder-localclone-dkms; apt-get '
                   'download linux-source-6.1=6.1.192-3')

    @ddt.data('6.1.190', '6.12.192', '6.1.255', '5.1.192')
    def test_source_that_is_not_what_its_package_says(self, version):
        path = self.archive(version=version)
        major, minor, patch = map(int, version.split('.'))
        self.lacks('%s is not of the version of kernel 6.1.0-57-amd64 '
                   '(%d, 393664)' % (
                       path, (major << 16) + (minor << 8) + patch),
                   'install the source and the headers of this kernel')

    def test_headers_without_their_version(self):
        path = self.archive()
        (self.path / 'lib/modules' / KERNEL / 'build/include/generated/uapi/'
         'linux/version.h').unlink()
        self.lacks('%s is not of the version of kernel 6.1.0-57-amd64 '
                   '(393664, none)' % path,
                   'install the source and the headers of this kernel')

    def test_headers_at_another_place(self):
        self.archive()
        (self.path / 'lib/modules' / KERNEL / 'build').rename(
            self.path / 'elsewhere')
        self.assertEqual(1, self.prepare()[0])
        self.assertEqual(0, self.run_script(
            PACKAGE / 'prepare', KERNEL, self.path / 'elsewhere')[0])

    def test_a_version_above_255(self):
        """LINUX_VERSION_CODE has no room for it."""
        (self.path / 'lib/modules' / KERNEL / 'build').rename(
            self.path / 'old')
        self.headers('4.14.336', '4.14.336')
        self.settings(self.directory('4.14.336'))
        self.assertEqual(0, self.prepare(kernel='4.14.336')[0])

    def test_downloaded_source_of_the_version(self):
        self.archive()
        self.versions(**{'linux-headers-' + KERNEL: '6.1.192-3',
                         'linux-source-6.1': '6.1.194-1'})
        cache = self.path / 'var/cache/cinder-localclone-dkms'
        (cache / 'linux-source-6.1_6.1.192-1_all.deb').touch()
        self.assertEqual(1, self.prepare('--find')[0])
        path = cache / 'linux-source-6.1_6.1.192-3_all.deb'
        path.touch()
        self.assertEqual((0, '%s\n' % path), self.prepare('--find'))

    def test_downloaded_source_is_taken(self):
        self.versions(**{'linux-headers-' + KERNEL: '6.1.192-3'})
        path = self.path / ('var/cache/cinder-localclone-dkms/'
                            'linux-source-6.1_6.1.192-3_all.deb')
        path.touch()
        self.archive('of-package')
        self.command('dpkg-deb', 'mkdir -p $3/usr/src; cp %s '
                     '$3/usr/src/linux-source-6.1.tar.xz' % (
                         self.path / 'of-package'))
        code, printed = self.prepare()
        self.assertEqual(0, code, printed)
        self.assertEqual(TAKEN, self.taken)
        self.command('dpkg-deb', 'mkdir -p $3/usr/src; cp %s '
                     '$3/usr/src/linux-source-6.1.tar.xz; exit 2' % (
                         self.path / 'of-package'))
        (self.path / 'build/prepared').unlink()
        code, printed = self.prepare()
        self.assertEqual(1, code, printed)
        self.assertNotIn('prepared', self.taken)

    def test_series_is_whole(self):
        self.archive()
        self.versions(**{'linux-headers-6.12.118+deb13-amd64': '6.12.118-1',
                         'linux-source-6.1': '6.1.192-3'})
        self.lacks('the source of kernel 6.12.118+deb13-amd64 is not '
                   'installed', 'apt install linux-source-6.12',
                   kernel='6.12.118+deb13-amd64')

    @ddt.data('dm-clone-target.c', 'dm-clone-metadata.c')
    def test_source_without_the_driver(self, name):
        self.unreadable(self.archive(files=[
            each for each in DRIVER + OTHERS if not each.endswith(name)]))

    def test_source_in_two_directories(self):
        path = self.archive()
        with tarfile.open(path, 'w:xz') as tar:
            for top in ('a', 'b'):
                for each in (*DRIVER, 'Makefile'):
                    member = tarfile.TarInfo('%s/%s' % (top, each))
                    member.size = 1
                    tar.addfile(member, io.BytesIO(b'x'))
        self.unreadable(path)

    def test_source_that_ends_too_early(self):
        path = self.archive()
        data = path.read_bytes()
        path.write_bytes(data[:-20])
        self.unreadable(path)

    def test_no_space_for_all_of_it(self):
        """tar has written the driver, a part of the rest, and fails."""
        path = self.archive()
        self.command('tar', '%s "$@"; exit 2' % shutil.which('tar'))
        self.unreadable(path)

    def test_no_space_for_a_copy(self):
        self.archive()
        self.command('cp', '%s "$@"; exit 1' % shutil.which('cp'))
        code, printed = self.prepare()
        self.assertEqual(1, code)
        self.assertIn('the files of dm-clone can\'t be written', printed)
        self.assertNotIn('prepared', self.taken)

    def test_a_failure_leaves_no_proof_of_an_earlier_build(self):
        self.archive()
        self.assertEqual(0, self.prepare()[0])
        self.archive(version='6.1.190')
        self.assertEqual(1, self.prepare()[0])
        self.assertNotIn('prepared', self.taken)

    def test_files_of_an_earlier_build_do_not_count(self):
        for name in ('dm-clone-target.c', 'dm-clone-metadata.c'):
            (self.path / 'build' / name).write_text('old')
        self.archive(files=OTHERS)
        self.assertEqual(1, self.prepare()[0])

    @ddt.data('kernel/drivers/md/dm-clone.ko', 'modules.builtin',
              'kernel/drivers/md/dm-clone.ko.xz')
    def test_a_kernel_with_the_driver_keeps_its_own(self, name):
        self.archive()
        path = self.path / 'lib/modules' / KERNEL / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('kernel/drivers/md/dm-clone.ko\n')
        self.lacks('kernel 6.1.0-57-amd64 has dm-clone itself',
                   'modprobe dm-clone')

    def test_other_drivers_of_the_kernel(self):
        self.archive()
        path = self.path / 'lib/modules' / KERNEL / 'modules.builtin'
        path.write_text('kernel/drivers/md/dm-mod.ko\n')
        self.assertEqual(0, self.prepare()[0])

    def test_directory_of_another_kernel(self):
        self.headers('6.18.44', '6.18.44')
        self.settings(self.directory())
        code, printed = self.prepare(kernel='6.18.44')
        self.assertEqual(0, code, printed)
        self.assertEqual(TAKEN, self.taken)

    def test_directory_of_the_kernel_before(self):
        self.headers('6.18.50', '6.18.50')
        path = self.directory()
        self.settings(path)
        self.lacks('%s is not of the version of kernel 6.18.50 '
                   '(397868, 397874)' % path,
                   'install the source and the headers of this kernel',
                   kernel='6.18.50')

    @ddt.data('drivers/md/dm-clone-metadata.h', 'Makefile',
              'drivers/md/persistent-data/dm-bitset.h')
    def test_directory_that_is_not_whole(self, name):
        self.headers('6.18.44', '6.18.44')
        path = self.directory()
        self.settings(path)
        (path / name).unlink()
        if name.endswith('metadata.h'):
            (path / 'drivers/md/dm.h').unlink()
        code, printed = self.prepare(kernel='6.18.44')
        self.assertEqual(1, code, printed)
        self.assertNotIn('prepared', self.taken)

    def test_archive_of_another_kernel(self):
        self.headers('6.18.44', '6.18.44')
        self.settings(self.archive('linux.tar.xz', top='linux-6.18.44',
                                   version='6.18.44'))
        self.assertEqual(0, self.prepare(kernel='6.18.44')[0])

    def test_setting_that_names_nothing(self):
        self.settings('/nowhere')
        self.lacks('/nowhere does not exist', 'correct '
                   'LOCALCLONE_KERNEL_SOURCE in ROOT/etc/default/'
                   'cinder-localclone-dkms', kernel='6.18.44')

    def test_a_distribution_without_a_known_source(self):
        (self.path / 'var/lib/dpkg/status').unlink()
        self.lacks('no source package of kernel 6.18.44 is known here',
                   'set LOCALCLONE_KERNEL_SOURCE in ROOT/etc/default/'
                   'cinder-localclone-dkms (a tar archive, or a directory)',
                   kernel='6.18.44')


class PrepareFromRpmTest(Preparing):
    """The source package is downloaded; nobody has checked it."""

    kernel = '5.14.0-570.44.1.el9_6.x86_64'

    def setUp(self):
        super().setUp()
        self.headers(self.kernel, '5.14.0')
        self.rpm = self.path / ('var/cache/cinder-localclone-dkms/'
                                'kernel-5.14.0-570.44.1.el9_6.src.rpm')
        self.archive('of-package', version='5.14.0', top='linux-5.14.0-570')
        self.command('dnf', 'echo signed >%s' % self.rpm)
        self.command('rpmkeys', 'for file; do :; done\n'
                     'case "$*" in *"_pkgverify_level signature"*) '
                     'grep -q signed $file && '
                     'echo "$file: digests signatures OK" && exit;; esac\n'
                     'echo "$file: digests OK"')
        self.command('rpm2cpio', 'cat "$1"')
        self.command('cpio', 'cat >/dev/null; cp %s linux-5.14.0.tar.xz' % (
            self.path / 'of-package'))

    def prepare(self, *words, kernel=kernel):
        return super().prepare(*words, kernel=kernel)

    def test_it_is_downloaded_and_taken(self):
        """Also where dpkg is installed beside rpm."""
        code, printed = self.prepare()
        self.assertEqual(0, code, printed)
        self.assertEqual(TAKEN, self.taken)
        self.assertIn('dnf download --quiet --source --destdir %s '
                      '--setopt=exit_on_lock=True '
                      'kernel-5.14.0-570.44.1.el9_6' % self.rpm.parent,
                      self.calls)

    def test_a_mirror_that_is_an_enemy(self):
        self.command('dnf', 'echo x >%s' % self.rpm)
        self.lacks('%s has no signature that rpm trusts, or is damaged'
                   % self.rpm, 'rm %s' % self.rpm)
        self.assertEqual(1, self.prepare('--find')[0])
        self.assertNotIn('rpm2cpio', ' '.join(self.calls))

    def test_no_network(self):
        self.command('dnf', 'exit 1')
        self.lacks('the source of kernel %s is not here (%s)' % (
            self.kernel, self.rpm), 'dnf download --source --destdir %s '
            'kernel-5.14.0-570.44.1.el9_6' % self.rpm.parent)

    def test_to_look_downloads_nothing(self):
        self.assertEqual(1, self.prepare('--find')[0])
        self.assertEqual([], [each for each in self.calls if 'dnf' in each])
        self.rpm.write_text('signed')
        self.assertEqual((0, '%s\n' % self.rpm), self.prepare('--find'))

    def test_downloads_of_removed_kernels_go(self):
        gone = self.rpm.with_name('kernel-5.14.0-1.el9.src.rpm')
        kept = self.rpm.with_name('kernel-5.14.0-2.el9.src.rpm')
        for each in (gone, kept):
            each.touch()
        (self.path / 'lib/modules/5.14.0-2.el9.x86_64').mkdir()
        self.assertEqual(0, self.prepare()[0])
        self.assertEqual((False, True, True), (
            gone.exists(), kept.exists(), self.rpm.exists()))

    def test_a_package_that_can_not_be_opened(self):
        self.command('cpio', 'cp %s linux-5.14.0.tar.xz; exit 2' % (
            self.path / 'of-package'))
        self.unreadable(self.rpm)


@testtools.skipUnless(shutil.which('make'), 'needs make')
class MakeTest(Root):
    """The build itself."""

    def make(self):
        kernel = self.path / 'kernel'
        kernel.mkdir(exist_ok=True)
        (kernel / 'Makefile').write_text(
            'modules:\n\t@touch $(M)/dm-clone.ko\n\t@$(EXTRA)\n')
        shutil.copy(PACKAGE / 'Makefile', self.path / 'build')
        done = subprocess.run(
            ['make', '-C', self.path / 'build', 'modules',
             'LOCALCLONE_KERNEL=' + KERNEL, 'KERNEL_DIR=%s' % kernel,
             'EXTRA=' + self.extra], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60)
        return done.returncode, done.stdout

    extra = 'true'

    def test_nothing_is_built_before_the_source_is_whole(self):
        code, _printed = self.make()
        self.assertEqual(2, code)
        (self.path / 'build/missing').write_text('why')
        code, printed = self.make()
        self.assertEqual(2, code)
        self.assertIn('why', printed)
        self.assertFalse((self.path / 'build/dm-clone.ko').exists())

    def test_nothing_is_built_from_the_source_of_another_kernel(self):
        """Older versions of DKMS build for all kernels at one place."""
        (self.path / 'build/prepared').write_text('6.1.0-56-amd64\n')
        self.assertEqual(2, self.make()[0])
        (self.path / 'build/prepared').write_text(KERNEL + '\n')
        self.assertEqual(0, self.make()[0])
        self.extra = 'echo 6.1.0-56-amd64 >$(M)/prepared'
        self.assertEqual(2, self.make()[0])


@testtools.skipUnless(shutil.which('bash'), 'needs bash')
class ConfigurationTest(Root):
    """What DKMS reads."""

    def read(self, name, **more):
        done = subprocess.run(
            ['bash', '-c', 'kernelver=K kernel_source_dir=/S; . %s && echo '
             '"$%s"' % (PACKAGE / 'dkms.conf', name)], text=True,
            stdout=subprocess.PIPE, timeout=60,
            env=dict(os.environ, LOCALCLONE_ROOT=str(self.path)))
        return done.stdout.strip()

    def test_dkms_does_not_build_within_the_packages_of_a_kernel(self):
        """Its failure would leave them unconfigured: a trigger builds."""
        self.assertEqual('', self.read('AUTOINSTALL'))
        self.assertIn('interest-noawait /usr/src\n',
                      (PACKAGE / 'debian/triggers').read_text())
        (self.path / 'var/lib/dpkg/status').unlink()
        self.assertEqual('yes', self.read('AUTOINSTALL'))

    def test_a_kernel_gets_its_own_module_only(self):
        self.assertEqual('yes', self.read('NO_WEAK_MODULES'))
        self.assertEqual('CONFIG_BLK_DEV_DM !CONFIG_DM_CLONE',
                         self.read('BUILD_EXCLUSIVE_CONFIG'))

    def test_the_kernel_is_handed_over(self):
        self.assertEqual('prepare K /S', self.read('PRE_BUILD'))
        self.assertEqual(
            'make LOCALCLONE_KERNEL=K KERNEL_DIR=/S modules',
            self.read('MAKE'))


class CommandOnNodeTest(Root):
    """cinder-localclone-dkms."""

    file = '/lib/modules/K/updates/dkms/dm-clone.ko'

    def setUp(self):
        super().setUp()
        tree = self.path / ('usr/src/cinder-localclone-' + version.VERSION)
        tree.mkdir()
        self.prepare = tree / 'prepare'
        self.prepare.write_text('#!/bin/sh\necho /src.tar.xz\n')
        self.prepare.chmod(0o755)
        self.modinfo(self.file, 'DKMS key')
        self.command('apt-get', '')
        self.command('mokutil', '')

    def modinfo(self, file, signer=''):
        self.command('modinfo', 'case "$*" in *" -F filename "*) echo "%s";; '
                     '*signer*) echo "%s";; esac' % (file, signer))

    def tell(self, kernel=KERNEL):
        code, printed = self.run_script(
            PACKAGE / 'cinder-localclone-dkms', kernel)
        return code, [line.strip() for line in printed.splitlines()]

    def test_all_is_well(self):
        self.assertEqual((0, [
            'ok       module: ' + self.file,
            'ok       headers of kernel ' + KERNEL,
            'ok       source: /src.tar.xz']), self.tell())

    def test_a_tree_of_another_version_is_left_over(self):
        (self.path / 'usr/src/cinder-localclone-0.0.9').mkdir()
        self.assertEqual(0, self.tell()[0])

    def test_the_kernel_has_it(self):
        for file in ('/lib/modules/K/kernel/drivers/md/dm-clone.ko.xz',
                     '(builtin)'):
            self.modinfo(file)
            self.assertEqual(
                (0, ['ok       the kernel has dm-clone itself: ' + file]),
                self.tell())

    def test_a_module_of_dkms_is_not_the_kernels(self):
        for place in ('extra', 'weak-updates', 'updates/dkms'):
            self.modinfo('/lib/modules/K/%s/dm-clone.ko' % place)
            self.assertIn('module:', self.tell()[1][0])

    def test_what_is_missing(self):
        self.modinfo('')
        self.prepare.write_text(
            '#!/bin/sh\necho "a warning" >&2\n'
            'echo "cinder-localclone-dkms: no source" >&2\n'
            'echo "    get it" >&2\nexit 1\n')
        shutil.rmtree(self.path / 'lib/modules' / KERNEL / 'build')
        self.assertEqual((1, [
            'MISSING  headers of kernel ' + KERNEL,
            'apt install linux-headers-' + KERNEL,
            'MISSING  no source', 'get it',
            'MISSING  the module of kernel ' + KERNEL,
            'dkms install cinder-localclone/%s -k %s' % (
                version.VERSION, KERNEL)]), self.tell())

    def test_headers_of_another_flavour_follow_updates(self):
        self.assertIn('apt install linux-headers-6.1.0-57-cloud-amd64 '
                      'linux-headers-cloud-amd64',
                      self.tell('6.1.0-57-cloud-amd64')[1])

    def enforce(self, how):
        if how == 'mokutil':
            self.command('mokutil', 'case $1 in --sb-state) '
                         'echo SecureBoot enabled;; esac')
            return
        path = self.path / {
            'firmware': 'sys/firmware/efi/efivars/SecureBoot-8be4df61',
            'lockdown': 'sys/kernel/security/lockdown',
            'parameter': 'sys/module/module/parameters/sig_enforce'}[how]
        path.parent.mkdir(parents=True)
        path.write_bytes({'firmware': b'\x06\0\0\0\x01',
                          'lockdown': b'none [integrity] confidentiality\n',
                          'parameter': b'Y\n'}[how])

    def test_signatures_are_not_enforced(self):
        self.modinfo(self.file)
        for name, data in (
                ('firmware/efi/efivars/SecureBoot-8be4df61', b'\6\0\0\0\0'),
                ('kernel/security/lockdown',
                 b'[none] integrity confidentiality\n'),
                ('module/module/parameters/sig_enforce', b'N\n')):
            path = self.path / 'sys' / name
            path.parent.mkdir(parents=True)
            path.write_bytes(data)
        self.assertEqual(0, self.tell()[0])

    def test_a_module_without_signature(self):
        for how in ('mokutil', 'firmware', 'lockdown', 'parameter'):
            shutil.rmtree(self.path / 'sys', ignore_errors=True)
            self.command('mokutil', '')
            self.enforce(how)
            self.modinfo(self.file)
            code, lines = self.tell()
            self.assertEqual(1, code, how)
            self.assertIn('MISSING  a signature of the module: this host '
                          'loads signed modules only', lines)
            module = 'cinder-localclone/' + version.VERSION
            self.assertEqual(
                'apt install openssl; dkms remove %s -k %s; dkms install %s '
                '-k %s' % (module, KERNEL, module, KERNEL), lines[-1])

    def test_a_key_that_is_not_enrolled(self):
        self.enforce('mokutil')
        key = self.path / 'var/lib/dkms/mok.pub'
        self.assertEqual((1, [
            'MISSING  %s is not enrolled: Secure Boot rejects the module'
            % key, 'mokutil --import %s; reboot, and confirm the key' % key]),
            (self.tell()[0], self.tell()[1][-2:]))
        self.command('mokutil', 'case $* in --sb-state) echo SecureBoot '
                     'enabled;; *%s) echo is already enrolled;; esac' % key)
        self.assertEqual((0, 'ok       signed by an enrolled key: DKMS key'),
                         (self.tell()[0], self.tell()[1][-1]))

    def test_a_key_of_the_operator(self):
        self.enforce('mokutil')
        key = self.path / ('etc/dkms/%s.der' % KERNEL)
        key.touch()
        (self.path / 'etc/dkms/framework.conf').write_text(
            '# mok_certificate=/no\nmok_certificate="%s/etc/dkms/'
            '${kernelver}.der"\n[[ x ]]\n' % self.path)
        self.assertIn(str(key), self.tell()[1][-1])

    def test_without_mokutil_nobody_knows(self):
        self.enforce('lockdown')
        (self.path / 'bin/mokutil').unlink()
        if shutil.which('mokutil'):
            self.skipTest('this machine has mokutil')
        self.assertEqual((1, 'apt install mokutil'),
                         (self.tell()[0], self.tell()[1][-1]))

    def build(self, dkms):
        self.command('dkms', dkms)
        (self.path / 'calls').unlink(missing_ok=True)
        code, printed = self.run_script(
            PACKAGE / 'cinder-localclone-dkms', '--build')
        self.assertEqual(0, code, printed)
        self.printed = printed
        return [each.replace('/' + version.VERSION, '')
                for each in self.calls if each.startswith('dkms')
                and ' status ' not in each]

    def added(self):
        path = self.path / ('var/lib/dkms/cinder-localclone/%s/source/'
                            'dkms.conf' % version.VERSION)
        path.parent.mkdir(parents=True)
        path.touch()

    def test_build_for_all_kernels(self):
        self.modinfo('')
        self.headers('6.1.0-58-amd64', '6.1.193')
        (self.path / 'lib/modules/6.1.0-59-amd64').mkdir()
        self.assertEqual(
            ['dkms add cinder-localclone',
             'dkms install cinder-localclone -k 6.1.0-57-amd64',
             'dkms install cinder-localclone -k 6.1.0-58-amd64'],
            self.build(''))
        self.added()
        self.assertEqual(
            ['dkms install cinder-localclone -k 6.1.0-58-amd64'],
            self.build('case "$*" in status*57*) echo "x: installed";; '
                       'status*) echo "x: built";; esac'))

    def test_build_leaves_a_kernel_with_the_driver(self):
        self.added()
        self.modinfo('(builtin)')
        self.assertEqual([], self.build(''))

    def test_build_fails_for_nothing(self):
        """An error here would leave packages unconfigured."""
        self.modinfo('')
        self.added()
        self.build('[ $1 != install ]')
        self.assertIn('MISSING  the module of kernel ' + KERNEL, self.printed)
        shutil.rmtree(self.path / 'var/lib/dkms')
        self.assertEqual(['dkms add cinder-localclone'],
                         self.build('exit 3'))

    def test_build_starts_again_after_a_half_removed_tree(self):
        self.modinfo('')
        tree = self.path / ('var/lib/dkms/cinder-localclone/'
                            + version.VERSION)
        (tree / 'build').mkdir(parents=True)
        self.assertIn('dkms add cinder-localclone', self.build(''))
        self.assertFalse(tree.exists())

    def test_build_ends_other_versions(self):
        """In an upgrade of an rpm the old one is there until the end."""
        self.added()
        other = self.path / 'var/lib/dkms/cinder-localclone/0.0.9'
        other.mkdir()
        self.assertEqual(
            'dkms remove cinder-localclone/0.0.9 --all', self.build('')[0])
        self.assertTrue(other.exists())
        self.build('[ $1 != remove ]')
        self.assertFalse(other.exists())


@ddt.ddt
class ScriptsTest(Root):
    """What dpkg and rpm run."""

    def setUp(self):
        super().setUp()
        self.command('cinder-localclone-dkms', 'exit ${failing:-0}')
        self.command('dkms', 'echo x')

    def script(self, name, word, **environment):
        self.assertEqual(0, self.run_script(
            '-e', PACKAGE / 'debian' / name, word, **environment)[0])
        return self.calls

    @ddt.data('configure', 'triggered', 'abort-upgrade', 'abort-remove',
              'abort-deconfigure')
    def test_modules_are_built(self, word):
        self.assertEqual('cinder-localclone-dkms --build',
                         self.script('postinst', word)[0])

    @ddt.data('upgrade', 'remove', 'deconfigure')
    def test_modules_are_removed(self, word):
        self.assertEqual(
            'dkms remove cinder-localclone/%s --all' % version.VERSION,
            self.script('prerm', word)[-1])

    def test_prerm_of_a_new_package_after_one_that_failed(self):
        self.assertEqual([], self.script('prerm', 'failed-upgrade'))

    def test_nothing_to_remove(self):
        self.command('dkms', '')
        self.assertEqual(1, len(self.script('prerm', 'remove')))

    def test_nothing_is_left(self):
        cache = self.path / 'var/cache/cinder-localclone-dkms'
        settings = self.path / 'etc/default/cinder-localclone-dkms'
        settings.touch()
        self.script('postrm', 'remove', DPKG_ROOT=str(self.path))
        self.assertEqual((True, True), (cache.exists(), settings.exists()))
        self.script('postrm', 'purge', DPKG_ROOT=str(self.path))
        self.assertEqual((False, False), (cache.exists(), settings.exists()))

    def scriptlet(self, name, count):
        spec = (PACKAGE / 'cinder-localclone-dkms.spec').read_text().replace(
            '%{version}', version.VERSION)
        text = re.search(r'(?ms)^%' + name + r'\n(.*?)(\n#|\n\n|\Z)',
                         spec).group(1).replace('rm -rf /', 'rm -rf %s/'
                                                % self.path)
        self.assertEqual(0, self.run_script('-c', text, 'rpm', count)[0])
        return self.calls

    def test_rpm(self):
        self.assertEqual('cinder-localclone-dkms --build',
                         self.scriptlet('post', '2')[0])

    @ddt.data(('0', 1), ('1', 0))
    @ddt.unpack
    def test_rpm_removes_modules_with_the_last_package(self, left, removals):
        """In an upgrade the new package's modules are there already."""
        self.assertEqual(removals, len(self.scriptlet('preun', left)))
        self.scriptlet('postun', left)
        self.assertEqual(left == '1', (
            self.path / 'var/cache/cinder-localclone-dkms').exists())


class PackageTest(testtools.TestCase):

    def test_versions_agree(self):
        found = {name: set(re.findall(pattern, (PACKAGE / name).read_text()))
                 for name, pattern in (
                     ('dkms.conf', r'PACKAGE_VERSION="(.*)"'),
                     ('debian/changelog', r'(?m)^\S+ \((.*)\)'),
                     ('debian/install', r'cinder-localclone-(\d\S+)'),
                     ('debian/prerm', r'cinder-localclone/(\d[\d.]+)'),
                     ('cinder-localclone-dkms', r'(?m)^version=(.*)'),
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
