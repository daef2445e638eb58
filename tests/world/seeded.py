# SPDX-License-Identifier: Apache-2.0
"""The simulated world under the scheduler: nodes that act at the same time.

Beside the world of the other tests: who has to wait for a lock waits; a call
to a peer is an actor there, and its answer may be late or lost; a service that
is killed leaves its node's kernel as it is; a power cut loses some of what was
not flushed; the database and the privileged daemon fail.
A device that is suspended holds I/O back, and so does an initiator whose
target is away.
"""

import collections
import contextlib
import errno
import json
import types
import typing

from oslo_db import exception as db_exc
import oslo_messaging as messaging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import node as node_module
from cinder_localclone.driver import driver
from cinder_localclone.service import endpoint
from cinder_localclone.service import rpc
from tests.world import crypt
from tests.world import disks
from tests.world import effects
from tests.world import encrypted
from tests.world import iscsi
from tests.world import nodes
from tests.world import records
from tests.world import reencryption
from tests.world import scheduler as schedulers
from tests.world import troubles

#: How many messages a process knows again (_MsgIdCache of oslo.messaging).
REMEMBERED = 16
#: Seconds, as the options are by default.
LOCK, PEER, DOWN, COMMAND = 20, 40, 60, 60


#: The first word of what a write left that was cut short.
TORN = 'torn'


#: What a thin pool that is full does with a write that needs room, and for
#: how long it waits.
NO_SPACE = ('fails', 'waits')
NO_SPACE_WAIT = 60


class Disk(disks.Disk):
    """A disk of which a power cut loses any part of what was not flushed.

    :param node: whose it is; its pool may be full
    """

    def __init__(self, node=None):
        super().__init__()
        self._node = node

    def write(self, lv, region, value):
        """:raises NoSpace: if its pool has no room for it
        :raises Waits: the same, if it may have some soon
        """
        if self._is_full() and self._needs_room(lv, region):
            if self._node.world.no_space == 'waits':
                raise Waits('the pool of ' + lv, lambda: not self._is_full(),
                            seconds=NO_SPACE_WAIT)
            raise NoSpace('the pool has no room for ' + lv)
        super().write(lv, region, value)

    def _is_full(self):
        return bool(self._node and self._node.world.pool
                    and self._node.usage[0] >= 100)

    def _needs_room(self, lv, region):
        """What was never written does, and what is shared by snapshots."""
        own = names.facts(self.tags.get(lv, ())).get('volume')
        return self.lvs[lv][region] in (disks.EMPTY, disks.ZERO) or bool(
            own and any(names.facts(tags).get('of') == own
                        for tags in self.tags.values()))

    def power_cut(self, random, data_of):
        """Lose power.

        The kernel commits what a clone has on record as local as a whole,
        and flushes its data before.

        :param random: of what is lost; None: all that was not flushed
        :param data_of: the LV with the data, by metadata LV
        """
        if random is None:
            self.lose_power()
            return
        cached, commits = self._cached, {}
        kept: collections.Counter[typing.Any] = collections.Counter()
        for metadata in sorted({each[0] for each in cached}):
            if isinstance(self.lvs[metadata], dict):
                moment = random.randint(0, len(cached)) if (
                    metadata in data_of) else 0
                commits[metadata] = moment
                kept.update((lv, region) for lv, region, _old in
                            cached[:moment] if lv == data_of.get(metadata))
        for lv, region in sorted({each[:2] for each in cached
                                  if each[0] not in commits}):
            values = [before for name, where, before in cached
                      if (name, where) == (lv, region)]
            values.append(self.lvs[lv][region])
            found = random.randrange(kept[lv, region], len(values) + 1)
            if found == len(values) and found - kept[lv, region] > 1:
                self.lvs[lv][region] = '%s %s' % (TORN, values[-1])
            elif found < len(values):
                self.lvs[lv][region] = values[found]
        for metadata, moment in commits.items():
            self.lvs[metadata]['local'] -= {
                region for name, region, _old in cached[moment:]
                if name == metadata}
        cached.clear()
        self.inactive = set(self.lvs)


class NoSpace(IOError):
    """A thin pool is full; the guest is told so."""


class Waits(exceptions.CommandTimeout):
    """The kernel holds I/O back; whoever waits may give up.

    :param ready: says whether it may go on
    :param passes: whether it is for a moment: a device is suspended
    :param seconds: after which it fails, as a full pool has it; None: never
    """

    def __init__(self, what, ready, is_remote=False, seconds=None):
        super().__init__(command='I/O of ' + what, seconds=COMMAND)
        self.what = what
        self.ready, self.is_remote, self.seconds = ready, is_remote, seconds


class _Acting(effects._Acting):
    """What a process does; nothing any more when that is gone."""

    def __init__(self, node, inner):
        super().__init__(node, inner)
        self._life = node.life
        self._faults = (
            troubles.DATABASE if isinstance(inner, records.Base) else
            troubles.KEYS if isinstance(inner, crypt.SimKeys) else
            troubles.LOCAL)

    def __getattr__(self, name):
        """Only what is no method is asked for here more than once."""
        call = getattr(self._inner, name)
        if not callable(call):
            self._check()
            return call
        looks = name in effects.UNNOTED and name not in effects.LOCKED
        setattr(type(self), name, (_looking if looks else _doing)(name))
        return getattr(self, name)

    def _check(self):
        if self._life is not self._node.life:
            raise schedulers.Gone()

    def _check_database(self):
        """:raises DBConnectionError: if it is away, and this asks it"""
        node = self._node
        if node.no_database and self._faults is troubles.DATABASE:
            node.no_database -= 1
            if not node.world.scheduler.quiet:
                node.world.scheduler.say('the database is away')
                raise db_exc.DBConnectionError()

    def _call(self, call, args, kwargs):
        """A command with its time limit, whatever holds I/O back."""
        scheduler = self._node.world.scheduler
        until = scheduler.now + COMMAND
        while True:
            try:
                return call(*args, **kwargs)
            except Waits as exc:
                if scheduler.current is None:
                    raise
                if scheduler.now >= until:
                    # As another node gets it, too: by the class's name.
                    raise exceptions.CommandTimeout(
                        command='I/O of ' + exc.what, seconds=COMMAND)
                scheduler.wait(until - scheduler.now, exc.ready)
                self._check()

    def _fail(self, fault, name, call, args, kwargs):
        """An effect of which nobody learns how it has ended."""
        world, node = self._node.world, self._node
        world.scheduler.say('%s: %s' % (name, fault[0]))
        if name == 'drop_backups':
            world.secrets.missed = True
        if fault[0] in ('daemon dies after', 'time over after',
                        'no answer after',
                        'connection lost after the commit'):
            self._call(call, args, kwargs)
            world.tick(node, name)
        if fault[0] == 'time over after':
            raise exceptions.CommandTimeout(command=name, seconds=60)
        if fault[0].startswith('no answer'):
            world.secrets.missed = True
            raise encryption_exceptions.KeyUnavailable(reason=fault[0])
        if fault[0] == 'deadlock':
            raise db_exc.DBDeadlock()
        if fault[0].startswith('connection'):
            node.no_database, = fault[1:]
            raise db_exc.DBConnectionError()
        raise IOError('Premature eof waiting for privileged process')


#: By class: another with its methods, each of them with its moments.
_ACTING: dict[type, type] = {}


def _acting(node, inner):
    kind = type(inner)
    if kind not in _ACTING:
        _ACTING[kind] = type('_Acting', (_Acting,), {})
    return _ACTING[kind](node, inner)


def _looking(name):
    is_moment = name in GLANCES

    def looking(self, *args, **kwargs):
        node, life = self._node, self._life
        if is_moment and life is node.life:
            scheduler = node.world.scheduler
            if scheduler.current:
                scheduler.turn()
        if life is not node.life:
            raise schedulers.Gone()
        self._check_database()
        return self._call(getattr(self._inner, name), args, kwargs)
    return looking


def _doing(name):
    which = effects.BY.get(name, 0)

    def doing(self, *args, **kwargs):
        self._check()
        node, world = self._node, self._node.world
        call = getattr(self._inner, name)
        if name in effects.LOCKED:
            effects._insist_on_lock(node, name, args[which])
        if name in effects.ALLOCATING:
            world.insist(node_module.FREE_SPACE in node.held,
                         '%s without the lock of free space', name)
        world.tick(node, 'before ' + name)
        self._check_database()
        fault = world.fault(self._faults, name if name in troubles.HOT else '')
        if fault:
            return self._fail(fault, name, call, args, kwargs)
        result = self._call(call, args, kwargs)
        world.tick(node, name)
        return result
    return doing


class Services(records.SimServices):
    """The database takes a service for dead a while after its end."""

    def alive_by_host(self):
        now = self.world.scheduler.now
        return {host: alive or now - self.world.nodes[host].died < DOWN
                for host, alive in super().alive_by_host().items()}


class Exports(iscsi.SimExports):

    def _insist_device(self, name):
        """But of a move that has ended since a slow look has begun.

        The node's look removes the source of such a move without its
        volume's lock. The target then finds no device.
        """
        move_records = self.node.world.move_records
        if name not in self.node.devices and name.startswith(
                names.source('')) and not any(
                    name == names.source(each) and not move.is_over
                    for each, move in move_records.items()):
            raise OSError(errno.ENOENT, 'no such device', name)
        super()._insist_device(name)

    def _insist_unread(self, move_id):
        """But of a move that has failed, before its destination looks.

        A delete withdraws what was to be its source. That harms nobody: the
        clone was given to no guest, and the record of the failure keeps it
        from a commit. Reads of it, and a login that is late, wait until the
        destination logs out, which is the first step of its clean-up
        (removal.tear_down) and needs no answer of the target. The delete
        can't wait for that: the destination may be down for days.
        """
        move = self.node.world.move_records.get(move_id)
        if move is None or move.committed or not move.is_over:
            super()._insist_unread(move_id)


class Client(rpc.Client):
    """The driver's client; what it sends is an actor on the other node."""

    def __init__(self, node):
        super().__init__(PEER)
        self._node = node
        self._life = node.life

    def _context(self):
        """None: the id of one would be new in each process."""

    def _target(self, host, **options):
        if self._life is not self._node.life:
            raise schedulers.Gone()
        return types.SimpleNamespace(
            call=lambda _context, name, **arguments: self._node.world.call(
                self._node, host, name, arguments, options['timeout']),
            cast=lambda _context, name, **arguments: self._node.world.cast(
                self._node, host, name, arguments))


class Endpoint(endpoint.Endpoint):
    """The driver's; of a service that looks at no kernel."""

    def __init__(self, node, service):
        super().__init__(service)
        self._node = node
        self.describe = self._describe

    def _describe(self, _context):
        free = self._node.sim_lvm.free_space()
        return {'host': self._node.host + '#p', 'addresses': [],
                'initiator': 'i', 'problems': [], 'to_wipe': 0, 'time': 0,
                'block': 512, 'sparse': bool(self._node.world.pool),
                'free_space': vars(free)}


class Node(nodes.SimNode):
    """A node whose service and kernel end each by itself."""

    world: typing.Any
    disk: typing.Any
    driver: typing.Any
    _endpoint: typing.Any
    ACTING: typing.Any = staticmethod(_acting)
    EXPORTS: typing.Any = Exports
    SERVICES: typing.Any = Services
    #: What a process of its service is known by; None: there is none. And
    #: the one that was the last to have started to its end.
    life: object = None
    #: How many messages its services have had.
    received = 0
    begun: object = None
    #: Whether it has power; when its service died.
    off = False
    died = 0.0
    #: By how many seconds its clock is wrong.
    skew = 0
    #: How many of its next requests to the database fail.
    no_database = 0
    #: What is there from one boot to the next.
    boot: object = None

    def __post_init__(self):
        self.slow = True
        self.disk = Disk(self)
        self.life = self.begun = object()
        super().__post_init__()

    # -- of the actor, not of the node

    @property
    def held(self):
        actor = self.world.scheduler.current
        return {name for host, name in (
            actor.held if actor else self.world.scheduler.locks)
            if host == self.host}

    @held.setter
    def held(self, value):
        """It is the scheduler that knows."""

    @property
    def looks(self):
        actor = self.world.scheduler.current
        return bool(actor and actor.looks)

    @looks.setter
    def looks(self, value):
        actor = self.world.scheduler.current
        if actor:
            actor.looks = value

    def lock(self, name):
        if self.looks and not self.held:
            raise nodes.LookWaits('a look on %s waits for %s' % (
                self.host, name))
        return self.world.lock(self, name, LOCK)

    def try_lock(self, name):
        return self.world.lock(self, name, 0)

    def flush_source(self, move, disk):
        self.check_source(disk)
        super().flush_source(move, disk)

    # -- its process

    @property
    def is_away(self):
        return self.off

    @property
    def answers(self):
        """Whether its service takes messages: not before its first look."""
        return self.life is not None and self.begun is self.life

    def make_peers(self):
        return Client(self)

    def start_service(self):
        super().start_service()
        service = types.SimpleNamespace(
            node=self.node, reconciler=self.reconciler,
            connections=self.connections)
        self._endpoint = None
        self.driver = driver.LocalCloneDriver.__new__(driver.LocalCloneDriver)
        self.driver.service = service
        self.driver.host = self.host
        self.driver.configuration = types.SimpleNamespace(
            localclone_snapshot_timeout=300)

    @property
    def endpoint(self):
        """What answers its peers; few services are asked."""
        if self._endpoint is None:
            self._endpoint = Endpoint(self, self.driver.service)
        return self._endpoint

    def check_alive(self):
        if self.life is None:
            raise schedulers.Gone()

    def stop(self, power, random=None):
        """:param random: of what a power cut loses; None: all"""
        if not self.dead:
            self.died = self.world.scheduler.now
        self.dead, self.life = True, None
        self.world.scheduler.drop_locks(self.host)
        self.exported.clear()
        self.lent.clear()
        self.sim_exports.ended.clear()
        if not power:
            return
        self.off, self.boot = True, object()
        reencryption.lose_power(self)
        data_of = {device['metadata']: device['lv']
                   for device in self.devices.values()
                   if 'metadata' in device}
        for kept in (self.devices, self.exports, self.remote, self.backing,
                     self.sessions, self.remotes, self.opened, self.links,
                     self.suspended):
            kept.clear()
        self.world.power_lost(self)
        self.disk.power_cut(random, data_of)
        self._check_boot()

    def start(self):
        self.off = self.dead = False
        self.life = object()
        self.start_service()

    # -- I/O that is held back

    @contextlib.contextmanager
    def held_back(self, *devices):
        """Devices are suspended meanwhile.

        They stay so if what is to resume them does not live to do it.
        """
        self.suspended.update(devices)
        self.world.half(self)
        try:
            yield
        except schedulers.Gone:
            raise
        except Exception:
            self.suspended.difference_update(devices)
            raise
        self.suspended.difference_update(devices)

    def _check_runs(self, *devices):
        """:raises Waits: if one of them holds I/O back"""
        for name in devices:
            if name in self.suspended:
                raise Waits(name, lambda name=name: (
                    name not in self.suspended), is_remote=True)

    def _check_handle(self, volume_id):
        """All that is written to a handle, or flushed there, goes on."""
        handle = names.handle(volume_id)
        below = self.devices[handle].get('below')
        self._check_runs(handle, below,
                         self.devices.get(below, {}).get('lv'))

    def write(self, volume_id, region, value, flushed=True):
        self._check_handle(volume_id)
        super().write(volume_id, region, value, flushed)

    def flush(self, volume_id):
        self._check_handle(volume_id)
        super().flush(volume_id)

    def _through(self, name, region):
        self._check_runs(name, self.devices[name].get('below'))
        return super()._through(name, region)

    def read_clone(self, clone, region):
        self._check_runs(names.clone(clone['record']), clone['lv'])
        return super().read_clone(clone, region)

    def _home_of(self, volume_id):
        if volume_id in self.remotes and not self._is_exported(volume_id):
            raise Waits('disk of ' + volume_id, lambda: (
                volume_id not in self.remotes or self._is_exported(volume_id)))
        return super()._home_of(volume_id)

    def _is_exported(self, volume_id):
        home = self.world.nodes[self.remotes[volume_id]]
        return names.handle(volume_id) in home.devices and any(
            each == volume_id for each, _who in home.remote)

    def check_source(self, move_id):
        """:raises Waits: if the source of a move does not answer"""
        if move_id in self.sessions and not self._has_source(move_id):
            raise Waits('source of ' + move_id, lambda: (
                move_id not in self.sessions
                or self._has_source(move_id)))

    def _has_source(self, move_id):
        return move_id in self.world.nodes[self.sessions[move_id]].exports

    def _from_source(self, clone, region):
        self.check_source(clone['record'])
        return super()._from_source(clone, region)

    def copy_one(self):
        """The kernel copies one region of each clone that it may."""
        copied = False
        for device in list(self.devices.values()):
            if not device.get('hydrating') or names.clone(
                    device['record']) in self.suspended:
                continue
            local = self.lvs[device['metadata']]['local']
            for region in range(disks.length(device)):
                if region in local:
                    continue
                try:
                    data = self._from_source(device, region)
                    self.reads += 1
                    self.disk.write(device['lv'], region, data)
                except (IOError, KeyError, Waits):
                    break
                self.disk.make_local(device['metadata'], region)
                copied = True
                break
        return copied

    def sync(self):
        """The kernel commits what its clones have copied, each second."""
        for device in list(self.devices.values()):
            if 'metadata' in device:
                self.disk.flush(device['lv'], device['metadata'])


class World(nodes.World):
    """The database, the network and the nodes, under a scheduler.

    :param choices: see :class:`.scheduler.Scheduler`
    :param hosts: the nodes
    :param no_space: one of :data:`NO_SPACE`
    """

    def __init__(self, choices, hosts, pool, no_space=NO_SPACE[0]):
        self.no_space = no_space
        self.scheduler = schedulers.Scheduler(choices, self.wrong)
        #: Returns what an instance has attached, and does not find.
        self.missing: typing.Any = lambda: ''
        #: Called with a node whose power fails, before its cache is lost.
        self.on_power_lost: list[typing.Any] = []
        #: Called with a node whose service starts.
        self.on_start: typing.Any = lambda node: None
        super().__init__(hosts=hosts)
        self.pool = pool

    def make_node(self, host):
        return Node(self, host)

    def database_time(self):
        return schedulers.moment(schedulers.EPOCH + self.scheduler.now)

    def wrong(self):
        if self.wrongs:
            return self.wrongs[0]
        return self.missing() or (
            encrypted.check(self) if self.headers else '')

    def power_lost(self, node):
        for each in self.on_power_lost:
            each(node)

    def lock(self, node, name, seconds):
        return self.scheduler.lock(node.host, name, seconds)

    # -- moments

    def tick(self, node, what):
        scheduler = self.scheduler
        if scheduler.current is None:
            return
        reencryption.insist_on_fences(self)
        hot = what.removeprefix('before ') in troubles.HOT
        if not scheduler.quiet:
            found = scheduler.choices.fault(
                scheduler.current.key(), troubles.STOPS,
                what if hot else '', 4 if what in troubles.RECORDED else 1)
            if found:
                self.stop(node, *found)
        scheduler.dawdle(hot)
        scheduler.turn('' if what.startswith('before') else what, hot)

    def half(self, node):
        """A moment in the middle of an effect, with a device suspended."""
        fault = self.fault(troubles.HALF, 'half')
        if fault:
            self.scheduler.say(fault[0])
            raise IOError('Premature eof waiting for privileged process')
        self.tick(node, 'suspended')

    def fault(self, faults, hot):
        scheduler = self.scheduler
        if scheduler.current is None or scheduler.quiet:
            return None
        return scheduler.choices.fault(scheduler.current.key(), faults, hot)

    def stop(self, node, fault, seconds, lost):
        """:param lost: seed of what a power cut loses; 0: all"""
        hosts = list(self.nodes)
        others = [self.nodes[host] for host in hosts if host != node.host]
        struck = {'cut all': [node] + others,
                  'cut another': others[:1]}.get(fault, [node])
        for each in struck:
            if each.off:
                continue
            self.scheduler.say('!! %s on %s, for %d s' % (
                'its service is killed' if fault == 'kill' else 'power cut',
                each.host, seconds))
            each.stop(fault != 'kill', schedulers.random.Random(
                lost) if lost else None)
            self.scheduler.spawn('start of ' + each.host, lambda each=each:
                                 self.start(each), after=seconds)

    def start(self, node):
        """Power is back, the service starts."""
        if node.life is not None:
            return
        node.start()

        def connect():
            try:
                self.on_start(node)
                node.begun = node.life
            except Exception as exc:  # Cinder's service serves nothing then
                self.scheduler.say('not started, once more: %r' % exc)
                node.stop(power=False)
                self.scheduler.spawn('start of ' + node.host,
                                     lambda: self.start(node), after=30)
        self.scheduler.spawn('service of ' + node.host, connect,
                             self.alive(node))

    alive = schedulers.Process

    # -- messages

    def call(self, node, host, name, arguments, seconds):
        """A call of a peer, which may take as long as some seconds."""
        scheduler, other = self.scheduler, self.nodes[host]
        if scheduler.current is None:
            return self._answer(other, name, arguments)
        creates = name.startswith('create_from_')
        fate, *how = self._fate(
            troubles.CREATION_FATES if creates else troubles.FATES, name, host,
            ['again'] * 5 if creates else ())
        scheduler.turn()
        sent = json.loads(json.dumps(arguments))
        answers: list[typing.Any] = []

        def answer():
            try:
                answers.append((self._answer(other, name, sent), None))
            except Exception as exc:
                answers.append((None, exc))
        if fate != 'request lost':
            self._send(other, name, answer, fate, how, seconds)
        lost = fate in ('answer lost', 'answered late', 'request lost')
        scheduler.wait(seconds, lambda: answers and not lost)
        if not answers or lost or fate == 'late':
            raise messaging.MessagingTimeout()
        result, error = answers[0]
        if error is not None:
            raise messaging.RemoteError(type(error).__name__, str(error), [])
        return json.loads(json.dumps(result))

    def cast(self, node, host, name, arguments):
        other = self.nodes[host]
        if self.scheduler.current is None:
            return
        fate, *how = self._fate(troubles.CAST_FATES, name, host)
        if fate != 'request lost':
            self._send(other, name, lambda: self._answer(
                other, name, arguments), fate, how)

    def _fate(self, fates, name, host, often=()):
        scheduler = self.scheduler
        found = None if scheduler.quiet else scheduler.choices.fate(
            scheduler.current.key(), fates, often)
        if found:
            scheduler.say('%s to %s: %s' % (name, host, found[0]))
        return found or ('',)

    def _send(self, other, name, act, fate, how, seconds=None):
        """A request is on its way, and waits for the service.

        :param seconds: for which it is kept, if need be; None: for ever
        """
        scheduler = self.scheduler
        name = '%s of %s on %s' % (name, scheduler.current.name, other.host)
        seen: list[tuple[object, int]] = []

        def begin():
            # What a process has not seen for long, it does not know again.
            other.received += 1
            if not any(life is other.life
                       and other.received - number <= REMEMBERED
                       for life, number in seen):
                seen.append((other.life, other.received))
                actor = scheduler.spawn(name, act, self.alive(other))
                if fate == 'again' and len(seen) == 1:
                    scheduler.spawn(name + ', again', lambda: again(actor))

        def again(actor):
            scheduler.wait(seconds, lambda: actor.ended)
            if actor.ended and other.life is not None:
                pause, = how
                self.stop(other, 'kill', pause, 0)
                scheduler.wait(pause)
                arrive()

        def arrive():
            if not other.answers:
                scheduler.wait(seconds, lambda: other.answers)
            if other.answers:
                begin()
        delays = {'twice': [(0, None), how], 'slow': [how],
                  'late': [((seconds or 29) + 1, None)]}.get(
                      fate, [(0, None)])
        for after, steps in delays:
            if after or not other.answers:
                scheduler.spawn(name + ', on its way', arrive, after=after,
                                steps=steps)
            else:
                begin()

    def _answer(self, other, name, arguments):
        try:
            return getattr(other.endpoint, name)(None, **arguments)
        except messaging.ExpectedException as exc:
            raise exc.exc_info[1] from None


#: Looks that are moments: what is read there may be old when it is used.
GLANCES = frozenset(('volume', 'move_of', 'moves_of', 'volumes_of',
                     'get_move', 'pending_cleanups', 'devices', 'survey',
                     'lvs', 'remote', 'clone_status', 'snapshot'))
