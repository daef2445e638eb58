# SPDX-License-Identifier: Apache-2.0
"""The lab that faults happen in: brought up, broken, repaired."""

import collections
import contextlib
import shutil
import signal
import threading
import time

from lab.core import api
from lab.core import extras
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.faults import answers
from lab.faults import injectors
from lab.scenarios import disk as disks
from lab.scenarios import encrypted_disk
from lab.scenarios import environment

#: Sweeps come often, so that a cell need not wait for them; but each costs the
#: more the more volumes a node has. No cell waits for the copies of others,
#: one of which may be held at a step.
OPTIONS = {'localclone_reconcile_interval': 20,
           'localclone_max_copies_in': 0, 'localclone_max_copies_out': 0,
           'localclone_verify_timeout': 20}
#: How much smaller volumes are than Cinder thinks.
SCALE = 16
#: GiB of each node's disk; small, so that it can be filled.
DISK = 8
PATTERN = 'another-tenant'
#: Runs on the host; as the drain command asks for one volume.
_DEPART = '''
import sys
from cinder.common import config
from cinder import objects
from cinder import rpc
from oslo_config import cfg
from %s import %s as answers
from cinder_localclone.core.rpc import METHODS
from cinder_localclone.service import endpoint
from cinder_localclone.service import rpc as peer
conf, steps, host, volume, to = sys.argv[1:]
cfg.CONF([], project='cinder', default_config_files=[conf])
objects.register_all()
rpc.init(cfg.CONF)
answers.install(steps)
move_away = METHODS['move_away']
peer.Client(40).call(host, move_away, move_away.bind(volume, to))
'''
#: Requests for a move at once: the nodes are small, and requests have their
#: limits.
TOGETHER = 4


class Environment(environment.Environment):
    """It has volumes that nothing may touch, and can be broken."""

    def __init__(self, lab, say=print):
        super().__init__(lab, say)
        self.bystanders = []
        #: Volumes that may be used again: {node name: [Disk]}
        self.pool = collections.defaultdict(list)
        self.steps = lab.directory / 'steps'
        self.asking = threading.Semaphore(TOGETHER)
        self.draining = threading.Lock()

    # -- up

    def up(self):
        """Bring the lab up if it is not, with a volume of another project
        on each node that nothing here may touch.
        """
        if not self.lab.is_up:
            self.lab.up(progress=lambda text: self.say('lab: ' + text),
                        stepping=SCALE, api_threads=16, options=OPTIONS,
                        disk_gib=DISK, keys=True)
            encrypted_disk.make_type(self.lab)
        if not self.lab.settings.get('stepping'):
            raise process.LabError('lab "%s" was not brought up for faults: '
                                   'take it down first' % self.lab.name)
        self.heal()
        self._sweep()
        for user in ('demo', 'admin'):
            extras.raise_quotas(self.lab, user, volumes=100, gigabytes=1000,
                                snapshots=100)
        for node in self.nodes.values():
            self.bystanders.append(self._bystander(node))

    def rebuild(self):
        """Take the lab down and bring it up anew; the logs stay."""
        self.say('rebuilding the lab')
        self.bystanders = []
        self.pool.clear()
        self.lab.down(keep_logs=True)
        self._set_logs_aside()
        for known in (api.Client._tokens, instances.Instance._connectors):
            for key in [key for key in known if key[0] == self.lab.name]:
                known.pop(key)  # others' labs go on
        self.up()

    def _set_logs_aside(self):
        """The fresh lab would write over what says why it was needed."""
        number = 1
        while True:
            aside = self.lab.logs.with_name('%s.%d' % (
                self.lab.logs.name, number))
            if not aside.exists():
                break
            number += 1
        self.lab.logs.rename(aside)
        self.say('its logs: %s' % aside)

    def _bystander(self, node):
        disk = disks.Disk(self.lab, self.create(node, 1, 'admin')[0],
                          'admin')
        disk.instance.nova = self.lab.cinder('admin')
        disk.attach(node)
        disk.fill(node)
        return disk

    def _sweep(self):
        """Delete what an earlier, interrupted run has left, guests too."""
        for node in self.nodes.values():
            instances.stop_writing(node)
        for user in ('demo', 'admin'):
            for volume in self.lab.cinder(user).get('/volumes').json()[
                    'volumes']:
                disks.Disk(self.lab, volume['id'], user).remove()

    # -- faults

    def power_cut(self, nodes):
        """Cut the power of nodes at once; say what their disks lost.

        :returns: bytes of acknowledged writes that are lost
        :raises LabError: if one of them was off already
        """
        lost = process.in_parallel([node.power_cut for node in nodes])
        for node, count in zip(nodes, lost):
            self.say('    %s: %d KiB that were not flushed are lost' % (
                node.name, (count or 0) >> 10))
        return sum(count or 0 for count in lost)

    def kill(self, nodes):
        """Kill the volume services of nodes.

        :raises LabError: if one of them did not run, or still does
        """
        process.in_parallel([lambda n=node: n.service('kill')
                             for node in nodes])
        alive = [node.name for node in nodes if node.serves]
        if alive:
            raise process.LabError(
                'no fault: a service runs on ' + ' and '.join(alive))

    def replace(self, node):
        """Another machine under a node's name, with new disks.

        The node was forgotten: what was there is lost.
        """
        for disk in self.pool.pop(node.name, ()):
            disk.remove()
        node.create_disks()
        shutil.rmtree(node.directory / 'iscsi', ignore_errors=True)
        (node.directory / 'iscsi').mkdir()
        self.power_on(node)
        node.wait_service()
        self.lab.wait_for_services()
        number = list(self.nodes.values()).index(node)
        # As the cloud's administrator: only Nova may end an attachment.
        disks.Disk(self.lab, self.bystanders[number].volume, 'admin').remove()
        self.bystanders[number] = self._bystander(node)

    def forget(self, node, by):
        """The operator's command, on another node; done again, it is done.

        :raises LabError: if it fails, or does it unasked
        """
        name = node.service_host
        for words, code in (((), 1), (('--yes',), 0)):
            done = by.operator('node', 'forget', name, *words)
            if 'has no volumes, moves or volume service' in done.stderr:
                return
            if done.returncode != code:
                raise process.LabError('forget %s: exit code %d: %s%s' % (
                    ' '.join(words), done.returncode, done.stdout[-600:],
                    done.stderr[-600:]))

    def drain(self, node, to):
        """The operator's command: all that can leaves a node.

        :returns: what it has printed
        """
        observe.take_volumes(self.lab, to.name)
        try:
            done = to.operator(
                'node', 'drain', node.service_host, '--to',
                to.service_host, '--seconds', '240', timeout=300)
        finally:
            observe.take_volumes(self.lab)
        return done.stdout + done.stderr

    def move_away(self, disk, source, destination):
        """Ask a node for one volume's part of a drain; see :meth:`drain`."""
        self.lab.host_run(
            self.lab.python, '-W', 'ignore', '-c',
            _DEPART % tuple(answers.__name__.rsplit('.', 1)),
            self.lab.control.directory / 'cinder.conf', self.steps,
            source.service_host, disk.volume, destination.service_host,
            timeout=120, cwd=self.lab.repo)

    def stall(self, name, seconds):
        """The database or the message bus answers nobody for a while."""
        with self.away(name, signals=True):
            time.sleep(seconds)

    def reset_sessions(self, node, check=True):
        """The targets of a node end their sessions, once.

        :param check: whether it is a failure if there are none
        """
        node.run('for e in /sys/kernel/config/target/iscsi/iqn*/tpgt_1/'
                 'enable; do echo 0 >$e; sleep 1; echo 1 >$e; done',
                 check=check)

    def heal(self):
        """Undo whatever a fault has done; everything runs afterwards."""
        self.release()
        self.let_copy()
        for name in ('mariadb', 'rabbitmq'):
            self.lab.processes.signal(name, signal.SIGCONT)
        super().heal()

    def _undo(self, node):
        injectors.undo(node)

    @contextlib.contextmanager
    def away(self, name, signals=False):
        """The database or the message bus is away.

        :param signals: it only stands still: its connections stay
        """
        start = {'mariadb': self.lab.control._start_database,
                 'rabbitmq': self.lab.control._start_bus}[name]
        if signals:
            self.lab.processes.signal(name, signal.SIGSTOP)
        else:
            self.lab.processes.stop(name)
        try:
            yield
        finally:
            if signals:
                self.lab.processes.signal(name, signal.SIGCONT)
            else:
                start()

    # -- steps (see lab.faults.stepping)

    def arm(self, disk, node, label):
        """Work on a volume is to stay at a step of a node."""
        self.steps.mkdir(exist_ok=True)
        (self.steps / (disk.volume + '.reached')).unlink(missing_ok=True)
        (self.steps / (disk.volume + '.stop')).write_text(
            '%s %s' % (node.name, label))

    def reached(self, disk):
        """Whether the work on a volume has come to its step."""
        return (self.steps / (disk.volume + '.reached')).exists()

    def look_oddly(self, node, name):
        """The next look at sysfs by this name has an odd answer.

        :raises LabError: if there is none for a while
        """
        asked = self.steps / (node.name + '.odd')
        asked.write_text(name)
        process.wait_for('a look (%s)' % name, lambda: not asked.exists(), 60)

    def release(self, disk=None):
        """Let work on a volume, or on all, go on."""
        if self.steps.is_dir():
            for stop in self.steps.glob(
                    '%s.stop' % (disk.volume if disk else '*')):
                stop.unlink(missing_ok=True)
            if disk is None:
                for asked in self.steps.glob('*.odd'):
                    asked.unlink(missing_ok=True)

    def hold_copy(self, disk):
        """Nothing of a volume is copied until :meth:`let_copy`."""
        self.steps.mkdir(exist_ok=True)
        (self.steps / (disk.volume + '.still')).touch()

    def let_copy(self, disk=None):
        """A volume, or all, can be copied."""
        for still in self.steps.glob(
                '%s.still' % (disk.volume if disk else '*')):
            still.unlink(missing_ok=True)

    def forget_steps(self, disk):
        """Remove all notes of the steps of a volume."""
        self.release(disk)
        if self.steps.is_dir():
            for path in self.steps.glob(disk.volume + '.*'):
                path.unlink(missing_ok=True)

    def step_marks(self, disk):
        """How much was done for a volume up to now: changes with each step."""
        return [(path.name, path.stat().st_size) for path in sorted(
            self.steps.glob(disk.volume + '.node*'))]

    def end_waits(self, nodes, died):
        """Nobody waits for services that have died; see :mod:`.answers`.

        :param died: when, by the clock
        """
        for node in nodes:
            (self.steps / (node.name + '.died')).write_text('%f' % died)

    def taken(self, disk):
        """The steps that were done for a volume: (node name, label)."""
        steps = []
        for path in self.steps.glob(disk.volume + '.node*'):
            for line in path.read_text().splitlines():
                when, _space, label = line.partition(' ')
                steps.append((float(when), path.suffix[1:], label))
        return [(node, label) for _when, node, label in sorted(steps)]

    # -- another tenant

    def dirty(self, node, mib=96):
        """Fill blocks of a node's pool with a pattern, and free them."""
        node.run(
            'lvcreate -q -y -T -V 1g -n pattern '
            'cinder-volumes/cinder-volumes-pool && '
            'yes %s | dd of=/dev/cinder-volumes/pattern bs=1M count=%d '
            'iflag=fullblock oflag=direct status=none; '
            'lvremove -q -f cinder-volumes/pattern; '
            # LVM does not: a power cut would leave half of its metadata.
            'sync $(vgs --noheadings -o pv_name cinder-volumes)' % (
                PATTERN, mib), timeout=120)
