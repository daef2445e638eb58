# SPDX-License-Identifier: Apache-2.0
"""``make devstack``: stack, volumes, unstack, clean, a table."""

import sys
import time

from lab import command as commands
from lab.core import config
from lab.core import install
from lab.core import instance as instances
from lab.core import look
from lab.core import node
from lab.core import process
from lab.demos import round_trip
from lab.devstack import checkout

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


class DevStack:
    """One run.

    :param lab: its node1 becomes DevStack's, node2 is the peer
    """

    def __init__(self, lab, options, report):
        self.lab = lab
        self.checkout = options.checkout
        self.report = report
        self.started = 0
        self.node, self.peer = lab.nodes['node1'], lab.nodes['node2']
        self.environment = [
            '%s=%s' % each for each in (
                ('DEST', DEST), ('VENV', lab.venv), ('LOGS', lab.logs),
                ('DATABASE', config.database('cinder')),
                ('BUS', config.BUS))]
        # Nodes see the lab's directory, not all of the machine's.
        self.top = lab.directory / 'devstack'

    def run(self):
        """All of it, and what was left out."""
        install.packages(print, more=PACKAGES)
        checkout.copy(self.checkout, self.top)
        self.node.service('stop')
        self.node.run(['bash', self.lab.repo / 'lab/devstack/machine.sh',
                       self.lab.repo, self.lab.venv, DEST], timeout=120)
        before = self.files()
        self.on_a_loop_file()
        self.nothing_is_left(before)
        self.on_a_disk()
        self.nothing_is_left(before)
        self.report.check(
            'the disk is blank again', not self.node.run(
                'wipefs --noheadings /dev/vdb').stdout.strip())
        print('\nNot run:')
        for what, instead in checkout.NOT_RUN:
            print('  %-45s %s' % (what, instead))

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
            self.lab.repo / 'lab/devstack/phases.sh', what, self.top],
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
        look.sql(self.lab, 'UPDATE volumes SET deleted = 1')

    # -- what is to be seen

    def on_a_loop_file(self):
        """The default: a group on a file; volumes that move; unstack."""
        self.phase('stack')
        self.made_ready()
        self.there_and_back()
        self.systemctl('stop', 'devstack@c-vol.service')
        self.new_database()
        self.phase('stack')
        self.report.check(
            'stacked again: no volume is left, the group is',
            self.lvs() == {GROUP + '-pool'}, self.lvs())
        self.wait()
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

    def made_ready(self):
        """What stack leaves."""
        self.report.check('thin pool, which zeroes new blocks', self.node.run(
            'lvs --noheadings -o zero %s/%s-pool' % (GROUP, GROUP),
        ).stdout.strip() in ('zero', '1'))
        done = self.systemctl('start', 'cinder-localclone-restore.service')
        self.report.check('the restore unit\'s command runs',
                          not done.returncode, done.stderr[-200:])
        self.wait()
        told = self.phase('test-config')
        wrong = [line for line in told.splitlines() if 'FAIL' in line]
        self.report.check('doctor finds nothing wrong', not wrong, wrong)
        self.report.check('LVM looks at no guest\'s data', not any(
            'LVM filter' in line and 'WARN' in line
            for line in told.splitlines()))

    def wait(self):
        """Until the service that DevStack has started takes volumes."""
        log = self.lab.logs / 'node1.devstack@c-vol.service.log'
        self.started += 1
        process.wait_for(
            'the service that DevStack has started',
            lambda: log.exists() and log.read_text(errors='replace').count(
                node.READY) >= self.started, node.SERVICE_TIMEOUT, log,
            every=1)
        self.lab.wait_for_services(nodes=['node1'])

    def lvs(self):
        """The LVs of the plugin's group."""
        return set(self.node.run(
            'lvs --noheadings -o lv_name ' + GROUP).stdout.split())

    def create(self, where):
        """A volume of 1 GiB on a node; its id."""
        return instances.create_volume(
            self.lab.cinder('demo'), 1, node=where.name)

    def there_and_back(self):
        """A volume moves to the lab's own node, and home again."""
        round_trip.show(self.lab, self.report, self.create(self.node),
                        self.node, self.peer)

    def arriving(self):
        """A volume on its way here, which nobody waits for."""
        volume = self.create(self.peer)
        instance = instances.Instance(self.lab)
        attached = instance.attach(volume, self.peer)
        instances.occupy(self.peer, attached.path, 1000)
        attached.detach()
        instance.attach(volume, self.node)
        self.report.check('a volume is being copied here',
                          bool(look.clones(self.node)))

    def nothing_of_volumes(self):
        """No export, session, device, group or loop."""
        rest = self.node.run(REMAINS, check=False).stdout.split('\n')
        rest = [line for line in rest if line.strip()]
        self.report.check('nothing of volumes is left', not rest, rest)

    def nothing_is_left(self, before):
        """Nor a file, but for those of DevStack itself."""
        self.nothing_of_volumes()
        rest = sorted(name for name in self.files() ^ before
                      if not checkout.own(name))
        self.report.check('no file is left, none is missing', not rest, rest)


def main():
    """The command; its exit code."""
    command = commands.Command(
        'devstack', 'lab.devstack', 'DevStack',
        'Run the phases of the DevStack plugin in a node of a lab, with '
        'DevStack\'s own functions, and check what they leave.',
        lab_name='devstack')
    command.parser.add_argument(
        '--checkout', type=checkout.directory, required=True, metavar='DIR',
        help='a checkout of DevStack')
    try:
        return command.main(lambda lab, options, report: DevStack(
            lab, options, report).run())
    except process.LabError as exc:
        print('devstack: %s' % exc, file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main())
