# SPDX-License-Identifier: Apache-2.0
"""Emptying a node: which volumes depart, where to, and what holds it back.

The state is Cinder's rows alone: whoever asks, and how often, gets the same
answer.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses

from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import state

#: What holds a node back for a while only, without anybody's doing.
COPIED_TO = 'copied to it'
COPIED_FROM = 'copied from it'
CLEANED = 'to be cleaned up'
OVERWRITTEN = 'to be overwritten'
PASSING = (COPIED_TO, COPIED_FROM, CLEANED, OVERWRITTEN)


@dataclasses.dataclass(frozen=True)
class Held:
    """Something that keeps a node from being empty.

    :param volume_id: '' of what is no volume's any more
    :param what: in a word or two
    :param why: and what to do, in words
    :param waits_for: service host of the node that a copy needs besides
    """

    volume_id: str
    what: str
    why: str
    waits_for: str = ''


@dataclasses.dataclass(frozen=True)
class Target:
    """A node that can take volumes.

    :param zone: its availability zone
    """

    host: str
    room: lvm_reports.FreeSpace
    zone: str


def at_home(db: records.Database, host: str) -> list[objects.Volume]:
    """The volumes whose home is a node, in the order in which they go."""
    return sorted((volume for volume in db.volumes.volumes_of(host)
                   if rows.is_home(volume, host)),
                  key=lambda volume: (volume.size, volume.id))


def to_move_away(db: records.Database, host: str) -> list[objects.Volume]:
    """Those that can depart now."""
    moves = _under_way(db, host)
    return [volume for volume in at_home(db, host)
            if not _held(volume, moves.get(volume.id))]


def holders(db: records.Database, host: str, to_wipe: int
            ) -> Iterator[Held]:
    """All that holds a node back, but what can depart now.

    :param doomed: bytes that the node says it has yet to overwrite
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
        yield Held('', OVERWRITTEN, '%.1f GiB of volumes that have left the '
                   'node have still to be overwritten. If this does not end, '
                   'run "cinder-localclone doctor" on the node.' % (
                       to_wipe / 2**30))


def _under_way(db: records.Database, host: str
               ) -> dict[str, state.Move]:
    return {move.volume_id: move for move in db.moves.moves_of(host)
            if not move.is_over}


def _held(volume: objects.Volume, move: state.Move | None) -> Held | None:
    if volume.volume_attachment:
        return Held(volume.id, 'attached', 'to %s. It follows its instance: '
                    'migrate the instance.' % ', '.join(sorted(
                        _instance(each) for each in
                        volume.volume_attachment)))
    if move and move.committed:
        return Held(volume.id, COPIED_TO, 'from %s. It can move again when '
                    'the copy has ended.' % move.source, move.source)
    if move:
        return None  # the home gives up what it did not live to end
    if volume.group_id:
        return Held(volume.id, 'grouped', 'volumes of a group stay together. '
                    'Remove the volume from its group.')
    why = rows.why_it_stays(volume, state.Asked.DRAIN,
                            rows.is_migrated_by_cinder(volume))
    return Held(volume.id, 'not available', why) if why else None


def _instance(attachment: objects.Volume) -> str:
    host = (attachment.connector or {}).get('host')
    return 'instance %s%s' % (attachment.instance_uuid,
                              ' on ' + host if host else '')


def _of_move(move: state.Move, host: str) -> Iterator[Held]:
    if move.is_over:
        if move.cleanup_node == host:
            yield Held(move.volume_id, CLEANED, 'data that a move has left on '
                       'this node.')
    elif move.phase is state.Phase.STARTING and move.source == host:
        yield Held(move.volume_id, 'live migration', 'of its instance, to %s. '
                   'It is copied when the live migration has ended.'
                   % move.destination)
    elif move.committed and move.source == host:
        yield Held(move.volume_id, COPIED_FROM, 'to %s (%s).' % (
            move.destination, move.display_phase), move.destination)
    elif not move.committed and move.destination == host:
        yield Held(move.volume_id, 'about to come', 'from %s.' % move.source)


def choose(volume: objects.Volume, geometry: state.Geometry,
           targets: Mapping[str, Target], to: str | None,
           arriving: Mapping[str, int]) -> str:
    """Where a volume goes: to the node with most room, in its zone.

    :param to: the only one that it may go to, in any zone
    :param arriving: bytes that are, or may be, still to be written, by host
    :returns: the host, or '' if none has room
    """
    size = rows.backing_bytes(volume)
    left = {}
    for target in targets.values():
        room = target.room
        free = dataclasses.replace(
            room, volumes=room.volumes - arriving.get(target.host, 0))
        if target.host == to or (
                to is None and target.zone == volume.availability_zone):
            if not free.lacks(size, geometry.metadata_bytes(size)):
                left[target.host] = free.volumes
    return max(sorted(left), key=left.__getitem__, default='')


def arriving(moves: list[state.Move]) -> dict[str, int]:
    """Bytes of the volumes that are coming to each host."""
    found: dict[str, int] = {}
    for move in moves:
        if not move.is_over:
            found[move.destination] = (
                found.get(move.destination, 0) + move.size_bytes)
    return found
