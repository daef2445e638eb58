# SPDX-License-Identifier: Apache-2.0
"""What others see of encrypted volumes: on the link, on the disks."""

import contextlib

from lab.core import capture
from lab.core import observe
from lab.keys import volumes
from lab.scenarios.requests import must


@contextlib.contextmanager
def unread(row, *nodes):
    """What goes over the links of these nodes says nothing of the data.

    :param row: a :class:`lab.core.report.Row`; it gets how much was seen
    :raises LabError: if it does, or if nothing was seen
    """
    with contextlib.ExitStack() as stack:
        taps = [stack.enter_context(tap(node)) for node in nodes]
        yield
    seen = sum(each.seen for each in taps)
    found = sum(each.found for each in taps)
    must(not found, 'the mark was seen %d times on the link' % found)
    must(seen > volumes.MIB, 'only %d bytes were seen on the link' % seen)
    row.detail += '%d MiB on the link, the mark in none' % (
        seen // volumes.MIB)


def tap(node):
    """Counts the mark of a guest on the link of a node."""
    return capture.Capture(node, volumes.GUESTS_MARK)


def readable_lvs(lab):
    """The LVs of volumes that have the mark of a guest: (node, LV)."""
    return [(node.name, lv) for node in lab.nodes.values()
            for lv in observe.volume_lvs(node) if volumes.has_mark(
                node, '/dev/cinder-volumes/' + lv, volumes.GUESTS_MARK)]
