# SPDX-License-Identifier: Apache-2.0
"""The source's disk at the destination: set offline, its session unknown."""

import time

from lab.core import look
from lab.core import process
from lab.faults import injectors
from lab.faults.scenario import fault
from lab.faults.scenario import must


def _source_disk(scenario):
    """The name of the disk at the destination, and of its target."""
    iqn, = injectors.targets(scenario.source)
    return injectors.disk_of(scenario.destination, iqn), iqn


def _works_again(scenario, disk):
    process.wait_for(
        'the disk to be used again', lambda: injectors.disk_state(
            scenario.destination, disk) == 'running', 60)


def _reads_fail(scenario, disk):
    must(injectors.io_fails(
        scenario.destination, 'if=/dev/%s of=/dev/null iflag=direct' % disk),
        'the disk can be read')


@fault("the source's disk is set offline")
def offline(scenario):
    """As the kernel does, which never undoes it."""
    scenario.start_slow()
    scenario.disk.stop()  # a guest whose disk fails, fails
    disk, _iqn = _source_disk(scenario)
    injectors.set_offline(scenario.destination, disk)
    _works_again(scenario, disk)
    scenario.readable_again()
    scenario.keeps_source()
    scenario.go_on()


@fault("the source's disk is set offline, and the service restarted")
def offline_at_restart(scenario):
    scenario.start_slow()
    scenario.disk.stop()
    node = scenario.destination
    disk, _iqn = _source_disk(scenario)
    node.service('stop')
    injectors.set_offline(node, disk)
    _reads_fail(scenario, disk)
    time.sleep(5)
    node.service('start')
    node.wait_service()
    _works_again(scenario, disk)
    scenario.readable_again()
    scenario.go_on()


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
    process.wait_for('the move to go', lambda: not look.shadows(
        scenario.environment.lab), 90, every=1)
