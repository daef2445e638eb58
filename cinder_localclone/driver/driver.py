# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface. Each method reads the row, decides, and calls.

To follow a volume, read from ``initialize_connection`` downwards:
:mod:`.connect` answers at the volume's home, :mod:`.decision` chooses how the
volume is exported, :mod:`.moves` moves it, and :mod:`.reconcile` brings each
unfinished step to its end. :mod:`.endpoint` answers other nodes.
:mod:`.assembly` builds everything from the configuration.

For a group of volumes Cinder calls the driver for each volume. The driver
itself checks the group's type, and reports the volumes that it can't delete.
"""

import typing

from cinder import exception
from cinder.i18n import _
from cinder import interface
from cinder.message import message_field
from cinder.objects import fields
from cinder import utils
from cinder.volume import driver
from cinder.volume.drivers import lvm as cinder_lvm
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_log import log as logging

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import objects
from cinder_localclone.core import outcomes
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses
from cinder_localclone.core import version
from cinder_localclone.core import volume_types
from cinder_localclone.driver import extra_specs
from cinder_localclone.driver import front_end
from cinder_localclone.driver import manage
from cinder_localclone.driver import snapshots as image_driver
from cinder_localclone.driver import stats
from cinder_localclone.encryption import policy
from cinder_localclone.moves import destination
from cinder_localclone.service import assembly
from cinder_localclone.service import endpoint
from cinder_localclone.service import messages
from cinder_localclone.service import options
from cinder_localclone.volumes import connect
from cinder_localclone.volumes import create
from cinder_localclone.volumes import delete
from cinder_localclone.volumes import extend
from cinder_localclone.volumes import migrate

LOG = logging.getLogger(__name__)

#: A group of volumes, or a snapshot of one.
Group: typing.TypeAlias = typing.Any
#: What Cinder's manager writes to the row of a group, or of a volume.
Update: typing.TypeAlias = dict[str, str]


class GroupDriver:
    """What the driver is besides :mod:`.driver`: a part of it."""

    #: :meth:`.driver.LocalCloneDriver.delete_volume`
    delete_volume: typing.Callable[[objects.Volume], None]

    def create_group(self, context: object, group: Group) -> typing.NoReturn:
        """Leave it to Cinder.

        :raises NotImplementedError: so that it does
        :raises NotConsistent: if its snapshots are to be of one moment
        """
        _leave_to_cinder(group)

    def delete_group(self, context: object, group: Group,
                     volumes: list[objects.Volume]
                     ) -> tuple[Update, list[Update]]:
        """Delete all volumes of a group, and the group if they are gone.

        Not left to Cinder (``_delete_group_generic`` in
        cinder/volume/manager.py): it would remove the rows of those, too,
        that can't be deleted now, and nobody would name their data any more.

        :returns: what to write to the group's row, and to the volumes'. If
            some can't be deleted now, they are available and the group is in
            error: it can be deleted again, and the rows of those that are
            gone stay until then
        """
        found = {volume.id: self._delete_one(volume) for volume in volumes}
        if set(found.values()) <= {'deleted'}:
            status = group.status
        else:
            status = fields.GroupStatus.ERROR
            found = {volume_id: 'error_deleting' if each == 'deleted' else each
                     for volume_id, each in found.items()}
        return {'status': status}, [{'id': volume_id, 'status': each}
                                    for volume_id, each in found.items()]

    def _delete_one(self, volume: objects.Volume) -> str:
        """The status that a volume has then."""
        try:
            self.delete_volume(volume)
            utils.clean_volume_file_locks(volume.id, self)
        except exception.VolumeIsBusy as exc:
            LOG.warning('The group of volume %(volume)s is not deleted: '
                        '%(error)s', {'volume': volume.id, 'error': exc})
            return 'available'
        except Exception:
            LOG.exception('The group of volume %s is not deleted', volume.id)
            return 'error_deleting'
        return 'deleted'

    def create_group_snapshot(self, context: object, group_snapshot: Group,
                              snapshots: object) -> typing.NoReturn:
        """As :meth:`create_group`: its type may have changed since."""
        _leave_to_cinder(group_snapshot)

    def create_group_from_src(
            self, context: object, group: Group, volumes: object,
            group_snapshot: Group = None, snapshots: object = None,
            source_group: Group = None, source_vols: object = None,
    ) -> typing.NoReturn:
        """As :meth:`create_group`."""
        _leave_to_cinder(group)


@interface.volumedriver
class LocalCloneDriver(image_driver.ImageDriver, manage.ManageDriver,
                       GroupDriver, driver.VolumeDriver):
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
        self.configuration.append_config_values(options.localclone_opts)
        self.backend_name = (
            self.configuration.safe_get('volume_backend_name')
            or 'localclone')
        self._assembled = False
        self._server: typing.Any = None
        self._loops: list[typing.Any] = []

    @staticmethod
    def get_driver_options() -> list[cfg.Opt]:
        """All options of a backend section that uses this driver."""
        return [*options.localclone_opts, *cinder_lvm.volume_opts]

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
            self.service.node.interrupted.end_interrupted(self.host)
        # Peers are asked later: at start there may be none.
        self.service.reconciler.reconcile_node(moves=False)
        if self._server is None:
            assembly.pause_at_end(self.service)
            self._server = endpoint.start_server(self.service)
            self._loops = assembly.start_loops(
                self.service, self.configuration)

    # -- volumes

    def create_volume(self, volume: objects.Volume) -> None:
        """Create an LV and its handle, or the destination of a move.

        Or what Cinder's own migration copies into: :mod:`.migrate`.

        :raises EncryptionUnsupported: for a type whose encryption there is
            none of; its owner is told
        :raises InvalidEncryptionType: for one of which no volume can be
        """
        node = self.service.node
        if move_record.is_move_record(volume):
            move = node.moves.get_move(volume.id)
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
                migrate.create_copy(node, volume)
                return
            if header:
                create.create_for_nova(node, volume, header)
                return
            wanted = policy.wanted(node, volume)
            if wanted:
                create.create_encrypted(node, volume, wanted)
                return
        except exceptions.LocalCloneError as exc:
            messages.tell_owner(
                volume._context, rows.handle_id(volume), exc,
                messages.MOVE if is_copy else
                message_field.Action.CREATE_VOLUME_FROM_BACKEND,
                outcomes.NOT_MOVED if is_copy else outcomes.CREATE_FAILED)
            raise
        create.create(node, volume)

    def delete_volume(self, volume: objects.Volume) -> None:
        """Remove all of a volume, on both nodes if it is moving.

        What is gone already is done. An LV that could not be managed is left
        as it was. A shadow is never deleted here: it
        goes with its move. See :func:`.delete.delete`; for one that could
        not be created, :func:`.create.give_up`.

        :raises CannotDelete: if something uses it; it is available again
        :raises LocalCloneError: if it can't be removed; its owner is told
            why
        """
        if move_record.is_move_record(volume):
            raise exceptions.NotPossible(
                volume=volume.id, reason='it records a move and can\'t be '
                'deleted: it is removed when the move has ended.')
        if not volume.host:
            create.give_up(self.service.node, volume)
            return
        try:
            # The volume that comes with the call may have moved since.
            recorded = self.service.node.volumes.volume(volume.id)
            if recorded is not None:
                rpc.at_home(delete.delete, self.service.node, recorded)
        except Exception as exc:
            messages.tell_owner(
                volume._context, volume.id, exceptions.cause(exc),
                messages.DELETE, outcomes.DELETE_FAILED)
            raise

    def extend_volume(self, volume: objects.Volume, new_size: int) -> None:
        """Extend a volume at its home, wherever that is by now.

        See :func:`.extend.extend`.

        :param new_size: GiB
        :raises LocalCloneError: if it can't be; its owner is told why
        """
        service = self.service
        try:
            home = extend.extend(service.reconciler, volume.id, new_size)
            if home != service.node.host:
                extend.extend_at(
                    service.reconciler, home, volume.id, new_size)
        except Exception as exc:  # of whatever kind
            messages.tell_owner(
                volume._context, volume.id, exc,
                message_field.Action.EXTEND_VOLUME, outcomes.NOT_EXTENDED)
            raise

    def migrate_volume(self, context: objects.Context, volume: objects.Volume,
                       host: dict[str, typing.Any]
                       ) -> tuple[bool, dict[str, typing.Any] | None]:
        """To a node of this backend: a move. To another: Cinder copies.

        Its owner, who may have asked for another type, is told what keeps it
        from that. See :func:`.migrate.migrate`.
        """
        try:
            return migrate.migrate(
                self.service.node, volume.id, host)
        except Exception as exc:  # of whatever kind
            messages.tell_owner(
                context, volume.id, exc, messages.MOVE, outcomes.NOT_MOVED)
            raise

    def update_migrated_volume(
            self, ctxt: objects.Context, volume: objects.Volume,
            new_volume: objects.Volume, original_volume_status: str) -> dict[
                str, str | None]:
        """Where Cinder's copy is; its handle has the right name already.

        The LV keeps its name, as after any move.
        """
        return {'_name_id': new_volume.id, 'provider_location': None}

    def retype(self, context: objects.Context, volume: objects.Volume,
               new_type: typing.Any, diff: dict[str, typing.Any],
               host: dict[str, typing.Any]
               ) -> tuple[bool, dict[str, typing.Any]]:
        """See :func:`.migrate.retype`.

        After an error Cinder tries to copy the volume, which :mod:`.migrate`
        refuses then.
        """
        try:
            return migrate.retype(self.service.node, volume.id,
                                  new_type.extra_specs or {})
        except encryption_exceptions.EncryptionChange as exc:
            messages.tell_owner(context, volume.id, exc, messages.MOVE)
            raise

    def local_path(self, volume: objects.Volume) -> str:
        """The handle: never the LV, which may lack what is not local yet."""
        return names.handle_path(rows.handle_id(volume))

    # -- connections

    def validate_connector(self, connector: objects.Connector) -> None:
        """A connector must name a host or an address.

        :raises InvalidConnectorException: if it does not
        """
        if not (connector.get('host') or connector.get('ip')):
            raise exception.InvalidConnectorException(missing='host')

    def initialize_connection(self, volume: objects.Volume,
                              connector: objects.Connector
                              ) -> dict[str, typing.Any]:
        """Serve a volume to a host: locally, by moving it, or remotely.

        The row that comes with the call may be stale: another node may be
        the volume's home by now. Whoever is asked hands the call on. See
        :meth:`.connect.Connections.connect`.

        :returns: connection properties for os-brick
        :raises VolumeNotFound: if it is gone
        :raises LocalCloneError: if it can't be served; its owner is told why
        """
        context = volume._context
        node = self.service.node
        recorded = node.volumes.volume(volume.id)
        if recorded is None:
            raise exception.VolumeNotFound(volume_id=volume.id)
        # As Cinder asked: Nova may have given the attachment up, and made
        # another, while the request waited.
        attachments = volume_attachments.of_request(volume)
        own = volume_attachments.unsent(volume, recorded, connector)
        if own:
            attachments = {**attachments, own: None}
        try:
            return rpc.at_home(
                connect.Connections.connect, self.service.connections,
                recorded,
                connector, attachments)
        except Exception as exc:  # of whatever kind
            messages.tell_owner(context, volume.id, exc)
            if own and volume.status in statuses.USED_BY_NOVA:
                node.attachments.drop_attachment(volume.id, own)
            raise

    def terminate_connection(self, volume: objects.Volume,
                             connector: objects.Connector | None,
                             **kwargs: typing.Any) -> None:
        """End what initialize_connection began.

        A local connection leaves nothing to end: the handle stays, and a
        move that was committed goes on to its end, because what the guest
        has written since is nowhere else.

        During a live migration it is the signal: the host that is detached
        is the one that the guest is not on. Whoever has to act is asked. See
        :meth:`.connect.Connections.disconnect`.

        A volume that is gone has no connection: they ended when it was
        deleted.

        :param connector: None (a forced detach) ends all connections
        :raises LocalCloneError: if whoever has to act can't
        """
        node = self.service.node
        # Read by Cinder's manager, which has found the attachment.
        attachments = volume_attachments.of_request(volume)
        recorded = node.volumes.volume(volume.id)
        if recorded is None:
            LOG.info('Volume %s does not exist any more, and has no '
                     'connections.',
                     volume.id)
            return
        where = names.service_host(recorded.host)
        move = node.moves.move_of(volume.id)
        from_source = self.service.connections.leaves_source(move, connector)
        if move and from_source:
            where = move.source
        try:
            rpc.at(where, connect.Connections.disconnect,
                   self.service.connections, volume.id, connector,
                   attachments)
        except exceptions.PeerUnreachable as exc:
            if not from_source:
                raise
            LOG.warning('Could not tell %(host)s that volume %(volume)s was '
                        'detached there; the next periodic check of that host '
                        'removes its devices: %(error)s',
                        {'host': where, 'volume': volume.id, 'error': exc})

    # Exports belong to connections, not to volumes.

    def create_export(self, context: objects.Context, volume: objects.Volume,
                      connector: objects.Connector) -> None:
        """Nothing: see initialize_connection."""

    def ensure_export(self, context: objects.Context,
                      volume: objects.Volume) -> None:
        """Nothing: see check_for_setup_error."""

    def remove_export(self, context: objects.Context,
                      volume: objects.Volume) -> None:
        """Nothing: see terminate_connection."""

    # -- what there is

    def get_default_goodness_function(self) -> str:
        """The share of the room that is free."""
        return stats.GOODNESS

    def _init_vendor_properties(self) -> tuple[dict[str, typing.Any], str]:
        """Return the extra specs that the driver reads, and their prefix."""
        found: dict[str, typing.Any] = {}
        for name, each in extra_specs.EXTRA_SPECS.items():
            self._set_property(
                found, volume_types.PREFIX + name, each.title,
                each.description, each.type, **each.limits)
        return found, volume_types.PREFIX.rstrip(':')

    def _update_volume_stats(self) -> None:
        """Capacity, and what the scheduler must know, as one pool.

        While this node can't serve volumes there is none to be had.
        """
        conf = self.configuration
        condition = self.service.condition()
        if condition.outage:
            events.say(events.OUTAGE, problem=condition.outage)
        thin = bool(self.service.lvm.pool)
        self._stats = stats.stats(
            self.backend_name, self.VERSION, thin, stats.pool(
                self.backend_name, 'LocalCloneDriver:%s:%s' % (
                    self.host, conf.volume_group), thin, condition.capacity,
                condition.outage, self.service.obstacles(condition), {
                    'reserved_percentage': conf.reserved_percentage,
                    'max_over_subscription_ratio':
                        conf.max_over_subscription_ratio,
                    'online_extend_support':
                        conf.localclone_enable_online_extend,
                    'filter_function': self.get_filter_function(),
                    'goodness_function': self.get_goodness_function()},
                self.service.block))


class NotConsistent(exceptions.LocalCloneError):
    """A group whose volumes' snapshots would have to be of one moment."""

    problem = _('Group %(group)s is of a type with '
                'consistent_group_snapshot_enabled, and this backend takes '
                'the snapshots of a group\'s volumes one after the other.')
    outcome = outcomes.Outcome.UNCHANGED
    remedy = _('Choose a group type without it.')


def _leave_to_cinder(group: Group) -> typing.NoReturn:
    if volume_utils.is_group_a_cg_snapshot_type(group):
        raise NotConsistent(group=group.id)
    raise NotImplementedError()
