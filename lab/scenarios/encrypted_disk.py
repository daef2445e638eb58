# SPDX-License-Identifier: Apache-2.0
"""A volume that the driver encrypts: it can be read where it is attached."""

import contextlib

from lab.core import process
from lab.keys import types
from lab.keys import volumes
from lab.scenarios import disk as disks

#: What is not written reads as zeros, as of any other volume here.
TYPE = volumes.ByDriver.type_name
SPECS = dict(volumes.ByDriver.specs, **{'localclone:zeroed': 'true'})


def make_type(lab):
    """The volume type of all of them."""
    types.make(lab, TYPE, None, SPECS)


def create(environment, node, encrypted):
    """Volumes on a node.

    :param encrypted: of each, whether it is
    """
    made = {each: environment.create(
        node, encrypted.count(each),
        volume_type=TYPE if each else 'localclone') for each in set(encrypted)}
    return [(EncryptedDisk if each else disks.Disk)(
        environment.lab, made[each].pop()) for each in encrypted]


class EncryptedDisk(disks.Disk):
    """See :class:`lab.scenarios.disk.Disk`."""

    def __init__(self, lab, volume, user='demo', size=1):
        super().__init__(lab, volume, user, size)
        self.way = volumes.ByDriver(lab, user)
        self.path = self._writes_to = self.way.path(volume)

    def fill(self, node, first=0, count=None, full=True):
        """As of any other; if nobody has it attached, it is for that."""
        self.key = self.key or self.way.key(self.volume)
        with self._attached(node):
            super().fill(node, first, count, full)

    def verify(self, node, timeout=200):
        """Likewise."""
        with self._attached(node):
            return super().verify(node, timeout)

    @contextlib.contextmanager
    def _attached(self, node):
        if node.name in self.attached:
            yield
            return
        self.attach(node)
        try:
            yield
        finally:
            self.detach(node)

    def check_no_secret(self):
        """:raises LabError: if the key manager has one of it"""
        left = self.way.references(self.volume)
        if left:
            raise process.LabError('secrets are left: %s' % left)

    # -- the header

    def lv_path(self):
        """Of its LV, at its home."""
        return volumes.backing_path(self.lab, self.volume)

    def tokens_with_role(self, node, key):
        """Whether a key opens it, where it is."""
        return volumes.opens(node, self.lv_path(), key)

    def header(self, node):
        """The checksum of its header, as the disk has it."""
        return volumes.header(node, self.lv_path(),
                              self.way.header_bytes // volumes.MIB)

    def ciphers(self, node):
        """What its data is encrypted with: two while that is being changed.
        """
        return volumes.ciphers(node, self.lv_path())
