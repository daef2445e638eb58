# SPDX-License-Identifier: Apache-2.0
"""A home that boots while the source of its copy is lost.

Its operator is given what is local; the rest gives errors. When the source is
back, or if all is local, the move ends by itself.
"""

import json

from lab.core import observe
from lab.core import process
from lab.faults import injectors
from lab.faults.scenario import fault
from lab.scenarios.requests import must


def _boots_alone(scenario):
    """Source and destination go; the destination comes back."""
    scenario.cut(scenario.source)
    scenario.cut(scenario.destination)
    scenario.boot(scenario.destination)


def _give_out_what_is_local(scenario):
    disk, node = scenario.disk, scenario.destination
    scenario.no_handle(node, 10)
    done = node.operator('volume', 'repair', '--without-source', disk.volume)
    must(not done.returncode, 'repair --without-source: %s%s' % (
        done.stdout[-600:], done.stderr[-600:]))
    guest = disk.watch(node, 5)
    guest.wait(60)
    counts = json.loads(guest.stdout)
    must(counts['right'] and not (counts['wrong'] or counts['failed']),
         'what is local cannot be read: %s' % counts)
    must(injectors.block_fails(node, disk.path, disk.a_late_block()),
         'what is not local can be read')


@fault('the home boots while the source is lost')
def boots_alone(scenario):
    scenario.start_slow()
    disk, node = scenario.disk, scenario.destination
    disk.check_running()
    disk.stop()
    disk.fill(node, count=1)  # written anew, it surely is local
    _boots_alone(scenario)
    _give_out_what_is_local(scenario)
    scenario.boot(scenario.source)
    scenario.readable_again()
    scenario.go_on()


@fault('the home boots while the source is lost, all of it local')
def boots_whole(scenario):
    """It needs nobody, neither the source nor an operator."""
    scenario.stop_at('destination',
                     'before advance: all regions local and flushed')
    disk, node = scenario.disk, scenario.destination
    disk.check_running()
    _boots_alone(scenario)
    scenario.environment.release()
    process.wait_for('the handle', lambda: disk.has_path(node), 90, every=1)
    disk.verify(node)
    process.wait_for('the clone to go', lambda: not observe.clones(node), 60)


@fault('the source is forgotten during a copy', 'delete during hydration')
def forgotten(scenario):
    """What is local is saved, the volume deleted, the rest forgotten."""
    scenario.operation.prepare()
    disk, node = scenario.disk, scenario.destination
    disk.attach(node)
    disk.fill(node, count=1)
    _boots_alone(scenario)
    scenario.environment.expire(scenario.source)
    _give_out_what_is_local(scenario)
    scenario.environment.forget(scenario.source, node)
    disk.detach(node)
    disk.remove()
    scenario.environment.forget(scenario.source, node)
    must(not observe.move_records(scenario.environment.lab),
         'the move is left')
    done = node.operator('doctor')
    must(not done.returncode and scenario.source.name not in done.stdout,
         'doctor: ' + done.stdout[-600:])
    scenario.environment.replace(scenario.source)
