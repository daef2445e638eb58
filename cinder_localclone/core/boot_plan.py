# SPDX-License-Identifier: Apache-2.0
"""The volumes to make available after a boot. Pure.

The plan needs LVM's tags and device names only: no database and no message
bus. With a database, :mod:`.core.expected` has the same rule.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import types
import typing

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import state

#: The reason to leave an LV alone that Cinder has not taken: no guest has it,
#: and a revert may have replaced it.
UNCOMMITTED = 'uncommitted: Cinder has not taken it yet'
#: UUIDs of headers and references of secrets, by volume id.
Known: typing.TypeAlias = Mapping[str, tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Local:
    """A volume of this node.

    :param lv: name of its LV; '' for a remote attachment
    :param size: bytes
    :param move: the move to this node, if the copy has not ended
    :param reason: why the boot leaves it to the volume service; '' if it does
        not
    :param remote: iSCSI name of the export of its home, for a remote
        attachment; '' for a volume with an LV
    :param header: guarded sectors of its header; 0: it has no header guard
    """

    volume_id: str
    lv: str
    size: int
    move: state.Move | None = None
    reason: str = ''
    remote: str = ''
    header: int = 0


def plan(present: survey.Survey) -> list[Local]:
    """Return the volumes to restore, those without a source first.

    The handle is never mapped to the destination LV of an active copy: regions
    not yet copied would read as old bytes.
    """
    arriving = _arriving(present)
    volumes = []
    for lv in sorted(present.lvs.values(), key=lambda each: each.name):
        volume_id = names.facts(lv.tags).get('volume')
        if (not volume_id or names.move_of_metadata(lv.name)
                or names.is_to_wipe(lv.name) or names.AWAY in lv.tags
                # A destination LV is left alone: a failed create is
                # uncommitted too.
                or names.UNCOMMITTED in lv.tags and volume_id in arriving
                or _is_deferred_move_prepared(present, lv)):
            continue
        local = _local(volume_id, lv)
        # The move decides about every LV of a volume with a metadata LV.
        arrival = (names.find_by_id(arriving, lv.name)
                   or arriving.get(volume_id))
        volumes.append(_of_move(local, *arrival) if arrival else local)
    return sorted(_without_doubles(volumes),
                  key=lambda local: local.move is not None)


def _local(volume_id: str, lv: lvm_reports.LogicalVolume) -> Local:
    """Return a volume by the tags of its LV."""
    try:
        size, reason = lv.backing, _reason(lv)
    except exceptions.UnreadableTag as exc:
        size, reason = 0, str(exc)
    if not names.is_id(volume_id):
        reason = 'its LV %s has the tag of a volume, without its id' % lv.name
    return Local(volume_id, lv.name, size, reason=reason,
                 header=names.guarded(lv.tags))


def _is_deferred_move_prepared(present: survey.Survey,
                               lv: lvm_reports.LogicalVolume) -> bool:
    """Return whether an LV is the destination of a prepared deferred move.

    The volume itself is still at the source.
    """
    metadata = present.move_into(lv.name)
    return metadata is not None and names.DEFERRED in metadata.tags


def _reason(lv: lvm_reports.LogicalVolume) -> str:
    """Return why a boot must leave a volume's LV alone; '' if it need not."""
    if names.UNCOMMITTED in lv.tags:
        return UNCOMMITTED
    return '' if lv.shown else 'it was not created completely'


def _arriving(present: survey.Survey
              ) -> dict[str, tuple[str, lvm_reports.LogicalVolume]]:
    """Return the moves to this node, by move id and by volume id.

    The value is the move id and the metadata LV.
    """
    arriving: dict[str, tuple[str, lvm_reports.LogicalVolume]] = {}
    for lv in present.lvs.values():
        move_id = names.move_of_metadata(lv.name)
        # A metadata LV alone was created after its move had been cancelled.
        if (move_id and names.DEFERRED not in lv.tags
                and present.destination_lvs(move_id)):
            arriving[move_id] = (move_id, lv)
            arriving[names.facts(lv.tags).get('volume', '')] = (move_id, lv)
    return arriving


def _of_move(local: Local, move_id: str,
             metadata: lvm_reports.LogicalVolume) -> Local:
    if local.reason:
        return local
    # A destination LV has the name of the move record (see records.py).
    if move_id not in local.lv:
        return dataclasses.replace(
            local, reason='its move was not prepared completely')
    facts = names.facts(metadata.tags)
    try:
        geometry = state.Geometry.parse(facts['geometry'])
        iqn = facts['source']
        extra = metadata.extra
        volume_gib = local.size - extra >> 30
        size_gib = int(facts.get('copied', volume_gib))
    except (KeyError, ValueError, exceptions.UnreadableTag):
        return dataclasses.replace(
            local, reason='the tags of its metadata LV are not complete')
    return dataclasses.replace(local, move=state.Move(
        volume_id=local.volume_id, move_id=move_id,
        token=state.Token(state.Phase.MIGRATING, '', geometry),
        committed=True, source='', destination='', source_lv='',
        destination_lv=local.lv, size_gib=size_gib,
        volume_gib=volume_gib, extra_bytes=extra,
        location='local %s 0' % iqn))


def _without_doubles(volumes: Sequence[Local]) -> list[Local]:
    ids = [local.volume_id for local in volumes]
    return [dataclasses.replace(
        local, reason='two LVs of this node have the tag of this volume')
        if ids.count(local.volume_id) > 1 else local for local in volumes]


def to_unlock(present: survey.Survey,
              remote: Known = types.MappingProxyType({})) -> list[Local]:
    """Return the volumes that were open when the node went down.

    :param remote: encrypted volumes that this node had by a remote attachment
    """
    here = [local for local in plan(present)
            if local.lv and names.OPENED in present.lvs[local.lv].tags]
    own = {local.volume_id for local in here}
    return here + [Local(volume_id, '', 0, remote='yes')
                   for volume_id in sorted(remote) if volume_id not in own]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result for one volume.

    :param state: open (already before), opened, or locked
    :param problem: why it is locked
    :param transient: whether the problem may end by itself
    """

    volume_id: str
    lv: str
    state: str
    problem: str = ''
    transient: bool = False
