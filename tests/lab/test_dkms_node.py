# SPDX-License-Identifier: Apache-2.0
"""What the package that builds dm-clone does on a node."""

import re
import shutil

import ddt

from cinder_localclone.core import version
from tests.lab.dkms import KERNEL
from tests.lab.dkms import PACKAGE
from tests.lab.dkms import Root


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

    def test_a_module_that_is_missing_needs_no_signature(self):
        self.modinfo('')
        self.enforce('lockdown')
        self.assertEqual((1, 'MISSING  the module of kernel ' + KERNEL),
                         (self.tell()[0], self.tell()[1][-2]))

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
        self.assertIn('kernel %s has no dm-clone:' % KERNEL, self.printed)
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
        # It fails if it tells that something is missing.
        self.command('cinder-localclone-dkms', '[ "$1" = --build ]')
        self.command('uname', 'echo ' + KERNEL)
        self.command('dkms', 'echo x')

    def script(self, name, word, code=0):
        self.assertEqual(code, self.run_script(
            PACKAGE / 'debian' / name, word, DPKG_ROOT=str(self.path))[0])
        return self.calls

    @ddt.data('configure', 'triggered', 'abort-upgrade', 'abort-remove',
              'abort-deconfigure')
    def test_modules_are_built(self, word):
        self.assertEqual('cinder-localclone-dkms --build',
                         self.script('postinst', word)[0])

    def test_what_is_missing_is_told_at_the_installation(self):
        self.assertEqual(1, self.script('postinst', 'triggered').count(
            'cinder-localclone-dkms --build'))
        self.assertNotIn('cinder-localclone-dkms ', self.calls)
        self.assertIn('cinder-localclone-dkms ',
                      self.script('postinst', 'configure'))

    def test_nothing_is_told_in_a_chroot(self):
        shutil.rmtree(self.path / 'lib/modules')
        self.assertNotIn('cinder-localclone-dkms ',
                         self.script('postinst', 'configure'))

    def test_modules_that_stay_keep_the_package(self):
        self.command('dkms', 'echo x; [ $1 = status ]')
        self.script('prerm', 'remove', code=1)

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
        self.script('postrm', 'remove')
        self.assertEqual((True, True), (cache.exists(), settings.exists()))
        self.script('postrm', 'purge')
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
