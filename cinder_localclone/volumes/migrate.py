# SPDX-License-Identifier: Apache-2.0
"""Moves without an attach, and Cinder's migration.

A volume moves to a node of this backend for Cinder's migration or retype, and
for an operator who drains a node. Cinder copies to and from any other backend.

For a copy to this node Cinder makes a second row here and copies into it. In
the end the two rows swap their contents, and the volume is here. The handle is
here from the beginning: it stands above the second row's LV and has the
volume's id, not the row's (:func:`.rows.handle_id`). So an instance whose
volume Nova copies has the right path, nothing has to be renamed, and a failed
copy leaves one LV and one handle, which go with the second row. The handle's
name must be free on this node: the volume is neither here nor on its way.
"""

import contextlib
import typing

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.state import Asked
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import policy
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import source
from cinder_localclone.volumes import decision
from cinder_localclone.volumes import uncommitted

#: What Cinder is told of each node: ``location_info`` begins with this.
DRIVER = 'LocalCloneDriver:'

#: What a driver's migrate_volume gives back.
Migrated: typing.TypeAlias = tuple[bool, dict[str, typing.Any] | None]

LOG = logging.getLogger(__name__)


def migrate(node: Node, volume_id: str, host: dict[str, typing.Any]
            ) -> Migrated:
    """Cinder's migration of a volume that nobody has attached.

    :param host: where to, as Cinder's scheduler knows it
    :returns: (True, what the volume's row has to say afterwards); or (False,
        None) for another backend: Cinder copies
    :raises MoveUnderWay: while it is moving: Cinder would give its rows
        another home meanwhile
    :raises StaleMove: if this is not its home: what Cinder knows of it is
        older than its last move, and names another LV to be deleted
    :raises LocalCloneError: if it could not be moved; it is where it was.
        Never (False, None) then: Cinder would copy it
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
    """Whether it is another node, or this one, of the same backend."""
    info = str(host['capabilities'].get('location_info'))
    return info.startswith(DRIVER) and names.same_backend(
        names.service_host(host['host']), node.host)


# The home waits for the destination.
@rpc.method('move_away', rpc.HOME, times=2, local={'asked_by': Asked.DRAIN},
            expected=(exceptions.Busy, exceptions.NotMovable,
                      exceptions.StaleMove))
def move_away(node: Node, volume_id: str, peer: str, asked_by: Asked) -> None:
    """At the home: move a volume to a peer, without anybody attaching it.

    It has its new home then, where it is copied to.

    :param peer: service host of the destination
    :raises Busy: if other work on it takes too long
    :raises StaleMove: if this is not its home, or others were first
    :raises NotMovable: if it has to stay
    :raises MoveUnderWay: if it is being moved
    :raises LocalCloneError: if a step failed; it is where it was
    """
    with node.lock(volume_id):
        source.abandon_interrupted(node, volume_id)
        volume = nodes.volume_at_home(node, volume_id)
        _check(node, volume, peer, asked_by)
        source.move_volume(
            node, volume, peer, asked_by=asked_by)


def _check(node: Node, volume: objects.Volume, peer: str,
           asked_by: Asked) -> None:
    move = node.moves.move_of(volume.id)
    if move:
        raise exceptions.MoveUnderWay(
            volume=volume.id, host=peer, reason=decision.under_way(move))
    if volume.volume_attachment:
        raise exceptions.IsDeferred(volume=volume.id, host=peer)
    reason = rows.why_it_stays(
        volume, asked_by, rows.is_migrated_by_cinder(volume))
    if peer == node.host:
        reason = 'that node is its home already.'
    if reason:
        raise exceptions.NotMovable(
            volume=volume.id, host=peer, reason=reason)


def retype(node: Node, volume_id: str, extra_specs: dict[str, str]
           ) -> tuple[bool, dict[str, typing.Any]]:
    """Another type, at the volume's home: nothing on a disk depends on it.

    Whether a volume is thin is the node's choice, which the scheduler
    compares with the type; QoS is Nova's to apply; other extra specs mean
    nothing to this driver, but those of its own encryption, which can't be
    changed. A change of Cinder's encryption does not get here: Cinder copies
    the volume then.

    :param extra_specs: of the new type
    :returns: that it is done, and the home: Cinder would write the one that
        its scheduler knew
    :raises StaleMove: if this is not the volume's home any more
    :raises EncryptionChange: if it would have to be encrypted, or decrypted
    """
    # A live move that had begun before comes first; what comes later, and is
    # overwritten by Cinder, is corrected: see homes.
    with node.lock(volume_id):
        volume = nodes.volume_at_home(node, volume_id)
        policy.check_retype(node, volume, extra_specs)
        return True, {'host': volume.host}


def create_copy(node: Node, copy: objects.Volume) -> None:
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
            raise exceptions.IsDeferred(
                volume=volume_id, host=node.host)
        policy.check_copy(node, volume, copy)
        for left in cleanup.here(node, volume_id):
            cleanup.take_down(node, left)
        _check_handle(node, volume_id, copy)
        if copy.provider_id is not None:
            # Cinder has it from the volume's row, and what it copies is
            # not encrypted.
            copy = node.volumes.set_encryption(copy, None)
        backing = rows.backing_bytes(copy)
        # Cinder writes all of it: of a thick one also what is zeros. If this
        # fails it forgets the row, and the LV would claim to be the volume.
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
    except Exception as exc:  # must not hide why there is no copy
        LOG.error('LV %(lv)s, which was created for a copy of volume '
                  '%(volume)s, could not be removed: %(error)s',
                  {'lv': lv, 'volume': volume_id, 'error': exc})


def reconcile_copy(node: Node, copy: objects.Volume) -> None:
    """The handle is there as long as Cinder copies, and no longer.

    A copy that was given up waits for somebody to delete its row, and must
    not keep the handle's name from anything else.

    :raises NotMovable: if something else has the handle's name
    """
    volume_id = rows.handle_id(copy)
    with node.lock(volume_id):
        volume = node.volumes.volume(volume_id)
        if volume is not None and rows.is_migrated_by_cinder(volume):
            _migrated(node, volume_id)
            _check_handle(node, volume_id, copy)
            node.handles.ensure_handle_on_lv(
                volume_id, copy.name, rows.backing_bytes(copy))
            devices.reconcile(node, copy, copy.name)
            return
        if volume is not None and volume.name == copy.name:
            return  # it is the volume's own by now
        present = node.handles.survey()
        if (present.handle(volume_id) and not present.users(volume_id)
                and has_handle(node, copy)):
            node.handles.remove_handle(volume_id)


def has_handle(node: Node, copy: objects.Volume) -> bool:
    """Whether the handle that bears the volume's id is that of the copy.

    Once the copy is given up, it may be the volume's own.
    """
    return rows.handle_id(copy) in node.handles.survey().volumes_above(
        node.lvm.group, copy.name)


def check_migrated(node: Node, copy: objects.Volume) -> None:
    """The handle that bears the volume's id is that of the copy.

    :raises NotMovable: if the copy was given up: it may be the volume's own
    :raises MoveUnderWay: while the volume moves
    """
    _migrated(node, rows.handle_id(copy))


def _migrated(node: Node, volume_id: str) -> objects.Volume:
    """A volume that neither is here nor can be brought here by a move."""
    volume = node.volumes.volume(volume_id)
    reason = ''
    if volume is None or not rows.is_migrated_by_cinder(volume):
        reason = 'Cinder is not migrating it any more.'
    elif rows.is_home(volume, node.host):
        reason = 'that node is its home already.'
    if reason:
        raise exceptions.NotMovable(
            volume=volume_id, host=node.host, reason=reason)
    move = node.moves.move_of(volume_id)
    if move:
        raise exceptions.MoveUnderWay(
            volume=volume_id, host=node.host,
            reason=decision.under_way(move))
    return volume


def _check_handle(node: Node, volume_id: str, copy: objects.Volume
                  ) -> None:
    """Nobody else's table is ever replaced."""
    if node.handles.survey().handle(volume_id) and not has_handle(node, copy):
        raise exceptions.NotMovable(
            volume=volume_id, host=node.host, reason='another backend of this '
            'driver on that node has a volume under the same path. Choose '
            'another node.')
