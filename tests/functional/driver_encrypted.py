# SPDX-License-Identifier: Apache-2.0
"""The base of tests of volumes encrypted by the driver, without Nova."""

import json

from lab.core import capture
from lab.core import instance as instances
from lab.core import observe
from lab.keys import secrets
from lab.keys import types
from lab.keys import volumes
from tests.functional import base

GIB = volumes.GIB
#: The bytes by which an LV is longer than its volume.
HEADER = volumes.ByDriver.longer_by
#: A text written to volumes again and again, which nothing else has.
MARK = b'what-only-its-guest-may-read'
#: MiB of the mark.
MARKED = 32
#: MiB of a volume with data, the mark included.
FILLED = 128
TYPE = volumes.ByDriver.type_name


class DriverTest(base.LabTest):
    """A lab with Barbican, and a volume type which the driver encrypts."""

    lab_name = base.KEYS
    options = base.WITH_KEYS
    parts = {'keys': True}

    def setUp(self):
        super().setUp()
        self.addCleanup(self.key_manager, True)
        if TYPE not in self.lab.cinder().get('/types').text:
            types.make(self.lab, TYPE, None, volumes.ByDriver.specs)
        self.secrets = secrets.Secrets(self.lab, 'cinder')

    def key_manager(self, on):
        """Start or stop the key manager."""
        volumes.key_manager(self.lab, on)

    def encrypted(self, size=1, node='node1', **source):
        """Create a volume which the driver encrypts; return its id.

        :param node: the name of its home, unless it has a source
        :param source: ``snapshot_id`` or ``source_volid``
        """
        return instances.create_volume(
            self.demo, size, None if source else TYPE, 120,
            None if source else node, **source)

    def secret_names(self, volume):
        return self.secrets.named('localclone volume ' + volume)

    # -- a volume on the nodes

    def backing(self, volume):
        """Return the name of a volume's LV at its home."""
        return volumes.backing(self.lab, volume)

    def lv_bytes(self, node, volume):
        return volumes.lv_bytes(self.lab, node, volume)

    def header(self, node, volume):
        """Return the checksum of a volume's header."""
        return volumes.header(
            node, '/dev/mapper/localclone-' + volume, HEADER // volumes.MIB)

    def lv_tags(self, node, volume):
        return node.run('lvs --noheadings -o lv_tags cinder-volumes/'
                        + self.backing(volume)).stdout.strip().split(',')

    def encryption(self, node, what, *words, code=0):
        """Run an operator's command; return its output.

        :param what: the words after "encryption"
        """
        done = node.operator('encryption', *what.split(), *words, '--format',
                             'json', timeout=300)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return json.loads(done.stdout) if done.stdout else done.stderr

    def shown(self, node, volume):
        """Return the encryption of a volume, by the names of its values."""
        return {row['Field']: row['Value']
                for row in self.encryption(node, 'show', volume)}

    def lose_header(self, node, volume, kib=16384):
        """Overwrite a header, or its beginning, with zeros."""
        node.run('dd if=/dev/zero of=/dev/mapper/localclone-%s bs=1K count=%d '
                 'oflag=direct conv=notrunc status=none' % (volume, kib))

    def is_open(self, node, volume):
        """Return whether a volume has a crypt device on a node."""
        return volumes.has_device(node, volumes.ByDriver.top + volume)

    def has_mark(self, node, path):
        """Return whether a device has the mark."""
        return volumes.has_mark(node, path, MARK)

    def assert_ciphertext(self, *nodes):
        """Check that no LV of the nodes has the mark."""
        for node in nodes:
            for lv in observe.volume_lvs(node):
                self.assertFalse(self.has_mark(
                    node, '/dev/cinder-volumes/' + lv), (node.name, lv))

    # -- the guest

    def mark(self, attached):
        """Write the mark; return its checksum."""
        attached.node.run(
            'yes %s | dd of=%s bs=1M count=%d iflag=fullblock oflag=direct '
            'conv=notrunc,fsync status=none' % (
                MARK.decode(), attached.path, MARKED), timeout=120)
        return self.checksum(attached, MARKED)

    def fill_behind(self, attached):
        """Write random data behind the mark; return the checksum of both."""
        attached.node.run(
            'dd if=/dev/urandom of=%s bs=1M seek=%d count=%d oflag=direct '
            'conv=notrunc,fsync status=none' % (
                attached.path, MARKED, FILLED - MARKED), timeout=120)
        return self.checksum(attached, FILLED)

    def bytes_of(self, attached):
        return 512 * int(attached.node.run(
            'blockdev --getsz ' + attached.path).stdout)

    def tap(self, node):
        return capture.Capture(node, MARK)

    def wait_moved(self, volume):
        """Wait until a volume has no move, or its move has ended."""
        observe.wait_no_move(self.lab, volume)

    def write_end(self, attached, gib):
        attached.node.run(
            'dd if=/dev/urandom of=%s bs=1M seek=%d count=4 oflag=direct '
            'conv=notrunc,fsync status=none' % (
                attached.path, 1024 * gib - 4))
        return self.end(attached, gib)

    def end(self, attached, gib):
        return instances.checksum(attached.node, attached.path, 4,
                                  first_mib=1024 * gib - 4)
