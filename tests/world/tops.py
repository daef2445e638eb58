# SPDX-License-Identifier: Apache-2.0
"""Guards and paths in the simulated world, and what Nova does above them.

The first region of a volume that Nova encrypts begins with its header; here
it is nothing else.
"""

import typing

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from tests.world import disks

#: What the first region has of a volume that Nova encrypts; what it would
#: have if anybody but the driver, at its creation, formatted it.
HEADER, FORMATTED = 'luks header', 'formatted by another'
#: How long it says it is.
SECTORS = 4096


class SimTops:
    """:class:`cinder_localclone.storage.handles.TopDevices`."""

    node: typing.Any
    _insist: typing.Any
    _remove: typing.Any
    devices: typing.Any

    def can_guard(self):
        return True

    def header_sectors(self, volume_id):
        try:
            found = self.node.read(volume_id, 0)
        except IOError as exc:
            raise exceptions.CommandFailed(command='luksDump', code=4,
                                           stderr=exc)
        if not found.startswith(HEADER):
            raise encryption_exceptions.HeaderDamaged(path='p', reason=found)
        return SECTORS

    def note_guarded(self, lv, header):
        self.node.disk.tags[lv] |= {*names.tags(guarded=header)}

    def forget_guarded(self, lv, header):
        self.node.disk.tags[lv] -= {*names.tags(guarded=header)}

    def ensure_guard(self, volume_id, header):
        handle = self.node.devices.get(names.handle(volume_id))
        self._insist(handle is not None and header == SECTORS,
                     'a guard above nothing')
        self.node.insist_unclaimed(volume_id)
        after = disks.sized({'below': names.handle(volume_id)},
                            disks.size(handle))
        before = self.node.devices.get(names.guard(volume_id))
        self.node.devices[names.guard(volume_id)] = after
        return before != after

    @staticmethod
    def guard_table(device, end):
        return str(dm_tables.Guard(device['below'], SECTORS, end))

    def read_guarded(self, volume_id, header):
        try:
            self.node.read(volume_id, 0)
        except IOError as exc:
            raise exceptions.CommandFailed(command='dd', code=1, stderr=exc)

    def links(self):
        return {volume_id: device if device in self.node.devices else ''
                for volume_id, device in self.node.links.items()}

    def ensure_link(self, volume_id, device):
        self._insist(device in self.node.devices, 'a path to nothing')
        before = self.node.links.get(volume_id)
        self.node.links[volume_id] = device
        return before != device

    def remove_link(self, volume_id):
        return self.node.links.pop(volume_id, None) is not None

    def ensure_served(self, volume_id):
        handle = self.node.devices.get(names.handle(volume_id))
        if handle is None:
            raise exceptions.MissingData(what='h', volume=volume_id, host='x')
        before = self.node.devices.get(names.served(volume_id))
        self.node.devices[names.served(volume_id)] = after = disks.sized(
            {'below': names.handle(volume_id)}, disks.size(handle))
        return before != after

    def remove_served(self, volume_id):
        name = names.served(volume_id)
        return (name in self.node.devices and not self.devices()[name].opened
                and self._remove(name))

    def close_top(self, volume_id):
        closed = False
        for name in (names.guard(volume_id), names.crypt(volume_id),
                     names.integrity(volume_id)):
            if name in self.node.devices and self.devices()[name].opened:
                raise exceptions.CommandFailed(command='dmsetup', code=1,
                                               stderr='busy')
            closed = self._remove(name) or closed
        return self.remove_link(volume_id) or closed


class Nova:
    """What Nova, QEMU and os-brick do with the path that they are given.

    :param node: the hypervisor
    """

    def __init__(self, node, volume_id):
        self.node = node
        self.volume_id = volume_id

    def _device(self):
        device = self.node.links.get(self.volume_id)
        if device not in self.node.devices:
            raise IOError('no such path')
        return device

    def connect(self, unreadable=False):
        """Nova looks for a header; it formats what it can't read.

        :param unreadable: something fails just then
        """
        self._device()
        try:
            if unreadable:
                raise IOError('just now')
            is_luks = self.read(0).startswith(HEADER)
        except IOError:
            is_luks = False
        if not is_luks:
            self.write(0, FORMATTED)

    def read(self, region):
        self._device()
        return self.node.read(self.volume_id, region)

    def write(self, region, value):
        if region == 0 and self._device() == names.guard(self.volume_id):
            return  # with success, nowhere
        self.node.write(self.volume_id, region, value)
