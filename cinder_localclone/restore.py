# SPDX-License-Identifier: Apache-2.0
"""Restoring this node's stacks at boot, from local facts alone.

Before Nova starts guests their volumes must be there, though neither the
database nor a peer may answer yet. What there is to restore is in the tags of
the logical volumes; how to log in to a source is in the iSCSI initiator's own
records, CHAP secret included. Nothing is created, and nothing is copied: that
is the volume service's to decide.
"""

from collections.abc import Sequence
import dataclasses

from oslo_log import log as logging

from cinder_localclone import exceptions
from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import sessions
from cinder_localclone import stack
from cinder_localclone import state
from cinder_localclone import survey

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Local:
    """One volume of this node.

    :param lv: name of its LV
    :param size: bytes
    :param move: the move that brings it here, if it is not all here
    :param reason: why it is left to the volume service; '' if it is not
    """

    volume_id: str
    lv: str
    size: int
    move: state.Move | None = None
    reason: str = ''


def plan(present: survey.Survey) -> list[Local]:
    """What is to be restored: what needs no source first. Pure.

    An LV that something is still being copied into is never given out by
    itself: regions that are not local would read as old bytes.
    """
    arriving = _arriving(present)
    volumes = []
    for lv in sorted(present.lvs.values(), key=lambda each: each.name):
        volume_id = names.facts(lv.tags).get('volume')
        if not volume_id or names.shadow_of_metadata(lv.name):
            continue
        local = Local(volume_id, lv.name, lv.shown, reason=_reason(lv))
        # A destination LV is named after the shadow (see records.py). One
        # whose volume has a metadata LV is never given out by itself.
        arrival = arriving.get(lv.name[-36:]) or arriving.get(volume_id)
        volumes.append(_of_move(local, *arrival) if arrival else local)
    return sorted(_without_doubles(volumes),
                  key=lambda local: local.move is not None)


def _reason(lv: reports.LogicalVolume) -> str:
    """Why an LV of a volume is never given out at boot; '' if it may be."""
    if names.NEWBORN in lv.tags:
        # No guest has one, and it may be what a revert has replaced.
        return 'newborn: nobody was given it yet'
    return '' if lv.shown else 'it was not created to its end'


def _arriving(present: survey.Survey
              ) -> dict[str | None, tuple[str, reports.LogicalVolume]]:
    """Shadow id and metadata LV of moves to here, by shadow and volume id."""
    arriving: dict[str | None, tuple[str, reports.LogicalVolume]] = {}
    for lv in present.lvs.values():
        shadow_id = names.shadow_of_metadata(lv.name)
        if shadow_id:
            arriving[shadow_id] = (shadow_id, lv)
            arriving[names.facts(lv.tags).get('volume')] = (shadow_id, lv)
    return arriving


def _of_move(local: Local, shadow_id: str,
             metadata: reports.LogicalVolume) -> Local:
    if names.METADATA_READY not in metadata.tags:
        return dataclasses.replace(
            local, reason='its move was not prepared to the end')
    facts = names.facts(metadata.tags)
    try:
        geometry = state.Geometry.parse(facts['geometry'])
        iqn = facts['source']
        size_gib = int(facts.get('copied', local.size >> 30))
    except (KeyError, ValueError):
        return dataclasses.replace(
            local, reason='the tags of its metadata LV are not complete')
    return dataclasses.replace(local, move=state.Move(
        volume_id=local.volume_id, shadow_id=shadow_id,
        token=state.Token(state.Phase.MIGRATING, '', geometry),
        committed=True, source='', destination='', source_lv='',
        destination_lv=local.lv, size_gib=size_gib,
        volume_gib=local.size >> 30,
        location='local %s 0' % iqn))


def _without_doubles(volumes: Sequence[Local]) -> list[Local]:
    ids = [local.volume_id for local in volumes]
    return [dataclasses.replace(
        local, reason='two LVs here claim to be it')
        if ids.count(local.volume_id) > 1 else local for local in volumes]


def restore(stack_: stack.Stack, sessions_: sessions.Sessions
            ) -> list[tuple[Local, str]]:
    """Restore all that can be; one that fails does not stop the others.

    A volume that has a handle is left alone: the volume service may be at
    work on it.

    :returns: each volume with what is wrong with it, '' if nothing is
    """
    present = stack_.survey()
    outcome = []
    for local in plan(present):
        problem = local.reason
        if not problem and present.handle(local.volume_id) is None:
            try:
                _restore(stack_, sessions_, local)
            except exceptions.LocalCloneError as exc:
                problem = str(exc)
            except Exception as exc:
                LOG.exception('Volume %s was not restored.', local.volume_id)
                problem = '%s: %s' % (type(exc).__name__, exc)
        outcome.append((local, problem))
    return outcome


def _restore(stack_: stack.Stack, sessions_: sessions.Sessions,
             local: Local) -> None:
    move = local.move
    if move is None:
        stack_.ensure_handle_on_lv(local.volume_id, local.lv, local.size)
        return
    for lv in (local.lv, names.metadata_lv(move.shadow_id)):
        stack_.activate(lv)
    disk = sessions_.login_from_records(move)
    stack_.ensure_clone(move, disk)
    stack_.ensure_handle_on_clone(move)
