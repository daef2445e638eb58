# SPDX-License-Identifier: Apache-2.0
"""The container of a node's volume service, as kolla-ansible makes it.

No container engine is needed: ``container.sh`` makes the namespaces, the root
and the mounts by hand. The image has Cinder, the driver and a Python of its
own in ``/var/lib/kolla/venv``, none of the host's ``/etc``, no systemd and no
udev daemon. The service runs as user cinder, its privileged processes by
rootwrap. udevd and iscsid run on the node.
"""

import pathlib
import shlex

from lab.container import conf
from lab.core import process

HERE = pathlib.Path(__file__).parent
SCRIPT = HERE / 'container.sh'
#: Of the environment, if not empty: volume services run in containers.
SETTING = 'LOCALCLONE_LAB_CONTAINER'
#: The file with the process id of the first process, as the node sees it.
PID = '/run/cinder-localclone.pid'
#: Runs the command in a container of its own.
PAGE = 'doc/source/install/kolla/cinder-localclone-image'
#: ``docker_graceful_timeout``: seconds until a service that ends is killed.
GRACE = 60
#: ``cinder_volume_extra_volumes`` of the installation page.
VOLUMES = (
    '/sys/kernel/config:/sys/kernel/config',
    '/etc/lvm:/etc/lvm',
    '/etc/udev/rules.d:/etc/udev/rules.d:ro',
    '/var/lib/localclone:/var/lib/localclone',
    '/var/lib/systemd:/var/lib/systemd',
    '/etc/machine-id:/etc/machine-id:ro',
)


class Container:
    """The container of the volume service of a node.

    :param node: a :class:`lab.core.node.Node`
    :param volumes: the mounts besides those of kolla-ansible
    :param pid_mode: 'private' or 'host', as of the container engine
    :param ipc_mode: likewise; kolla-ansible has 'host'
    :param systemd: whether the image has systemd-run and systemd-creds
    """

    def __init__(self, node, volumes=VOLUMES, pid_mode='private',
                 ipc_mode='host', systemd=False):
        self.node = node
        self.volumes = volumes
        self.pid_mode = pid_mode
        self.ipc_mode = ipc_mode
        self.systemd = systemd
        self._number = 1

    @property
    def image(self):
        """The name of the present image."""
        return 'image-%d%s' % (
            self._number, '-systemd' if self.systemd else '')

    @property
    def runs(self):
        return not self.node.run('kill -0 $(cat %s)' % PID,
                                 check=False).returncode

    def start(self):
        """Start a new container; it has a fresh layer over the image."""
        self._prepare()
        self.node.run('%s start %s >>%s 2>&1 </dev/null & '
                      'until [ -e %s ]; do sleep 0.05; done' % (
                          self._command(), PID, self._log(), PID))

    def stop(self):
        """End the service as the engine does, and with it the container."""
        self._end('TERM', GRACE)

    def kill(self):
        """Kill the first process; the kernel kills all others.

        :raises LabError: if it does not run
        """
        if not self.runs:
            raise process.LabError('%s has no container that runs' %
                                   self.node.name)
        self._end('KILL', 0)

    def upgrade(self):
        """Replace the container by one of another image; remove the first."""
        old = self.image
        self._number += 1
        self.stop()
        self.start()
        self.node.run(['bash', SCRIPT, 'remove', old])

    def run(self, *words, **how):
        """Run a command as root in the container."""
        return self.node.run('bash %s exec $(cat %s) %s' % (
            SCRIPT, PID, shlex.join(str(word) for word in words)), **how)

    def operator(self, *words, **how):
        """Run ``cinder-localclone``, as the installation page does.

        In a container of its own by the script of the page, if the service
        does not run.
        """
        if self.runs:
            return self.run('cinder-localclone', *words, **how)
        self._prepare()
        self.node.run('ln -sf %s /run/bin/docker' % (HERE / 'docker.sh'))
        return self.node.run('%s sh %s %s' % (
            self._environment(), self.node.lab.repo / PAGE, shlex.join(
                str(word) for word in words)), **how)

    def _prepare(self):
        """Make the image and the configuration; a boot forgets the image."""
        lab = self.node.lab
        directory = self.node.directory / 'container'
        directory.mkdir(exist_ok=True)
        (directory / 'cinder.conf').write_text(conf.inside(
            (self.node.directory / 'localclone.conf').read_text(), lab.venv))
        self.node.run(['bash', SCRIPT, 'image', self.image, lab.venv,
                       lab.repo], timeout=120)

    def _command(self):
        return '%s bash %s' % (self._environment(), SCRIPT)

    def _environment(self):
        return (
            'IMAGE=%s CONFIG=%s PID_MODE=%s IPC_MODE=%s EXTRA=%s '
            'OS_CINDER_DISABLE_EVENTLET_PATCHING=%d' % (
                self.image, self.node.directory / 'container', self.pid_mode,
                self.ipc_mode, shlex.quote('\n'.join(self.volumes)),
                self.node.lab.settings['native_threads']))

    def _log(self):
        return self.node.lab.logs / (
            '%s.cinder-localclone.log' % self.node.name)

    def _end(self, signal, seconds):
        self.node.run(
            'p=$(cat %(pid)s 2>/dev/null) || exit 0; kill -%(signal)s $p; '
            'for i in $(seq %(tenths)d); do '
            'kill -0 $p 2>/dev/null || break; sleep 0.1; done; '
            'kill -KILL $p 2>/dev/null; '
            'while kill -0 -- -$p 2>/dev/null || '
            'ls -d /sys/fs/cgroup/container-* >/dev/null 2>&1; '
            'do sleep 0.1; done; rm -f %(pid)s' % {
                'pid': PID, 'signal': signal, 'tenths': 10 * seconds},
            timeout=seconds + 30)
