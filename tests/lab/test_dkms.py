# SPDX-License-Identifier: Apache-2.0
"""The package that builds dm-clone: its source, its build."""

import io
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile

import ddt
import testtools

from cinder_localclone.core import kernels
from cinder_localclone.core import version
from tests.lab.dkms import KERNEL
from tests.lab.dkms import PACKAGE
from tests.lab.dkms import Root

DRIVER = ('drivers/md/dm-clone-target.c', 'drivers/md/dm-clone-metadata.c',
          'drivers/md/dm-clone-metadata.h', 'drivers/md/dm.h',
          'drivers/md/persistent-data/dm-bitset.h')
OTHERS = ('drivers/md/dm-crypt.c', 'drivers/md/bcache/util.h', 'README')
#: What prepare leaves: the driver, and the proof that it is whole.
TAKEN = {each.removeprefix('drivers/md/') for each in DRIVER} | {'prepared'}


def makefile(version):
    return 'VERSION = %s\nPATCHLEVEL = %s\nSUBLEVEL = %s\nNAME = x\n' % tuple(
        version.split('.'))


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

    def test_it_is_ended_while_it_unpacks(self):
        self.archive()
        self.command('tar', 'kill $PPID')
        self.assertEqual(1, self.prepare()[0])
        self.assertEqual(set(), self.taken)
        self.assertEqual([], list((self.path / 'build').iterdir()))

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

    def test_other_files_stay(self):
        """Somebody may run it by hand, anywhere."""
        self.archive()
        for name in ('package', 'unpacked', 'linux', 'other.c'):
            (self.path / 'build' / name).touch()
        self.assertEqual(0, self.prepare()[0])
        self.assertEqual(TAKEN | {'package', 'unpacked', 'linux', 'other.c'},
                         self.taken)

    def test_a_directory_for_each_kernel(self):
        """The setting is a shell script, and knows the kernel."""
        self.headers('6.18.44', '6.18.44')
        self.directory().rename(self.path / 'linux-6.18.44')
        self.settings(self.path / 'linux-$kernel')
        self.assertEqual(0, self.prepare(kernel='6.18.44')[0])

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

    def test_the_first_download(self):
        self.rpm.parent.rmdir()
        self.assertEqual(0, self.prepare()[0])

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
