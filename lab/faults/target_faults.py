# SPDX-License-Identifier: Apache-2.0
"""The kernel's iSCSI target hangs in a change, or refuses who logs in.

A target that is disabled waits for the commands that its initiators have sent.
Only what is exported may notice.
"""

import contextlib
import time

from lab.core import observe
from lab.core import process
from lab.faults import injectors
from lab.faults.scenario import fault
from lab.scenarios import requests
from lab.scenarios.requests import must

#: Seconds that a target hangs: longer than the driver waits for a change.
HANGING = 30


def _hanging(scenario, reader):
    """The source's target hangs in here; everything else there works.

    :param reader: the node that is served
    """
    iqn = _export(scenario.source)
    return injectors.hung_target(
        scenario.source, iqn, 'volume-' + scenario.disk.volume, reader)


def _unharmed(scenario):
    """What is local to the source is made, used and deleted as ever; and the
    operator is told what hangs.
    """
    node = scenario.source
    _works(scenario.fresh(node), node)
    told = node.operator('doctor', '--json').stdout
    must('hangs' in told, 'doctor does not say that a target hangs: ' + told)


def _works(disk, node):
    disk.attach(node)
    disk.start(node)
    disk.check_running()
    disk.stop()
    disk.detach(node)
    disk.remove(60)


def _export(node):
    """The name of the only target of a node."""
    iqn, = injectors.targets(node)
    return iqn


@fault("the source's target hangs during a move")
def during_move(scenario):
    scenario.start_slow()
    with _hanging(scenario, scenario.destination):
        _unharmed(scenario)
    scenario.go_on()
    scenario.disk.check_running(90)


@fault("the source's target hangs when its service starts")
def at_service_start(scenario):
    scenario.start_slow()
    with _hanging(scenario, scenario.destination):
        scenario.source.service('kill')
        scenario.source.service('start')
        scenario.source.wait_service()
        _unharmed(scenario)
    scenario.go_on()
    scenario.disk.check_running(90)


@fault("the source's target hangs at the end of a move")
def at_end(scenario):
    """The source is to be withdrawn while its target hangs."""
    scenario.stop_at('destination', 'advance: all regions local and flushed')
    with _hanging(scenario, scenario.destination):
        scenario.environment.release()
        time.sleep(HANGING)
        _unharmed(scenario)
    scenario.disk.check_running()


@fault("a home's target hangs at a detach")
def at_detach(scenario):
    """Of a host without the backend, which is served by the home."""
    disk, host = scenario.disk, scenario.destination
    connector = dict(disk.instance.connector(host), host='elsewhere',
                     ip='192.0.2.99')
    remote = disk.instance.attach(disk.volume, host, connector)
    disk.attached[host.name] = remote
    with _hanging(scenario, host):
        with contextlib.suppress(process.LabError):
            disk.forget(remote.id)
        time.sleep(HANGING)
        _unharmed(scenario)
    disk.attached.clear()
    requests.until('the detach', disk.forget_failed)
    disk.instance._brick(host, 'disconnect', remote.data)
    process.wait_for('the export to go', lambda: not injectors.targets(
        scenario.source), 60, every=1)


@fault('the service of the source starts without the target')
def without_target(scenario):
    """What needs an export is refused; the rest works."""
    node = scenario.source
    injectors.hide_target(node)
    scenario.restart(node)
    _works(scenario.fresh(node), node)
    scenario.start()
    scenario.refused()
    scenario.disk.forget_failed()
    injectors.show_target(node)
    process.wait_for('the move to go', lambda: not observe.move_records(
        scenario.environment.lab), 60, every=1)


# -- refusals


@fault('the target refuses the login')
def login_refused(scenario):
    """Refused and rolled back; nothing is left; asked again, it works."""
    scenario.stop_at('source', 'export export')
    injectors.forbid_login(scenario.source, _export(scenario.source))
    scenario.environment.release()
    scenario.refused()
    scenario.disk.forget_failed()
    process.wait_for('the move to go', lambda: not observe.move_records(
        scenario.environment.lab), 60, every=1)
    must(scenario.disk.home() == scenario.source.name, 'home has changed')


@fault('the target refuses to take the session up again')
@fault('the target refuses to take the session up again', 'live-move')
def relogin_refused(scenario):
    """Until the source's service has looked at its exports."""
    if scenario.operation.name == 'move':
        scenario.start_slow()
    else:
        scenario.start_live()
    scenario.source.service('stop')
    injectors.forbid_login(scenario.source, _export(scenario.source))
    scenario.environment.reset_sessions(scenario.source)
    time.sleep(15)
    scenario.source.service('start')
    scenario.source.wait_service()
    scenario.go_on()
    scenario.disk.check_running(90)
