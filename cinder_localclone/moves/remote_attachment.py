# SPDX-License-Identifier: Apache-2.0
"""Remote attachment: use a volume on this node while its home is another.

The handle has its usual path here, on a disk exported by the home. A volume is
attached remotely if it can't move to its instance now: it is still being
copied to its home, or must stay there. As soon as it can, it moves to this
node under the running guest; see :class:`DeferredMoves`.

The attachment records it, as any other connection over iSCSI. So both ends are
restored after a reboot, and both are removed with the attachment.

In a deferred move the guest writes to the source until its handle is on the
clone, some time after the commit. A pristine clone reads these writes from the
source. So nothing touches the clone before, and the move may stop at any
moment.
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
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import devices
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import flow
from cinder_localclone.moves import source

LOG = logging.getLogger(__name__)

#: Seconds for which a new attachment without a host may be in use.
ATTACHING = 3600
#: Seconds before a failed deferred move is tried again.
DEFERRED_RETRY = 60


@rpc.method('begin_remote', rpc.REMOTE, gives_way=True)
def begin_for_home(node: Node, volume_id: str, properties: objects.Properties,
                   attachments: objects.Attachments) -> None:
    """Attach a volume remotely, called by its home.

    :param properties: see :func:`begin`
    :param attachments: of the volume at the time of the home's call
    :raises Refused: if the home's call is too late
    :raises SourceBusy: as :func:`begin`
    :raises StaleMove: as :func:`begin`
    """
    with node.lock(volume_id):
        begin(node, volume_id, properties, attachments)


def begin(node: Node, volume_id: str, properties: objects.Properties,
          attachments: objects.Attachments | None = None) -> None:
    """Attach a volume remotely; the caller holds its lock.

    First removes everything that earlier moves of the volume have left here.
    The home's call may be late: the volume may have been attached here again
    meanwhile, with another secret. The newer attachment goes on.

    :param properties: of the home's export; ``size_gib``, if the volume is
        longer than its row says yet
    :param attachments: known to the home at its call; None without a call
    :raises StaleMove: if this node is its home, or it is gone
    :raises Refused: if the home's call is too late
    :raises SourceBusy: if a process here has the handle open on another
        backing device, or by a connection that has ended
    :raises LocalCloneError: if the home is unreachable, or a command fails
    """
    volume = node.volumes.volume(volume_id)
    if volume is None or volume.home == node.host:
        raise exceptions.StaleMove(volume=volume_id)
    if attachments is not None:
        volume_attachments.check_in_time(
            volume, node.host, None, attachments)
    for earlier in cleanup.pending_here(node, volume_id):
        cleanup.take_down(node, earlier)
    _withdraw_earlier(node, volume)
    present = node.handles.survey()
    handle = present.handle(volume_id)
    if handle and handle.opened and not (
            present.is_handle_foreign(volume_id)
            and nodes.connection_to(node, volume, node.host)):
        devices.ensure_closed(node, volume_id)
    for lv in present.complete_lvs(volume_id, node.lvm.group):
        if names.AWAY not in lv.tags:
            node.lvm.mark(lv.name, names.AWAY)
    size_gib = max(volume.size, properties.get('size_gib', 0))
    disk = node.sessions.attach_remote(
        volume_id, volume.backing_bytes(size_gib), properties,
        bool(present.users(volume_id)))
    if node.handles.ensure_handle_on_disk(volume_id, disk):
        node.handles.read_head(volume_id)
    if volume.is_encrypted_by_nova:
        devices.open_for_guest(node, volume_id)
    elif volume.encryption:
        devices.open(node, volume)
    elif present.upper_devices(volume_id):
        devices.close_if_idle(node, volume_id)  # a boot may have opened it
    node.sessions.end_other_remotes(volume_id, properties['target_iqn'])


def _withdraw_earlier(node: Node, volume: Volume) -> None:
    """Withdraw the exports of this node as a former home; all are unused."""
    move = node.moves.move_of(volume.id)
    node.exports.withdraw_unnamed(
        volume.id, nodes.unnamed_exports(node, volume, move), at_once=True)


@rpc.method('end_remote_attachments', rpc.REMOTE, expected=(
    exceptions.Busy, exceptions.SourceBusy))
def end_one(node: Node, volume_id: str, user: str) -> None:
    """End the remote attachment of a volume with this CHAP user.

    A request may be late: the volume may have been attached here again
    meanwhile. The newer attachment goes on.

    :param user: CHAP user of the remote attachment to end
    :raises Busy: if other work holds the volume's lock for too long
    :raises SourceBusy: if a process has the handle open
    """
    with node.lock(volume_id):
        if node.sessions.may_be_attached_by(volume_id, user):
            end(node, volume_id)
        else:
            LOG.info('A request to end an earlier attachment of volume %s '
                     'came late; nothing was changed.', volume_id)


def end(node: Node, volume_id: str) -> None:
    """End the remote attachment of a volume; the caller holds its lock.

    :raises SourceBusy: if a process has the handle open
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
    """Begin the remote attachments named by attachments; end all others.

    An error is logged, and does not stop the others.

    :param present: this node's devices and LVs, if listed recently; newer
        devices wait for the next sweep
    :returns: whether all were reconciled
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
        # A taken lock counts as an error, because its holder may fail.
        fine = nodes.attempt(
            node, volume_id, functools.partial(_reconcile, node, volume_id),
            functools.partial(events.failed, events.NOT_PASSED,
                              volume=volume_id)) and fine
    return fine


def _recorded(node: Node) -> Iterable[str]:
    """Return the volumes with a record of the initiator, used or not.

    The initiator would use the record to log in at the next boot.
    """
    try:
        return node.sessions.recorded_remotes()
    except exceptions.LocalCloneError as exc:
        LOG.error('The records of the iSCSI initiator can\'t be read, will '
                  'retry: %s', exc)
        return ()


def _reconcile(node: Node, volume_id: str) -> None:
    volume = node.volumes.volume(volume_id)
    if volume is None:
        _give_up(node, volume_id)
    elif not names.same_backend(volume.host, node.host):
        return  # it belongs to another service of this node
    elif volume.home == node.host:
        # The present note, not the listed note. This is first, because with
        # the initiator's record a boot opens the volume.
        noted = node.crypt.remotes().get(volume_id)
        if noted and not boot_notes.correct_note(
                node, volume, devices.is_wanted(node, volume), luks=noted[0]):
            return
        # Does nothing if its move has yet to switch the handle.
        cleanup.end_after_swap(node, volume_id)
    else:
        move = node.moves.move_of(volume_id)
        from_here = move if move and move.source == node.host else None
        if from_here and from_here.keeps_handle:
            return  # it may roll back to its LV here
        connection = nodes.connection_to(node, volume, node.host)
        if connection:
            if from_here:  # its home may have to read from here
                # An error is only logged: a lost LV may not be needed.
                with events.failure_logged(
                        events.EXPORTS_DIFFER, volume=volume_id):
                    source.export_again(node, from_here)
            begin(node, volume_id, connection.properties)
        elif not is_being_attached(node, volume):
            _give_up(node, volume_id)


def is_being_attached(node: Node, volume: Volume) -> bool:
    """Return whether an attachment may yet record a use of a volume here.

    The record is made after the call to this node. Nova also keeps attachments
    without a host for weeks, for shelved servers.
    """
    unsaid = [each for each in volume_attachments.incomplete(volume)
              if not each.connector or node.is_at(each.connector, node.host)]
    return bool(unsaid) and (
        node.sessions.was_just_attached(volume.id)
        or node.attachments.any_newer(
            [each.id for each in unsaid], ATTACHING))


def _give_up(node: Node, volume_id: str) -> None:
    """End a remote attachment without an attachment.

    Otherwise a process waiting for a home without this export could not even
    be killed, and would keep the handle open.
    """
    node.sessions.end_remote_if_down(volume_id)
    end(node, volume_id)


class CheckRemoteOnly(flow.Step):
    """Check that only the destination uses the volume, in a deferred move."""

    def execute(self, volume: Volume, peer: str) -> None:
        # The present row.
        recorded = self._node.volumes.volume(volume.id)
        if recorded is None or destination_of(self._node, recorded) != peer:
            raise exceptions.StaleMove(volume=volume.id)
        devices.close_if_idle(self._node, volume.id)
        opened = survey.Survey({}, self._node.handles.devices(
            survey.names_of(volume.id))).users(volume.id)
        exports = self._node.exports.remote().get(volume.id, set())
        named = {each.iqn for each in volume_attachments.connections(recorded)}
        # An export has the handle open once.
        count = opened - bool(exports & named) + len(exports - named)
        if count:
            raise exceptions.SourceBusy(
                volume=volume.id, host=self._node.host, count=count,
                device=names.handle(volume.id))


def destination_of(node: Node, volume: Volume) -> str | None:
    """Return the node of the instance, if a volume here can move to it.

    :returns: its service host, if its service is alive; else None
    """
    if volume.status != 'in-use' or len(volume.volume_attachment) != 1:
        return None
    attachment, = volume.volume_attachment
    connection = volume_attachments.connection_of(attachment)
    if not (connection and connection.is_remote and attachment.connector
            and attachment.instance_uuid
            and attachment.attach_status == 'attached'
            and nodes.exporter(node).has_export_of(connection)
            and not volume.why_pinned):
        return None
    return next((host for host, alive in node.other_nodes().items()
                 if alive and node.is_at(attachment.connector, host)), None)


class DeferredMoves:
    """The deferred moves of volumes at rest here."""

    def __init__(self, node: Node):
        self._node = node
        #: Time of the next try after a failure, by volume id, monotonic
        #: seconds.
        self._again: dict[str, float] = {}

    def are_due(self, volume: Volume) -> bool:
        """Return whether a deferred move of a volume at rest here is due."""
        return self._may_try(volume) and bool(
            destination_of(self._node, volume))

    def _may_try(self, volume: Volume) -> bool:
        return bool(self._again.get(volume.id, 0) <= timeutils.now())

    def begin(self, volume: Volume) -> None:
        """Move a volume to its instance; the caller holds its lock.

        If this fails, it is rolled back, logged, and tried again in a minute.
        The guest keeps its volume meanwhile.

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
                        CheckRemoteOnly(self._node, 'still remote only'),
                        source.Commit(self._node)), holes=())
            self._again.pop(volume.id, None)
        except exceptions.LocalCloneError as exc:
            self._again[volume.id] = timeutils.now() + DEFERRED_RETRY
            events.say(events.DEFERRED_MOVE_FAILED, volume=volume.id,
                       host=peer,
                       seconds=DEFERRED_RETRY, error=exc)
