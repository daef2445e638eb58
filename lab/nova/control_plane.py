# SPDX-License-Identifier: Apache-2.0
"""A control plane with Nova (API, conductor, scheduler) and Placement.

And as much of a network service as Nova asks for.
"""

import pathlib
import shutil

from lab.core import config
from lab.core import control_plane
from lab.core import process
from lab.nova import config as nova_config

_BASE = control_plane.ControlPlane
HERE = pathlib.Path(__file__).parent


class NovaControlPlane(control_plane.ControlPlane):
    """As its base, and Nova, Placement, and the network stub."""

    template = 'control-nova'
    sources = _BASE.sources + (
        'constraints_nova.txt', HERE / 'config.py', HERE / 'control_plane.py')
    databases = _BASE.databases + nova_config.DATABASES
    apis = dict(_BASE.apis,
                nova=('nova.conf', 'nova.wsgi.osapi_compute'),
                placement=('placement.conf', 'placement.wsgi.api'))
    daemons = _BASE.daemons + ('nova-conductor', 'nova-scheduler',
                               'network-stub')
    extra_services = ('nova', 'placement', 'neutron')

    def _write_configs(self, directory):
        super()._write_configs(directory)
        for name in ('nova', 'nova/locks'):
            (directory / name).mkdir(exist_ok=True)
        (directory / 'nova.conf').write_text(nova_config.control(
            directory / 'nova', self.lab.settings['debug'],
            self.lab.settings['keys']))
        (directory / 'placement.conf').write_text(nova_config.placement())

        shutil.copy(self.lab.venv / 'etc/nova/api-paste.ini', directory)

    def _config_files(self, name):
        files = super()._config_files(name)
        # Nova's API takes its application from the first of its files.
        return (';'.join((str(self.directory / 'api-paste.ini'), files))
                if name == 'nova' else files)

    def _make_schemas(self):
        super()._make_schemas()
        self._host(self.lab.venv / 'bin/placement-manage', '--config-file',
                   self.directory / 'placement.conf', 'db', 'sync')
        for words in (
                ('api_db', 'sync'),
                ('cell_v2', 'map_cell0', '--database_connection',
                 config.database('nova_cell0')),
                ('db', 'sync'), ('cell_v2', 'create_cell', '--name', 'one')):
            self._host(self.lab.venv / 'bin/nova-manage', '--config-file',
                       self.directory / 'nova.conf', *words)

    def start(self, progress) -> None:
        """Start everything."""
        super().start(progress)
        for name in ('nova-conductor', 'nova-scheduler'):
            self._start_daemon(name, 'nova.conf')
        log = self.lab.logs / 'network-stub.log'
        port = config.PORTS['neutron']
        self.lab.processes.start(
            'network-stub', ['/usr/bin/python3', '-S',
                             HERE / 'network_stub.py',
                             config.CONTROL, port], log)
        process.wait_for('the network stub', lambda: self.lab.reachable(
            config.CONTROL, port), 20, log)
