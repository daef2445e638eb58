# SPDX-License-Identifier: Apache-2.0
"""Nova's scheduler puts servers where their volumes are."""

import sys
import time
import uuid

from lab import command as commands
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.nova import server as servers

#: Seconds for a node's report to be with Cinder's scheduler: it is made each
#: minute.
REPORTED = 150
COPIED = 300
POOL = 'cinder-volumes/cinder-volumes-pool'


class Placement:
    """What is shown, in its order.

    :param report: where steps and checks go
    """

    def __init__(self, lab, report):
        self.lab = lab
        self.report = report
        self.nova, self.cinder = lab.client('nova'), lab.cinder()
        self.placement = lab.client('placement')

    def run(self):
        """All of it."""
        first, second = (self.at_home(node) for node in ('node1', 'node2'))
        self.new_volumes(first, second)
        self.unshelved(second)
        self.remove(second)
        self.remove(first)
        self.full_home()
        self.nowhere()

    # -- what is shown

    def at_home(self, node):
        """A server boots where its volume is; nobody says where."""
        began = time.monotonic()
        volume = self.volume(node)
        server = servers.Server.boot(self.lab, volume, None)
        self.report.step('boot from a volume that is on ' + node,
                         time.monotonic() - began)
        self.report.check('the server is where its volume is',
                          server.node.name == node == self.home(volume)
                          and not observe.move_records(self.lab),
                          server.node.name)
        return server, volume

    def new_volumes(self, *booted):
        """Cinder's InstanceLocalityFilter: a new volume beside a server."""
        for server, _volume in booted:
            node = server.node.name
            volume = self.cinder.post('/volumes', json={
                'volume': {'size': 1, 'volume_type': 'localclone'},
                'OS-SCH-HNT:scheduler_hints': {
                    'local_to_instance': server.id}},
            ).raise_for_status().json()['volume']['id']
            instances.wait_status(self.cinder, volume, 'available')
            self.report.check('a volume that is local to its server on '
                              + node, self.home(volume) == node)
            self.cinder.delete('/volumes/' + volume).raise_for_status()

    def unshelved(self, booted):
        """A server that was nowhere comes back to its volume."""
        server, volume = booted
        node = self.home(volume)
        server.shelve()
        self.report.step('unshelved, wherever', server.unshelve())
        self.report.check('the server is where its volume is',
                          server.node.name == node == self.home(volume))

    def full_home(self):
        """A home that has no room for the server: both go elsewhere."""
        volume = self.volume('node1')
        taken = self.fill('node1')
        try:
            began = time.monotonic()
            server = servers.Server.boot(self.lab, volume, None)
            self.report.step('boot from a volume on node1, which is full',
                             time.monotonic() - began)
            self.report.check('the server is on node2',
                              server.node.name == 'node2')
            observe.wait_moved(self.lab, volume, COPIED)
            console = server.wait_verified(volume)
            self.report.check(
                'its volume has followed, every block is right',
                self.home(volume) == 'node2' and console.clean,
                console.bad[:3] or '')
            self.remove((server, volume))
        finally:
            self.empty(taken)

    def nowhere(self):
        """No room for the server at home; elsewhere none for its volume."""
        volume = self.volume('node1')
        taken = self.fill('node1')
        node2 = self.lab.nodes['node2']
        try:
            node2.run('lvchange -Zn ' + POOL)
            self.wait_destination('node2', False)
            server = servers.Server.create(self.lab, volume, None)
            server.wait_status('ERROR', servers.BOOT_TIMEOUT)
            fault = server.show()['fault']['message']
            self.report.check(
                'where no volume can move to, its server is not sent',
                'No valid host' in fault, fault)
            self.report.check('the volume is as it was',
                              self.home(volume) == 'node1'
                              and not observe.move_records(self.lab))
            self.remove((server, volume))
        finally:
            node2.run('lvchange -Zy ' + POOL)
            self.empty(taken)
        self.wait_destination('node2', True)

    # -- how

    def volume(self, node):
        """A volume with the guest on it, on a node."""
        return instances.create_volume(
            self.cinder, 1, node=node, timeout=120,
            image=servers.image(self.lab))

    def home(self, volume):
        return instances.home(self.lab, volume)

    def remove(self, booted):
        """Delete a server and its volume."""
        server, volume = booted
        server.delete()
        instances.wait_status(self.cinder, volume, 'available', 90)
        self.cinder.delete('/volumes/' + volume).raise_for_status()

    def wait_destination(self, node, wanted):
        """Wait until Cinder's scheduler knows whether volumes can move there.
        """
        process.wait_for(
            'the report of ' + node, lambda: any(
                pool['name'].startswith(node + '@')
                and pool['capabilities']['localclone_destination'] is wanted
                for pool in self.cinder.get(
                    '/scheduler-stats/get_pools?detail=true').json()[
                        'pools']), REPORTED, every=2)

    def fill(self, node):
        """Take all processors of a node; who has them, for Placement."""
        provider = self.placement.get(
            '/resource_providers?name=' + node).json()[
                'resource_providers'][0]['uuid']
        path = '/resource_providers/%s/' % provider
        cpus = self.placement.get(path + 'inventories').json()[
            'inventories']['VCPU']
        left = int((cpus['total'] - cpus['reserved'])
                   * cpus['allocation_ratio']) - self.placement.get(
                       path + 'usages').json()['usages'].get('VCPU', 0)
        taken = []
        while left > 0:
            amount = min(left, cpus['max_unit'])
            taken.append(str(uuid.uuid4()))
            self.placement.put('/allocations/' + taken[-1], json={
                'allocations': {provider: {'resources': {'VCPU': amount}}},
                'project_id': self.placement.project,
                'user_id': self.placement.project,
                'consumer_generation': None}).raise_for_status()
            left -= amount
        return taken

    def empty(self, taken):
        """Give back what :meth:`fill` has taken."""
        for consumer in taken:
            self.placement.delete(
                '/allocations/' + consumer).raise_for_status()


def main():
    """The command; its exit code."""
    command = commands.Command(
        'placement', 'lab.demos.placement', 'Servers go to their volumes',
        'Bring up two real nodes with Nova, whose scheduler has the '
        'driver\'s filter and weigher; boot servers without saying where.',
        lab_name='placement', nova=True, control_options={
            'scheduler_default_filters':
                'AvailabilityZoneFilter,CapacityFilter,CapabilitiesFilter,'
                'InstanceLocalityFilter'})
    return command.main(lambda lab, _options, report: Placement(
        lab, report).run())


if __name__ == '__main__':
    sys.exit(main())
