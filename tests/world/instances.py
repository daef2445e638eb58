# SPDX-License-Identifier: Apache-2.0
"""What Nova and QEMU do with volumes, as events of a schedule.

A guest runs on one node at most. But QEMU has a volume open on two during a
live migration, and may be late to end where the guest is not any more, while
Cinder is already asked to delete the attachment there. Nova gives attachments
up, repeats or loses requests, and takes guests for dead that run.
"""

import copy
import random as randoms
import typing

from cinder import exception
from oslo_db import exception as db_exc

from cinder_localclone.core import names
from tests.world import disks
from tests.world import images
from tests.world import scheduler as schedulers
from tests.world import seeded
from tests.world import troubles

HOSTS = 'a@l', 'b@l', 'c@l'
#: Seconds that cinder-api, and so Nova, waits for an answer.
API = 60
#: Seconds for which an event waits until it can begin: a volume is detached
#: once it is attached.
PATIENCE = 50
#: Seconds after which a process ends that has a volume open still; how many
#: requests to detach it reach a service.
LATE = 0, 0, .4, 3, 15, 90
ASKS = 1, 1, 1, 1, 0, 2
#: What a guest does, one of these with another: some flush seldom.
MIXES = (('read', 'write', 'write', 'flush', 'flush'), ('write',),
         ('write', 'write', 'flush'), ('read', 'flush'), ('flush', 'write'))
#: How a live migration ends.
FINISHES = ('given up', 'moved', 'moved', 'source left', 'deleted',
            'deleted')


class Instances:
    """A part of :class:`.workload.Cloud`."""

    schedule: typing.Any
    world: typing.Any
    scheduler: typing.Any
    data: dict
    guests: dict
    waiting: typing.Any
    processes: typing.Any
    cuts: typing.Any
    #: By (volume id, host): the attachment of which Nova has been told, and
    #: how often the power of its node had failed.
    promised: dict
    order: list
    writes: int
    volume: typing.Any
    home: typing.Any
    other: typing.Any
    ask: typing.Any
    say: typing.Any
    save: typing.Any
    late: typing.Any
    top: typing.Any

    # -- attachments

    @staticmethod
    def connector(host):
        return {'host': host[0], 'initiator': 'iqn.' + host[0]}

    def _attach(self, a, b):
        volume = self.volume(a, 'available')
        if volume is None:
            return False
        host = (self.other(b, volume.host) if b > 1
                else self.home(volume)).host
        if self.world.nodes[host].off:
            return False
        volume.status = 'reserved'
        new = self._reserve(volume, 'vm of ' + volume.id)
        if self._connect(volume, host, new, self._read(volume)):
            self._start_guest(volume, host)

    def _reserve(self, volume, instance):
        """An attachment that names no host yet.

        Cinder's API writes an empty connection_info (attachment_create in
        cinder/volume/api.py), not none.
        """
        new = images.attachment(
            id=str(schedulers.uuid.uuid4()), instance_uuid=instance,
            connection_info={}, mountpoint=None, connector=None,
            attach_status='reserved', left=False,
            created_at=self._now(self.scheduler.steps * 1e-6),
            updated_at=self._now())
        volume.volume_attachment = volume.volume_attachment + [new]
        return new

    def _now(self, more=0.0):
        return schedulers.moment(schedulers.EPOCH + self.scheduler.now + more)

    def _connect(self, volume, host, new, asked):
        """Nova's attachment, at a host; it gives up if that fails.

        :param asked: the volume as Cinder's API has read it
        """
        self.say('attach %s to %s', volume.id[:4], host)
        cuts = self.cuts[host]

        def connect(node):
            if new not in volume.volume_attachment:  # the first thing it reads
                raise exception.VolumeAttachmentNotFound(filter=new.id)
            try:
                properties = node.driver.initialize_connection(
                    asked, dict(self.connector(host), mountpoint='/dev/vdb'))
            except db_exc.DBError:
                raise  # an administrator has to find it
            except Exception:
                self._check_dropped(volume, new, asked)
                raise
            if new not in volume.volume_attachment:
                return  # Nova has given it up: Cinder's manager fails
            self.late()
            if new not in volume.volume_attachment:
                return
            self.save(new, connector=self.connector(host))
            self.scheduler.turn(hot=True)
            self.save(new, connection_info=self._told(properties))
            if new not in volume.volume_attachment:
                return  # it has been detached already
            new.attach_status = 'attaching'
            if volume.status in ('reserved', 'in-use', 'retyping'):
                volume.status = 'attaching'
        done, _nothing = self.ask(volume.host.partition('#')[0], connect)
        node = self.world.nodes[host]
        if done and new in volume.volume_attachment and (
                self.cuts[host] == cuts and
                new.connection_info['driver_volume_type'] == 'local'):
            self.world.insist(self.is_there(volume, node),
                              'what was attached is not there')
            new.attach_status = volume.attach_status = 'attached'
            self.promised[volume.id, host] = new, cuts
            if volume.status == 'attaching':
                volume.status = 'in-use'
            return new
        self.say('attach %s to %s failed', volume.id[:4], host)
        self._disconnect(volume, new)
        return None

    def _check_dropped(self, volume, new, asked):
        """Nova never learns of an attachment that is refused as it is made.
        """
        self.world.insist(
            new not in volume.volume_attachment
            or new.id in {each.id for each in asked.volume_attachment},
            'the attachment of a refused live migration stays')

    @staticmethod
    def _read(volume):
        """A volume as Cinder's API sends it on: attachments are read."""
        read = copy.copy(volume)
        read.volume_attachment = [
            copy.copy(each) for each in volume.volume_attachment]
        return read

    @staticmethod
    def _told(properties):
        return dict(properties['data'],
                    driver_volume_type=properties['driver_volume_type'])

    def run_at_home(self, volume):
        """A guest has run on the volume's home before all begins."""
        node = self.home(volume)
        new = self._reserve(volume, 'vm of ' + volume.id)
        volume.status = 'reserved'
        properties = node.driver.initialize_connection(
            volume, self.connector(node.host))
        new.connector = self.connector(node.host)
        new.connection_info = self._told(properties)
        new.attach_status = volume.attach_status = 'attached'
        volume.status = 'in-use'
        self._start_guest(volume, node.host)

    def _disconnect(self, volume, attachment, asks=1):
        """Nova deletes an attachment; the row goes if that fails, too.

        :param asks: how many requests reach the service, at the same time:
            none if it is lost; more if nova-compute has been restarted
        """
        self.promised = {
            which: promised for which, promised in self.promised.items()
            if promised[0] is not attachment}

        def terminate(node):
            if attachment not in volume.volume_attachment:
                return  # Cinder's manager does not find it
            node.driver.terminate_connection(volume, attachment.connector)
            self.save(attachment)
        for number in range(asks if attachment.connector else 0):
            host = volume.host.partition('#')[0]
            if asks > 1 and not number:
                self._also('asks', lambda: self.ask(host, terminate))
            else:
                self.ask(host, terminate)
        if attachment.connector and self.world.fault(troubles.CINDER, ''):
            self.say('detached once more')
            self.ask(volume.host.partition('#')[0], terminate)
        self._end_attachment(volume, attachment)

    def _end_attachment(self, volume, attachment):
        """As the database does, of one that the driver has ended, too."""
        volume.volume_attachment = [
            each for each in volume.volume_attachment
            if each is not attachment]
        left = {each.attach_status for each in volume.volume_attachment}
        attached = left & {'attached', 'detaching'}
        volume.attach_status = 'attached' if attached else 'detached'
        # Cinder writes it over "retyping" as well (volume_detached).
        if volume.status in ('reserved', 'attaching', 'in-use') or (
                volume.status == 'retyping' and (
                    left or volume.migration_status in (
                        None, 'success', 'error'))):
            volume.status = 'in-use' if attached else (
                'attaching' if 'attaching' in left else
                'reserved' if left else 'available')
        self.say('detached %s', volume.id[:4])

    def _also(self, name, act, after=0):
        """Something that goes on beside the actor that begins it."""
        self.scheduler.spawn('%s %s' % (
            self.scheduler.current.name, name), act, after=after)

    # -- guests, and the processes that run them

    def is_there(self, volume, node):
        """Whether a guest of that node finds a volume, and all below it."""
        return {names.handle(volume.id), self.top(volume)} <= set(
            node.devices)

    def missing(self):
        """What an instance has attached, and does not find.

        Until power fails on its node, or Nova begins to detach it.
        """
        for (volume_id, host), (attachment, cuts) in list(
                self.promised.items()):
            volume = self.world.volumes.get(volume_id)
            if (volume is None or self.cuts[host] != cuts or attachment.left
                    or attachment.attach_status != 'attached'
                    or attachment not in volume.volume_attachment):
                del self.promised[volume_id, host]
            elif not self.is_there(volume, self.world.nodes[host]):
                return '%s is attached to %s, and gone' % (
                    volume_id[:4], host)
        return ''

    def _open(self, volume_id, host):
        """A process opens a volume; its guest may not run there (yet)."""
        node = self.world.nodes[host]
        top = self.top(self.world.volumes[volume_id])
        if not node.off and top in node.devices:
            self.processes[volume_id, host] += 1
            node.opened.add(top)

    def _close(self, volume_id, host, seconds=0):
        """A process ends, some seconds from now."""
        cuts, which = self.cuts[host], (volume_id, host)
        if not self.processes[which]:
            return
        top = self.top(self.world.volumes[volume_id])

        def close():
            if self.processes[which] == 1 and (
                    self.guests.get(volume_id) == host
                    and not self._drained(volume_id)):
                # It is killed, but ends only once its I/O does.
                self.scheduler.wait(
                    None, lambda: not self.waiting[volume_id], parked=True)
            if self.cuts[host] != cuts or not self.processes[which]:
                return
            self.processes[which] -= 1
            if not self.processes[which]:
                self.world.nodes[host].opened.discard(top)
                if self.guests.get(volume_id) == host:
                    del self.guests[volume_id]
                self.say('%s is closed on %s', volume_id[:4], host)
        if seconds:
            self._also('closes', close, seconds)
        else:
            close()

    def close_all(self, volume_id, host):
        """All processes on a node end that have a volume open."""
        while self.processes[volume_id, host]:
            self._close(volume_id, host)

    def _start_guest(self, volume, host):
        self._open(volume.id, host)
        if self.processes[volume.id, host]:
            self.guests[volume.id] = host
            self._boots(volume.id)

    def _boots(self, volume_id):
        """A guest reads and writes as soon as it runs."""
        current = self.scheduler.current
        name = current.name if current else 'vm of %d' % (
            self.order.index(volume_id))
        random = randoms.Random('%s %s %s' % (
            self.schedule.seed, name, self.writes))
        if not self.scheduler.quiet:
            self.scheduler.spawn('%s boots' % name, lambda: self._use(
                volume_id, random, random.choice((1, 2, 4, 6))))

    def _switch(self, volume, host, seconds):
        """The guest of a live migration goes on at the destination.

        QEMU flushes where it stops: a guest whose flush is answered at the
        destination takes what it wrote at the source for flushed, too.

        :param seconds: until the process at the source ends
        :returns: whether it does
        """
        before = self.guests.get(volume.id)
        if not before or not self.processes[volume.id, host]:
            return False
        source = self.world.nodes[before]
        if not self._drained(volume.id):
            self.say('the guest stays: it waits for its I/O')
            return False
        if self.is_there(volume, source):
            try:
                source.flush(volume.id)
                self.data[volume.id].flush()
            except (IOError, seeded.Waits) as exc:
                self.say('the guest stays: %s', exc)
                return False
        self.guests[volume.id] = host
        self.say('the guest goes on at %s', host)
        self._boots(volume.id)
        self._close(volume.id, before, seconds)
        return True

    def _attached(self, number, count):
        """A volume with so many attachments, all of them attached."""
        found = [self.world.volumes[each] for each in self.order
                 if each in self.world.volumes]
        found = [each for each in found
                 if len(each.volume_attachment) == count
                 and each.status == 'in-use' and all(
                     one.attach_status == 'attached'
                     for one in each.volume_attachment)]
        return found[number % len(found)] if found else None

    @staticmethod
    def _are_attached(volume, *attachments):
        """Whether a volume has these attachments, no more, all attached."""
        return (list(volume.volume_attachment) == list(attachments) and all(
            each.attach_status == 'attached' for each in attachments))

    def _detach(self, a, b):
        volume = self._attached(a, 1)
        if volume is None:
            return False
        attachment, = volume.volume_attachment
        attachment.attach_status = 'detaching'
        if not self._stop(volume, LATE[b]):
            self.say('not detached: the guest waits for its I/O')
            attachment.attach_status = 'attached'
            return
        self._disconnect(volume, attachment, ASKS[a])

    def _stop(self, volume, seconds=0):
        """The guest is shut off, or lets go of the volume: no flush.

        :returns: whether it does: what waits for its I/O can't
        """
        if not self._drained(volume.id):
            return False
        host = self.guests.pop(volume.id, None)
        if host:
            self._close(volume.id, host, seconds)
        return True

    def _drained(self, volume_id):
        """Wait for what a guest has asked for."""
        if self.waiting[volume_id]:
            self.scheduler.wait(PATIENCE, lambda: not self.waiting[volume_id])
        return not self.waiting[volume_id]

    def _give_up(self, _a, _b):
        """Nova gives an attachment up while the service is at work on it.

        No service is told: the attachment names no host yet.
        """
        for volume in list(self.world.volumes.values()):
            for each in volume.volume_attachment:
                if not each.connector:
                    self._end_attachment(volume, each)
                    return None
        return False

    def _crash(self, a, _b):
        """A guest is gone all at once."""
        volume = self._attached(a, 1) or self._attached(a, 2)
        if volume is None or volume.id not in self.guests:
            return False
        self._stop(volume)
        self.say('the guest of %s is killed', volume.id[:4])

    def _boot(self, a, _b):
        """A guest is started again where it was."""
        volume = self._attached(a, 1)
        return volume is not None and self.resume(volume)

    def resume(self, volume):
        """:returns: whether its guest runs again"""
        attachment, = volume.volume_attachment
        host = self.host_of(attachment)
        if attachment.left or volume.id in self.guests or (
                self.world.nodes[host].off):
            return False
        self._start_guest(volume, host)
        return volume.id in self.guests

    @staticmethod
    def host_of(attachment):
        return next(each for each in HOSTS
                    if each[0] == attachment.connector['host'])

    def _evacuate(self, a, b):
        """An instance is built anew on another node.

        That it does not run any more on its own Nova believes, which does
        not reach that node; somebody ends it there later.
        """
        volume = self._attached(a, 1)
        if volume is None or volume.id not in self.guests:
            return False
        before, = volume.volume_attachment
        if before.left:
            return False
        source = self.guests[volume.id]
        if b % 2:  # a cold migration: it is shut off
            if not self._stop(volume) or (
                    not self._are_attached(volume, before)):
                return None
        else:
            self._close(volume.id, source, (1, 8, 30)[a % 3])
        new = self._reserve(volume, before.instance_uuid)
        before.attach_status = 'detaching'
        self._disconnect(volume, before, ASKS[a])
        if new not in volume.volume_attachment:
            return None
        host = self.other(b // 2, source).host
        if self._connect(volume, host, new, self._read(volume)):
            self.scheduler.wait(1)  # whoever is left may go on to write
            if self._are_attached(volume, new) and (
                    self.guests.get(volume.id) != host):
                # Nobody has started it there meanwhile.
                self.guests.pop(volume.id, None)
                self._start_guest(volume, host)
        return None

    def _live(self, a, b):
        """A live migration begins: QEMU has the volume open on both nodes."""
        volume = self._attached(a, 1)
        if volume is None or volume.id not in self.guests:
            return False
        before, = volume.volume_attachment
        host = self.other(b, self.guests[volume.id]).host
        asked = self._read(volume)  # then its attachment is reserved
        new = self._reserve(volume, before.instance_uuid)
        if self._connect(volume, host, new, asked):
            self._open(volume.id, host)

    def _finish(self, a, b):
        """It goes on at the destination, or is given up; or all is deleted.

        QEMU may be late to end where the guest is not any more.
        """
        volume = self._attached(a, 2)
        if volume is None:
            return False
        source, destination = volume.volume_attachment
        if source.left or not self._drained(volume.id):
            return False
        if not self._are_attached(volume, source, destination):
            return False  # Nova has gone on meanwhile
        for each in (source, destination):
            each.attach_status = 'detaching'
        host = self.host_of(destination)
        how = FINISHES[b]
        if how == 'deleted':
            self._stop(volume, LATE[a])
            self._close(volume.id, host, LATE[a - 3])
            self._also('deletes', lambda: self._disconnect(volume, source))
            self._disconnect(volume, destination)
        elif how == 'given up' or not self._switch(volume, host, LATE[a]):
            source.attach_status = 'attached'
            self._close(volume.id, host, LATE[a])
            self._disconnect(volume, destination, ASKS[a])
        elif how == 'source left':
            # Nova has failed afterwards, and the server is deleted.
            source.left, source.attach_status = True, 'attached'
            self.scheduler.wait(1)
            if self._stop(volume):
                self._disconnect(volume, destination)
            else:
                destination.attach_status = 'attached'
        else:
            destination.attach_status = 'attached'
            self._disconnect(volume, source, ASKS[a])

    # -- what guests do

    def _io(self, a, b):
        """A guest reads, writes and flushes."""
        running = [each for each in self.order if each in self.guests]
        if not running:
            return False
        self._use(running[a % len(running)],
                  randoms.Random('%d %d' % (a, b)), 1 + b % 6)

    def _use(self, volume_id, random, count):
        mix = random.choice(MIXES)
        for _each in range(count):
            if volume_id not in self.guests:
                return
            self.operate(volume_id, random, mix)
            self.scheduler.turn()

    def operate(self, volume_id, random, mix=MIXES[0]):
        host, data = self.guests[volume_id], self.data[volume_id]
        node, handle = self.world.nodes[host], names.handle(volume_id)
        volume = self.world.volumes[volume_id]
        if node.off or not self.is_there(volume, node):
            return
        node.opened.add(self.top(volume))
        what = random.choice(mix)
        # It may see more than its row says: an extension has failed.
        seen = disks.length(node.devices[self.top(volume)])
        region = random.randrange(max(seen, len(data.regions)))
        if region >= disks.length(node.devices[handle]):
            return
        data.grow(region + 1)
        while True:
            try:
                self._perform(node, volume_id, what, region)
                return
            except seeded.Waits as exc:
                self.say('guest waits: %s', exc)
                if not exc.is_remote and exc.seconds is None:
                    self._insist_undisturbed(volume_id, host, exc)
                if not self._wait(volume_id, node, exc):
                    return
            except seeded.NoSpace as exc:
                self.say('guest gets an error: %s', exc)
                return
            except IOError as exc:
                self.say('guest gets an error: %s', exc)
                self._insist_undisturbed(volume_id, host, exc)
                return

    def _insist_undisturbed(self, volume_id, host, exc):
        """While all nodes have power no guest loses what is attached."""
        volume = self.world.volumes[volume_id]
        self.world.insist(self.cuts or not any(
            each.connector and each.attach_status == 'attached'
            and self.host_of(each) == host
            for each in volume.volume_attachment),
            'no power has failed, and a guest loses its volume: %s', exc)

    def _perform(self, node, volume_id, what, region):
        data = self.data[volume_id]
        if what == 'read':
            self.read(node, volume_id, region)
        elif what == 'write':
            value = 'w%d' % (self.writes + 1)
            node.write(volume_id, region, value, flushed=False)
            self.writes += 1
            data.write(region, value)
            self.say('guest writes %s to region %d', value, region)
        else:
            node.flush(volume_id)
            data.flush()
            self.say('guest flushes')

    def _wait(self, volume_id, node, waits):
        """A guest waits for its I/O, for ever if need be.

        :returns: whether that goes on: no power was cut, nothing has failed
        """
        boot = node.boot
        self.waiting[volume_id] += 1
        self.scheduler.wait(
            waits.seconds, lambda: waits.ready() or node.boot is not boot,
            parked=waits.seconds is None)
        self.waiting[volume_id] -= 1
        return node.boot is boot and waits.ready()

    def read(self, node, volume_id, region):
        self.compare(node, volume_id, region, node.read(volume_id, region))

    def compare(self, node, volume_id, region, value):
        wrong = self.data[volume_id].read(region, value)
        self.world.insist(not wrong, 'volume %s on %s: %s',
                          volume_id[:4], node.host, wrong)
