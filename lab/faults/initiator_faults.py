# SPDX-License-Identifier: Apache-2.0
"""The source's disk at the destination: set offline, its session unknown."""

import time

from lab.core import observe
from lab.core import process
from lab.faults import injectors
from lab.faults.scenario import fault
from lab.scenarios.requests import must


def _source_disk(scenario):
    """The name of the disk at the destination, and of its target."""
    iqn, = injectors.targets(scenario.source)
    return injectors.disk_of(scenario.destination, iqn), iqn


def _works_again(scenario, disk):
    process.wait_for(
        'the disk to be used again', lambda: injectors.disk_state(
            scenario.destination, disk) == 'running', 60)


@fault("the source's disk is set offline")
def offline(scenario):
    """As the kernel does, which never undoes it."""
    scenario.start_slow()
    scenario.disk.stop()  # a guest whose disk fails, fails
    disk, _iqn = _source_disk(scenario)
    injectors.set_offline(scenario.destination, disk)
    _works_again(scenario, disk)
    scenario.keeps_source()
    scenario.go_on()
    scenario.readable_again()


@fault("the source's disk is set offline, and the service restarted")
def offline_at_restart(scenario):
    scenario.start_slow()
    scenario.disk.stop()
    node = scenario.destination
    disk, _iqn = _source_disk(scenario)
    node.service('stop')
    injectors.set_offline(node, disk)
    must(injectors.disk_state(node, disk) == 'offline', 'it is not offline')
    time.sleep(5)
    node.service('start')
    node.wait_service()
    _works_again(scenario, disk)
    scenario.go_on()
    scenario.readable_again()


@fault("the source's disk is set offline", 'live-move')
def offline_while_starting(scenario):
    """The guest has not left: it notices nothing."""
    scenario.start_live()
    disk, _iqn = _source_disk(scenario)
    injectors.set_offline(scenario.destination, disk)
    scenario.disk.check_running(20)
    _works_again(scenario, disk)
    scenario.disk.check_running(20)


# -- a session that iscsiadm has no record of


@fault('the session has no record at the end')
@fault('the session has no record at the end', 'live-move')
def no_record_at_end(scenario):
    scenario.stop_at('destination',
                     'advance: all regions local and flushed')
    _disk, iqn = _source_disk(scenario)
    injectors.forget_record(scenario.destination, iqn)
    scenario.environment.release()


@fault('the session has no record when the move is given up',
       'live-move rolled back')
def no_record_when_given_up(scenario):
    scenario.start_live()
    _disk, iqn = _source_disk(scenario)
    injectors.forget_record(scenario.destination, iqn)
    scenario.disk.detach(scenario.destination, 'in-use')
    scenario.disk.check_running(20)


@fault('the session has no record when the move fails')
def no_record_at_roll_back(scenario):
    """Before the commit: the destination dies, and the source gives up."""
    scenario.stop_at('destination', 'read_head handle')
    _disk, iqn = _source_disk(scenario)
    injectors.forget_record(scenario.destination, iqn)
    scenario.destination.service('kill')
    scenario.environment.release()
    scenario.operation.join()
    must(scenario.operation.error, 'the request was not refused')
    scenario.destination.service('start')
    scenario.destination.wait_service()
    scenario.disk.forget_failed()
    process.wait_for('the move to go', lambda: not observe.move_records(
        scenario.environment.lab), 90, every=1)


@fault("killed when the source's disk was brought back")
def killed_when_brought_back(scenario):
    scenario.start_slow()
    scenario.disk.stop()
    disk, _iqn = _source_disk(scenario)
    node = scenario.destination
    scenario.environment.arm(scenario.disk, node, 'bring_back disk')
    injectors.set_offline(node, disk)
    _killed_at_step(scenario, node)
    _works_again(scenario, disk)
    scenario.go_on()


@fault('killed when a link that led elsewhere was mended')
def killed_when_mended(scenario):
    scenario.start_slow()
    scenario.disk.check_running()
    node = scenario.destination
    scenario.environment.arm(scenario.disk, node, 'ensure_devnode handle')
    node.run('ln -sfn ../dm-999 ' + scenario.disk.path)
    _killed_at_step(scenario, node)
    scenario.disk.check_running()
    scenario.go_on()


def _killed_at_step(scenario, node):
    process.wait_for('the step', lambda: scenario.environment.reached(
        scenario.disk), 60)
    node.service('kill')
    scenario.environment.release()
    node.service('start')
    node.wait_service()


# -- sysfs answers oddly, once


def _session(scenario):
    """The destination's session, with its number."""
    return scenario.destination.run('iscsiadm -m session').stdout


def _odd(scenario, *looks):
    """Neither the guest nor the session notices."""
    before = _session(scenario)
    for look_ in looks:
        scenario.environment.look_oddly(scenario.destination, look_)
        time.sleep(4)  # what comes of it
        must(_session(scenario) == before, 'after "%s" the session is: %s' % (
            look_, _session(scenario)))
        scenario.disk.check_running(20)


@fault('sysfs answers oddly')
def odd_while_copied(scenario):
    scenario.start_slow()
    _odd(scenario, 'disks', 'identity', 'number', 'completed_reads')
    scenario.go_on()


@fault('sysfs answers oddly', 'live-move')
def odd_while_starting(scenario):
    scenario.start_live()
    _odd(scenario, 'disks', 'identity', 'number')


@fault('sysfs answers oddly while preparing')
def odd_while_preparing(scenario):
    """It may be refused; nothing is left, and asked again, it works."""
    scenario.operation.prepare()
    for look_ in ('identity', 'number', 'size'):
        asked = scenario.environment.steps / (
            scenario.destination.name + '.odd')
        asked.write_text(look_)
        scenario.operation.start()
        process.wait_for('a look (%s)' % look_, lambda: not asked.exists(),
                         60)
        scenario.operation.join()
        if scenario.operation.error is None:
            return
        scenario.disk.forget_failed()
        process.wait_for('the move to go', lambda: not observe.move_records(
            scenario.environment.lab), 60, every=1)
        scenario.operation.error = None
