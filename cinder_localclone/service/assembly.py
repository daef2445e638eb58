# SPDX-License-Identifier: Apache-2.0
"""Build the service of a backend on this node from its configuration."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import signal
import time
import typing

from cinder.brick.local_dev import lvm as brick_lvm
from cinder import coordination
from cinder import exception
from cinder.i18n import _
from cinder import utils
from cinder.volume import volume_utils
from oslo_concurrency import processutils
from oslo_config import cfg
from oslo_log import log as logging
from oslo_service import loopingcall
from oslo_service import service as oslo_service
from oslo_utils import units
from tooz import coordination as tooz

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.interfaces import peers as interfaces
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import outcomes
from cinder_localclone.core import rpc as methods
from cinder_localclone.db import attachments
from cinder_localclone.db import database
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import copying
from cinder_localclone.service import directory as directories
from cinder_localclone.service import key_manager
from cinder_localclone.service import notifications
from cinder_localclone.service import options
from cinder_localclone.service import rpc
from cinder_localclone.storage import clones
from cinder_localclone.storage import cryptsetup
from cinder_localclone.storage import handles
from cinder_localclone.storage import iscsi_initiator
from cinder_localclone.storage import iscsi_target
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.volumes import connect
from cinder_localclone.volumes import interrupted
from cinder_localclone.volumes import reconcile
from cinder_localclone.volumes import uncommitted

LOG = logging.getLogger(__name__)

#: Seconds a request waits for other work on its volume: half of the default of
#: localclone_peer_timeout, so that a waiting peer still gets an answer.
LOCK_TIMEOUT = 20
#: Seconds between two checks of the moves. Peers prompt each other, so most
#: moves continue earlier. A check without any move costs a single query.
MOVE_INTERVAL = 5
#: A backend section (``cinder.volume.configuration.Configuration``).
Configuration: typing.TypeAlias = typing.Any


@dataclasses.dataclass(frozen=True)
class Condition:
    """A snapshot of the state of LVM and device-mapper.

    :param outage: why this node can't receive any volume, by creation or by a
        move; '' if it can
    """

    lvs: Mapping[str, lvm_reports.LogicalVolume] = dataclasses.field(
        default_factory=dict)
    free: lvm_reports.FreeSpace = lvm_reports.FreeSpace(0, 0, False)
    capacity: lvm_reports.Capacity = lvm_reports.Capacity(0, 0, 0, 0)
    outage: str = ''


@dataclasses.dataclass
class Service:
    """A backend on this node, as its volume service.

    :param lvm: the LVM of the node, with the queries of the scheduler
    :param addresses: the addresses of this node in connectors
    :param initiator: this node's iSCSI initiator name; '' if it has none
    :param problems: why this node can't be the destination of a move, found
        when the service started
    :param started: the start of the service, in monotonic seconds
    :param block: bytes of a sector of its disks; 0 if unknown
    """

    backend_name: str
    node: Node
    lvm: logical_volumes.Lvm
    reconciler: reconcile.Reconciler
    connections: connect.Connections
    addresses: list[str]
    initiator: str = ''
    problems: list[str] = dataclasses.field(default_factory=list)
    started: float = dataclasses.field(default_factory=time.monotonic)
    block: int = 0

    def check(self) -> None:
        """Check the prerequisites of this node, and log the missing ones."""
        self.initiator = self.node.sessions.initiator()
        self.problems = self._find_problems()
        for problem in self.problems + self._pool_problems(self.lvm.lvs()):
            events.say(events.NOT_READY, problem=problem)
        self._note_directories()
        try:
            self.lvm.release_map()
        except Exception as exc:
            LOG.warning('A metadata snapshot of thin pool %(pool)s may be '
                        'left; the next move from this node releases it: '
                        '%(error)s', {'pool': self.lvm.pool,
                                      'error': exc})

    def _note_directories(self) -> None:
        try:
            former = self.node.crypt.note_directories()
        except Exception as exc:  # no other task waits for it
            LOG.warning('The directories in which this node keeps header '
                        'backups and sealed keys could not be recorded: '
                        '%s', exc)
            return
        for path in former:
            LOG.warning('This node formerly kept header backups or sealed '
                        'keys in %s. The driver does not remove keys from '
                        'this directory any more: move needed files, and '
                        'remove the directory.', path)

    def readiness(self) -> tuple[lvm_reports.FreeSpace, list[str], int | None]:
        """Return the free space of this node, and why it can't receive moves.

        Problems that only a restart can remove are not checked again.

        :returns: free space; problems (none if the node can be a destination);
            bytes of LVs to be wiped (None if unknown)
        """
        condition = self.condition()
        return condition.free, self.obstacles(
            condition), None if condition.outage else sum(
            lv.size for lv in condition.lvs.values() if names.is_to_wipe(
                lv.name))

    def obstacles(self, condition: Condition) -> list[str]:
        """Return why volumes can't move to this node in this condition."""
        return [condition.outage] if condition.outage else (
            self.problems + self._pool_problems(condition.lvs))

    def condition(self) -> Condition:
        """Query LVM and device-mapper once each."""
        try:
            self.node.handles.devices()
            lvs = self.node.listing.ask(time.monotonic())
            if self.lvm.pool and self.lvm.pool not in lvs:
                return Condition(outage='there is no thin pool %s/%s' % (
                    self.lvm.group, self.lvm.pool))
            return Condition(lvs, *self.lvm.space(lvs), self._outage(lvs))
        except Exception as exc:  # no volume works without LVM
            return Condition(outage=str(exc) or repr(exc))

    def _outage(self, lvs: Mapping[str, lvm_reports.LogicalVolume]) -> str:
        """Return why LVM can't be changed; existing LVs remain usable."""
        try:
            self.lvm.check_groups(lvs)
        except (exceptions.DiskMissing, exceptions.NoArchive) as exc:
            return str(exc)
        return ''

    @methods.implements(interfaces.describe)
    def describe(self) -> dict[str, typing.Any]:
        """Return the properties and the free space of this node."""
        free, problems, to_wipe = self.readiness()
        return {
            'host': '%s#%s' % (self.node.host, self.backend_name),
            'addresses': self.addresses,
            'initiator': self.initiator,
            'free_space': dataclasses.asdict(free),
            'problems': problems,
            'to_wipe': to_wipe,
            'block': self.block,
            'time': time.time(),
            'sparse': self.node.lvm.pool is not None,
        }

    @methods.method('figures', prompt=True)
    def figures(self) -> dict[str, dict[str, typing.Any]]:
        """Return the counters and measurements of this service.

        :returns: events and refusals, see :func:`.events.counts`; copies:
            fields of :class:`.copies.Progress`, by the IDs of move records
        """
        counts = events.counts()
        for key in outcomes.USER_MESSAGES:
            counts['refusals'].setdefault(key.lower(), 0)
        return {**counts, 'copies': {
            move_id: dataclasses.asdict(progress) for move_id, progress
            in self.reconciler.copying.all_progress().items()}}

    @methods.method('troubles', prompt=True)
    def troubles(self) -> list[str]:
        """Return problems for the operator that do not prevent moves."""
        exporting = self.reconciler.exporting.troubles()
        try:
            problem = self.node.exports.problem()
        except exceptions.LocalCloneError as exc:
            problem = 'its iSCSI target can\'t be checked: %s' % exc
        usage = lvm_reports.pool_usage(self.condition().lvs, self.lvm.pool)
        full = 'its thin pool is full: %s' % usage if usage.is_full else ''
        return [each for each in (problem, full) if each] + exporting

    def _find_problems(self) -> list[str]:
        problems = []
        targets = dmsetup.targets(self.lvm.timeout)
        if not any(line.split()[:1] == ['clone']
                   for line in targets.splitlines()):
            problems.append('its kernel has no dm-clone '
                            '(CONFIG_DM_CLONE), or the module is missing')
        if not self.initiator:
            problems.append('it has no iSCSI initiator name '
                            '(/etc/iscsi/initiatorname.iscsi)')
        try:
            self.block = self.lvm.own_block()
        except exceptions.LocalCloneError as exc:
            problems.append(str(exc).removesuffix('.'))
        return problems

    def _pool_problems(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                       ) -> list[str]:
        if self.lvm.pool and not lvm_reports.zeroes_new_blocks(lvs,
                                                               self.lvm.pool):
            return ['its thin pool does not zero new blocks '
                    '(lvchange -Zy %s/%s)' % (
                        self.lvm.group, self.lvm.pool)]
        try:
            self.lvm.check_disks()
        except exceptions.TooFewDisks as exc:
            return ['its volume group has %(disks)s disks, and '
                    'localclone_thick_stripes is %(stripes)s' % exc.kwargs]
        return []


def open_group(conf: Configuration, execute: Callable[..., typing.Any]
               ) -> typing.Any:
    """Return the volume group with its thin pool, created if necessary.

    :param execute: Cinder's function that runs commands as root
    :returns: a ``cinder.brick.local_dev.lvm.LVM``
    :raises VolumeBackendAPIException: if the group or the pool can't be used
    """
    lvm_conf = conf.lvm_conf_file
    if lvm_conf and lvm_conf.lower() == 'none':
        lvm_conf = None
    if conf.lvm_type == 'auto':
        conf.lvm_type = 'thin'
    try:
        return brick_lvm.LVM(
            conf.volume_group, utils.get_root_helper(),
            lvm_type=conf.lvm_type, executor=execute, lvm_conf=lvm_conf,
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


def assemble(conf: Configuration, host: str, backend_name: str,
             pool: str | None) -> Service:
    """Build the service of a backend.

    :param host: this service's host, without pool
    :param pool: the thin pool; None for thick volumes
    :raises InvalidConfigurationValue: if an option has an invalid value
    """
    try:
        names.check_template(cfg.CONF.volume_name_template)
        geometry = options.geometry(conf)
    except ValueError as exc:
        raise exception.InvalidConfigurationValue(str(exc))
    peers = rpc.Client(conf.localclone_peer_timeout)
    db = database.database()
    addresses = [address for address in (
        conf.safe_get('target_ip_address'), conf.safe_get('my_ip'),
        *conf.localclone_addresses) if address]
    directory = directories.Directory(host, db.services, peers)
    directory.know(host, addresses)
    lvm = logical_volumes.Lvm(
        conf.volume_group, pool,
        conf.localclone_metadata_volume_group or conf.volume_group,
        conf.localclone_command_timeout, host, conf.localclone_thick_stripes)
    own_handles = handles.Handles(lvm)
    node = Node(
        host=host, moves=db.moves, volumes=db.volumes,
        snapshots=db.snapshots,
        attachments=attachments.Attachments(directory.is_at),
        secrets=db.secrets, services=db.services, queue=db.queue,
        interrupted=db.interrupted,
        lvm=lvm, handles=own_handles,
        clones=clones.Clones(lvm, own_handles),
        crypt=cryptsetup.Cryptsetup(
            conf.volume_group, conf.localclone_command_timeout,
            conf.localclone_header_backup_dir or '', options.sealed_keys(conf),
            conf.localclone_key_cache_dir, names.backend_of(host)),
        keys=key_manager.Keys(conf.localclone_key_auth),
        runner=cryptsetup.Runner(
            names.backend_of(host), conf.localclone_command_timeout),
        exports=iscsi_target.Exports(
            conf.target_prefix, conf.target_ip_address, conf.target_port, host,
            iscsi_target.has_address), sessions=iscsi_initiator.Sessions(
                conf.localclone_command_timeout,
                conf.localclone_source_timeout, host), peers=peers,
        geometry=geometry, lock=Lock(host, LOCK_TIMEOUT),
        try_lock=Lock(host, 0), is_at=directory.is_at,
        clear=clearing(conf, lvm), limits=options.limits(conf),
        pacing=options.pacing(conf),
        compare_wait=conf.localclone_verify_timeout,
        authenticates=conf.localclone_enable_integrity,
        tell=notifications.Notices(host, db.volumes).tell)
    reconciler = reconcile.Reconciler(node)
    return Service(
        backend_name=backend_name, node=node, lvm=lvm,
        reconciler=reconciler,
        connections=connect.Connections(reconciler, directory.find),
        addresses=addresses)


class Lock:
    """The locks of a node, each with a time limit.

    :param host: this service's host
    :param seconds: how long to wait; 0 to fail at once
    """

    def __init__(self, host: str, seconds: float):
        self._host = host
        self._seconds = seconds

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Hold a lock.

        :param name: a volume's ID, or :data:`.node.FREE_SPACE`
        :raises Busy: if the lock is held by others for too long
        """
        lock = coordination.COORDINATOR.get_lock(
            names.lock(self._host, name))
        try:
            taken = lock.acquire(blocking=self._seconds or False)
        except tooz.LockAcquireFailed:
            taken = False
        if not taken:
            raise exceptions.Busy(
                what='The free space' if name == nodes.FREE_SPACE
                else 'Volume ' + name,
                host=self._host, seconds=self._seconds)
        try:
            yield
        finally:
            lock.release()


def clearing(conf: Configuration, lvm: logical_volumes.Lvm
             ) -> Callable[[str, int], None]:
    """Return a function that overwrites a thick LV by ``volume_clear``.

    :returns: ``clear(lv_name, size_bytes)``
    """
    def clear(lv: str, size_bytes: int) -> None:
        if conf.volume_clear == 'none':
            return
        # The LV may be inactive after a reboot. Writing to a path without a
        # device would create a file.
        volume_utils.clear_volume(
            size_bytes // units.Mi, lvm.device_of(lv),
            volume_clear=conf.volume_clear,
            volume_clear_size=conf.volume_clear_size,
            volume_clear_ionice=conf.volume_clear_ionice)
    return clear


def start_loops(service: Service, conf: Configuration) -> list[typing.Any]:
    """Start the periodic tasks.

    :returns: the loops; they run as long as they are referenced
    """
    reconciler = service.reconciler
    loops = [
        _loop(MOVE_INTERVAL,
              lambda: sweep_moves(reconciler)),
        _loop(conf.localclone_reconcile_interval,
              lambda: sweep(service)),
        _loop(conf.localclone_reconcile_interval,
              lambda: uncommitted.sweep(
                  service.node, reconciler.seen)),
        # It can take hours.
        _loop(conf.localclone_reconcile_interval,
              lambda: cleanup.wipe_marked(service.node, reconciler.seen)),
        _loop(1, lambda: wake_copies(
            reconciler.copying.waker, copying.PROMPT))]
    return loops


def pause_at_end(service: Service) -> None:
    """Pause the re-encryptions when the service gets SIGTERM.

    Processes started in a container are killed with it, by SIGKILL. The
    launcher of oslo.service calls handlers in reverse order, and waits for
    them. Without eventlet, a driver is not told of this signal.
    """
    handler = getattr(signal.getsignal(signal.SIGTERM), '__self__', None)
    if isinstance(handler, oslo_service.SignalHandler):
        handler.add_handler(
            'SIGTERM', lambda _number, _frame: _pause_all(service.node))


def _pause_all(node: Node) -> None:
    try:
        node.runner.end()
    except Exception:
        LOG.exception('The re-encryptions on this node could not be paused.')


def sweep_moves(reconciler: reconcile.Reconciler) -> float | None:
    """Take the next step of each move.

    :returns: seconds until the next copy ends, if known
    """
    reconciler.reconcile_moves()
    return reconciler.copying.soonest_end()


def sweep(service: Service) -> None:
    """Reconcile the node, and complete operations interrupted in Cinder."""
    try:
        service.reconciler.reconcile_node()
        service.reconciler.encrypted.keep_header_backups()
    finally:
        interrupted.sweep(service.node, service.started)


def _loop(seconds: float, act: Callable[[], float | None]) -> typing.Any:
    """Call a function periodically, with a pause between two calls.

    :param act: returns seconds until its next work, at least 1, or None
    """
    def guarded() -> float:
        try:
            soon = act()
        except Exception:
            events.say(events.PERIODIC_FAILED, exc_info=True,
                       seconds=seconds)
            return seconds
        return seconds if soon is None else min(seconds, max(1, soon))
    # A pause between calls and not a period: a call may take longer.
    loop = loopingcall.DynamicLoopingCall(guarded)
    loop.start(initial_delay=1, stop_on_exception=False)
    return loop


def wake_copies(waker: copying.Waker, interval: float) -> None:
    """Pace and prompt copies for up to a minute, while there are any.

    :param interval: seconds between two prompts
    """
    until = time.monotonic() + 60
    while True:
        now = time.monotonic()
        if not waker.wake(now) or now >= until:
            return
        time.sleep(interval)
