# SPDX-License-Identifier: Apache-2.0
"""What a simulated node does, one effect after the other."""

import typing


class Stopped(Exception):
    """A node has stopped dead.

    From here on nothing it does has effect, so that no handler of the
    driver, and no revert, can undo anything.
    """

    def __init__(self, node):
        super().__init__(node.host)
        self.node = node


class _Acting:
    """Lets a node stop before and after each effect of an object."""

    _READS = ('survey', 'lvs', 'devices', 'free_space', 'clone_status',
              'volume', 'volumes_of', 'get_move', 'move_of', 'moves_of',
              'remains_of',
              'source_location', 'serving', 'offered', 'completed_reads',
              'remote', 'portal', 'withdraw_volume', 'withdraw_unnamed',
              'is_move', 'is_last', 'services', 'problem')

    def __init__(self, node, inner):
        self._node = node
        self._inner = inner

    def __getattr__(self, name):
        call = getattr(self._inner, name)
        self._node.check_alive()
        if name in self._READS or not callable(call):
            return call

        def acting(*args, **kwargs):
            self._node.world.tick(self._node, 'before ' + name)
            result = call(*args, **kwargs)
            self._node.world.tick(self._node, 'after ' + name)
            return result
        return acting


Room = typing.TypeVar('Room')


def acting(node: typing.Any, room: Room) -> Room:
    """The same room, to the types; at each effect its node may stop."""
    return typing.cast(Room, _Acting(node, room))
