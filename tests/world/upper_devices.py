# SPDX-License-Identifier: Apache-2.0
"""What Nova does above handles and guards of the simulated world.

The first region of a volume that Nova encrypts begins with its header; here
it is nothing else.
"""

from cinder_localclone.core import names

#: What the first region has of a volume that Nova encrypts; what it would
#: have if anybody but the driver, at its creation, formatted it.
HEADER, FORMATTED = 'luks header', 'formatted by another'
#: How long it says it is.
SECTORS = 4096


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
