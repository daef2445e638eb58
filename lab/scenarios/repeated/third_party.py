# SPDX-License-Identifier: Apache-2.0
"""Operations with a host that does not run the backend; refused types.

That host is the destination's node under another name: it is served over
iSCSI, by the volume's home.
"""

import time

from lab.core import observe
from lab.core import process
from lab.scenarios import disk as disks
from lab.scenarios.disk import ELSEWHERE
from lab.scenarios.repeated import operation
from lab.scenarios import requests

_LOG_OUT = '''
for iqn in $(iscsiadm -m node | grep -o "iqn.*volume-%s.*"); do
    iscsiadm -m node -T $iqn --logout
    iscsiadm -m node -T $iqn -o delete
done
'''


class Exported(operation.Repeated):
    """Attached, written and detached by a host without the backend."""

    name = 'exported elsewhere'

    def run(self):
        self._attach()
        time.sleep(5)
        self.disk.stop()
        self._let_go()

    def _attach(self):
        disk, node = self.disk, self.destination
        remote = disk.attach_elsewhere(node)
        disk.attached[ELSEWHERE] = remote
        disk.start(node, remote.path)

    def _log_out(self):
        self.destination.run(_LOG_OUT % self.disk.volume, check=False,
                             timeout=90)

    def _let_go(self):
        self._log_out()
        self.disk.attached.pop(ELSEWHERE, None)
        self.disk.forget_failed()

    def settle(self, lost_power):
        self.join()
        self._start_over()

    def _start_over(self):
        """Whatever came of it: used at its home, with all that is written."""
        disk = self.disk
        disk.stop()
        disk.attached.clear()
        requests.until('the detach of %s' % disk.volume, self._let_go)

        def at_home():
            node = self.environment.nodes[disk.home()]
            disk.try_attach(node)
            return node
        node = requests.until('the attach of %s' % disk.volume, at_home)
        if disk.is_moving():
            observe.wait_moved(self.environment.lab, disk.volume,
                               operation.MOVING)
        disk.start(node)
        self._prove(node)


class LiveMoveOfExported(Exported):
    """The guest goes from there to a node that has the backend."""

    name = 'live-move of an exported volume'

    def run(self):
        self._attach()
        self.disk.attach(self.destination, live=True)
        self.disk.stop()
        self.disk.start(self.destination)
        self._log_out()
        self.disk.detach(ELSEWHERE, 'in-use')

    def settle(self, lost_power):
        self.join()
        if self.error or self.disk.runs_on is None:
            self._start_over()
        else:
            self._wait_moved()
            self._prove(self.destination)


class Encrypted(Exported):
    """A volume of an encrypted type is never made."""

    name = 'encrypted type'

    def prepare(self):
        self.volumes = []
        self.kind = _secret_type(self.environment.lab)

    def run(self):
        self.volumes.append(self.disk.cinder.post('/volumes', json={
            'volume': {'size': 1, 'volume_type': self.kind}},
        ).raise_for_status().json()['volume']['id'])

    def settle(self, lost_power):
        self.join()
        for volume in self.volumes:
            process.wait_for('volume %s to be refused' % volume,
                             lambda v=volume: self._refused(v), 150, every=2)
            disks.Disk(self.environment.lab, volume).remove()
        self._start_over()

    def _refused(self, volume):
        status = self.disk.cinder.get('/volumes/' + volume).json()[
            'volume']['status']
        if status == 'available':
            raise process.LabError('encrypted volume %s was made' % volume)
        return status == 'error'


def _secret_type(lab):
    """An encrypted type, made once."""
    admin = lab.cinder()
    for kind in admin.get('/types').json()['volume_types']:
        if kind['name'] == 'secret':
            return kind['id']
    kind = admin.post('/types', json={'volume_type': {
        'name': 'secret', 'extra_specs': {
            'volume_backend_name': 'localclone'}}}).raise_for_status().json()[
                'volume_type']['id']
    admin.post('/types/%s/encryption' % kind, json={'encryption': {
        'provider': 'luks', 'cipher': 'aes-xts-plain64', 'key_size': 256,
        'control_location': 'front-end'}}).raise_for_status()
    return kind


OPERATIONS = {each.name: each for each in (
    Exported, LiveMoveOfExported, Encrypted)}
