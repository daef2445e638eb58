# SPDX-License-Identifier: Apache-2.0
"""Moves that nobody attaches for, and Cinder's migration to and fro.

To a node of this backend a volume moves, whoever asks: Cinder's migration
or retype, or the operator who drains a node. To and from any other backend
Cinder copies; see :mod:`.copies` for what is copied to here.
"""

import typing

from cinder_localclone import decision
from cinder_localclone import encryption
from cinder_localclone import exceptions
from cinder_localclone import iscsi_target
from cinder_localclone.moves import checks
from cinder_localclone.moves import source
from cinder_localclone import names
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import records
from cinder_localclone import rows
from cinder_localclone import state
from cinder_localclone.state import Asked

#: What Cinder is told of each node: ``location_info`` begins with this.
DRIVER = 'LocalCloneDriver:'

#: What a driver's migrate_volume gives back.
Migrated: typing.TypeAlias = tuple[bool, dict[str, typing.Any] | None]


def migrate(node: nodes.Node, context: ports.Context, volume_id: str,
            host: dict[str, typing.Any]) -> Migrated:
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
        volume = depart(node, context, volume_id,
                        names.service_host(host['host']),
                        Asked.MIGRATION)
        return True, {'host': volume.host}
    encryption.check_copied_away(checks.volume_at_home(node, volume_id))
    move = node.records.move_of(volume_id)
    if move and move.phase in state.READS_SOURCE:
        raise exceptions.MoveUnderWay(
            volume=volume_id, host=host['host'],
            reason=decision.under_way(move))
    with node.lock(volume_id):
        checks.check_length(node, checks.volume_at_home(node, volume_id))
    return False, None


def _is_node(node: nodes.Node, host: dict[str, typing.Any]) -> bool:
    """Whether it is another node, or this one, of the same backend."""
    info = str(host['capabilities'].get('location_info'))
    return info.startswith(DRIVER) and names.same_backend(
        names.service_host(host['host']), node.host)


def depart(node: nodes.Node, context: ports.Context, volume_id: str,
           peer: str, asked_by: Asked) -> ports.Volume:
    """At the home: move a volume to a peer, without anybody attaching it.

    :param peer: service host of the destination
    :returns: the volume, which has its new home; it is copied from now on
    :raises StaleMove: if this is not its home, or others were first
    :raises NotMovable: if it has to stay
    :raises MoveUnderWay: if it is being moved
    :raises LocalCloneError: if a step failed; it is where it was
    """
    with node.lock(volume_id):
        source.abandon_interrupted(node, context, volume_id)
        volume = checks.volume_at_home(node, volume_id)
        _check(node, volume, peer, asked_by)
        source.move_volume(
            node, context, volume, peer, iscsi_target.new_credentials,
            asked_by=asked_by)
        return node.records.volume(volume_id)


def _check(node: nodes.Node, volume: ports.Volume, peer: str,
           asked_by: Asked) -> None:
    move = node.records.move_of(volume.id)
    if move:
        raise exceptions.MoveUnderWay(
            volume=volume.id, host=peer, reason=decision.under_way(move))
    if volume.volume_attachment:
        raise exceptions.FollowsInstance(volume=volume.id, host=peer)
    reason = rows.why_it_stays(
        volume, asked_by, records.is_migrated_by_cinder(volume))
    if peer == node.host:
        reason = 'that node is its home already.'
    if reason:
        raise exceptions.NotMovable(
            volume=volume.id, host=peer, reason=reason)


def retype(node: nodes.Node, volume_id: str, extra_specs: dict[str, str]
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
    # A live move that had begun before the status was changed comes first.
    with node.lock(volume_id):
        volume = checks.volume_at_home(node, volume_id)
        encryption.check_retype(node, volume, extra_specs)
        return True, {'host': volume.host}
