# SPDX-License-Identifier: Apache-2.0
"""The block stack of this node: look at it, build it, take it down.

::

    handle   dm-linear, one constant path per volume
    clone    dm-clone, only during a move (metadata LV | LV | source)
    LV       LVM, thin by default

Every effect does what is missing and returns whether it did anything. It
looks first, or takes "there already" for an answer: a look costs a command.
Sizes are bytes; device-mapper lengths are 512-byte sectors.
"""

import dataclasses
import json

from oslo_log import log as logging

from cinder_localclone.dm import tables
from cinder_localclone import exceptions
from cinder_localclone import names
from cinder_localclone.privileged import block
from cinder_localclone.privileged import devicemapper
from cinder_localclone.privileged import lvm
from cinder_localclone import state

LOG = logging.getLogger(__name__)

#: How much of a new handle is read before it is given out, in bytes. Nova
#: formats a LUKS volume whose header it cannot read.
HEAD = 1 << 20


@dataclasses.dataclass(frozen=True)
class LogicalVolume:
    """A logical volume as found.

    :param size: bytes
    :param number: ``major:minor`` while active, else ''
    :param zeroes: whether a thin pool zeroes blocks it hands out
    :param allocated: bytes that a thin volume, or thin pool, uses
    """

    group: str
    name: str
    size: int
    number: str
    tags: frozenset[str]
    thin: bool = False
    zeroes: bool = False
    allocated: int = 0


@dataclasses.dataclass(frozen=True)
class FreeSpace:
    """What can be taken in.

    :param volumes: bytes that volumes may yet fill
    :param metadata: bytes for move metadata
    :param shared: whether both come out of the same free extents
    """

    volumes: int
    metadata: int
    shared: bool

    def lacks(self, size: int, metadata: int) -> str:
        """Why a volume of ``size`` bytes does not fit; '' if it does."""
        wanted = [('volumes', self.volumes, size),
                  ('move metadata', self.metadata, metadata)]
        if self.shared:
            wanted = [('volumes and metadata', self.volumes,
                       size + metadata)]
        return '; '.join(
            '%d MiB free for %s, %d MiB needed' % (
                free >> 20, what, needed >> 20)
            for what, free, needed in wanted if free < needed)


@dataclasses.dataclass(frozen=True)
class Capacity:
    """Bytes in all, free and promised to volumes; number of volumes."""

    total: int
    free: int
    provisioned: int
    volumes: int


@dataclasses.dataclass(frozen=True)
class Survey:
    """What LVM and device-mapper show on this node at one moment."""

    lvs: dict[str, LogicalVolume]
    devices: dict[str, tables.Device]

    def handle(self, volume_id: str) -> tables.Device | None:
        return self.devices.get(names.handle(volume_id))

    def clone(self, shadow_id: str) -> tables.Device | None:
        return self.devices.get(names.clone(shadow_id))

    def metadata(self, shadow_id: str) -> LogicalVolume | None:
        return self.lvs.get(names.metadata_lv(shadow_id))

    def handle_is_on_lv(self, volume_id: str, lv: str) -> bool:
        handle, body = self.handle(volume_id), self.lvs.get(lv)
        return bool(handle and body and body.number and not handle.suspended
                    and handle.uses() == (body.number,))

    def volumes_above(self, group: str, lv: str | None = None) -> set[str]:
        """The volumes whose handles are above a group's LVs, or one of them.

        Handles of other backends on this node are none of them.
        """
        numbers = {found.number for found in self.lvs.values()
                   if found.group == group and lv in (None, found.name)}
        numbers |= {clone.number for clone in self.devices.values()
                    if clone.target == 'clone'
                    and numbers.intersection(clone.uses())}
        return {names.volume_of_handle(name)
                for name, handle in self.devices.items()
                if numbers.intersection(handle.uses())} - {None}

    def handle_is_on_clone(self, volume_id: str, shadow_id: str) -> bool:
        handle, body = self.handle(volume_id), self.clone(shadow_id)
        return bool(handle and body and not handle.suspended
                    and handle.uses() == (body.number,))


def parse_volumes(text: str) -> dict[str, LogicalVolume]:
    """Read what ``privileged.lvm.volumes`` reports: LVs by name."""
    return {row['lv_name']: LogicalVolume(
        group=row['vg_name'], name=row['lv_name'], size=int(row['lv_size']),
        number='' if int(row['lv_kernel_major']) < 0 else '%s:%s' % (
            row['lv_kernel_major'], row['lv_kernel_minor']),
        tags=frozenset(filter(None, row['lv_tags'].split(','))),
        thin=row['lv_attr'].startswith('V'), zeroes=row['zero'] == 'zero',
        allocated=int(int(row['lv_size']) * float(
            row['data_percent'] or 0) / 100),
    ) for row in json.loads(text)['report'][0]['lv']}


def parse_free(text: str) -> dict[str, int]:
    """Read what ``privileged.lvm.free`` reports: bytes by group."""
    return {row['vg_name']: int(row['vg_free'])
            for row in json.loads(text)['report'][0]['vg']}


class Stack:
    """The stack of one backend on this node.

    :param group: volume group of the volumes
    :param pool: its thin pool; None for thick volumes
    :param metadata_group: volume group of the moves' metadata
    :param timeout: limit of each command, seconds
    """

    def __init__(self, group: str, pool: str | None, metadata_group: str,
                 timeout: float):
        self.group = group
        self.pool = pool
        self.metadata_group = metadata_group
        self.timeout = timeout
        self._groups = sorted({group, metadata_group})

    # -- looking

    def survey(self) -> Survey:
        return Survey(self.lvs(), self.devices())

    def lvs(self) -> dict[str, LogicalVolume]:
        return parse_volumes(lvm.volumes(self._groups, self.timeout))

    def devices(self) -> dict[str, tables.Device]:
        """The driver's own device-mapper devices."""
        info, table = devicemapper.survey(self.timeout)
        live = tables.parse_tables(table)
        return {
            name: dataclasses.replace(device, table=live.get(name, ''))
            for name, device in tables.parse_info(info).items()
            if device.uuid.startswith(names.device_uuid(''))}

    def free_space(self) -> FreeSpace:
        """What this node can take in.

        A copy fills all of its volume, so volumes still on their way here
        count with what they have not yet filled.
        """
        free = parse_free(lvm.free(self._groups, self.timeout))
        metadata = free[self.metadata_group]
        if not self.pool:
            return FreeSpace(free[self.group], metadata,
                             self.group == self.metadata_group)
        lvs = self.lvs()
        pool = lvs[self.pool]
        arriving = {names.shadow_of_metadata(name) for name in lvs} - {None}
        unfilled = sum(lv.size - lv.allocated for lv in lvs.values()
                       if lv.thin and lv.name[-36:] in arriving)
        return FreeSpace(pool.size - pool.allocated - unfilled, metadata,
                         False)

    def capacity(self) -> Capacity:
        """What the scheduler is told."""
        lvs = self.lvs()
        rows = json.loads(lvm.free([self.group], self.timeout))
        group = rows['report'][0]['vg'][0]
        total, free = int(group['vg_size']), int(group['vg_free'])
        volumes = [lv for lv in lvs.values() if lv.group == self.group
                   and bool(lv.thin) == bool(self.pool)]
        if self.pool:
            pool = lvs[self.pool]
            total, free = pool.size, pool.size - pool.allocated
        return Capacity(total, free, sum(lv.size for lv in volumes),
                        len(volumes))

    def pool_usage(self) -> tuple[float, float]:
        """Percent of the thin pool's data and metadata in use; 0 if none."""
        rows = json.loads(lvm.volumes(self._groups, self.timeout))
        for row in rows['report'][0]['lv']:
            if row['lv_name'] == self.pool:
                return (float(row['data_percent'] or 0),
                        float(row['metadata_percent'] or 0))
        return 0.0, 0.0

    def pool_zeroes(self) -> bool:
        """Whether the thin pool zeroes blocks before it hands them out."""
        return self.lvs()[self.pool].zeroes

    def clone_status(self, shadow_id: str) -> tables.CloneStatus:
        return tables.parse_clone_status(devicemapper.status(
            names.clone(shadow_id), self.timeout))

    @staticmethod
    def completed_reads(disk: str) -> int:
        """How many reads a source's disk has completed, failed ones too."""
        return block.completed_reads(disk)

    # -- logical volumes

    def create_lv(self, name: str, size_bytes: int, volume_id: str) -> bool:
        """Create the LV of a volume, thin or thick as configured.

        It is tagged with the volume's id, for :mod:`.restore`. Once this
        returns, the LV and all that was created before outlive a power cut.
        """
        tags = names.tags(volume=volume_id)
        if self.pool:
            created = lvm.create_thin(self.group, self.pool, name, size_bytes,
                                      tags, self.timeout)
        else:
            created = lvm.create_thick(self.group, name, size_bytes, tags,
                                       self.timeout)
        if created:
            lvm.flush_pvs(self._groups, self.timeout)
        return created

    def activate(self, name: str) -> bool:
        found = self.lvs().get(name)
        return found is not None and self._activate(found)

    def _activate(self, lv):
        if lv.number:
            return False
        lvm.activate(lv.group, lv.name, self.timeout)
        return True

    def remove_lv(self, name: str) -> bool:
        """Remove an LV, so that it does not come back after a power cut."""
        group = (self.metadata_group if names.shadow_of_metadata(name)
                 else self.group)
        removed = lvm.remove(group, name, self.timeout)
        if removed:
            lvm.flush_pvs([group], self.timeout)
        return removed

    def create_metadata(self, move: state.Move) -> bool:
        """Create the metadata LV and zero its head: once, marked by a tag.

        More tags say what :mod:`.restore` needs to know of the move.
        """
        name = names.metadata_lv(move.shadow_id)
        if not lvm.create_thick(
                self.metadata_group, name,
                move.geometry.metadata_bytes(move.size_bytes),
                names.tags(
                    volume=move.volume_id, geometry=move.geometry,
                    source=move.source_iqn), self.timeout):
            found = self.lvs()[name]
            activated = self._activate(found)
            if names.METADATA_READY in found.tags:
                return activated
        block.zero_head(names.lv_path(self.metadata_group, name),
                        self.timeout)
        lvm.add_tag(self.metadata_group, name, names.METADATA_READY,
                    self.timeout)
        return True

    # -- the clone

    def ensure_clone(self, move: state.Move, source: str) -> bool:
        """The clone over LV, metadata LV and the source's disk.

        A clone that stands is left alone while it reads from this very
        disk. If the disk has come back under another number, the clone is
        suspended before its table is loaded anew: the kernel copies the
        bitmap at load, and one that is live goes stale.

        One whose metadata failed is loaded anew only while nothing has the
        handle open: a guest's writes that it has completed, but could not
        record, would vanish under it.
        """
        name = names.clone(move.shadow_id)
        devices = self.devices()
        found = devices.get(name)
        number = block.number(source)
        if found and found.target == 'clone' and not found.suspended:
            handle = devices.get(names.handle(move.volume_id))
            if found.uses()[2] == number and (
                    (handle and handle.opened)
                    or self.clone_status(move.shadow_id).mode == 'rw'):
                # Whoever built it may not have come to this.
                self._disable_discards(move)
                return False
        metadata = names.lv_path(self.metadata_group,
                                 names.metadata_lv(move.shadow_id))
        self._check_metadata(move, metadata)
        table = tables.clone(
            move.size_bytes // state.SECTOR, metadata,
            names.lv_path(self.group, move.destination_lv), number,
            move.geometry)
        if found:
            devicemapper.replace_suspended(name, table, self.timeout)
        else:
            devicemapper.create(name, names.device_uuid(name), table,
                                self.timeout)
        self._disable_discards(move)
        return True

    @staticmethod
    def _disable_discards(move):
        """A clone refuses discards, and so does all that is stacked on it.

        A discard of a region that is being copied loses writes that follow
        it (measured on 6.1).
        """
        block.disable_discards(names.clone_path(move.shadow_id))

    def _check_metadata(self, move, path):
        found = block.size(path)
        needed = move.geometry.metadata_bytes(move.size_bytes)
        if found < needed:
            raise exceptions.MetadataTooSmall(
                device=path, volume=move.volume_id, found=found,
                needed=needed)
        # The kernel takes zeros for a new clone, of which nothing is local
        # (dm-clone-metadata.c). It is new only until the move is committed.
        if move.committed and block.head_is_zero(path, self.timeout):
            raise exceptions.MetadataLost(
                device=path, volume=move.volume_id)

    def set_hydration(self, shadow_id: str, enabled: bool) -> bool:
        if self.clone_status(shadow_id).enabled == enabled:
            return False
        devicemapper.message(
            names.clone(shadow_id),
            'enable_hydration' if enabled else 'disable_hydration',
            self.timeout)
        return True

    def wake_hydration(self, thresholds: dict[str, int]) -> list[str]:
        """Make the kernel look whether clones can go on copying.

        :param thresholds: regions at once, as they are, by shadow id
        :returns: the shadow ids of clones that are gone
        """
        missing = devicemapper.send([
            (names.clone(shadow_id), 'hydration_threshold %d' % threshold)
            for shadow_id, threshold in thresholds.items()])
        return [names.shadow_of_clone(name) for name in missing]

    def remove_clone(self, shadow_id: str) -> bool:
        return self._remove_device(names.clone(shadow_id))

    # -- the handle

    def ensure_handle_on_lv(self, volume_id: str, lv: str,
                            size_bytes: int) -> bool:
        survey = self.survey()
        if survey.handle_is_on_lv(volume_id, lv):
            return False
        if lv not in survey.lvs:
            raise exceptions.MissingData(
                what='Logical volume %s' % lv, volume=volume_id,
                host='this node')
        self._activate(survey.lvs[lv])
        return self._ensure_handle(
            survey, volume_id,
            names.lv_path(survey.lvs[lv].group, lv), size_bytes)

    def ensure_handle_on_clone(self, volume_id: str, shadow_id: str,
                               size_bytes: int) -> bool:
        survey = Survey({}, self.devices())
        if survey.handle_is_on_clone(volume_id, shadow_id):
            return False
        return self._ensure_handle(
            survey, volume_id, names.clone_path(shadow_id), size_bytes)

    def _ensure_handle(self, survey, volume_id, body, size_bytes):
        name = names.handle(volume_id)
        table = tables.linear(size_bytes // state.SECTOR, body)
        if name in survey.devices:
            devicemapper.swap_table(name, table, self.timeout)
        else:
            devicemapper.create(name, names.device_uuid(name), table,
                                self.timeout)
        return True

    def remove_handle(self, volume_id: str) -> bool:
        return self._remove_device(names.handle(volume_id))

    def _remove_device(self, name):
        return devicemapper.remove(name, self.timeout)

    # -- data

    def read_head(self, volume_id: str) -> None:
        """Prove that a handle can be read, in a child with a time limit."""
        block.read_head(names.handle_path(volume_id), HEAD, self.timeout)

    def flush_handle(self, volume_id: str) -> None:
        """Everything written so far is on stable storage afterwards."""
        block.flush(names.handle_path(volume_id), self.timeout)

    def flush_lv(self, lv: str) -> None:
        block.flush(names.lv_path(self.group, lv), self.timeout)
