# SPDX-License-Identifier: Apache-2.0
"""What Cinder, Nova, guests, kernels and timers do, as events of a schedule.

Cinder's API takes a volume by its status and sends the request to the service
that it has read with it; its manager runs there. What a service was at work
on when it died is left as it was; its start ends it, as Cinder's does.
"""

import collections
import contextlib
import types
import typing

from cinder import exception
from oslo_db import exception as db_exc

from cinder_localclone.core import names
from cinder_localclone.moves import cleanup
from cinder_localclone.volumes import migrate
from cinder_localclone.volumes import uncommitted
from tests.world import crypt
from tests.world import disks
from tests.world import encrypted
from tests.world import instances
from tests.world import seeded
from tests.world import troubles


class Data:
    """What a volume may hold, by what its guest was told.

    Each region has the values that may be found there: the last one that was
    flushed and those that were written since, the last of which it has unless
    power was lost.
    """

    def __init__(self, values):
        self.regions = [list(each) for each in values]
        #: Regions of which the last value may be lost.
        self.unsure = {region for region, each in enumerate(self.regions)
                       if len(each) > 1}
        #: Captures that go on: what they may have of each region.
        self.captures = []

    def grow(self, count):
        """There are so many regions; what is new reads as zeros."""
        self.regions += [[disks.ZERO] for _each in range(
            count - len(self.regions))]

    def write(self, region, value):
        self.regions[region].append(value)
        for each in self.captures:
            if region < len(each):
                each[region].append(value)

    def flush(self):
        self.regions = [each if region in self.unsure else each[-1:]
                        for region, each in enumerate(self.regions)]

    def power_lost(self):
        self.unsure |= {region for region, each in enumerate(self.regions)
                        if len(each) > 1}
        for capture in self.captures:
            for region in self.unsure.intersection(range(len(capture))):
                capture[region][:0] = self.regions[region]

    def read(self, region, value):
        """:returns: what is wrong with what was read"""
        known = self.regions[region]
        if value == disks.EMPTY:
            value = disks.ZERO
        if value == known[-1]:
            self.unsure.discard(region)
            return ''
        torn = value.startswith(seeded.TORN + ' ') and (
            value.partition(' ')[2] in known[1:])
        if region in self.unsure and (value in known or torn):
            self.unsure.discard(region)
            self.regions[region] = [value]
            return ''
        return 'region %d has %r, not %r' % (region, value, known)

    def capture(self):
        """What is copied from now on has all that was written before."""
        found = [list(each) if region in self.unsure else each[-1:]
                 for region, each in enumerate(self.regions)]
        self.captures.append(found)
        return found

    def end_capture(self, found):
        """A capture goes on no more; another one may have the same."""
        self.captures = [each for each in self.captures if each is not found]


class Cloud(encrypted.Events, instances.Instances):
    """A world, and what is done in it."""

    def __init__(self, schedule, choices):
        self.schedule = schedule
        self.world = seeded.World(
            choices, instances.HOSTS[:schedule.hosts], schedule.pool,
            schedule.no_space)
        for node, skew in zip(self.world.nodes.values(), schedule.skews):
            node.skew = skew
            node.disk.sealed = {} if schedule.encrypted else None
        self.scheduler: typing.Any = self.world.scheduler
        self.world.on_start = self.connect
        self.promised = {}
        self.world.missing = self.missing
        self.world.on_power_lost.append(self.power_lost)
        #: By volume id, by snapshot id.
        self.data = {}
        self.captured = {}
        #: Which guests run where, by volume id: host; those that wait for
        #: their I/O, and for how many.
        self.guests = {}
        self.waiting: collections.Counter[str] = collections.Counter()
        #: How many processes on a node have a volume open: (id, host).
        self.processes = collections.Counter()
        #: Deletions under way, by volume id.
        self.deletes: collections.Counter[str] = collections.Counter()
        #: How often the power of a node has failed, by host.
        self.cuts = collections.Counter()
        #: Which service is at work on a volume: its process, its host.
        self.workers = {}
        self.writes = 0
        self.order = []
        for number in range(schedule.volumes):
            volume = self.world.create_volume(
                instances.HOSTS[number % schedule.hosts],
                holes=(3,) if schedule.pool else (), **({
                    'provider_id': crypt.recorded('-'),
                    'extra_specs': encrypted.TYPE} if schedule.encrypted
                    else {}))
            self._adopt(volume)
            if schedule.encrypted:
                self.adopt_encrypted(volume)
            self.data[volume.id] = Data(
                [value] for value in self.home(volume).lvs[volume.name])

    def _adopt(self, volume):
        volume._context = None
        volume.volume_type_id = None
        volume.migration_status = None
        self.order.append(volume.id)

    def home(self, volume):
        return self.world.home(volume)

    def power_lost(self, node):
        """What was written to its disk, and not flushed, may be lost."""
        self.cuts[node.host] += 1
        for volume_id in [each for each, where in self.guests.items()
                          if where == node.host]:
            del self.guests[volume_id]
        for volume_id, host in list(self.processes):
            if host == node.host:
                del self.processes[volume_id, host]
        for volume_id, data in self.data.items():
            if any(volume_id == names.facts(tags).get('volume')
                   for tags in node.disk.tags.values()):
                data.power_lost()

    # -- choosing what there is

    def volume(self, number, *statuses):
        """The row of one of the volumes, if its status is one of these."""
        found = [self.world.volumes[each] for each in self.order
                 if each in self.world.volumes]
        found = [each for each in found
                 if not statuses or each.status in statuses]
        return found[number % len(found)] if found else None

    def node(self, number):
        return self.world.nodes[
            instances.HOSTS[number % self.schedule.hosts]]

    def other(self, number, host):
        """Another node than one."""
        found = [each for each in self.world.nodes.values()
                 if each.host != host.partition('#')[0]]
        return found[number % len(found)]

    def nodes(self):
        return list(self.world.nodes.values())

    # -- running

    def start(self):
        """Have each event begin at its time, or when it can."""
        if self.schedule.running:
            for volume in self.world.volumes.values():
                self.run_at_home(volume)
        for event in self.schedule.events:
            self.scheduler.spawn(
                '#%d %s' % (event.number, event.kind),
                lambda event=event: self._begin(event), after=event.at)

    def _begin(self, event):
        act = getattr(self, '_' + event.kind.replace(' ', '_'))
        scheduler = self.scheduler
        until = scheduler.now + instances.PATIENCE
        while act(event.a, event.b) is False and scheduler.now < until:
            steps = scheduler.steps
            scheduler.wait(until - scheduler.now,
                           lambda steps=steps: scheduler.steps > steps + 5)

    def manager(self, host, act, volume=None):
        """Have Cinder's manager on a host do something: as a message.

        Which waits for the service.

        :param volume: of which Cinder notes that this service is at work
            on it
        """
        node, scheduler = self.world.nodes[host], self.scheduler
        name = scheduler.current.name
        if not node.answers:
            scheduler.wait(None, lambda: node.answers)
        if volume:
            self.workers[volume.id] = node.life, host
        scheduler.spawn('%s at %s' % (name, host),
                        lambda: act(node), self.world.alive(node))

    def ask(self, host, act, seconds=instances.API):
        """The same as a call.

        :returns: (whether it was answered, result); it may go on afterwards
        """
        node, scheduler = self.world.nodes[host], self.scheduler
        deadline = scheduler.now + seconds
        if not node.answers:
            scheduler.wait(seconds, lambda: node.answers)
            if not node.answers:
                return False, None
        actor = scheduler.spawn(
            '%s at %s' % (scheduler.current.name, host),
            lambda: act(node), self.world.alive(node))
        scheduler.wait(max(0, deadline - scheduler.now),
                       lambda: actor.ended)
        if not actor.ended or actor.error is not None:
            scheduler.say('fails: %r' % actor.error)
            return False, None
        return True, actor.result

    def say(self, what, *args):
        self.scheduler.say(what % args)

    def save(self, row, **values):
        """Cinder's manager writes to a row.

        :raises DBConnectionError: if it does not learn whether it has
        """
        fault = self.world.fault(troubles.CINDER, 'manager')
        if fault:
            self.say('Cinder\'s write of %s is %s', ', '.join(values), *fault)
        if fault != ('lost',):
            for name, value in values.items():
                setattr(row, name, value)
        if fault:
            raise db_exc.DBConnectionError()

    # -- kernels and timers

    def late(self):
        """Cinder's manager goes on once its driver is done, but not at once.
        """
        self.scheduler.dawdle(True)
        self.scheduler.turn(hot=True)

    def _copy(self, a, b):
        found = [each for each in self.nodes() if any(
            device.get('hydrating') for device in each.devices.values())]
        if not found:
            return False
        node = found[a % len(found)]
        for _each in range((1, 2, 3, 12, 12, 12)[b]):
            if node.off or not node.copy_one():
                break
            self.say('%s copies a region' % node.host)
            self.scheduler.turn()
        if b % 2 and not node.off:
            node.sync()

    def services(self, found, act):
        """Something that services do by themselves, each on its node.

        :param found: the nodes
        :returns: whether any does
        """
        name = self.scheduler.current.name
        found = [node for node in found if node.answers]
        for node in found:
            self.scheduler.spawn(name + ' on ' + node.host, lambda node=node:
                                 act(node), self.world.alive(node))
        return bool(found)

    def _look(self, a, b):
        """One end of moves looks at them, or all ends do."""
        ends = {host for move in self.world.move_records.values()
                for host in (move.source, move.destination)}
        found = [node for node in self.nodes() if node.host in ends]
        if not found:
            return False
        return self.services(
            found if b % 2 else [found[a % len(found)]],
            lambda node: node.reconciler.reconcile_moves())

    def _node_look(self, a, b):
        return self.services(
            [self.node(a)] if b else self.nodes(),
            lambda node: node.reconciler.reconcile_node())

    def _sweep(self, a, _b):
        self.services([self.node(a)], self.sweep)

    @staticmethod
    def sweep(node):
        uncommitted.sweep(node.node)
        cleanup.wipe_marked(node.node)

    def _fill(self, a, b):
        """A thin pool is full for a while."""
        node = self.node(a)
        node.usage = 100.0, 10.0
        self.say('the thin pool of %s is full', node.host)
        self.scheduler.wait((1, 20, 100)[b % 3])
        node.usage = 0.0, 0.0

    def _cut(self, a, b):
        """The power of a node fails, whatever goes on there."""
        self.world.stop(self.node(a), 'cut', (2, 10, 90)[b % 3],
                        a * 6 + b if b > 1 else 0)

    def _lose_source(self, a, b):
        """The power of a node fails from which a guest's volume is copied."""
        found = [move for move in self.world.move_records.values()
                 if move.committed and not move.keeps_handle
                 and not move.is_over and move.volume_id in self.guests]
        if not found:
            return False
        self.scheduler.wait((0, 1, 1, 2, 5, 15)[b])
        self.world.stop(self.world.nodes[found[a % len(found)].source],
                        'cut', (2, 10, 90)[b % 3], a)
        return None

    def _kill(self, a, b):
        if self.node(a).life is not None:
            self.world.stop(self.node(a), 'kill', (2, 10, 90)[b % 3], 0)

    def _restart(self, a, b):
        node = self.node(a)
        if node.life is not None:
            self.say('the service on %s is restarted', node.host)
            node.stop(power=False)
            self.scheduler.wait(1 + b)
            self.world.start(node)

    def connect(self, node):
        """A service starts: Cinder's part, and the driver's."""
        node.node.interrupted.end_interrupted(node.host)
        node.reconciler.reconcile_node(moves=False)
        for volume in list(self.world.volumes.values()):
            life, host = self.workers.get(volume.id, (None, ''))
            if host != node.host or life is node.life:
                continue
            if volume.status == 'creating':
                volume.status = 'error'
            elif volume.status == 'deleting':
                self.delete(node, volume)

    # -- volumes and snapshots

    def _create(self, a, _b):
        if len(self.order) >= 4:
            return False
        host = self.node(a).host
        volume = self.world.row(host, extra_specs=(
            encrypted.TYPE if self.schedule.encrypted else {}))
        self._adopt(volume)
        self.data[volume.id] = Data([[disks.ZERO]] * disks.REGIONS)
        self._made(volume, host, lambda node: node.driver.create_volume(
            volume), blank=True)

    def _made(self, volume, host, make, blank=False):
        """:param blank: whether nothing was ever written to it"""
        def create(node):
            try:
                make(node)
                self.late()
                self.save(volume)
            except Exception as exc:
                self.say('not created: %r', exc)
                volume.status = 'error'
            else:
                if volume.id in self.world.volumes:
                    volume.status = 'available'
                    # What was never written to, and is no copy, is zeros:
                    # thin, or cleared when it was removed.
                    lv = self.home(volume).lvs[volume.name]
                    lv[:] = [disks.ZERO if each == disks.EMPTY else each
                             for each in lv]
                    if blank and volume.encryption:
                        self.data[volume.id] = Data(encrypted.data_of(lv))
                self.late()
                if volume.id in self.world.volumes:
                    # Wherever the driver has made it.
                    with contextlib.suppress(db_exc.DBConnectionError):
                        self.save(volume,
                                  service_uuid=self.world.service_of(host))
        self.manager(host, create, volume)

    def _delete(self, a, _b):
        volume = self.volume(a, 'available', 'error', 'error_extending')
        return volume is not None and self.ask_delete(volume)

    def ask_delete(self, volume):
        """:returns: whether Cinder's API permits it"""
        if volume.volume_attachment or any(
                each.volume_id == volume.id and not each.deleted
                for each in self.world.snapshots.values()) or (
                volume.migration_status not in (None, 'success', 'error')):
            return False
        if any(each.source_volid == volume.id and each.status == 'creating'
               for each in self.world.volumes.values()):
            # Its clone has its secret for now, and may not delete it: the
            # key manager says that it is another volume's.
            self.world.secrets.missed = True
        volume.status = 'deleting'
        self.world.going.add(volume.id)
        self.say('delete %s', volume.id[:4])
        self.manager(volume.host.partition('#')[0],
                     lambda node: self.delete(node, volume), volume)
        return True

    def delete(self, node, volume):
        """Cinder's manager deletes a volume."""
        if volume.id not in self.world.volumes or volume.status != (
                'deleting') or volume.host.partition('#')[0] != node.host:
            return  # refused without a word: see unended.ask_again
        self.workers[volume.id] = node.life, node.host
        self.deletes[volume.id] += 1
        try:
            node.driver.delete_volume(volume)
            self.late()
            self.save(volume)
        except db_exc.DBConnectionError:
            return  # it is deleted once more
        except exception.VolumeIsBusy as exc:
            self.say('not deleted: %r', exc)
            volume.status = 'available'
            # The end of a retype may have let in two; the other may go on.
            if self.deletes[volume.id] == 1:
                self.world.going.discard(volume.id)
        except Exception as exc:
            self.say('not deleted: %r', exc)
            volume.status = 'error_deleting'
        else:
            if volume.id in self.world.volumes:
                self.world.destroy(volume)
                self.say('deleted %s', volume.id[:4])
        finally:
            self.deletes[volume.id] -= 1

    def _extend(self, a, b):
        volume = self.volume(a, 'available', 'in-use', 'error_extending')
        if volume is None or volume.size > 2:
            return False
        if volume.status == 'error_extending':  # an administrator ends it
            volume.status = 'in-use' if volume.volume_attachment else (
                'available')
        before, size = volume.status, volume.size + 1 + b % 2
        volume.status = 'extending'
        self.say('extend %s to %d GiB', volume.id[:4], size)

        def extend(node):
            try:
                node.driver.extend_volume(volume, size)
                self.late()
            except Exception as exc:
                self.say('not extended: %r', exc)
                volume.status = 'error_extending'
                return
            try:
                self.save(volume, size=size,
                          status=self._usable(volume, before))
            finally:
                self.data[volume.id].grow(
                    disks.regions(volume.backing_bytes()))
        self.manager(volume.host.partition('#')[0], extend)

    @staticmethod
    def _usable(volume, before):
        """Its status once a request is done with it."""
        return before if bool(volume.volume_attachment) == (
            before == 'in-use') else 'available'

    def _snapshot(self, a, _b):
        volume = self.volume(a, 'available', 'in-use')
        if volume is None or not self.world.pool:
            return False
        snapshot_id = self.world.snapshot_row(volume)
        data = self.data[volume.id]
        captured = data.capture()
        self.say('snapshot of %s', volume.id[:4])

        def take(node):
            row = types.SimpleNamespace(
                id=snapshot_id, volume_id=volume.id, _context=None)
            try:
                node.driver.create_snapshot(row)
                self.late()
                self.save(row)
            except Exception as exc:
                self.say('no snapshot: %r', exc)
                self.world.set_snapshot(snapshot_id, status='error')
            else:
                self.world.set_snapshot(snapshot_id, status='available')
                self.captured[snapshot_id] = captured
            data.end_capture(captured)
        self.manager(volume.host.partition('#')[0], take)

    def _snapshots(self, *statuses):
        return [each for each in self.world.snapshots.values()
                if each.status in statuses and not each.deleted
                and each.volume_id in self.world.volumes]

    def _delete_snapshot(self, a, _b):
        found = self._snapshots('available', 'error')
        if not found:
            return False
        self.delete_snapshot(found[a % len(found)])

    def delete_snapshot(self, snapshot):
        self.world.set_snapshot(snapshot.id, status='deleting')
        self.world.going.add(snapshot.id)
        volume = self.world.volumes[snapshot.volume_id]
        self.say('delete snapshot %s', snapshot.id[:4])

        def delete(node):
            node.driver.delete_snapshot(types.SimpleNamespace(
                id=snapshot.id, volume_id=snapshot.volume_id, _context=None))
            self.late()
            self.save(types.SimpleNamespace())
            self.world.set_snapshot(snapshot.id, status='deleted',
                                    deleted=True)
        self.manager(volume.host.partition('#')[0], delete)

    def _from_snapshot(self, a, b):
        found = self._snapshots('available')
        if not found or len(self.order) >= 4:
            return False
        snapshot, host = found[a % len(found)], self.node(b).host
        volume = self.world.row(host, size=snapshot.size_gib, extra_specs=(
            encrypted.TYPE if self.schedule.encrypted else {}))
        self._adopt(volume)
        self.data[volume.id] = Data(self.captured[snapshot.id])
        self.data[volume.id].power_lost()
        self._made(
            volume, host,
            lambda node: node.driver.create_volume_from_snapshot(
                volume, types.SimpleNamespace(
                    id=snapshot.id, encryption_key_id=None)))

    def _clone(self, a, b):
        source = self.volume(a, 'available', 'in-use')
        if source is None or len(self.order) >= 4 or not self.world.pool:
            return False
        host = self.node(b).host
        volume = self.world.row(host, size=source.size,
                                source_volid=source.id,
                                extra_specs=source.extra_specs)
        self._adopt(volume)
        data = self.data[source.id]
        captured = data.capture()

        def make(node):
            try:
                node.driver.create_cloned_volume(volume, source)
            finally:
                data.end_capture(captured)
                self.data[volume.id] = Data(captured)
                self.data[volume.id].power_lost()
        self.data[volume.id] = Data(captured)
        self._made(volume, host, make)

    # -- moves that nobody attaches for

    def _migrate(self, a, b):
        volume = self.volume(a, 'available')
        if volume is None or (
                volume.migration_status not in (None, 'success', 'error')):
            return False
        host = self.other(b, volume.host).host
        volume.migration_status = 'starting'
        volume.previous_status = volume.status
        self.say('migrate %s to %s', volume.id[:4], host)
        self.manager(volume.host.partition('#')[0],
                     lambda node: self.migrate(node, volume, host))

    def migrate(self, node, volume, host, status='available'):
        """Cinder's manager migrates a volume.

        :param status: that a volume has afterwards whose type is changed
        """
        volume.migration_status = 'migrating'
        try:
            _moved, update = node.driver.migrate_volume(None, volume, {
                'host': host + '#p', 'capabilities': {
                    'location_info': migrate.DRIVER + host}})
            self.late()
        except Exception as exc:
            self.say('not migrated: %r', exc)
            volume.migration_status = 'error'
            if volume.status == 'retyping':
                volume.status = self._usable(volume, status)
        else:
            retyped = {'status': self._usable(volume, status)} if (
                volume.status == 'retyping') else {}
            self.save(volume, host=update['host'], migration_status='success',
                      **retyped)

    def _retype(self, a, b):
        """Another type, at its home or at another node."""
        volume = self.volume(a, 'available', 'in-use')
        if volume is None:
            return False
        asked = volume.host
        self.scheduler.turn(hot=True)  # the API compares all but the home
        if volume.id not in self.world.volumes or volume.status not in (
                'available', 'in-use') or (
                volume.migration_status not in (None, 'success', 'error')):
            return False
        before, volume.status = volume.status, 'retyping'
        volume.previous_status = before
        home = asked.partition('#')[0]
        host = home if b % 2 else self.other(b, volume.host).host
        self.say('retype %s at %s', volume.id[:4], host)

        def retype(node):
            if host != home and not any(
                    each.volume_id == volume.id and not each.deleted
                    for each in self.world.snapshots.values()):
                self.migrate(node, volume, host, before)
                return
            # Of types with the same contents Cinder does not ask the driver.
            update = {'host': asked} if host == home and b == 5 else {}
            try:
                if host == home and not update:
                    _done, update = node.driver.retype(
                        None, volume, types.SimpleNamespace(extra_specs={}),
                        {}, {'host': host})
                self.late()
            except Exception as exc:
                self.say('not retyped: %r', exc)
            self.save(volume, status=self._usable(volume, before), **update)
        self.manager(home, retype)

    def _drain(self, a, b):
        volume = self.volume(a)  # its row may have been read long ago
        if volume is None:
            return False
        scheduler = self.scheduler
        for _each in range(1 + b):  # the operator's command asks once more
            host = self.other(b, volume.host).host
            self.say('drain %s to %s', volume.id[:4], host)
            done, _nothing = self.ask(
                volume.host.partition('#')[0], lambda node, host=host: (
                    node.endpoint.move_away(None, volume_id=volume.id,
                                            peer=host)), 2 * seeded.PEER)
            if done:
                return None
            steps = scheduler.steps
            scheduler.wait(5, lambda steps=steps: scheduler.steps > steps + 9)
        return None
