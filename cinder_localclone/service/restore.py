# SPDX-License-Identifier: Apache-2.0
"""Restoring this node's stacks at boot, from local facts alone.

Before Nova starts guests their volumes must be there, though neither the
database nor a peer may answer yet. What there is to restore is in the tags of
the logical volumes; how to log in to a source is in the iSCSI initiator's own
records, CHAP secret included. Nothing is created, and nothing is copied: that
is the volume service's to decide.
"""

from collections.abc import Collection, Mapping, Sequence
import dataclasses

from oslo_log import log as logging

from cinder_localclone import encryption_errors
from cinder_localclone import exceptions
from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import sessions
from cinder_localclone import stack
from cinder_localclone import state
from cinder_localclone import survey

LOG = logging.getLogger(__name__)

#: Why an LV is not given out that no guest has: it may be what a revert has
#: replaced. Nobody waits for it.
NEWBORN = 'uncommitted: Cinder has not taken it yet'


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
    passed: str = ''
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
        if (not volume_id or names.shadow_of_metadata(lv.name)
                or names.is_doomed(lv.name) or names.AWAY in lv.tags
                # What moves here is none of a create that has failed.
                or names.NEWBORN in lv.tags and volume_id in arriving
                or _is_preparing_to_follow(present, lv)):
            continue
        local = _local(volume_id, lv)
        # One whose volume has a metadata LV is never given out by itself.
        arrival = (names.find_by_id(arriving, lv.name)
                   or arriving.get(volume_id))
        volumes.append(_of_move(local, *arrival) if arrival else local)
    return sorted(_without_doubles(volumes),
                  key=lambda local: local.move is not None)


def _local(volume_id: str, lv: reports.LogicalVolume) -> Local:
    """What the tags of an LV say of its volume."""
    try:
        size, reason = lv.body, _reason(lv)
    except exceptions.UnreadableTag as exc:
        size, reason = 0, str(exc)
    if not names.is_id(volume_id):
        reason = 'its LV %s has the tag of a volume, without its id' % lv.name
    return Local(volume_id, lv.name, size, reason=reason,
                 header=names.guarded(lv.tags))


def _is_preparing_to_follow(present: survey.Survey,
                            lv: reports.LogicalVolume) -> bool:
    """Whether a volume would follow to an LV, but is at its source yet."""
    metadata = present.move_into(lv.name)
    return metadata is not None and names.FOLLOWS in metadata.tags


def _reason(lv: reports.LogicalVolume) -> str:
    """Why an LV of a volume is never given out at boot; '' if it may be."""
    if names.NEWBORN in lv.tags:
        return NEWBORN
    return '' if lv.shown else 'it was not created completely'


def _arriving(present: survey.Survey
              ) -> dict[str, tuple[str, reports.LogicalVolume]]:
    """Shadow id and metadata LV of moves to here, by shadow and volume id."""
    arriving: dict[str, tuple[str, reports.LogicalVolume]] = {}
    for lv in present.lvs.values():
        shadow_id = names.shadow_of_metadata(lv.name)
        # Alone, it was created after its move had been given up.
        if (shadow_id and names.FOLLOWS not in lv.tags
                and present.destination_lvs(shadow_id)):
            arriving[shadow_id] = (shadow_id, lv)
            arriving[names.facts(lv.tags).get('volume', '')] = (shadow_id, lv)
    return arriving


def _of_move(local: Local, shadow_id: str,
             metadata: reports.LogicalVolume) -> Local:
    if local.reason:
        return local
    # A destination LV is named after the shadow (see records.py).
    if shadow_id not in local.lv:
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
        volume_id=local.volume_id, shadow_id=shadow_id,
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


def restore(stack_: stack.Stack, sessions_: sessions.Sessions
            ) -> list[tuple[Local, str]]:
    """Restore all that can be; one that fails does not stop the others.

    A volume that has a handle is left alone, but for the guard that its LV's
    tags ask for: the volume service may be at work on it. A boot takes no
    locks, so a handle that has appeared meanwhile is not swapped either.

    :returns: each volume with what is wrong with it, '' if nothing is; none
        that is newborn
    """
    present = stack_.survey()
    here = [local for local in plan(present) if local.reason != NEWBORN]
    here += _passed(sessions_, {local.volume_id for local in here})
    outcome = []
    for local in here:
        problem = local.reason
        has_handle = present.handle(local.volume_id) is not None
        if not problem and (local.header or not has_handle):
            try:
                if not has_handle:
                    _restore(stack_, sessions_, local, present.lvs)
                _guard(stack_, local)
            except exceptions.LocalCloneError as exc:
                problem = str(exc)
            except Exception as exc:
                LOG.exception('Volume %s was not restored.', local.volume_id)
                problem = '%s: %s' % (type(exc).__name__, exc)
        outcome.append((local, problem))
    return outcome


def _passed(sessions_: sessions.Sessions, here: Collection[str]
            ) -> list[Local]:
    """What is passed through here, by the initiator's records.

    Not what this node has itself by now.
    """
    try:
        recorded = sessions_.recorded_passes()
    except exceptions.LocalCloneError as exc:
        LOG.error('The records of the iSCSI initiator can\'t be read: %s',
                  exc)
        return []
    return [Local(volume_id, '', 0, passed=iqn)
            for volume_id, iqn in sorted(recorded.items())
            if volume_id not in here]


def _restore(stack_: stack.Stack, sessions_: sessions.Sessions,
             local: Local, lvs: Mapping[str, reports.LogicalVolume]) -> None:
    move = local.move
    if local.passed:
        stack_.ensure_handle_on_disk(
            local.volume_id, sessions_.pass_from_records(
                local.volume_id, local.passed), swaps=False)
        return
    if move is None:
        stack_.ensure_handle_on_lv(local.volume_id, local.lv, local.size,
                                   lvs, swaps=False)
        return
    for lv in (local.lv, names.metadata_lv(move.shadow_id)):
        stack_.activate(lv)
    disk = sessions_.login_from_records(move)
    stack_.ensure_clone(move, disk)
    stack_.ensure_handle_on_clone(move, swaps=False)


def _guard(stack_: stack.Stack, local: Local) -> None:
    """What a guest gets of a volume that Nova encrypts.

    Of what is passed through here only its own first sectors tell. What
    turns out to be another kind of volume has another path; the volume
    service's first look removes the guard.
    """
    header = local.header
    if local.passed:
        try:
            header = stack_.header_sectors(local.volume_id)
        except (encryption_errors.HeaderDamaged, FileNotFoundError):
            return  # without cryptsetup nothing here was ever encrypted
    if header:
        stack_.ensure_guard(local.volume_id, header)
        stack_.ensure_link(local.volume_id, names.guard(local.volume_id))
