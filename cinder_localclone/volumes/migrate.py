# SPDX-License-Identifier: Apache-2.0
"""What Cinder's own migration copies to this node.

Cinder has a second row made, here, and copies into it; in the end the two
rows swap what they say, and the volume is here. Its handle is here from the
beginning: the one above the second row's LV bears the volume's id, not the
row's (:func:`.rows.handle_id`). So an instance whose volume Nova copies has
the right path already, nothing is left to rename, and what fails leaves one
LV and one handle, which go with the second row.

That needs the handle's name to be free on this node: the volume neither is
here nor moves, and Cinder's migration keeps it so.
"""

import contextlib

from oslo_log import log as logging

from cinder_localclone import decision
from cinder_localclone import encryption
from cinder_localclone import exceptions
from cinder_localclone.moves import remains
from cinder_localclone import names
from cinder_localclone import newborns
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import records
from cinder_localclone import rows
from cinder_localclone import tops

LOG = logging.getLogger(__name__)


def create(node: nodes.Node, copy: ports.Volume) -> None:
    """LV and handle for what Cinder is about to copy.

    What earlier moves of the volume have left here goes first.

    :param copy: the row that is copied into
    :raises NotMovable: if it can't be copied to this node
    :raises FollowsInstance: if an instance has it on another node of this
        backend: Nova would copy all of it, and leave it here
    :raises MoveUnderWay: while the volume moves
    :raises EncryptionChange: if it would be encrypted, or decrypted
    """
    volume_id = rows.handle_id(copy)
    with node.lock(volume_id):
        volume = _migrated(node, volume_id)
        if volume.volume_attachment and names.same_backend(
                names.service_host(volume.host), node.host):
            raise exceptions.FollowsInstance(
                volume=volume_id, host=node.host)
        encryption.check_copy(node, volume, copy)
        for left in remains.here(node, volume_id):
            remains.take_down(node, left)
        _check_handle(node, volume_id, copy)
        if copy.provider_id is not None:
            # Cinder has it from the volume's row, and what it copies is
            # not encrypted.
            copy = node.snapshots.set_encryption(copy, None)
        body = rows.body_bytes(copy)
        # Cinder writes all of it: of a thick one also what is zeros. If this
        # fails it forgets the row, and the LV would claim to be the volume.
        created = True
        try:
            created = node.stack.create_lv(copy.name, body, volume_id,
                                           covered=True, newborn=True)
            node.stack.ensure_handle_on_lv(volume_id, copy.name, body)
            node.stack.accept(copy.name)
        except Exception:
            if created:
                _remove(node, volume_id, copy.name)
            raise


def _remove(node: nodes.Node, volume_id: str, lv: str) -> None:
    try:
        with contextlib.suppress(exceptions.LocalCloneError):
            node.stack.mark_newborn(lv)  # LVM may have accepted it
        newborns.remove(node, volume_id, lv)
    except Exception as exc:  # must not hide why there is no copy
        LOG.error('LV %(lv)s, which was created for a copy of volume '
                  '%(volume)s, could not be removed: %(error)s',
                  {'lv': lv, 'volume': volume_id, 'error': exc})


def converge(node: nodes.Node, copy: ports.Volume) -> None:
    """The handle is there as long as Cinder copies, and no longer.

    A copy that was given up waits for somebody to delete its row, and must
    not keep the handle's name from anything else.

    :raises NotMovable: if something else has the handle's name
    """
    volume_id = rows.handle_id(copy)
    with node.lock(volume_id):
        volume = node.records.volume(volume_id)
        if volume is not None and records.is_migrated_by_cinder(volume):
            _migrated(node, volume_id)
            _check_handle(node, volume_id, copy)
            node.stack.ensure_handle_on_lv(
                volume_id, copy.name, rows.body_bytes(copy))
            tops.converge(node, copy, copy.name)
            return
        if volume is not None and volume.name == copy.name:
            return  # it is the volume's own by now
        present = node.stack.survey()
        if (present.handle(volume_id) and not present.users(volume_id)
                and has_handle(node, copy)):
            node.stack.remove_handle(volume_id)


def has_handle(node: nodes.Node, copy: ports.Volume) -> bool:
    """Whether the handle that bears the volume's id is that of the copy.

    Once the copy is given up, it may be the volume's own.
    """
    return rows.handle_id(copy) in node.stack.survey().volumes_above(
        node.stack.group, copy.name)


def check_migrated(node: nodes.Node, copy: ports.Volume) -> None:
    """The handle that bears the volume's id is that of the copy.

    :raises NotMovable: if the copy was given up: it may be the volume's own
    :raises MoveUnderWay: while the volume moves
    """
    _migrated(node, rows.handle_id(copy))


def _migrated(node: nodes.Node, volume_id: str) -> ports.Volume:
    """A volume that neither is here nor can be brought here by a move."""
    volume = node.records.volume(volume_id)
    reason = ''
    if volume is None or not records.is_migrated_by_cinder(volume):
        reason = 'Cinder is not migrating it any more.'
    elif rows.is_home(volume, node.host):
        reason = 'that node is its home already.'
    if reason:
        raise exceptions.NotMovable(
            volume=volume_id, host=node.host, reason=reason)
    move = node.records.move_of(volume_id)
    if move:
        raise exceptions.MoveUnderWay(
            volume=volume_id, host=node.host,
            reason=decision.under_way(move))
    return volume


def _check_handle(node: nodes.Node, volume_id: str, copy: ports.Volume
                  ) -> None:
    """Nobody else's table is ever replaced."""
    if node.stack.survey().handle(volume_id) and not has_handle(node, copy):
        raise exceptions.NotMovable(
            volume=volume_id, host=node.host, reason='another backend of this '
            'driver on that node has a volume under the same path. Choose '
            'another node.')
