# SPDX-License-Identifier: Apache-2.0
"""Moves that nobody attaches for: Cinder's migration, and a drain."""

from lab.core import process
from lab.faults import disk as disks
from lab.faults.operations import base
from lab.faults.operations import moves
from lab.faults import snapshot as snapshots

#: Runs on the host; as the drain command asks for one volume.
_DEPART = '''
import sys
from cinder.common import config
from cinder import objects
from cinder import rpc
from oslo_config import cfg
from lab.faults import answers
from cinder_localclone.core.rpc import METHODS
from cinder_localclone.service import endpoint
from cinder_localclone.service import rpc as peer
conf, steps, host, volume, to = sys.argv[1:]
cfg.CONF([], project='cinder', default_config_files=[conf])
objects.register_all()
rpc.init(cfg.CONF)
answers.install(steps)
depart = METHODS['depart']
peer.Client(40).call(host, depart, depart.bind(volume, to))
'''


class Migrate(base.Operation):
    """To the other node, asked of Cinder; then it is used there."""

    name = 'migrate'
    like = moves.Move.name

    def run(self):
        self._ask()
        self._wait()

    @staticmethod
    def _service(node):
        return node.name + '@localclone'

    def _row(self):
        return snapshots.row_of(self.environment.lab.cinder(), 'volume',
                                self.disk.volume)

    def _ask(self):
        self.environment.lab.cinder().post(
            '/volumes/%s/action' % self.disk.volume, json={
                'os-migrate_volume': {
                    'host': self._service(self.destination) + '#localclone',
                    'force_host_copy': False}}).raise_for_status()

    def _wait(self):
        """:raises LabError: if Cinder has given up"""
        row = process.wait_for(
            'the migration of %s' % self.disk.volume, self._has_ended,
            snapshots.ANSWER, every=1)
        if not self._is_there(row):
            raise process.LabError('it was not migrated: %s' % (
                snapshots.told(self.disk.cinder, self.disk.volume)))

    def _has_ended(self):
        row = self._row()
        if row['migration_status'] in (None, 'none', 'success', 'error') and (
                row['status'] == 'available'):
            return row
        return None

    def _is_there(self, row):
        return row['os-vol-host-attr:host'].startswith(
            self._service(self.destination))

    def _ensure(self):
        """:raises LabError: if it is not there yet"""
        row = self._has_ended()
        if row is None:
            raise process.LabError('it is being migrated')
        if not self._is_there(row):
            with self.environment.asking:
                self._ask()
                self._wait()

    def _leave(self):
        disks.until('%s to go elsewhere' % self.disk.volume, self._ensure)

    def settle(self, lost_power):
        self.join()
        self._leave()
        self._attach(self.destination)
        self._begin_writing(self.destination)
        self._wait_moved()
        self._at_goal()
        self._prove(self.destination)


class Drain(Migrate):
    """Each volume's part of a drain; what is left the command itself does.

    One command has volumes depart one after the other, so none could be held
    at its step beside another: here each is asked for by itself.
    """

    name = 'drain'
    alike = 'drain'
    one_way = True

    def _ask(self):
        lab = self.environment.lab
        lab.host_run(
            lab.python, '-W', 'ignore', '-c', _DEPART,
            lab.control.directory / 'cinder.conf', self.environment.steps,
            self._service(self.source), self.disk.volume,
            self._service(self.destination), timeout=120, cwd=lab.repo)

    def _leave(self):
        with self.environment.draining:
            disks.until('%s to go elsewhere' % self.disk.volume, self._drain,
                        400)

    def _drain(self):
        row = self._has_ended()
        if row is None or not self._is_there(row):
            said = self.environment.drain(self.source, self.destination)
            row = self._row()
            if not self._is_there(row):
                raise process.LabError('drain: ' + said[-600:])
