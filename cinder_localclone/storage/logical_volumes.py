# SPDX-License-Identifier: Apache-2.0
"""The logical volumes of this node, its thin pool and its free space.

The module is not called lvm: most modules which use it also import the
privileged functions of the same name.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import dataclasses
import socket
import time

from oslo_utils import units

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core.interfaces import storage
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import lvm
from cinder_localclone.storage.privsep import thin_pool

#: Bytes of a thick LV zeroed by a single command. Each command has the time
#: limit.
ZEROED_AT_ONCE = 1 << 28
#: Minimum free bytes for LVM's archive of a group's metadata: enough for a
#: thousand volumes.
ARCHIVE = units.Mi


class Lvm(storage.Lvm):
    """The logical volumes of a backend on this node.

    :param group: volume group of the volumes
    :param pool: its thin pool; None for thick volumes
    :param metadata_group: volume group of the moves' metadata
    :param timeout: limit of each command, seconds
    :param host: name of this node in errors; by default its host name
    :param stripes: number of disks over which a new thick volume is striped
    """

    def __init__(self, group: str, pool: str | None, metadata_group: str,
                 timeout: float, host: str | None = None,
                 stripes: int = 1) -> None:
        self.group = group
        self.pool = pool
        self.metadata_group = metadata_group
        self.timeout = timeout
        self.host = host or socket.gethostname()
        self.stripes = 1 if pool else stripes
        self._groups = sorted({group, metadata_group})
        self._block = self._extent = 0

    # -- reads

    def lvs(self) -> dict[str, lvm_reports.LogicalVolume]:
        return lvm_reports.parse_volumes(
            lvm.volumes(self._groups, self.timeout))

    def free_space(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                   | None = None) -> lvm_reports.FreeSpace:
        if lvs is None and self.pool:
            lvs = self.lvs()
        return self._free_space(self._free_of_groups(lvs or {}), lvs or {})

    def _free_of_groups(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                        ) -> dict[str, lvm_reports.Group]:
        groups = lvm_reports.groups(lvs.values())
        if not groups.keys() >= {*self._groups}:  # a group has no LV
            groups = lvm_reports.parse_groups(
                lvm.free(self._groups, self.timeout))
        if self.stripes > 1:
            groups[self.group] = dataclasses.replace(
                groups[self.group], free=lvm_reports.free_for_stripes(
                    lvm.free_of_disks(self.group, self.timeout),
                    self.stripes))
        return groups

    def check_groups(
            self, lvs: Mapping[str, lvm_reports.LogicalVolume]) -> None:
        """Check that LVM can create and change LVs.

        :param lvs: LVs as just listed
        :raises DiskMissing: if a group lacks a disk
        :raises NoArchive: if LVM's archive of metadata has no free space
        """
        for group, found in sorted(self._free_of_groups(lvs).items()):
            if found.lacks:
                raise exceptions.DiskMissing(
                    group=group, host=self.host, count=found.lacks)
        directory, left = lvm.archive_space(self.timeout)
        if directory and left < ARCHIVE:
            raise exceptions.NoArchive(
                host=self.host, directory=directory, free=left >> 10)

    def _free_space(self, groups: Mapping[str, lvm_reports.Group],
                    lvs: Mapping[str, lvm_reports.LogicalVolume]
                    ) -> lvm_reports.FreeSpace:
        metadata = groups[self.metadata_group].free
        if not self.pool:
            return lvm_reports.FreeSpace(groups[self.group].free, metadata,
                                         self.group == self.metadata_group)
        return lvm_reports.FreeSpace(
            lvm_reports.free_in_pool(lvs, self.pool), metadata, False)

    def space(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
              ) -> tuple[lvm_reports.FreeSpace, lvm_reports.Capacity]:
        """Return this node's free space, and the capacity for the scheduler.

        :param lvs: LVs as just listed
        """
        groups = self._free_of_groups(lvs)
        return self._free_space(groups, lvs), lvm_reports.capacity(
            lvs, self.group, groups[self.group], self.pool)

    def own_block(self) -> int:
        if not self._block:
            self._block = max((block.logical_block(path) for path in
                               lvm.physical_volumes(self.group, self.timeout)
                               ), default=0)
        if not self._block:
            raise exceptions.OddDisks(group=self.group, host=self.host)
        return self._block

    @staticmethod
    def logical_block(path: str) -> int:
        return block.logical_block(path)

    def pool_usage(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                   | None = None) -> lvm_reports.Usage:
        if lvs is None and self.pool:
            lvs = self.lvs()
        return lvm_reports.pool_usage(lvs or {}, self.pool)

    def pool_transactions(self, pool: str) -> tuple[int, int | None]:
        """Return a thin pool's transaction ids, by LVM and by the kernel.

        Different ids are read a second time, because an LVM command may have
        been changing the pool.
        """
        found = lvm.transactions(self.group, pool, self.timeout)
        return found if found[0] == found[1] else lvm.transactions(
            self.group, pool, self.timeout)

    def holes(self, lv: str, size_bytes: int, geometry: state.Geometry,
              patient: bool = False) -> thin_map.Holes:
        return thin_pool.largest_holes(
            self.group, lv, size_bytes, geometry.region_sectors * state.SECTOR,
            self.timeout if patient else min(self.timeout, thin_pool.LIMIT))

    def release_map(self) -> bool:
        """Release a metadata snapshot left by a killed service."""
        return self.pool is not None and thin_pool.release_metadata_snapshot(
            self.group, self.pool, self.timeout)

    def reads_zeros(self, name: str) -> bool:
        lvs = self.lvs()
        return name in lvs and lvs[
            name].thin and lvm_reports.zeroes_new_blocks(
                lvs, lvs[name].pool)

    # -- changes

    def create_lv(self, name: str, size_bytes: int, volume_id: str,
                  covered: bool = False, extra_bytes: int = 0,
                  lvs: Mapping[str, lvm_reports.LogicalVolume] | None = None,
                  uncommitted: bool = False) -> bool:
        self._check_pool_zeroes(lvs)
        self.check_disks()
        tags = [*names.volume_tags(volume_id, extra_bytes),
                *(names.uncommitted(self.host) if uncommitted else [])]
        if self._rounded(size_bytes) - size_bytes >= state.GIB:
            tags.append(names.given(size_bytes))
        if self.pool:
            created = lvm.create_thin(
                self.group, self.pool, name, size_bytes, tags, self.timeout)
            if not created:  # the node may have rebooted since
                self.activate(name)
            return created
        created = lvm.create_thick(
            self.group, name, size_bytes,
            [*tags, names.shown(size_bytes if covered else 0)],
            self.timeout, stripes=self.stripes)
        return self._zero_rest(name) or created

    def _rounded(self, size_bytes: int) -> int:
        """Return the length of a new LV in bytes: LVM rounds up to extents."""
        if not self._extent:
            self._extent = lvm.extent_size(self.group, self.timeout)
        piece = self._extent * self.stripes
        return -(-size_bytes // piece) * piece

    def check_disks(self) -> None:
        """Check that the group has enough disks for a new striped volume.

        :raises TooFewDisks: if it has fewer disks than stripes
        """
        if self.stripes > 1:
            disks = len(lvm.free_of_disks(self.group, self.timeout))
            if disks < self.stripes:
                raise exceptions.TooFewDisks(
                    group=self.group, host=self.host, disks=disks,
                    stripes=self.stripes)

    def _check_pool_zeroes(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                           | None = None) -> None:
        if self.pool and not lvm_reports.zeroes_new_blocks(
                self.lvs() if lvs is None else lvs, self.pool):
            raise exceptions.PoolDoesNotZero(
                pool='%s/%s' % (self.group, self.pool), host=self.host)

    def create_snapshot(self, snapshot_id: str, origin: str,
                        volume_id: str) -> None:
        self._snapshot(origin, names.snapshot_lv(snapshot_id), False,
                       [*names.tags(snapshot=snapshot_id, of=volume_id),
                        names.node_tag(self.host)])

    def create_copy(self, name: str, image: str, image_bytes: int,
                    size_bytes: int, volume_id: str,
                    extra_bytes: int = 0) -> None:
        lvs = self.lvs()
        self._check_pool_zeroes(lvs)
        tags = [*names.volume_tags(volume_id, extra_bytes),
                *names.uncommitted(self.host)]
        length = lvs[image].size if image in lvs else image_bytes
        copied = min(length, image_bytes, size_bytes)
        if length > copied:
            tags.append(names.shown(copied))
        self._snapshot(image, name, True, tags)
        if length > copied and size_bytes > copied:
            self._zero_rest(name)
        if size_bytes > length:
            lvm.extend(self.group, name, size_bytes, self.timeout)
        if size_bytes != length:
            self.show_lv(name, size_bytes)  # an extent may have several GiB

    def _snapshot(self, origin: str, name: str, writable: bool,
                  tags: list[str]) -> None:
        what = (self.group, origin, name, writable, tags, self.timeout)
        try:
            if not lvm.create_snapshot(*what):
                # An LV of a failed request: LVM may have taken the snapshot
                # later.
                lvm.remove(self.group, name, self.timeout)
                lvm.create_snapshot(*what)
        except exceptions.LocalCloneError:
            with contextlib.suppress(exceptions.LocalCloneError):
                self.resume(origin)  # on failure the next sweep repeats it
            raise

    def resume(self, name: str) -> bool:
        lv = self.lvs().get(name)
        if lv is None or not (lv.suspended and lv.number):
            return False
        lvm.resume(lv.number, self.timeout)
        return True

    def mark_uncommitted(self, name: str) -> None:
        lvm.retag(self.group, name, names.uncommitted(self.host), [],
                  self.timeout)

    def accept(self, name: str) -> None:
        lvm.retag(self.group, name, [], names.uncommitted(self.host),
                  self.timeout)

    def mark(self, name: str, tag: str) -> None:
        lvm.add_tag(self.group, name, tag, self.timeout)

    def unmark(self, name: str, tag: str) -> None:
        lvm.remove_tag(self.group, name, tag, self.timeout)

    # -- LVs of other tools

    def adopt(self, name: str, own_name: str, tags: Iterable[str]) -> None:
        self._check_pool_zeroes()
        lvm.retag(self.group, name, list(tags), [], self.timeout)
        if name != own_name:
            lvm.rename(self.group, name, own_name, self.timeout)

    def disown(self, name: str, new_name: str) -> bool:
        lvs = self.lvs()
        lv = lvs.get(name)
        tags = names.own_tags(lv.tags) if lv else []
        if lv is None or not tags:
            return False
        # an unreadable tag stays
        with contextlib.suppress(exceptions.UnreadableTag):
            if lv.zeroed >= lv.size:
                # The tag is left from a failed extension. After the owner
                # extends the LV, the driver would zero the owner's data
                # because of it.
                tags += sorted({names.shown(lv.zeroed)} & lv.tags)
        if new_name not in lvs:
            lvm.rename(self.group, name, new_name, self.timeout)
            name = new_name
        lvm.retag(self.group, name, [], tags, self.timeout)
        return True

    def protect(self, name: str) -> None:
        if not self._existing(name).readonly:
            lvm.protect(self.group, name, self.timeout)
        lvm.skip_activation(self.group, name, self.timeout)
        lvm.deactivate(self.group, name, self.timeout)

    def deactivate(self, name: str) -> None:
        lvm.deactivate(self.group, name, self.timeout)

    def extend_lv(self, name: str, size_bytes: int) -> bool:
        lv = self.lvs().get(name)
        enough = lv is not None and lv.size >= size_bytes
        if lv and not (enough and lv.zeroed == lv.size):
            # The LV may be of another kind (thin or thick) than the backend
            # has now.
            self._retag(lv, [names.given(lv.shown), *(
                [] if lv.thin else [names.shown(lv.zeroed)])], [])
        if not enough:
            lvm.extend(self.group, name, size_bytes, self.timeout)
        return not enough

    def _retag(self, lv: lvm_reports.LogicalVolume, added: list[str],
               removed: list[str]) -> None:
        """Add and remove tags of an LV; skip tags which are right already."""
        added = [tag for tag in added if tag not in lv.tags]
        removed = [tag for tag in removed if tag in lv.tags]
        if added or removed:
            lvm.retag(self.group, lv.name, added, removed, self.timeout)

    def zero_part(self, name: str, start: int = 0, seconds: float = 0
                  ) -> int:
        lv, until = self._located(name), time.monotonic() + seconds
        start = self._zero(lv, start)
        while start and time.monotonic() < until:
            start = self._zero(lv, start)
        return start

    def _zero(self, lv: lvm_reports.LogicalVolume, start: int) -> int:
        """Do the work of :func:`zero_part` for an active LV."""
        if names.shown(lv.zeroed) not in lv.tags:
            return 0
        start = max(start, lv.zeroed)
        if start < lv.size:
            count = min(ZEROED_AT_ONCE, lv.size - start)
            lvm.zero(self.group, lv.name, start, count, self.timeout)
            return start + count
        if lv.zeroed < lv.size:
            self.flush_lv(lv.name)
        lvm.remove_tag(self.group, lv.name, names.shown(lv.zeroed),
                       self.timeout)
        return 0

    def note_zeroed(self, name: str, end: int) -> None:
        self.flush_lv(name)
        lv = self._existing(name)
        if lv.zeroed < min(end, lv.size):
            self._retag(lv, [names.shown(min(end, lv.size))],
                        [names.shown(lv.zeroed)])

    def show_lv(self, name: str, size_bytes: int) -> None:
        lv = self._existing(name)
        if lv.zeroed < min(size_bytes, lv.size):
            raise exceptions.NotPossible(
                volume=names.facts(lv.tags).get('volume', ''),
                reason='its LV %s is not zeroed to its end. Extend the '
                'volume again.' % name)
        # A smaller difference comes from LVM's rounding to whole extents, a
        # larger one from a failed extension.
        longer = lv.size - size_bytes >= state.GIB
        self._retag(lv, [names.given(size_bytes)] if longer else [], [
            tag for tag in names.with_fact(lv.tags, 'given')
            if not (longer and tag == names.given(size_bytes))])

    def _zero_rest(self, name: str) -> bool:
        """Zero the rest of an LV.

        :returns: False if all of it was zeroed already
        """
        lv = self._located(name)
        start, zeroed = self._zero(lv, 0), lv.zeroed < lv.size
        while start:
            start = self._zero(lv, start)
        return zeroed

    def number_of(self, name: str) -> str:
        return block.lv_number(self._group_of(name), name)

    def activate(self, name: str, lvs: Mapping[
            str, lvm_reports.LogicalVolume] | None = None) -> bool:
        if lvs is None:
            if self.number_of(name):
                return False
            lvs = self.lvs()
        lv = lvs.get(name)
        if lv is None or lv.number:
            return False
        lvm.activate(lv.group, lv.name, self.timeout)
        return True

    def device_of(self, name: str) -> str:
        """Activate an LV of a volume, and return its path.

        :raises WrongDevice: if the path does not lead to the LV
        """
        self._located(name)
        return names.lv_path(self.group, name)

    def _existing(self, name: str) -> lvm_reports.LogicalVolume:
        """Return an LV as LVM lists it now.

        :raises MissingData: if there is none
        """
        lv = self.lvs().get(name)
        if lv is None:
            raise exceptions.MissingData(
                what='Logical volume %s' % name,
                volume=next(iter(names.ids_in(name)), name), host=self.host)
        return lv

    def _located(self, name: str) -> lvm_reports.LogicalVolume:
        """Activate an LV, and return it if its path leads to it.

        :raises WrongDevice: if the path does not lead to the LV
        """
        self.activate(name)
        lv = self.lvs().get(name)
        path = names.lv_path(self.group, name)
        number = block.number(path)
        if lv is None or not number or number != lv.number:
            raise exceptions.WrongDevice(
                path=path, found=number or 'nothing')
        return lv

    def remove_lv(self, name: str) -> bool:
        return lvm.remove(self._group_of(name), name, self.timeout)

    def _group_of(self, name: str) -> str:
        return (self.metadata_group if names.move_of_metadata(name)
                else self.group)

    def flush_lv(self, lv: str) -> None:
        block.flush(names.lv_path(self.group, lv), self.timeout)
