# SPDX-License-Identifier: Apache-2.0
"""The network between the nodes, and the source as the destination sees it."""

import time

from lab.core import process
from lab.faults import injectors as breaks
from lab.faults.scenario import fault


def _between(course, on):
    """The nodes cannot reach each other; the control plane reaches both."""
    breaks.cut_off(course.source, course.destination, on)
    breaks.cut_off(course.destination, course.source, on)


def _between_for(course, seconds, limit):
    course.start_slow()
    _between(course, True)
    time.sleep(seconds)
    _between(course, False)
    course.go_on()
    course.disk.check_running(limit)


@fault('no network between the nodes for 8 s')
@fault('no network between the nodes for 8 s', 'live-move')
def between_for_seconds(course):
    _between_for(course, 8, limit=60)


@fault('no network between the nodes for 2 minutes')
def between_for_minutes(course):
    _between_for(course, 120, limit=90)


@fault('no network between the nodes for 2 minutes', 'live-move')
def between_while_starting(course):
    """The guest has not left: it notices nothing."""
    course.start_live()
    _between(course, True)
    course.disk.check_running(20)
    time.sleep(120)
    course.disk.check_running(20)
    _between(course, False)


@fault('no network between the nodes while it is given up',
       'live-move rolled back')
def between_while_given_up(course):
    course.start_live()
    _between(course, True)
    try:
        course.disk.detach(course.destination, 'in-use')
    except process.LabError as exc:
        course.ground.say('    detach: %s' % str(exc)[:200])
    course.disk.check_running(20)
    time.sleep(15)
    _between(course, False)


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


@fault('iSCSI session reset', 'live-move')
def session_reset_live(course):
    """Before the guest comes, and when all that it reads is at the source."""
    course.start_live()
    course.ground.reset_sessions(course.source)
    course.operation._switch()
    for _time in range(2):
        course.ground.reset_sessions(course.source)
        time.sleep(3)
    course.disk.check_running(60)


@fault('iSCSI session logged out under the clone')
def session_logged_out(course):
    course.start_slow()
    course.disk.stop()
    course.destination.run('iscsiadm -m session -u', timeout=60)
    course.go_on()
    course.readable_again()


def _wrong_source(course, size, serial):
    course.start_slow()
    course.cut(course.destination)
    course.source.service('stop')
    breaks.make_stranger(course.source, size)
    breaks.offer_stranger(course.source, serial)
    mark = course.ground.log_marks()
    course.boot(course.destination)
    course.logged(course.destination, 'is not the source of the move',
                  mark)
    course.no_handle(course.destination)
    course.source.service('start')
    course.source.wait_service()
    breaks.remove_stranger(course.source)


@fault('source re-exported: another volume')
def wrong_volume(course):
    _wrong_source(course, course.disk.mib, 'new')


@fault('source re-exported: wrong size')
def wrong_size(course):
    _wrong_source(course, course.disk.mib * 2, 'same')
