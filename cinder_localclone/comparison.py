# SPDX-License-Identifier: Apache-2.0
"""How a whole node differs from the record. Pure.

What :mod:`.inspection` says of one volume, of all at once: by the same rules,
from one look at LVM and device-mapper and from rows that are read once. What
only the iSCSI target and initiator know counts as right here.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import types
import typing

from cinder_localclone.dm import tables
from cinder_localclone import images
from cinder_localclone import inspection
from cinder_localclone import names
from cinder_localclone import rows
from cinder_localclone import state
from cinder_localclone import survey

#: In these something is being done, or nothing is expected.
UNSETTLED = ('creating', 'deleting', 'error', 'error_deleting', 'managing',
             'error_managing', 'unmanaging', 'error_unmanaging',
             'downloading')


@dataclasses.dataclass(frozen=True)
class Record:
    """What the database says of one node.

    :param volumes: rows of volumes (:class:`.metric_records.Row`) whose home
        it is
    :param moves: from and to it, remains among them
    :param snapshots: those on it that can be used
    :param places: in the queue, of copies to it that wait, by shadow id
    """

    host: str
    volumes: Iterable[typing.Any] = ()
    moves: Iterable[state.Move] = ()
    snapshots: Iterable[images.Snapshot] = ()
    places: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))


def differing(record: Record, present: survey.Survey,
              clones: Mapping[str, tables.CloneStatus]
              ) -> dict[str, list[str]]:
    """The volumes of which a node is not as the record says, and how.

    :param clones: the status of all clones there, by shadow id
    """
    homes = {row.id: row for row in record.volumes}
    moves = list(record.moves)
    snapshots: dict[str, list[images.Snapshot]] = {}
    for each in record.snapshots:
        snapshots.setdefault(each.volume_id, []).append(each)
    lvs: list[inspection.Lv] = [
        {'name': name, 'uuid': lv.uuid, 'size': lv.size,
         'active': bool(lv.number), 'tags': []}
        for name, lv in present.lvs.items()]
    found = {}
    for volume_id in sorted({*homes, *snapshots,
                             *(move.volume_id for move in moves)}):
        row = homes.get(volume_id)
        if row is not None and (
                row.status in UNSETTLED or rows.visible_id(row)):
            continue
        own = [move for move in moves if move.volume_id == volume_id]
        move = next((each for each in own if not each.is_over), None)
        wrong = inspection.differences(
            _report(record, present, clones, lvs, volume_id, move), move,
            record.host if row is not None else None,
            row.lv if row is not None else None,
            [each for each in own if each.is_over],
            snapshots.get(volume_id, ()))
        if wrong:
            found[volume_id] = wrong
    return found


def _report(record: Record, present: survey.Survey,
            clones: Mapping[str, tables.CloneStatus],
            lvs: list[inspection.Lv], volume_id: str,
            move: state.Move | None) -> inspection.Report:
    clone = clones.get(move.shadow_id) if move else None
    place = record.places.get(move.shadow_id, 0) if move else 0
    return {
        'host': record.host,
        'handle': inspection.handle(present, volume_id),
        'lvs': lvs, 'clone': dataclasses.asdict(clone) if clone else None,
        'progress': {'place': place} if place else None,
        'passed': present.is_handle_foreign(volume_id), 'tops': [],
        # Not looked at.
        'session': 'unknown', 'served': True, 'header_backup': False,
        'source': {'opened': 0, 'exported': True}}


def unknown_lvs(record: Record, present: survey.Survey) -> list[str]:
    """The LVs that say they are a volume's, and that no row names."""
    known = {row.lv for row in record.volumes}
    for move in record.moves:
        known |= {move.source_lv, move.destination_lv,
                  names.metadata_lv(move.shadow_id)}
    return sorted(
        name for name, lv in present.lvs.items()
        if names.facts(lv.tags).get('volume') and not names.is_doomed(name)
        and 'snapshot' not in names.facts(lv.tags) and name not in known)
