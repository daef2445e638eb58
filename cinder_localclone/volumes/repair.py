# SPDX-License-Identifier: Apache-2.0
"""Reconcile a volume at an operator's request, and keep a journal."""

from collections.abc import Callable
import dataclasses
from typing import Any
from typing import cast
from typing import Protocol
from typing import TypeVar

from cinder_localclone.core import exceptions
from cinder_localclone.core import inspection
from cinder_localclone.core.node import Node


#: Journal entries by effect, formatted with the arguments of the effect.
#: Effects without interest for an operator have no entry.
DESCRIPTIONS = {
    'create_lv': 'created LV {0}', 'remove_lv': 'removed LV {0}',
    'activate': 'activated LV {0}', 'extend_lv': 'extended LV {0}',
    'ensure_clone': 'built the clone of {0.volume_id}',
    'remove_clone': 'removed the clone of move {0}',
    'set_hydration': 'background copy of move {0} enabled: {1}',
    'ensure_handle_on_lv': 'handle of {0} now on LV {1}',
    'ensure_handle_on_clone': 'handle of {0.volume_id} now on its clone',
    'remove_handle': 'removed the handle of {0}',
    'export_source': 'exported the source of {0.volume_id}',
    'withdraw_source': 'withdrew the export of move {0}',
    'ensure_source': 'made the source device of {0.volume_id}',
    'remove_source': 'removed the source device of move {0}',
    'withdraw_volume': 'withdrew unused exports of {0}',
    'withdraw_unnamed': 'withdrew exports of {0} without an attachment',
    'withdraw_strays': 'withdrew exports of finished moves',
    'advance': 'move of {0.volume_id}: {1.value}',
    'roll_back': 'rolled the move of {0.volume_id} back to its source',
    'finish': 'move of {0.volume_id} has ended',
}

Interface = TypeVar('Interface')


class Reconciler(Protocol):
    """The part of :class:`.reconcile.Reconciler` for a repair."""

    def reconcile(self, volume_id: str) -> None:
        """Take all of this node's steps for a volume."""


class Recorder:
    """A proxy that records the successful effects of an object.

    An effect returns whether it has changed anything.
    """

    def __init__(self, inner: object, journal: list[str]) -> None:
        self._inner = inner
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in DESCRIPTIONS:
            return method

        def recorded(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if result or name == 'finish':
                self._journal.append(DESCRIPTIONS[name].format(*args))
            return result
        return recorded


def recording(node: Node) -> tuple[Node, list[str]]:
    """Return a node with recorded effects, and the journal."""
    journal: list[str] = []

    def recorded(interface: Interface) -> Interface:
        return cast(Interface, Recorder(interface, journal))
    return dataclasses.replace(
        node, lvm=recorded(node.lvm), handles=recorded(node.handles),
        clones=recorded(node.clones), exports=recorded(node.exports),
        moves=recorded(node.moves)), journal


def repair(node: Node,
           reconciler: Callable[[Node], Reconciler],
           volume_id: str) -> list[str]:
    """Take the reconciler's steps for a volume, and return the journal.

    :param reconciler: ``reconciler(node)`` returns a reconciler of a node
    :returns: the changes in words; then an obstacle, if there is any
    """
    recorded, journal = recording(node)
    try:
        reconciler(recorded).reconcile(volume_id)
    except exceptions.LocalCloneError as exc:
        journal.append(inspection.IN_THE_WAY + str(exc))
    return journal
