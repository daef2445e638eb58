# SPDX-License-Identifier: Apache-2.0
"""Which node a connector belongs to; errors that cross the bus."""

from unittest import mock

import ddt
import oslo_messaging as messaging
import testtools

from cinder_localclone import directory
from cinder_localclone import exceptions
from cinder_localclone import peer

SERVICES = {'n1@l': True, 'n2@l': True, 'n3.example.org@l': True,
            'n4.rack1@l': True,
            'down@l': False, 'other@lvm': True}


@ddt.ddt
class DirectoryTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        records, self.client = mock.Mock(), mock.Mock()
        records.services.return_value = dict(SERVICES)
        self.directory = directory.Directory('n1@l', records, self.client)
        self.directory.know('n1@l', ['192.0.2.1'])
        self.client.describe.side_effect = self.describe

    @staticmethod
    def describe(context, host):
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
        self.assertEqual(host, self.directory.find(None, connector))

    def test_node_that_is_down_is_not_taken_for_a_stranger(self):
        self.assertRaises(exceptions.PeerUnreachable, self.directory.find,
                          None, {'host': 'down'})

    def test_addresses_are_asked_for_once(self):
        for _again in range(2):
            self.directory.find(None, {'ip': '192.0.2.2'})
        asked = [c.args[1] for c in self.client.describe.call_args_list]
        self.assertEqual(1, asked.count('n2@l'))


@ddt.ddt
class ClientTest(testtools.TestCase):

    def call(self, error):
        client = peer.Client(40)
        client._client = mock.Mock()
        client._client.prepare().call.side_effect = error
        client.prepare(None, 'n2@l', 's', 'n')

    def test_silence_is_named(self):
        error = self.assertRaises(exceptions.PeerUnreachable, self.call,
                                  messaging.MessagingTimeout())
        self.assertIn('n2@l', str(error))

    def test_own_errors_arrive_as_themselves(self):
        error = self.assertRaises(
            exceptions.NoFreeSpace, self.call,
            messaging.RemoteError('NoFreeSpace', 'n2 has no room'))
        self.assertEqual('n2 has no room', str(error))

    def test_other_errors_keep_their_text(self):
        error = self.assertRaises(
            exceptions.LocalCloneError, self.call,
            messaging.RemoteError('KeyError', 'x is missing'))
        self.assertIn('x is missing', str(error))

    def test_a_bus_that_is_away_is_named(self):
        error = self.assertRaises(exceptions.PeerUnreachable, self.call,
                                  messaging.MessageDeliveryFailure())
        self.assertIn('n2@l', str(error))

    @ddt.data(('describe', '1.0'), ('converge_soon', '1.0'),
              ('inspect', '1.1'), ('abort', '1.1'))
    @ddt.unpack
    def test_asks_no_more_than_the_method_needs(self, method, version):
        # A peer of an older version refuses a newer one.
        client = peer.Client(40)
        client._client = mock.Mock()
        more = () if method == 'describe' else ('v',)
        getattr(client, method)(None, 'n2@l', *more)
        asked = client._client.prepare.call_args.kwargs
        self.assertEqual(version, asked['version'])
        # Else it would be sent until the bus is back.
        self.assertIs(peer.RESENDS, asked['retry'])

    def test_lost_message_is_no_error(self):
        client = peer.Client(40)
        client._client = mock.Mock()
        client._client.prepare().cast.side_effect = (
            messaging.MessageDeliveryFailure())
        client.converge_soon(None, 'n2@l', 'v')
