# SPDX-License-Identifier: Apache-2.0
"""The sealed keys on this node: only those of volumes in use here stay.

A boot opens volumes without their locks. So it may keep a key when the
volume service has just closed the volume, or the volume has just left.
"""

from collections.abc import Iterable

from oslo_log import log as logging

from cinder_localclone import events
from cinder_localclone import exceptions
from cinder_localclone import names
from cinder_localclone import node as nodes
from cinder_localclone import passing
from cinder_localclone import ports
from cinder_localclone import rows
from cinder_localclone import tops
from cinder_localclone import unlocking

LOG = logging.getLogger(__name__)


def look(node: nodes.Node) -> None:
    """Remove the keys of volumes that nobody uses here.

    A volume that fails does not stop the others; the next look tries again.
    """
    try:
        kept = node.crypt.sealed_volumes()
        unused = kept and kept - _in_use(node, kept)
    except exceptions.LocalCloneError as exc:
        LOG.error('This node removed no kept keys: it could not find out '
                  'which of them are still in use, will retry: %s',
                  exc)
        return
    for volume_id in sorted(unused):
        try:
            with node.try_lock(volume_id):
                _look_at(node, volume_id)
        except exceptions.Busy:
            pass  # whoever is at work on it may be about to open it
        except Exception as exc:  # the database: whatever it is
            events.say(events.NOT_RECONCILED, volume=volume_id, error=exc,
                       exc_info=not isinstance(
                           exc, exceptions.LocalCloneError))


def _look_at(node: nodes.Node, volume_id: str) -> None:
    volume = node.records.volume(volume_id)
    if ((volume is None or not _may_have_to_be_opened(node, volume))
            and not _in_use(node, {volume_id})):
        node.crypt.forget_sealed(volume_id)


def _may_have_to_be_opened(node: nodes.Node, volume: ports.Volume) -> bool:
    if not names.same_backend(volume.host, node.host):
        # Another service on this node may keep its keys there, too.
        return passing.may_be_attached(volume) or any(
            node.is_at(each.connector, node.host)
            for each in volume.volume_attachment)
    if rows.is_home(volume, node.host):
        return tops.is_wanted(node, volume) is not False
    return passing.connection_to(node, volume, node.host) is not None


def _in_use(node: nodes.Node, volume_ids: Iterable[str]) -> set[str]:
    """Those that are open on this node, or that a boot would open."""
    present = node.stack.survey()
    opened = unlocking.known(present, node.crypt.passed())
    return {volume_id for volume_id in volume_ids
            if volume_id in opened or present.crypt(volume_id)}
