# SPDX-License-Identifier: Apache-2.0
"""Which volumes a node makes available after a boot. Pure.

From LVM's tags and the names of devices alone: neither the database nor the
message bus is asked.
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

#: Why an LV is not given out that no guest has: it may be what a revert has
#: replaced. Nobody waits for it.
UNCOMMITTED = 'uncommitted: Cinder has not taken it yet'
#: UUIDs of headers and references of secrets, by volume id.
Known: typing.TypeAlias = Mapping[str, tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Local:
    """One volume of this node.

    :param lv: name of its LV
    :param size: bytes
    :param move: the move that brings it here, if it is not all here
    :param reason: why it is left to the volume service; '' if it is not
    :param passed: iSCSI name of what its home serves, if it is passed
        through here; there is no LV then
    :param header: sectors of its header that are guarded; 0 if it has none
    """

    volume_id: str
    lv: str
    size: int
    move: state.Move | None = None
    reason: str = ''
    remote: str = ''
    header: int = 0


def plan(present: survey.Survey) -> list[Local]:
    """What is to be restored: what needs no source first. Pure.

    An LV that something is still being copied into is never given out by
    itself: regions that are not local would read as old bytes.
    """
    arriving = _arriving(present)
    volumes = []
    for lv in sorted(present.lvs.values(), key=lambda each: each.name):
        volume_id = names.facts(lv.tags).get('volume')
        if (not volume_id or names.move_of_metadata(lv.name)
                or names.is_to_wipe(lv.name) or names.AWAY in lv.tags
                # What moves here is none of a create that has failed.
                or names.UNCOMMITTED in lv.tags and volume_id in arriving
                or _is_deferred_move_prepared(present, lv)):
            continue
        local = _local(volume_id, lv)
        # One whose volume has a metadata LV is never given out by itself.
        arrival = (names.find_by_id(arriving, lv.name)
                   or arriving.get(volume_id))
        volumes.append(_of_move(local, *arrival) if arrival else local)
    return sorted(_without_doubles(volumes),
                  key=lambda local: local.move is not None)


def _local(volume_id: str, lv: lvm_reports.LogicalVolume) -> Local:
    """What the tags of an LV say of its volume."""
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
    """Whether a volume would follow to an LV, but is at its source yet."""
    metadata = present.move_into(lv.name)
    return metadata is not None and names.DEFERRED in metadata.tags


def _reason(lv: lvm_reports.LogicalVolume) -> str:
    """Why an LV of a volume is never given out at boot; '' if it may be."""
    if names.UNCOMMITTED in lv.tags:
        return UNCOMMITTED
    return '' if lv.shown else 'it was not created completely'


def _arriving(present: survey.Survey
              ) -> dict[str, tuple[str, lvm_reports.LogicalVolume]]:
    """Shadow id and metadata LV of moves to here, by shadow and volume id."""
    arriving: dict[str, tuple[str, lvm_reports.LogicalVolume]] = {}
    for lv in present.lvs.values():
        move_id = names.move_of_metadata(lv.name)
        # Alone, it was created after its move had been given up.
        if (move_id and names.DEFERRED not in lv.tags
                and present.destination_lvs(move_id)):
            arriving[move_id] = (move_id, lv)
            arriving[names.facts(lv.tags).get('volume', '')] = (move_id, lv)
    return arriving


def _of_move(local: Local, move_id: str,
             metadata: lvm_reports.LogicalVolume) -> Local:
    if local.reason:
        return local
    # A destination LV is named after the shadow (see records.py).
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


def encrypted(present: survey.Survey,
              remote: Known = types.MappingProxyType({})) -> list[Local]:
    """The volumes that were open when the node went down. Pure.

    :param passed: those that were passed through here, and encrypted
    """
    here = [local for local in plan(present)
            if local.lv and names.OPENED in present.lvs[local.lv].tags]
    own = {local.volume_id for local in here}
    return here + [Local(volume_id, '', 0, remote='yes')
                   for volume_id in sorted(remote) if volume_id not in own]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one volume.

    :param state: open (it was before), opened, or locked
    :param problem: why it is locked
    :param passing: whether that may pass in a moment
    """

    volume_id: str
    lv: str
    state: str
    problem: str = ''
    transient: bool = False
