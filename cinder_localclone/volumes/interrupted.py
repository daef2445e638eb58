# SPDX-License-Identifier: Apache-2.0
"""End operations on this node's volumes that Cinder has abandoned.

Each step waits first: a request in the message queue may still arrive, and end
by itself.
"""

from collections.abc import Collection
from collections.abc import Mapping
import contextlib
import datetime
import functools
import time

from cinder.volume import rpcapi
from oslo_log import log as logging

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import statuses

LOG = logging.getLogger(__name__)

#: Seconds for which a service must have run before unfinished operations from
#: before its start are dead: their messages may be sent, but not delivered.
DELIVERED = 600
#: Seconds after which a delete without progress is lost.
LOST = 900


def sweep(node: Node, started: float) -> None:
    """End abandoned operations.

    Uses the clock of the database, which all nodes share: this node's may be
    wrong.

    :param started: start of this service, monotonic seconds
    """
    now = node.interrupted.now()
    delivered = now - datetime.timedelta(seconds=DELIVERED)
    started_at = now - datetime.timedelta(seconds=time.monotonic() - started)
    if started_at < delivered:
        end_dead(node, started_at)
        end_dead(node, delivered, statuses.LOST_WITH_ANOTHER_SERVICE)
    ask_again(node)


def end_dead(node: Node, moment: datetime.datetime,
             of: Collection[str] = statuses.LOST_WITH_SERVICE) -> None:
    """End the operations of a service that died during them.

    An operation in progress holds the volume's lock, or was requested
    recently.

    :param moment: the operations began before this time, by the clock of the
        database
    :param of: the volume statuses of these operations
    """
    _forget_asked(node)
    for volume_id in node.interrupted.volumes_unchanged_since(node.host,
                                                              moment, of):
        nodes.attempt(
            node, volume_id,
            functools.partial(_end_dead, node, volume_id),
            lambda exc: LOG.error(
                'An interrupted operation on a volume can\'t be ended, will '
                'retry: %s', exc, exc_info=exceptions.is_unexpected(exc)))


def _end_dead(node: Node, volume_id: str) -> None:
    if volume_id not in node.asked:
        status = node.interrupted.end_dead(
            volume_id, node.host, _shown(node.lvm.lvs()))
        if status:
            events.say(events.ENDED_FOR_DEAD, volume=volume_id, status=status)


def _forget_asked(node: Node) -> None:
    """Forget extensions without a recent request."""
    past = time.monotonic() - DELIVERED
    for volume_id, asked in list(node.asked.items()):
        if asked <= past:
            node.asked.pop(volume_id, None)


def _shown(lvs: Mapping[str, lvm_reports.LogicalVolume]) -> dict[str, int]:
    """Return the visible length of each LV in bytes, if it is known."""
    found = {}
    for name, lv in lvs.items():
        with contextlib.suppress(exceptions.UnreadableTag):
            found[name] = lv.shown
    return found


def ask_again(node: Node) -> None:
    """Have Cinder send lost deletes to the volume's home again.

    A volume may have moved after the delete was requested. Cinder's manager on
    its former home refuses the delete, and leaves the volume in status
    "deleting".
    """
    for volume in node.interrupted.lost_deletes(node.host, LOST):
        events.say(events.DELETE_SENT_AGAIN, volume=volume.id)
        try:
            rpcapi.VolumeAPI().delete_volume(
                volume._context, volume, cascade=True)
        except Exception:
            LOG.exception('Volume %s stays in status "deleting" for now.',
                          volume.id)
