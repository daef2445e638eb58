# SPDX-License-Identifier: Apache-2.0
"""Headers that are damaged, or can't be read: nothing is ever formatted."""

import contextlib

from lab.core import process
from lab.faults import injectors
from lab.faults import key_faults
from lab.faults.scenario import fault
from lab.keys import volumes
from lab.scenarios.requests import must

OPERATION = key_faults.OPERATION
REENCRYPTION = 're-encrypt'
#: Where the copies of what a header says begin, and how long each is, in
#: bytes.
_COPIES = (0, 16384)
_COPY = 16384
#: What a copy begins with.
_MAGIC = '^\\(LUKS\\|SKUL\\)'
_SAVED = '/run/saved-header'


def _damage(scenario, copies):
    for place in copies:
        scenario.source.run(
            'dd if=/dev/zero of=%s bs=4096 count=1 seek=%d oflag=direct '
            'conv=notrunc,fsync status=none' % (
                scenario.disk.lv_path(), place // 4096))


def _whole(scenario, place):
    """Whether a copy can be read."""
    return not scenario.source.run(
        'set -o pipefail; dd if=%s bs=4096 count=1 skip=%d iflag=direct '
        'status=none | grep -aq "%s"' % (
            scenario.disk.lv_path(), place // 4096, _MAGIC),
        check=False).returncode


@fault('the first copy of the header is damaged', OPERATION)
def first_copy(scenario):
    """The other mends it, before two nodes have the volume open."""
    must(all(_whole(scenario, place) for place in _COPIES),
         'control: not both copies are found')
    _damage(scenario, _COPIES[:1])
    must(not _whole(scenario, _COPIES[0]), 'it is not damaged')
    disk, node = scenario.disk, scenario.source
    disk.attach(node)
    must(all(_whole(scenario, place) for place in _COPIES),
         'it was not mended')
    disk.verify(node)
    disk.detach(node)
    scenario.start()


@fault('the first copy of the header is damaged in use', OPERATION)
def first_copy_in_use(scenario):
    """Whoever takes the volume then finds it whole."""
    disk, node = scenario.disk, scenario.source
    disk.attach(node)
    _damage(scenario, _COPIES[:1])
    disk.start(node)
    disk.check_running()
    disk.stop()
    disk.detach(node)
    scenario.start()


@fault('both copies of the header are damaged', OPERATION)
def both_copies(scenario):
    """Nobody gets it; what was saved of it makes it whole again."""
    node, path = scenario.source, scenario.disk.lv_path()
    mib = scenario.disk.way.header_bytes // volumes.MIB
    node.run('dd if=%s of=%s bs=1M count=%d iflag=direct status=none' % (
        path, _SAVED, mib))
    before = scenario.disk.header(node)
    _damage(scenario, _COPIES)
    key_faults.refused(scenario, scenario.destination, node)
    must(not any(_whole(scenario, place) for place in _COPIES),
         'there is a header that nobody has restored')
    node.run('dd if=%s of=%s bs=1M count=%d oflag=direct conv=notrunc,fsync '
             'status=none; rm %s' % (_SAVED, path, mib, _SAVED))
    must(scenario.disk.header(node) == before, 'it was not restored')
    scenario.start()


@contextlib.contextmanager
def _unreadable(scenario):
    """Reads of both copies fail, until something is written there."""
    lv = volumes.backing(scenario.environment.lab, scenario.disk.volume)
    below = injectors.DeviceBelow(scenario.source, lv)
    blocks = [place // injectors.BLOCK + block for place in _COPIES
              for block in range(_COPY // injectors.BLOCK)]
    below.fail_blocks(blocks)
    try:
        yield below, blocks
    finally:
        below.repair()


@fault('the header cannot be read', OPERATION)
def unreadable(scenario):
    """What can't be read may be there all the same."""
    disk, node = scenario.disk, scenario.source
    before = disk.header(node)
    with _unreadable(scenario) as (below, blocks):
        key_faults.not_attached(scenario, scenario.destination, node)
        must(all(map(below.reads_fail, blocks)),
             'something was written to the header')
    must(disk.header(node) == before, 'the header is another one')
    scenario.start()


@fault('the power fails while a part is encrypted anew', REENCRYPTION)
def power_cut_in_part(scenario):
    """Its guest gets it again with two ciphers, and all it has written."""
    disk, node = scenario.disk, scenario.source
    scenario.start()
    process.wait_for('a part of it to be encrypted anew', lambda: len(
        disk.ciphers(node)) > 1, 120, every=0.1)
    scenario.cut(node)
    scenario.boot(node)
