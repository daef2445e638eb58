# SPDX-License-Identifier: Apache-2.0
"""The devices a node must have for a volume, by its row and move. Pure.

The quick check and the operator's commands compare a node with this rule, and
so does each schedule of the simulated world. :mod:`.volumes.reconcile`
establishes it on a node, step by step. A boot has no database:
:mod:`.boot_plan` has the rule a second time, by the tags of LVs.

Exports have a rule of their own, :func:`.attachments.to_export`, and so have
upper devices, ``is_wanted`` in :mod:`.encryption.devices`.
"""

import dataclasses
import enum

from cinder_localclone.core.formats import survey
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase


class On(enum.Enum):
    """The backing device of a volume's handle."""

    #: A complete LV of this node.
    LV = 'LV'
    #: The dm-clone device of a move to this node.
    CLONE = 'clone'
    #: The disk of a remote attachment.
    REMOTE = 'remote'
    #: No handle.
    NOTHING = 'nothing'


@dataclasses.dataclass(frozen=True)
class Expected:
    """The devices a node must have for a volume after a reconcile.

    :param handle: the allowed backing devices of the handle
    :param lv: name of the required LV; '' if none is required
    :param clone: the move of the dm-clone device allowed below the handle
    :param hydrates: whether the clone may copy
    :param exported: the move of the source device to export
    """

    handle: frozenset[On]
    lv: str = ''
    clone: state.Move | None = None
    hydrates: bool = False
    exported: state.Move | None = None

    @property
    def is_on_clone(self) -> bool:
        """Whether the handle must be on a dm-clone device."""
        return self.handle == {On.CLONE}


#: A node apart from the volume's home and the ends of its move.
ELSEWHERE = Expected(frozenset((On.NOTHING, On.REMOTE)))


def expected(host: str, home: str | None, lv: str | None,
             move: state.Move | None) -> Expected:
    """Return the devices a node must have for a volume.

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
    """Return the devices the home of a volume at rest must have.

    :param lv: name of its LV
    """
    return Expected(frozenset((On.LV,)), lv)


def _at_destination(move: state.Move) -> Expected:
    if not move.committed:  # its clone may exist already
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
    """Return the backing device of a volume's handle on a node.

    :param present: the survey of the node
    :param lv: name of the LV for :attr:`On.LV`
    :param clone: the move of the dm-clone device for :attr:`On.CLONE`
    :param size: minimum bytes of a handle on an LV
    :returns: None for any other device, and for a short or suspended handle
    """
    if present.handle(volume_id) is None:
        return On.NOTHING
    if present.is_handle_on_lv(volume_id, lv, size):
        return On.LV
    if clone and present.is_handle_on_clone(clone):
        return On.CLONE
    return On.REMOTE if present.is_handle_foreign(volume_id) else None


def is_as(wanted: Expected, present: survey.Survey, volume_id: str,
          size: int = 0) -> bool:
    """Return whether a node has the devices it must have for a volume.

    :param wanted: the result of :func:`expected`
    :param present: the survey of the node
    :param size: minimum bytes of a handle on an LV
    """
    return maps_to(present, volume_id, wanted.lv, wanted.clone, size
                   ) in wanted.handle
