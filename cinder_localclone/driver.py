# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface. Each method re-reads, decides, calls one room.

The way a volume takes is read here from ``initialize_connection`` downwards:
:mod:`decision` says where it is served, :mod:`moves` moves it,
:mod:`reconcile` brings whatever was begun to its end.
"""

import contextlib
import time

from cinder.brick.local_dev import lvm as brick_lvm
from cinder.common import constants
from cinder import context as cinder_context
from cinder import coordination
from cinder import exception
from cinder.i18n import _
from cinder import interface
from cinder import utils
from cinder.volume import driver
from cinder.volume.drivers import lvm as cinder_lvm
from cinder.volume import volume_utils
from oslo_concurrency import processutils
from oslo_log import log as logging
from oslo_service import loopingcall
from oslo_utils import units
import tenacity
from tooz import coordination as tooz

from cinder_localclone import decision
from cinder_localclone import exceptions
from cinder_localclone import export
from cinder_localclone import inspection
from cinder_localclone import messages
from cinder_localclone import moves
from cinder_localclone import names
from cinder_localclone import opts
from cinder_localclone import peer
from cinder_localclone.privileged import devicemapper
from cinder_localclone import reconcile
from cinder_localclone import records
from cinder_localclone import stack
from cinder_localclone.state import Phase
from cinder_localclone import version

LOG = logging.getLogger(__name__)

#: Seconds that a hypervisor may take to close a volume after its detach.
CLOSING = 10


@interface.volumedriver
class LocalCloneDriver(driver.VolumeDriver):
    """Node-local LVM volumes that follow their instances.

    Version history:

    .. code-block:: none

        0.1.0 - Volumes move to the node they are attached on.
    """

    VERSION = version.version_string()
    CI_WIKI_NAME = 'None'  # out of Cinder's tree

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.configuration.append_config_values(cinder_lvm.volume_opts)
        self.configuration.append_config_values(opts.localclone_opts)
        self.backend_name = (
            self.configuration.safe_get('volume_backend_name')
            or 'localclone')
        self.vg = None
        self.node = None
        self.reconciler = None
        self.directory = None
        self._server = None
        self._loops = []
        self._problems = []
        self.initiator = ''

    @staticmethod
    def get_driver_options():
        return opts.localclone_opts + cinder_lvm.volume_opts

    # -- start

    def check_for_setup_error(self):
        """Look at what is needed, restore what is here, start to serve.

        Cinder may call this up to four times; what runs is not started
        twice.

        :raises VolumeBackendAPIException: if volumes cannot be served at
            all: no volume group, no device-mapper
        """
        if self.reconciler is None:
            self._open_group()
            self._assemble()
        # Asking os-brick takes seconds: once, not in every move.
        self.initiator = self.node.imports.initiator()
        self._problems = self._find_problems()
        for problem in self._problems:
            LOG.error('This node cannot take volumes that move: %s', problem)
        # Peers are asked later: at start there may be none.
        self.reconciler.converge_node(moves=False)
        if self._server is None:
            self._server = peer.start_server(self.host, Handlers(self))
            self._start_loop(self.configuration.localclone_move_interval,
                             self.reconciler.converge_moves)
            self._start_loop(self.configuration.localclone_node_interval,
                             self.reconciler.converge_node)
            if self.configuration.localclone_wake_interval:
                self._start_loop(1, self._wake_copies)

    def _open_group(self):
        conf = self.configuration
        lvm_conf = conf.lvm_conf_file
        if lvm_conf and lvm_conf.lower() == 'none':
            lvm_conf = None
        if conf.lvm_type == 'auto':
            conf.lvm_type = 'thin'
        try:
            self.vg = brick_lvm.LVM(
                conf.volume_group, utils.get_root_helper(),
                lvm_type=conf.lvm_type, executor=self._execute,
                lvm_conf=lvm_conf,
                suppress_fd_warn=conf.lvm_suppress_fd_warnings)
        except (exception.VolumeGroupNotFound,
                processutils.ProcessExecutionError) as exc:
            reason = getattr(exc, 'stderr', None) or 'not found'
            if 'not found' in reason:
                raise exception.VolumeBackendAPIException(data=_(
                    'There is no volume group "%s" on this node: create it '
                    '(vgcreate) or correct volume_group.')
                    % conf.volume_group)
            raise exception.VolumeBackendAPIException(data=_(
                'Volume group "%(group)s" or its thin pool cannot be used: '
                '%(reason)s') % {'group': conf.volume_group,
                                 'reason': reason.strip()})

    def _assemble(self):
        conf = self.configuration
        try:
            geometry = opts.geometry(conf)
        except ValueError as exc:
            raise exception.InvalidConfigurationValue(str(exc))
        peers = peer.Client(conf.localclone_peer_timeout)
        rows = records.Records()
        self.directory = peer.Directory(self.host, rows, peers)
        self.directory.know(self.host, self._addresses())
        self.node = moves.Node(
            host=self.host, records=rows,
            stack=stack.Stack(
                conf.volume_group, self.vg.vg_thin_pool,
                conf.localclone_metadata_group or conf.volume_group,
                conf.localclone_command_timeout),
            exports=export.Exports(
                conf.target_prefix, conf.target_ip_address,
                conf.target_port),
            imports=export.Imports(conf.localclone_command_timeout,
                                   conf.localclone_source_timeout),
            peers=peers, geometry=geometry, lock=self._lock,
            is_at=self.directory.is_at, clear=self._clear)
        self.reconciler = reconcile.Reconciler(
            self.node, cinder_context.get_admin_context())

    def _find_problems(self):
        """Why this node cannot be the destination of a move, in words."""
        problems = []
        targets = devicemapper.targets(
            self.configuration.localclone_command_timeout)
        if not any(line.split()[:1] == ['clone']
                   for line in targets.splitlines()):
            problems.append('its kernel has no dm-clone '
                            '(CONFIG_DM_CLONE), or the module is missing')
        if self.node.stack.pool and not self.node.stack.pool_zeroes():
            problems.append(
                'its thin pool does not zero new blocks (lvchange -Zy %s/%s)'
                % (self.node.stack.group, self.node.stack.pool))
        if not self.initiator:
            problems.append('it has no iSCSI initiator name '
                            '(/etc/iscsi/initiatorname.iscsi)')
        return problems

    def _start_loop(self, seconds, look):
        def guarded():
            try:
                look()
            except Exception:
                LOG.exception('A periodic look failed; the next one is in '
                              '%s s.', seconds)
            return seconds
        # Between the end of one look and the next: a look may take longer.
        loop = loopingcall.DynamicLoopingCall(guarded)
        loop.start(initial_delay=1, stop_on_exception=False)
        self._loops.append(loop)

    def _wake_copies(self):
        """For a while, as often as configured; see hydration.Waker."""
        until = time.monotonic() + 60
        while self.reconciler.waker.wake() and time.monotonic() < until:
            time.sleep(self.configuration.localclone_wake_interval)

    @contextlib.contextmanager
    def _lock(self, name):
        """The node's lock around work on one volume, with a time limit."""
        seconds = self.configuration.localclone_lock_timeout
        lock = coordination.COORDINATOR.get_lock(
            names.lock(self.host, name))
        try:
            taken = lock.acquire(blocking=seconds)
        except tooz.LockAcquireFailed:
            taken = False
        if not taken:
            raise exceptions.Busy(volume=name, host=self.host,
                                  seconds=seconds)
        try:
            yield
        finally:
            lock.release()

    def _addresses(self):
        conf = self.configuration
        return [address for address in (
            conf.safe_get('target_ip_address'), conf.safe_get('my_ip'))
            if address]

    # -- volumes

    def create_volume(self, volume):
        """Create an LV and its handle, or the destination of a move."""
        if records.is_shadow(volume):
            found = self.node.records.get_move(volume.id)
            moves.prepare(self.node, volume.id, found.token.nonce)
            return
        if records.is_migrated_by_cinder(volume):
            raise NotImplementedError(_(
                'Volumes come to this backend, and to another of its nodes, '
                'by being attached there, not by "volume migrate" or '
                '"volume retype".'))
        self.node.stack.create_lv(volume.name, volume.size << 30, volume.id)
        self.node.stack.ensure_handle_on_lv(
            volume.id, volume.name, volume.size << 30)

    def delete_volume(self, volume):
        """Remove all of a volume, on both nodes if it is moving.

        What is gone already is done. A shadow is never deleted here: it
        goes with its move. See :meth:`reconcile.Reconciler.delete`.
        """
        if records.is_shadow(volume):
            raise exceptions.Refused(
                volume=volume.id, host=self.host, reason='it is one end of '
                'a move and goes when that has ended.')
        self.reconciler.delete(volume)

    def delete_snapshot(self, snapshot):
        """Nothing: none was made; what was refused can be deleted.

        Else its record, and with it the volume, would stay for ever.
        """

    def unmanage(self, volume):
        """Not implemented: only what is deleted leaves this backend whole.

        Cinder's own answer would leave a handle, and a move, behind.
        """
        raise NotImplementedError()

    def migrate_volume(self, context, volume, host):
        """To a node of this backend: not by this way, which would copy.

        To another backend: Cinder's own copy.
        """
        if str(host['capabilities'].get('location_info')).startswith(
                'LocalCloneDriver:'):
            raise NotImplementedError(_(
                'A volume moves to another node by being attached there.'))
        return False, None

    def local_path(self, volume):
        """The handle: never the LV, which may lack what is not local yet."""
        return names.handle_path(volume.id)

    def _clear(self, lv, size_gib):
        """Overwrite a thick LV as Cinder's volume_clear says."""
        if self.vg.vg_thin_pool or self.configuration.volume_clear == 'none':
            return
        volume_utils.clear_volume(
            size_gib * 1024, names.lv_path(self.node.stack.group, lv),
            volume_clear=self.configuration.volume_clear,
            volume_clear_size=self.configuration.volume_clear_size,
            volume_clear_ionice=self.configuration.volume_clear_ionice)

    # -- connections

    def validate_connector(self, connector):
        """A connector must name a host or an address."""
        if not (connector.get('host') or connector.get('ip')):
            raise exception.InvalidConnectorException(missing='host')

    def initialize_connection(self, volume, connector):
        """Serve a volume to a host: locally, by moving it, or remotely.

        The row that comes with the call may be stale: another node may be
        the volume's home by now. Whoever is asked hands the call on.
        """
        context = volume._context
        found = self.node.records.volume(volume.id)
        try:
            home = volume_utils.extract_host(found.host)
            if home != self.host:
                return self.node.peers.initialize_connection(
                    context, home, volume.id, connector)
            return self.serve(context, volume.id, connector)
        except exceptions.LocalCloneError as exc:
            messages.tell_owner(context, volume.id, exc)
            if found.status in decision.NOVA_STATUSES:
                self.node.records.drop_live_attachment(
                    volume.id, connector.get('host'))
            raise

    def serve(self, context, volume_id, connector):
        """The home's answer to initialize_connection."""
        node_of_connector = self.directory.find(context, connector)
        with self._lock(volume_id):
            self.reconciler.abandon_interrupted(volume_id)
            volume = self.node.records.volume(volume_id)
            if volume_utils.extract_host(volume.host) != self.host:
                raise exceptions.StaleMove(volume=volume_id)
            found = decision.decide(self._request(
                volume, connector, node_of_connector))
            LOG.info('Volume %(volume)s for %(host)s: %(verdict)s '
                     '%(reason)s', {
                         'volume': volume_id, 'host': connector.get('host'),
                         'verdict': found.verdict.value,
                         'reason': found.reason})
            if found.verdict is decision.Verdict.LOCAL:
                self.reconciler.converge_locked(volume_id)
                return self._local_connection(volume_id)
            if found.verdict is decision.Verdict.REMOTE:
                return self._remote_connection(volume, connector)
            if found.verdict is not decision.Verdict.REFUSE:
                moves.move_volume(
                    self.node, context, volume, node_of_connector,
                    export.new_credentials,
                    live=found.verdict is decision.Verdict.LIVE_MOVE)
                return self._local_connection(volume_id)
        raise exceptions.Refused(
            volume=volume_id, host=connector.get('host'),
            reason=found.reason, user_message=found.user_message)

    def _request(self, volume, connector, node_of_connector):
        attachments = [
            decision.Attachment(
                instance=attachment.instance_uuid,
                host=(attachment.connector or {}).get('host'))
            for attachment in volume.volume_attachment]
        return decision.Request(
            status=volume.status, home=self.host, node=node_of_connector,
            connector_host=connector.get('host') or '',
            initiator=connector.get('initiator'), attachments=attachments,
            move=self.node.records.move_of(volume.id),
            pinned=self._pinned(volume))

    @staticmethod
    def _pinned(volume):
        if volume.group_id:
            return 'it belongs to a group'
        if records.is_migrated_by_cinder(volume):
            return 'Cinder is migrating it to another backend'
        return None

    @staticmethod
    def _local_connection(volume_id):
        return {'driver_volume_type': 'local',
                'data': {'device_path': names.handle_path(volume_id),
                         'discard': True}}

    def _remote_connection(self, volume, connector):
        self.reconciler.converge_locked(volume.id)
        properties = self.node.exports.offer_volume(
            volume.id, connector['initiator'], export.new_credentials())
        return {'driver_volume_type': 'iscsi',
                'data': dict(properties, discard=True)}

    def terminate_connection(self, volume, connector, **kwargs):
        """End what initialize_connection began.

        A local connection leaves nothing to end: the handle stays, and a
        move that was committed goes on to its end, because what the guest
        has written since is nowhere else.

        During a live migration it is the signal: the host that is detached
        is the one that the guest is not on. Cinder's own rows do not tell
        yet. Whoever has to act is asked.
        """
        found = self.node.records.volume(volume.id)
        where = volume_utils.extract_host(found.host)
        moving = self.node.records.move_of(volume.id)
        from_source = self._leaves_source(moving, connector)
        if from_source:
            where = moving.source
        if where == self.host:
            self.unserve(volume._context, volume.id, connector)
            return
        try:
            self.node.peers.terminate_connection(
                volume._context, where, volume.id, connector)
        except exceptions.PeerUnreachable as exc:
            if not from_source:
                raise
            LOG.warning('The source will look for itself whether volume '
                        '%(volume)s has left it: %(error)s',
                        {'volume': volume.id, 'error': exc})

    def _leaves_source(self, moving, connector):
        return bool(moving and moving.phase is Phase.STARTING
                    and moving.committed and connector
                    and not self.node.is_at(connector, moving.destination))

    def unserve(self, context, volume_id, connector):
        """What terminate_connection does on the node that has to act.

        :param connector: None (a forced detach) ends all connections
        """
        with self._lock(volume_id):
            if connector is None:
                self.node.exports.withdraw_volume(volume_id, None)
            elif connector.get('initiator'):
                self.node.exports.withdraw_volume(
                    volume_id, connector['initiator'])
            moving = self.node.records.move_of(volume_id)
            if not (connector and moving and moving.committed
                    and moving.phase is Phase.STARTING):
                return
            if self._leaves_source(moving, connector):
                if moving.source == self.host:
                    self._source_released(context, moving)
            elif moving.destination == self.host:
                self._when_closed(lambda: moves.roll_back_live(
                    self.node, context, moving))

    def _source_released(self, context, moving):
        """The guest has left this node; a late close is waited for.

        If it does not come, the detach is done nevertheless: the periodic
        look lets hydration begin when the kernel shows that it may.
        """
        try:
            self._when_closed(lambda: moves.source_released(
                self.node, context, moving))
        except exceptions.LocalCloneError as exc:
            LOG.warning('Hydration of volume %(volume)s waits: %(error)s',
                        {'volume': moving.volume_id, 'error': exc})

    def _when_closed(self, act):
        """Act once nothing uses the volume here; wait a bounded time."""
        tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(exceptions.SourceBusy),
            stop=tenacity.stop_after_delay(CLOSING), reraise=True,
            wait=tenacity.wait_fixed(0.5))(act)

    # Exports belong to connections, not to volumes.

    def create_export(self, context, volume, connector):
        return None

    def ensure_export(self, context, volume):
        return None

    def remove_export(self, context, volume):
        return None

    # -- what there is

    def _update_volume_stats(self):
        """Capacity, and what the scheduler must know, as one pool."""
        conf = self.configuration
        found = self.node.stack.capacity()
        thin = bool(self.node.stack.pool)
        self._stats = {
            'volume_backend_name': self.backend_name,
            'vendor_name': 'Open Source',
            'driver_version': self.VERSION,
            'storage_protocol': constants.ISCSI,
            'shared_targets': False,
            'sparse_copy_volume': thin,
            'pools': [{
                'pool_name': self.backend_name,
                'total_capacity_gb': found.total / units.Gi,
                'free_capacity_gb': found.free / units.Gi,
                'provisioned_capacity_gb': found.provisioned / units.Gi,
                'reserved_percentage': conf.reserved_percentage,
                'max_over_subscription_ratio':
                    conf.max_over_subscription_ratio,
                'thin_provisioning_support': thin,
                'thick_provisioning_support': not thin,
                'location_info': 'LocalCloneDriver:%s:%s' % (
                    self.host, conf.volume_group),
                'QoS_support': False,
                'multiattach': False,
                'online_extend_support': False,
                'total_volumes': found.volumes,
                'filter_function': self.get_filter_function(),
                'goodness_function': self.get_goodness_function(),
                'backend_state': 'up',
            }],
        }


class Handlers:
    """What peers may ask of this node (see :mod:`cinder_localclone.peer`)."""

    def __init__(self, volume_driver: LocalCloneDriver):
        self._driver = volume_driver

    def describe(self) -> dict:
        """What this node is and can take.

        :returns: host (with pool), addresses, iSCSI initiator name, room
            (fields of stack.FreeSpace, bytes), problems (texts; none: ready),
            time (seconds since the epoch, by this node's clock)
        """
        node = self._driver.node
        free = node.stack.free_space()
        return {
            'host': '%s#%s' % (node.host, self._driver.backend_name),
            'addresses': self._driver._addresses(),
            'initiator': self._driver.initiator,
            'room': {'volumes': free.volumes, 'metadata': free.metadata,
                     'shared': free.shared},
            'problems': self._driver._problems,
            'time': time.time(),
        }

    def prepare(self, shadow_id, nonce):
        node = self._driver.node
        found = node.records.get_move(shadow_id)
        with node.lock(found.volume_id if found else shadow_id):
            moves.prepare(node, shadow_id, nonce)

    def converge(self, volume_id):
        self._driver.reconciler.converge(volume_id)

    def inspect(self, volume_id):
        return inspection.inspect(self._driver.node, volume_id,
                                  self._driver.reconciler.progress)

    def repair(self, volume_id):
        return inspection.repair(
            self._driver.node, lambda node: reconcile.Reconciler(
                node, self._driver.reconciler.context), volume_id)

    def abort(self, volume_id):
        self._driver.reconciler.abort(volume_id)

    def resume(self, volume_id):
        self._driver.reconciler.go_forward(volume_id)

    def serve(self, context, volume_id, connector):
        return self._driver.serve(context, volume_id, connector)

    def unserve(self, context, volume_id, connector):
        self._driver.unserve(context, volume_id, connector)
