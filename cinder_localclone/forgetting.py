# SPDX-License-Identifier: Apache-2.0
"""Forgetting a node that will never come back.

All of it is in the records: nothing here needs that node, and nothing is
removed from any disk. Each step compares first, and may be taken again.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools

from cinder_localclone import names
from cinder_localclone import ports
from cinder_localclone import record_ports
from cinder_localclone import rows
from cinder_localclone import state
from cinder_localclone.state import Event
from cinder_localclone.state import Phase

NOTHING = 'nothing'


@dataclasses.dataclass(frozen=True)
class Step:
    """What one volume has on the node, and what becomes of it.

    :param lost: what is lost with the node, in words
    :param then: what is done, in words
    :param act: does it; None if nothing has to be done
    """

    volume_id: str
    what: str
    lost: str
    then: str
    act: Callable[[], object] | None = None


def plan(records: record_ports.OperatorRecords, host: str, heir: str,
         copied: Callable[[state.Move], float | None]) -> list[Step]:
    """The steps, in their order; none if nothing names the node.

    :param host: service host of the node
    :param heir: service host with pool of the node that gets the volumes
        that are lost, so that they can be deleted
    :param copied: ``copied(move)``: percent that is local at the destination,
        None if that is unknown
    """
    moves = records.moves_of(host)
    steps = [step for move in moves
             for step in _of_move(records, host, move, copied)]
    current = {move.volume_id: move for move in moves if not move.is_over}
    for volume in records.volumes_of(host):
        if not rows.is_home(volume, host):
            continue  # the database's match is wider: "_", case, pools
        move = current.get(volume.id)
        if not (move and _goes_back(move, host)):
            steps.append(_of_volume(records, volume, move, heir))
    return steps + list(_of_snapshots(records, host))


def _goes_back(move: state.Move, host: str) -> bool:
    """A live move to the node whose guest may still be at the source."""
    return (move.committed and move.phase is Phase.STARTING
            and host == move.destination != move.source)


def _of_move(records: record_ports.OperatorRecords, host: str,
             move: state.Move, copied: Callable[[state.Move], float | None]
             ) -> Iterator[Step]:
    if move.is_over:
        if move.cleanup_node == host:
            yield Step(
                move.volume_id, 'has to clean up after a move', NOTHING,
                'not waited for any more', lambda: _finish(records, move))
    elif not move.committed:
        def fail() -> None:
            failed = records.advance(move, Event.FAILED)
            if failed.cleanup_node == host:
                _finish(records, failed)
        yield Step(
            move.volume_id, 'a move %s it, not committed' % (
                'to' if move.destination == host else 'from'),
            NOTHING if move.destination == host else 'see the volume',
            'rolled back', fail)
    elif _goes_back(move, host):
        yield Step(
            move.volume_id, 'destination of a live migration',
            'writes on the lost node', 'at %s again' % move.source,
            lambda: _finish(records, records.roll_back(move)))
    elif move.source == host != move.destination:
        starting = move.phase is Phase.STARTING
        yield Step(
            move.volume_id, 'source of a move', _not_copied(
                move, copied(move)),
            'data that was already copied can be used on '
            '%s' % move.destination,
            (lambda: records.advance(move, Event.SOURCE_DETACHED))
            if starting else None)


def _finish(records: record_ports.OperatorRecords, move: state.Move) -> None:
    records.finish(move, Event.SOURCE_REMOVED if move.committed
                   else Event.DESTINATION_REMOVED)


def _not_copied(move: state.Move, percent: float | None) -> str:
    if move.phase is Phase.COMPLETING or percent == 100:
        return NOTHING
    if percent is None:
        return 'data that is not copied yet (unknown how much)'
    return 'data that is not copied yet (%.1f %%)' % (100 - percent)


def _of_volume(records: record_ports.OperatorRecords, volume: ports.Volume,
               move: state.Move | None, heir: str) -> Step:
    lost = 'the whole volume'
    if move and move.committed:
        lost = ('writes since its move began; the LV %s on %s is '
                'older' % (move.source_lv, move.source))
    return Step(
        volume.id, 'home of the volume (%s)' % volume.status, lost,
        'in status "error", to be deleted from %s' %
        names.service_host(heir),
        lambda: records.give_up(volume, heir))


def _of_snapshots(records: record_ports.OperatorRecords, host: str
                  ) -> Iterator[Step]:
    """Snapshots stay where they were taken, wherever their volumes are."""
    found = records.snapshots(records.snapshots_on(host))
    for snapshot in sorted(found.values(), key=lambda each: each.id):
        if snapshot.status not in ('error', 'deleting'):
            yield Step(
                snapshot.volume_id, 'has its snapshot %s' % snapshot.id,
                'the whole snapshot', 'in status "error", to be deleted',
                functools.partial(records.give_up_snapshot, snapshot.id,
                                  host))
