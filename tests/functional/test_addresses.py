# SPDX-License-Identifier: Apache-2.0
"""Nodes whose storage addresses are of IPv6."""

import re

from lab.core import observe
from tests.functional import base

#: Addresses of node1 and node2 on their storage network.
SHORT = 'fd00:db8::11', 'fd00:db8::12'
LONG = 'FD00:0DB8:0000:0000:0000:0000:0000:0011'


class IPv6Test(base.LabTest):

    def setUp(self):
        super().setUp()
        for node, address in zip((self.n1, self.n2), SHORT):
            change = 'ip -6 address %s ' + address + '/64 dev vec0'
            node.run(change % 'add' + ' nodad')
            self.addCleanup(node.run, change % 'del')

    def use(self, *addresses):
        """Restart the nodes' services with these addresses, as written."""
        given = dict(zip((self.n1, self.n2), addresses))
        self.addCleanup(self.restart_all, *given)
        for node, address in given.items():
            conf = node.directory / 'localclone.conf'
            text = conf.read_text()
            self.addCleanup(conf.write_text, text)
            conf.write_text(re.sub(
                '(?m)^(target_ip_address) = .*', r'\1 = ' + address, text))
        self.restart_all(*given)

    def sources(self, node):
        """The addresses to which a node is logged in."""
        return {line.split()[2].rpartition(':')[0] for line in node.run(
            'iscsiadm -m session').stdout.splitlines()}

    def move(self):
        """Move a volume to node2; its id, and its checksum."""
        self.use(LONG, '[%s]' % SHORT[1])
        volume, attached, expected = self.moving_volume()
        self.assertEqual({'[%s]' % SHORT[0]}, self.sources(self.n2))
        self.assert_moved(volume, attached, expected)
        attached.detach()
        return volume, expected

    def test_moves(self):
        self.move()

    def test_moves_there_and_back_at_length(self):
        """In the three forms: long, in brackets, short."""
        volume, expected = self.move()
        attached = self.instance.attach(volume, self.n1)
        observe.wait_moved(self.lab, volume)
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()
        self.use(SHORT[0])
        attached = self.instance.attach(volume, self.n2)
        self.assert_moved(volume, attached, expected)
        attached.detach()
