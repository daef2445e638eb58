# SPDX-License-Identifier: Apache-2.0
"""What nothing can survive: the only copy is lost.

It must be said plainly, nothing may be made anew in its place, what is not
lost can be read, and the volume can be deleted. See "Losing a disk" in the
administrator guide.
"""

import json

from lab.faults.scenario import fault
from lab.faults.scenario import must

#: The operation that ends with the volume deleted, as its owner must end it.
DELETED = 'delete during hydration'


def _lose(course, node, lv):
    """A node boots and has an LV no more; the volume service says so."""
    course.cut(node)
    node.power_on()
    node.run('vgchange -q -ay cinder-volumes && '
             'lvremove -q -f cinder-volumes/' + lv)
    mark = course.ground.log_marks()
    node.service('start')
    node.wait_service()
    course.logged(node, 'is missing', mark)


def _shown(course):
    """What the operator is shown of the volume, from the other node."""
    done = course.destination.operator(
        'show', course.disk.volume, '-f', 'value')
    must(' is missing' in done.stdout, 'the operator is not shown what is '
         'missing: ' + done.stdout[-500:] + done.stderr[-300:])


@fault('the LV of a volume at rest is lost', DELETED)
def at_rest(course):
    disk, node = course.disk, course.source
    _lose(course, node, 'volume-' + disk.volume)
    for each in (node, course.destination):
        attachment = disk.instance.reserve(disk.volume)
        answer = disk.instance.connect(
            attachment, disk.instance.connector(each))
        disk.forget(attachment)
        must(answer.status_code >= 400, 'it was given out on ' + each.name)
    told = disk.cinder.get('/messages').text
    must('data of the volume was not found' in told,
         'the owner was not told')
    _shown(course)
    course.no_handle(node, 5)


@fault('the LV of the old home is lost during a copy', DELETED)
def of_source(course):
    """What is local is right; it is known before, by writing it anew."""
    course.operation.prepare()
    disk, node = course.disk, course.destination
    disk.attach(node)
    disk.fill(node, count=1)
    _lose(course, course.source, 'volume-' + disk.volume)
    guest = disk.watch(node, 5)
    guest.wait(60)
    found = json.loads(guest.stdout)
    must(not (found['wrong'] or found['failed']),
         'what is local cannot be read: %s' % found)
    _shown(course)
    must(course.shadow(), 'the move has ended')
    disk.detach(node)


@fault('the LV of the new home is lost during a copy', DELETED)
def of_destination(course):
    course.operation.prepare()
    _lose(course, course.destination, 'volume-' + course.shadow()[0])
    course.no_handle(course.destination)
    course.keeps_source()
    _shown(course)


@fault('what remembers the copy is lost', DELETED)
def of_metadata(course):
    course.operation.prepare()
    _lose(course, course.destination,
          'localclone-meta-' + course.shadow()[0])
    course.no_handle(course.destination)
    course.keeps_source()
    _shown(course)
