# SPDX-License-Identifier: Apache-2.0
"""Correct the home in a volume's row that Cinder has written too late.

A move changes the home and the name of the LV in one transaction. Cinder
writes a home, too: at the end of a retype the one with which it began
(``retype`` in cinder/volume/manager.py), without looking, and without asking
the driver if both types have the same contents. A move that is committed, or
rolled back, meanwhile is overwritten: the row names a node that does not have
the volume. No status keeps that from happening; a detach overwrites
"retyping" (``volume_detached`` in cinder/db/api.py).

The name of the LV tells the home: each move gives it a new one, and only one
node has it. That node corrects the row.
"""

from cinder_localclone.core import events
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses


def correct(node: Node, volume: objects.Volume) -> objects.Volume | None:
    """See that a volume's row names this node, if its LV is here.

    The caller holds the volume's lock.

    :param volume: its row, as it is now
    :returns: the row afterwards
    :raises PeerUnreachable: if the node that the row names does not answer;
        it may have an LV of the same name, as after the copy of a disk
    """
    home = names.service_host(volume.host)
    if (home == node.host or not names.same_backend(home, node.host)
            or volume.status in statuses.WITHOUT_LV
            or rows.is_migrated_by_cinder(volume)
            or not has_lv(node, volume.id, volume.name)
            or rpc.at(home, has_lv, node, volume.id, volume.name)):
        return volume
    if node.snapshots.correct_home(volume, node.host):
        events.say(events.HOME_CORRECTED, volume=volume.id, host=home)
    return node.records.volume(volume.id)


@rpc.method('has_lv', rpc.ANY, prompt=True)
def has_lv(node: Node, volume_id: str, lv: str) -> bool:
    """Return whether an LV of this name is here, and has a volume's data.

    By its tags. One that Cinder has not taken yet does not count.
    """
    found = node.stack.lvs().get(lv)
    return (found is not None and names.NEWBORN not in found.tags
            and names.facts(found.tags).get('volume') == volume_id)


def find(node: Node, volume: objects.Volume) -> str | None:
    """Return which other node has the LV that the row of a volume names.

    :raises PeerUnreachable: if a node that is up does not answer
    """
    return next((host for host, is_up in sorted(node.other_nodes().items())
                 if is_up and rpc.at(host, has_lv, node, volume.id,
                                     volume.name)), None)
