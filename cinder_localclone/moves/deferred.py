# SPDX-License-Identifier: Apache-2.0
"""A volume follows its instance, which has it on another node already.

There it is passed through to its home. The clone that is prepared is not
touched before the commit, nor after it before the handle is on it: until then
the guest writes to the source, which a pristine clone reads. So there is no
wrong moment to stop at.
"""

from collections.abc import Callable

from oslo_utils import timeutils
from taskflow.patterns import linear_flow

from cinder_localclone.core import attachments
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import state
from cinder_localclone.encryption import devices
from cinder_localclone.moves import checks
from cinder_localclone.moves import flow
from cinder_localclone.moves import source

#: Seconds before what has failed is tried again.
PAUSE = 60


class CheckPassedOnly(flow.Step):
    """Only the destination's node uses the volume: the fence of a follow."""

    def execute(self, volume: objects.Volume, peer: str) -> None:
        # As it is by now.
        recorded = self._node.records.volume(volume.id)
        if recorded is None or destination_of(self._node, recorded) != peer:
            raise exceptions.StaleMove(volume=volume.id)
        devices.close_if_idle(self._node, volume.id)
        opened = survey.Survey({}, self._node.handles.devices(
            survey.names_of(volume.id))).users(volume.id)
        exports = self._node.exports.remote().get(volume.id, set())
        named = {each.iqn for each in attachments.connections(volume)}
        # The export, if it is there, has it open once.
        count = opened - bool(exports & named) + len(exports - named)
        if count:
            raise exceptions.SourceBusy(
                volume=volume.id, host=self._node.host, count=count,
                device=names.handle(volume.id))


def destination_of(node: Node, volume: objects.Volume) -> str | None:
    """The node that a volume at rest here can follow its instance to.

    :returns: its service host, if that service is alive
    """
    if volume.status != 'in-use' or len(volume.volume_attachment) != 1:
        return None
    attachment, = volume.volume_attachment
    connection = attachments.connection_of(attachment)
    if not (connection and connection.passes and attachment.instance_uuid
            and attachment.attach_status == 'attached'
            and nodes.as_told(node).is_meant(connection)
            and not checks.why_pinned(volume)):
        return None
    return next((host for host, alive in node.other_nodes().items()
                 if alive and node.is_at(attachment.connector, host)), None)


class Followers:
    """The volumes at rest here that are to follow their instances."""

    def __init__(self, node: Node,
                 new_credentials: Callable[[], str]):
        self._node = node
        self._new_credentials = new_credentials
        #: When one that has failed is tried again, monotonic seconds.
        self._again: dict[str, float] = {}

    def are_due(self, volume: objects.Volume) -> bool:
        """Whether a volume at rest here may follow its instance now."""
        return self._may_try(volume) and bool(
            destination_of(self._node, volume))

    def _may_try(self, volume: objects.Volume) -> bool:
        return bool(self._again.get(volume.id, 0) <= timeutils.now())

    def follow(self, volume: objects.Volume) -> None:
        """Move a volume to its instance; the caller holds its lock.

        What fails is rolled back, logged, and tried again in a minute: the
        guest has its volume all the while.

        :param volume: at rest here
        """
        peer = destination_of(self._node, volume)
        if peer is None or not self._may_try(volume):
            return
        events.say(events.FOLLOWS, volume=volume.id, host=peer)
        try:
            source.run(
                self._node, volume, peer, linear_flow.Flow(
                    'follow').add(
                        source.CheckFreeSpace(self._node),
                        source.EnsureHandle(self._node),
                        source.CheckBlock(self._node),
                        CheckPassedOnly(self._node),
                        source.Record(
                            self._node, state.Event.MOVE_BEGUN,
                            state.Asked.FOLLOW, self._new_credentials),
                        source.Offer(self._node), source.Prepare(self._node),
                        CheckPassedOnly(self._node, 'still passed only'),
                        source.Commit(self._node)), holes=())
            self._again.pop(volume.id, None)
        except exceptions.LocalCloneError as exc:
            self._again[volume.id] = timeutils.now() + PAUSE
            events.say(events.NOT_FOLLOWED, volume=volume.id, host=peer,
                       seconds=PAUSE, error=exc)
