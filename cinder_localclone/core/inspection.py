# SPDX-License-Identifier: Apache-2.0
"""Differences between a volume, or a node, and the records. Pure.

The findings are plain values. They travel between nodes for the operator's
command. A comparison of all volumes follows the same rules as the comparison
of a single volume, with a single listing of LVM, device-mapper and rows. It
does not check iSCSI targets and initiators.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import types
from typing import Any
from typing import TypedDict

from cinder_localclone.core import expected
from cinder_localclone.core.expected import Expected
from cinder_localclone.core.expected import On
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Row

#: The beginning of each obstacle to a complete repair.
IN_THE_WAY = 'in the way: '
_MISSING = 'the LV %s is missing'


class Handle(TypedDict):
    """A handle; ``on`` names its backing device: LV, clone or a number."""

    number: str
    opened: int
    suspended: bool
    on: list[str]


class UpperDevice(TypedDict):
    """A crypt device or header guard, above a handle."""

    name: str
    opened: int


class Source(TypedDict):
    """The source device of a move, and whether it is exported."""

    opened: int
    exported: bool


class Lv(TypedDict):
    """A logical volume; ``size`` in bytes, ``uuid`` is LVM's own id."""

    name: str
    uuid: str
    size: int
    active: bool
    tags: list[str]


class Report(TypedDict):
    """Everything on a node that belongs to a volume.

    ``clone`` and ``progress`` have the fields of
    :class:`~cinder_localclone.core.formats.dm_tables.CloneStatus` and
    :class:`~cinder_localclone.core.copies.Progress`. ``session`` is the path
    of the source's disk. ``exported`` is whether the handle is exported,
    ``remote`` whether the handle is on the disk of a remote attachment,
    ``header_backup`` whether the node has a backup of the header.
    """

    host: str
    handle: Handle | None
    lvs: list[Lv]
    clone: dict[str, Any] | None
    session: str | None
    progress: dict[str, Any] | None
    exported: bool
    remote: bool
    source: Source | None
    upper_devices: list[UpperDevice]
    header_backup: bool


def handle(present: survey.Survey, volume_id: str) -> Handle | None:
    """Return the handle of a volume; None if there is none."""
    device = present.handle(volume_id)
    if device is None:
        return None
    below = {lv.number: 'LV ' + lv.name for lv in present.lvs.values()}
    below.update({other.number: 'clone ' + other.name
                  for other in present.devices.values()
                  if names.move_of_clone(other.name)})
    return {'number': device.number, 'opened': device.opened,
            'suspended': device.suspended,
            'on': [below.get(number, number) for number in device.uses()]}


def lvs_of_pending_cleanups(move: state.Move, host: str) -> set[str]:
    """Return the LVs to remove from a node after a move."""
    if move.cleanup_node != host:
        return set()
    return {move.cleanup_lv, names.metadata_lv(move.move_id)}


def differences(report: Report, move: state.Move | None,
                home: str | None, lv: str | None,
                pending: Sequence[state.Move] = (),
                snapshots: Sequence[rows.Snapshot] = ()) -> list[str]:
    """Describe the differences between a node and the records.

    :param report: the result of :func:`.inspect.inspect` on the node
    :param move: the volume's move, if one is under way
    :param home: service host of the volume's home; None: it was deleted
    :param lv: name of the LV with the volume's data
    :param pending: the volume's ended moves with a pending cleanup
    :param snapshots: the volume's snapshots on all nodes
    """
    return [*_suspended(report), *_by_role(report, move, home, lv),
            *_not_removed(report, pending),
            *_missing_snapshots(report, snapshots)]


def _missing_snapshots(report: Report, snapshots: Sequence[rows.Snapshot]
                       ) -> Iterator[str]:
    for each in snapshots:
        if (each.node == report['host']
                and each.status in statuses.SNAPSHOT_READABLE
                and each.lv not in lv_names(report)):
            yield 'the LV of snapshot %s is missing' % each.id


def _not_removed(report: Report, pending: Sequence[state.Move]
                 ) -> Iterator[str]:
    for move in pending:
        left = lvs_of_pending_cleanups(move, report['host']) & lv_names(report)
        if left:
            yield 'an ended move has left: ' + (
                ', '.join(sorted(left)))


def _by_role(report: Report, move: state.Move | None, home: str | None,
             lv: str | None) -> Iterator[str]:
    wanted = expected.expected(report['host'], home, lv, move)
    if wanted.is_on_clone and wanted.clone:
        yield from _handle_differs(report, wanted)
        yield from _clone_differs(report, wanted)
        yield from _incomplete_below_clone(report, wanted.clone)
    elif wanted.lv and wanted.lv not in lv_names(report):
        yield _MISSING % wanted.lv
    else:
        yield from _handle_differs(report, wanted)
    if wanted.exported and not (
            report['source'] and report['source']['exported']):
        yield 'the source is not exported'


def _handle_differs(report: Report, wanted: Expected) -> Iterator[str]:
    on, elsewhere = _maps_to(report, wanted), On.NOTHING in wanted.handle
    if elsewhere and on is On.LV:
        # Of a deferred move: exported while the instance uses it from here.
        if On.LV not in wanted.handle or not report['exported']:
            yield ('the handle is still on the LV, although the home of the '
                   'volume is another node')
    elif on in wanted.handle:
        return
    elif elsewhere:
        yield 'there is a handle, although the volume is not on this node'
    elif on is On.REMOTE:
        yield ('the volume is still attached remotely, although its home is '
               'this node')
    else:
        yield 'the handle is on %s, not on the %s' % (
            _backing(report)[0], 'clone' if wanted.is_on_clone else 'LV')


def _maps_to(report: Report, wanted: Expected) -> On | None:
    """Return the backing device of the handle in a report; None: any other.

    Like :func:`.expected.maps_to`, but a suspended handle is reported on its
    own line.
    """
    on = _backing(report)
    if not report['handle']:
        return On.NOTHING
    if on == ['LV ' + wanted.lv]:
        return On.LV
    if wanted.clone and on[:1] == [
            'clone ' + names.clone(wanted.clone.move_id)]:
        return On.CLONE
    return On.REMOTE if report['remote'] else None


def _suspended(report: Report) -> Iterator[str]:
    if report['handle'] and report['handle']['suspended']:
        yield 'the handle is suspended'


def _clone_differs(report: Report, wanted: Expected) -> Iterator[str]:
    clone = report['clone']
    if clone is None:
        yield 'the clone is missing'
    elif clone['mode'] != 'rw':
        yield 'the clone is in mode ' + clone['mode']
    elif clone['enabled'] != (wanted.hydrates and not position(report)):
        yield 'the clone is %scopying' % ('' if clone['enabled'] else 'not ')


def position(report: Report) -> int:
    """Return a copy's position in the queue; 0: it runs, or there is none."""
    return int(report['progress']['position']) if report['progress'] else 0


def _incomplete_below_clone(report: Report,
                            move: state.Move) -> Iterator[str]:
    if not report['session']:
        yield 'there is no session with the source'
    lvs = lv_names(report)
    if names.metadata_lv(move.move_id) not in lvs:
        yield 'the metadata LV is missing'
    if move.destination_lv not in lvs:
        yield _MISSING % move.destination_lv


def _backing(report: Report) -> list[str]:
    """Return the names of the handle's backing devices."""
    return report['handle'] and report['handle']['on'] or ['nothing']


def lv_names(report: Report) -> set[str]:
    """Return the names of the LVs in a report."""
    return {lv['name'] for lv in report['lvs']}


@dataclasses.dataclass(frozen=True)
class Record:
    """The database's records about one node.

    :param volumes: volumes with this home
    :param moves: from and to the node, with pending cleanups
    :param snapshots: usable snapshots on the node
    :param positions: queue positions of waiting copies to it, by move id
    """

    host: str
    volumes: Iterable[Row] = ()
    moves: Iterable[state.Move] = ()
    snapshots: Iterable[rows.Snapshot] = ()
    positions: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))


def differing(record: Record, present: survey.Survey,
              clones: Mapping[str, dm_tables.CloneStatus]
              ) -> dict[str, list[str]]:
    """Return the differing volumes of a node, with their differences.

    :param record: the database's records about the node
    :param present: the survey of the node
    :param clones: the status of all clones on the node, by move id
    """
    homes = {row.id: row for row in record.volumes}
    moves = list(record.moves)
    snapshots: dict[str, list[rows.Snapshot]] = {}
    for each in record.snapshots:
        snapshots.setdefault(each.volume_id, []).append(each)
    lvs: list[Lv] = [
        {'name': name, 'uuid': lv.uuid, 'size': lv.size,
         'active': bool(lv.number), 'tags': []}
        for name, lv in present.lvs.items()]
    found = {}
    for volume_id in sorted({*homes, *snapshots,
                             *(move.volume_id for move in moves)}):
        row = homes.get(volume_id)
        if row is not None and (
                row.status in statuses.NOT_COMPARED or row.visible_id):
            continue
        own = [move for move in moves if move.volume_id == volume_id]
        move = next((each for each in own if not each.is_over), None)
        wrong = differences(
            _report(record, present, clones, lvs, volume_id, move), move,
            record.host if row is not None else None,
            row.name if row is not None else None,
            [each for each in own if each.is_over],
            snapshots.get(volume_id, ()))
        if wrong:
            found[volume_id] = wrong
    return found


def _report(record: Record, present: survey.Survey,
            clones: Mapping[str, dm_tables.CloneStatus],
            lvs: list[Lv], volume_id: str,
            move: state.Move | None) -> Report:
    clone = clones.get(move.move_id) if move else None
    position = record.positions.get(move.move_id, 0) if move else 0
    return {
        'host': record.host,
        'handle': handle(present, volume_id),
        'lvs': lvs, 'clone': dataclasses.asdict(clone) if clone else None,
        'progress': {'position': position} if position else None,
        'remote': present.is_handle_foreign(volume_id), 'upper_devices': [],
        # Not checked.
        'session': 'unknown', 'exported': True, 'header_backup': False,
        'source': {'opened': 0, 'exported': True}}


def unknown_lvs(record: Record, present: survey.Survey) -> list[str]:
    """Return the LVs with the tag of a volume but without a row."""
    known = {row.name for row in record.volumes}
    for move in record.moves:
        known |= {move.source_lv, move.destination_lv,
                  names.metadata_lv(move.move_id)}
    return sorted(
        name for name, lv in present.lvs.items()
        if names.facts(lv.tags).get('volume') and not names.is_to_wipe(name)
        and 'snapshot' not in names.facts(lv.tags) and name not in known)
