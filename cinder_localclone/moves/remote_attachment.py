# SPDX-License-Identifier: Apache-2.0
"""Passing a volume through: used on this node while its home is another.

The handle has its constant path here and is on the disk that the home
serves; reads and writes pass through to there. A volume gets that where it
can't move to its instance now: it is still being copied to its home, or must
stay there. As soon as it can, it follows its instance to this node, under the
running guest; see :class:`DeferredMoves`.

What is passed through is recorded in the attachment, as any other connection
over iSCSI: so both ends come back after a reboot, and neither outlives it.

In a deferred move the clone that is prepared is not touched before the commit,
nor after it before the handle is on it: until then the guest writes to the
source, which a pristine clone reads. So there is no wrong moment to stop at.
"""

from collections.abc import Iterable
import functools

from oslo_log import log as logging
from oslo_utils import timeutils
from taskflow.patterns import linear_flow

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.encryption import devices
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import flow
from cinder_localclone.moves import source

LOG = logging.getLogger(__name__)

#: Seconds within which an attachment that names no host yet may be in use.
ATTACHING = 3600
#: Seconds before what has failed is tried again.
DEFERRED_RETRY = 60


@rpc.method('begin_remote', rpc.REMOTE, gives_way=True)
def begin_for_home(node: Node, volume_id: str, properties: objects.Properties,
                   attachments: objects.Attachments) -> None:
    """Pass a volume through to its home, which asks for it.

    :param properties: see :func:`begin`
    :param attachments: those that the volume had when its home asked
    :raises Refused: if the home asks too late
    :raises SourceBusy: as :func:`begin`
    :raises StaleMove: as :func:`begin`
    """
    with node.lock(volume_id):
        begin(node, volume_id, properties, attachments)


def begin(node: Node, volume_id: str, properties: objects.Properties,
          attachments: objects.Attachments | None = None) -> None:
    """Pass a volume through to its home; the caller holds its lock.

    What earlier moves of the volume have left here goes first. The home may
    ask late: the volume may have been attached here again meanwhile, with
    another secret. What was begun since then goes on.

    :param properties: what the home has offered; ``size_gib``, if the volume
        is longer than its row says yet
    :param attachments: those that the home knew as it asked; None if this
        node looks by itself
    :raises StaleMove: if this node is its home, or it is gone
    :raises Refused: if the home asks too late
    :raises SourceBusy: if something here has the handle open on another
        body, or by a connection that has ended
    :raises LocalCloneError: if the home can't be reached, or a command fails
    """
    volume = node.volumes.volume(volume_id)
    if volume is None or rows.is_home(volume, node.host):
        raise exceptions.StaleMove(volume=volume_id)
    if attachments is not None:
        volume_attachments.check_in_time(
            volume, node.host, None, attachments)
    for earlier in cleanup.here(node, volume_id):
        cleanup.take_down(node, earlier)
    _withdraw_earlier(node, volume)
    present = node.handles.survey()
    handle = present.handle(volume_id)
    if handle and handle.opened and not (
            present.is_handle_foreign(volume_id)
            and nodes.connection_to(node, volume, node.host)):
        devices.ensure_closed(node, volume_id)
    for lv in present.left_of(volume_id, node.lvm.group):
        if names.AWAY not in lv.tags:
            node.lvm.mark(lv.name, names.AWAY)
    size_gib = max(volume.size, properties.get('size_gib', 0))
    disk = node.sessions.attach_remote(
        volume_id, rows.backing_bytes(volume, size_gib), properties,
        bool(present.users(volume_id)))
    if node.handles.ensure_handle_on_disk(volume_id, disk):
        node.handles.read_head(volume_id)
    if rows.is_encrypted_by_nova(volume):
        devices.open_for_guest(node, volume_id)
    elif rows.recorded(volume):
        devices.open(node, volume)
    elif present.upper_devices(volume_id):
        devices.close_if_idle(node, volume_id)  # a boot could not know
    node.sessions.end_other_remotes(volume_id, properties['target_iqn'])


def _withdraw_earlier(node: Node, volume: objects.Volume) -> None:
    """What this node has served before it was left is in nobody's use."""
    move = node.moves.move_of(volume.id)
    node.exports.withdraw_unnamed(
        volume.id, nodes.unnamed_exports(node, volume, move), at_once=True)


@rpc.method('end_remote_attachments', rpc.REMOTE, expected=(
    exceptions.Busy, exceptions.SourceBusy))
def end_one(node: Node, volume_id: str, user: str) -> None:
    """End one pass-through of a volume.

    A request may be late: the volume may have been attached here anew
    meanwhile. What was begun since then goes on.

    :param user: the CHAP user that the home made for what is to end
    :raises Busy: if other work on the volume takes too long
    :raises SourceBusy: if something has the handle open
    """
    with node.lock(volume_id):
        if node.sessions.may_be_attached_by(volume_id, user):
            end(node, volume_id)
        else:
            LOG.info('A request to end an earlier attachment of volume %s '
                     'came late; nothing was changed.', volume_id)


def end(node: Node, volume_id: str) -> None:
    """Pass a volume through no more; the caller holds its lock.

    :raises SourceBusy: if something has the handle open
    """
    present = node.handles.survey()
    foreign = present.is_handle_foreign(volume_id)
    if foreign:
        devices.ensure_closed(node, volume_id)
        node.handles.remove_handle(volume_id)
    if foreign or not present.handle(volume_id):  # a boot has made none
        node.crypt.forget_remote(volume_id)
        node.crypt.forget_sealed(volume_id)
    node.sessions.end_remote(volume_id)


def sweep(node: Node, present: survey.Survey | None = None) -> bool:
    """What attachments say is passed through here is, and nothing else is.

    One volume that fails does not stop the others.

    :param present: what there is on this node, if that was listed not long
        ago; what has come since is seen to the next time
    :returns: whether all is seen to be as it should be
    """
    fine = True
    named = {volume.id
             for volume in node.attachments.remote_to(node.host)}
    if present is None:
        present = survey.Survey({}, node.handles.devices())
    noted = node.crypt.remotes(present.lvs)
    for volume_id in sorted({*named, *node.sessions.remotes(),
                             *_recorded(node), *noted,
                             *present.foreign_handles()}):
        # If its lock is taken, the holder of the lock may fail.
        fine = nodes.attempt(
            node, volume_id, functools.partial(_look_at, node, volume_id),
            functools.partial(events.failed, events.NOT_PASSED,
                              volume=volume_id)) and fine
    return fine


def _recorded(node: Node) -> Iterable[str]:
    """The volumes of which the initiator has a record, in vain perhaps.

    It would log in with it at the next boot.
    """
    try:
        return node.sessions.recorded_remotes()
    except exceptions.LocalCloneError as exc:
        LOG.error('The records of the iSCSI initiator can\'t be read, will '
                  'retry: %s', exc)
        return ()


def _look_at(node: Node, volume_id: str) -> None:
    volume = node.volumes.volume(volume_id)
    if volume is None:
        _give_up(node, volume_id)
    elif not names.same_backend(volume.host, node.host):
        return  # another service on this node looks after it
    elif rows.is_home(volume, node.host):
        # By now, not when it was listed. And first: with the initiator's
        # record a boot opens it.
        noted = node.crypt.remotes().get(volume_id)
        if noted and not devices.correct_note(
                node, volume, devices.is_wanted(node, volume), luks=noted[0]):
            return
        # Or its move has yet to swap it.
        cleanup.end_after_swap(node, volume_id)
    else:
        move = node.moves.move_of(volume_id)
        from_here = move if move and move.source == node.host else None
        if from_here and from_here.keeps_handle:
            return  # it may come back to the LV that is here
        connection = nodes.connection_to(node, volume, node.host)
        if connection:
            if from_here:  # to read it there, its home may have to read here
                # Not all of it: an LV that is lost may not be needed.
                with events.failure_logged(
                        events.EXPORTS_DIFFER, volume=volume_id):
                    source.export_again(node, from_here)
            begin(node, volume_id, connection.properties)
        elif not is_being_attached(node, volume):
            _give_up(node, volume_id)


def is_being_attached(node: Node, volume: objects.Volume) -> bool:
    """Whether an attachment may yet say that a volume is used here.

    It says so after this node was asked for the volume. Nova also keeps
    attachments that name no host, for weeks: of servers that are shelved.
    """
    unsaid = volume_attachments.unsaid(volume)
    return bool(unsaid) and (
        node.sessions.has_begun(volume.id)
        or node.attachments.any_newer(
            [each.id for each in unsaid], ATTACHING))


def _give_up(node: Node, volume_id: str) -> None:
    """Pass through no more what no attachment names.

    Whoever waits for a home that does not serve it any more could not even
    be killed, and would keep the handle open.
    """
    node.sessions.end_remote_if_down(volume_id)
    end(node, volume_id)


class CheckRemoteOnly(flow.Step):
    """Only the destination's node uses the volume: the fence of a follow."""

    def execute(self, volume: objects.Volume, peer: str) -> None:
        # As it is by now.
        recorded = self._node.volumes.volume(volume.id)
        if recorded is None or destination_of(self._node, recorded) != peer:
            raise exceptions.StaleMove(volume=volume.id)
        devices.close_if_idle(self._node, volume.id)
        opened = survey.Survey({}, self._node.handles.devices(
            survey.names_of(volume.id))).users(volume.id)
        exports = self._node.exports.remote().get(volume.id, set())
        named = {each.iqn for each in volume_attachments.connections(volume)}
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
    connection = volume_attachments.connection_of(attachment)
    if not (connection and connection.is_remote and attachment.instance_uuid
            and attachment.attach_status == 'attached'
            and nodes.as_told(node).is_meant(connection)
            and not rows.why_pinned(volume)):
        return None
    return next((host for host, alive in node.other_nodes().items()
                 if alive and node.is_at(attachment.connector, host)), None)


class DeferredMoves:
    """The volumes at rest here that are to follow their instances."""

    def __init__(self, node: Node):
        self._node = node
        #: When one that has failed is tried again, monotonic seconds.
        self._again: dict[str, float] = {}

    def are_due(self, volume: objects.Volume) -> bool:
        """Whether a volume at rest here may follow its instance now."""
        return self._may_try(volume) and bool(
            destination_of(self._node, volume))

    def _may_try(self, volume: objects.Volume) -> bool:
        return bool(self._again.get(volume.id, 0) <= timeutils.now())

    def begin(self, volume: objects.Volume) -> None:
        """Move a volume to its instance; the caller holds its lock.

        What fails is rolled back, logged, and tried again in a minute: the
        guest has its volume all the while.

        :param volume: at rest here
        """
        peer = destination_of(self._node, volume)
        if peer is None or not self._may_try(volume):
            return
        events.say(events.DEFERRED_MOVE_BEGUN, volume=volume.id, host=peer)
        try:
            source.run(
                self._node, volume, peer, linear_flow.Flow(
                    'deferred move').add(
                        source.CheckFreeSpace(self._node),
                        source.EnsureHandle(self._node),
                        source.CheckBlock(self._node),
                        CheckRemoteOnly(self._node),
                        source.Record(
                            self._node, state.Event.MOVE_BEGUN,
                            state.Asked.DEFERRED),
                        source.Export(self._node), source.Prepare(self._node),
                        CheckRemoteOnly(self._node, 'still passed only'),
                        source.Commit(self._node)), holes=())
            self._again.pop(volume.id, None)
        except exceptions.LocalCloneError as exc:
            self._again[volume.id] = timeutils.now() + DEFERRED_RETRY
            events.say(events.DEFERRED_MOVE_FAILED, volume=volume.id,
                       host=peer,
                       seconds=DEFERRED_RETRY, error=exc)
