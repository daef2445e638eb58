# SPDX-License-Identifier: Apache-2.0
"""Connect a volume at its home, and end the connection.

Cinder calls this through the driver. If Cinder has sent the request to another
node, its service calls this over RPC (:mod:`cinder_localclone.core.rpc`).
"""

from collections.abc import Callable
import typing

from oslo_log import log as logging
import tenacity

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.core import node
from cinder_localclone.core import objects
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import policy
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import destination
from cinder_localclone.moves import remote_attachment
from cinder_localclone.moves import source
from cinder_localclone.volumes import decision
from cinder_localclone.volumes import migrate
from cinder_localclone.volumes import reconcile

LOG = logging.getLogger(__name__)

#: Seconds for a hypervisor to close a volume after its detach.
CLOSING = 10


class Connections:
    """Connects the volumes of a node.

    :param find: ``find(connector)`` returns the service host of a connector's
        node, or None if no node of this backend has it; see
        :meth:`.directory.Directory.find`
    """

    def __init__(self, reconciler: reconcile.Reconciler,
                 find: Callable[[objects.Connector], str | None]):
        self.node = self._node = reconciler.node
        self._reconciler = reconciler
        self._find = find
        #: CHAP credentials of failed remote attachments, by handle id and
        #: iSCSI name. The other node may still log in with them.
        self._in_vain: dict[tuple[str, str], str] = {}

    # Twice the time: it may have to wait for another node.
    @rpc.method('initialize_connection', rpc.HOME, times=2)
    def connect(self, volume_id: str, connector: objects.Connector,
                attachments: objects.Attachments) -> dict[str, typing.Any]:
        """Connect a volume to a host.

        :param attachments: of the volume when Cinder sent the request. A late
            request takes the volume from no newer attachment
        :returns: connection properties for os-brick
        :raises Refused: if the volume can't be connected to this host
        :raises StaleMove: if this node is not its home any more
        :raises LocalCloneError: if the volume could not be moved; it is at
            rest here
        """
        node_of_connector = self._find(connector)
        with (self._reconciler.copying.waker.give_way(),
              self._node.lock(volume_id)):
            source.abandon_interrupted(self._node, volume_id)
            volume = node.volume_at_home(self._node, volume_id)
            volume_attachments.check_in_time(
                volume, connector.get('host'), connector, attachments)
            if volume.visible_id:
                migrate.check_migrated(self._node, volume)
            policy.check_connected(self._node, volume)
            choice = decision.decide(self._request(
                volume, connector, node_of_connector))
            events.say(events.REQUESTED, volume=volume_id,
                       host=connector.get('host'), decision=choice)
            if choice.verdict is decision.Verdict.LOCAL:
                self._reconciler.reconcile_present(volume_id)
                policy.check_not_fresh(
                    self._node, volume, connector.get('host'))
                devices.open(self._node, volume, volume.name)
                return self._local_connection(volume)
            if choice.verdict is decision.Verdict.REMOTE:
                return self._remote_connection(volume, connector)
            if (choice.verdict is decision.Verdict.REMOTE_ATTACHMENT
                    and node_of_connector):
                return self._attach_remotely(volume, connector,
                                             node_of_connector)
            if (node_of_connector
                    and choice.verdict is not decision.Verdict.REFUSE):
                self._forget_earlier_try(volume, connector)
                devices.repair_header(self._node, volume)
                if choice.verdict is decision.Verdict.LIVE_MOVE:
                    self._check_exports(volume, connector)
                # First, because nothing may fail after the commit.
                connection = self._local_connection(volume)
                source.move_volume(
                    self._node, volume, node_of_connector,
                    live=choice.verdict is decision.Verdict.LIVE_MOVE)
                return connection
        raise choice.error(volume=volume_id, host=connector.get('host'),
                           reason=choice.reason)

    def _forget_earlier_try(self, volume: Volume,
                            connector: objects.Connector) -> None:
        """End the host's export of an earlier attach, which has failed.

        A host that connects again does not use its earlier export. The failed
        attach has not ended this export, and it would keep the volume from
        moving.
        """
        initiator = connector.get('initiator')
        if initiator and not any(each.initiator == initiator for each in
                                 volume_attachments.connections(volume)):
            cleanup.end_exports(self._node, volume.handle_id, initiator)

    def _check_exports(self, volume: Volume,
                       connector: objects.Connector) -> None:
        """Check that no host without an attachment holds an export.

        No detach ends the connection of this host, so it would block the live
        migration for ever.

        :raises Refused: if an export can't be withdrawn now
        """
        self._reconciler.exporting.reconcile(volume, None)
        if node.unnamed_exports(self._node, volume, None):
            raise exceptions.Refused(
                volume=volume.id, host=connector.get('host'),
                reason='it is exported to a host without an attachment. '
                'The export ends by itself; try again in ten minutes.')

    def _request(self, volume: Volume, connector: objects.Connector,
                 node_of_connector: str | None) -> decision.Request:
        attachments = [
            decision.Attachment(
                instance=attachment.instance_uuid,
                host=(attachment.connector or {}).get('host'))
            for attachment in volume.volume_attachment]
        return decision.Request(
            status=volume.status, home=self._node.host,
            node=node_of_connector,
            connector_host=connector.get('host'),
            initiator=connector.get('initiator'), attachments=attachments,
            move=self._node.moves.move_of(volume.id),
            pinned=volume.why_pinned,
            by_cinder=volume.is_migrated_by_cinder,
            remote_error=encryption_exceptions.NotThere
            if devices.needs_upper_device(volume) else None,
            cold_error=encryption_exceptions.MovesCold
            if volume.is_authenticated else None)

    def _local_connection(self, volume: Volume) -> dict[str, typing.Any]:
        data = {'device_path': devices.path(volume), 'discard': True}
        if volume.encryption:
            # Nova must not encrypt it again: the device is decrypted.
            data.update(encrypted=False, discard=devices.takes_discards(
                self._node, volume))
        return {'driver_volume_type': 'local', 'data': data}

    def _remote_connection(self, volume: Volume,
                           connector: objects.Connector
                           ) -> dict[str, typing.Any]:
        if volume.encryption:
            raise encryption_exceptions.NotThere(
                volume=volume.id, host=connector.get('host'), reason='the '
                'host is no node of this backend, and the volume is '
                'encrypted: only nodes of this backend can decrypt it.')
        self._reconciler.reconcile_present(volume.id)
        initiator = connector['initiator']
        # All attachments of a host share an export. Other credentials would
        # replace it while the host uses the volume.
        known = next((each for each in volume_attachments.connections(volume)
                      if each.initiator == initiator and not each.is_remote),
                     None)
        properties = self._node.exports.export_volume(
            volume.handle_id, initiator,
            iscsi.auth(known.properties) if known
            else iscsi.new_credentials(),
            device=devices.ensure_exported_path(self._node, volume))
        return {'driver_volume_type': 'iscsi',
                'data': dict(properties, discard=True)}

    def _attach_remotely(self, volume: Volume,
                         connector: objects.Connector, host: str
                         ) -> dict[str, typing.Any]:
        """Export a volume to another node, with the handle on its disk."""
        self._reconciler.reconcile_present(volume.id)
        devices.end_interrupted_reencryption(self._node, volume)
        connection = self._local_connection(volume)
        handle_id, initiator = volume.handle_id, connector['initiator']
        known = node.connection_to(self._node, volume, host)
        # With new credentials, a late first call would end the session of its
        # own repeat on the other node.
        auth = (iscsi.auth(known.properties) if known
                else self._in_vain.pop((handle_id, initiator), '')
                or iscsi.new_credentials())
        properties = self._node.exports.export_volume(
            handle_id, initiator, auth, remote=True,
            device=devices.ensure_exported_path(self._node, volume))
        try:
            rpc.call_at(host, remote_attachment.begin_for_home, self._node,
                        volume.id, properties,
                        volume_attachments.as_sent(volume))
            boot_notes.note_used(self._node, volume)
        except Exception:
            if not known:
                self._in_vain[handle_id, initiator] = auth
                self._withdraw(volume, initiator)
            raise
        connection['data'].update(properties)
        return connection

    def _withdraw(self, volume: Volume, initiator: str) -> None:
        """Withdraw the export of a remote attachment that has failed."""
        handle_id = volume.handle_id
        try:
            self._node.exports.withdraw_volume(handle_id, initiator)
            self._node.handles.remove_export_device(handle_id)
        except Exception:  # a failure here must not hide the first error
            LOG.exception('Volume %s is still exported, although its '
                          'connection failed; the next periodic check ends '
                          'the export.', volume.id)

    def _end_remote(self, volume: Volume,
                    connector: objects.Connector) -> None:
        """End the remote attachment on the node of a connector.

        Wait if the guest closes the volume late. If it does not close it, or
        the node does not answer, the export is withdrawn nevertheless: nothing
        writes to the volume from there afterwards. The next sweep of the node
        removes its devices.
        """
        host, known = next(
            (each for each in node.remote_from(self._node, volume)
             if self._node.is_at(connector, each[0])), (None, None))
        if not (host and known) or self._has_another(volume, host):
            return
        try:
            _when_closed(rpc.call_at, host, remote_attachment.end_one,
                         self._node,
                         volume.id, known.properties['auth_username'])
        except exceptions.LocalCloneError as exc:
            LOG.warning('Volume %(volume)s was detached from %(host)s, which '
                        'could not remove its devices; its next periodic '
                        'check tries again: %(error)s',
                        {'volume': volume.id, 'host': host, 'error': exc})

    def leaves_source(self, move: state.Move | None,
                      connector: objects.Connector | None) -> bool:
        """Return whether a detach leaves the source of a live move.

        The guest has left the host of the detach. Cinder's rows do not show
        this yet.
        """
        return bool(move and connector and _is_live(move)
                    and not self._node.is_at(connector, move.destination))

    @rpc.method('terminate_connection', rpc.HOME)
    def disconnect(self, volume_id: str, connector: objects.Connector | None,
                   attachments: objects.Attachments) -> None:
        """End a connection of a volume.

        Run at the volume's home, or at the source of its live move if the
        guest has left the source.

        A host keeps a volume that it has by another attachment. Nova may send
        a request twice, and Cinder deletes the attachment after the first
        answer. The second request may then arrive when the host has the volume
        by another attachment, and changes nothing. The next periodic check
        removes the rest.

        :param connector: None (a forced detach) ends all connections
        :param attachments: of the volume when Cinder sent the request
        :raises LocalCloneError: if a live move could not be rolled back
        """
        with self._node.lock(volume_id):
            volume = self._node.volumes.volume(volume_id)
            if volume and volume_attachments.is_late_to_detach(
                    volume, connector, attachments):
                LOG.info('A request to detach volume %(volume)s from %(host)s '
                         'came late: another attachment uses the volume '
                         'there. Nothing was changed.',
                         {'volume': volume_id, 'host': (
                             connector or {}).get('host', 'all hosts')})
                return
            if volume and volume.visible_id:
                # The copier's detach may be late: the volume itself may be
                # exported by now.
                if migrate.has_handle(self._node, volume):
                    self._end_exports(volume.handle_id, connector)
                return
            if volume and connector:
                self._end_remote(volume, connector)
            if not _is_shared(volume, connector):
                self._end_exports(volume_id, connector)
            move = self._node.moves.move_of(volume_id)
            live = move and _is_live(move)
            if volume and not live:
                self._close_upper(volume, connector)
            if not (connector and move and live):
                return
            if self.leaves_source(move, connector):
                if move.source == self._node.host:
                    self._source_released(move)
            elif (move.destination == self._node.host
                  and not self._has_another(volume, move.destination)):
                _when_closed(destination.roll_back_live, self._node, move)

    def _has_another(self, volume: Volume | None, host: str) -> bool:
        """Return whether a node has a volume by two attachments.

        Compares host names, because two nodes may share an iSCSI name by
        mistake.
        """
        return volume is not None and sum(
            self._node.is_at(each.connector, host)
            for each in volume.volume_attachment if each.connector) > 1

    def _end_exports(self, handle_id: str, connector: objects.Connector | None
                     ) -> None:
        if connector is None:
            for key in [each for each in self._in_vain
                        if each[0] == handle_id]:
                self._in_vain.pop(key, None)
            cleanup.end_exports(self._node, handle_id, None)
        elif connector.get('initiator'):
            self._in_vain.pop((handle_id, connector['initiator']), None)
            cleanup.end_exports(self._node, handle_id,
                                connector['initiator'])

    def _close_upper(self, volume: Volume,
                     connector: objects.Connector | None) -> None:
        """Close the upper devices of a volume on this node.

        Wait if the guest closes the volume late. If it does not close it, the
        node's sweep closes the devices.
        """
        here = self._node.host
        if not _may_have_upper_device(volume) or connector and (
                not self._node.is_at(connector, here)
                or self._has_another(volume, here)):
            return
        if (volume.status not in statuses.BY_ATTACHMENT
                and devices.is_used_here(self._node, volume)):
            return  # Cinder itself has read from a volume in use
        devices.note_detached(self._node, volume)
        try:
            _when_closed(devices.close_for_good, self._node, volume.handle_id)
        except exceptions.LocalCloneError as exc:
            LOG.warning('Volume %(volume)s was detached from this node, but '
                        'its header guard stays until it is closed: %(error)s',
                        {'volume': volume.id, 'error': exc})

    def _source_released(self, move: state.Move) -> None:
        """Let hydration begin, because the guest has left this node.

        Wait if the guest closes the volume late. If it does not close it, the
        detach succeeds nevertheless, and the periodic check lets hydration
        begin once the kernel shows the device closed.
        """
        try:
            _when_closed(source.begin_hydration, self._node, move)
        except Exception as exc:  # privsep and the database raise other types
            LOG.warning('Volume %(volume)s was detached from this node, but '
                        'its copy to %(host)s has to wait; the next periodic '
                        'check tries again: %(error)s',
                        {'volume': move.volume_id, 'host': move.destination,
                         'error': exc},
                        exc_info=exceptions.is_unexpected(exc))


def _may_have_upper_device(volume: Volume) -> bool:
    """Return whether a detach has to close an upper device of a volume.

    Also if the row can't be understood: the detach must not fail.
    """
    try:
        return devices.needs_upper_device(volume)
    except exceptions.NotPossible:
        return True


def _is_live(move: state.Move) -> bool:
    """Return whether both nodes of a live migration may have the volume."""
    return move.committed and move.phase is Phase.STARTING


def _is_shared(volume: Volume | None,
               connector: objects.Connector | None) -> bool:
    """Return whether another attachment of the host uses the same export.

    Cinder deletes the detached attachment only afterwards.
    """
    if volume is None or connector is None:
        return False
    return sum(_is_same_host(connector, each.connector)
               for each in volume.volume_attachment if each.connector) > 1


def _is_same_host(connector: objects.Connector,
                  other: objects.Connector) -> bool:
    """Return whether two connectors belong to the same host.

    The host may have a new name. All exports to a host are to its iSCSI name.
    """
    initiators = connector.get('initiator'), other.get('initiator')
    if all(initiators):
        return initiators[0] == initiators[1]
    return connector.get('host') == other.get('host') and not any(initiators)


def _when_closed(act: Callable[..., None], *args: typing.Any) -> None:
    """Call a function once the volume is closed here.

    Retries for :data:`CLOSING` seconds.

    :raises SourceBusy: if it is still open then
    """
    tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(exceptions.SourceBusy),
        stop=tenacity.stop_after_delay(CLOSING), reraise=True,
        wait=tenacity.wait_fixed(0.5))(act, *args)
