# SPDX-License-Identifier: Apache-2.0
"""Logical volumes, volume groups and free space as values. Pure.

Formats: lvs(8), vgs(8) and lvmreport(7) with ``--reportformat json --units b
--nosuffix``, as :mod:`.lvm` asks. All sizes are
bytes.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import json
import typing

from oslo_utils import units

from cinder_localclone.core import exceptions
from cinder_localclone.core import lvm_tags
from cinder_localclone.core import names
from cinder_localclone.core import state

#: Percent of a thin pool's data, and of metadata however large they are, from
#: which on it takes no more.
FULL_DATA, FULL_METADATA = 95.0, 90.0


@dataclasses.dataclass(frozen=True)
class LogicalVolume:
    """A logical volume as LVM reports it.

    :param size: bytes
    :param number: ``major:minor`` while active, else ''
    :param thin: whether it is a thin volume (not whether it is a pool)
    :param zeroes: whether a thin pool zeroes blocks it hands out
    :param allocated: bytes that a thin volume, or thin pool, uses
    :param suspended: whether its device is: nobody can read or write it
    :param uuid: LVM's own id of it
    :param plain: whether it is neither thin nor a part or container of others
    :param pool: the thin pool of a thin volume
    :param origin: what a thin volume is a snapshot of, while that exists
    :param opened: whether anything has its device open
    :param metadata_size: bytes of a thin pool's own metadata
    :param metadata_used: bytes of these that are in use
    :param group_size: bytes of its group
    :param group_free: bytes of that which no LV has
    :param group_changes: how often the group was changed, as LVM counts it
    :param group_lacks: how many disks of the group are missing
    """

    group: str
    name: str
    size: int
    number: str
    tags: frozenset[str]
    thin: bool = False
    zeroes: bool = False
    allocated: int = 0
    suspended: bool = False
    uuid: str = ''
    plain: bool = False
    pool: str = ''
    origin: str = ''
    readonly: bool = False
    opened: bool = False
    metadata_size: int = 0
    metadata_used: int = 0
    group_size: int = 0
    group_free: int = 0
    group_changes: int = 0
    group_lacks: int = 0

    @property
    def extra(self) -> int:
        """By how much the body of its volume is longer than the volume."""
        return self._number('extra', 0)

    @property
    def zeroed(self) -> int:
        """Bytes, from the beginning, that have no deleted data of others.

        Less than all while a thick LV is created or extended.
        """
        return self._number('shown', self.size)

    @property
    def shown(self) -> int:
        """Bytes, from the beginning, that users of the volume may see.

        Less than all while the LV is extended, and after an extension that
        has failed.
        """
        return min(self.size, self.zeroed, self.given)

    @property
    def backing(self) -> int:
        """Bytes of its volume's body that users may see: whole GiB and extra.

        An LV is as long as whole extents are, of each stripe. What is above
        the handle of an encrypted volume would show its user all of that.
        """
        gib = self.shown - self.extra >> 30
        return state.backing_bytes(gib, self.extra) if gib > 0 else self.shown

    @property
    def given(self) -> int:
        """Bytes that users have seen; see :func:`.names.given`."""
        return self._number('given', self.size)

    def _number(self, fact: lvm_tags.Fact, default: int) -> int:
        """A fact in the tags that is a number of bytes.

        :raises UnreadableTag: if it is none, or there are two: whoever can
            write the disk, or calls lvchange, can have set it
        """
        found = names.with_fact(self.tags, fact)
        if not found:
            return default
        value = min(found).partition('=')[2]
        if len(found) > 1 or not (value.isascii() and value.isdecimal()):
            raise exceptions.UnreadableTag(
                lv=self.name, tags=', '.join(sorted(found)))
        return int(value)


@dataclasses.dataclass(frozen=True)
class Group:
    """The size of a volume group and what is free of it, in bytes.

    :param lacks: how many of its disks are missing
    """

    size: int
    free: int
    lacks: int = 0


@dataclasses.dataclass(frozen=True)
class FreeSpace:
    """What a node can take in.

    :param volumes: bytes that volumes may yet fill
    :param metadata: bytes for move metadata
    :param shared: whether both come out of the same free extents
    """

    volumes: int
    metadata: int
    shared: bool

    def lacks(self, size: int, metadata: int) -> str:
        """Why a volume does not fit, in words; '' if it does.

        :param size: bytes of the volume
        :param metadata: bytes of its move metadata
        """
        wanted = [('volumes', self.volumes, size),
                  ('move metadata', self.metadata, metadata)]
        if self.shared:
            wanted = [('volumes and metadata', self.volumes,
                       size + metadata)]
        return '; '.join(
            '%d MiB free for %s, %d MiB needed' % (
                free // units.Mi, what, needed // units.Mi)
            for what, free, needed in wanted if free < needed)


@dataclasses.dataclass(frozen=True)
class Capacity:
    """What the scheduler is told of a backend.

    :param total: bytes in all
    :param free: bytes that nothing is written to yet, nor will be by what is
        on its way; 0 also if it takes no more
    :param provisioned: bytes promised to volumes and snapshots
    :param volumes: how many volumes there are
    """

    total: int
    free: int
    provisioned: int
    volumes: int


def unfilled(lvs: Mapping[str, LogicalVolume]) -> int:
    """Bytes that volumes on their way into a thin pool may yet fill.

    The LV of a volume that arrives is what reserves its room. In a thin pool
    that is taken only as the copy comes, up to all that is copied. So does
    a re-encryption, up to all of the LV.
    """
    arriving = {move_id: lv for lv in lvs.values()
                if (move_id := names.move_of_metadata(lv.name))}
    found = 0
    for lv in lvs.values():
        metadata = (None if names.move_of_metadata(lv.name)
                    else names.find_by_id(arriving, lv.name))
        if lv.thin and metadata:
            # What it was extended by meanwhile is not copied.
            found += max(0, _copied(lv, metadata) - lv.allocated)
        elif lv.thin and names.REENCRYPTED in lv.tags:
            found += max(0, lv.size - lv.allocated)  # all of it is written
    return found


def _copied(lv: LogicalVolume, metadata: LogicalVolume) -> int:
    """Bytes that are copied into an LV; all of it if no tag says that."""
    copied = names.facts(metadata.tags).get('copied', '')
    try:
        return min(lv.size, state.backing_bytes(int(copied), metadata.extra))
    except (ValueError, exceptions.UnreadableTag):
        return lv.size


def free_in_pool(lvs: Mapping[str, LogicalVolume], pool: str) -> int:
    """Bytes that a thin pool may take in besides what is on its way."""
    if pool_usage(lvs, pool).is_full:
        return 0
    return lvs[pool].size - lvs[pool].allocated - unfilled(lvs)


def free_for_stripes(free: Iterable[int], stripes: int) -> int:
    """Bytes that LVs may take in that have each stripe on another disk.

    :param free: of each disk, in bytes
    """
    disks = sorted(free, reverse=True)
    # The largest ones can't give more than the others have beside them.
    return stripes * min(sum(disks[largest:]) // (stripes - largest)
                         for largest in range(stripes))


@dataclasses.dataclass(frozen=True)
class Usage:
    """How full a thin pool is, in percent.

    :param limit: of its metadata, from which on it takes no more
    """

    data: float = 0.0
    metadata: float = 0.0
    limit: float = FULL_METADATA

    @property
    def is_full(self) -> bool:
        """Whether it takes nothing more: no volume, snapshot or move.

        What its volumes still write needs the rest.
        """
        return self.data >= FULL_DATA or self.metadata >= self.limit

    def __str__(self) -> str:
        return ('%.0f %% of its data and %.0f %% of its metadata are in use; '
                'from %.0f and %.0f %% on it takes no more' % (
                    self.data, self.metadata, FULL_DATA, self.limit))


def pool_usage(lvs: Mapping[str, LogicalVolume], pool: str | None) -> Usage:
    """How full a thin pool is; there may be none."""
    lv = lvs.get(pool or '')
    if lv is None:
        return Usage()
    return Usage(_percentage(lv.allocated, lv.size),
                 _percentage(lv.metadata_used, lv.metadata_size),
                 metadata_limit(lv.metadata_size))


def metadata_limit(size: int) -> float:
    """Percent of a thin pool's metadata from which on it takes no more.

    LVM itself creates no thin LV when less than a quarter, or 4 MiB if that
    is less, is free (pool_metadata_min_threshold in thin_manip.c).

    :param size: of the pool's metadata LV, in bytes
    """
    reserve = min(25.0, 100.0 * 4 * units.Mi / size) if size else 25.0
    return min(FULL_METADATA, 100.0 - reserve)


def _percentage(used: int, size: int) -> float:
    return round(100.0 * used / size, 2) if size else 0.0


def zeroes(lvs: Mapping[str, LogicalVolume], pool: str) -> bool:
    """Whether a thin pool zeroes blocks before it hands them out."""
    return pool in lvs and lvs[pool].zeroes


def capacity(lvs: Mapping[str, LogicalVolume], name: str, group: Group,
             pool: str | None) -> Capacity:
    """What the scheduler is told of a backend.

    :param name: of the volume group with its volumes
    :param pool: its thin pool; None for thick volumes
    """
    volumes = [lv for lv in lvs.values() if lv.group == name
               and lv.thin == bool(pool)]
    total, free = group.size, group.free
    if pool:
        total, free = lvs[pool].size, max(0, free_in_pool(lvs, pool))
    snapshots = [lv for lv in volumes if 'snapshot' in names.facts(lv.tags)]
    return Capacity(total, free, sum(lv.size for lv in volumes),
                    len(volumes) - len(snapshots))


def parse_volumes(text: str) -> dict[str, LogicalVolume]:
    """Read what ``lvm.volumes`` reports: LVs by name."""
    return {row['lv_name']: LogicalVolume(
        group=row['vg_name'], name=row['lv_name'], size=int(row['lv_size']),
        number='' if int(row['lv_kernel_major']) < 0 else '%s:%s' % (
            row['lv_kernel_major'], row['lv_kernel_minor']),
        tags=frozenset(filter(None, row['lv_tags'].split(','))),
        thin=row['lv_attr'].startswith('V'), zeroes=row['zero'] == 'zero',
        allocated=int(int(row['lv_size']) * _percent(
            row['data_percent']) / 100),
        suspended=row['lv_attr'][4:5] in ('s', 'S'), uuid=row['lv_uuid'],
        plain=row['lv_attr'].startswith('-'), pool=row['pool_lv'],
        origin=row['origin'], readonly=row['lv_attr'][1:2] in ('r', 'R'),
        opened=row['lv_attr'][5:6] == 'o',
        metadata_size=int(row['lv_metadata_size'] or 0),
        metadata_used=int(int(row['lv_metadata_size'] or 0) * _percent(
            row['metadata_percent']) / 100),
        group_size=int(row['vg_size']), group_free=int(row['vg_free']),
        group_changes=int(row['vg_seqno']),
        group_lacks=int(row['vg_missing_pv_count']),
    ) for row in _rows(text, 'lv')}


def groups(lvs: Iterable[LogicalVolume]) -> dict[str, Group]:
    """The groups that LVs are in, by name, as they were listed."""
    return {lv.group: Group(lv.group_size, lv.group_free, lv.group_lacks)
            for lv in lvs if lv.group_size}


def parse_groups(text: str) -> dict[str, Group]:
    """Read what ``lvm.free`` reports: volume groups by name."""
    return {row['vg_name']: Group(
        int(row['vg_size']), int(row['vg_free']),
        int(row['vg_missing_pv_count'])) for row in _rows(text, 'vg')}


def _rows(text: str, kind: str) -> list[dict[str, str]]:
    return typing.cast(list[dict[str, str]],
                       json.loads(text)['report'][0][kind])


def _percent(text: str) -> float:
    return float(text or 0)  # '' where it does not apply
