# SPDX-License-Identifier: Apache-2.0
"""``make devstack``: the plugin makes a node ready, clean.sh undoes it."""

import pathlib
import time

from lab.core import config
from lab.core import install
from lab.core import instance as instances
from lab.core import observe
from lab.install import checkout
from lab.install import scenario

HERE = pathlib.Path(__file__).parent
#: What DevStack's functions take for granted.
PACKAGES = {'lsb-release': '/usr/bin/lsb_release',
            'openssl': '/usr/bin/openssl'}
#: Where DevStack is on the node.
DEST = '/run/stack'
GROUP = 'stack-volumes-localclone'
#: What is left of volumes, if anything: a line each.
REMAINS = '''
dmsetup ls | grep -o '^localclone-[^ \t]*'
ls /sys/kernel/config/target/iscsi 2>/dev/null | grep iqn
ls -d /sys/kernel/config/target/core/iblock_*/localclone-* 2>/dev/null
iscsiadm -m session 2>/dev/null
iscsiadm -m node 2>/dev/null
vgs --noheadings -o vg_name
losetup -a
true
'''
FILES = 'find /etc %s/local -xdev ! -type d | sort' % DEST


class DevStack(scenario.Installation):
    """Run the phases of the DevStack plugin in a node of a lab, with
    DevStack's own functions, and check what they leave.
    """

    name = 'devstack'
    title = 'DevStack'
    disks = {'/dev/vda': 'cinder-volumes', '/dev/vdb': 'stock-volumes'}
    log = 'node1.devstack@c-vol.service.log'
    warnings = ()
    not_run = checkout.NOT_RUN

    def __init__(self, lab, options, report):
        super().__init__(lab, options, report)
        self.environment = [
            '%s=%s' % each for each in (
                ('DEST', DEST), ('VENV', lab.venv), ('LOGS', lab.logs),
                ('DATABASE', config.database('cinder')),
                ('BUS', config.BUS))]
        # Nodes see the lab's directory, not all of the machine's.
        self.top = lab.directory / 'devstack'

    @staticmethod
    def add_arguments(parser):
        parser.add_argument(
            '--checkout', type=checkout.directory, required=True,
            metavar='DIR', help='a checkout of DevStack')

    def install(self):
        """Stack with the default: a group on a file."""
        install.packages(print, more=PACKAGES)
        checkout.copy(self.options.checkout, self.top)
        self.node.run(['bash', HERE / 'devstack_machine.sh', self.lab.repo,
                       self.lab.venv, DEST], timeout=120)
        self.before = self.files()
        self.phase('stack')
        self.report.check('thin pool, which zeroes new blocks', self.node.run(
            'lvs --noheadings -o zero %s/%s-pool' % (GROUP, GROUP),
        ).stdout.strip() in ('zero', '1'))
        done = self.systemctl('start', 'cinder-localclone-restore.service')
        self.report.check('the restore unit\'s command runs',
                          not done.returncode, done.stderr[-200:])
        self.wait_service()

    def doctor(self):
        told = self.phase('test-config')
        self.report.check('LVM looks at no guest\'s data', not any(
            'LVM filter' in line and 'WARN' in line
            for line in told.splitlines()))
        return told

    def go_on(self, volume):
        """Unstack and clean leave nothing, neither here nor on a disk."""
        self.stack_again()
        self.nothing_is_left()
        self.on_a_disk()
        self.nothing_is_left()
        self.report.check(
            'the disk is blank again', not self.node.run(
                'wipefs --noheadings /dev/vdb').stdout.strip())

    # -- phases

    def phase(self, what, more=''):
        """Run the phases of one script; what they printed."""
        (self.top / 'local.conf').write_text(checkout.local_conf(
            (self.lab.repo / 'devstack/README.rst').read_text(),
            url='file://%s' % self.lab.repo, address=self.node.address,
            dest=DEST, glance=config.url('glance'), more=more))
        began = time.monotonic()
        done = self.node.run([
            'env', *self.environment, 'bash',
            HERE / 'devstack_phases.sh', what, self.top],
            timeout=600, check=False)
        (self.lab.logs / ('devstack-%s.log' % what)).write_text(
            done.stdout + done.stderr)
        self.report.step(what, time.monotonic() - began)
        self.report.check(
            '%s ran to its end' % what,
            not done.returncode and 'phases of %s: done' % what
            in done.stdout, done.stdout[-200:] if done.returncode else '')
        return done.stdout

    def files(self):
        """All files where the plugin puts some."""
        return set(self.node.run(FILES).stdout.split())

    def systemctl(self, *words):
        """As DevStack does, on this node."""
        return self.node.run([
            'env', *self.environment, DEST + '/bin/systemctl', *words],
            timeout=120, check=False)

    def new_database(self):
        """stack.sh would begin with an empty one; this one is the lab's."""
        observe.sql(self.lab, 'UPDATE volumes SET deleted = 1')

    # -- what is to be seen

    def stack_again(self):
        """Stack with the group that is there; unstack while a volume comes."""
        self.systemctl('stop', 'devstack@c-vol.service')
        self.new_database()
        self.phase('stack')
        self.report.check(
            'stacked again: no volume is left, the group is',
            self.lvs() == {GROUP + '-pool'}, self.lvs())
        self.wait_service()
        self.arriving()
        self.phase('unstack')
        self.nothing_of_volumes()
        self.phase('clean')
        self.new_database()

    def on_a_disk(self):
        """Stack on a disk, and take all of it away by clean.sh."""
        more = 'LOCALCLONE_DEVICES=/dev/vdb\n'
        self.phase('stack', more)
        self.report.check('the group is on the disk', '/dev/vdb' in
                          self.node.run('pvs --noheadings').stdout)
        self.phase('unstack', more)
        self.phase('clean', more)

    def lvs(self):
        """The LVs of the plugin's group."""
        return set(self.node.run(
            'lvs --noheadings -o lv_name ' + GROUP).stdout.split())

    def arriving(self):
        """A volume on its way here, which nobody waits for."""
        volume = self.create(self.peer)
        instance = instances.Instance(self.lab)
        attached = instance.attach(volume, self.peer)
        instances.occupy(self.peer, attached.path, 1000)
        attached.detach()
        instance.attach(volume, self.node)
        self.report.check('a volume is being copied here',
                          bool(observe.clones(self.node)))

    def nothing_of_volumes(self):
        """No export, session, device, group or loop."""
        rest = self.node.run(REMAINS, check=False).stdout.split('\n')
        rest = [line for line in rest if line.strip()]
        self.report.check('nothing of volumes is left', not rest, rest)

    def nothing_is_left(self):
        """Nor a file, but for those of DevStack itself."""
        self.nothing_of_volumes()
        rest = sorted(name for name in self.files() ^ self.before
                      if not checkout.own(name))
        self.report.check('no file is left, none is missing', not rest, rest)
