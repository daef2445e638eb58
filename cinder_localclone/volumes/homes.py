# SPDX-License-Identifier: Apache-2.0
"""Correct the home in a volume's row that Cinder has written too late.

A move changes the home, the service and the name of the LV in a volume's row
in one transaction. Cinder's retype writes a home, too: when it ends, the one
with which it began (``retype`` in cinder/volume/manager.py), without looking,
and without asking the driver if both types have the same contents. A move that
is committed, or rolled back, meanwhile is overwritten: the row names a node
that does not have the volume. No status keeps that from happening; a detach
overwrites "retyping" (``volume_detached`` in cinder/db/api.py).

A retype leaves ``service_uuid`` alone. So a node corrects the rows that name
its service and another host, if it has the LV that the row names. A copy of an
LV on another node, as after the copy of a disk, takes no home: no row names
that node's service.
"""

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rpc


def correct(node: Node, volume: objects.Volume) -> objects.Volume | None:
    """See that a volume's row names this node, if it is the home.

    The caller holds the volume's lock. No other node is asked.

    :param volume: its row, as it is now; it names another node
    :returns: the row afterwards
    """
    if (node.volumes.service_of(volume.id) != node.host
            or not has_lv(node, volume.id, volume.name)):
        return volume
    if node.volumes.correct_home(volume, node.host):
        events.say(events.HOME_CORRECTED, volume=volume.id,
                   host=names.service_host(volume.host))
    return node.volumes.volume(volume.id)


@rpc.method('has_lv', rpc.ANY, prompt=True)
def has_lv(node: Node, volume_id: str, lv: str) -> bool:
    """Return whether an LV of this name is here, and has a volume's data.

    By its tags. One that Cinder has not taken yet does not count.
    """
    found = node.lvm.lvs().get(lv)
    return (found is not None and names.UNCOMMITTED not in found.tags
            and names.facts(found.tags).get('volume') == volume_id)


def _other(node: Node, volume: objects.Volume) -> str:
    """Return which other node may have the data of a volume at home here.

    :returns: '' if no other may, as far as its row tells
    """
    other = node.volumes.service_of(volume.id)
    return other if (other and other != node.host and names.same_backend(
        other, node.host)) else ''


def why_not_here(node: Node, volume: objects.Volume) -> str:
    """Return why a volume can't be given up here, its home by its row.

    :returns: '' if no other node has its data
    :raises LocalCloneError: if this node's own LVs can't be listed
    """
    if has_lv(node, volume.id, volume.name):
        return ''
    other = _other(node, volume)
    if not other:
        return ''
    try:
        found = rpc.at(other, has_lv, node, volume.id, volume.name)
    except exceptions.LocalCloneError as exc:
        return ('its LV is not on %s, and it is unknown whether it is on %s: '
                '%s' % (node.host, other, exc))
    return ('its data is on %s, which has yet to correct the home that Cinder '
            'has recorded' % other if found else '')
