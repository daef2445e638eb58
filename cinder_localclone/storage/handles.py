# SPDX-License-Identifier: Apache-2.0
"""Handles of volumes, and the devices beside and above them.

A check costs a command. So an effect checks once, or accepts "it exists
already" as an answer of its command.
"""

from collections.abc import Collection
from collections.abc import Mapping

from oslo_log import log as logging
from oslo_utils import units

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey as surveys
from cinder_localclone.core.interfaces import storage
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage import devices as dm_devices
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import links
from cinder_localclone.storage.privsep import refill

LOG = logging.getLogger(__name__)

#: Maximum length of a header in sectors. All known tools create shorter
#: headers.
LONGEST = 32 * units.Mi // state.SECTOR


class Handles(storage.Handles):
    """Handles of a backend, as dm-linear devices.

    :param lvm: LVs of the backend
    """

    def __init__(self, lvm: logical_volumes.Lvm) -> None:
        self.lvm = lvm
        self.timeout = lvm.timeout

    # -- reads

    def survey(self) -> surveys.Survey:
        return surveys.Survey(self.lvm.lvs(), self.devices())

    def devices(self, only: Collection[str] | None = None
                ) -> dict[str, dm_tables.Device]:
        return dm_devices.own_devices(self.timeout, only)

    def _survey_of(self, volume_id: str) -> surveys.Survey:
        """Return the device-mapper devices of a volume."""
        return surveys.Survey({}, self.devices(surveys.names_of(volume_id)))

    def _devices_with_handle(self, volume_id: str) -> tuple[
            Mapping[str, dm_tables.Device], dm_tables.Device]:
        """Return the devices of a volume, and its handle.

        :raises MissingData: if the volume has no handle
        """
        devices = self.devices(surveys.names_of(volume_id))
        handle = devices.get(names.handle(volume_id))
        if handle is None:
            raise exceptions.MissingData(
                what='The handle', volume=volume_id, host=self.lvm.host)
        return devices, handle

    def shown_bytes(self, volume_id: str, name: str, size_bytes: int) -> int:
        handle = self.devices([names.handle(volume_id)]).get(
            names.handle(volume_id))
        shown = handle.sectors * state.SECTOR if handle else 0
        if not self.lvm.number_of(name):
            lv = self.lvm.lvs().get(name)
            return max(shown, lv.shown if lv else 0)
        lv = self._if_longer(name, size_bytes)
        return max(shown, lv.shown if lv else size_bytes)

    def _if_longer(self, name: str, size_bytes: int
                   ) -> lvm_reports.LogicalVolume | None:
        """Return an active LV if its volume may be longer than its row says.

        LVM is asked only if the LV is longer by at least a GiB: a smaller
        difference comes from rounding by LVM.
        """
        if block.size(names.lv_path(self.lvm.group, name)) - size_bytes < (
                state.GIB):
            return None
        return self.lvm.lvs().get(name)

    def written(self, volume_id: str) -> int:
        self._ensure_devnode(volume_id)
        return block.written_sectors(names.handle_path(volume_id))

    # -- the handle

    def ensure_handle_on_lv(
            self, volume_id: str, lv: str, size_bytes: int,
            lvs: Mapping[str, lvm_reports.LogicalVolume] | None = None,
            swaps: bool = True) -> bool:
        devices = self.devices(_handle_and_export_device(volume_id))
        if surveys.is_on(devices.get(names.handle(volume_id)),
                         self.lvm.number_of(lv), size_bytes):
            return self._ensure_devnode(volume_id)
        present = surveys.Survey(
            self.lvm.lvs() if lvs is None else lvs, devices)
        if present.is_handle_on_lv(volume_id, lv, size_bytes):
            return self._ensure_devnode(volume_id)
        if lv not in present.lvs:
            raise exceptions.MissingData(
                what='Logical volume %s' % lv, volume=volume_id,
                host=self.lvm.host)
        if present.lvs[lv].shown < min(size_bytes, present.lvs[lv].size):
            raise exceptions.NotPossible(
                volume=volume_id, reason='its LV %s was not zeroed completely '
                'and may contain data of deleted volumes. Delete the '
                'volume.' % lv)
        self.lvm.activate(lv, present.lvs)
        return self._ensure_handle(
            present.devices, volume_id, dm_tables.linear(
                _seen(present.handle(volume_id), size_bytes,
                      present.lvs[lv]),
                names.lv_path(present.lvs[lv].group, lv)), swaps)

    def ensure_handle_on_clone(self, move: state.Move, swaps: bool = True
                               ) -> bool:
        present = surveys.Survey({}, self.devices([
            *_handle_and_export_device(move.volume_id),
            names.clone(move.move_id)]))
        if present.is_handle_on_clone(move):
            return self._ensure_devnode(move.volume_id)
        handle = present.handle(move.volume_id)
        name, lv = move.destination_lv, None
        if not handle:  # no path to the LV may exist yet
            lv = (self._if_longer(name, move.volume_bytes)
                  if self.lvm.number_of(name) else self.lvm.lvs().get(name))
        return self._ensure_handle(
            present.devices, move.volume_id, self._on_clone(
                move, _seen(handle, move.volume_bytes, lv)), swaps)

    def _on_clone(self, move: state.Move, sectors: int) -> str:
        """Return the table of a handle on the clone of a move.

        :param sectors: length of the handle
        """
        return dm_tables.on_clone(
            move.size_bytes // state.SECTOR, names.clone_path(move.move_id),
            sectors, names.lv_path(self.lvm.group, move.destination_lv))

    def ensure_handle_on_disk(self, volume_id: str, disk: str,
                              swaps: bool = True) -> bool:
        number = block.number(disk)
        if not number:
            raise exceptions.WrongDevice(path=disk, found='nothing')
        devices = self.devices(_handle_and_export_device(volume_id))
        handle = devices.get(names.handle(volume_id))
        sectors = _seen(handle, block.size(disk))
        if (handle and not handle.suspended and handle.uses() == (number,)
                and handle.sectors == sectors):
            return self._ensure_devnode(volume_id)
        return self._ensure_handle(
            devices, volume_id, dm_tables.linear(sectors, number), swaps,
            (number, volume_id))

    def ensure_handle_on_snapshot(self, snapshot_id: str,
                                  size_bytes: int) -> bool:
        return self._ensure_readonly(
            names.handle(snapshot_id), snapshot_id,
            names.snapshot_lv(snapshot_id), size_bytes)

    def switch_to_clone(self, move: state.Move, source: str) -> None:
        name = names.handle(move.volume_id)
        _devices, handle = self._devices_with_handle(move.volume_id)
        if source:
            clone = names.clone(move.move_id)
            dm_devices.check_source(self.devices([clone]).get(clone), source)
        dmsetup.swap_flushed(
            name, self._on_clone(
                move, _seen(handle, move.volume_bytes)),
            source, self.timeout)
        self._ensure_devnode(move.volume_id)

    def _ensure_handle(self, devices: Mapping[str, dm_tables.Device],
                       volume_id: str, table: str, swaps: bool,
                       disk: tuple[str, str] | None = None) -> bool:
        name = names.handle(volume_id)
        if name in devices and not swaps:
            raise exceptions.NotPossible(
                'Volume %s was not restored: another process created its '
                'handle meanwhile. The handle was not changed. The volume '
                'service checks the handle when it runs.' % volume_id)
        dm_devices.create_or_reload(devices, name, table, self.timeout, disk)
        if names.export_device(volume_id) in devices:
            self.ensure_export_device(volume_id)  # as long as the handle
        return True

    @staticmethod
    def _ensure_devnode(volume_id: str) -> bool:
        """Make the path of a handle lead to the handle.

        :returns: False if it did already
        """
        corrected: bool = dmsetup.ensure_devnode(names.handle(volume_id))
        if corrected:
            LOG.info('The path of the handle of volume %s was corrected: it '
                     'led elsewhere, or nowhere.', volume_id)
        return corrected

    def remove_handle(self, volume_id: str) -> bool:
        self.close_upper(volume_id)
        self.remove_export_device(volume_id)
        removed: bool = dmsetup.remove(names.handle(volume_id), self.timeout)
        if removed:
            LOG.info('The handle of volume %s was removed.', volume_id)
        return removed

    def read_head(self, volume_id: str) -> None:
        self._ensure_devnode(volume_id)
        block.read_head(names.handle_path(volume_id), dm_devices.HEAD,
                        self.timeout)

    def flush_handle(self, volume_id: str) -> None:
        for top in self._survey_of(volume_id).upper_devices(volume_id):
            block.flush('/dev/mapper/' + top.name, self.timeout)
        self._ensure_devnode(volume_id)
        block.flush(names.handle_path(volume_id), self.timeout)

    def forget_read(self, volume_id: str) -> None:
        refill.forget_read([names.handle(volume_id)] + [
            top.name for top in self._survey_of(
                volume_id).upper_devices(volume_id)],
            self.timeout)

    # -- the upper device

    def can_guard(self) -> bool:
        return any(line.split()[:1] == ['flakey'] for line in
                   dmsetup.targets(self.timeout).splitlines())

    def header_sectors(self, volume_id: str) -> int:
        dmsetup.ensure_devnode(names.handle(volume_id))
        path = names.handle_path(volume_id)
        found = cryptsetup.payload_sectors(path, self.timeout)
        if not 0 < found <= LONGEST:
            raise encryption_exceptions.HeaderDamaged(
                path=path,
                reason='its data would begin at sector %d' % found)
        return found

    def ensure_guard(self, volume_id: str, header: int) -> bool:
        devices, handle = self._devices_with_handle(volume_id)
        name = names.guard(volume_id)
        guard = devices.get(name)
        wanted = dm_tables.Guard(handle.number, header, handle.sectors)
        if guard and not guard.suspended and dm_tables.parse_guard(
                guard) == wanted:
            return dmsetup.ensure_devnode(name)
        if guard:
            dmsetup.swap_table(name, str(wanted), self.timeout)
        else:
            dmsetup.create(name, names.device_uuid(name), str(wanted),
                           self.timeout)
        dmsetup.ensure_devnode(name)
        return True

    def read_guarded(self, volume_id: str, header: int) -> None:
        block.read_head(names.guard_path(volume_id), header * state.SECTOR,
                        self.timeout)

    def links(self) -> dict[str, str]:
        return links.targets()

    def ensure_link(self, volume_id: str, device: str) -> bool:
        return links.ensure(volume_id, device)

    def remove_link(self, volume_id: str) -> bool:
        return links.remove(volume_id)

    def close_upper(self, volume_id: str) -> bool:
        present = self._survey_of(volume_id)
        if present.guard(volume_id):
            dmsetup.remove(names.guard(volume_id), self.timeout)
        if present.crypt(volume_id):
            cryptsetup.close(names.crypt(volume_id), self.timeout)
        if present.integrity(volume_id):  # it may exist without a crypt device
            cryptsetup.remove_integrity(
                names.integrity(volume_id), self.timeout)
        return links.remove(
            volume_id) or bool(present.upper_devices(volume_id))

    # -- devices beside the handle

    def ensure_export_device(self, volume_id: str) -> bool:
        return self._ensure_above(*self._devices_with_handle(volume_id),
                                  names.export_device(volume_id))

    def _ensure_above(self, devices: Mapping[str, dm_tables.Device],
                      handle: dm_tables.Device, name: str) -> bool:
        """Create or correct a linear device above a whole handle.

        :param name: name of the device
        """
        device = devices.get(name)
        if (device and not device.suspended
                and device.uses() == (handle.number,)
                and device.sectors == handle.sectors):
            return dmsetup.ensure_devnode(name)
        dm_devices.create_or_reload(
            devices, name, dm_tables.linear(handle.sectors, handle.number),
            self.timeout)
        return True

    def remove_export_device(self, volume_id: str) -> bool:
        if not block.number(names.export_device_path(volume_id)):
            return False
        name = names.export_device(volume_id)
        exported = self.devices([name]).get(name)
        return bool(exported and not exported.opened) and dmsetup.remove(
            name, self.timeout)

    def ensure_source(self, move: state.Move) -> bool:
        return self._ensure_readonly(
            names.source(move.move_id), move.volume_id, move.source_lv,
            move.size_bytes)

    def remove_source(self, move_id: str) -> bool:
        return dmsetup.remove(names.source(move_id), self.timeout)

    def _ensure_readonly(self, name: str, owner: str, lv: str,
                         size_bytes: int) -> bool:
        devices, number = self.devices([name]), self.lvm.number_of(lv)
        if surveys.is_on(devices.get(name), number):
            return dmsetup.ensure_devnode(name)
        if not number:
            present = surveys.Survey(self.lvm.lvs(), devices)
            if present.is_on_lv(name, lv):
                return dmsetup.ensure_devnode(name)
            if lv not in present.lvs:
                raise exceptions.MissingData(
                    what='Logical volume %s' % lv, volume=owner,
                    host=self.lvm.host)
            self.lvm.activate(lv, present.lvs)
        if name in devices:  # it maps to another LV
            dmsetup.remove(name, self.timeout)
        dmsetup.create(
            name, names.device_uuid(name), dm_tables.linear(
                size_bytes // state.SECTOR, names.lv_path(self.lvm.group, lv)),
            self.timeout, readonly=True)
        dmsetup.ensure_devnode(name)
        return True


def _handle_and_export_device(volume_id: str) -> list[str]:
    """Return the names of a volume's handle and export device."""
    return [names.handle(volume_id), names.export_device(volume_id)]


def _seen(handle: dm_tables.Device | None, size_bytes: int,
          lv: lvm_reports.LogicalVolume | None = None) -> int:
    """Return the length of a handle: its users keep the length they saw.

    A closed handle may be longer than its new backing device after a failed
    extension. It gets the volume's size.

    :param handle: the existing handle; None if there is none
    :param size_bytes: the volume's size
    :param lv: LV to map the handle to, if all of the handle goes there
    :returns: sectors
    """
    if handle is None:
        longer = (lv.backing if lv else 0) // state.SECTOR
    else:
        longer = handle.sectors if (
            handle.opened or handle.sectors * state.SECTOR <= (
                lv.shown if lv else 0)) else 0
    return max(size_bytes // state.SECTOR, longer)
