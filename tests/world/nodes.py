# SPDX-License-Identifier: Apache-2.0
"""The simulated world and its nodes."""

import contextlib
import dataclasses
import functools
import itertools
import typing

from oslo_utils import timeutils

from cinder_localclone.core import attachments
from cinder_localclone.core import boot_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core.interfaces import records as interfaces
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import state
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import refill
from cinder_localclone.moves import source
from cinder_localclone.service import directory
from cinder_localclone.volumes import connect
from cinder_localclone.volumes import extend as extending
from cinder_localclone.volumes import reconcile
from cinder_localclone.volumes import uncommitted
from tests.helpers import complaints
from tests.world import crypt
from tests.world import disks
from tests.world import effects
from tests.world import images
from tests.world import iscsi
from tests.world import peers
from tests.world import records
from tests.world import reencryption
from tests.world import stack
from tests.world import upper_devices

GEOMETRY = state.Geometry(128, 32, 8)


def extend(node, volume, gib):
    """A home extends a volume, as Cinder has asked; its row says as before.

    :returns: the home
    """
    before, volume.status = volume.status, 'extending'
    try:
        return extending.extend(node.reconciler, volume.id, gib)
    finally:
        volume.status = before


def lv_kind(name):
    return 'metadata' if names.move_of_metadata(name) else 'volume'


class LookWaits(BaseException):
    """Nobody waits for a look, so it waits for nobody, either."""


class World(images.WorldImages):
    """The database, the network and the nodes.

    :param stop_at: numbers of the moments at which the acting node stops
    :param faults: how, in turn: a service is killed ('kill'), a node ('cut')
        or both nodes ('cut both') lose power
    :param hosts: the nodes
    """

    #: What attachments are stamped with.
    database_time = staticmethod(timeutils.utcnow)

    def __init__(self, stop_at=(), faults=('cut',), hosts=('a@l', 'b@l')):
        self.stop_at = stop_at
        self.faults = faults
        self.moment = 0
        self.acting = None
        #: Each effect: host, method, first argument.
        self.done = []
        #: Whom reconcile_soon has told: from, to, volume id.
        self.told = []
        self.wrongs = []
        self.volumes = {}
        #: The moves by their shadows' ids; what those keep for the volumes.
        self.move_records = {}
        self.record_rows = {}
        #: Nodes whose services were forgotten.
        self.forgotten = set()
        #: The thin pool of each node; None: their volumes are thick.
        self.pool = None
        #: Rows of snapshots by id, deleted ones too; of deleted volumes.
        self.snapshots = {}
        self.deleted = {}
        #: Snapshots of which a backup is being made.
        self.read = set()
        #: Availability zones by node, where they are not all one.
        self.zones = {}
        #: Of which shadows the database knows that their copies make no
        #: progress, and since when.
        self.stalled = {}
        self.clock = itertools.count(1)
        #: What the key manager has; headers, and how often each was backed
        #: up, by volume; volumes that are about to go.
        self.secrets = crypt.SimSecrets()
        self.headers = {}
        self.backups = {}
        #: Where these are: a device, and an inode there.
        self.backup_disk = 8, 2
        #: The headers in them, by volume and name; what was kept of volumes
        #: whose headers were restored.
        self.copies = {}
        self.saved = []
        self.going = set()
        self.nodes = {host: self.make_node(host) for host in hosts}

    def make_node(self, host):
        return SimNode(self, host)

    def tick(self, node, what):
        """One moment at which the acting node may stop.

        After one effect and before the next is one moment on one node.
        """
        node.check_alive()
        reencryption.insist_on_fences(self)
        if what.startswith('before') and self.acting is node:
            return
        self.acting = node
        self.moment += 1
        if self.moment in self.stop_at:
            turn = sorted(self.stop_at).index(self.moment)
            fault = self.faults[turn % len(self.faults)]
            for each in self.nodes.values():
                if each is node or fault == 'cut both':
                    each.stop(power=fault != 'kill')
        node.check_alive()

    def insist(self, truth, what, *args):
        """What must never happen fails the test, whoever catches this."""
        if not truth:
            self.wrongs.append(what % args)
            raise complaints.note(what % args)

    def effects(self, host, start=0):
        """What a node has done: the names of the methods, LVs' after them.

        :param start: how much of all had been done before
        """
        return ['%s %s' % (name, lv_kind(subject)) if name in (
            'remove_lv', 'clear', 'activate', 'flush_lv') else name
            for node, name, subject in self.done[start:] if node == host]

    def create_volume(self, host, holes=(), **more):
        """:param holes: regions that nothing is written to"""
        volume = self.row(host, status='available', **more)
        node, size = self.nodes[host], volume.backing_bytes()
        node.disk.create(volume.name, volume.id, [
            disks.ZERO if n in holes else '%s%d' % (volume.id[:4], n)
            for n in range(disks.regions(size))], volume.extra_bytes)
        node.disk.cut(volume.name, size)
        if volume.encryption_key_id:
            node.lvs[volume.name][0] = upper_devices.HEADER
        with node.lock(volume.id):
            node.sim_handles.ensure_handle_on_lv(
                volume.id, volume.name, size)
        return volume

    def foreign(self, host, name='data'):
        """An LV that somebody else has created; what it has."""
        content = ['%s%d' % (name, n) for n in range(disks.REGIONS)]
        self.nodes[host].disk.lvs[name] = list(content)
        return content

    def node_at(self, portal):
        """The node that has a portal; None if none has it."""
        return next((node for node in self.nodes.values() if
                     node.sim_exports.has_portal(portal)), None)

    def home(self, volume):
        # One that is being scheduled has none.
        return volume.host and self.nodes[volume.host.partition('#')[0]]

    def settle(self):
        """Restart what stopped and reconcile, until nothing changes."""
        for _round in range(12):
            before = repr(self.snapshot())
            self.reconcile()
            for node in self.nodes.values():
                node.hydrate()
            if repr(self.snapshot()) == before and not self.stopped():
                return
        raise AssertionError('never settled: %s' % before)

    def stopped(self):
        """Whether a node is down that comes back."""
        return any(node.dead and not node.gone
                   for node in self.nodes.values())

    def recover(self):
        """Restart what stopped, until all nodes have been reconciled."""
        for _round in range(6):
            alive = not self.stopped()
            self.reconcile()
            if alive and not self.stopped():
                return
        raise AssertionError('never recovered')

    def reconcile(self):
        """Once on each node; one that stopped starts again."""
        for node in self.nodes.values():
            node.dead = node.gone
            with contextlib.suppress(effects.Stopped):
                node.reconciler.reconcile_node()
                uncommitted.sweep(node.node)
                cleanup.wipe_marked(node.node)
        if self.wrongs:
            raise AssertionError(self.wrongs)

    def snapshot(self):
        return [(n.host, n.lvs, n.devices, n.exports, n.sessions, n.remotes,
                 sorted(n.remote), n.links, sorted(n.suspended))
                for n in self.nodes.values()] + [self.move_records]


@dataclasses.dataclass
class SimNode:
    """One node: what it has on disk, in its kernel, and its service."""

    world: World
    host: str
    disk: disks.Disk = dataclasses.field(default_factory=disks.Disk)
    devices: dict = dataclasses.field(default_factory=dict)
    exports: dict = dataclasses.field(default_factory=dict)
    #: Hosts without the backend that are served: (volume, initiator).
    remote: set = dataclasses.field(default_factory=set)
    #: What volumes have their exports on, if that is not the handle.
    backing: dict = dataclasses.field(default_factory=dict)
    #: Those of them that were offered a moment ago, as its service knows.
    exported: set = dataclasses.field(default_factory=set)
    sessions: dict = dataclasses.field(default_factory=dict)
    #: Volumes that are passed through here, and which node serves them.
    remotes: dict = dataclasses.field(default_factory=dict)
    #: How long their disks were when they were scanned last.
    scanned: dict = dataclasses.field(default_factory=dict)
    #: The devices, and LVs, that hold I/O back.
    suspended: set = dataclasses.field(default_factory=set)
    #: The names of devices that others have open.
    opened: set = dataclasses.field(default_factory=set)
    #: The paths of volumes that Nova encrypts: volume id, name of a device.
    links: dict = dataclasses.field(default_factory=dict)
    #: Volumes that a process here re-encrypts, which outlives its service.
    reencrypting: set = dataclasses.field(default_factory=set)
    held: set = dataclasses.field(default_factory=set)
    problems: list = dataclasses.field(default_factory=list)
    block: int = 512  # bytes of a sector of its disks
    #: Snapshots that were offered a moment ago, as its service knows.
    lent: set = dataclasses.field(default_factory=set)
    #: Percent of its pool's data and metadata in use.
    usage: tuple = (0.0, 0.0)
    free: int = 100 * disks.GIB
    reads: int = 0
    headers_unreadable: bool = False
    #: Where it has kept backups of headers before.
    former_directories: list = dataclasses.field(default_factory=list)
    #: Whether its cryptsetup is too old to re-encrypt.
    old_cryptsetup: bool = False
    broken: bool = False  # its disk refuses what the kernel copies
    unreadable: bool = False  # its disk gives errors to its peers
    clones: str = 'rw'  # the mode of its clones
    #: Its pool does not say what was never written; does not zero blocks.
    odd_pool: bool = False
    #: Its thin pool can't write its metadata.
    pool_fails: bool = False
    zeroes: bool = True
    #: What its kernel has counted: reads and writes of handles; bytes that
    #: were copied to LVs. Whether it shows none of that.
    ios: dict = dataclasses.field(default_factory=dict)
    copied: dict = dataclasses.field(default_factory=dict)
    blind: bool = False
    #: How much was written to handles, by volume.
    written: dict = dataclasses.field(default_factory=dict)
    slow: bool = False  # it zeroes little at a time
    dead: bool = False
    looks: bool = False
    gone: bool = False  # for good, until a test says otherwise

    #: How long a copy that is complete waits for its source's service.
    COMPARE_WAIT = 0.0

    #: What makes each effect of a room a moment.
    ACTING = staticmethod(effects.acting)
    EXPORTS = iscsi.SimExports
    SERVICES = records.SimServices

    def __post_init__(self) -> None:
        self.sim_exports = self.EXPORTS(self)
        self.start_service()

    def make_database(self) -> interfaces.Database:
        return records.database(self)

    def make_peers(self) -> typing.Any:
        return peers.SimPeers(self)

    def start_service(self) -> None:  # annotated: mypy checks the rooms
        """A process of its service, which knows nothing yet."""
        self.world.forgotten.discard(self.host)
        acting = self.ACTING
        lvm = stack.SimLvm(self)
        handles = stack.SimHandles(self, lvm)
        self.sim_lvm = acting(self, lvm)
        self.sim_handles = acting(self, handles)
        self.sim_clones = acting(self, stack.SimClones(self, lvm, handles))
        db = self.make_database()
        self.node = Node(
            host=self.host, moves=acting(self, db.moves),
            volumes=acting(self, db.volumes),
            snapshots=acting(self, db.snapshots),
            attachments=acting(self, records.SimAttachments(self)),
            secrets=acting(self, db.secrets),
            services=acting(self, db.services), queue=acting(self, db.queue),
            interrupted=acting(self, db.interrupted),
            crypt=acting(self, crypt.SimCrypt(self)),
            keys=acting(self, crypt.SimKeys(self)),
            runner=acting(self, reencryption.SimRunner(self)),
            lvm=self.sim_lvm, handles=self.sim_handles,
            clones=self.sim_clones,
            exports=acting(self, self.sim_exports),
            sessions=acting(self, iscsi.SimSessions(self)),
            peers=self.make_peers(),
            geometry=GEOMETRY, lock=lambda name: self.lock(name),
            try_lock=self.try_lock, clear=self.sim_lvm.clear,
            is_at=lambda connector, host: host.startswith(
                connector['host']), compare_wait=self.COMPARE_WAIT)
        self.reconciler = reconcile.Reconciler(self.node)
        for each in ('reconcile_node', 'reconcile_moves'):
            setattr(self.reconciler, each,
                    self.look(getattr(self.reconciler, each)))
        self.connections = connect.Connections(
            self.reconciler, directory.Directory(
                self.host, self.node.services, self.node.peers).find)

    @property
    def lvs(self):
        return self.disk.lvs

    def lock(self, name):
        # Who would have to wait gives up at once, here; see Node.try_lock.
        if self.looks and not self.held:
            raise LookWaits('a look on %s waits for %s' % (self.host, name))
        return self.try_lock(name)

    def look(self, reconcile):
        """The same look, in which nothing may be waited for."""
        @functools.wraps(reconcile)
        def looking(*args, **kwargs):
            self.looks = True
            try:
                return reconcile(*args, **kwargs)
            finally:
                self.looks = False
        return looking

    @contextlib.contextmanager
    def try_lock(self, name):
        if name in self.held:
            raise exceptions.Busy(what=name, host=self.host, seconds=0)
        self.held.add(name)
        try:
            yield
        finally:
            self.held.discard(name)

    @property
    def is_away(self):
        """Whether its kernel does not answer."""
        return self.dead

    def check_alive(self):
        if self.dead:
            raise effects.Stopped(self)

    def flush_source(self, move, disk):
        """Flush what was written to the source of a move to this node."""
        source = self.world.nodes[self.sessions[disk]]
        self.world.insist(disk == move.move_id, 'another disk is flushed')
        self.world.insist(not source.is_away, 'a flush that hangs')
        source.disk.flush(move.source_lv)

    def stop(self, power):
        self.dead = True
        self.reconciler.comparison.memory = refill.Memory()
        self.node.asked.clear()
        self.held.clear()
        self.exported.clear()
        self.lent.clear()
        self.sim_exports.ended.clear()
        if power:
            reencryption.lose_power(self)
            for kept in (self.devices, self.exports, self.remote, self.backing,
                         self.sessions, self.remotes, self.opened,
                         self.links):
                kept.clear()
            self.disk.lose_power()
            self._check_boot()

    def _check_boot(self):
        """A boot gives out by itself nothing that is not all there."""
        for local in boot_plan.plan(survey.Survey(
                stack.SimLvm(self).lvs(), {})):
            row = self.world.volumes.get(local.volume_id)
            if local.move is None and not local.reason and not (
                    row and row.status == 'creating'
                    or names.FRESH in self.disk.tags[local.lv]):
                self.world.insist(
                    disks.EMPTY not in self.lvs[local.lv],
                    'a boot gives out what is not copied')
                self.world.insist(
                    local.size % disks.GIB == int(names.facts(
                        self.disk.tags[local.lv]).get('extra', 0)),
                    'a boot gives out %d bytes', local.size)
            move = records.SimMoves(self).move_of(local.volume_id)
            self.world.insist(
                local.reason or not (move and move.is_deferred
                                     and not move.committed
                                     and move.destination == self.host),
                'a boot gives out what the volume is not yet')

    @contextlib.contextmanager
    def held_back(self, *_devices):
        """Devices, or LVs, are suspended meanwhile; nobody is at work here.
        """
        yield

    def connect(self, volume, connector):
        """Cinder asks for a connection; it is not late."""
        return self.connections.connect(
            volume.id, connector, attachments.as_sent(volume))

    def disconnect(self, volume, connector):
        """The same for its end."""
        self.connections.disconnect(
            volume.id, connector, attachments.as_sent(volume))

    def move(self, volume, peer, live=False):
        """What the driver does in initialize_connection for a move."""
        with self.lock(volume.id):
            return source.move_volume(self.node, volume, peer, live)

    # -- the data path of a guest

    def read(self, volume_id, region):
        return self._through(names.handle(volume_id), region)

    def write(self, volume_id, region, value, flushed=True):
        if volume_id in self.remote_handles():
            self._home_of(volume_id).write(volume_id, region, value, flushed)
            return
        below = self.devices[names.handle(volume_id)]['below']
        clone = self.devices.get(below)
        self.disk.write(clone['lv'] if clone else below, region, value)
        self.written[volume_id] = self.written.get(volume_id, 0) + 1
        if clone and region < disks.length(clone):
            self.disk.make_local(clone['metadata'], region)
        if flushed:
            self.flush(volume_id)

    def flush(self, volume_id):
        """All that was written; with a clone all that was copied, too."""
        if volume_id in self.remote_handles():
            self._home_of(volume_id).flush(volume_id)
            return
        below = self.devices[names.handle(volume_id)]['below']
        clone = self.devices.get(below)
        self.disk.flush(*(clone['lv'], clone['metadata']) if clone
                        else (below,))

    def remote_handles(self):
        """The volumes whose handles are on a disk of another node."""
        return {names.volume_of_handle(name)
                for name, device in list(self.devices.items())
                if str(device.get('below')).startswith('disk of ')}

    def _home_of(self, volume_id):
        """The node that serves what is passed through here.

        The kernel's initiator comes back to a home that was away.
        """
        if volume_id not in self.remotes:
            raise IOError('the disk is gone')
        home = self.world.nodes[self.remotes[volume_id]]
        handle = names.handle(volume_id)
        if (volume_id not in {each for each, _who in home.remote}
                or handle not in home.devices):
            raise IOError('the home does not serve it')
        return home

    def insist_unclaimed(self, volume_id):
        """What is to be above a handle gets it: its exports are elsewhere."""
        self.world.insist(
            volume_id not in {each for each, _who in self.remote}
            or volume_id in self.backing
            and self.backing[volume_id] != names.handle(volume_id),
            'the iSCSI target has the handle')

    def _through(self, name, region):
        volume_id = names.volume_of_handle(name)
        if volume_id in self.remote_handles():
            return self._home_of(volume_id).read(volume_id, region)
        below = self.devices[name]['below']
        assert region < disks.length(self.devices[name]), 'beyond its end'
        clone = self.devices.get(below)
        if clone is None:
            return self.lvs[below][region]
        if region >= disks.length(clone):
            return self.lvs[clone['lv']][region]
        return self.read_clone(clone, region)

    def read_clone(self, clone, region):
        if region in self.lvs[clone['metadata']]['local']:
            return self.lvs[clone['lv']][region]
        return self._from_source(clone, region)

    def _from_source(self, clone, region):
        if clone['record'] not in self.sessions:
            raise IOError('the source is gone')
        other = self.world.nodes[self.sessions[clone['record']]]
        if clone['record'] not in other.exports:
            raise IOError('the source is not exported')
        if other.unreadable:
            raise IOError('the source cannot be read')
        return other._through(names.source(clone['record']), region)

    def hydrate(self, flushed=False):
        """The kernel's own copying, to its end if the source answers.

        :param flushed: as it does by itself after a second
        """
        for device in list(self.devices.values()):
            if device.get('hydrating'):
                self._hydrate(device)
                if flushed:
                    self.disk.flush(device['lv'], device['metadata'])

    def _hydrate(self, clone):
        local = self.lvs[clone['metadata']]['local']
        for region in set(range(disks.length(clone))) - local:
            with contextlib.suppress(IOError, KeyError):
                data = self._from_source(clone, region)
                self.reads += 1
                if not self.broken:
                    self.disk.write(clone['lv'], region, data)
                    self.disk.make_local(clone['metadata'], region)
