# SPDX-License-Identifier: Apache-2.0
"""Connecting a volume at its home, and ending that.

Called by Cinder through the driver, or by another node whose service Cinder
has asked (:mod:`cinder_localclone.core.rpc`).
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
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.core import statuses
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

#: Seconds that a hypervisor may take to close a volume after its detach.
CLOSING = 10


class Connections:
    """Serves the volumes of one node.

    :param find: ``find(connector)``: the service host of the node that a
        connector belongs to, None if it is none's; see
        :meth:`.directory.Directory.find`
    """

    def __init__(self, reconciler: reconcile.Reconciler,
                 find: Callable[[objects.Connector], str | None]):
        self.node = self._node = reconciler.node
        self._reconciler = reconciler
        self._find = find
        #: What a node was offered in vain to log in with, by whose handle
        #: and its iSCSI name. It may still be about to do so.
        self._in_vain: dict[tuple[str, str], str] = {}

    # It may have to wait for another node.
    @rpc.method('initialize_connection', rpc.HOME, times=2)
    def connect(self, volume_id: str, connector: objects.Connector,
                attachments: objects.Attachments) -> dict[str, typing.Any]:
        """Connect a volume to a host.

        :param attachments: those that the volume had when Cinder asked: a
            late request takes it from none that came since
        :returns: connection properties for os-brick
        :raises Refused: if it is not to be connected to that host
        :raises StaleMove: if this node is not its home any more
        :raises LocalCloneError: if it could not be moved; it is at rest here
        """
        node_of_connector = self._find(connector)
        with (self._reconciler.copying.waker.give_way(),
              self._node.lock(volume_id)):
            source.abandon_interrupted(self._node, volume_id)
            volume = node.volume_at_home(self._node, volume_id)
            volume_attachments.check_in_time(
                volume, connector.get('host'), connector, attachments)
            if rows.visible_id(volume):
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
                devices.mend(self._node, volume)
                if choice.verdict is decision.Verdict.LIVE_MOVE:
                    self._check_exports(volume, connector)
                # First: nothing may fail after the commit.
                connection = self._local_connection(volume)
                source.move_volume(
                    self._node, volume, node_of_connector,
                    live=choice.verdict is decision.Verdict.LIVE_MOVE)
                return connection
        raise choice.error(volume=volume_id, host=connector.get('host'),
                           reason=choice.reason)

    def _forget_earlier_try(self, volume: objects.Volume,
                            connector: objects.Connector) -> None:
        """Whoever asks anew does not use what it was offered before.

        It would keep the volume from moving: an attach may have failed after
        the volume was offered, and nobody has said so.
        """
        initiator = connector.get('initiator')
        if initiator and not any(each.initiator == initiator for each in
                                 volume_attachments.connections(volume)):
            cleanup.end_exports(
                self._node, rows.handle_id(volume), initiator)

    def _check_exports(self, volume: objects.Volume,
                       connector: objects.Connector) -> None:
        """Nobody has the volume but whom an attachment names.

        Such a host would hold the live migration up for ever: no detach
        ends its connection.

        :raises Refused: if that can't be helped now
        """
        self._reconciler.exporting.settle(volume, None)
        if node.unnamed_exports(self._node, volume, None):
            raise exceptions.Refused(
                volume=volume.id, host=connector.get('host'),
                reason='it is exported to a host that no attachment names. '
                'This export ends by itself; try again in ten minutes.')

    def _request(self, volume: objects.Volume, connector: objects.Connector,
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
            pinned=rows.why_pinned(volume),
            by_cinder=rows.is_migrated_by_cinder(volume),
            remote_error=encryption_exceptions.NotThere
            if devices.has_one(volume) else None,
            cold_error=encryption_exceptions.MovesCold
            if rows.is_authenticated(volume) else None)

    def _local_connection(self, volume: objects.Volume
                          ) -> dict[str, typing.Any]:
        data = {'device_path': devices.path(volume), 'discard': True}
        if rows.recorded(volume):
            # Nova is to encrypt nothing: what it gets is not any more.
            data.update(encrypted=False, discard=devices.takes_discards(
                self._node, volume))
        return {'driver_volume_type': 'local', 'data': data}

    def _remote_connection(self, volume: objects.Volume,
                           connector: objects.Connector
                           ) -> dict[str, typing.Any]:
        if rows.recorded(volume):
            raise encryption_exceptions.NotThere(
                volume=volume.id, host=connector.get('host'), reason='that '
                'host is no node of this backend, and the volume is '
                'encrypted: only nodes of this backend can decrypt it.')
        self._reconciler.reconcile_present(volume.id)
        initiator = connector['initiator']
        # All attachments of a host name one export. With another secret it
        # would be made anew under whoever has the volume by it.
        known = next((each for each in volume_attachments.connections(volume)
                      if each.initiator == initiator and not each.is_remote),
                     None)
        properties = self._node.exports.export_volume(
            rows.handle_id(volume), initiator,
            iscsi.auth(known.properties) if known
            else iscsi.new_credentials(),
            device=devices.exported_path(self._node, volume))
        return {'driver_volume_type': 'iscsi',
                'data': dict(properties, discard=True)}

    def _attach_remotely(self, volume: objects.Volume,
                         connector: objects.Connector, host: str
                         ) -> dict[str, typing.Any]:
        """The handle on another node, on a disk that is served to it."""
        self._reconciler.reconcile_present(volume.id)
        devices.settle_reencryption(self._node, volume)
        connection = self._local_connection(volume)
        handle_id, initiator = rows.handle_id(volume), connector['initiator']
        known = node.connection_to(self._node, volume, host)
        # With another secret, a call that was given up would end the session
        # of its repeat when that node comes to it.
        auth = (iscsi.auth(known.properties) if known
                else self._in_vain.pop((handle_id, initiator), '')
                or iscsi.new_credentials())
        properties = self._node.exports.export_volume(
            handle_id, initiator, auth, remote=True,
            device=devices.exported_path(self._node, volume))
        try:
            rpc.at(host, remote_attachment.begin_for_home, self._node,
                   volume.id, properties,
                   volume_attachments.of_request(volume))
            devices.note_used(self._node, volume)
        except Exception:
            if not known:
                self._in_vain[handle_id, initiator] = auth
                self._withdraw(volume, initiator)
            raise
        connection['data'].update(properties)
        return connection

    def _withdraw(self, volume: objects.Volume, initiator: str) -> None:
        """Serve a volume no more to whom it was offered in vain."""
        handle_id = rows.handle_id(volume)
        try:
            self._node.exports.withdraw_volume(handle_id, initiator)
            self._node.handles.remove_export_device(handle_id)
        except Exception:  # must not hide why it was in vain
            LOG.exception('Volume %s is still exported, although its '
                          'connection failed; the next periodic check ends '
                          'the export.', volume.id)

    def _end_remote(self, volume: objects.Volume,
                    connector: objects.Connector) -> None:
        """The node of a connector passes a volume through no more.

        A late close is waited for. If it does not come, or the node does not
        answer, the export goes nevertheless: nothing writes to the volume
        from there afterwards, and that node's next look clears up.
        """
        host, known = next(
            (each for each in node.remote_from(self._node, volume)
             if self._node.is_at(connector, each[0])), (None, None))
        if not (host and known) or self._has_another(volume, host):
            return
        try:
            _when_closed(rpc.at, host, remote_attachment.end_one, self._node,
                         volume.id, known.properties['auth_username'])
        except exceptions.LocalCloneError as exc:
            LOG.warning('Volume %(volume)s was detached from %(host)s, which '
                        'could not remove its devices; its next periodic '
                        'check tries again: %(error)s',
                        {'volume': volume.id, 'host': host, 'error': exc})

    def leaves_source(self, move: state.Move | None,
                      connector: objects.Connector | None) -> bool:
        """Whether a detach is that of a live move's source.

        The host that is detached is the one that the guest is not on:
        Cinder's own rows do not tell yet.
        """
        return bool(move and connector and _is_live(move)
                    and not self._node.is_at(connector, move.destination))

    @rpc.method('terminate_connection', rpc.HOME)
    def disconnect(self, volume_id: str, connector: objects.Connector | None,
                   attachments: objects.Attachments) -> None:
        """End a connection of a volume.

        On the home of the volume; on the source of its live move, if that
        is what the guest has left.

        What a host has by another attachment as well it keeps. Nova may ask
        twice, and Cinder deletes the attachment after the first answer: the
        second request may come when the host has the volume by another one,
        and ends nothing then. What it leaves the next periodic check ends.

        :param connector: None (a forced detach) ends all connections
        :param attachments: those that the volume had when Cinder asked
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
            if volume and rows.visible_id(volume):
                # Who copied may be late: the volume itself is served by now.
                if migrate.has_handle(self._node, volume):
                    self._end_exports(rows.handle_id(volume), connector)
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

    def _has_another(self, volume: objects.Volume | None, host: str) -> bool:
        """Whether a node has a volume by two attachments.

        By the names of hosts: two nodes may have one iSCSI name by mistake.
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

    def _close_upper(self, volume: objects.Volume,
                     connector: objects.Connector | None) -> None:
        """What this node has above a volume's handle is not needed any more.

        A late close is waited for. If it does not come, the node's look
        finds what is left.
        """
        here = self._node.host
        if not devices.has_one(volume) or connector and (
                not self._node.is_at(connector, here)
                or self._has_another(volume, here)):
            return
        if (volume.status not in statuses.BY_ATTACHMENT
                and devices.is_used_here(self._node, volume)):
            return  # Cinder has read what a guest uses
        devices.note_detached(self._node, volume)
        try:
            _when_closed(devices.ensure_unopened, self._node,
                         rows.handle_id(volume))
        except exceptions.LocalCloneError as exc:
            LOG.warning('Volume %(volume)s was detached from this node, but '
                        'its header guard stays until nothing has it open: '
                        '%(error)s',
                        {'volume': volume.id, 'error': exc})

    def _source_released(self, move: state.Move) -> None:
        """The guest has left this node; a late close is waited for.

        If it does not come, the detach is done nevertheless: the periodic
        check lets hydration begin when the kernel shows that it may.
        """
        try:
            _when_closed(source.source_released, self._node, move)
        except Exception as exc:  # also of the database, or of privsep
            LOG.warning('Volume %(volume)s was detached from this node, but '
                        'its copy to %(host)s has to wait; the next periodic '
                        'check tries again: %(error)s',
                        {'volume': move.volume_id, 'host': move.destination,
                         'error': exc},
                        exc_info=exceptions.is_unexpected(exc))


def _is_live(move: state.Move) -> bool:
    """Whether both nodes of a live migration may have a volume attached."""
    return move.committed and move.phase is Phase.STARTING


def _is_shared(volume: objects.Volume | None,
               connector: objects.Connector | None) -> bool:
    """Whether an export to a host is that of another attachment, too.

    Cinder deletes the one that is detached only afterwards.
    """
    if volume is None or connector is None:
        return False
    return sum(_is_same_host(connector, each.connector)
               for each in volume.volume_attachment if each.connector) > 1


def _is_same_host(connector: objects.Connector,
                  other: objects.Connector) -> bool:
    """Whether two connectors are one host's, which may have a new name.

    All exports to a host are to its iSCSI name.
    """
    initiators = connector.get('initiator'), other.get('initiator')
    if all(initiators):
        return initiators[0] == initiators[1]
    return connector.get('host') == other.get('host') and not any(initiators)


def _when_closed(act: Callable[..., None], *args: typing.Any) -> None:
    """Act once nothing uses the volume here; wait a bounded time.

    :raises SourceBusy: if it is still used then
    """
    tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(exceptions.SourceBusy),
        stop=tenacity.stop_after_delay(CLOSING), reraise=True,
        wait=tenacity.wait_fixed(0.5))(act, *args)
