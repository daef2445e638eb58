# SPDX-License-Identifier: Apache-2.0
"""A node: a kernel of its own (user-mode Linux), disks, commands in it."""

import base64
import collections
import json
import os
import shlex
import signal
import socket
import struct
import threading

from lab.core import agent
from lab.core import preloaded
from lab.core import process
from lab.core import stock
from lab.core import zero_page

Done = collections.namedtuple('Done', 'returncode stdout stderr')
BOOT_TIMEOUT = 60
SERVICE_TIMEOUT = 180
#: Asks a process that has imported Cinder; itself it starts at once.
PRELOADED = '/usr/bin/python3 -S ' + preloaded.__file__
#: Where each node keeps backups of headers; they outlive its boots.
HEADERS = '/run/localclone-headers'
#: A slow link (tc-cake(8)). Who sends little over it does not wait behind what
#: is copied, as on nodes whose queues are fair, which those of systemd are.
RATE = 'cake bandwidth %s'
#: Cinder logs it when a driver takes requests.
READY = 'Driver post RPC initialization completed'
#: And this, when it never will.
FAILED = "because driver isn't initialized properly"


class Running:
    """A command that runs in a node; read it while it does."""

    def __init__(self, connection):
        self._connection = connection
        self.stdout = b''
        self.stderr = b''
        self.returncode = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        try:
            with self._connection.makefile('rb') as reader:
                while True:
                    head = reader.read(5)
                    if len(head) < 5:
                        break
                    data = reader.read(struct.unpack('>I', head[1:])[0])
                    if head[:1] == b'o':
                        self.stdout += data
                    elif head[:1] == b'e':
                        self.stderr += data
                    else:
                        self.returncode = int(data)
                        break
        except OSError:
            pass

    def wait(self, timeout=None):
        """The exit code; None if it still runs or the node is gone."""
        self._thread.join(timeout)
        return self.returncode

    @property
    def running(self):
        return self._thread.is_alive()

    def kill(self):
        """Hang up: the agent then kills the command."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()


class Node:
    """One node of a lab.

    :param lab: the :class:`lab.lab.Lab` it belongs to
    """

    def __init__(self, lab, number):
        self.lab = lab
        self.name = 'node%d' % number
        self.address = '192.0.2.1%d' % number
        #: As Cinder's services and the operator's command call its service.
        self.service_host = self.name + '@localclone'
        self.tap = 'tap%d' % number
        self.directory = lab.directory / self.name
        self.console = lab.logs / ('%s.console.log' % self.name)
        self.timeline = self.directory / 'timeline'
        #: The :class:`lab.container.container.Container` of its volume
        #: service; None: the service runs on the node itself.
        self.container = None
        self._seen = {}

    # -- power

    def create_disks(self):
        """Two sparse files: vda for the driver, vdb for the stock one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for disk in ('vda', 'vdb'):
            image = self._image(disk)
            image.parent.mkdir(parents=True, exist_ok=True)
            with open(image, 'wb') as file:
                file.truncate(self.lab.settings['disk_gib'] << 30)

    def _image(self, disk):
        if self.lab.settings['disks'] == 'memory':
            return self.lab.memory / ('%s.%s.img' % (self.name, disk))
        return self.directory / (disk + '.img')

    def power_on(self):
        """Boot on the disks as they are; returns when commands can run."""
        memory = '3072M' if self.lab.settings['nova'] else '1536M'
        kernel = self.lab.settings['kernel']
        processors = self.lab.settings['processors']
        words = [
            'lc_name=' + self.name,
            'lc_address=' + self.address, 'lc_repo=%s' % self.lab.repo,
            'lc_venv=%s' % self.lab.venv,
            'lc_modules=' + kernel['modules'],
            'lc_records=%s' % (self.directory / 'iscsi'),
            'lc_headers=%s' % (self.directory / 'headers')]
        if 'initrd' in kernel:
            argv = stock.command(self, words, memory, [
                self._below(disk) for disk in ('vda', 'vdb')])
        else:
            argv = [
                kernel['binary'], 'mem=' + memory,
                'umid=%s-%s' % (self.lab.name, self.name),
                'uml_dir=%s' % self.lab.directory,
                'virtio_uml.device=%s:2:1' % (self.directory / 'vda.sock'),
                'virtio_uml.device=%s:2:2' % (self.directory / 'vdb.sock'),
                # The same address after each boot: neighbours remember it.
                'vec0:transport=tap,ifname=%s,depth=128,gro=1,'
                'mac=02:00:00:00:00:%s' % (self.tap, self.address[-2:]),
                'rootfstype=hostfs', 'rootflags=/', 'rw', 'quiet',
                'seccomp=auto',  # instead of ptrace, if the kernel can
                # Each LVM command looks at all of /dev: 512 terminals of old.
                'pty.legacy_count=0',
                'init=%s/lab/core/node_init.sh' % self.lab.repo,
                *['ncpus=%d' % processors] * (processors > 1),
                'con=null', 'con0=null,fd:1', *words]
            self._start_disks()
        self.lab.processes.start(self.name, argv, self.console,
                                 env={'TMPDIR': '/dev/shm'})
        process.wait_for('%s to boot' % self.name, self._answers,
                         BOOT_TIMEOUT, self.console)

    def _below(self, disk):
        """Where a disk is, in words of -blockdev; starts its cache."""
        image = self._image(disk)
        if disk != 'vda' or self.lab.settings['disks'] != 'volatile':
            return ('driver=file,filename=%s,cache.direct=on,discard=unmap'
                    % image)
        cache = self.directory / 'cache.sock'
        cache.unlink(missing_ok=True)
        self.lab.processes.start(
            self.name + '-cache',
            ['/usr/bin/python3', '-S',
             self.lab.repo / 'lab/core/volatile_disk.py',
             '--file', image, '--socket', cache,
             '--report', self.directory / 'power-cut.json'],
            self.lab.logs / ('%s.cache.log' % self.name))
        process.wait_for('the cache of %s' % self.name, cache.exists, 20)
        return ('driver=nbd,server.type=unix,server.path=%s,discard=unmap'
                % cache)

    def _start_disks(self):
        for disk in ('vda', 'vdb'):
            below = 'node-name=a,' + self._below(disk)
            sock = self.directory / (disk + '.sock')
            server = self.directory / (disk + '.server')
            for each in (sock, server):
                each.unlink(missing_ok=True)
            log = self.lab.logs / ('%s.%s.log' % (self.name, disk))
            self.lab.processes.start('%s-%s' % (self.name, disk), [
                'qemu-storage-daemon', '--blockdev', below,
                '--object', 'iothread,id=io1', '--export',
                'type=vhost-user-blk,id=e,node-name=a,addr.type=unix,'
                'addr.path=%s,writable=on,iothread=io1' % server,
            ], log)
            process.wait_for('disk %s of %s' % (disk, self.name),
                             server.exists, 20)
            self.lab.processes.start(
                '%s-%s-zeroes' % (self.name, disk), zero_page.command(
                    self.lab.settings['kernel']['binary'], sock, server), log)
            process.wait_for('disk %s of %s' % (disk, self.name),
                             sock.exists, 20)

    def power_cut(self):
        """End the node at once; its cache loses part of what it held.

        :returns: bytes of acknowledged writes that were lost; None: the disks
            have no cache
        :raises LabError: if the node is off, or its cache does not say what
            it lost
        """
        if not self.is_on:
            raise process.LabError('%s is off already' % self.name)
        report = self.directory / 'power-cut.json'
        report.unlink(missing_ok=True)
        processes = self.lab.processes
        processes.kill(self.name)
        for disk in ('vda', 'vdb'):
            processes.kill('%s-%s' % (self.name, disk))
            processes.kill('%s-%s-zeroes' % (self.name, disk))
        pid = processes.signal(self.name + '-cache', signal.SIGUSR1)
        if pid:
            process.wait_for('the cache of %s to drop' % self.name,
                             lambda: process.reap(pid), 20, every=0.05)
        if self.lab.settings['disks'] != 'volatile':
            return None
        if not report.exists():
            raise process.LabError(
                'the cache of %s has not said what it lost' % self.name)
        return json.loads(report.read_text())['lost_bytes']

    @property
    def is_on(self):
        return self.lab.processes.pid(self.name) is not None

    # -- network

    def network_cut(self):
        """Nothing arrives any more; the node's own link stays up."""
        self._ip('link', 'set', self.tap, 'nomaster')

    def network_heal(self):
        self._ip('link', 'set', self.tap, 'master', 'br0')

    def netem(self, *words):
        """Delay or loss of what the node sends (tc-netem(8)).

        No words: none of it, nor a rate. In the node, whose kernel has netem
        for sure.
        """
        if words:
            self._replace_queue('netem ' + ' '.join(words))
        else:
            self.run('tc qdisc del dev vec0 root', check=False)

    def slow_down(self, rate):
        """Limit what the node sends, until :meth:`netem`.

        :param rate: as tc(8) has it: '15mbit'
        """
        self._replace_queue(RATE % rate)

    def _replace_queue(self, how):  # at once: several may ask at a time
        self.run('tc qdisc replace dev vec0 root ' + how)

    def _ip(self, *words):
        self.lab.host_run('ip', *words)

    # -- commands

    def _connect(self):
        connected = []

        def connect():  # a socket stays in the namespace of its making
            process.enter_namespace(self.lab.namespace)
            try:
                connected.append(socket.create_connection(
                    (self.address, agent.PORT), timeout=5))
            except OSError as exc:
                connected.append(exc)
        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()
        if isinstance(connected[0], Exception):
            raise process.LabError('%s does not answer: %s' % (
                self.name, connected[0]))
        connected[0].settimeout(None)
        return connected[0]

    def _answers(self):
        if not self.is_on:
            raise process.LabError('%s did not boot; see %s' % (
                self.name, self.console))
        try:
            return self.run('true', timeout=5).returncode == 0
        except process.LabError:
            return False

    def popen(self, command, timeout=3600, stdin=b''):
        """Start a command (a shell line, or words) in the node."""
        if not isinstance(command, str):
            command = shlex.join(str(word) for word in command)
        connection = self._connect()
        connection.sendall(json.dumps({
            'command': command, 'timeout': timeout,
            'input': base64.b64encode(stdin).decode()}).encode() + b'\n')
        return Running(connection)

    def run(self, command, timeout=60, check=True, stdin=b''):
        """Run a command in the node and return what it printed.

        :raises LabError: if it failed (with check), or the node is gone
        """
        timeout *= process.patience
        running = self.popen(command, timeout, stdin)
        code = running.wait(timeout + 10)
        done = Done(code, running.stdout.decode(errors='replace'),
                    running.stderr.decode(errors='replace'))
        if code is None:
            running.kill()
            raise process.LabError('%s: no answer to %s' % (
                self.name, command))
        if check and code:
            raise process.LabError('%s: %s: exit code %d\n%s%s' % (
                self.name, command, code, done.stdout[-2000:],
                done.stderr[-2000:]))
        return done

    # -- services

    def service(self, action, backend='localclone'):
        """start, stop, kill or restart a volume service of this node.

        :raises LabError: when one that is to be killed does not run
        """
        log = self.service_log(backend)
        self._seen[backend] = log.count(READY), log.count(FAILED)
        if self.container and backend == 'localclone':
            self._contained(action)
            return
        name, conf = 'cinder-' + backend, self.directory / (
            '%s.conf' % backend)
        runner = self._runner() if backend == 'localclone' else ''
        if not self.lab.preloads or runner or action in ('stop', 'kill'):
            self.daemon(action, name, 'cinder-volume', conf, runner)
            return
        if action == 'restart':
            self.daemon('stop', name, 'cinder-volume', conf)
        self._parent(preloaded.COMMAND)  # of its privileged processes
        self.run('%s start %s /run/%s.pid --config-file %s >>%s 2>&1 '
                 '</dev/null' % (
                     PRELOADED, self._parent(preloaded.SERVICE), name, conf,
                     self.lab.logs / ('%s.%s.log' % (self.name, name))),
                 timeout=preloaded.LOADING + 30)

    def _contained(self, action):
        if action == 'kill':
            self.container.kill()
        if action in ('stop', 'restart'):
            self.container.stop()
        if action in ('start', 'restart'):
            self.container.start()

    def _parent(self, module):
        """The socket of a process that forks for a program; starts it."""
        # One with other code goes on until it is idle.
        path = preloaded.SOCKET % (
            module.rpartition('.')[2], self.lab.code)
        self.run(
            'mkdir %(path)s%(begun)s 2>/dev/null || exit 0; '
            'PATH=$PATH:%(venv)s/bin '
            'OS_CINDER_DISABLE_EVENTLET_PATCHING=%(native)d setsid '
            '%(python)s -W ignore %(program)s serve %(path)s %(module)s '
            '>>%(log)s 2>&1 </dev/null &' % {
                'path': path, 'begun': preloaded.BEGUN, 'module': module,
                'venv': self.lab.venv, 'python': self.lab.python,
                'native': self.lab.settings['native_threads'],
                'program': preloaded.__file__,
                'log': self.lab.logs / (self.name + '.preloaded.log')})
        return path

    def _runner(self):
        """What runs the driver's service, if it does not run by itself."""
        steps = self.lab.directory / 'steps'
        if self.lab.settings.get('stepping'):
            steps.mkdir(exist_ok=True)
            return '%s -m lab.faults.stepping %s %s %d ' % (
                self.lab.python, steps, self.name,
                self.lab.settings['stepping'])
        if self.lab.settings.get('timeline'):
            return '%s -m lab.bench.timeline %s ' % (
                self.lab.python, self.timeline)
        return ''

    def wait_service(self, backend='localclone'):
        """Wait until what :meth:`service` has started takes requests."""
        ready, failed = self._seen.get(backend, (0, 0))

        def serves():
            log = self.service_log(backend)
            if log.count(FAILED) > failed:
                raise process.LabError('the service of %s has failed to '
                                       'start; see its log' % self.name)
            return log.count(READY) > ready
        process.wait_for('the service of %s' % self.name, serves,
                         SERVICE_TIMEOUT, every=0.5)

    @property
    def serves(self):
        """Whether its volume service runs."""
        return self.is_on and not self.run(
            'kill -0 -- -$(cat /run/cinder-localclone.pid)',
            check=False).returncode

    def operator(self, *words, timeout=300):
        """Run ``cinder-localclone`` with the service's configuration."""
        if self.container:
            return self.container.operator(*words, timeout=timeout,
                                           check=False)
        if self.lab.preloads:
            program = [*PRELOADED.split(), 'run', self._parent(
                preloaded.COMMAND)]
        else:
            program = [self.lab.python, '-W', 'ignore', '-m',
                       preloaded.COMMAND]
        return self.run(
            [*program, '--config-file', self.directory / 'localclone.conf',
             *words], timeout=timeout, check=False)

    def daemon(self, action, name, program, conf, runner=''):
        """start, stop, kill or restart an OpenStack service of this node.

        :param name: of its log and pid file
        :param runner: what runs the program, if it does not run by itself
        :raises LabError: when one that is to be killed does not run
        """
        pid = '/run/%s.pid' % name
        if action == 'kill':
            self._kill(name, pid)
        if action in ('stop', 'restart'):
            self.run(
                'p=$(cat %(pid)s 2>/dev/null) || exit 0; '
                'kill -TERM -- -$p; for i in $(seq 150); do '
                'kill -0 -- -$p 2>/dev/null || break; sleep 0.1; done; '
                'kill -KILL -- -$p 2>/dev/null; rm -f %(pid)s' % {
                    'pid': pid}, timeout=30)
        if action in ('start', 'restart'):
            self.run(
                'PATH=$PATH:%(venv)s/bin '
                'OS_CINDER_DISABLE_EVENTLET_PATCHING=%(native)d setsid '
                '%(runner)s%(venv)s/bin/%(program)s '
                '--config-file %(conf)s >>%(log)s 2>&1 </dev/null & '
                'echo $! >%(pid)s' % {
                    'venv': self.lab.venv, 'program': program, 'conf': conf,
                    'runner': runner,
                    'native': self.lab.settings['native_threads'],
                    'log': self.lab.logs / (
                        '%s.%s.log' % (self.name, name)), 'pid': pid})

    def _kill(self, name, pid):
        done = self.run(
            'p=$(cat %(pid)s) && kill -KILL -- -$p || exit 1; '
            'for i in $(seq 150); do kill -0 -- -$p 2>/dev/null || '
            '{ rm -f %(pid)s; exit 0; }; sleep 0.1; done; exit 2' % {
                'pid': pid}, timeout=30, check=False)
        if done.returncode:
            raise process.LabError('%s of %s %s' % (
                name, self.name, 'does not end' if done.returncode == 2
                else 'does not run: there is nothing to be killed'))

    def service_log(self, backend='localclone'):
        path = self.lab.logs / ('%s.cinder-%s.log' % (self.name, backend))
        return path.read_text(errors='replace') if path.exists() else ''


def missing() -> list[str]:
    """What a machine lacks to run nodes, in words."""
    found = []
    if os.uname().machine != 'x86_64':
        found.append('user-mode Linux needs an x86-64 machine')
    if os.geteuid():
        found.append('the lab makes network namespaces: run it as root')
    if not os.path.exists('/dev/net/tun'):
        found.append('/dev/net/tun is missing (module tun)')
    return found
