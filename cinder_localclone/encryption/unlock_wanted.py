# SPDX-License-Identifier: Apache-2.0
"""Opening what attachments say is used here, and is not open.

As the volume service's look does it, with the same locks; but now, and who
asks is told what keeps a volume locked.
"""

from collections.abc import Collection

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import unlock

LOG = logging.getLogger(__name__)

_NOT_USED = 'no attachment says that it is used on this node'
_NOT_OURS = 'this driver does not encrypt it'
_NO_HANDLE = ('it has no handle on this node; the volume service makes one '
              'as soon as it can')


def open_wanted(node: Node, volume_ids: Collection[str] = ()
                ) -> list[unlock.Outcome]:
    """Open all that can be; one that fails does not stop the others.

    One by one: each has its own lock.

    :param volume_ids: the only ones that are wanted; of each it is said what
        became of it
    """
    return [_of_volume(node, volume_id) for volume_id in
            volume_ids or sorted(each.id for each in _here(node)
                                 if _concerns(node, each))]


def _here(node: Node) -> list[objects.Volume]:
    return [*node.records.volumes_of(node.host),
            *node.attachments.passed_to(node.host)]


def _concerns(node: Node, volume: objects.Volume) -> bool:
    try:
        return not _obstacle(node, volume)
    except exceptions.LocalCloneError:
        return True  # which is said of that volume, and stops no other


def _of_volume(node: Node, volume_id: str) -> unlock.Outcome:
    try:
        with node.lock(volume_id):
            return _open(node, volume_id)
    except exceptions.LocalCloneError as exc:
        problem = str(exc)
    except Exception as exc:
        LOG.exception('Volume %s was not opened.', volume_id)
        problem = '%s: %s' % (type(exc).__name__, exc)
    return unlock.Outcome(volume_id, '', unlock.LOCKED, problem)


def _open(node: Node, volume_id: str) -> unlock.Outcome:
    volume = node.records.volume(volume_id)
    problem = _obstacle(node, volume)
    if volume is None or problem:
        return unlock.Outcome(volume_id, '', unlock.LOCKED, problem)
    lv = volume.name if rows.is_home(volume, node.host) else ''
    present = node.handles.survey()
    if present.crypt(rows.handle_id(volume)):
        return unlock.Outcome(volume_id, lv, unlock.OPEN)
    if present.handle(rows.handle_id(volume)) is None:
        return unlock.Outcome(volume_id, lv, unlock.LOCKED, _NO_HANDLE)
    devices.open(node, volume, lv)
    return unlock.Outcome(volume_id, lv, unlock.OPENED)


def _obstacle(node: Node, volume: objects.Volume | None) -> str:
    """Why a volume is not to be open on this node; '' if it is."""
    if volume is None or not rows.recorded(volume):
        return _NOT_OURS
    here = (rows.is_home(volume, node.host)
            or nodes.connection_to(node, volume, node.host))
    return '' if here and devices.is_wanted(node, volume) else _NOT_USED
