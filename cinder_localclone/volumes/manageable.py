# SPDX-License-Identifier: Apache-2.0
"""Which logical volumes may become volumes or snapshots, and why not. Pure.

Cinder's tables and LVM's tags say what is somebody's already. That a thin LV
has an origin says nothing: volumes that are made of others have one, too.
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
#: What Cinder is told of one.
Entry: typing.TypeAlias = dict[str, typing.Any]


def was_not_managed(status: str, size_gib: int) -> bool:
    """Whether Cinder has never taken what a volume was to be made of.

    It records a size when it has.
    """
    return status == 'error_managing_deleting' or not size_gib


def whole_gib(size_bytes: int) -> int:
    """The GiB that hold so many bytes."""
    whole: int = -(-size_bytes // units.Gi)
    return whole


def whole_bytes(size_bytes: int) -> int:
    """The same in bytes."""
    rounded: int = whole_gib(size_bytes) * units.Gi
    return rounded


def find(lvs: LVs, group: str, reference: Mapping[str, str]
         ) -> lvm_reports.LogicalVolume | None:
    """The LV that a reference names.

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
    """Why an LV can't become a volume; '' if it can.

    :param pool: the backend's thin pool; None if its volumes are thick
    :param known: names of LVs that belong to Cinder's volumes, with the ids
        of these
    """
    facts = names.facts(lv.tags)
    if lv.name in known:
        return MANAGED
    if not _is_ordinary(lv, pool):
        return ('it is not a thin volume of the pool %s' % pool if pool else
                'it is not an ordinary (linear) one')
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
    """Why an LV can't become a snapshot; '' if it can.

    :param known: names of LVs that belong to Cinder's snapshots, or volumes
    :param volume_id: the volume that it is to be a snapshot of, if one is
        named
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
    """Whether name or tags say so."""
    return ('snapshot' in names.facts(lv.tags)
            or lv.name.startswith(names.snapshot_lv('')))


def _why_not_now(lv: lvm_reports.LogicalVolume) -> str:
    if lv.suspended:
        return 'it is suspended'
    return 'it is open' if lv.opened else ''


def volumes(lvs: LVs, group: str, pool: str | None,
            known: Mapping[str, str]) -> list[Entry]:
    """All that is, or could be, a volume, as Cinder lists it.

    :param known: as for :func:`why_no_volume`
    """
    return [_entry(lv, known.get(lv.name), why_no_volume(lv, pool, known))
            for lv in lvs.values()
            if lv.group == group and _is_ordinary(lv, pool)
            and not names.move_of_metadata(lv.name)
            and not is_snapshot(lv)]


def snapshots(lvs: LVs, group: str, pool: str | None,
              known: Mapping[str, str]) -> list[Entry]:
    """All that is, or could be, a snapshot, as Cinder lists it.

    :param known: names of LVs that belong to Cinder's snapshots, with the
        ids of these
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
