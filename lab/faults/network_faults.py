# SPDX-License-Identifier: Apache-2.0
"""The network between the nodes, and the source as the destination sees it."""

import time

from lab.core import process
from lab.faults import injectors
from lab.faults.scenario import fault


def _between(scenario, on):
    """The nodes cannot reach each other; the control plane reaches both."""
    injectors.cut_off(scenario.source, scenario.destination, on)
    injectors.cut_off(scenario.destination, scenario.source, on)


def _between_for(scenario, seconds, limit):
    scenario.start_slow()
    _between(scenario, True)
    time.sleep(seconds)
    _between(scenario, False)
    scenario.go_on()
    scenario.disk.check_running(limit)


@fault('no network between the nodes for 8 s')
@fault('no network between the nodes for 8 s', 'live-move')
def between_for_seconds(scenario):
    _between_for(scenario, 8, limit=60)


@fault('no network between the nodes for 2 minutes')
def between_for_minutes(scenario):
    _between_for(scenario, 120, limit=90)


@fault('no network between the nodes for 2 minutes', 'live-move')
def between_while_starting(scenario):
    """The guest has not left: it notices nothing."""
    scenario.start_live()
    _between(scenario, True)
    scenario.disk.check_running(20)
    time.sleep(120)
    scenario.disk.check_running(20)
    _between(scenario, False)


@fault('no network between the nodes while it is given up',
       'live-move rolled back')
def between_while_given_up(scenario):
    scenario.start_live()
    _between(scenario, True)
    try:
        scenario.disk.detach(scenario.destination, 'in-use')
    except process.LabError as exc:
        scenario.environment.say('    detach: %s' % str(exc)[:200])
    scenario.disk.check_running(20)
    time.sleep(15)
    _between(scenario, False)


@fault('the source off all networks for a minute')
def source_off(scenario):
    scenario.start_slow()
    scenario.source.network_cut()
    time.sleep(60)
    scenario.source.network_heal()
    scenario.go_on()
    scenario.disk.check_running(90)


@fault('the nodes lose each other while preparing')
def between_while_preparing(scenario):
    scenario.stop_at('destination', 'create_thin volume')
    _between(scenario, True)
    scenario.environment.release()
    scenario.operation.join()
    _between(scenario, False)


@fault('the nodes lose each other while the destination reads')
def between_while_reading(scenario):
    scenario.stop_at('destination', 'create handle')
    _between(scenario, True)
    scenario.environment.release()
    scenario.operation.join()
    _between(scenario, False)


@fault('slow and lossy link')
@fault('slow and lossy link', 'live-move')
def lossy(scenario):
    for node in (scenario.source, scenario.destination):
        node.netem('delay', '15ms', '5ms', 'loss', '2%')
    scenario.start()
    scenario.operation.join()
    time.sleep(20)
    scenario.disk.check_running(90)


# -- the source, as the destination sees it


@fault('iSCSI session reset')
def session_reset(scenario):
    scenario.start_slow()
    for _time in range(3):
        scenario.environment.reset_sessions(scenario.source)
        time.sleep(3)
    scenario.go_on()
    scenario.disk.check_running(60)


@fault('iSCSI session reset', 'live-move')
def session_reset_live(scenario):
    """Before the guest comes, and when all that it reads is at the source."""
    scenario.start_live()
    scenario.environment.reset_sessions(scenario.source)
    scenario.operation._switch()
    for _time in range(2):
        scenario.environment.reset_sessions(scenario.source)
        time.sleep(3)
    scenario.disk.check_running(60)


@fault('iSCSI session logged out under the clone')
def session_logged_out(scenario):
    scenario.start_slow()
    scenario.disk.stop()
    scenario.destination.run('iscsiadm -m session -u', timeout=60)
    scenario.go_on()
    scenario.readable_again()


def _wrong_source(scenario, size, serial):
    scenario.start_slow()
    scenario.cut(scenario.destination)
    scenario.source.service('stop')
    injectors.make_stranger(scenario.source, size)
    injectors.export_stranger(scenario.source, serial)
    mark = scenario.environment.log_marks()
    scenario.boot(scenario.destination)
    scenario.logged(scenario.destination, 'is not the expected disk',
                    mark)
    scenario.no_handle(scenario.destination)
    scenario.source.service('start')
    scenario.source.wait_service()
    injectors.remove_stranger(scenario.source)


@fault('source re-exported: another volume')
def wrong_volume(scenario):
    _wrong_source(scenario, scenario.disk.mib, 'new')


@fault('source re-exported: wrong size')
def wrong_size(scenario):
    _wrong_source(scenario, scenario.disk.mib * 2, 'same')
