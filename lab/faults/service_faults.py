# SPDX-License-Identifier: Apache-2.0
"""Database, message bus, clock; requests that come twice or late."""

import time

from lab.core import observe
from lab.core import process
from lab.core.process import in_parallel
from lab.faults.scenario import fault
from lab.faults.scenario import SLOW
from lab.scenarios.requests import must


@fault('database stalls for 20 s while preparing')
@fault('database stalls for 20 s while preparing', 'live-move')
def database_stalls(scenario):
    scenario.stop_at('destination', 'create_thin volume')
    scenario.environment.release()
    scenario.environment.stall('mariadb', 20)
    scenario.disk.check_running()


def _database_away(scenario, step, end='destination'):
    scenario.stop_at(end, step)
    with scenario.environment.away('mariadb'):
        scenario.environment.release()
        time.sleep(10)
    scenario.disk.check_running()


@fault('database restarted during completion')
@fault('database restarted during completion', 'live-move')
def database_restarted(scenario):
    _database_away(scenario, 'flush handle')


@fault('database restarted before the commit')
@fault('database restarted before the commit', 'live-move')
def database_before_commit(scenario):
    _database_away(scenario, 'read_head handle')


@fault('database restarted when the source lets go', 'live-move')
def database_when_let_go(scenario):
    _database_away(scenario, 'before advance: source detached', 'source')


_UNANSWERED = 'source', 'commit unanswered'


@fault('the answer to the commit is lost')
@fault('the answer to the commit is lost', 'live-move')
def answer_lost(scenario):
    """Whether it was committed is seen in the database alone."""
    scenario.stop_at(*_UNANSWERED)
    scenario.environment.release()
    scenario.operation.join()
    scenario.keeps_home()


@fault('the database goes away before it answers to the commit')
def answer_lost_for_long(scenario):
    scenario.stop_at(*_UNANSWERED)
    with scenario.environment.away('mariadb'):
        scenario.environment.release()
        time.sleep(10)
    scenario.operation.join()
    scenario.keeps_home()


@fault('message bus stalls for 30 s while preparing')
def bus_stalls(scenario):
    scenario.stop_at('destination', 'create_thin volume')
    scenario.environment.release()
    scenario.environment.stall('rabbitmq', 30)


@fault('message bus restarted during hydration')
def bus_restarted(scenario):
    scenario.start_slow()
    with scenario.environment.away('rabbitmq'):
        time.sleep(10)
    scenario.go_on()
    scenario.disk.check_running()


def _bus_away_at_cut_over(scenario, signals):
    """A copy ends meanwhile; another one of that node must end as well."""
    other = scenario.another(scenario.fresh(scenario.source))
    for each in (other, scenario):
        each.stop_at('source', 'before commit')
    scenario.environment.brake(scenario.source, SLOW)
    scenario.environment.release()
    for each in (other, scenario):
        each.operation.join()
        if each.operation.error:
            raise each.operation.error
    must(len(observe.clones(scenario.destination)) == 2, 'a copy has ended')
    with scenario.environment.away('rabbitmq', signals):
        scenario.go_on()
        process.wait_for(
            'a cut-over without message bus',
            lambda: len(observe.clones(scenario.destination)) < 2, 90, every=1)
        time.sleep(15)
        scenario.disk.check_running()
    other.operation.settle(())


@fault('message bus restarted across the cut-over', 'live-move')
def bus_restarted_at_cut_over(scenario):
    _bus_away_at_cut_over(scenario, False)


@fault('message bus stalls across the cut-over', 'live-move')
def bus_stalls_at_cut_over(scenario):
    _bus_away_at_cut_over(scenario, True)


# -- requests twice, and late

_PREPARE = '''
import sys
from cinder.cmd import volume
from cinder import objects, rpc
objects.register_all()
volume.CONF(['--config-file', sys.argv[1]], project='cinder')
rpc.init(volume.CONF)
from cinder_localclone.core import exceptions
from cinder_localclone.core.rpc import METHODS
from cinder_localclone.service import endpoint
from cinder_localclone.service import rpc as peer
try:
    prepare = METHODS['prepare']
    peer.Client(40).call(sys.argv[2], prepare, prepare.bind(*sys.argv[3:5]))
    print('accepted')
except exceptions.StaleMove as exc:
    print('stale')
'''


def _prepare_again(scenario, record, nonce):
    words = scenario.source.run(
        [scenario.environment.lab.python, '-W', 'ignore', '-c', _PREPARE,
         scenario.source.directory / 'localclone.conf',
         scenario.destination.service_host, record, nonce],
        timeout=120).stdout.split()
    return words[-1:]


@fault('prepare delivered again after the commit')
def prepare_late(scenario):
    scenario.start_slow()
    record, token, _where = scenario.record()
    if _prepare_again(scenario, record, token.split(':')[2]) != ['stale']:
        raise process.LabError('a late request was not refused as stale')
    scenario.go_on()


@fault('prepare delivered again when it has failed')
def prepare_after_failure(scenario):
    scenario.stop_at('destination', 'create_thin volume')
    record, token, _where = scenario.record()
    scenario.destination.service('kill')
    scenario.environment.release()
    scenario.operation.join()
    scenario.destination.service('start')
    scenario.destination.wait_service()
    if _prepare_again(scenario, record, token.split(':')[2]) != ['stale']:
        raise process.LabError('a late request was not refused as stale')


@fault('the attach is asked for twice at once')
def attach_twice(scenario):
    disk, node = scenario.disk, scenario.destination
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
    scenario.operation.start()


# -- time


def _clock(scenario, node, words):
    scenario.start_slow()
    node.run('date -s "%s"' % words)
    time.sleep(15)
    scenario.go_on()
    scenario.disk.check_running()
    node.run('date -s @%d' % time.time())


@fault('clock of the destination an hour ahead')
def clock_ahead(scenario):
    _clock(scenario, scenario.destination, '1 hour')


@fault('clock of the source an hour behind')
def clock_behind(scenario):
    _clock(scenario, scenario.source, '1 hour ago')
