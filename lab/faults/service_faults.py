# SPDX-License-Identifier: Apache-2.0
"""Database, message bus, clock; requests that come twice or late."""

import time

from lab.core import look
from lab.core import process
from lab.faults.environment import in_parallel
from lab.faults.scenario import Course
from lab.faults.scenario import fault
from lab.faults.scenario import must
from lab.faults.scenario import SLOW


@fault('database stalls for 20 s while preparing')
@fault('database stalls for 20 s while preparing', 'live-move')
def database_stalls(course):
    course.stop_at('destination', 'create_thin volume')
    course.ground.release()
    course.ground.stall('mariadb', 20)
    course.disk.check_running()


def _database_away(course, step, end='destination'):
    course.stop_at(end, step)
    with course.ground.away('mariadb'):
        course.ground.release()
        time.sleep(10)
    course.disk.check_running()


@fault('database restarted during completion')
@fault('database restarted during completion', 'live-move')
def database_restarted(course):
    _database_away(course, 'flush handle')


@fault('database restarted before the commit')
@fault('database restarted before the commit', 'live-move')
def database_before_commit(course):
    _database_away(course, 'read_head handle')


@fault('database restarted when the source lets go', 'live-move')
def database_when_let_go(course):
    _database_away(course, 'before advance: source detached', 'source')


_UNANSWERED = 'source', 'commit unanswered'


@fault('the answer to the commit is lost')
@fault('the answer to the commit is lost', 'live-move')
def answer_lost(course):
    """Whether it was committed is seen in the database alone."""
    course.stop_at(*_UNANSWERED)
    course.ground.release()
    course.operation.join()
    course.keeps_home()


@fault('the database goes away before it answers to the commit')
def answer_lost_for_long(course):
    course.stop_at(*_UNANSWERED)
    with course.ground.away('mariadb'):
        course.ground.release()
        time.sleep(10)
    course.operation.join()
    course.keeps_home()


@fault('message bus stalls for 30 s while preparing')
def bus_stalls(course):
    course.stop_at('destination', 'create_thin volume')
    course.ground.release()
    course.ground.stall('rabbitmq', 30)


@fault('message bus restarted during hydration')
def bus_restarted(course):
    course.start_slow()
    with course.ground.away('rabbitmq'):
        time.sleep(10)
    course.go_on()
    course.disk.check_running()


def _bus_away_at_cut_over(course, signals):
    """A copy ends meanwhile; another one of that node must end as well."""
    other = Course(course.ground, 'move', course.source, course.destination,
                   course.fresh(course.source))
    for each in (other, course):
        each.stop_at('source', 'before commit')
    course.ground.brake(course.source, SLOW)
    course.ground.release()
    for each in (other, course):
        each.operation.join()
        if each.operation.error:
            raise each.operation.error
    must(len(look.clones(course.destination)) == 2, 'a copy has ended')
    with course.ground.away('rabbitmq', signals):
        course.go_on()
        process.wait_for(
            'a cut-over without message bus',
            lambda: len(look.clones(course.destination)) < 2, 90, every=1)
        time.sleep(15)
        course.disk.check_running()
    other.operation.settle(())


@fault('message bus restarted across the cut-over', 'live-move')
def bus_restarted_at_cut_over(course):
    _bus_away_at_cut_over(course, False)


@fault('message bus stalls across the cut-over', 'live-move')
def bus_stalls_at_cut_over(course):
    _bus_away_at_cut_over(course, True)


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
except exceptions.StaleMove as exc:
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
