# SPDX-License-Identifier: Apache-2.0
"""iSCSI between nodes in ESP: strongSwan, as the Ansible role sets it up."""

import time

from lab.core import capture
from lab.core import link
from lab.core import observe
from lab.core import process
from tests.functional import base

#: Fills all blocks of the volume; a packet has it many times.
PATTERN = b'localclone: a line that a listener must not read.\n'
MIB = 32
#: Prints what becomes of a connection to the portal of a node without exports.
CONNECT = '''python3 -S -c "
import socket
try:
    socket.create_connection(('%s', 3260), 3)
except OSError as exc:
    print(exc)"'''
REFUSED, BLOCKED = 'Connection refused', 'Operation not permitted'


class LinkTest(base.LabTest):

    def setUp(self):
        super().setUp()
        self.addCleanup(link.unprotect, self.lab)

    def volume_with_pattern(self):
        """A volume at home on node1, and its checksum."""
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        self.n1.run('yes "%s" | dd of=%s bs=1M count=%d iflag=fullblock '
                    'oflag=direct status=none' % (
                        PATTERN.decode().strip(), attached.path, MIB))
        expected = self.checksum(attached, MIB)
        attached.detach()
        return volume, expected

    def connecting(self):
        """What becomes of a connection from node2 to node1's portal."""
        return self.n2.run(CONNECT % self.n1.address).stdout

    def stop(self):
        """Stop strongSwan."""
        process.in_parallel([lambda node=node: link.end(node)
                             for node in (self.n1, self.n2)])

    def wait_encrypted(self, look, count):
        process.wait_for('packets of ESP', lambda: look.encrypted > count, 20,
                         every=0.05)

    def counted(self, before, name):
        """How often node1's kernel has counted something since then."""
        return link.counters(self.n1)[name] - before[name]

    def test_a_listener_reads_nothing_and_a_change_is_noticed(self):
        volume, expected = self.volume_with_pattern()

        # In clear text the capture finds it.
        with capture.Link(self.n2, PATTERN) as look:
            attached = self.instance.attach(volume, self.n2)
            observe.wait_moved(self.lab, volume)
        self.assertGreater(look.found, 100)
        self.assertGreater(look.clear, MIB << 20)
        self.assertEqual(0, look.encrypted)
        self.assertEqual(expected, self.checksum(attached, MIB))
        attached.detach()
        self.assertIn('clear text', self.n1.operator('doctor').stdout)

        # Without a key nothing passes, if that is asked for.
        self.assertIn(REFUSED, self.connecting())
        link.protect(self.lab)
        link.require(self.lab)
        self.assertIn(REFUSED, self.connecting())
        self.stop()
        self.assertIn(BLOCKED, self.connecting())
        link.protect(self.lab)
        self.assertIn(REFUSED, self.connecting())
        self.assertNotIn('clear text', self.n1.operator('doctor').stdout)

        before = link.counters(self.n1)
        with capture.Link(self.n1, PATTERN) as look:
            attached = self.instance.attach(volume, self.n1)
            self.n2.netem('corrupt', '1%')  # a bit of such a packet
            self.wait_encrypted(look, MIB // 4 << 20)
            self.n2.netem()
            look.start_anew()
            process.wait_for('whole packets of ESP',
                             lambda: look.kept == look.KEPT, 20, every=0.01)
            on_the_way = self.counted(before, 'XfrmInStateProtoError')
            again = look.send_again()
            changed = look.send_again(change=True)
            observe.wait_moved(self.lab, volume)
        self.assertEqual((0, 0), (look.found, look.clear))
        self.assertGreater(look.encrypted, MIB << 20)
        self.assertGreater(on_the_way, 0)
        self.assertGreater(again, 0)
        self.assertGreaterEqual(
            self.counted(before, 'XfrmInStateSeqError'), again)
        self.assertGreaterEqual(
            self.counted(before, 'XfrmInStateProtoError'),
            on_the_way + changed)
        self.assertEqual(expected, self.checksum(attached, MIB))
        attached.detach()

    def test_protected_during_a_copy_at_length(self):
        """Its connection goes on in ESP; blocked for a while, it waits."""
        volume, attached, expected = self.moving_volume()
        link.require(self.lab)
        link.protect(self.lab)
        with capture.Link(self.n2, PATTERN) as look:
            self.wait_encrypted(look, 1 << 20)
        self.assertEqual(0, look.clear)
        self.stop()
        with capture.Link(self.n2, PATTERN) as look:
            time.sleep(3)
        self.assertEqual((0, 0), (look.clear, look.encrypted))
        link.protect(self.lab)

        # After a power cut its peer does not wait for its own time limit.
        link.lose(self.n1)
        link.start(self.n1)
        link.require(self.lab)
        with capture.Link(self.n2, PATTERN) as look:
            self.wait_encrypted(look, 1 << 20)
        self.assertEqual(0, look.clear)
        self.assert_moved(volume, attached, expected)
