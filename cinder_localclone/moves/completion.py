# SPDX-License-Identifier: Apache-2.0
"""The end of a copy: cut over to the LV; the source may go."""

from taskflow.patterns import linear_flow

from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import state
from cinder_localclone.moves import flow


class MarkHydrated(flow.Step):
    """Everything is local: flushed, and said so in the record."""

    default_provides = 'completing'

    def execute(self, move: state.Move) -> state.Move:
        if move.phase is state.Phase.COMPLETING:
            return move
        self._node.handles.flush_handle(move.volume_id)
        return self._node.records.advance(move, state.Event.HYDRATED)


class CutOver(flow.Step):
    """The handle maps to the LV again; the clone is used by nothing."""

    def execute(self, completing: state.Move) -> None:
        self._node.handles.ensure_handle_on_lv(
            completing.volume_id, completing.destination_lv,
            completing.volume_bytes)
        self._node.lvm.flush_lv(completing.destination_lv)


class RemoveClone(flow.Step):
    """Clone, session and metadata go; then the source may."""

    def execute(self, completing: state.Move) -> None:
        self._node.clones.remove_clone(completing.shadow_id)
        self._node.sessions.detach(completing)
        self._node.lvm.remove_lv(names.metadata_lv(completing.shadow_id))
        self._node.records.advance(completing, state.Event.DRAINED)


def complete(node: Node, move: state.Move) -> None:
    """At the destination: finish a hydrated move."""
    flow.run(linear_flow.Flow('complete').add(
        MarkHydrated(node), CutOver(node), RemoveClone(node)), move=move)
