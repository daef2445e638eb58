# SPDX-License-Identifier: Apache-2.0
"""The demo of placement: Nova's scheduler follows the volumes."""

import sys
import time
import uuid

from lab import command as commands
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.nova import server as servers

#: Seconds until Cinder's scheduler has a node's report, sent each minute.
REPORTED = 150
COPIED = 300
POOL = 'cinder-volumes/cinder-volumes-pool'


class Placement:
    """The steps of the demo, in their order.

    :param report: a :class:`lab.core.report.Report` of steps and checks
    """

    def __init__(self, lab, report):
        self.lab = lab
        self.report = report
        self.nova, self.cinder = lab.client('nova'), lab.cinder()
        self.placement = lab.client('placement')

    def run(self):
        """Run all steps."""
        first, second = (self.at_home(node) for node in ('node1', 'node2'))
        self.new_volumes(first, second)
        self.unshelved(second)
        self.remove(second)
        self.remove(first)
        self.full_home()
        self.nowhere()

    # -- steps

    def at_home(self, node):
        """Boot a server without a node: it must boot at its volume's home.
        """
        began = time.monotonic()
        volume = servers.boot_volume(self.lab, node=node)
        server = servers.Server.boot(self.lab, volume, None)
        self.report.step('boot from a volume that is on ' + node,
                         time.monotonic() - began)
        self.report.check('the server is where its volume is',
                          server.node.name == node == self.home(volume)
                          and not observe.move_records(self.lab),
                          server.node.name)
        return server

    def new_volumes(self, *booted):
        """Create a volume beside each server, by InstanceLocalityFilter."""
        for server in booted:
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

    def unshelved(self, server):
        """Unshelve a server: it must come back to the home of its volume."""
        volume, = server.volumes
        node = self.home(volume)
        server.shelve()
        self.report.step('unshelved, wherever', server.unshelve())
        self.report.check('the server is where its volume is',
                          server.node.name == node == self.home(volume))

    def full_home(self):
        """Boot a server whose volume's home is full: both go elsewhere."""
        volume = servers.boot_volume(self.lab, node='node1')
        taken = self.fill('node1')
        try:
            began = time.monotonic()
            server = servers.Server.boot(self.lab, volume, None)
            self.report.step('boot from a volume on node1, which is full',
                             time.monotonic() - began)
            self.report.check('the server is on node2',
                              server.node.name == 'node2')
            server.wait_moved(COPIED)
            console = server.wait_verified()
            self.report.check(
                'its volume has followed, every block is right',
                self.home(volume) == 'node2' and console.clean,
                console.bad[:3] or '')
            self.remove(server)
        finally:
            self.empty(taken)

    def nowhere(self):
        """Boot a server which neither node takes: Nova must find no host."""
        volume = servers.boot_volume(self.lab, node='node1')
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
            self.remove(server)
        finally:
            node2.run('lvchange -Zy ' + POOL)
            self.empty(taken)
        self.wait_destination('node2', True)

    # -- parts of steps

    def home(self, volume):
        """Return the name of the home of a volume."""
        return instances.home(self.lab, volume)

    def remove(self, server):
        """Delete a server and its volume."""
        server.delete()
        for volume in server.volumes:
            self.cinder.delete('/volumes/' + volume).raise_for_status()

    def wait_destination(self, node, wanted):
        """Wait until Cinder's scheduler has a node's report on moves to it.

        :param wanted: whether volumes can move to the node
        """
        process.wait_for(
            'the report of ' + node, lambda: any(
                pool['name'].startswith(node + '@')
                and pool['capabilities']['localclone_destination'] is wanted
                for pool in self.cinder.get(
                    '/scheduler-stats/get_pools?detail=true').json()[
                        'pools']), REPORTED, every=2)

    def fill(self, node):
        """Take all processors of a node; return the consumers' ids."""
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
        """Give the processors of :meth:`fill` back.

        :param taken: the consumers' ids
        """
        for consumer in taken:
            self.placement.delete(
                '/allocations/' + consumer).raise_for_status()


def main():
    """Run the command; return its exit code."""
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
