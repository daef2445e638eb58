# SPDX-License-Identifier: Apache-2.0
"""No room, disks that fail, commands of device-mapper that fail."""

import json
import time

from lab.core import look
from lab.core import process
from lab.faults.environment import in_parallel
from lab.faults import injectors as breaks
from lab.faults.operations import OPERATIONS
from lab.faults.scenario import Course
from lab.faults.scenario import fault
from lab.faults.scenario import must

#: In a MiB.
_BLOCKS = (1 << 20) // breaks.BLOCK


@fault('volume group full')
def group_full(course):
    node = course.destination
    breaks.fill_group(node)
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
        breaks.unfill(node)


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
    node.run('vgchange -q -ay cinder-volumes && dd if=%s of=%s bs=1M '
             'iflag=direct status=none' % (metadata, good))
    words = {'metadata': metadata, 'bytes': good.stat().st_size}
    node.run('%s && sync' % (spoil % words))
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
        'name=$(dmsetup info -c --noheadings -o name %%(metadata)s) && '
        'set -- $(dmsetup table $name) && dmsetup load $name --table '
        '"0 %s linear $4 $5" && dmsetup resume $name' % sectors
        for sectors in ('4096', '$((%(bytes)d / 512))')])


@fault('clone metadata stale: left by another move')
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


def _no_writes(node, name):
    """Writes to a device fail.

    :returns: its table as it was
    """
    table = breaks.table_of(node, name)
    first, sectors, _linear, device, offset = table.split()
    breaks.replace(node, name, '%s %s flakey %s %s 0 3600 1 error_writes' % (
        first, sectors, device, offset))
    return table


@fault('clone metadata read-only')
def metadata_read_only(course):
    course.start_slow()
    node = course.destination
    name = breaks.mapper('localclone-meta-' + course.shadow()[0])
    mark = course.ground.log_marks()
    table = _no_writes(node, name)
    course.logged(node, 'is in mode', mark)
    course.disk.stop()
    breaks.replace(node, name, table)
    course.restart(node)
    course.go_on()


def _under(course):
    """What is beneath the destination's LV."""
    return breaks.Under(course.destination, 'volume-' + course.shadow()[0])


def _pool_is(node, *modes):
    process.wait_for(
        'the pool to be ' + ' or '.join(modes), lambda: set(modes) & set(
            node.run('dmsetup status --noflush ' + breaks.POOL
                     ).stdout.split()), 30)


@fault('thin pool full: data')
def pool_full(course):
    """Another's writes fill the pool while the copy is under way."""
    course.start_slow()
    course.disk.stop()
    node = course.destination
    breaks.fill_pool(node)
    course.ground.brake(course.source)
    time.sleep(15)
    course.keeps_source()
    _pool_is(node, 'out_of_data_space')
    breaks.unfill(node)
    course.go_on()


@fault('thin pool full: metadata')
def pool_metadata_fails(course):
    """The pool can't note what it hands out: the kernel makes it read-only,
    just as when its metadata is full. A boot checks and mends it.
    """
    course.start_slow()
    course.disk.stop()
    node = course.destination
    _no_writes(node, 'cinder--volumes-cinder--volumes--pool_tmeta')
    course.ground.brake(course.source)
    time.sleep(25)
    course.keeps_source()
    _pool_is(node, 'ro', 'Fail')
    course.cut(node)
    course.boot(node)
    course.go_on()


def _failing(course, table):
    """It is being copied, slowly, to a disk that fails.

    :param table: see :meth:`.breaks.Under.fail`
    """
    course.start_slow()
    under = _under(course)
    course.disk.stop()  # a guest whose disk fails, fails
    under.fail(table)
    return under


@fault('destination disk fails for a while')
def destination_flakey(course):
    under = _failing(course, 'flakey %s 0 0 3600')
    must(under.reads_fail(), 'the disk can be read')
    time.sleep(10)
    under.mend()
    course.restart(course.destination)
    course.go_on()


@fault('destination disk refuses writes')
def destination_refuses_writes(course):
    under = _failing(course, 'flakey %s 0 0 3600 1 error_writes')
    must(under.writes_fail(), 'the disk can be written')
    course.ground.brake(course.source)
    time.sleep(25)
    course.keeps_source()
    under.mend()
    course.restart(course.destination)
    course.go_on()


@fault('destination disk has a bad block')
def destination_bad_block(course):
    """One that is local, one that is still to be copied, and all of where
    the guest writes: what is written there is good again.
    """
    course.start_slow()
    disk, node = course.disk, course.destination
    disk.check_running()
    disk.stop()
    local = disk.a_written_block()
    under = _under(course)
    to_come = (disk.mib - 8) * _BLOCKS
    disk.start(node)
    first = disk.newest_area() * _BLOCKS
    under.fail_blocks([local, to_come] + list(range(first, first + _BLOCKS)))
    must(breaks.block_fails(node, disk.path, local),
         'the guest can read the bad block')
    disk.check_running()
    course.go_on()
    look.wait_moved(course.ground.lab, disk.volume, 120)
    must(not breaks.block_fails(node, disk.path, to_come),
         'what was copied cannot be read')
    must(breaks.block_fails(node, disk.path, local),
         'the bad block can be read')
    disk.check_running()
    under.mend()


@fault('destination disk fails reads of what is local')
def destination_read_errors(course):
    """The guest reads all the while: right data or an error."""
    course.start_slow()
    disk, node = course.disk, course.destination
    under = _under(course)
    # The first MiB is copied first; written anew, it surely is local.
    disk.fill(node, count=1)
    guest = disk.watch(node, 30)
    time.sleep(5)
    under.fail_blocks(range(64, 192))
    time.sleep(10)
    under.mend()
    if guest.wait(60):
        raise process.LabError('the guest that reads: ' + guest.stderr[
            -300:].decode(errors='replace'))
    found = json.loads(guest.stdout)
    course.ground.say('    the guest that reads: %s' % found)
    must(not found['wrong'], 'wrong data was read')
    must(found['failed'], 'no read failed')
    must(found['mended'] >= 128, 'not all can be read again')
    course.go_on()


# -- device-mapper commands that fail


def _has_failed(course):
    process.wait_for('the command to fail', lambda: breaks.has_failed(
        course.destination), 90)
    course.destination.run('rm -f /run/bin/dmsetup')


def _command_fails(course, word, step=None):
    if step:
        course.stop_at('destination', step)
    else:
        course.operation.prepare()
    breaks.fail_once(course.destination, word)
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
    breaks.fail_once(course.destination, word)
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


# -- many


@fault('8 volumes at once, one of them broken')
def eight(course):
    """The broken one holds nobody up; mended, it goes on."""
    under = _failing(course, 'error')
    must(under.reads_fail(), 'the disk can be read')
    others = in_parallel([lambda: course.fresh(course.source)] * 7)
    moves = [OPERATIONS['move'](course.ground, disk, course.source,
                                course.destination) for disk in others]
    course.ground.brake(course.source)
    # All requests at once would meet their limits on nodes as slow as these.
    in_parallel([lambda m=move: (m.start(), m.join()) for move in moves],
                most=3)
    for move in moves:
        move.settle(())
    if json.dumps(look.shadows(course.ground.lab)).count(
            course.disk.volume) != 1:
        raise process.LabError('the broken one has ended: %s' % look.shadows(
            course.ground.lab))
    under.mend()
    course.restart(course.destination)
