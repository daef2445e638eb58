# SPDX-License-Identifier: Apache-2.0
"""A lab: nodes and a control plane in a network namespace of its own."""

import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse

from lab.container import container
from lab.core import claim
from lab.core import config
from lab.core import control_plane
from lab.core import install
from lab.core import kernel
from lab.core import node
from lab.core import process
from lab.core import stock
from lab.guest import image as guest_image
from lab.keys import control_plane as keys_control
from lab.nova import compute
from lab.nova import control_plane as nova_control

STATE = pathlib.Path('/var/tmp/localclone-lab')
#: Of disks that are in memory.
MEMORY = pathlib.Path('/dev/shm/localclone-lab')
DEFAULTS = {'disks': 'volatile', 'disk_gib': 40, 'debug': False,
            'options': {}, 'nova': False, 'keys': False, 'nodes': 2,
            'native_threads': False, 'processors': 1, 'containers': False}
#: Of the environment, if not empty: volume services without eventlet.
NATIVE_THREADS = 'LOCALCLONE_LAB_NATIVE_THREADS'
#: How many processors a node has; the kernel must be built for more than one
#: (see LOCALCLONE_LAB_KERNEL in lab/core/kernel.py).
PROCESSORS = 'LOCALCLONE_LAB_PROCESSORS'


def used_by(pids) -> list:
    """The labs that living processes use."""
    return [lab for lab in (Lab(path.stem) for path in STATE.glob('*.user'))
            if lab.claim.holder in pids]


class Lab:
    """One lab, by name; the same object whether it is up or not.

    :param name: labs of different names do not meet
    """

    #: Whether the nodes' services and operator's commands are forks of a
    #: process that has imported them, once the first of them has started after
    #: a boot.
    preloads = False

    def __init__(self, name=None):
        self.name = name or os.environ.get('LOCALCLONE_LAB', 'lab')
        self.namespace = 'lc-' + self.name
        self.directory = STATE / self.name
        self.memory = MEMORY / self.name
        self.logs = STATE / (self.name + '.logs')
        self.claim = claim.Claim(STATE / (self.name + '.user'))
        self.repo = pathlib.Path(__file__).resolve().parents[1]
        self.processes = process.Processes(
            self.directory / 'processes', self.namespace)
        self.settings = dict(DEFAULTS)
        settings = self.directory / 'settings.json'
        if settings.exists():
            self.settings.update(json.loads(settings.read_text()))
        self._set_patience()
        self.nodes = self._make_nodes()

    def _make_nodes(self):
        nodes = [node.Node(self, number)
                 for number in range(1, self.settings['nodes'] + 1)]
        if self.settings['containers']:
            for each in nodes:
                each.container = container.Container(each)
        return {each.name: each for each in nodes}

    @property
    def venv(self) -> pathlib.Path:
        """The venv with OpenStack."""
        return pathlib.Path(self.settings['venv'])

    @property
    def python(self) -> pathlib.Path:
        """That venv's interpreter."""
        return self.venv / 'bin/python'

    @property
    def code(self) -> str:
        """A word that is another one when the driver's code has changed."""
        return '%x' % max(path.stat().st_mtime_ns for path in (
            self.repo / 'cinder_localclone').rglob('*.py'))

    @property
    def control(self) -> control_plane.ControlPlane:
        """Its control plane."""
        kind = (nova_control.NovaControlPlane if self.settings['nova']
                else control_plane.ControlPlane)
        if self.settings['keys']:
            kind = keys_control.with_keys(kind)
        return kind(self)

    @property
    def is_up(self) -> bool:
        """Whether it came up and was not taken down since."""
        return (self.directory / 'up').exists()

    # -- up and down

    def install(self, progress=print) -> None:
        """Everything from apt and PyPI, into place and into the cache."""
        nova = self.settings['nova']
        install.check()
        install.packages(progress, nova=nova)
        self.settings['venv'] = str(install.venv(progress, [
            name for name in install.ADDITIONS if self.settings[name]]))
        self.settings['native_threads'] = bool(os.environ.get(NATIVE_THREADS))
        self.settings['processors'] = int(os.environ.get(PROCESSORS, 1))
        self.settings['kernel'] = kernel.choose(progress)
        self._set_patience()

    def _set_patience(self):
        process.patience = (stock.SLOWER if 'initrd' in self.settings.get(
            'kernel', ()) else 1)

    def up(self, progress=print, service=True, **settings) -> None:
        """Bring the lab up: nodes, control plane, all volume services.

        It is this process's as long as that lives: no other takes it down.

        :param settings: disks ('volatile', 'plain' or 'memory'), disk_gib,
            debug, options (of the driver's backend section), control_options
            (of cinder-api and cinder-scheduler), nova (with Nova, libvirt
            and QEMU: servers that run on the nodes), keys (with Barbican,
            which keeps secrets), nodes (how many), containers (volume
            services run in containers, as kolla's)
        :raises LabError: if a part does not come up; nothing stays then
        """
        self.claim.take()
        if self.directory.exists():
            raise process.LabError(
                'lab "%s" is up or was left behind; take it down first '
                '(python3 -m lab --name %s down)' % (self.name, self.name))
        began = time.monotonic()

        def say(text):
            progress('%5.1f s  %s' % (time.monotonic() - began, text))
        self.settings['containers'] = bool(
            os.environ.get(container.SETTING))
        self.settings.update(settings)
        self.nodes = self._make_nodes()
        self.install(say)
        try:
            self._up(say, service)
        except BaseException:
            with process.uninterrupted():
                say('it failed; taking it down, its logs stay in %s' % (
                    self.logs))
                self.down(keep_logs=True)
            raise
        say('lab "%s" is up' % self.name)

    def _up(self, say, service):
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.directory.mkdir(parents=True)
        (self.directory / 'settings.json').write_text(
            json.dumps(self.settings))
        if self.settings['nova']:
            compute.make_keys(self)
        self._make_network()
        for each in self.nodes.values():
            each.create_disks()
            self.write_service_config(each)
        control = self.control
        control.prepare(say)
        image = guest_image.path(say) if self.settings['nova'] else None
        process.in_parallel([
            lambda: control.start(say),
            *[each.power_on for each in self.nodes.values()]])
        say('nodes booted')
        # Volume services need database and bus only, not the APIs.
        process.in_parallel([
            lambda: self._finish_control_plane(control, image),
            *[lambda each=each: self.start_services(each, service)
              for each in self.nodes.values()]])
        say('APIs answer')
        if service:
            self.wait_for_services()
        if self.settings['nova']:
            compute.wait(self)
        (self.directory / 'up').touch()

    def start_services(self, each, volume=True) -> None:
        """Start what a node runs.

        :param volume: the volume service, too
        """
        if volume:
            each.service('start')
        if self.settings['nova']:
            compute.service(each, 'start')

    def write_service_config(self, each, backend='localclone') -> None:
        """Write the configuration of a node's volume service."""
        path = each.directory / ('%s.conf' % backend)
        path.write_text(config.cinder_volume(
            each.name, each.address, self.venv, path, backend,
            self.settings['options'] if backend == 'localclone' else None,
            self.settings['debug'], self.settings['keys']))

    def _finish_control_plane(self, control, image):
        control.wait()
        cinder = self.cinder()
        for name in ('localclone', 'stock'):
            cinder.post('/types', json={'volume_type': {
                'name': name, 'extra_specs': {'volume_backend_name': name},
            }}).raise_for_status()
        if image:
            guest_image.register(self, image)

    def wait_for_services(self, backend='localclone', timeout=120,
                          nodes=None) -> None:
        """Wait until the volume services are up and have reported room."""
        wanted = {'%s@%s' % (name, backend)
                  for name in nodes or self.nodes}

        def ready():
            cinder = self.cinder()
            listed = cinder.get('/os-services').json()['services']
            alive = {s['host'] for s in listed if s['state'] == 'up'
                     and s['binary'] == 'cinder-volume'}
            pools = cinder.get('/scheduler-stats/get_pools').json()['pools']
            return wanted <= alive and wanted <= {
                pool['name'].partition('#')[0] for pool in pools}
        process.wait_for('the volume services', ready, timeout,
                         self.logs / ('node1.cinder-%s.log' % backend),
                         every=1)

    def down(self, keep_logs=False) -> None:
        """End everything of this lab; also what a crash has left behind.

        :raises LabError: if another process uses it
        """
        self.claim.take()
        with process.uninterrupted():
            self.processes.stop_all()
            if (pathlib.Path('/run/netns') / self.namespace).exists():
                process.run('ip', 'netns', 'del', self.namespace,
                            check=False)
            for each in (self.directory, self.memory):
                shutil.rmtree(each, ignore_errors=True)
            if not keep_logs:
                shutil.rmtree(self.logs, ignore_errors=True)
            self.claim.drop()

    def _make_network(self):
        process.run('ip', 'netns', 'add', self.namespace)
        self.host_run('ip', 'link', 'set', 'lo', 'up')
        self.host_run('ip', 'link', 'add', 'br0', 'type', 'bridge')
        self.host_run('ip', 'address', 'add', config.CONTROL + '/24',
                      'dev', 'br0')
        self.host_run('ip', 'link', 'set', 'br0', 'up')
        for each in self.nodes.values():
            self.host_run('ip', 'tuntap', 'add', each.tap, 'mode', 'tap')
            self.host_run('ip', 'link', 'set', each.tap, 'master', 'br0')
            self.host_run('ip', 'link', 'set', each.tap, 'up')

    # -- inside the namespace, from outside

    def host_run(self, *argv, timeout=60, check=True, **kwargs):
        """Run a host command inside the namespace; its output."""
        return process.run(
            *[str(word) for word in argv], timeout=timeout, check=check,
            preexec_fn=lambda: process.enter_namespace(self.namespace),
            **kwargs)

    def enter(self) -> None:
        """Move this process into the lab's namespace, for good."""
        process.enter_namespace(self.namespace)

    def _inside(self, call):
        """The result of a short call made inside the namespace."""
        result = []

        def work():
            process.enter_namespace(self.namespace)
            try:
                result.append(call())
            except OSError:
                result.append(None)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return result[0] if result else None

    def reachable(self, address, port) -> bool:
        """Whether a TCP port answers, inside the namespace."""
        def connect():
            socket.create_connection((address, port), 2).close()
            return True
        return bool(self._inside(connect))

    def http_status(self, url):
        """Whether a URL answers without an error of the server."""
        def get():
            parts = urllib.parse.urlsplit(url)
            connection = http.client.HTTPConnection(parts.netloc, timeout=10)
            try:
                connection.request('GET', parts.path)
                return connection.getresponse().status < 500
            finally:
                connection.close()
        return self._inside(get)

    # -- the cloud

    def cinder(self, user='admin'):
        """A client of the block storage API: get, post, put, delete.

        Works from outside the namespace and without OpenStack installed.

        :param user: 'admin', 'demo' (a plain tenant), 'cinder' (its own
            user) or 'nova' (as Nova does: the demo user's token and a
            service token)
        """
        return self.client('cinder', user)

    def client(self, service, user='admin'):
        """A client of an API, as :meth:`cinder`: 'nova', 'glance', 'barbican'.
        """
        from lab.core import api
        return api.Client(self, user, service)

    def credentials(self, user='admin') -> dict:
        """OS_* variables for the openstack command."""
        return {
            'OS_AUTH_URL': config.url('keystone') + '/v3',
            'OS_USERNAME': user, 'OS_PASSWORD': config.PASSWORD,
            'OS_PROJECT_NAME': user, 'OS_USER_DOMAIN_ID': 'default',
            'OS_PROJECT_DOMAIN_ID': 'default', 'OS_REGION_NAME': 'lab',
            'OS_IDENTITY_API_VERSION': '3', 'OS_VOLUME_API_VERSION': '3.70'}

    def openstack(self, *argv, user='admin', check=True, timeout=60):
        """Run the openstack command; a CompletedProcess."""
        done = subprocess.run(
            [str(self.venv / 'bin/openstack'), *argv], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, timeout=timeout,
            env=dict(os.environ, PYTHONPATH='', **self.credentials(user)),
            preexec_fn=lambda: process.enter_namespace(self.namespace))
        if check and done.returncode:
            raise process.LabError('openstack %s: %s' % (
                ' '.join(argv), done.stderr[-2000:]))
        return done
