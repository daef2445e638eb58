# SPDX-License-Identifier: Apache-2.0
"""What the source of a move offers: a device of its own, and its export.

The export keeps the device open and the device keeps the LV in use, so they
are made in this order and go in the other one, before the LV.
"""

from collections.abc import Collection
from collections.abc import Iterator
import contextlib
import dataclasses

from oslo_log import log as logging

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import state

LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def trouble_is_told(volume_id: str) -> Iterator[None]:
    """Trouble with the target stops no copy, and nothing that is local."""
    try:
        yield
    except Exception as exc:  # of rtslib, and of configfs, too
        tell_of_trouble(volume_id, exc)


def tell_of_trouble(volume_id: str, exc: Exception) -> None:
    """A volume is not offered as it should be."""
    events.failed(events.EXPORTS_DIFFER, exc, volume=volume_id)


def offer(node: Node, move: state.Move) -> None:
    """Offer the source of a move again, as a reboot ends that.

    :raises LocalCloneError: if it has no device; trouble with its export is
        told
    """
    node.handles.ensure_source(move)
    with trouble_is_told(move.volume_id):
        export(node, move)


def export(node: Node, move: state.Move) -> None:
    """Export the source device of a move where its record says.

    A node that does not have that address any more exports it at its own, and
    records that: the destination logs in there with its next check.

    :raises StaleMove: if the record has been changed meanwhile
    """
    location = node.exports.location_for(move)
    node.exports.offer_source(dataclasses.replace(move, location=location))
    if location != move.location:
        node.records.relocate(move, location)


def withdraw(node: Node, shadow_id: str) -> None:
    """Offer the source of a move no more; what is gone is done."""
    node.exports.withdraw_source(shadow_id)
    node.handles.remove_source(shadow_id)


def withdraw_above(node: Node, lv: str) -> None:
    """The same for all moves whose source an LV is, or has been.

    For a caller that knows that nothing reads it as a source any more: moves
    that failed, and those that are over, may have left theirs.
    """
    for shadow_id in node.handles.survey().sources_above(lv):
        withdraw(node, shadow_id)


def withdraw_strays(node: Node, present: survey.Survey,
                    moves: Collection[str] = ()) -> None:
    """Offer nothing of moves that are over.

    What fails is logged, and stops nothing else.

    :param present: what there is on this node
    :param moves: those that there were a moment ago, by shadow id: one that
        has ended since is left to the next look. Any other is asked for
    """
    def is_move(shadow_id: str) -> bool:
        return shadow_id in moves or node.records.is_move(shadow_id)
    node.exports.withdraw_strays(is_move)
    strays = [shadow_id for shadow_id in present.sources()
              if not is_move(shadow_id)]
    try:
        devices = node.handles.devices() if strays else {}
        for shadow_id in strays:
            device = devices.get(names.source(shadow_id))
            # Else its export could not be withdrawn now.
            if device and not device.opened:
                node.handles.remove_source(shadow_id)
    except exceptions.LocalCloneError as exc:
        LOG.error('Source devices of ended moves could not be removed; the '
                  'next periodic check tries again: %s', exc)


def new_credentials() -> str:
    """One-time CHAP credentials, in the form of Cinder's provider_auth.

    Cinder's generators use no "0": the kernel's target takes a user name
    that begins with "0b" or "0x" for an encoded number and refuses it.
    """
    from cinder.volume import volume_utils  # slow: only where it is needed
    return 'CHAP %s %s' % (volume_utils.generate_username(),
                           volume_utils.generate_password())
