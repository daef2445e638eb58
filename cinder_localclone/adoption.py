# SPDX-License-Identifier: Apache-2.0
"""Making an LV that somebody has created the driver's own, and back.

Its tags say whose it is to be, and what it was called. They come first and go
last, so whatever is stopped on the way can be taken back.
"""

from collections.abc import Mapping

from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import node as nodes


def adopted(lvs: Mapping[str, reports.LogicalVolume], kind: str, owner: str
            ) -> reports.LogicalVolume | None:
    """The LV that was adopted for a volume, or snapshot, if one was.

    :param kind: 'volume' or 'snapshot'
    :param owner: the id of that
    """
    for lv in lvs.values():
        facts = names.facts(lv.tags)
        if facts.get(kind) == owner and names.WAS in facts:
            return lv
    return None


def adopt(node: nodes.Node, lv: reports.LogicalVolume, own_name: str,
          size_bytes: int, **facts: str) -> None:
    """Make an LV one of the driver's, with so many bytes at least.

    One that was not adopted to the end is, then. For a caller that holds the
    lock of free space.

    :param facts: whose it is; see :func:`.names.tags`
    """
    was = names.facts(lv.tags).get(names.WAS, lv.name)
    node.stack.adopt(lv.name, own_name, names.tags(**facts, was=was))
    node.stack.extend_lv(own_name, size_bytes)


def give_back(node: nodes.Node, kind: str, owner: str) -> bool:
    """Leave what was adopted under the name that it had, with its data.

    For a caller that holds the lock of the volume, or snapshot.

    :returns: False if there is none
    """
    lv = adopted(node.stack.lvs(), kind, owner)
    if lv is None:
        return False
    node.stack.remove_handle(owner)
    return node.stack.disown(lv.name, names.facts(lv.tags)[names.WAS])
