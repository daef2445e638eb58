# SPDX-License-Identifier: Apache-2.0
"""Logical volumes, volume groups and free space as values. Pure.

Formats: lvs(8), vgs(8) and lvmreport(7) with ``--reportformat json --units b
--nosuffix``, as :mod:`.lvm` requests them. All sizes are in bytes.
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

#: Percent of a thin pool's data and metadata in use at which the pool counts
#: as full. See also :func:`metadata_limit`.
FULL_DATA, FULL_METADATA = 95.0, 90.0


@dataclasses.dataclass(frozen=True)
class LogicalVolume:
    """A logical volume as LVM reports it.

    :param size: bytes
    :param number: ``major:minor`` while active, otherwise ''
    :param thin: whether it is a thin volume (not a pool)
    :param zeroes: whether a thin pool zeroes new blocks
    :param allocated: bytes in use by a thin volume, or in a thin pool
    :param suspended: whether its device is suspended: I/O waits
    :param uuid: LVM's own id of the LV
    :param plain: whether it is neither thin nor part or container of other LVs
    :param pool: the thin pool of a thin volume
    :param origin: the origin of a thin snapshot, while this exists
    :param opened: whether its device is in use
    :param metadata_size: bytes of a thin pool's own metadata
    :param metadata_used: bytes in use of this metadata
    :param group_size: bytes of its volume group
    :param group_free: free bytes of the group
    :param group_changes: LVM's sequence number of the group
    :param group_lacks: number of the group's missing disks
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
        """By how many bytes the LV is longer than its volume."""
        return self._number('extra', 0)

    @property
    def zeroed(self) -> int:
        """Bytes from the beginning without deleted data of other volumes.

        Less than the size while a thick LV is created or extended.
        """
        return self._number('shown', self.size)

    @property
    def shown(self) -> int:
        """Bytes from the beginning visible to users of the volume.

        Less than the size during an extension, and after a failed extension.
        """
        return min(self.size, self.zeroed, self.given)

    @property
    def backing(self) -> int:
        """Visible bytes of its volume's backing device: whole GiB and extra.

        LVM rounds an LV up to whole extents of each stripe. The device above
        the handle of an encrypted volume would show its user all of it.
        """
        gib = self.shown - self.extra >> 30
        return state.backing_bytes(gib, self.extra) if gib > 0 else self.shown

    @property
    def given(self) -> int:
        """Bytes seen by users so far; see :func:`.names.given`."""
        return self._number('given', self.size)

    def _number(self, fact: lvm_tags.Fact, default: int) -> int:
        """Return the number of bytes in a tag.

        :raises UnreadableTag: if the tag has no number, or there are two tags:
            an attacker with access to the disk, or a user of lvchange, can
            have set it
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
    """The size of a volume group and its free space, in bytes.

    :param lacks: number of its missing disks
    """

    size: int
    free: int
    lacks: int = 0


@dataclasses.dataclass(frozen=True)
class FreeSpace:
    """The free space of a node.

    :param volumes: bytes for volumes
    :param metadata: bytes for move metadata
    :param shared: whether both come from the same free extents
    """

    volumes: int
    metadata: int
    shared: bool

    def why_too_small(self, size: int, metadata: int) -> str:
        """Return why a volume does not fit, in words; '' if it does.

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
    """The capacity of a backend, for the scheduler.

    :param total: bytes in all
    :param free: bytes neither written to yet nor needed by copies in progress;
        0 also if the pool counts as full
    :param provisioned: bytes promised to volumes and snapshots
    :param volumes: number of volumes
    """

    total: int
    free: int
    provisioned: int
    volumes: int


def bytes_to_write(lvs: Mapping[str, LogicalVolume]) -> int:
    """Return the bytes still to be written to a thin pool by known work.

    In a thin pool the LV of a moving volume reserves nothing: it fills as the
    copy proceeds, up to the copied length. A re-encryption fills the whole LV.
    """
    arriving = {move_id: lv for lv in lvs.values()
                if (move_id := names.move_of_metadata(lv.name))}
    found = 0
    for lv in lvs.values():
        metadata = (None if names.move_of_metadata(lv.name)
                    else names.find_by_id(arriving, lv.name))
        if lv.thin and metadata:
            # The part added by an extension is not copied.
            found += max(0, _copied(lv, metadata) - lv.allocated)
        elif lv.thin and names.REENCRYPTED in lv.tags:
            found += max(0, lv.size - lv.allocated)  # all is written
    return found


def _copied(lv: LogicalVolume, metadata: LogicalVolume) -> int:
    """Return the bytes to copy into an LV; its size if no tag names them."""
    copied = names.facts(metadata.tags).get('copied', '')
    try:
        return min(lv.size, state.backing_bytes(int(copied), metadata.extra))
    except (ValueError, exceptions.UnreadableTag):
        return lv.size


def free_in_pool(lvs: Mapping[str, LogicalVolume], pool: str) -> int:
    """Return the free bytes of a thin pool, less the needs of known work."""
    if pool_usage(lvs, pool).is_full:
        return 0
    return lvs[pool].size - lvs[pool].allocated - bytes_to_write(lvs)


def free_for_stripes(free: Iterable[int], stripes: int) -> int:
    """Return the free bytes for LVs with each stripe on another disk.

    :param free: bytes of each disk
    """
    disks = sorted(free, reverse=True)
    # A large disk is usable only as far as the other disks have space beside
    # it.
    return stripes * min(sum(disks[largest:]) // (stripes - largest)
                         for largest in range(stripes))


@dataclasses.dataclass(frozen=True)
class Usage:
    """The usage of a thin pool, in percent.

    :param data: of its data
    :param metadata: of its metadata
    :param limit: of the metadata, at which the pool counts as full
    """

    data: float = 0.0
    metadata: float = 0.0
    limit: float = FULL_METADATA

    @property
    def is_full(self) -> bool:
        """Whether the pool takes no new volume, snapshot or move.

        The rest is needed for writes of the present volumes.
        """
        return self.data >= FULL_DATA or self.metadata >= self.limit

    def __str__(self) -> str:
        return ('%.0f %% of its data and %.0f %% of its metadata are in use; '
                'the driver treats it as full at %.0f and %.0f %%' % (
                    self.data, self.metadata, FULL_DATA, self.limit))


def pool_usage(lvs: Mapping[str, LogicalVolume], pool: str | None) -> Usage:
    """Return the usage of a thin pool; 0 percent if there is none."""
    lv = lvs.get(pool or '')
    if lv is None:
        return Usage()
    return Usage(_percentage(lv.allocated, lv.size),
                 _percentage(lv.metadata_used, lv.metadata_size),
                 metadata_limit(lv.metadata_size))


def metadata_limit(size: int) -> float:
    """Return the percent of metadata in use at which a thin pool is full.

    LVM itself creates no thin LV if less than a quarter, or 4 MiB if this is
    less, is free (pool_metadata_min_threshold in thin_manip.c).

    :param size: bytes of the pool's metadata LV
    """
    reserve = min(25.0, 100.0 * 4 * units.Mi / size) if size else 25.0
    return min(FULL_METADATA, 100.0 - reserve)


def _percentage(used: int, size: int) -> float:
    return round(100.0 * used / size, 2) if size else 0.0


def zeroes_new_blocks(lvs: Mapping[str, LogicalVolume], pool: str) -> bool:
    """Return whether a thin pool zeroes new blocks."""
    return pool in lvs and lvs[pool].zeroes


def capacity(lvs: Mapping[str, LogicalVolume], name: str, group: Group,
             pool: str | None) -> Capacity:
    """Return the capacity of a backend, for the scheduler.

    :param name: its volume group
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
    """Parse the report of ``lvm.volumes``; return the LVs by name."""
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
    """Return the volume groups of some LVs, by name."""
    return {lv.group: Group(lv.group_size, lv.group_free, lv.group_lacks)
            for lv in lvs if lv.group_size}


def parse_groups(text: str) -> dict[str, Group]:
    """Parse the report of ``lvm.free``; return the volume groups by name."""
    return {row['vg_name']: Group(
        int(row['vg_size']), int(row['vg_free']),
        int(row['vg_missing_pv_count'])) for row in _rows(text, 'vg')}


def _rows(text: str, kind: str) -> list[dict[str, str]]:
    return typing.cast(list[dict[str, str]],
                       json.loads(text)['report'][0][kind])


def _percent(text: str) -> float:
    return float(text or 0)  # '' if not applicable
