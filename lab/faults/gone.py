# SPDX-License-Identifier: Apache-2.0
"""One batch of cells: a node goes, at their steps, and never comes back.

What is whole on the other one is used at once. Then the node is forgotten,
what was lost is deleted, and nothing speaks of the node any more. Another
machine takes its name.
"""

import time

from lab.core import observe
from lab.core import process
from lab.core.process import in_parallel
from lab.faults import cells
from lab.scenarios import checks
from lab.scenarios import requests

#: Seconds for the other node to see that a move cannot go on.
SEEING = 150
#: Nothing waits for the destination of a move in these phases.
OVER = ('rolling-back', 'releasing', 'completing')


class Batch(cells.Batch):
    """Cells whose source, or whose destination, goes: the same node."""

    gone = None

    def _strike(self):
        self._check_sources()
        self.gone, self.stays = self.environment.nodes.values()
        died = time.time()
        self.lost = self.environment.power_cut([self.gone])
        for operation in self.operations:
            operation.disk.lost_power(self.gone)
        self.environment.release()
        self.environment.end_waits([self.gone], died)
        self._each(lambda _index, operation: operation.join(SEEING))
        self.environment.expire(self.gone)

    def _settle(self):
        self._each(lambda _index, operation: self._use(operation))
        self.environment.forget(self.gone, self.stays)
        self._each(lambda _index, operation: self._use_if_whole(
            operation.disk))
        in_parallel([operation.disk.remove for operation in self.operations])
        self.environment.forget(self.gone, self.stays)
        self._nothing_is_left()

    # -- before and after the node is forgotten

    def _phase(self, disk):
        """The phase of the move that is under way; '' if there is none."""
        phases = [token.split(':')[1] for volume, token
                  in observe.move_records(
            self.environment.lab) if volume == disk.volume]
        return next((phase for phase in phases if phase not in OVER), '')

    def _is_whole(self, disk):
        """Whether a volume is at the node that stays, and nowhere else."""
        volume = self.environment.lab.cinder().get(
            '/volumes/' + disk.volume).json()['volume']
        return volume['status'] != 'error' and not self._phase(disk) and (
            disk.home() == self.stays.name)

    def _use(self, operation):
        """A volume that is whole can be used, whatever waits for the node.

        A guest that reads what is not copied yet from a source that is gone
        waits for it.
        """
        disk = operation.disk
        if self.gone is operation.destination:
            disk.check_running()
            if disk.home() == self.stays.name:
                process.wait_for(
                    'the move of %s to be over' % disk.volume,
                    lambda: not self._phase(disk), SEEING, every=1)
        self._use_if_whole(disk)

    def _use_if_whole(self, disk):
        if self._is_whole(disk):
            self._prove(disk)

    def _prove(self, disk):
        node = self.stays
        disk.forget_others(node)
        if disk.runs_on is None:
            if node.name not in disk.attached:
                requests.until('the attach of %s' % disk.volume,
                               lambda: disk.try_attach(node))
            disk.verify(node)
            disk.start(node)
        disk.check_running()
        disk.stop()
        disk.verify(node)

    def _nothing_is_left(self):
        lab = self.environment.lab
        wrong = ['the move of %s is left: %s' % each
                 for each in observe.move_records(lab)]
        # What is lost is nowhere; the bystander there is the only one left.
        rows = [row for row in checks._rows(lab) if row['status'] != 'error'
                and not row['migration'].startswith('target:')]
        wrong += checks.node_problems(self.stays, rows)
        wrong += ['%s names it' % row['id'] for row in rows
                  if row['host'] == self.gone.name]
        done = self.stays.operator('doctor')
        if done.returncode or self.gone.name in done.stdout:
            wrong.append('doctor: ' + done.stdout[-600:])
        if wrong:
            raise process.LabError('; '.join(wrong))

    def _check(self):
        self._replace()
        super()._check()

    def _replace(self):
        """Another machine takes the name of the node that is gone."""
        self.environment.replace(self.gone)
        self.gone = None

    def clean(self):
        """Delete what is left, whatever happened.

        :raises LabError: if the lab is not as it was
        """
        if self.gone and not self.gone.is_on:
            self.environment.forget(self.gone, self.stays)
            self._replace()
        self.environment.heal()
        in_parallel([operation.disk.remove for operation in self.operations])
        for operation in self.operations:
            self.environment.forget_steps(operation.disk)
        checks.clean(self.environment)
