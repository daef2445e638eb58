# SPDX-License-Identifier: Apache-2.0
"""Correct a home that Cinder has written too late to a volume's row.

A move changes the home, the service and the name of the LV in a volume's row
in the same transaction. Cinder's retype writes a home, too. When it ends, it
writes the home from its beginning (``retype`` in cinder/volume/manager.py),
without a check, and without a call of the driver if both types have the same
contents. It overwrites the home if a move was committed, or rolled back,
meanwhile: the row then names a node without the volume. No status prevents
this; a detach overwrites "retyping" (``volume_detached`` in cinder/db/api.py).

While the move has a record, a row that names its source after the commit is
wrong: see :attr:`.Volume.home`. After the end of the move, ``service_uuid``
tells the home; a retype leaves it alone. A node corrects the rows of volumes
at home there, by the record, or by its service and the LV of the row. After
the copy of a disk, another node may have an LV of the same name. It takes no
home, because no row names its service.

A row with a third host is believed: ``cinder-manage volume update_host`` has
written the new name of a node.
"""

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core.volume import Volume


def correct(node: Node, volume: Volume) -> Volume | None:
    """Let a volume's row name this node, if this node is its home.

    The caller holds the volume's lock. No other node is asked.

    :param volume: its present row, which names another node
    :returns: the row afterwards
    """
    is_here = (volume.home == node.host
               or node.volumes.service_of(volume.id) == node.host
               ) and has_lv(node, volume.id, volume.name)
    return nodes.correct_home(node, volume) if is_here else volume


@rpc.method('has_lv', rpc.ANY, prompt=True)
def has_lv(node: Node, volume_id: str, lv: str) -> bool:
    """Return whether this node has an LV of this name with a volume's data.

    See :func:`.node.has_lv`.
    """
    return nodes.has_lv(node, volume_id, lv)


@rpc.method('is_whole', rpc.ANY, prompt=True)
def is_whole(node: Node, lv: str) -> bool:
    """Return whether this node has an LV that no delete has begun to remove.

    A delete tags the LV before it removes anything.
    """
    found = node.lvm.lvs().get(lv)
    return found is not None and names.DELETING not in found.tags


def why_not_here(node: Node, volume: Volume) -> tuple[str, bool]:
    """Return the reason why a volume can't be given up at its recorded home.

    :returns: the reason, '' if no other node has its data; and whether another
        node is known to have all of it
    :raises LocalCloneError: if this node's own LVs can't be listed
    """
    if nodes.has_committed_lv(node.lvm.lvs().get(volume.name), volume.id,
                              volume.name):
        return '', False
    other = names.other_node(
        node.volumes.service_of(volume.id), node.host)
    if not other:
        return '', False
    try:
        if not rpc.call_at(other, has_lv, node, volume.id, volume.name):
            return '', False
        whole = rpc.call_at(other, is_whole, node, volume.name)
    except exceptions.LocalCloneError as exc:
        return 'its data may be on %s: %s' % (other, exc), False
    return ('its data is on %s, which has yet to correct the home recorded by '
            'Cinder' % other), whole
