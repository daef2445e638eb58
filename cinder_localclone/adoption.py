# SPDX-License-Identifier: Apache-2.0
"""Making an LV that somebody has created the driver's own, and back.

Its tags say whose it is to be, and what it was called. They come first and go
last, so whatever is stopped on the way can be taken back.
"""

from collections.abc import Mapping
import math

from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import node as nodes


def adopted(lvs: Mapping[str, reports.LogicalVolume], kind: str
            ) -> dict[str, reports.LogicalVolume]:
    """The LVs that were adopted for volumes, or snapshots, by their ids.

    :param kind: 'volume' or 'snapshot'
    """
    facts = ((names.facts(lv.tags), lv) for lv in lvs.values())
    return {each[kind]: lv for each, lv in facts
            if kind in each and names.WAS in each}


def adopt(node: nodes.Node, lv: reports.LogicalVolume, own_name: str,
          size_bytes: int, **facts: str) -> None:
    """Make an LV one of the driver's, with so many bytes at least.

    One that was not adopted to the end is, then. For a caller that holds the
    lock of free space. The LV is not zeroed yet where it was extended: see
    :func:`show`.

    :param facts: whose it is; see :func:`.names.tags`
    """
    was = names.facts(lv.tags).get(names.WAS, lv.name)
    node.stack.adopt(lv.name, own_name, names.tags(**facts, was=was))
    node.stack.extend_lv(own_name, size_bytes)


def show(node: nodes.Node, name: str, size_bytes: int) -> None:
    """Zero what an adopted LV was extended by, less than a GiB, and show it.

    :param size_bytes: of the volume
    """
    node.stack.zero_part(name, seconds=math.inf)
    node.stack.show_lv(name, size_bytes)


def give_back(node: nodes.Node, kind: str, owner: str) -> bool:
    """Leave what was adopted under the name that it had, with its data.

    For a caller that holds the lock of the volume, or snapshot.

    :returns: False if there is none
    :raises CommandFailed: if what it was extended by can't be zeroed: it
        stays adopted
    """
    lv = adopted(node.stack.lvs(), kind).get(owner)
    if lv is None:
        return False
    node.stack.remove_handle(owner)
    if lv.zeroed < lv.size:
        # Managed again, it would be zeroed from where it had ended before,
        # its owner's data included.
        node.stack.zero_part(lv.name, seconds=math.inf)
    return node.stack.disown(lv.name, names.facts(lv.tags)[names.WAS])
