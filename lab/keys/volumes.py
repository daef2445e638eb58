# SPDX-License-Identifier: Apache-2.0
"""Encrypted volumes, as they are seen on the nodes."""

import json
import signal

from lab.core import instance as instances
from lab.core import process
from lab.keys import secrets

MIB = 1 << 20
GIB = 1 << 30
#: At the beginning of each block that a guest writes; see guest.c.
GUESTS_MARK = (0x6c6f63616c636c6f).to_bytes(8, 'little')
#: Where the LVs of volumes are.
_GROUP = '/dev/cinder-volumes/'


class ByNova:
    """Volumes encrypted by Nova, with QEMU: LUKS1, a key of their owner's.

    :param owner: of the volumes, a user of :meth:`lab.lab.Lab.cinder`
    """

    name = 'by Nova'
    type_name = 'encrypted-by-nova'
    encryption = {}
    specs = None
    #: Bytes of the header, which is a part of the volume.
    header_bytes = 2 * MIB
    longer_by = 0
    top = 'localclone-guard-'
    #: Whether a node opens the volumes at its boot, before any server starts.
    unlocks_at_boot = False

    def __init__(self, lab, owner):
        self.lab = lab
        #: The only user who may read the keys of the volumes.
        self.reader = owner
        self.secrets = secrets.Secrets(lab, owner)

    def bytes_of(self, gib):
        """Return the bytes of a volume which its guest gets."""
        return gib * GIB - self.header_bytes + self.longer_by

    def lv_bytes(self, gib):
        """Return the bytes of a volume's LV."""
        return gib * GIB + self.longer_by

    def path(self, volume):
        """Return the path which Nova gets."""
        return '/dev/localclone/' + volume

    def references(self, volume):
        """Return the references of a volume's secrets in the key manager."""
        return ['/secrets/' + instances.row(self.lab, volume)[
            'encryption_key_id']]

    def key(self, volume):
        """Return the key of a volume: the hexadecimal digits of its secret."""
        reference, = self.references(volume)
        status, payload = self.secrets.read(reference)
        if status != 200:
            raise LookupError('%s: HTTP %d' % (reference, status))
        return payload.hex().encode()


class ByDriver(ByNova):
    """Volumes encrypted by the driver: LUKS2, a key of the service's."""

    name = 'by the driver'
    type_name = 'encrypted-by-driver'
    encryption = None
    specs = {'localclone:encryption': 'luks2'}
    header_bytes = longer_by = 16 * MIB
    top = 'localclone-crypt-'
    unlocks_at_boot = True

    def __init__(self, lab, owner):
        super().__init__(lab, 'cinder')

    def path(self, volume):
        """Return the path which Nova gets."""
        return '/dev/mapper/localclone-crypt-' + volume

    def references(self, volume):
        """Return the references of a volume's secrets in the key manager."""
        return self.secrets.named('localclone volume ' + volume)


def backing(lab, volume):
    """Return the name of a volume's LV, which each move changes."""
    return 'volume-' + (instances.row(lab, volume)[
        'os-vol-mig-status-attr:name_id'] or volume)


def backing_path(lab, volume):
    """Return the path of a volume's LV."""
    return _GROUP + backing(lab, volume)


def lv_bytes(lab, node, volume):
    """Return the bytes of a volume's LV."""
    return int(node.run(
        'lvs --noheadings --units b --nosuffix -o lv_size '
        'cinder-volumes/' + backing(lab, volume)).stdout)


def has_mark(node, path, mark):
    """Return whether a device has a mark anywhere.

    :raises LabError: if not all of the device could be read
    """
    # Lines end with NUL: grep keeps a line in memory, and a volume may have
    # GiB without a newline.
    found = node.run(
        'dd if=%s iflag=direct bs=1M status=none | LC_ALL=C grep -azFc %s; '
        'ends=(${PIPESTATUS[@]}); ((ends[0] == 0 && ends[1] <= 1))' % (
            path, mark.decode()), timeout=200).stdout
    return int(found) > 0


def header(node, path, mib):
    """Return the checksum of the first MiBs of a path, read directly."""
    return instances.checksum(node, path, mib)


def header_json(node, path):
    """Return a LUKS2 header as cryptsetup prints it."""
    def read():  # the service may be writing its two copies
        done = node.run('cryptsetup luksDump --disable-locks '
                        '--dump-json-metadata ' + path, check=False)
        return not done.returncode and json.loads(done.stdout)
    return process.wait_for('the header of ' + path, read, 10)


def segments(node, path):
    """Return the segments of a LUKS2 header, in their order."""
    return [each for _number, each in sorted(
        header_json(node, path)['segments'].items(),
        key=lambda pair: int(pair[0]))]


def ciphers(node, path):
    """Return the ciphers of the segments: several during a re-encryption."""
    return [each['encryption'] for each in segments(node, path)]


def has_device(node, name):
    """Return whether a node has a device-mapper device of a name."""
    return not node.run('dmsetup info ' + name, check=False).returncode


def opens(node, path, key):
    """Return whether a key opens an encrypted device; write nothing."""
    return not node.run(
        ['cryptsetup', 'open', '--test-passphrase', '--disable-locks',
         '--key-file', '-', path], stdin=key, check=False).returncode


def key_manager(lab, on):
    """Start or stop the key manager."""
    lab.processes.signal('barbican', signal.SIGCONT)
    if on and lab.processes.pid('barbican') is None:
        lab.control.restart('barbican')
    elif not on:
        lab.processes.stop('barbican')
