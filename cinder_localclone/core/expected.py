# SPDX-License-Identifier: Apache-2.0
"""What a node must have of a volume, by its row and its move. Pure.

The quick check and the operator's commands compare a node with this rule, and
so does each schedule of the simulated world. :mod:`.volumes.reconcile` brings
a node to it, step by step. A boot has no database: :mod:`.boot_plan` states
the rule a second time, by the tags of LVs.

Exports have a rule of their own, :func:`.attachments.wanted`; so have upper
devices, ``is_wanted`` in :mod:`.encryption.devices`.
"""

import dataclasses
import enum

from cinder_localclone.core.formats import survey
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase


class On(enum.Enum):
    """What a volume's handle maps to."""

    #: An LV of this node, all of it.
    LV = 'LV'
    #: The dm-clone device of a move to this node.
    CLONE = 'clone'
    #: The disk of a remote attachment.
    REMOTE = 'remote'
    #: There is no handle.
    NOTHING = 'nothing'


@dataclasses.dataclass(frozen=True)
class Expected:
    """What a node must have of one volume once its service has done its part.

    :param handle: what the handle may map to
    :param lv: name of the LV that must be there; '' if there need not be one
    :param clone: the move of the dm-clone device that the handle may map to
    :param hydrates: whether that may copy
    :param exported: the move whose source device must be exported
    """

    handle: frozenset[On]
    lv: str = ''
    clone: state.Move | None = None
    hydrates: bool = False
    exported: state.Move | None = None

    @property
    def is_on_clone(self) -> bool:
        """Whether the volume is used through a dm-clone device."""
        return self.handle == {On.CLONE}


#: A node that is neither the volume's home nor an end of its move.
ELSEWHERE = Expected(frozenset((On.NOTHING, On.REMOTE)))


def expected(host: str, home: str | None, lv: str | None,
             move: state.Move | None) -> Expected:
    """Return what a node must have of a volume.

    :param host: service host of the node
    :param home: service host of the volume's home; None if it was deleted
    :param lv: name of the LV with the volume's data at its home
    :param move: the volume's move, if one is under way
    """
    if move and host == move.destination:
        return _at_destination(move)
    if move and host == move.source:
        return _at_source(move)
    return at_rest(lv or '') if home == host else ELSEWHERE


def at_rest(lv: str) -> Expected:
    """Return what the home of a volume must have of it, if all is there."""
    return Expected(frozenset((On.LV,)), lv)


def _at_destination(move: state.Move) -> Expected:
    if not move.committed:  # it may be prepared by now
        return Expected(frozenset((On.NOTHING, On.CLONE, On.REMOTE)),
                        clone=move)
    if move.phase in (Phase.STARTING, Phase.MIGRATING):
        return Expected(frozenset((On.CLONE,)), move.destination_lv, move,
                        move.phase is Phase.MIGRATING)
    return at_rest(move.destination_lv)


def _at_source(move: state.Move) -> Expected:
    handle = {On.LV} if move.keeps_handle else {On.NOTHING, On.REMOTE}
    # The instance uses the LV from here until its handle swaps.
    if move.is_deferred:
        handle.add(On.LV)
    return Expected(frozenset(handle), move.source_lv,
                    exported=move if move.committed else None)


def maps_to(present: survey.Survey, volume_id: str, lv: str,
            clone: state.Move | None = None, size: int = 0) -> On | None:
    """Return what the handle of a volume maps to on a node.

    :param lv: name of the LV that counts as :attr:`On.LV`
    :param clone: the move whose dm-clone device counts as :attr:`On.CLONE`
    :param size: bytes that a handle on an LV must have at least
    :returns: None if it is on anything else, is too short, or suspended
    """
    if present.handle(volume_id) is None:
        return On.NOTHING
    if present.handle_is_on_lv(volume_id, lv, size):
        return On.LV
    if clone and present.handle_is_on_clone(clone):
        return On.CLONE
    return On.REMOTE if present.is_handle_foreign(volume_id) else None


def is_as(wanted: Expected, present: survey.Survey, volume_id: str,
          size: int = 0) -> bool:
    """Return whether a node has the devices that it must have of a volume.

    :param size: bytes that a handle on an LV must have at least
    """
    return maps_to(present, volume_id, wanted.lv, wanted.clone, size
                   ) in wanted.handle
