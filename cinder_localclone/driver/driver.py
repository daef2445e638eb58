# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface. The work is done by the modules called here.

A volume object from Cinder may be stale. So most methods read its row again,
and call the volume's present home.

To trace a volume, read from ``initialize_connection`` downwards:
:mod:`.connect` answers at the volume's home, :mod:`.decision` chooses how the
volume is exported, :mod:`.moves` moves it, and :mod:`.reconcile` completes
each unfinished step. :mod:`.endpoint` answers other nodes. :mod:`.assembly`
builds all objects from the configuration.

Cinder's own code handles groups: it calls the driver for each volume of a
group. The driver only refuses groups with consistent snapshots, and deletes
the volumes of a group itself.
"""

import typing

from cinder import exception
from cinder.i18n import _
from cinder import interface
from cinder.objects import fields
from cinder import utils
from cinder.volume import driver
from cinder.volume.drivers import lvm as cinder_lvm
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_log import log as logging

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import objects
from cinder_localclone.core import outcomes
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses
from cinder_localclone.core.user_messages import Action
from cinder_localclone.core import version
from cinder_localclone.core.volume import Row
from cinder_localclone.core.volume import Volume
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

#: A group of volumes, or a group snapshot.
Group: typing.TypeAlias = typing.Any
#: Columns for Cinder's manager to write to the row of a group or volume.
Update: typing.TypeAlias = dict[str, str]


class GroupDriver:
    """The methods of the driver for groups."""

    #: :meth:`.driver.LocalCloneDriver.delete_volume`
    delete_volume: typing.Callable[[objects.Volume], None]

    def create_group(self, context: object, group: Group) -> typing.NoReturn:
        """Check the group's type, and let Cinder's own code do the rest.

        :raises NotImplementedError: always, so that Cinder creates the group
        :raises NotConsistent: if the type asks for consistent snapshots
        """
        _leave_to_cinder(group)

    def delete_group(self, context: object, group: Group,
                     volumes: list[objects.Volume]
                     ) -> tuple[Update, list[Update]]:
        """Delete the volumes of a group, and the group if all were deleted.

        Cinder's own code (``_delete_group_generic`` in
        cinder/volume/manager.py) would also remove the rows of volumes that
        can't be deleted now, and no row would name their data any more.

        :returns: updates of the group's row and of the volumes' rows. If some
            volumes can't be deleted now, the group gets the status "error",
            and a user can delete it again. Until then the rows of the deleted
            volumes stay, with the status "error_deleting"
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
        """Delete a volume of a group; log any error.

        :returns: its new status: "deleted"; "available" if it is in use; or
            "error_deleting"
        """
        try:
            self.delete_volume(volume)
            utils.clean_volume_file_locks(volume.id, self)
        except exception.VolumeIsBusy as exc:
            LOG.warning('Volume %(volume)s could not be deleted, so its '
                        'group was not deleted: %(error)s',
                        {'volume': volume.id, 'error': exc})
            return 'available'
        except Exception:
            LOG.exception('Volume %s could not be deleted, so its group '
                          'was not deleted.', volume.id)
            return 'error_deleting'
        return 'deleted'

    def create_group_snapshot(self, context: object, group_snapshot: Group,
                              snapshots: object) -> typing.NoReturn:
        """Do the same as :meth:`create_group`; the type may have changed."""
        _leave_to_cinder(group_snapshot)

    def create_group_from_src(
            self, context: object, group: Group, volumes: object,
            group_snapshot: Group = None, snapshots: object = None,
            source_group: Group = None, source_vols: object = None,
    ) -> typing.NoReturn:
        """Do the same as :meth:`create_group`."""
        _leave_to_cinder(group)


@interface.volumedriver
class LocalCloneDriver(image_driver.ImageDriver, manage.ManageDriver,
                       GroupDriver, driver.VolumeDriver):
    """Node-local LVM volumes; each moves to the node of its instance.

    Version history:

    .. code-block:: none

        0.1.0 - Volumes move to the node they are attached on.
                Snapshots and local clones.
    """

    VERSION = version.VERSION
    CI_WIKI_NAME = 'None'  # out of Cinder's tree

    #: All objects of the service, once they are assembled.
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
        """Return all options of a backend section with this driver."""
        return [*options.localclone_opts, *cinder_lvm.volume_opts]

    # -- start

    def check_for_setup_error(self) -> None:
        """Check the requirements, restore the volumes, start the service.

        Cinder may call this up to four times; running parts are not started
        twice.

        :raises VolumeBackendAPIException: if the backend can't work at all: no
            volume group
        :raises InvalidConfigurationValue: if an option is invalid
        :raises LocalCloneError: if device-mapper or LVM fails
        """
        if not self._assembled:
            group = assembly.open_group(self.configuration, self._execute)
            self.service = assembly.assemble(
                self.configuration, self.host, self.backend_name,
                group.vg_thin_pool)
            self._assembled = True
        self.service.check()
        # Only before the start: later Cinder's manager has calls under way.
        if self._server is None:
            node = self.service.node
            # A former service in a row, as after a new name of this node,
            # would pass for one that still migrates the volume.
            node.volumes.correct_services(self.host, node.lvm.lvs())
            node.interrupted.end_interrupted(self.host)
        # Peers are asked later: at start none may be up.
        self.service.reconciler.reconcile_node(moves=False)
        if self._server is None:
            assembly.pause_at_end(self.service)
            self._server = endpoint.start_server(self.service)
            self._loops = assembly.start_loops(
                self.service, self.configuration)

    # -- volumes

    def create_volume(self, volume: objects.Volume) -> None:
        """Create an LV and its handle, for one of four kinds of volume.

        - a move record: the destination of a move; see :mod:`.destination`
        - the destination of Cinder's own migration; see :mod:`.migrate`
        - an encrypted volume, encrypted by Nova or by the driver
        - any other volume; see :mod:`.create`

        :raises EncryptionUnsupported: if Nova can't encrypt the volume as its
            type asks; the owner is told
        :raises InvalidEncryptionType: if the driver can't encrypt the volume
            as its type asks; the owner is told
        """
        node, new = self.service.node, Volume.of(volume)
        if move_record.is_move_record(new):
            move = node.moves.get_move(new.id)
            if move is None:
                raise exceptions.StaleMove(volume='of move record ' + new.id)
            destination.prepare(node, new.id, move.token.nonce)
            return
        is_copy = new.visible_id
        try:
            header = front_end.wanted(node, new)
            if is_copy:
                front_end.check_copy(node, new, new.handle_id)
                migrate.create_copy(node, new)
                return
            if header:
                create.create_for_nova(node, volume._context, new, header)
                return
            wanted = policy.wanted(node, new)
            if wanted:
                create.create_encrypted(node, new.id, wanted)
                return
            create.create(node, new.id)
        except exceptions.LocalCloneError as exc:
            messages.tell_member(
                volume._context, new.handle_id, exc,
                Action.MOVE if is_copy else Action.CREATE)
            raise

    def delete_volume(self, volume: objects.Volume) -> None:
        """Remove a volume with all its parts, on both nodes if it is moving.

        A missing part is no error. An LV that could not be managed is left as
        it was. A move record is never deleted here: it goes with its move. See
        :func:`.delete.delete`, and :func:`.create.give_up` for a volume whose
        creation failed.

        :raises CannotDelete: if the volume is in use; it is available again
        :raises LocalCloneError: if it can't be removed; the owner is told why
        """
        if move_record.is_move_record(volume):
            raise exceptions.NotPossible(
                volume=volume.id, reason='it is the record of a move and '
                'can\'t be deleted. The driver removes it when the move has '
                'ended.')
        if not volume.host:
            create.give_up(self.service.node, Volume.of(volume))
            return
        with messages.telling_of(Action.DELETE, volume):
            # The volume in the call may have moved since.
            recorded = self.service.node.volumes.volume(volume.id)
            if recorded is not None:
                rpc.call_at_home(delete.delete, self.service.node, recorded)

    def extend_volume(self, volume: objects.Volume, new_size: int) -> None:
        """Extend a volume at its present home; see :func:`.extend.extend`.

        If this node is not the home, the first call changes nothing, and
        returns the home for the second call.

        :param new_size: GiB
        :raises LocalCloneError: if it can't be extended; the owner is told why
        """
        service = self.service
        with messages.telling_of(Action.EXTEND, volume):
            home = extend.extend(service.reconciler, volume.id, new_size)
            if home != service.node.host:
                extend.extend_at(
                    service.reconciler, home, volume.id, new_size)

    def migrate_volume(self, context: objects.Context, volume: objects.Volume,
                       host: dict[str, typing.Any]
                       ) -> tuple[bool, dict[str, typing.Any] | None]:
        """Move a volume to a node of this backend, or let Cinder copy it.

        Cinder copies a volume to any other backend. If the migration fails,
        the owner is told why: a user's retype may have caused it. See
        :func:`.migrate.migrate`.
        """
        with messages.telling_of(Action.MOVE, volume, context):
            return migrate.migrate(
                self.service.node, volume.id, host)

    def update_migrated_volume(
            self, ctxt: objects.Context, volume: objects.Volume,
            new_volume: objects.Volume, original_volume_status: str) -> dict[
                str, str | None]:
        """Record the LV of Cinder's copy as the LV of the migrated volume.

        The LV is not renamed, as after any move. The handle already has the
        name of the migrated volume.

        :returns: updates of the volume's row: ``_name_id`` is the id in the
            LV's name
        """
        return {'_name_id': new_volume.id, 'provider_location': None}

    def retype(self, context: objects.Context, volume: objects.Volume,
               new_type: typing.Any, diff: dict[str, typing.Any],
               host: dict[str, typing.Any]
               ) -> tuple[bool, dict[str, typing.Any]]:
        """Retype a volume; see :func:`.migrate.retype`.

        After an error Cinder tries to copy the volume, if the request allows
        it; :mod:`.migrate` then refuses the copy of an encrypted volume.
        """
        with messages.telling_of(Action.RETYPE, volume, context):
            return migrate.retype(self.service.node, volume.id,
                                  new_type.extra_specs or {})

    def local_path(self, volume: objects.Volume) -> str:
        """Return the path of the handle.

        The path of the LV would be wrong: during a move the LV lacks the
        regions not yet copied.
        """
        return names.handle_path(Row.of(volume).handle_id)

    # -- connections

    def validate_connector(self, connector: objects.Connector) -> None:
        """Check that a connector names a host or an address.

        :raises InvalidConnectorException: if it does not
        """
        if not (connector.get('host') or connector.get('ip')):
            raise exception.InvalidConnectorException(missing='host')

    def initialize_connection(self, volume: objects.Volume,
                              connector: objects.Connector
                              ) -> dict[str, typing.Any]:
        """Connect a volume to a host: locally, by a move, or remotely.

        The volume in the call may be stale: another node may be its home by
        now. The call is then handed on to this home. See
        :meth:`.connect.Connections.connect`.

        :returns: connection properties for os-brick
        :raises VolumeNotFound: if the volume is gone
        :raises LocalCloneError: if it can't be connected; the owner is told
            why
        """
        context = volume._context
        node = self.service.node
        recorded = node.volumes.volume(volume.id)
        if recorded is None:
            raise exception.VolumeNotFound(volume_id=volume.id)
        # The attachments at the time of the request: Nova may have given up
        # the attachment, and created another, while the request waited.
        asked = Volume.of(volume)
        attachments = volume_attachments.as_sent(asked)
        own = volume_attachments.own_unsent(asked, recorded, connector)
        if own:
            attachments = {**attachments, own: None}
        try:
            return rpc.call_at_home(
                connect.Connections.connect, self.service.connections,
                recorded, connector, attachments)
        except Exception as exc:  # of any kind
            messages.tell_member(context, volume.id, exc, Action.ATTACH)
            if own and volume.status in statuses.USED_BY_NOVA:
                node.attachments.drop_attachment(volume.id, own)
            raise

    def terminate_connection(self, volume: objects.Volume,
                             connector: objects.Connector | None,
                             **kwargs: typing.Any) -> None:
        """End a connection of a volume to a host.

        A local connection has nothing to end: the handle stays. A committed
        move continues to its end, because only the destination has the guest's
        latest writes.

        The volume's home is called. But in a live move, a detach of any host
        except the destination shows that the guest has left the source. Then
        the source is called. See :meth:`.connect.Connections.disconnect`.

        A deleted volume has no connections any more.

        :param connector: None (a forced detach) ends all connections
        :raises LocalCloneError: if the called node can't end the connection
        """
        node = self.service.node
        # The attachments at the time of the request: Cinder's manager has read
        # the volume a moment ago, to find the attachment.
        attachments = volume_attachments.as_sent(Volume.of(volume))
        recorded = node.volumes.volume(volume.id)
        if recorded is None:
            LOG.info('Volume %s does not exist any more. It has no '
                     'connection to end.', volume.id)
            return
        where = recorded.home
        move = node.moves.move_of(volume.id)
        from_source = self.service.connections.leaves_source(move, connector)
        if move and from_source:
            where = move.source
        try:
            rpc.call_at(where, connect.Connections.disconnect,
                        self.service.connections, volume.id, connector,
                        attachments)
        except exceptions.PeerUnreachable as exc:
            if not from_source:
                raise
            LOG.warning('%(host)s did not answer when volume %(volume)s was '
                        'detached there. The next periodic check of %(host)s '
                        'removes the devices of the volume: %(error)s',
                        {'host': where, 'volume': volume.id, 'error': exc})

    # Exports belong to connections, not to volumes.

    def create_export(self, context: objects.Context, volume: objects.Volume,
                      connector: objects.Connector) -> None:
        """Do nothing; see :meth:`initialize_connection`."""

    def ensure_export(self, context: objects.Context,
                      volume: objects.Volume) -> None:
        """Do nothing; see :meth:`check_for_setup_error`."""

    def remove_export(self, context: objects.Context,
                      volume: objects.Volume) -> None:
        """Do nothing; see :meth:`terminate_connection`."""

    # -- capabilities and capacity

    def get_default_goodness_function(self) -> str:
        """Return the formula for the goodness of a backend.

        It is the share of free space, or half of it if no volume can move to
        this node.
        """
        return stats.GOODNESS

    def _init_vendor_properties(self) -> tuple[dict[str, typing.Any], str]:
        """Return the driver's extra specs, and their prefix."""
        found: dict[str, typing.Any] = {}
        for name, each in extra_specs.EXTRA_SPECS.items():
            self._set_property(
                found, volume_types.PREFIX + name, each.title,
                each.description, each.type, **each.limits)
        return found, volume_types.PREFIX.rstrip(':')

    def _update_volume_stats(self) -> None:
        """Report capacity and scheduler capabilities, as a single pool.

        While this node can't receive volumes, because LVM or a disk has
        failed, the pool is reported as down.
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
    """A refused group type: it asks for consistent snapshots."""

    problem = _('The type of group %(group)s has '
                'consistent_group_snapshot_enabled. This backend can\'t take '
                'the snapshots of several volumes at the same moment.')
    outcome = outcomes.Outcome.UNCHANGED
    remedy = _('Choose a group type without '
               'consistent_group_snapshot_enabled.')


def _leave_to_cinder(group: Group) -> typing.NoReturn:
    """Check a group's type, and let Cinder's own code do the rest.

    :raises NotConsistent: if the type asks for consistent snapshots
    :raises NotImplementedError: otherwise
    """
    if volume_utils.is_group_a_cg_snapshot_type(group):
        raise NotConsistent(group=group.id)
    raise NotImplementedError()
