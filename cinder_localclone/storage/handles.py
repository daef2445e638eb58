# SPDX-License-Identifier: Apache-2.0
"""Handles, and the upper devices above them."""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import random
import time

from oslo_utils import units

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey as surveys
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import links
from cinder_localclone.storage.privsep import lvm
from cinder_localclone.storage.privsep import refill
from cinder_localclone.storage.privsep import thin_pool

#: How much of a new handle is read before it is given out, in bytes. Nova
#: formats a LUKS volume whose header it cannot read.
HEAD = units.Mi

#: Sectors that a header has at most: no tool makes one that is longer.
LONGEST = 32 * units.Mi // state.SECTOR


class TopDevices(logical_volumes.LogicalVolumes):
    """The tops of volumes of one backend on this node."""

    def survey(self) -> surveys.Survey:
        """All LVs of the backend's groups and all of the driver's devices."""
        return surveys.Survey(self.lvs(), self.devices())

    def devices(self, only: Collection[str] | None = None
                ) -> dict[str, dm_tables.Device]:
        """The driver's own device-mapper devices, by name.

        :param only: those of these names, as far as they are there
        """
        return own_devices(self.timeout, only)

    def _survey_of(self, volume_id: str, shadow_id: str = ''
                   ) -> surveys.Survey:
        """What device-mapper has of one volume, and of one of its moves."""
        return surveys.Survey({}, self.devices(
            surveys.names_of(volume_id, shadow_id)))

    # -- the guard

    def can_guard(self) -> bool:
        """Whether the kernel has what guards are made of."""
        return any(line.split()[:1] == ['flakey'] for line in
                   dmsetup.targets(self.timeout).splitlines())

    def header_sectors(self, volume_id: str) -> int:
        """How long the LUKS1 header at the beginning of a volume is.

        It is read, in a child with a time limit.

        :raises HeaderDamaged: if it can't be, or there is none that a guard
            can keep: what a guest has written to a volume that Nova does not
            encrypt may be anything
        """
        dmsetup.mend_path(names.handle(volume_id))
        path = names.handle_path(volume_id)
        found = cryptsetup.payload_sectors(path, self.timeout)
        if not 0 < found <= LONGEST:
            raise encryption_exceptions.HeaderDamaged(
                path=path,
                reason='its data would begin at sector %d' % found)
        return found

    def _devices_with_handle(self, volume_id: str) -> tuple[
            Mapping[str, dm_tables.Device], dm_tables.Device]:
        """The devices of a volume, its handle again.

        :raises MissingData: if it has none
        """
        devices = self.devices(surveys.names_of(volume_id))
        handle = devices.get(names.handle(volume_id))
        if handle is None:
            raise exceptions.MissingData(
                what='The handle', volume=volume_id, host=self.host)
        return devices, handle

    def note_guarded(self, lv: str, header: int) -> None:
        """The volume on an LV has a guard from now on, also after a boot.

        :param header: sectors of its header
        """
        lvm.add_tag(self.group, lv, _guarded(header), self.timeout)

    def forget_guarded(self, lv: str, header: int) -> None:
        """It has none any more."""
        lvm.remove_tag(self.group, lv, _guarded(header), self.timeout)

    def ensure_guard(self, volume_id: str, header: int) -> bool:
        """The guard of a volume, all of its handle.

        One that exists is given another table while it is in use. The
        handle is named by its number, so its own table may change.

        :param header: sectors of the volume's header
        :raises MissingData: if it has no handle
        """
        devices, handle = self._devices_with_handle(volume_id)
        name = names.guard(volume_id)
        guard = devices.get(name)
        wanted = dm_tables.Guard(handle.number, header, handle.sectors)
        if guard and not guard.suspended and dm_tables.parse_guard(
                guard) == wanted:
            return dmsetup.mend_path(name)
        if guard:
            dmsetup.swap_table(name, str(wanted), self.timeout)
        else:
            dmsetup.create(name, names.device_uuid(name), str(wanted),
                           self.timeout)
        dmsetup.mend_path(name)
        return True

    def read_guarded(self, volume_id: str, header: int) -> None:
        """Prove that the header of a volume can be read above its guard."""
        block.read_head(names.guard_path(volume_id), header * state.SECTOR,
                        self.timeout)

    # -- the path

    def links(self) -> dict[str, str]:
        """Where the paths of volumes lead that Nova encrypts, by volume id.

        To a device of this name; '' if it is gone, or none of these.
        """
        return links.targets()

    def ensure_link(self, volume_id: str, device: str) -> bool:
        """The path of a volume leads to its guard, or to its handle.

        :param device: the name of that
        """
        return links.ensure(volume_id, device)

    def remove_link(self, volume_id: str) -> bool:
        """Remove the path of a volume."""
        return links.remove(volume_id)

    # -- the end of it

    def close_top(self, volume_id: str) -> bool:
        """Remove whatever is above a handle, and the path that leads to it.

        :raises CommandFailed: if something has it open; then nothing is done
        """
        present = self._survey_of(volume_id)
        if present.guard(volume_id):
            dmsetup.remove(names.guard(volume_id), self.timeout)
        if present.crypt(volume_id):
            cryptsetup.close(names.crypt(volume_id), self.timeout)
        if present.integrity(volume_id):  # it may be all that there was
            cryptsetup.remove_integrity(
                names.integrity(volume_id), self.timeout)
        return links.remove(volume_id) or bool(present.tops(volume_id))


class Handles(TopDevices):
    """The handles of one backend on this node."""

    # -- the handle

    def ensure_handle_on_lv(
            self, volume_id: str, lv: str, size_bytes: int,
            lvs: Mapping[str, lvm_reports.LogicalVolume] | None = None,
            swaps: bool = True) -> bool:
        """The handle of a volume, on an LV from its first byte on.

        A handle that is on something else is swapped over while in use. One
        that is made has all that users have seen, as after a boot: the home
        of a guest elsewhere may have lost its power, after an extension that
        failed had been shown.

        :param size_bytes: which it has at least: it never gets shorter while
            it is open
        :param lvs: if they have just been listed; else that is done here
        :param swaps: False for a caller without the volume's lock: a handle
            that is on something else is left alone
        :raises MissingData: if there is no such LV; it is never created here
        :raises NotPossible: if others could be read there; or a handle would
            have to be swapped, and ``swaps`` is False
        """
        devices = self.devices(_handle_and_served(volume_id))
        if surveys.is_on(devices.get(names.handle(volume_id)),
                         self.number_of(lv), size_bytes):
            return self._mend_path(volume_id)
        present = surveys.Survey(self.lvs() if lvs is None else lvs, devices)
        if present.handle_is_on_lv(volume_id, lv, size_bytes):
            return self._mend_path(volume_id)
        if lv not in present.lvs:
            raise exceptions.MissingData(
                what='Logical volume %s' % lv, volume=volume_id,
                host=self.host)
        if present.lvs[lv].shown < min(size_bytes, present.lvs[lv].size):
            raise exceptions.NotPossible(
                volume=volume_id, reason='its LV %s was not zeroed completely '
                'and may contain data of deleted volumes. Delete the '
                'volume.' % lv)
        self._activate(present.lvs[lv])
        return self._ensure_handle(
            present.devices, volume_id, dm_tables.linear(
                _seen(present.handle(volume_id), size_bytes,
                      present.lvs[lv]),
                names.lv_path(present.lvs[lv].group, lv)), swaps)

    def shown_bytes(self, volume_id: str, name: str, size_bytes: int) -> int:
        """Return how much of a volume its users may have seen, in bytes.

        The handle tells, and its LV: a handle that nobody has open is made
        anew from time to time, and a boot makes it by the LV.

        :param name: of the volume's LV on this node
        :param size_bytes: as its row says
        """
        handle = self.devices([names.handle(volume_id)]).get(
            names.handle(volume_id))
        shown = handle.sectors * state.SECTOR if handle else 0
        if not self.number_of(name):
            lv = self.lvs().get(name)
            return max(shown, lv.shown if lv else 0)
        lv = self._if_longer(name, size_bytes)
        return max(shown, lv.shown if lv else size_bytes)

    def _if_longer(self, name: str, size_bytes: int
                   ) -> lvm_reports.LogicalVolume | None:
        """An active LV, if its volume may be longer than its row says.

        LVM is asked only if the LV is longer by a GiB: less is what LVM
        rounds up.
        """
        if block.size(names.lv_path(self.group, name)) - size_bytes < (
                state.GIB):
            return None
        return self.lvs().get(name)

    def ensure_handle_on_clone(self, move: state.Move, swaps: bool = True
                               ) -> bool:
        """The handle of a volume, on the clone of its move.

        What the volume was extended by since the move began is on the LV. A
        handle that is on something else is swapped over while in use.

        :param swaps: as of :meth:`ensure_handle_on_lv`; its errors
        """
        present = surveys.Survey({}, self.devices([
            *_handle_and_served(move.volume_id),
            names.clone(move.shadow_id)]))
        if present.handle_is_on_clone(move):
            return self._mend_path(move.volume_id)
        handle = present.handle(move.volume_id)
        name, lv = move.destination_lv, None
        if not handle:  # it may be made before there is a path to the LV
            lv = (self._if_longer(name, move.volume_bytes)
                  if self.number_of(name) else self.lvs().get(name))
        return self._ensure_handle(
            present.devices, move.volume_id, self._on_clone(
                move, _seen(handle, move.volume_bytes, lv)), swaps)

    def _on_clone(self, move: state.Move, sectors: int) -> str:
        """The table of a handle on the clone of a move.

        :param sectors: of the handle
        """
        return dm_tables.on_clone(
            move.size_bytes // state.SECTOR, names.clone_path(move.shadow_id),
            sectors, names.lv_path(self.group, move.destination_lv))

    def ensure_handle_on_disk(self, volume_id: str, disk: str,
                              swaps: bool = True) -> bool:
        """The handle of a volume, on a disk that its home serves.

        As long as that disk, once this node sees it.

        :param disk: its path
        :param swaps: as of :meth:`ensure_handle_on_lv`; its errors
        :raises WrongDevice: if there is no such disk (any more), or it is not
            the volume's
        """
        number = block.number(disk)
        if not number:
            raise exceptions.WrongDevice(path=disk, found='nothing')
        devices = self.devices(_handle_and_served(volume_id))
        handle = devices.get(names.handle(volume_id))
        sectors = _seen(handle, block.size(disk))
        if (handle and not handle.suspended and handle.uses() == (number,)
                and handle.sectors == sectors):
            return self._mend_path(volume_id)
        return self._ensure_handle(
            devices, volume_id, dm_tables.linear(sectors, number), swaps,
            (number, volume_id))

    def follow_onto_clone(self, move: state.Move, source: str) -> None:
        """Swap a handle in use from the home's disk to a pristine clone.

        What the guest has written is stable at the source before anything
        is written to the clone: a flush reaches only this node afterwards.

        :param source: path of the disk that the clone reads; '' if there is
            none any more
        """
        name = names.handle(move.volume_id)
        handle = self.devices([name])[name]
        if source:
            self._check_source(move, source)
        dmsetup.swap_flushed(
            name, self._on_clone(
                move, _seen(handle, move.volume_bytes)),
            source, self.timeout)
        self._mend_path(move.volume_id)

    def flush_disk(self, move: state.Move, disk: str) -> None:
        """All that was written at the source of a move is stable there.

        :param disk: path of the disk that the source is here
        :raises WrongDevice: if the clone reads another one
        """
        self._check_source(move, disk)
        block.flush(disk, self.timeout)

    def _check_source(self, move: state.Move, disk: str) -> str:
        """See that a path leads to the disk that the clone of a move reads.

        That was verified. The clone has it open, so its number stays.

        :returns: its number
        :raises WrongDevice: if it leads to another one
        """
        name = names.clone(move.shadow_id)
        clone = self.devices([name]).get(name)
        number = block.number(disk)
        if not (number and clone and clone.uses()[2:] == (number,)):
            raise exceptions.WrongDevice(path=disk, found=number or 'nothing')
        return number

    def ensure_handle_on_snapshot(self, snapshot_id: str,
                                  size_bytes: int) -> bool:
        """The handle of a snapshot, which can only be read.

        :raises MissingData: if there is no LV
        """
        return self._ensure_readonly(
            names.handle(snapshot_id), snapshot_id,
            names.snapshot_lv(snapshot_id), size_bytes)

    # -- what others are served of a volume

    def ensure_served(self, volume_id: str) -> bool:
        """What other nodes are served of a volume with a top.

        The kernel gives a device to what stands above it or to its iSCSI
        target, not to both. A second one above the handle it gives.

        :raises MissingData: if it has no handle
        """
        return self._ensure_above(*self._devices_with_handle(volume_id),
                                  names.served(volume_id))

    def _ensure_above(self, devices: Mapping[str, dm_tables.Device],
                      handle: dm_tables.Device, name: str) -> bool:
        """A device of this name, all of a handle."""
        device = devices.get(name)
        if (device and not device.suspended
                and device.uses() == (handle.number,)
                and device.sectors == handle.sectors):
            return dmsetup.mend_path(name)
        self._put(devices, name,
                  dm_tables.linear(handle.sectors, handle.number))
        return True

    def remove_served(self, volume_id: str) -> bool:
        """Remove what other nodes were served, unless one still is.

        :returns: whether it was there
        """
        if not block.number(names.served_path(volume_id)):
            return False
        name = names.served(volume_id)
        served = self.devices([name]).get(name)
        return bool(served and not served.opened) and dmsetup.remove(
            name, self.timeout)

    # -- what the source of a move serves

    def ensure_source(self, move: state.Move) -> bool:
        """The source device of a move, which can only be read.

        It has what is copied of the LV, so the handle's name is free here
        once the volume is elsewhere.

        :raises MissingData: if there is no such LV; it is never created here
        """
        return self._ensure_readonly(
            names.source(move.shadow_id), move.volume_id, move.source_lv,
            move.size_bytes)

    def remove_source(self, shadow_id: str) -> bool:
        """Remove the source device of a move; its LV stays.

        :raises CommandFailed: if it is exported
        """
        return dmsetup.remove(names.source(shadow_id), self.timeout)

    # -- how

    def _ensure_readonly(self, name: str, owner: str, lv: str,
                         size_bytes: int) -> bool:
        devices, number = self.devices([name]), self.number_of(lv)
        if surveys.is_on(devices.get(name), number):
            return dmsetup.mend_path(name)
        if not number:
            present = surveys.Survey(self.lvs(), devices)
            if present.is_on_lv(name, lv):
                return dmsetup.mend_path(name)
            if lv not in present.lvs:
                raise exceptions.MissingData(
                    what='Logical volume %s' % lv, volume=owner,
                    host=self.host)
            self._activate(present.lvs[lv])
        if name in devices:  # on nothing usable
            dmsetup.remove(name, self.timeout)
        dmsetup.create(
            name, names.device_uuid(name), dm_tables.linear(
                size_bytes // state.SECTOR, names.lv_path(self.group, lv)),
            self.timeout, readonly=True)
        dmsetup.mend_path(name)
        return True

    def _ensure_handle(self, devices: Mapping[str, dm_tables.Device],
                       volume_id: str, table: str, swaps: bool,
                       disk: tuple[str, str] | None = None) -> bool:
        name = names.handle(volume_id)
        if name in devices and not swaps:
            raise exceptions.NotPossible(
                'Volume %s was not restored: another process created its '
                'handle meanwhile. That handle was not changed. The volume '
                'service checks the handle when it runs.' % volume_id)
        self._put(devices, name, table, disk)
        if names.served(volume_id) in devices:
            self.ensure_served(volume_id)  # as long as it is
        return True

    def _put(self, devices: Mapping[str, dm_tables.Device], name: str,
             table: str, disk: tuple[str, str] | None = None) -> None:
        """A device with this table, whether it is there or not.

        :param disk: in the table, see :func:`.dmsetup.create`
        """
        if name in devices:
            dmsetup.swap_table(
                name, table, self.timeout, *[disk] * bool(disk))
        else:
            self._create(name, table, disk)
        dmsetup.mend_path(name)

    def _create(self, name: str, table: str,
                disk: tuple[str, str] | None = None) -> None:
        """Create a device; see :func:`.dmsetup.create`."""
        what = name, names.device_uuid(name), table, self.timeout
        if disk:
            dmsetup.create(*what, False, disk)
        else:
            dmsetup.create(*what)

    @staticmethod
    def _mend_path(volume_id: str) -> bool:
        """Whoever opens the handle's path gets the handle."""
        return dmsetup.mend_path(names.handle(volume_id))

    def remove_handle(self, volume_id: str) -> bool:
        """Remove the handle of a volume, and all that is above it.

        Its data stay.

        :raises CommandFailed: if something has either open
        """
        self.close_top(volume_id)
        self.remove_served(volume_id)
        return dmsetup.remove(names.handle(volume_id), self.timeout)

    # -- data

    def read_head(self, volume_id: str) -> None:
        """Prove that a handle can be read, in a child with a time limit."""
        self._mend_path(volume_id)
        block.read_head(names.handle_path(volume_id), HEAD, self.timeout)

    def written(self, volume_id: str) -> int:
        """How much was written to a handle since it is there, in sectors."""
        self._mend_path(volume_id)
        return block.written_sectors(names.handle_path(volume_id))

    def recorded_as_local(self, move: state.Move) -> thin_map.Holes:
        """Which regions the clone of a copy has on record as local.

        :raises ValueError: if that is not understood
        """
        return refill.local(self.metadata_group, names.metadata_lv(
            move.shadow_id), move.geometry.regions(move.size_bytes),
            self.timeout)

    def unmapped(self, move: state.Move, factor: int) -> thin_map.Holes:
        """What of the LV of a copy is not mapped, all of it.

        :param factor: into how many blocks a region is divided
        :returns: in these blocks; none if the LV is not thin
        :raises PoolFails: if the pool can't write its metadata
        :raises OddMap: if the pool does not say it clearly
        """
        return thin_pool.unmapped(
            self.group, move.destination_lv, move.size_bytes,
            _block(move, factor), self.timeout)

    def check_pool(self, move: state.Move) -> None:
        """See that the pool of a copy's LV can write its metadata.

        :raises PoolFails: if not
        """
        thin_pool.check(self.group, move.destination_lv, self.timeout)

    def refill(self, move: state.Move, disk: str, missing: thin_map.Holes,
               factor: int) -> Iterator[thin_map.Holes]:
        """Copy again what the LV of a copy has not, beneath the handle.

        All of what its pool maps at once: what is there only in part can't be
        told from what is whole. What the guest has written since is left
        alone. Its I/O is held up for moments.

        :param disk: path of the source's disk
        :param missing: blocks that the source has
        :param factor: as of :meth:`unmapped`
        :returns: which of them have been copied, piece by piece; somebody
            wrote to the others meanwhile
        :raises SourceUnread: if something can't be read at the source
        :raises TakesLong: if it is not done in time
        """
        number = self._check_source(move, disk)
        at_once = thin_pool.block(self.group, move.destination_lv,
                                  self.timeout)
        ratio = at_once // _block(move, factor)
        todo = thin_map.pieces(thin_map.covering(missing, ratio),
                               max(1, refill.AT_ONCE // at_once))
        # What is slow does not keep what is behind it from its turn for ever.
        random.shuffle(todo)
        reason: exceptions.LocalCloneError = exceptions.TakesLong(
            seconds=self.timeout)
        failed, deadline = False, time.monotonic() + self.timeout
        while todo and time.monotonic() <= deadline:
            start, count = todo.pop()
            try:
                come, written = refill.refill(
                    names.handle(move.volume_id), self.group,
                    move.destination_lv, (disk, number), move.size_bytes,
                    at_once, start, count, self.timeout)
            except exceptions.SourceUnread as exc:
                # Of many at once, the others may be readable. First all the
                # rest: a disk may take long to find that it can't.
                reason, failed = exc, failed or count == 1
                if count > 1:
                    todo[:0] = thin_map.pieces([[start, count]], 1)
                continue
            if come < count:
                todo.append((start + come, count - come))
            yield thin_map.common(missing, thin_map.scaled(written, ratio))
        if todo or failed:
            raise reason

    def forget_read(self, volume_id: str) -> None:
        """Whoever has read a handle, or what is above it, reads again."""
        refill.forget_read([names.handle(volume_id)] + [
            top.name for top in self._survey_of(volume_id).tops(volume_id)],
            self.timeout)

    def flush_handle(self, volume_id: str) -> None:
        """Everything written so far is on stable storage afterwards.

        What stands above a handle has a page cache of its own.
        """
        for top in self._survey_of(volume_id).tops(volume_id):
            block.flush('/dev/mapper/' + top.name, self.timeout)
        self._mend_path(volume_id)
        block.flush(names.handle_path(volume_id), self.timeout)


def _block(move: state.Move, factor: int) -> int:
    return move.geometry.region_sectors * state.SECTOR // factor


def _handle_and_served(volume_id: str) -> list[str]:
    """What has to be known to put a handle on something."""
    return [names.handle(volume_id), names.served(volume_id)]


def _seen(handle: dm_tables.Device | None, size_bytes: int,
          lv: lvm_reports.LogicalVolume | None = None) -> int:
    """Return the sectors of a handle: its users keep the length they saw.

    A closed handle, left by an extension that failed, may be longer than
    its new backing device: it gets the volume's size.

    :param handle: as it is; None if there is none
    :param size_bytes: the volume's size
    :param lv: the LV that it is to be on, if all of it is there
    """
    if handle is None:
        longer = (lv.body if lv else 0) // state.SECTOR
    else:
        longer = handle.sectors if (
            handle.opened or handle.sectors * state.SECTOR <= (
                lv.shown if lv else 0)) else 0
    return max(size_bytes // state.SECTOR, longer)


def own_devices(timeout: float, only: Collection[str] | None = None
                ) -> dict[str, dm_tables.Device]:
    """Return the driver's own device-mapper devices, by name.

    :param timeout: seconds
    :param only: those of these names, as far as they are there
    """
    return dm_tables.own_devices(
        (dm_ioctl.Status(*each) for each in dmsetup.survey(
            timeout, None if only is None else [*only])),
        names.device_uuid(''))


def _guarded(header: int) -> str:
    return names.tags(**{names.GUARDED: header})[0]
