# SPDX-License-Identifier: Apache-2.0
"""IPsec in the lab, and its configuration on the installation page."""

import pathlib
import socket
import struct

import jinja2
import testtools

from lab.core import capture
from lab.core import link

PAGES = pathlib.Path(__file__).parents[2] / 'doc/source/install'


def packet(protocol, data):
    """An Ethernet packet of node1 to node2."""
    return (b'\x02' * 12 + b'\x08\x00' + struct.pack(
        '!BBHHHBBH4s4s', 0x45, 0, 20 + len(data), 0, 0, 64, protocol, 0,
        socket.inet_aton('192.0.2.11'), socket.inet_aton('192.0.2.12')) + data)


class CaptureTest(testtools.TestCase):

    esp = packet(socket.IPPROTO_ESP, struct.pack('!II', 0xc9, 7) + bytes(40))

    def test_packets_of_esp(self):
        self.assertTrue(capture.is_esp(self.esp))
        for other in (packet(socket.IPPROTO_TCP, bytes(48)),
                      b'\x02' * 12 + b'\x86\xdd' + bytes(60)):
            self.assertFalse(capture.is_esp(other))

    def test_changed_packet(self):
        other = capture.changed(self.esp, 5000)
        self.assertEqual(len(self.esp), len(other))
        self.assertEqual((0xc9, 5007), struct.unpack_from('!II', other, 34))
        self.assertEqual(1, sum(a != b for a, b in zip(
            self.esp[42:], other[42:])))
        self.assertEqual(self.esp[:34], other[:34])


class PageTest(testtools.TestCase):

    def test_the_page_has_what_the_role_makes(self):
        for name in ('link.conf', 'link.policies', 'link.service'):
            made = jinja2.Environment(
                trim_blocks=True, undefined=jinja2.StrictUndefined,
            ).from_string((link.TEMPLATES / (name + '.j2')).read_text(
            )).render(
                localclone_link_name='node1', localclone_link_port=link.PORT,
                localclone_link_esp=link.AES,
                localclone_link_policies='/etc/cinder/'
                'localclone-link.policies', localclone_link_nodes={
                    'node1': {'address': '192.0.2.11'},
                    'node2': {'address': '192.0.2.12'}})
            self.assertEqual((PAGES / name).read_text().rstrip(),
                             made.rstrip())

    def test_the_lab_uses_the_ciphers_of_the_role(self):
        defaults = (link.TEMPLATES.parent / 'defaults/main.yml').read_text()
        self.assertIn('\nlocalclone_link_esp: %s\n' % link.AES, defaults)
        self.assertIn(link.CHACHA, defaults)
        page = (PAGES / 'link.rst').read_text()
        self.assertIn(link.CHACHA, page)
