# SPDX-License-Identifier: Apache-2.0
"""A volume follows its instance, under the running guest.

The source is the volume's home. It is still being copied there when the guest
starts on the destination, which passes the volume through.
"""

from lab.core import observe
from lab.core import process
from lab.scenarios.repeated import moves
from lab.scenarios.repeated import operation
from lab.scenarios import requests


class DeferredMove(operation.Repeated):
    """It follows when nothing but the guest's attachment is left."""

    name = 'deferred move'
    like = moves.LiveMove.name
    begins = 'destination'
    full = False
    keeps_source = False

    def __init__(self, *args):
        super().__init__(*args)
        self._held = None

    def prepare(self):
        """It is copied to the source; the guest uses it where it was."""
        disk, lab = self.disk, self.environment.lab
        self.environment.hold_copy(disk)
        self._attach(self.source)
        disk.start(self.source)
        disk.stop()
        disk.detach(self.source)
        self._attach(self.destination)
        self._begin_writing(self.destination)
        if not (disk.is_moving() and self._is_remote()):
            raise process.LabError('the copy has ended before')
        # As long as the instance may have it elsewhere it does not follow.
        self._held = disk.instance.reserve(disk.volume)
        self.environment.let_copy(disk)
        observe.wait_moved(lab, disk.volume, operation.MOVING)
        if disk.home() != self.source.name or not self._is_remote():
            raise process.LabError('it has followed too early')

    def _is_remote(self):
        table = self.destination.run(
            'dmsetup table localclone-' + self.disk.volume).stdout
        return table.split()[2:3] == ['linear'] and (
            table.split()[3].startswith('8:'))

    def run(self):
        self.disk.forget(self._held)

    def _has_moved(self):
        return self.disk.home() == self.destination.name and (
            not self.disk.is_moving())

    def is_over(self):
        return self._has_moved()

    def settle(self, lost_power):
        self.join()
        disk, node = self.disk, self.destination
        requests.until('the detach of %s' % disk.volume,
                       lambda: disk.forget(self._held))
        if disk.runs_on is None:
            self._run_again(node)
        disk.check_running()
        process.wait_for('%s to follow' % disk.volume, self._has_moved,
                         operation.MOVING, every=1)
        self._at_goal()
        if observe.sql(self.environment.lab,
                       "SELECT id FROM volume_attachment WHERE deleted = 0 "
                       "AND volume_id = '%s' AND connection_info LIKE "
                       "'%%auth_password%%'" % disk.volume):
            raise process.LabError('the attachment of %s still has a secret'
                                   % disk.volume)
        self._prove(node)
