# SPDX-License-Identifier: Apache-2.0
"""Faults across the whole of an operation, each with its own outcome.

Each is a function of a :class:`Course`: one volume, already prepared. What it
leaves broken is mended by ``Ground.heal``; what it raises is the verdict.
"""

import json
import time

from lab.faults import cells
from lab.faults import checks
from lab.faults import disk as disks
from lab.faults.ground import in_parallel
from lab.faults.operations import OPERATIONS
from lab import look
from lab import process

WHOLE = 'whole'
SLOW = '4mbit'

_FAULTS = {}


def fault(name, operation='move'):
    def add(function):
        _FAULTS[(name, operation)] = function
        return function
    return add


def names():
    """(name, operation) of all that there are."""
    return list(_FAULTS)


class Course:
    """One operation under one such fault.

    :param disk: what it is done to
    """

    def __init__(self, ground, kind, source, destination, disk):
        self.ground = ground
        self.source = source
        self.destination = destination
        self.disk = disk
        self.operation = OPERATIONS[kind](ground, disk, source, destination)
        self.lost_power = []

    def start(self):
        """The request is sent, not waited for."""
        self.operation.prepare()
        self.operation.start()

    def start_slow(self):
        """It is being copied, slowly, and a guest writes."""
        self.ground.brake(self.source, SLOW)
        self.start()
        self.operation.join()
        if self.operation.error:
            raise self.operation.error
        if look.clone_progress(self.destination) is None:
            raise process.LabError('the copy has ended already')

    def stop_at(self, end, label):
        """The request is sent and stays at a step; see lab.stepping."""
        self.ground.arm(self.disk, getattr(self, end), label)
        if self.operation._thread is None:
            self.start()
        process.wait_for('the step', lambda: self.ground.reached(
            self.disk), cells.REACH, every=0.2)

    def go_on(self):
        self.ground.release()
        self.ground.brake(self.source)

    def refused(self, *words):
        """The request must have failed, and what was said tells why."""
        self.operation.join()
        if self.operation.error is None:
            raise process.LabError('it was not refused')
        text = str(self.operation.error)
        if words and not any(word in text for word in words):
            raise process.LabError('refused, but not clearly: ' + text[:300])

    def shadow(self):
        return look.sql(
            self.ground.lab, "SELECT id, replication_driver_data, provider_"
            "location FROM volumes WHERE deleted = 0 AND migration_status = "
            "'target:%s'" % self.disk.volume)[0]

    def logged(self, node, text, mark, seconds=90):
        process.wait_for(
            '"%s" in the log of %s' % (text, node.name),
            lambda: text in node.service_log()[mark[node.name]:], seconds)

    def restart(self, node):
        node.service('restart')
        node.wait_service()

    def cut(self, node):
        node.power_cut()
        self.disk.lost_power(node)
        self.lost_power.append(node)

    def boot(self, node):
        self.ground.power_on(node)
        node.wait_service()

    def readable_again(self):
        """Without its source's disk a clone reads with errors, for now."""
        process.wait_for(
            'all of it to be readable again', lambda: (
                not self.destination.run(
                    'dd if=%s of=/dev/null bs=1M iflag=direct status=none' % (
                        self.disk.path), check=False).returncode), 120)

    def keeps_source(self):
        """The copy cannot be complete: nothing of the source may go."""
        if not look.volume_lvs(self.source) or not look.shadows(
                self.ground.lab):
            raise process.LabError('the source is gone, but the copy cannot '
                                   'be complete')

    def no_handle(self, node, seconds=25):
        """Nothing is given out, for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.disk.has_path(node):
                raise process.LabError('a handle was given out')
            time.sleep(2)


class Cross:
    """One cell: a volume, a fault across the whole, the promises."""

    def __init__(self, ground, batch, _pool):
        self.ground = ground
        self.cell = batch[0]
        self.disks = []

    def run(self):
        began = time.monotonic()
        marks = self.ground.log_marks()
        source, destination = self.ground.nodes.values()
        reason = ''
        try:
            self.ground.dirty(destination)
            disk = self.fresh(source)
            course = Course(self.ground, self.cell.operation, source,
                            destination, disk)
            course.fresh = self.fresh
            _FAULTS[(self.cell.fault, self.cell.operation)](course)
            self.ground.heal()
            course.operation.settle(course.lost_power)
            reason = '; '.join(checks.settled(
                self.ground, self.disks + self.ground.bystanders))
            checks.bystanders(self.ground)
        except Exception as exc:
            reason = ('' if isinstance(exc, process.LabError) else
                      type(exc).__name__ + ': ') + str(exc)[:1500]
        log = self.ground.log_since(
            marks, *[each.volume for each in self.disks]) if reason else []
        return [cells.Verdict(self.cell, not reason, reason, log,
                              time.monotonic() - began)]

    def fresh(self, node):
        disk = disks.Disk(self.ground.lab, self.ground.create(node, 1)[0])
        self.disks.append(disk)
        disk.fill(node)
        return disk

    def clean(self):
        self.ground.heal()
        in_parallel([disk.remove for disk in self.disks])
        for disk in self.disks:
            self.ground.forget_steps(disk)
        checks.clean(self.ground)


# -- network


def _between(course, on):
    """The nodes cannot reach each other; the control plane reaches both."""
    for node, peer in ((course.source, course.destination),
                       (course.destination, course.source)):
        node.run('ip route %s blackhole %s' % (
            'add' if on else 'del', peer.address), check=False)


def _between_for(course, seconds, limit):
    course.start_slow()
    _between(course, True)
    time.sleep(seconds)
    _between(course, False)
    course.go_on()
    course.disk.check_running(limit)


@fault('no network between the nodes for 8 s')
def between_for_seconds(course):
    _between_for(course, 8, limit=60)


@fault('no network between the nodes for 2 minutes')
def between_for_minutes(course):
    _between_for(course, 120, limit=90)


@fault('the source off all networks for a minute')
def source_off(course):
    course.start_slow()
    course.source.network_cut()
    time.sleep(60)
    course.source.network_heal()
    course.go_on()
    course.disk.check_running(90)


@fault('the nodes lose each other while preparing')
def between_while_preparing(course):
    course.stop_at('destination', 'create_thin volume')
    _between(course, True)
    course.ground.release()
    course.operation.join()
    _between(course, False)


@fault('the nodes lose each other while the destination reads')
def between_while_reading(course):
    course.stop_at('destination', 'create handle')
    _between(course, True)
    course.ground.release()
    course.operation.join()
    _between(course, False)


@fault('slow and lossy link')
@fault('slow and lossy link', 'live-move')
def lossy(course):
    for node in (course.source, course.destination):
        node.netem('delay', '15ms', '5ms', 'loss', '2%')
    course.start()
    course.operation.join()
    time.sleep(20)
    course.disk.check_running(90)


# -- the source, as the destination sees it


@fault('iSCSI session reset')
def session_reset(course):
    course.start_slow()
    for _time in range(3):
        course.ground.reset_sessions(course.source)
        time.sleep(3)
    course.go_on()
    course.disk.check_running(60)


@fault('iSCSI session logged out under the clone')
def session_logged_out(course):
    course.start_slow()
    course.disk.stop()
    course.destination.run('iscsiadm -m session -u', timeout=60)
    course.go_on()
    course.readable_again()


_RE_EXPORT = '''
import rtslib_fb
root = rtslib_fb.RTSRoot()
tpg = [t for f in root.fabric_modules if f.name == 'iscsi'
       for target in f.targets for t in target.tpgs][0]
acl = list(tpg.node_acls)[0]
store = list(tpg.luns)[0].storage_object
name, serial = store.name, store.wwn
store.delete()
store = rtslib_fb.BlockStorageObject(
    name, dev='/dev/cinder-volumes/stranger', readonly=True, wwn=%s)
lun = rtslib_fb.LUN(tpg, 0, storage_object=store)
rtslib_fb.MappedLUN(acl, 0, lun, write_protect=True)
'''


def _wrong_source(course, size, serial):
    course.start_slow()
    course.cut(course.destination)
    course.source.service('stop')
    course.source.run(
        'lvcreate -q -y -T -V %dm -n stranger '
        'cinder-volumes/cinder-volumes-pool' % size)
    course.source.run([course.ground.lab.python, '-W', 'ignore', '-c',
                       _RE_EXPORT % serial])
    mark = course.ground.log_marks()
    course.boot(course.destination)
    course.logged(course.destination, 'is not the source of the transfer',
                  mark)
    course.no_handle(course.destination)
    course.source.service('start')
    course.source.wait_service()
    course.source.run('lvremove -q -f cinder-volumes/stranger')


@fault('source re-exported: another volume')
def wrong_volume(course):
    _wrong_source(course, course.disk.mib, 'None')


@fault('source re-exported: wrong size')
def wrong_size(course):
    _wrong_source(course, course.disk.mib * 2, 'serial')


# -- database and message bus


@fault('database stalls for 20 s while preparing')
def database_stalls(course):
    course.stop_at('destination', 'create_thin volume')
    course.ground.release()
    course.ground.stall('mariadb', 20)


def _database_away(course, step):
    course.stop_at('destination', step)
    course.ground.lab.processes.stop('mariadb')
    course.ground.release()
    time.sleep(10)
    course.ground.lab.control._start_database()
    course.disk.check_running()


@fault('database restarted during completion')
def database_restarted(course):
    _database_away(course, 'flush handle')


@fault('database restarted before the commit')
def database_before_commit(course):
    _database_away(course, 'read_head handle')


@fault('message bus stalls for 30 s while preparing')
def bus_stalls(course):
    course.stop_at('destination', 'create_thin volume')
    course.ground.release()
    course.ground.stall('rabbitmq', 30)


@fault('message bus restarted during hydration')
def bus_restarted(course):
    course.start_slow()
    course.ground.lab.processes.stop('rabbitmq')
    time.sleep(10)
    course.ground.lab.control._start_bus()
    course.go_on()
    course.disk.check_running()


# -- requests twice, and late

_PREPARE = '''
import sys
from cinder.cmd import volume
from cinder import context, objects, rpc
objects.register_all()
volume.CONF(['--config-file', sys.argv[1]], project='cinder')
rpc.init(volume.CONF)
from cinder_localclone import exceptions, peer
try:
    peer.Client(40).prepare(context.get_admin_context(), *sys.argv[2:5])
    print('accepted')
except exceptions.StaleTransfer as exc:
    print('stale')
'''


def _prepare_again(course, shadow, nonce):
    found = course.source.run(
        [course.ground.lab.python, '-W', 'ignore', '-c', _PREPARE,
         course.source.directory / 'localclone.conf',
         course.destination.name + '@localclone', shadow, nonce],
        timeout=120).stdout.split()
    return found[-1:]


@fault('prepare delivered again after the commit')
def prepare_late(course):
    course.start_slow()
    shadow, token, _where = course.shadow()
    if _prepare_again(course, shadow, token.split(':')[2]) != ['stale']:
        raise process.LabError('a late request was not refused as stale')
    course.go_on()


@fault('prepare delivered again when it has failed')
def prepare_after_failure(course):
    course.stop_at('destination', 'create_thin volume')
    shadow, token, _where = course.shadow()
    course.destination.service('kill')
    course.ground.release()
    course.operation.join()
    course.destination.service('start')
    course.destination.wait_service()
    if _prepare_again(course, shadow, token.split(':')[2]) != ['stale']:
        raise process.LabError('a late request was not refused as stale')


@fault('the attach is asked for twice at once')
def attach_twice(course):
    disk, node = course.disk, course.destination
    connector = disk.instance.connector(node)
    attachment = disk.instance.reserve(disk.volume)
    answers = in_parallel([lambda: disk.instance.connect(
        attachment, connector)] * 2)
    if not any(answer.status_code < 400 for answer in answers):
        raise process.LabError('both were refused: ' + answers[0].text[:300])
    disk.forget(attachment)
    process.wait_for(
        'the detach', lambda: disk.cinder.get(
            '/volumes/' + disk.volume).json()['volume'][
                'status'] == 'available', 30)
    course.operation.start()


# -- no room


@fault('volume group full')
def group_full(course):
    node = course.destination
    node.run('lvcreate -q -y -l 100%FREE -n filler cinder-volumes')
    try:
        course.start()
        course.refused()
        course.disk.forget_failed()
        told = course.disk.cinder.get('/messages').text
        if 'not enough free storage' not in told:
            raise process.LabError('the owner was not told why')
        if course.disk.home() != course.source.name:
            raise process.LabError('home has changed')
    finally:
        node.run('lvremove -q -f cinder-volumes/filler')


# -- what remembers the copy, and disks


def _metadata_path(course):
    return '/dev/cinder-volumes/localclone-meta-' + course.shadow()[0]


def _broken_metadata(course, spoil, mend=None):
    """The destination boots with metadata that was spoilt meanwhile.

    :param mend: a command; None puts back what was there
    """
    course.start_slow()
    time.sleep(3)
    metadata = _metadata_path(course)
    node = course.destination
    course.cut(node)
    node.power_on()
    good = node.directory / 'metadata.good'
    node.run('vgchange -q -ay cinder-volumes; dd if=%s of=%s bs=1M '
             'iflag=direct status=none' % (metadata, good))
    words = {'metadata': metadata, 'bytes': good.stat().st_size}
    node.run('%s; sync' % (spoil % words))
    mark = course.ground.log_marks()
    node.service('start')
    node.wait_service()
    course.no_handle(node)
    course.logged(node, course.disk.volume, mark)
    node.service('stop')
    if mend:
        node.run(mend % words)
    node.run('dd if=%s of=%s bs=1M oflag=direct conv=fsync status=none'
             % (good, metadata))
    good.unlink()
    node.service('start')
    node.wait_service()
    course.go_on()


@fault('clone metadata corrupt')
def metadata_corrupt(course):
    _broken_metadata(course, 'dd if=/dev/urandom of=%(metadata)s bs=4096 '
                     'count=1 oflag=direct conv=notrunc status=none')


@fault('clone metadata zeroed')
def metadata_zeroed(course):
    _broken_metadata(course, 'dd if=/dev/zero of=%(metadata)s bs=4096 '
                     'count=1 oflag=direct conv=notrunc status=none')


@fault('clone metadata too small')
def metadata_too_small(course):
    """It could run full, which the kernel does not survive."""
    _broken_metadata(course, *[
        'name=$(dmsetup info -c --noheadings -o name %%(metadata)s); '
        'set -- $(dmsetup table $name); dmsetup load $name --table '
        '"0 %s linear $4 $5"; dmsetup resume $name' % sectors
        for sectors in ('4096', '$((%(bytes)d / 512))')])


@fault('clone metadata stale: left by another transfer')
def metadata_stale(course):
    """A new LV gets extents in which another copy was noted as complete."""
    other = course.fresh(course.source)
    first = Course(course.ground, 'move', course.source, course.destination,
                   other)
    first.stop_at('destination', 'flush handle')
    node = course.destination
    saved = node.directory / 'metadata.stale'
    node.run('dd if=%s of=%s bs=1M iflag=direct status=none' % (
        _metadata_path(first), saved))
    course.ground.release()
    first.operation.settle(())
    course.stop_at('destination', 'create_thick metadata')
    node.run('dd if=%s of=%s bs=1M oflag=direct conv=fsync status=none' % (
        saved, _metadata_path(course)))
    saved.unlink()


def _replace(node, name, table):
    """Give a device another table, whatever it holds."""
    node.run(
        'dmsetup suspend --noflush --nolockfs %(name)s && '
        'dmsetup load %(name)s --table "%(table)s"; dmsetup resume %(name)s'
        % {'name': name, 'table': table})


def _mapper(lv):
    """The device-mapper name of an LV of the driver's group."""
    return 'cinder--volumes-' + lv.replace('-', '--')


@fault('clone metadata read-only')
def metadata_read_only(course):
    course.start_slow()
    node = course.destination
    name = _mapper('localclone-meta-' + course.shadow()[0])
    table = node.run('dmsetup table ' + name).stdout.strip()
    words = table.split()
    mark = course.ground.log_marks()
    _replace(node, name, '%s %s flakey %s %s 0 3600 1 error_writes' % (
        words[0], words[1], words[3], words[4]))
    course.logged(node, 'is in mode', mark)
    course.disk.stop()
    _replace(node, name, table)
    course.restart(node)
    course.go_on()


def _destination_lv(course):
    return 'volume-' + course.shadow()[0]


class _Under:
    """A device beneath the destination's LV that can be made to fail."""

    def __init__(self, course):
        self.node = course.destination
        self.name = _mapper(_destination_lv(course))
        self.real = 'real-' + course.disk.volume
        self.table = self.node.run('dmsetup table ' + self.name
                                   ).stdout.strip()
        self.sectors = self.table.split()[1]

    def fail(self, table):
        """:param table: target and arguments; %s: the real device, if any"""
        self.node.run('dmsetup create %s --table "%s"' % (
            self.real, self.table))
        _replace(self.node, self.name, '0 %s %s' % (
            self.sectors, table.replace('%s', '/dev/mapper/' + self.real)))

    def mend(self):
        _replace(self.node, self.name, self.table)
        self.node.run('dmsetup remove --retry ' + self.real)


@fault('thin pool full: data')
def pool_full(course):
    """Another's writes fill the pool while the copy is under way."""
    course.start_slow()
    course.disk.stop()
    node = course.destination
    node.run('lvcreate -q -y -T -V 64g -n filler '
             'cinder-volumes/cinder-volumes-pool && '
             'lvchange -q --errorwhenfull y '
             'cinder-volumes/cinder-volumes-pool; '
             'dd if=/dev/zero of=/dev/cinder-volumes/filler bs=4M '
             'oflag=direct status=none 2>/dev/null; true', timeout=300)
    course.ground.brake(course.source)
    time.sleep(15)
    course.keeps_source()
    node.run('lvremove -q -f cinder-volumes/filler')
    course.go_on()


@fault('thin pool full: metadata')
def pool_metadata_fails(course):
    """The pool can't note what it hands out: the kernel makes it read-only,
    just as when its metadata is full. A boot checks and mends it.
    """
    course.start_slow()
    course.disk.stop()
    node = course.destination
    name = 'cinder--volumes-cinder--volumes--pool_tmeta'
    words = node.run('dmsetup table ' + name).stdout.split()
    _replace(node, name, '%s %s flakey %s %s 0 3600 1 error_writes' % (
        words[0], words[1], words[3], words[4]))
    course.ground.brake(course.source)
    time.sleep(25)
    course.keeps_source()
    course.cut(node)
    course.boot(node)
    course.go_on()


@fault('destination disk fails for a while')
def destination_flakey(course):
    course.start_slow()
    under = _Under(course)
    course.disk.stop()  # a guest whose disk fails, fails
    under.fail('flakey %s 0 0 3600')
    time.sleep(10)
    under.mend()
    course.restart(course.destination)
    course.go_on()


@fault('destination disk refuses writes')
def destination_refuses_writes(course):
    course.start_slow()
    under = _Under(course)
    course.disk.stop()
    under.fail('flakey %s 0 0 3600 1 error_writes')
    course.ground.brake(course.source)
    time.sleep(25)
    course.keeps_source()
    under.mend()
    course.restart(course.destination)
    course.go_on()


@fault('destination disk has a bad block')
def destination_bad_block(course):
    course.start_slow()
    under = _Under(course)
    course.disk.stop()
    under.fail('dust %s 0 4096')
    course.destination.run(
        'dmsetup message %(n)s 0 addbadblock 70000; '
        'dmsetup message %(n)s 0 enable' % {'n': under.name})
    time.sleep(5)
    course.destination.run('dmsetup message %s 0 disable' % under.name)
    under.mend()
    course.go_on()


# -- device-mapper commands that fail

_WRAPPER = '''#!/bin/sh
# Fails once for the word in a file, if it is among the arguments.
word=$(cat /run/fail-dmsetup 2>/dev/null)
for each in "$@"; do
    if [ -n "$word" ] && [ "$each" = "$word" ]; then
        rm /run/fail-dmsetup
        echo "dmsetup: $word failed, as asked" >&2
        exit 1
    fi
done
exec /usr/sbin/dmsetup "$@"
'''


def _fail_once(node, word):
    node.run('cat >/run/bin/dmsetup; chmod +x /run/bin/dmsetup; '
             'echo %s >/run/fail-dmsetup' % word, stdin=_WRAPPER.encode())


def _has_failed(course):
    process.wait_for('the command to fail', lambda: course.destination.run(
        'test -e /run/fail-dmsetup', check=False).returncode, 90)
    course.destination.run('rm -f /run/bin/dmsetup')


def _command_fails(course, word, step=None):
    if step:
        course.stop_at('destination', step)
    else:
        course.operation.prepare()
    _fail_once(course.destination, word)
    if step:
        course.ground.release()
    else:
        course.operation.start()
    _has_failed(course)


@fault('dmsetup create fails')
def create_fails(course):
    _command_fails(course, 'create')


@fault('dmsetup load fails at cut-over')
def load_fails(course):
    _command_fails(course, 'load', 'advance: ' + _HYDRATED)
    course.disk.check_running()


@fault('dmsetup resume fails at cut-over')
def resume_fails(course):
    _command_fails(course, 'resume', 'advance: ' + _HYDRATED)
    course.disk.check_running()


@fault('dmsetup remove fails')
def remove_fails(course):
    _command_fails(course, 'remove', 'flush volume')


_HYDRATED = 'all regions local and flushed'


def _new_disk_number(course, word):
    """The source's disk comes back under another number; a command of the
    clone's replacement fails once.
    """
    course.start_slow()
    course.disk.stop()
    _fail_once(course.destination, word)
    node = course.destination
    # Taken meanwhile, the number of the disk is another one afterwards.
    node.run('modprobe scsi_debug dev_size_mb=8 2>/dev/null; '
             'iscsiadm -m session -u', timeout=60, check=False)
    _has_failed(course)
    course.go_on()
    course.readable_again()


@fault('dmsetup suspend fails when the source comes back')
def suspend_fails(course):
    _new_disk_number(course, 'suspend')


@fault('dmsetup load fails when the source comes back')
def load_fails_again(course):
    _new_disk_number(course, 'load')


# -- time


def _clock(course, node, words):
    course.start_slow()
    node.run('date -s "%s"' % words)
    time.sleep(15)
    course.go_on()
    course.disk.check_running()
    node.run('date -s @%d' % time.time())


@fault('clock of the destination an hour ahead')
def clock_ahead(course):
    _clock(course, course.destination, '1 hour')


@fault('clock of the source an hour behind')
def clock_behind(course):
    _clock(course, course.source, '1 hour ago')


# -- many


@fault('8 volumes at once, one of them broken')
def eight(course):
    """The broken one holds nobody up; mended, it goes on."""
    course.start_slow()
    under = _Under(course)
    course.disk.stop()
    under.fail('error')
    others = in_parallel([lambda: course.fresh(course.source)] * 7)
    moves = [OPERATIONS['move'](course.ground, disk, course.source,
                                course.destination) for disk in others]
    course.ground.brake(course.source)
    # All requests at once would meet their limits on nodes as slow as these.
    in_parallel([move.run for move in moves], most=3)
    for move in moves:
        move.settle(())
    if json.dumps(look.shadows(course.ground.lab)).count(
            course.disk.volume) != 1:
        raise process.LabError('the broken one has ended: %s' % look.shadows(
            course.ground.lab))
    under.mend()
    course.restart(course.destination)
