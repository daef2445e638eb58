# SPDX-License-Identifier: Apache-2.0
"""The thin pool that a volume is copied to is full, or fails."""

import time

from lab.core import process
from lab.faults import disk_faults
from lab.faults import injectors
from lab.faults.scenario import fault


def _pool_is(node, *modes):
    process.wait_for(
        'the pool to be ' + ' or '.join(modes), lambda: set(modes) & set(
            node.run('dmsetup status --noflush ' + injectors.POOL
                     ).stdout.split()), 30)


@fault('thin pool full: data')
def pool_full(scenario):
    """Another's writes fill the pool while the copy is under way."""
    scenario.start_slow()
    scenario.disk.stop()
    node = scenario.destination
    injectors.fill_pool(node)
    _pool_is(node, 'out_of_data_space')
    scenario.keeps_source()
    scenario.environment.brake(scenario.source)
    time.sleep(15)
    scenario.keeps_source()
    injectors.unfill(node)
    scenario.go_on()


@fault('thin pool full: metadata')
def pool_metadata_fails(scenario):
    """The pool can't note what it hands out: the kernel makes it read-only,
    just as when its metadata is full. A boot checks and repairs it.

    If it was anybody else who found that out, the kernel tells the clone's
    own flush that all is well. So somebody else asks for the pool's map.
    """
    scenario.start_slow()
    scenario.disk.stop()
    node = scenario.destination
    disk_faults.no_writes(node, 'cinder--volumes-cinder--volumes--pool_tmeta')
    node.run('dmsetup message %s 0 reserve_metadata_snap' % injectors.POOL,
             check=False)
    scenario.environment.brake(scenario.source)
    time.sleep(25)
    scenario.keeps_source()
    _pool_is(node, 'ro', 'Fail')
    scenario.cut(node)
    scenario.boot(node)
    time.sleep(25)  # what was lost is seen by a look of its service
    scenario.go_on()
