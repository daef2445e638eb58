# SPDX-License-Identifier: Apache-2.0
"""Correct a home that Cinder has written too late to a volume's row.

A move changes the home, the service and the name of the LV in a volume's row
in the same transaction. Cinder's retype writes a home, too. When it ends, it
writes the home from its beginning (``retype`` in cinder/volume/manager.py),
without a check, and without a call of the driver if both types have the same
contents. It overwrites the home if a move was committed, or rolled back,
meanwhile: the row then names a node without the volume. No status prevents
this; a detach overwrites "retyping" (``volume_detached`` in cinder/db/api.py).

The record of a committed move tells where the LV is that the row names: see
:attr:`.Volume.home`. Any node that finds another host in the row corrects it.

After the end of the move there is no record, and ``service_uuid`` tells the
home; a retype leaves it alone. So a node corrects the rows that name its
service and another host, if it has the LV of the row. After the copy of a
disk, another node may have an LV of the same name. It takes no home, because
no row names its service.
"""

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core.volume import Volume


def correct(node: Node, volume: Volume) -> Volume | None:
    """Let a volume's row name its home, if this node knows that.

    The caller holds the volume's lock. No other node is asked.

    :param volume: its present row, which names another node, or not the home
        of its move
    :returns: the row afterwards
    """
    if not volume.is_misplaced and (
            node.volumes.service_of(volume.id) != node.host
            or not has_lv(node, volume.id, volume.name)):
        return volume
    home = volume.home if volume.is_misplaced else node.host
    if node.volumes.correct_home(volume, home):
        events.say(events.HOME_CORRECTED, volume=volume.id,
                   host=names.service_host(volume.host))
    return node.volumes.volume(volume.id)


@rpc.method('has_lv', rpc.ANY, prompt=True)
def has_lv(node: Node, volume_id: str, lv: str) -> bool:
    """Return whether this node has an LV of this name with a volume's data.

    The LV's tags decide. An uncommitted LV does not count.
    """
    found = node.lvm.lvs().get(lv)
    return (found is not None and names.UNCOMMITTED not in found.tags
            and names.facts(found.tags).get('volume') == volume_id)


def why_not_here(node: Node, volume: Volume) -> str:
    """Return the reason why a volume can't be given up at its recorded home.

    :returns: '' if no other node has its data
    :raises LocalCloneError: if this node's own LVs can't be listed
    """
    if has_lv(node, volume.id, volume.name):
        return ''
    other = names.other_node(
        node.volumes.service_of(volume.id), node.host)
    if not other:
        return ''
    try:
        found = rpc.call_at(other, has_lv, node, volume.id, volume.name)
    except exceptions.LocalCloneError as exc:
        return ('its LV is not on %s, and it is unknown whether it is on %s: '
                '%s' % (node.host, other, exc))
    return ('its data is on %s, which has yet to correct the home recorded by '
            'Cinder' % other if found else '')
