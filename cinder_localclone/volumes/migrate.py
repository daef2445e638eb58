# SPDX-License-Identifier: Apache-2.0
"""Moves without an attachment, and Cinder's migration.

A volume moves to a node of this backend for Cinder's migration or retype, and
for an operator who drains a node. Cinder itself copies to and from any other
backend.

For a copy to this node Cinder creates a second row here and copies into its
volume. At the end the two rows swap their contents, and the volume is here.
The handle is here from the beginning: it is above the second row's LV and has
the volume's id, not the row's (:attr:`.Row.handle_id`). So an instance has
the right path while Nova copies its volume, and nothing must be renamed. A
failed copy leaves an LV and a handle, which are removed with the second row.
The handle's name must be free on this node: the volume must neither be here
nor move here.
"""

import contextlib
import typing

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.state import Asked
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import policy
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import source
from cinder_localclone.volumes import decision
from cinder_localclone.volumes import uncommitted

#: Prefix of ``location_info``, which Cinder knows of each node.
DRIVER = 'LocalCloneDriver:'

#: The result of a driver's migrate_volume.
Migrated: typing.TypeAlias = tuple[bool, dict[str, typing.Any] | None]

LOG = logging.getLogger(__name__)


def migrate(node: Node, volume_id: str, host: dict[str, typing.Any]
            ) -> Migrated:
    """Migrate a volume without attachments, for Cinder.

    :param host: the destination, as Cinder's scheduler knows it
    :returns: (True, updates of the volume's row); or (False, None) for another
        backend: Cinder copies
    :raises MoveUnderWay: while it is moving: Cinder would give its rows
        another home meanwhile
    :raises StaleMove: if this is not its home: Cinder's knowledge is older
        than its last move, and Cinder would delete the wrong LV
    :raises LocalCloneError: if it could not be moved; it stays at its home.
        Never (False, None) in this case, because Cinder would copy it
    :raises EncryptionChange: if the copy would not be encrypted
    """
    if _is_node(node, host):
        move_away(node, volume_id, names.service_host(host['host']),
                  Asked.MIGRATION)
        moved = node.volumes.volume(volume_id)
        return True, {'host': moved.host if moved else host['host']}
    policy.check_copied_away(nodes.volume_at_home(node, volume_id))
    move = node.moves.move_of(volume_id)
    if move and move.phase in state.READS_SOURCE:
        raise exceptions.MoveUnderWay(
            volume=volume_id, host=host['host'],
            reason=decision.under_way(move))
    with node.lock(volume_id):
        nodes.check_length(node, nodes.volume_at_home(node, volume_id))
    return False, None


def _is_node(node: Node, host: dict[str, typing.Any]) -> bool:
    """Return whether a host is a node of this backend, this node included."""
    info = str(host['capabilities'].get('location_info'))
    return info.startswith(DRIVER) and names.same_backend(
        names.service_host(host['host']), node.host)


# Twice the time: the home waits for the destination.
@rpc.method('move_away', rpc.HOME, times=2, on_peer={'asked_by': Asked.DRAIN},
            expected=(exceptions.Busy, exceptions.NotMovable,
                      exceptions.StaleMove))
def move_away(node: Node, volume_id: str, peer: str, asked_by: Asked) -> None:
    """Move a volume to a peer without an attachment; call this at its home.

    The peer becomes its home, and copies the volume.

    :param peer: service host of the destination
    :raises Busy: if other work holds its lock for too long
    :raises StaleMove: if this is not its home, or another request was first
    :raises NotMovable: if it must stay
    :raises MoveUnderWay: if it is being moved
    :raises LocalCloneError: if a step failed; it stays at its home
    """
    with node.lock(volume_id):
        source.abandon_interrupted(node, volume_id)
        volume = nodes.volume_at_home(node, volume_id)
        _check(node, volume, peer, asked_by)
        source.move_volume(
            node, volume, peer, asked_by=asked_by)


def _check(node: Node, volume: Volume, peer: str, asked_by: Asked) -> None:
    move = node.moves.move_of(volume.id)
    if move:
        raise exceptions.MoveUnderWay(
            volume=volume.id, host=peer, reason=decision.under_way(move))
    if volume.volume_attachment:
        raise exceptions.IsDeferred(volume=volume.id, host=peer)
    reason = volume.why_it_stays(asked_by)
    if peer == node.host:
        reason = 'the node is its home already.'
    if reason:
        raise exceptions.NotMovable(
            volume=volume.id, host=peer, reason=reason)


def retype(node: Node, volume_id: str, extra_specs: dict[str, str]
           ) -> tuple[bool, dict[str, typing.Any]]:
    """Change the type of a volume at its home; its disk stays the same.

    Thin or thick is a property of the node, which the scheduler compares with
    the type. Nova applies QoS. This driver has no other extra specs except for
    its own encryption, which can't be changed. A change of Cinder's encryption
    does not get here, because Cinder copies the volume.

    :param extra_specs: of the new type
    :returns: (True, the home for its row): otherwise Cinder would write the
        home that its scheduler knew
    :raises StaleMove: if this is not the volume's home any more
    :raises EncryptionChange: if the change would encrypt or decrypt it
    """
    # An earlier live move comes first. If Cinder overwrites a later move,
    # :mod:`.homes` corrects the row.
    with node.lock(volume_id):
        volume = nodes.volume_at_home(node, volume_id)
        policy.check_retype(node, volume, extra_specs)
        return True, {'host': volume.host}


def create_copy(node: Node, copy: Volume) -> None:
    """Create the LV and the handle for a copy made by Cinder.

    First removes everything that earlier moves of the volume have left here.

    :param copy: the row of the copy
    :raises NotMovable: if it can't be copied to this node
    :raises IsDeferred: if an instance uses it on another node of this backend:
        Nova would copy all of it, and leave it here
    :raises MoveUnderWay: while the volume moves
    :raises EncryptionChange: if the copy would encrypt or decrypt it
    """
    volume_id = copy.handle_id
    with node.lock(volume_id):
        volume = _migrated(node, volume_id)
        if volume.volume_attachment and names.same_backend(
                volume.home, node.host):
            raise exceptions.IsDeferred(
                volume=volume_id, host=node.host)
        policy.check_copy(node, volume, copy)
        for left in cleanup.pending_here(node, volume_id):
            cleanup.take_down(node, left)
        _check_handle(node, volume_id, copy)
        if copy.provider_id is not None:
            # Cinder has taken it from the volume's row, but copies decrypted
            # data.
            copy = node.volumes.set_encryption(copy, None)
        backing = copy.backing_bytes()
        # Cinder writes the whole volume; for a thick volume also its zeros. If
        # this fails Cinder forgets the row, and the LV must not be left: its
        # tags name the volume.
        created = True
        try:
            created = node.lvm.create_lv(copy.name, backing, volume_id,
                                         covered=True, uncommitted=True)
            node.handles.ensure_handle_on_lv(volume_id, copy.name, backing)
            node.lvm.accept(copy.name)
        except Exception:
            if created:
                _remove(node, volume_id, copy.name)
            raise


def _remove(node: Node, volume_id: str, lv: str) -> None:
    try:
        with contextlib.suppress(exceptions.LocalCloneError):
            node.lvm.mark_uncommitted(lv)  # LVM may have accepted it
        uncommitted.remove(node, volume_id, lv)
    except Exception as exc:  # a failure here must not hide the first error
        LOG.error('The copy of volume %(volume)s has failed, and its LV '
                  '%(lv)s could not be removed: %(error)s',
                  {'lv': lv, 'volume': volume_id, 'error': exc})


def reconcile_copy(node: Node, copy: Volume) -> None:
    """Ensure the handle of a copy while Cinder copies; else remove it.

    The row of an abandoned copy exists until an administrator deletes it, and
    must not block the handle's name.

    :raises NotMovable: if another volume has the handle's name
    """
    volume_id = copy.handle_id
    with node.lock(volume_id):
        volume = node.volumes.volume(volume_id)
        if volume is not None and volume.is_migrated_by_cinder:
            _migrated(node, volume_id)
            _check_handle(node, volume_id, copy)
            node.handles.ensure_handle_on_lv(
                volume_id, copy.name, copy.backing_bytes())
            devices.reconcile(node, copy, copy.name)
            return
        if volume is not None and volume.name == copy.name:
            return  # the copy has become the volume itself
        present = node.handles.survey()
        if (present.handle(volume_id) and not present.users(volume_id)
                and has_handle(node, copy)):
            node.handles.remove_handle(volume_id)


def has_handle(node: Node, copy: Volume) -> bool:
    """Return whether the handle with the volume's id belongs to the copy.

    After the copy was abandoned, it may belong to the volume itself.
    """
    return copy.handle_id in node.handles.survey().volumes_above(
        node.lvm.group, copy.name)


def check_migrated(node: Node, copy: Volume) -> None:
    """Check that the handle with the volume's id belongs to the copy.

    :raises NotMovable: if the copy was abandoned: the handle may belong to the
        volume itself
    :raises MoveUnderWay: while the volume moves
    """
    _migrated(node, copy.handle_id)


def _migrated(node: Node, volume_id: str) -> Volume:
    """Return a volume in Cinder's migration, neither here nor moving.

    :raises NotMovable: if it is not being migrated, or is at home here
    :raises MoveUnderWay: while it moves
    """
    volume = node.volumes.volume(volume_id)
    reason = ''
    if volume is None or not volume.is_migrated_by_cinder:
        reason = 'Cinder is not migrating it any more.'
    elif volume.home == node.host:
        reason = 'the node is its home already.'
    if volume is None or reason:
        raise exceptions.NotMovable(
            volume=volume_id, host=node.host, reason=reason)
    move = node.moves.move_of(volume_id)
    if move:
        raise exceptions.MoveUnderWay(
            volume=volume_id, host=node.host,
            reason=decision.under_way(move))
    return volume


def _check_handle(node: Node, volume_id: str, copy: Volume) -> None:
    """Check that no other volume has the handle: its table stays untouched.

    :raises NotMovable: if another volume has it
    """
    if node.handles.survey().handle(volume_id) and not has_handle(node, copy):
        raise exceptions.NotMovable(
            volume=volume_id, host=node.host, reason='a volume of another '
            'backend of this driver has the same path on the node. Choose '
            'another node.')
