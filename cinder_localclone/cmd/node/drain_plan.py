# SPDX-License-Identifier: Apache-2.0
"""Plan to drain a node: volumes to move, destinations, and remaining data.

The plan depends only on Cinder's rows, so repeated calls agree.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses

from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import state
from cinder_localclone.core.volume import Attachment
from cinder_localclone.core.volume import Volume

#: Holders with a known end, without any action.
COPIED_TO = 'copied to it'
COPIED_FROM = 'copied from it'
CLEANED = 'pending cleanup'
OVERWRITTEN = 'to be wiped'
PASSING = (COPIED_TO, COPIED_FROM, CLEANED, OVERWRITTEN)


@dataclasses.dataclass(frozen=True)
class Held:
    """Data on a node after the move of all movable volumes.

    :param volume_id: '' for data without a volume
    :param what: the kind, in a word or two
    :param why: the reason and the remedy, as sentences
    :param waits_for: service host of a copy's other node
    """

    volume_id: str
    what: str
    why: str
    waits_for: str = ''


@dataclasses.dataclass(frozen=True)
class Target:
    """A node with the ability to receive volumes.

    :param zone: its availability zone
    """

    host: str
    space: lvm_reports.FreeSpace
    zone: str


def at_home(db: records.Database, host: str) -> list[Volume]:
    """Return the volumes of a node, in the order of their moves."""
    return sorted((volume for volume in db.volumes.volumes_of(host)
                   if volume.home == host),
                  key=lambda volume: (volume.size, volume.id))


def to_move_away(db: records.Database, host: str) -> list[Volume]:
    """Return the volumes ready to move away."""
    moves = _under_way(db, host)
    return [volume for volume in at_home(db, host)
            if not _held(volume, moves.get(volume.id))]


def all_held(db: records.Database, host: str, to_wipe: int
             ) -> Iterator[Held]:
    """Yield everything on a node except volumes ready to move away.

    :param to_wipe: bytes of LVs to be wiped on the node
    """
    moves = _under_way(db, host)
    for volume in at_home(db, host):
        held = _held(volume, moves.get(volume.id))
        if held:
            yield held
    for move in db.moves.moves_of(host):
        yield from _of_move(move, host)
    for snapshot_id, volume_id in sorted(
            db.decommission.snapshots_on(host).items()):
        yield Held(volume_id, 'snapshot', 'its snapshot %s is on this node. '
                   'Delete the snapshot, or keep the node.' % snapshot_id)
    if to_wipe:
        yield Held('', OVERWRITTEN, '%.1f GiB of LVs have still to be '
                   'overwritten. If this does not end, run "cinder-localclone '
                   'doctor" on the node.' % (
                       to_wipe / 2**30))


def _under_way(db: records.Database, host: str
               ) -> dict[str, state.Move]:
    return {move.volume_id: move for move in db.moves.moves_of(host)
            if not move.is_over}


def _held(volume: Volume, move: state.Move | None) -> Held | None:
    if volume.volume_attachment:
        return Held(volume.id, 'attached', 'to %s. Migrate the instance: the '
                    'volume moves with it.' % ', '.join(sorted(
                        _instance(each) for each in
                        volume.volume_attachment)))
    if move and move.committed:
        return Held(volume.id, COPIED_TO, 'from %s. It can move again when '
                    'the copy has ended.' % move.source, move.source)
    if move:
        return None  # the home rolls back an interrupted start of a move
    if volume.group_id:
        return Held(volume.id, 'grouped', 'volumes of a group stay together. '
                    'Remove the volume from its group.')
    why = volume.why_it_stays(state.Asked.DRAIN)
    return Held(volume.id, 'not available', why) if why else None


def _instance(attachment: Attachment) -> str:
    host = (attachment.connector or {}).get('host')
    return 'instance %s%s' % (attachment.instance_uuid,
                              ' on ' + host if host else '')


def _of_move(move: state.Move, host: str) -> Iterator[Held]:
    if move.is_over:
        if move.cleanup_node == host:
            yield Held(move.volume_id, CLEANED, 'data of an ended move on '
                       'this node.')
    elif move.phase is state.Phase.STARTING and move.source == host:
        yield Held(move.volume_id, 'live migration', 'of its instance, to %s. '
                   'It is copied when the live migration has ended.'
                   % move.destination)
    elif move.committed and move.source == host:
        yield Held(move.volume_id, COPIED_FROM, 'to %s (%s).' % (
            move.destination, move.display_phase), move.destination)
    elif not move.committed and move.destination == host:
        yield Held(move.volume_id, 'moving to it', 'from %s.' % move.source)


def choose(volume: Volume, geometry: state.Geometry,
           targets: Mapping[str, Target], to: str | None,
           arriving: Mapping[str, int]) -> str:
    """Return the destination of a volume: most free space in its zone.

    :param to: the only allowed destination, in any zone
    :param arriving: bytes still to be written to each host, at most
    :returns: the service host, or '' if no node has enough free space
    """
    size = volume.backing_bytes()
    left = {}
    for target in targets.values():
        space = target.space
        free = dataclasses.replace(
            space, volumes=space.volumes - arriving.get(target.host, 0))
        if target.host == to or (
                to is None and target.zone == volume.availability_zone):
            if not free.why_too_small(size, geometry.metadata_bytes(size)):
                left[target.host] = free.volumes
    return max(sorted(left), key=left.__getitem__, default='')


def bytes_arriving(moves: list[state.Move]) -> dict[str, int]:
    """Return the bytes of the volumes moving to each host."""
    found: dict[str, int] = {}
    for move in moves:
        if not move.is_over:
            found[move.destination] = (
                found.get(move.destination, 0) + move.size_bytes)
    return found
