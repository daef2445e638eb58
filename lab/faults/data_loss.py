# SPDX-License-Identifier: Apache-2.0
"""What nothing can survive: the only copy is lost.

It must be said plainly, nothing may be made anew in its place, what is not
lost can be read, and the volume can be deleted. See "Losing a disk" in the
documentation.
"""

import json

from lab.faults.scenario import fault
from lab.scenarios.requests import must

#: The operation that ends with the volume deleted, as its owner must end it.
DELETED = 'delete during hydration'


def _lose(scenario, node, lv):
    """A node boots and has an LV no more; the volume service says so."""
    scenario.cut(node)
    node.power_on()
    node.run('vgchange -q -ay cinder-volumes && '
             'lvremove -q -f cinder-volumes/' + lv)
    mark = scenario.environment.log_marks()
    node.service('start')
    node.wait_service()
    scenario.logged(node, 'is missing', mark)


def _shown(scenario):
    """What the operator is shown of the volume, from the other node."""
    done = scenario.destination.operator(
        'volume', 'show', scenario.disk.volume, '-f', 'value')
    must(' is missing' in done.stdout, 'the operator is not shown what is '
         'missing: ' + done.stdout[-500:] + done.stderr[-300:])


@fault('the LV of a volume at rest is lost', DELETED)
def at_rest(scenario):
    disk, node = scenario.disk, scenario.source
    _lose(scenario, node, 'volume-' + disk.volume)
    for each in (node, scenario.destination):
        attachment = disk.instance.reserve(disk.volume)
        answer = disk.instance.connect(
            attachment, disk.instance.connector(each))
        disk.forget(attachment)
        must(answer.status_code >= 400, 'it was given out on ' + each.name)
    told = disk.cinder.get('/messages').text
    must('was not found on its host' in told,
         'the owner was not told')
    _shown(scenario)
    scenario.no_handle(node, 5)


@fault('the LV of the old home is lost during a copy', DELETED)
def of_source(scenario):
    """What is local is right; it is known before, by writing it anew."""
    scenario.operation.prepare()
    disk, node = scenario.disk, scenario.destination
    disk.attach(node)
    disk.fill(node, count=1)
    _lose(scenario, scenario.source, 'volume-' + disk.volume)
    guest = disk.watch(node, 5)
    guest.wait(60)
    counts = json.loads(guest.stdout)
    must(not (counts['wrong'] or counts['failed']),
         'what is local cannot be read: %s' % counts)
    _shown(scenario)
    must(scenario.record(), 'the move has ended')
    disk.detach(node)


@fault('the LV of the new home is lost during a copy', DELETED)
def of_destination(scenario):
    scenario.operation.prepare()
    _lose(scenario, scenario.destination, 'volume-' + scenario.record()[0])
    scenario.no_handle(scenario.destination)
    scenario.keeps_source()
    _shown(scenario)


@fault('what remembers the copy is lost', DELETED)
def of_metadata(scenario):
    scenario.operation.prepare()
    _lose(scenario, scenario.destination,
          'localclone-meta-' + scenario.record()[0])
    scenario.no_handle(scenario.destination)
    scenario.keeps_source()
    _shown(scenario)
