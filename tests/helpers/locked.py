# SPDX-License-Identifier: Apache-2.0
"""A simulated node that may look and act only while a volume is locked."""

import dataclasses

from tests.helpers import complaints
from tests import world as worlds


class _Room:
    """What is asked for anything only while the lock is held."""

    def __init__(self, inner, node, volume_id, free):
        self._inner = inner
        self._free = free
        self._node = node
        self._volume_id = volume_id

    def __getattr__(self, name):
        if name not in self._free and self._volume_id not in self._node.held:
            raise complaints.note(
                '%s without the lock of the volume' % name)
        return getattr(self._inner, name)


def node(simulated: worlds.SimNode, volume_id: str,
         free: tuple[str, ...] = ()):
    """The node whose storage, exports and rows want a volume's lock.

    :param free: what may be asked for without
    """
    return dataclasses.replace(simulated.node, **{
        room: _Room(getattr(simulated.node, room), simulated, volume_id, free)
        for room in ('lvm', 'handles', 'clones', 'exports', 'moves',
                     'volumes', 'services', 'queue')})
