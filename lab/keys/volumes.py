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
    """Volumes that Nova encrypts, with QEMU: LUKS1, a key of their owner's.

    :param owner: whose volumes they are, as :meth:`lab.lab.Lab.cinder` has
        them
    """

    name = 'by Nova'
    type_name = 'encrypted-by-nova'
    encryption = {}
    specs = None
    #: Bytes of the header, all of which the volume itself has to have.
    header_bytes = 2 * MIB
    longer_by = 0
    top = 'localclone-guard-'
    #: Whether a node that boots has to open them, before any server starts.
    unlocks_at_boot = False

    def __init__(self, lab, owner):
        self.lab = lab
        #: The only user who may read what opens its volumes.
        self.reader = owner
        self.secrets = secrets.Secrets(lab, owner)

    def bytes_of(self, gib):
        """What a guest gets of a volume."""
        return gib * GIB - self.header_bytes + self.longer_by

    def lv_bytes(self, gib):
        """What a volume takes of a volume group."""
        return gib * GIB + self.longer_by

    def path(self, volume):
        """What Nova is given."""
        return '/dev/localclone/' + volume

    def references(self, volume):
        """Of the secrets in the key manager whose keys open a volume."""
        return ['/secrets/' + instances.row(self.lab, volume)[
            'encryption_key_id']]

    def key(self, volume):
        """What opens a volume: the hexadecimal digits of its secret."""
        reference, = self.references(volume)
        status, payload = self.secrets.read(reference)
        if status != 200:
            raise LookupError('%s: HTTP %d' % (reference, status))
        return payload.hex().encode()


class ByDriver(ByNova):
    """Volumes that the driver encrypts: LUKS2, a key of the service's."""

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
        """What Nova is given."""
        return '/dev/mapper/localclone-crypt-' + volume

    def references(self, volume):
        """Of the secrets in the key manager whose keys open a volume."""
        return self.secrets.named('localclone volume ' + volume)


def backing(lab, volume):
    """The name of the LV of a volume at its home."""
    # Each move gives it another.
    return 'volume-' + (instances.row(lab, volume)[
        'os-vol-mig-status-attr:name_id'] or volume)


def backing_path(lab, volume):
    """The path of that LV, which has the body whatever stands above it."""
    return _GROUP + backing(lab, volume)


def lv_bytes(lab, node, volume):
    """How long that LV is."""
    return int(node.run(
        'lvs --noheadings --units b --nosuffix -o lv_size '
        'cinder-volumes/' + backing(lab, volume)).stdout)


def has_mark(node, path, mark):
    """Whether some bytes are to be read anywhere on a device.

    :raises LabError: if not all of it could be read
    """
    # What ends a line is NUL: a volume may have GiB without any newline, and
    # grep has a line in memory.
    found = node.run(
        'dd if=%s iflag=direct bs=1M status=none | LC_ALL=C grep -azFc %s; '
        'ends=(${PIPESTATUS[@]}); ((ends[0] == 0 && ends[1] <= 1))' % (
            path, mark.decode()), timeout=200).stdout
    return int(found) > 0


def header(node, path, mib):
    """The checksum of the first MiBs of a path, as the disk has them."""
    return instances.checksum(node, path, mib)


def header_json(node, path):
    """What a LUKS2 header says, as cryptsetup prints it."""
    def read():  # somebody may be writing both copies, one after the other
        done = node.run('cryptsetup luksDump --disable-locks '
                        '--dump-json-metadata ' + path, check=False)
        return not done.returncode and json.loads(done.stdout)
    return process.wait_for('the header of ' + path, read, 10)


def segments(node, path):
    """What a LUKS2 header says of the parts of the data, in their order."""
    return [each for _number, each in sorted(
        header_json(node, path)['segments'].items(),
        key=lambda pair: int(pair[0]))]


def ciphers(node, path):
    """What they are encrypted with: more than one while that is changed."""
    return [each['encryption'] for each in segments(node, path)]


def has_device(node, name):
    """Whether a node has a device-mapper device of that name."""
    return not node.run('dmsetup info ' + name, check=False).returncode


def opens(node, path, key):
    """Whether a key opens what has a header there; nothing is written."""
    return not node.run(
        ['cryptsetup', 'open', '--test-passphrase', '--disable-locks',
         '--key-file', '-', path], stdin=key, check=False).returncode


def key_manager(lab, on):
    """Stop the key manager, or have it answer again."""
    lab.processes.signal('barbican', signal.SIGCONT)
    if on and lab.processes.pid('barbican') is None:
        lab.control.restart('barbican')
    elif not on:
        lab.processes.stop('barbican')
