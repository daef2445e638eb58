# SPDX-License-Identifier: Apache-2.0
"""No room, disks that fail, commands of device-mapper that fail."""

import json
import time

from lab.core import observe
from lab.core import process
from lab.core.process import in_parallel
from lab.faults import injectors
from lab.faults.scenario import fault
from lab.scenarios.repeated import OPERATIONS
from lab.scenarios.requests import must

#: In a MiB.
_BLOCKS = (1 << 20) // injectors.BLOCK


@fault('volume group full')
def group_full(scenario):
    node = scenario.destination
    injectors.fill_group(node)
    try:
        scenario.start()
        scenario.refused()
        scenario.disk.forget_failed()
        told = scenario.disk.cinder.get('/messages').text
        if 'does not have enough free storage' not in told:
            raise process.LabError('the owner was not told why')
        if scenario.disk.home() != scenario.source.name:
            raise process.LabError('home has changed')
    finally:
        injectors.unfill(node)


# -- what remembers the copy, and disks


def _metadata_path(scenario):
    return '/dev/cinder-volumes/localclone-meta-' + scenario.record()[0]


def _broken_metadata(scenario, spoil, repair=None):
    """The destination boots with metadata that was spoilt meanwhile.

    :param repair: a command; None puts back what was there
    """
    scenario.start_slow()
    time.sleep(3)
    metadata = _metadata_path(scenario)
    node = scenario.destination
    scenario.cut(node)
    node.power_on()
    good = node.directory / 'metadata.good'
    node.run('vgchange -q -ay cinder-volumes && dd if=%s of=%s bs=1M '
             'iflag=direct status=none' % (metadata, good))
    words = {'metadata': metadata, 'bytes': good.stat().st_size}
    node.run('%s && sync' % (spoil % words))
    mark = scenario.environment.log_marks()
    node.service('start')
    node.wait_service()
    scenario.no_handle(node)
    scenario.logged(node, scenario.disk.volume, mark)
    node.service('stop')
    if repair:
        node.run(repair % words)
    node.run('dd if=%s of=%s bs=1M oflag=direct conv=fsync status=none'
             % (good, metadata))
    good.unlink()
    node.service('start')
    node.wait_service()
    scenario.go_on()


@fault('clone metadata corrupt')
def metadata_corrupt(scenario):
    _broken_metadata(scenario, 'dd if=/dev/urandom of=%(metadata)s bs=4096 '
                     'count=1 oflag=direct conv=notrunc status=none')


@fault('clone metadata zeroed')
def metadata_zeroed(scenario):
    _broken_metadata(scenario, 'dd if=/dev/zero of=%(metadata)s bs=4096 '
                     'count=1 oflag=direct conv=notrunc status=none')


@fault('clone metadata too small')
def metadata_too_small(scenario):
    """It could run full, which the kernel does not survive."""
    _broken_metadata(scenario, *[
        'name=$(dmsetup info -c --noheadings -o name %%(metadata)s) && '
        'set -- $(dmsetup table $name) && dmsetup load $name --table '
        '"0 %s linear $4 $5" && dmsetup resume $name' % sectors
        for sectors in ('4096', '$((%(bytes)d / 512))')])


@fault('clone metadata stale: left by another move')
def metadata_stale(scenario):
    """A new LV gets extents in which another copy was noted as complete."""
    other = scenario.fresh(scenario.source)
    first = scenario.another(other)
    first.stop_at('destination', 'flush handle')
    node = scenario.destination
    saved = node.directory / 'metadata.stale'
    node.run('dd if=%s of=%s bs=1M iflag=direct status=none' % (
        _metadata_path(first), saved))
    scenario.environment.release()
    first.operation.settle(())
    scenario.stop_at('destination', 'create_thick metadata')
    node.run('dd if=%s of=%s bs=1M oflag=direct conv=fsync status=none' % (
        saved, _metadata_path(scenario)))
    saved.unlink()


def no_writes(node, name):
    """Writes to a device fail.

    :returns: its table as it was
    """
    table = injectors.table_of(node, name)
    first, sectors, _linear, device, offset = table.split()
    injectors.replace(
        node, name, '%s %s flakey %s %s 0 3600 1 error_writes' % (
            first, sectors, device, offset))
    return table


@fault('clone metadata read-only')
def metadata_read_only(scenario):
    """A clone that has failed stays so as long as anybody has it open: what
    they wrote, but the clone could not record, must not vanish under them.
    Then it is rebuilt; and if it fails again, that is told again.
    """
    scenario.start_slow()
    disk, node = scenario.disk, scenario.destination
    clone = 'localclone-clone-' + scenario.record()[0]
    name = injectors.mapper('localclone-meta-' + scenario.record()[0])
    user = node.popen('exec 9<%s; sleep 300' % disk.path)
    process.wait_for('the user', lambda: node.run(
        'dmsetup info -c --noheadings -o open ' + disk.path
    ).stdout.strip() == '2', 30)
    mark = scenario.environment.log_marks()
    table = no_writes(node, name)  # the guest may end by itself of that
    scenario.logged(node, 'is in mode', mark)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        must(_mode(node, clone) != 'rw', 'it was rebuilt while it was in use')
    disk.stop()
    user.kill()
    process.wait_for('the clone to be rebuilt',
                     lambda: _mode(node, clone) == 'rw', 60, every=0.2)
    mark = scenario.environment.log_marks()
    scenario.logged(node, 'is in mode', mark)
    scenario.restart(node)
    injectors.replace(node, name, table)
    scenario.go_on()


def _mode(node, clone):
    """The last word of a clone's status: see the kernel's dm-clone.rst."""
    return node.run('dmsetup status --noflush ' + clone).stdout.split()[-1]


def _under(scenario):
    """What is beneath the destination's LV."""
    return injectors.DeviceBelow(
        scenario.destination, 'volume-' + scenario.record()[0])


def _failing(scenario, table):
    """It is being copied, slowly, to a disk that fails.

    :param table: see :meth:`.injectors.DeviceBelow.fail`
    """
    scenario.start_slow()
    under = _under(scenario)
    scenario.disk.stop()  # a guest whose disk fails, fails
    under.fail(table)
    return under


@fault('destination disk fails for a while')
def destination_flakey(scenario):
    under = _failing(scenario, 'flakey %s 0 0 3600')
    must(under.reads_fail(), 'the disk can be read')
    time.sleep(10)
    under.repair()
    scenario.restart(scenario.destination)
    scenario.go_on()


@fault('destination disk refuses writes')
def destination_refuses_writes(scenario):
    under = _failing(scenario, 'flakey %s 0 0 3600 1 error_writes')
    must(under.writes_fail(), 'the disk can be written')
    scenario.environment.brake(scenario.source)
    time.sleep(25)
    scenario.keeps_source()
    under.repair()
    scenario.restart(scenario.destination)
    scenario.go_on()


@fault('destination disk has a bad block')
def destination_bad_block(scenario):
    """One that is local, one that is still to be copied, and all of where
    the guest writes: what is written there is good again.
    """
    scenario.start_slow()
    disk, node = scenario.disk, scenario.destination
    disk.check_running()
    disk.stop()
    local = disk.a_written_block()
    under = _under(scenario)
    to_come = disk.a_late_block()
    disk.start(node)
    first = disk.newest_area() * _BLOCKS
    under.fail_blocks([local, to_come] + list(range(first, first + _BLOCKS)))
    must(injectors.block_fails(node, disk.path, local),
         'the guest can read the bad block')
    disk.check_running()
    scenario.go_on()
    observe.wait_moved(scenario.environment.lab, disk.volume, 120)
    must(not injectors.block_fails(node, disk.path, to_come),
         'what was copied cannot be read')
    must(injectors.block_fails(node, disk.path, local),
         'the bad block can be read')
    disk.check_running()
    under.repair()


@fault('destination disk fails reads of what is local')
def destination_read_errors(scenario):
    """The guest reads all the while: right data or an error."""
    scenario.start_slow()
    disk, node = scenario.disk, scenario.destination
    under = _under(scenario)
    # The first MiB is copied first; written anew, it surely is local.
    disk.fill(node, count=1)
    guest = disk.watch(node, 30)
    time.sleep(5)
    under.fail_blocks(range(64, 192))
    time.sleep(10)
    under.repair()
    if guest.wait(60):
        raise process.LabError('the reading guest failed: ' + guest.stderr[
            -300:].decode(errors='replace'))
    counts = json.loads(guest.stdout)
    scenario.environment.say('    the guest that reads: %s' % counts)
    must(not counts['wrong'], 'wrong data was read')
    must(counts['failed'], 'no read failed')
    must(counts['recovered'] >= 128, 'not all can be read again')
    scenario.go_on()


# -- device-mapper commands that fail


def _has_failed(scenario):
    process.wait_for('the command to fail', lambda: injectors.has_failed(
        scenario.destination), 90)
    scenario.destination.run('rm -f /run/bin/dmsetup')


def _command_fails(scenario, word, step=None):
    if step:
        scenario.stop_at('destination', step)
    else:
        scenario.operation.prepare()
    injectors.fail_once(scenario.destination, word)
    if step:
        scenario.environment.release()
    else:
        scenario.operation.start()
    _has_failed(scenario)


@fault('dmsetup create fails')
def create_fails(scenario):
    _command_fails(scenario, 'create')


@fault('dmsetup load fails at cut-over')
def load_fails(scenario):
    _command_fails(scenario, 'load', 'advance: ' + _HYDRATED)
    scenario.disk.check_running()


@fault('dmsetup resume fails at cut-over')
def resume_fails(scenario):
    _command_fails(scenario, 'resume', 'advance: ' + _HYDRATED)
    scenario.disk.check_running()


@fault('dmsetup remove fails')
def remove_fails(scenario):
    _command_fails(scenario, 'remove', 'flush volume')


_HYDRATED = 'all regions local and flushed'


def _new_disk_number(scenario, word):
    """The source's disk comes back under another number; a command of the
    clone's replacement fails once.
    """
    scenario.start_slow()
    scenario.disk.stop()
    injectors.fail_once(scenario.destination, word)
    node = scenario.destination
    # Taken meanwhile, the number of the disk is another one afterwards.
    node.run('modprobe scsi_debug dev_size_mb=8 2>/dev/null; '
             'iscsiadm -m session -u', timeout=60, check=False)
    _has_failed(scenario)
    scenario.go_on()
    scenario.readable_again()


@fault('dmsetup suspend fails when the source comes back')
def suspend_fails(scenario):
    _new_disk_number(scenario, 'suspend')


@fault('dmsetup load fails when the source comes back')
def load_fails_again(scenario):
    _new_disk_number(scenario, 'load')


# -- many


@fault('8 volumes at once, one of them broken')
def eight(scenario):
    """The broken one holds nobody up; repaired, it goes on."""
    under = _failing(scenario, 'error')
    must(under.reads_fail(), 'the disk can be read')
    others = in_parallel([lambda: scenario.fresh(scenario.source)] * 7)
    moves = [OPERATIONS['move'](scenario.environment, disk, scenario.source,
                                scenario.destination) for disk in others]
    scenario.environment.brake(scenario.source)
    # All requests at once would meet their limits on nodes as slow as these.
    in_parallel([lambda m=move: (m.start(), m.join()) for move in moves],
                most=3)
    for move in moves:
        move.settle(())
    if json.dumps(observe.move_records(scenario.environment.lab)).count(
            scenario.disk.volume) != 1:
        raise process.LabError('the move of the broken one has ended: %s'
                               % observe.move_records(
                                   scenario.environment.lab))
    under.repair()
    scenario.restart(scenario.destination)
