# SPDX-License-Identifier: Apache-2.0
"""Decide whether an LV may become a volume or a snapshot. Pure.

Cinder's tables and LVM's tags show whether an LV has an owner. The origin of a
thin LV does not: a local clone has an origin, too.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import typing

from oslo_utils import units

from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names

MANAGED = 'it is managed already'
TO_WIPE = 'the driver is about to overwrite and remove it'

#: LVs by name.
LVs: typing.TypeAlias = Mapping[str, lvm_reports.LogicalVolume]
#: An entry of Cinder's list of manageable volumes or snapshots.
Entry: typing.TypeAlias = dict[str, typing.Any]


def was_not_managed(status: str, size_gib: int) -> bool:
    """Return whether managing a volume has ended before Cinder took it.

    Cinder records a size when it takes the volume.
    """
    return status == 'error_managing_deleting' or not size_gib


def whole_gib(size_bytes: int) -> int:
    """Return a length in bytes as GiB, rounded up."""
    whole: int = -(-size_bytes // units.Gi)
    return whole


def whole_bytes(size_bytes: int) -> int:
    """Round a length in bytes up to a whole GiB."""
    rounded: int = whole_gib(size_bytes) * units.Gi
    return rounded


def find(lvs: LVs, group: str, reference: Mapping[str, str]
         ) -> lvm_reports.LogicalVolume | None:
    """Return the LV of a reference; None if it does not exist.

    :param group: the backend's volume group
    :param reference: has source-name, an LV's name; or source-id, its UUID
    :raises KeyError: if it has neither
    """
    if 'source-name' in reference:
        lv = lvs.get(reference['source-name'])
        return lv if lv and lv.group == group else None
    wanted = reference['source-id']
    return next((lv for lv in lvs.values()
                 if lv.group == group and lv.uuid == wanted), None)


def id_in(name: str) -> str:
    """Return the last id in an LV's name; '' if there is none."""
    return names.ids_in(name)[-1] if names.ids_in(name) else ''


def why_no_volume(lv: lvm_reports.LogicalVolume, pool: str | None,
                  known: Mapping[str, str]) -> str:
    """Return the reason why an LV can't become a volume; '' if it can.

    :param pool: the backend's thin pool; None if its volumes are thick
    :param known: ids of Cinder's volumes, by the names of their LVs
    """
    facts = names.facts(lv.tags)
    if lv.name in known:
        return MANAGED
    if not _is_ordinary(lv, pool):
        return ('it is not a thin volume of the pool %s' % pool if pool else
                'it is not an ordinary (linear) LV')
    if names.move_of_metadata(lv.name):
        return 'it is the metadata of a move'
    if names.is_to_wipe(lv.name):
        return TO_WIPE
    if 'volume' in facts:
        return 'it has data of volume %s (localclone.volume)' % (
            facts['volume'])
    if is_snapshot(lv):
        return 'it is a snapshot'
    if lv.readonly:
        return 'it is read-only'
    return _why_not_now(lv)


def why_no_snapshot(lv: lvm_reports.LogicalVolume, pool: str | None,
                    known: Iterable[str], lvs: LVs, volume_id: str = ''
                    ) -> str:
    """Return the reason why an LV can't become a snapshot; '' if it can.

    :param known: names of the LVs of Cinder's snapshots and volumes
    :param volume_id: the volume of the snapshot, if it is known
    """
    facts = names.facts(lv.tags)
    if lv.name in known or 'snapshot' in facts:
        return MANAGED
    if not (pool and _is_ordinary(lv, pool)):
        return 'it is not a thin volume of the pool %s' % pool
    if names.move_of_metadata(lv.name):
        return 'it is the metadata of a move'
    if 'volume' in facts:
        return 'it has data of volume %s (localclone.volume)' % (
            facts['volume'])
    origin = lvs.get(lv.origin)
    owner = names.facts(origin.tags).get('volume') if origin else None
    if volume_id and owner and owner != volume_id:
        return 'it is a snapshot of volume %s' % owner
    return _why_not_now(lv)


def _is_ordinary(lv: lvm_reports.LogicalVolume, pool: str | None) -> bool:
    return lv.thin and lv.pool == pool if pool else lv.plain


def is_snapshot(lv: lvm_reports.LogicalVolume) -> bool:
    """Return whether an LV is a snapshot by its name or its tags."""
    return ('snapshot' in names.facts(lv.tags)
            or lv.name.startswith(names.snapshot_lv('')))


def _why_not_now(lv: lvm_reports.LogicalVolume) -> str:
    if lv.suspended:
        return 'it is suspended'
    return 'it is open' if lv.opened else ''


def volumes(lvs: LVs, group: str, pool: str | None,
            known: Mapping[str, str]) -> list[Entry]:
    """List volumes, and LVs that can become a volume, as Cinder lists them.

    :param known: as for :func:`why_no_volume`
    """
    return [_entry(lv, known.get(lv.name), why_no_volume(lv, pool, known))
            for lv in lvs.values()
            if lv.group == group and _is_ordinary(lv, pool)
            and not names.move_of_metadata(lv.name)
            and not is_snapshot(lv)]


def snapshots(lvs: LVs, group: str, pool: str | None,
              known: Mapping[str, str]) -> list[Entry]:
    """List snapshots, and LVs that can become a snapshot, for Cinder.

    :param known: ids of Cinder's snapshots, by the names of their LVs
    """
    return [dict(_entry(lv, known.get(lv.name), why_no_snapshot(
        lv, pool, known, lvs)),
        source_reference={'source-name': lv.origin or None})
        for lv in lvs.values()
        if lv.group == group and pool and _is_ordinary(lv, pool)
        and (lv.origin or is_snapshot(lv))
        and 'volume' not in names.facts(lv.tags)]


def _entry(lv: lvm_reports.LogicalVolume, cinder_id: str | None, reason: str
           ) -> Entry:
    return {'reference': {'source-name': lv.name},
            'size': whole_gib(lv.size), 'safe_to_manage': not reason,
            'reason_not_safe': reason or None, 'cinder_id': cinder_id,
            'extra_info': {'source-id': lv.uuid}}
