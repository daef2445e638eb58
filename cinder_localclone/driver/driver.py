# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface. Each method re-reads, decides, calls one room.

The way a volume takes is read here from ``initialize_connection`` downwards:
:mod:`.connections` answers at the volume's home, :mod:`.decision` says where
it is served, :mod:`.moves` moves it, :mod:`.reconcile` brings whatever was
begun to its end. :mod:`.handlers` is what the nodes ask of each other,
:mod:`.assembly` builds all of it from the configuration.
"""

import typing

from cinder import exception
from cinder import interface
from cinder.message import message_field
from cinder.volume import driver
from cinder.volume.drivers import lvm as cinder_lvm
from oslo_config import cfg
from oslo_log import log as logging

from cinder_localclone import assembly
from cinder_localclone import capabilities
from cinder_localclone import copies
from cinder_localclone import creation
from cinder_localclone import decision
from cinder_localclone import deletion
from cinder_localclone import deletion_errors
from cinder_localclone import encryption
from cinder_localclone import encryption_errors
from cinder_localclone import events
from cinder_localclone import exceptions
from cinder_localclone import extending
from cinder_localclone import front_end
from cinder_localclone import group_driver
from cinder_localclone import handlers
from cinder_localclone import image_driver
from cinder_localclone import late_requests
from cinder_localclone import manage_driver
from cinder_localclone import messages
from cinder_localclone import migration
from cinder_localclone import migration_records
from cinder_localclone.moves import destination
from cinder_localclone import names
from cinder_localclone import opts
from cinder_localclone import peer
from cinder_localclone import ports
from cinder_localclone import records
from cinder_localclone import rows
from cinder_localclone import version

LOG = logging.getLogger(__name__)


@interface.volumedriver
class LocalCloneDriver(image_driver.ImageDriver, manage_driver.ManageDriver,
                       group_driver.GroupDriver, driver.VolumeDriver):
    """Node-local LVM volumes that follow their instances.

    Version history:

    .. code-block:: none

        0.1.0 - Volumes move to the node they are attached on.
                Snapshots, and volumes made of them and of volumes.
    """

    VERSION = version.version_string()
    CI_WIKI_NAME = 'None'  # out of Cinder's tree

    #: The rooms behind this interface, once they are assembled.
    service: assembly.Service

    def __init__(self, *args: typing.Any, **kwargs: typing.Any):
        super().__init__(*args, **kwargs)
        self.configuration.append_config_values(cinder_lvm.volume_opts)
        self.configuration.append_config_values(opts.localclone_opts)
        self.backend_name = (
            self.configuration.safe_get('volume_backend_name')
            or 'localclone')
        self._assembled = False
        self._server: typing.Any = None
        self._loops: list[typing.Any] = []

    @staticmethod
    def get_driver_options() -> list[cfg.Opt]:
        """All options of a backend section that uses this driver."""
        return opts.localclone_opts + cinder_lvm.volume_opts

    # -- start

    def check_for_setup_error(self) -> None:
        """Check what is needed, restore what is here, start to serve.

        Cinder may call this up to four times; what runs is not started
        twice.

        :raises VolumeBackendAPIException: if volumes cannot be served at
            all: no volume group
        :raises InvalidConfigurationValue: if an option can't be right
        :raises LocalCloneError: if device-mapper or LVM fails
        """
        if not self._assembled:
            group = assembly.open_group(self.configuration, self._execute)
            self.service = assembly.assemble(
                self.configuration, self.host, self.backend_name,
                group.vg_thin_pool)
            self._assembled = True
        self.service.check()
        if self._server is None:  # no call of Cinder's manager runs yet
            migration_records.MigrationRecords().end_interrupted(self.host)
        # Peers are asked later: at start there may be none.
        self.service.reconciler.converge_node(moves=False)
        if self._server is None:
            assembly.pause_at_end(self.service)
            self._server = peer.start_server(
                self.host, handlers.Handlers(self.service))
            self._loops = assembly.start_loops(
                self.service, self.configuration)

    # -- volumes

    def create_volume(self, volume: ports.Volume) -> None:
        """Create an LV and its handle, or the destination of a move.

        Or what Cinder's own migration copies into: :mod:`.copies`.

        :raises EncryptionUnsupported: for a type whose encryption there is
            none of; its owner is told
        :raises InvalidEncryptionType: for one of which no volume can be
        """
        node = self.service.node
        if records.is_shadow(volume):
            move = node.records.get_move(volume.id)
            if move is None:
                raise exceptions.StaleMove(
                    volume='of move record ' + volume.id)
            destination.prepare(node, volume.id, move.token.nonce)
            return
        is_copy = rows.visible_id(volume)
        try:
            header = front_end.wanted(node, volume)
            if is_copy:
                front_end.check_copy(node, volume, rows.handle_id(volume))
                copies.create(node, volume)
                return
            if header:
                front_end.create(node, volume, header)
                return
            wanted = encryption.wanted(node, volume)
            if wanted:
                encryption.create(node, volume, wanted)
                return
        except exceptions.LocalCloneError as exc:
            messages.tell_owner(
                volume._context, rows.handle_id(volume), exc,
                messages.MOVE if is_copy else
                message_field.Action.CREATE_VOLUME_FROM_BACKEND,
                'NOT_MOVED' if is_copy else 'CREATE_FAILED')
            raise
        creation.create(node, volume)

    def delete_volume(self, volume: ports.Volume) -> None:
        """Remove all of a volume, on both nodes if it is moving.

        What is gone already is done. An LV that could not be managed is left
        as it was. A shadow is never deleted here: it
        goes with its move. See :func:`.deletion.delete`; for one that could
        not be created, :func:`.creation.give_up`.

        :raises CannotDelete: if something uses it; it is available again
        :raises LocalCloneError: if it can't be removed; its owner is told
            why
        """
        if records.is_shadow(volume):
            raise exceptions.NotPossible(
                volume=volume.id, reason='it records a move and can\'t be '
                'deleted: it is removed when the move has ended.')
        if not volume.host:
            creation.give_up(self.service.node, volume)
            return
        try:
            deletion.delete(self.service.node,
                            self.service.reconciler.context, volume)
        except Exception as exc:
            messages.tell_owner(
                volume._context, volume.id, deletion_errors.cause(exc),
                messages.DELETE, 'DELETE_FAILED')
            raise

    def extend_volume(self, volume: ports.Volume, new_size: int) -> None:
        """Extend a volume at its home, wherever that is by now.

        See :func:`.extending.extend`.

        :param new_size: GiB
        :raises LocalCloneError: if it can't be; its owner is told why
        """
        service = self.service
        try:
            home = extending.extend(service.reconciler, volume.id, new_size)
            if home != service.node.host:
                extending.extend_at(
                    service.reconciler, home, volume.id, new_size)
        except Exception as exc:  # of whatever kind
            messages.tell_owner(
                volume._context, volume.id, exc,
                message_field.Action.EXTEND_VOLUME, 'NOT_EXTENDED')
            raise

    def migrate_volume(self, context: ports.Context, volume: ports.Volume,
                       host: dict[str, typing.Any]
                       ) -> tuple[bool, dict[str, typing.Any] | None]:
        """To a node of this backend: a move. To another: Cinder copies.

        Its owner, who may have asked for another type, is told what keeps it
        from that. See :func:`.migration.migrate`.
        """
        try:
            return migration.migrate(
                self.service.node, context, volume.id, host)
        except Exception as exc:  # of whatever kind
            messages.tell_owner(
                context, volume.id, exc, messages.MOVE, 'NOT_MOVED')
            raise

    def update_migrated_volume(self, ctxt: ports.Context,
                               volume: ports.Volume, new_volume: ports.Volume,
                               original_volume_status: str
                               ) -> dict[str, str | None]:
        """Where Cinder's copy is; its handle has the right name already.

        The LV keeps its name, as after any move.
        """
        return {'_name_id': new_volume.id, 'provider_location': None}

    def retype(self, context: ports.Context, volume: ports.Volume,
               new_type: typing.Any, diff: dict[str, typing.Any],
               host: dict[str, typing.Any]
               ) -> tuple[bool, dict[str, typing.Any]]:
        """See :func:`.migration.retype`.

        After an error Cinder tries to copy the volume, which :mod:`.copies`
        refuses then.
        """
        try:
            return migration.retype(self.service.node, volume.id,
                                    new_type.extra_specs or {})
        except encryption_errors.EncryptionChange as exc:
            messages.tell_owner(context, volume.id, exc, messages.MOVE)
            raise

    def local_path(self, volume: ports.Volume) -> str:
        """The handle: never the LV, which may lack what is not local yet."""
        return names.handle_path(rows.handle_id(volume))

    # -- connections

    def validate_connector(self, connector: ports.Connector) -> None:
        """A connector must name a host or an address.

        :raises InvalidConnectorException: if it does not
        """
        if not (connector.get('host') or connector.get('ip')):
            raise exception.InvalidConnectorException(missing='host')

    def initialize_connection(self, volume: ports.Volume,
                              connector: ports.Connector
                              ) -> dict[str, typing.Any]:
        """Serve a volume to a host: locally, by moving it, or remotely.

        The row that comes with the call may be stale: another node may be
        the volume's home by now. Whoever is asked hands the call on. See
        :meth:`.connections.Connections.serve`.

        :returns: connection properties for os-brick
        :raises VolumeNotFound: if it is gone
        :raises LocalCloneError: if it can't be served; its owner is told why
        """
        context = volume._context
        node = self.service.node
        recorded = node.records.volume(volume.id)
        if recorded is None:
            raise exception.VolumeNotFound(volume_id=volume.id)
        # As Cinder asked: Nova may have given the attachment up, and made
        # another, while the request waited.
        attachments = late_requests.attachments(volume)
        own = late_requests.unsent(volume, recorded, connector)
        if own:
            attachments = {**attachments, own: None}
        try:
            try:
                return self._serve(context, recorded, connector, attachments)
            except exceptions.StaleMove:
                # Meanwhile it has followed its instance elsewhere.
                moved = node.records.volume(volume.id)
                if moved is None or moved.host == recorded.host:
                    raise
                return self._serve(context, moved, connector, attachments)
        except Exception as exc:  # of whatever kind
            messages.tell_owner(context, volume.id, exc)
            if own and volume.status in decision.NOVA_STATUSES:
                node.records.drop_attachment(volume.id, own)
            raise

    def _serve(self, context: ports.Context, recorded: ports.Volume,
               connector: ports.Connector, attachments: ports.Attachments
               ) -> dict[str, typing.Any]:
        """Have a volume served by the home that its row says."""
        home = names.service_host(recorded.host)
        if home != self.host:
            return self.service.node.peers.initialize_connection(
                context, home, recorded.id, connector, attachments)
        return self.service.connections.serve(
            context, recorded.id, connector, attachments)

    def terminate_connection(self, volume: ports.Volume,
                             connector: ports.Connector | None,
                             **kwargs: typing.Any) -> None:
        """End what initialize_connection began.

        A local connection leaves nothing to end: the handle stays, and a
        move that was committed goes on to its end, because what the guest
        has written since is nowhere else.

        During a live migration it is the signal: the host that is detached
        is the one that the guest is not on. Whoever has to act is asked. See
        :meth:`.connections.Connections.unserve`.

        A volume that is gone has no connection: they ended when it was
        deleted.

        :param connector: None (a forced detach) ends all connections
        :raises LocalCloneError: if whoever has to act can't
        """
        node = self.service.node
        # Read by Cinder's manager, which has found the attachment.
        attachments = late_requests.attachments(volume)
        recorded = node.records.volume(volume.id)
        if recorded is None:
            LOG.info('Volume %s does not exist any more, and has no '
                     'connections.',
                     volume.id)
            return
        where = names.service_host(recorded.host)
        move = node.records.move_of(volume.id)
        from_source = self.service.connections.leaves_source(move, connector)
        if move and from_source:
            where = move.source
        if where == self.host:
            self.service.connections.unserve(
                volume._context, volume.id, connector, attachments)
            return
        try:
            node.peers.terminate_connection(
                volume._context, where, volume.id, connector, attachments)
        except exceptions.PeerUnreachable as exc:
            if not from_source:
                raise
            LOG.warning('Could not tell %(host)s that volume %(volume)s was '
                        'detached there; the next periodic check of that host '
                        'removes its devices: %(error)s',
                        {'host': where, 'volume': volume.id, 'error': exc})

    # Exports belong to connections, not to volumes.

    def create_export(self, context: ports.Context, volume: ports.Volume,
                      connector: ports.Connector) -> None:
        """Nothing: see initialize_connection."""

    def ensure_export(self, context: ports.Context,
                      volume: ports.Volume) -> None:
        """Nothing: see check_for_setup_error."""

    def remove_export(self, context: ports.Context,
                      volume: ports.Volume) -> None:
        """Nothing: see terminate_connection."""

    # -- what there is

    def get_default_goodness_function(self) -> str:
        """The share of the room that is free."""
        return capabilities.GOODNESS

    def _update_volume_stats(self) -> None:
        """Capacity, and what the scheduler must know, as one pool.

        While this node can't serve volumes there is none to be had.
        """
        conf = self.configuration
        look = self.service.look()
        if look.outage:
            events.say(events.OUTAGE, problem=look.outage)
        thin = bool(self.service.stack.pool)
        self._stats = capabilities.stats(
            self.backend_name, self.VERSION, thin, capabilities.pool(
                self.backend_name, 'LocalCloneDriver:%s:%s' % (
                    self.host, conf.volume_group), thin, look.capacity,
                look.outage, self.service.obstacles(look), {
                    'reserved_percentage': conf.reserved_percentage,
                    'max_over_subscription_ratio':
                        conf.max_over_subscription_ratio,
                    'online_extend_support': conf.localclone_online_extend,
                    'filter_function': self.get_filter_function(),
                    'goodness_function': self.get_goodness_function()},
                self.service.block))
