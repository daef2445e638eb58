# SPDX-License-Identifier: Apache-2.0
"""Moves that nobody attaches for: Cinder's migration, and a drain."""

from lab.core import process
from lab.scenarios import disk as disks
from lab.scenarios import moves
from lab.scenarios import operation as base
from lab.scenarios import snapshot as snapshots


class Migrate(base.Operation):
    """To the other node, asked of Cinder; then it is used there."""

    name = 'migrate'
    like = moves.Move.name

    def run(self):
        self._ask()
        self._wait()

    def _row(self):
        return snapshots.row_of(self.environment.lab.cinder(), 'volume',
                                self.disk.volume)

    def _ask(self):
        self.environment.lab.cinder().post(
            '/volumes/%s/action' % self.disk.volume, json={
                'os-migrate_volume': {
                    'host': self.destination.service_host + '#localclone',
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
            self.destination.service_host)

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
        self.environment.depart(self.disk, self.source, self.destination)

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
