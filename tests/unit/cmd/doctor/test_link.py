# SPDX-License-Identifier: Apache-2.0
"""The doctor's notes about encryption of iSCSI between nodes."""

import re
import time
from unittest import mock

import ddt
import fixtures
from oslo_config import cfg
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor import doctor
from cinder_localclone.cmd.doctor import link
from cinder_localclone.cmd.doctor import packages
from cinder_localclone.core import exceptions
from cinder_localclone.storage import prerequisites
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import network

A, B, C = 'a@l', 'b@l', 'c@l'
OURS, THEIRS = '192.0.2.11', '192.0.2.12'

#: Of strongSwan 5.9.8 on node1, as iproute2 6.1 prints it; the first two while
#: a session is open.
STRONGSWAN = '''\
src 192.0.2.11/32 dst 192.0.2.12/32 proto tcp dport 3260 
\tdir out priority 366911 ptype main 
\ttmpl src 0.0.0.0 dst 0.0.0.0
\t\tproto esp spi 0xc9524297 reqid 2 mode transport
src 192.0.2.12/32 dst 192.0.2.11/32 proto tcp sport 3260 
\tdir in priority 366911 ptype main 
\ttmpl src 0.0.0.0 dst 0.0.0.0
\t\tproto esp reqid 2 mode transport
src 192.0.2.11/32 dst 192.0.2.12/32 proto tcp sport 3260 
\tdir out priority 366912 ptype main 
\ttmpl src 0.0.0.0 dst 0.0.0.0
\t\tproto esp reqid 1 mode transport
src 192.0.2.12/32 dst 192.0.2.11/32 proto tcp dport 3260 
\tdir in priority 366912 ptype main 
\ttmpl src 0.0.0.0 dst 0.0.0.0
\t\tproto esp reqid 1 mode transport
src 0.0.0.0/0 dst 0.0.0.0/0 
\tsocket in priority 0 ptype main 
src ::/0 dst ::/0 
\tsocket out priority 0 ptype main 
'''  # noqa: W291
#: Of its plugin bypass-lan: these come first.
BYPASS = '''\
src 192.0.2.0/24 dst 192.0.2.0/24 
\tdir in priority 175423 ptype main 
src 192.0.2.0/24 dst 192.0.2.0/24 
\tdir out priority 175423 ptype main 
'''  # noqa: W291
#: Of the role.
BLOCK = ''.join(
    'src %s dst %s proto tcp %s 3260 \n'
    '\tdir %s action block priority 2000000000 ptype main \n' % (
        source, destination, port, way)
    for way, source, destination in (
        ('out', '0.0.0.0/0', THEIRS + '/32'),
        ('in', THEIRS + '/32', '0.0.0.0/0'))
    for port in ('sport', 'dport'))


@ddt.ddt
class LinkTest(testtools.TestCase):

    def found(self, text, own=OURS, source=OURS, peer=THEIRS, port=3260):
        return link.ipsec(B, link.flows(own, source, peer, port),
                          link.parse(text), packages.DEB)

    @ddt.data(STRONGSWAN, STRONGSWAN + BLOCK, BLOCK + STRONGSWAN)
    def test_encrypted(self, text):
        self.assertEqual(
            checks.Finding('link to b@l', checks.OK, 'IPsec encrypts iSCSI'),
            self.found(text))

    @ddt.data(
        '', BYPASS, BYPASS + STRONGSWAN,  # the lower number decides
        STRONGSWAN.replace('proto esp', 'proto ah'),
        STRONGSWAN.replace('mode transport', 'mode transport\n\t\tlevel use'),
        STRONGSWAN.replace('ptype main', 'ptype main mark 0x1/0xffffffff'),
        STRONGSWAN.replace('ptype main', 'ptype sub'),
        STRONGSWAN.replace('.12/32', '.13/32'),
        STRONGSWAN.replace('proto tcp', 'proto udp'))
    def test_clear_text(self, text):
        found = self.found(text)
        self.assertEqual((checks.OK, 'iSCSI is clear text'),
                         (found.verdict, found.details))
        self.assertIn('apt install charon-systemd '
                      'libstrongswan-standard-plugins strongswan-swanctl;',
                      found.fix)

    def test_each_flow_counts(self):
        blocks = re.split('(?m)^(?=src )', STRONGSWAN)[1:]
        self.assertEqual(6, len(blocks))
        for number in range(4):
            text = ''.join(blocks[:number] + blocks[number + 1:])
            self.assertEqual('iSCSI is clear text in one direction',
                             self.found(text).details, text)

    def test_direction(self):
        self.assertIn('in one direction', self.found(
            STRONGSWAN.replace('dir in', 'dir fwd')).details)

    def test_other_port(self):
        self.assertEqual('iSCSI is clear text',
                         self.found(STRONGSWAN, port=3261).details)

    def test_other_source_address(self):
        """This node connects to its peer from another address."""
        self.assertIn('in one direction', self.found(
            STRONGSWAN, source='192.0.2.99').details)

    def test_all_between_the_nodes(self):
        for prefix, own, peer in (('/32', OURS, THEIRS),
                                  ('/128', 'fd00::11', 'fd00::12')):
            text = ''.join(
                'src %s%s dst %s%s \n\tdir %s priority 1\n'
                '\ttmpl src :: dst ::\n\t\tproto esp reqid 1 mode tunnel\n' % (
                    source, prefix, destination, prefix, way)
                for way, source, destination in (
                    ('out', own, peer), ('in', peer, own)))
            self.assertEqual('IPsec encrypts iSCSI', self.found(
                text, own, own, peer).details)
            self.assertIn('clear', self.found(text, own, own, '::1').details)

    def test_blocked(self):
        found = self.found(BLOCK)
        self.assertEqual(checks.WARN, found.verdict)
        self.assertIn('block iSCSI', found.details)
        self.assertIn('strongswan', found.fix)

    def test_command(self):
        self.useFixture(fixtures.MockPatchObject(
            privsep.default, 'client_mode', False))
        with mock.patch.object(network.process, 'run', autospec=True,
                               return_value=STRONGSWAN) as run:
            self.assertEqual(STRONGSWAN, prerequisites.ipsec_policies(7))
        run.assert_called_once_with('ip', 'xfrm', 'policy', timeout=7)

    def test_route(self):
        answer = ('[{"dst":"192.0.2.12","dev":"vec0","prefsrc":"192.0.2.11",'
                  '"flags":[],"uid":0,"cache":[]}]')
        with mock.patch.object(prerequisites.process, 'run', autospec=True,
                               return_value=answer) as run:
            self.assertEqual(('vec0', OURS), prerequisites.route(THEIRS, 7))
        run.assert_called_once_with('ip', '-j', 'route', 'get', THEIRS,
                                    timeout=7)

    def test_route_without_a_source(self):
        for answer, expected in (
                ('[{"dst":"192.0.2.12","dev":"vec0","flags":[],"cache":[]}]',
                 ('vec0', '')),
                ('[{"dst":"192.0.2.12","prefsrc":"192.0.2.11"}]', None),
                ('[]', None)):
            with mock.patch.object(prerequisites.process, 'run',
                                   autospec=True, return_value=answer):
                if expected:
                    self.assertEqual(expected, prerequisites.route(THEIRS, 7))
                else:
                    error = self.assertRaises(
                        ValueError, prerequisites.route, THEIRS, 7)
                    self.assertIn('%s has no network device' % THEIRS,
                                  str(error))

    def test_wireguard_device(self):
        for text, expected in (('DEVTYPE=wireguard\nINTERFACE=wg0\n', True),
                               ('INTERFACE=vec0\nIFINDEX=2\n', False)):
            with mock.patch('builtins.open', mock.mock_open(read_data=text)):
                self.assertEqual(expected, prerequisites.is_wireguard('wg0'))
        self.assertFalse(prerequisites.is_wireguard('there/is/none'))


class DoctorTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.policies = self.patch('ipsec_policies', return_value=STRONGSWAN)
        self.route = self.patch('route', return_value=('vec0', OURS))
        self.wireguard = self.patch('is_wireguard', return_value=False)
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[])
        self.backend = mock.MagicMock(host=A)
        self.backend.name = 'l'
        self.backend.settings.conf = conf
        self.backend.conf.localclone_command_timeout = 7
        self.answers = {A: {'addresses': [OURS, '198.51.100.1']},
                        B: {'addresses': [THEIRS]}}

    def patch(self, name, **more):
        return self.useFixture(fixtures.MockPatchObject(
            prerequisites, name, autospec=True, **more)).mock

    def links(self):
        found = doctor._links(self.backend, self.answers)
        for each in found:
            self.assertEqual(checks.OK, each.verdict)
        return {each.check: each.details for each in found}

    def test_peers(self):
        self.answers[C] = {'addresses': ['192.0.2.13']}
        self.assertEqual({'link to b@l': 'IPsec encrypts iSCSI',
                          'link to c@l': 'iSCSI is clear text'}, self.links())
        self.policies.assert_called_once_with(7)

    def test_wireguard(self):
        self.wireguard.return_value = True
        self.policies.return_value = ''
        self.assertEqual({'link to b@l': 'WireGuard (vec0) encrypts iSCSI'},
                         self.links())
        self.wireguard.assert_called_once_with('vec0')

    def test_route_without_a_source(self):
        self.route.return_value = 'vec0', ''
        self.assertEqual(
            {'link to b@l': 'it is not known whether iSCSI is encrypted: the '
             'route to %s through vec0 has no source address' % THEIRS},
            self.links())
        self.wireguard.return_value = True
        self.assertIn('WireGuard', self.links()['link to b@l'])

    def test_port_of_the_section(self):
        for group in ('backend_defaults', 'l'):
            self.backend.settings.conf.register_opt(
                cfg.PortOpt('target_port'), group)
            self.backend.settings.conf.set_override('target_port', 3261, group)
            self.assertEqual({'link to b@l': 'iSCSI is clear text'},
                             self.links(), group)
            self.backend.settings.conf.clear_override('target_port', group)

    def test_not_known(self):
        """It is no failure that the encryption can't be seen."""
        for error in (FileNotFoundError(2, 'no', 'ip'), ValueError('odd'),
                      exceptions.CommandFailed(command='ip', code=2,
                                               stderr='no xfrm')):
            self.policies.side_effect = error
            self.assertIn('not known', self.links()['link to b@l'])
            self.policies.side_effect = None
            self.route.side_effect = error
            self.assertIn('not known', self.links()['link to b@l'])
            self.route.side_effect = None
        self.policies.return_value = 'src all dst all\n\tdir out\n'
        self.assertIn('not known', self.links()['link to b@l'])

    def test_no_address(self):
        self.answers[B] = {'addresses': []}
        self.assertEqual({}, self.links())
        self.answers = {B: {'addresses': [THEIRS]}}
        self.assertEqual({}, self.links())
        self.policies.assert_not_called()

    def test_part_of_doctor(self):
        self.useFixture(fixtures.MockPatchObject(
            doctor, '_unknown_lvs', return_value=[]))
        db = self.backend.db
        db.secrets.secrets_in_use.return_value = set()
        db.inventory.is_encryption_available.return_value = False
        self.backend.nodes.return_value = {A: True, B: True}
        self.backend.ask.side_effect = lambda host, method: (
            (dict(self.answers[host], problems=[], block=512, initiator='',
                  time=time.time()), '') if method == 'describe'
            else ([], ''))
        self.assertIn('link to b@l', {
            each.check for each in doctor.shared_checks(self.backend)})
