# SPDX-License-Identifier: Apache-2.0
"""Which node a connector belongs to."""

import threading
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import node
from cinder_localclone.service import directory
from tests.helpers import specs

SERVICES = {'n1@l': True, 'n2@l': True, 'n3.example.org@l': True,
            'n4.rack1@l': True,
            'down@l': False, 'other@lvm': True}


@ddt.ddt
class DirectoryTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        services = specs.port('services')
        self.client = specs.port('peers')
        services.alive_by_host.return_value = dict(SERVICES)
        self.directory = directory.Directory('n1@l', services, self.client)
        self.directory.know('n1@l', ['192.0.2.1'])
        self.client.describe.side_effect = self.describe

    @staticmethod
    def describe(host):
        if host == 'n2@l':
            return {'addresses': ['192.0.2.2']}
        raise exceptions.PeerUnreachable(host=host, method='m', seconds=1)

    @ddt.data(({'host': 'n1'}, 'n1@l'), ({'host': 'n2'}, 'n2@l'),
              ({'host': 'n2.example.org'}, 'n2@l'),
              ({'host': 'n3'}, 'n3.example.org@l'),
              ({'host': 'n4.rack1'}, 'n4.rack1@l'),
              ({'host': 'n4.rack2'}, None), ({'host': 'n4'}, 'n4.rack1@l'),
              ({'host': 'other'}, None), ({'host': 'nowhere'}, None),
              ({'host': 'alias', 'ip': '192.0.2.2'}, 'n2@l'),
              ({'host': 'alias', 'ip': '192.0.2.1'}, 'n1@l'),
              ({'host': 'alias', 'ip': '192.0.2.9'}, None),
              ({'ip': '192.0.2.2'}, 'n2@l'))
    @ddt.unpack
    def test_find(self, connector, host):
        self.assertEqual(host, self.directory.find(connector))

    def test_known_by_address_after_a_restart(self):
        self.assertTrue(self.directory.is_at(
            {'host': 'alias', 'ip': '192.0.2.2'}, 'n2@l'))
        self.assertFalse(self.directory.is_at(
            {'host': 'alias', 'ip': '192.0.2.2'}, 'n1@l'))
        asked = self.client.describe.call_count
        self.directory.is_at({'host': 'alias', 'ip': '192.0.2.2'}, 'n2@l')
        self.assertEqual(asked, self.client.describe.call_count)

    def test_node_that_a_connector_names(self):
        for host in SERVICES:
            self.assertIs(host == 'n2@l',
                          self.directory.is_at({'host': 'n2'}, host))

    def test_address_that_two_nodes_claim(self):
        """Whoever was heard last has it; but nobody takes this node's."""
        address, own = ({'host': 'alias', 'ip': '192.0.2.%d' % number}
                        for number in (2, 1))
        self.assertTrue(self.directory.is_at(address, 'n2@l'))
        self.directory.know('n4.rack1@l', ['192.0.2.1', '192.0.2.2'])
        self.assertFalse(self.directory.is_at(address, 'n2@l'))
        self.assertTrue(self.directory.is_at(address, 'n4.rack1@l'))
        for _again in range(2):
            self.assertTrue(self.directory.is_at(own, 'n1@l'))
            self.directory.know('n1@l', ['192.0.2.1'])

    def test_two_answers_at_one_time(self):
        """Neither is lost, also where services have threads of the system."""
        reading, go_on = threading.Event(), threading.Event()

        class Slow(dict):
            def items(self):
                found = list(super().items())
                reading.set()
                go_on.wait(10)
                return found
        self.directory._addresses = Slow(self.directory._addresses)
        first, second = (threading.Thread(
            target=self.directory.know, args=(host, [address]), daemon=True)
            for host, address in (('n2@l', '192.0.2.2'),
                                  ('n4.rack1@l', '192.0.2.4')))
        first.start()
        reading.wait(10)
        self.directory._addresses = dict(self.directory._addresses)
        second.start()
        # Not join(): with a time limit, eventlet's raises on Python 3.13.
        threading.Event().wait(0.2)
        go_on.set()
        for each in (first, second):
            each.join(10)
        self.assertEqual({'n1@l', 'n2@l', 'n4.rack1@l'},
                         set(self.directory._addresses))

    def test_whoever_looks_while_an_answer_is_noted(self):
        """A node has its address all the time."""
        connector, seen = {'host': 'alias', 'ip': '192.0.2.2'}, []

        class Watched(directory.Directory):
            def __setattr__(self, name, value):
                super().__setattr__(name, value)
                if name == '_addresses' and 'n2@l' in value:
                    seen.append(self.is_at(connector, 'n2@l'))
        self.assertTrue(self.directory.is_at(connector, 'n2@l'))
        self.directory.__class__ = Watched
        self.directory.know('n2@l', ['192.0.2.2', '192.0.2.5'])
        self.assertEqual([True], seen)

    def test_no_address_is_believed_for_ever(self):
        """It was n2's, and is n3's now."""
        moved = {'host': 'alias', 'ip': '192.0.2.2'}
        self.assertEqual('n2@l', self.directory.find(moved))
        self.client.describe.side_effect = lambda host: {
            'addresses': ['192.0.2.2'] if host.startswith('n3') else []}
        later = directory.time.monotonic() + directory.BELIEVED + 1
        with mock.patch.object(directory.time, 'monotonic', lambda: later):
            self.assertEqual('n3.example.org@l',
                             self.directory.find(moved))
            self.assertFalse(self.directory.is_at(moved, 'n2@l'))
        self.directory.know('n2@l', ['192.0.2.2', '192.0.2.1'])
        self.assertFalse(self.directory.is_at(moved, 'n3.example.org@l'))
        self.assertTrue(self.directory.is_at({'ip': '192.0.2.1'}, 'n1@l'))

    def test_addresses_in_any_form(self):
        self.client.describe.side_effect = lambda host: {
            'addresses': ['FD00:0db8::0011'] if host == 'n2@l' else []}
        self.assertTrue(self.directory.is_at(
            {'host': 'alias', 'ip': 'fd00:db8::11'}, 'n2@l'))

    def test_node_that_is_down_is_not_taken_for_a_stranger(self):
        self.assertRaises(exceptions.PeerUnreachable, self.directory.find,
                          {'host': 'down'})

    def test_hosts_are_asked_for_once_in_a_look(self):
        asked = []

        def is_at(connector, host):
            asked.append((connector, host))
            return connector.get('host') == 'a' or bool(connector.get('ip'))
        remembered = node.cached_is_at(is_at)
        connectors = [{'host': 'a', 'initiator': 'x'}, {'host': 'b'},
                      {'host': 'b', 'ip': '192.0.2.1'}]
        for _each in range(2):
            self.assertEqual([True, False, True], [
                remembered(each, 'a@l') for each in connectors])
        self.assertEqual(3, len(asked))
        self.assertTrue(remembered(connectors[0], 'b@l'))
        self.assertEqual(4, len(asked))

    def test_silent_nodes_are_waited_for_at_one_time(self):
        """The lock of a volume may be held meanwhile."""
        others = {host for host, alive in SERVICES.items()
                  if alive and host.endswith('@l') and host != 'n1@l'}
        self.assertLess(1, len(others))
        together, asked = threading.Barrier(len(others)), []

        def describe(host):
            asked.append(host)
            together.wait(5)
            raise exceptions.PeerUnreachable(host=host, method='m', seconds=8)
        self.client.describe.side_effect = describe
        for _again in range(2):
            self.assertFalse(self.directory.is_at(
                {'host': 'alias', 'ip': '192.0.2.2'}, 'n2@l'))
        self.assertEqual(sorted(others), sorted(asked))

    def test_node_that_is_known_by_address_goes_down(self):
        """What it has attached is its own all the same."""
        address = {'host': 'alias', 'ip': '192.0.2.2'}
        self.assertTrue(self.directory.is_at(address, 'n2@l'))
        self.directory._services.alive_by_host.return_value = {
            **SERVICES, 'n2@l': False}
        self.assertTrue(self.directory.is_at(address, 'n2@l'))
        self.assertIsNone(self.directory.find(address))

    def test_silent_node_is_asked_again_soon(self):
        """What it said last counts until then; others are left alone."""
        address = {'host': 'alias', 'ip': '192.0.2.2'}
        self.assertEqual('n2@l', self.directory.find(address))
        now = directory.time.monotonic() + directory.BELIEVED + 1
        for host, addresses in (('n3.example.org@l', ['192.0.2.3']),
                                ('n4.rack1@l', ['192.0.2.4'])):
            self.directory.know(host, addresses)

        def describe(host):
            if host == 'n2@l':
                raise exceptions.PeerUnreachable(
                    host=host, method='m', seconds=1)
            return {'addresses': ['192.0.2.%s' % host[1]]}
        self.client.describe.side_effect = describe
        for after, asked in (
                (0, ['n2@l', 'n3.example.org@l', 'n4.rack1@l']),
                (directory.PAUSE - 1, []), (directory.PAUSE + 1, ['n2@l']),
                (directory.BELIEVED - 1, ['n2@l'])):
            self.client.describe.reset_mock()
            with mock.patch.object(directory.time, 'monotonic',
                                   lambda after=after: now + after):
                self.assertEqual('n2@l', self.directory.find(address))
            self.assertEqual(asked, sorted(
                call.args[0] for call in self.client.describe.mock_calls))

    def test_addresses_are_asked_for_once(self):
        for _again in range(2):
            self.directory.find({'ip': '192.0.2.2'})
        asked = [c.args[0] for c in self.client.describe.call_args_list]
        self.assertEqual(1, asked.count('n2@l'))
