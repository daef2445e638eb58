# SPDX-License-Identifier: Apache-2.0
"""A machine that is a directory, with the commands that are beside this."""

import os
import pathlib
import re
import shutil
import subprocess

import fixtures

REPO = pathlib.Path(__file__).resolve().parents[3]
HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = os.environ.get('DEVSTACK', '')
COMMANDS = (
    'sudo modprobe vgs vgcreate vgremove pvs pvremove lvs lvcreate lvremove '
    'wipefs losetup dmsetup iscsiadm rmdir systemctl dpkg lsb_release '
    'iscsi-iname uname apt-get cinder-localclone cinder-rtstool ip '
    'service udevadm').split()
#: Commands of this machine that are let in; there are no others.
TOOLS = (
    'awk basename bash cat chmod cmp cp cut date dirname env find grep head '
    'hostname id install ln ls mkdir mktemp mv nproc openssl ps python3 '
    'readlink rm sed sh sleep sort tac tail tee timeout touch tr truncate '
    'tput uniq wc which whoami xargs').split()


class Machine(fixtures.Fixture):
    """A directory that the commands take for a machine."""

    def __init__(self, functions):
        self.functions = functions

    def _setUp(self):
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('bin', 'tmp', 'lvm', 'dm', 'data', 'opt', 'etc/cinder',
                     'etc/nova', 'etc/lvm', 'etc/iscsi', 'etc/sudoers.d',
                     'etc/systemd/system', 'usr/local/bin',
                     'target/iscsi', 'target/core'):
            (self.path / name).mkdir(parents=True)
        commands = self.path / 'commands'
        shutil.copy(HERE / 'commands', commands)
        commands.chmod(0o755)
        for name in COMMANDS:
            (self.path / 'bin' / name).symlink_to(commands)
        for name in TOOLS:
            (self.path / 'bin' / name).symlink_to(shutil.which(name))
        self.write('etc/iscsi/initiatorname.iscsi', 'InitiatorName=iqn.x\n')
        self.write('etc/lvm/lvm.conf', '# global_filter = [ "a|.*|" ]\n')
        etc = self.path / 'etc'
        self.environment = {
            'PATH': str(self.path / 'bin'),
            'HOME': str(self.path), 'TMPDIR': str(self.path / 'tmp'),
            'LC_ALL': 'C', 'WORLD': str(self.path),
            'REPO': str(REPO), 'FUNCTIONS': str(HERE / self.functions),
            'ENABLED_SERVICES': 'key,n-cpu,c-api,c-sch,c-vol',
            'LOCALCLONE_UDEV_DIR': str(etc / 'udev/rules.d'),
            'LOCALCLONE_UNIT_DIR': str(etc / 'systemd/system'),
            'LOCALCLONE_MODULES_DIR': str(etc / 'modules-load.d'),
            'LOCALCLONE_BIN_DIR': str(self.path / 'usr/local/bin'),
            'LOCALCLONE_INITIATOR': str(etc / 'iscsi/initiatorname.iscsi'),
            'LOCALCLONE_CONFIGFS': str(self.path / 'target'),
            'LOCALCLONE_LINKS': str(self.path / 'links'),
            'LOCALCLONE_SIZE': '1G',
        }
        if self.functions == 'checkout':
            self._copy_checkout()

    def _copy_checkout(self):
        top = self.path / 'devstack'
        top.mkdir()
        for name in ('functions', 'functions-common', 'stackrc'):
            shutil.copy(os.path.join(CHECKOUT, name), top)
        for name in ('inc', 'lib', 'files'):
            shutil.copytree(os.path.join(CHECKOUT, name), top / name)
        for name in ('lib/lvm', 'lib/cinder', 'lib/nova', 'inc/rootwrap',
                     'functions-common'):
            path = top / name
            path.write_text(re.sub(
                r'(?<![\w.}])/etc/', '%s/etc/' % self.path, path.read_text()))
        self.write('cinder/etc/cinder/rootwrap.conf', 'filters_path=x\n')
        self.write('cinder/etc/cinder/rootwrap.d/volume.filters', '')
        self.write('cinder/etc/cinder/api-paste.ini', '')
        self.write('etc/os-release', 'ID=debian\n')
        self.environment['TOP_DIR'] = str(top)

    def write(self, name, text):
        """A file of the machine."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name):
        """What is in a file; nothing if there is none."""
        path = self.path / name
        return path.read_text() if path.exists() else ''

    def run(self, script, **variables):
        """What bash printed, and its exit code.

        :param variables: what local.conf says
        """
        done = subprocess.run(
            ['bash', '-c', script], env=dict(self.environment, **variables),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.path, timeout=120)
        outside = self.read('outside')
        if outside:
            raise AssertionError(outside + done.stdout)
        return done.stdout, done.returncode

    @property
    def etc(self):
        """All files below /etc that this machine did not begin with."""
        return {str(path.relative_to(self.path / 'etc'))
                for path in (self.path / 'etc').rglob('*')
                if not path.is_dir()} - {'lvm/lvm.conf', 'os-release'}

    @property
    def volume_groups(self):
        """Its groups, each with its LVs."""
        return {path.name: {each.name for each in path.iterdir()}
                for path in (self.path / 'lvm').iterdir() if path.is_dir()}
