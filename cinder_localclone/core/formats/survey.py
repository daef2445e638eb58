# SPDX-License-Identifier: Apache-2.0
"""The state of LVM and device-mapper on a node, combined. Pure."""

from collections.abc import Mapping
import dataclasses
import functools

from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core import state


@dataclasses.dataclass(frozen=True)
class Survey:
    """The state of LVM and device-mapper on this node at one moment.

    :param lvs: LVs of the backend's volume groups, by name
    :param devices: the driver's devices, of other backends too, by name
    """

    lvs: Mapping[str, lvm_reports.LogicalVolume]
    devices: dict[str, dm_tables.Device]

    def handle(self, volume_id: str) -> dm_tables.Device | None:
        """Return a volume's handle; None if this node has none."""
        return self.devices.get(names.handle(volume_id))

    def guard(self, volume_id: str) -> dm_tables.Device | None:
        """Return a volume's header guard; None if this node has none."""
        return self.devices.get(names.guard(volume_id))

    def crypt(self, volume_id: str) -> dm_tables.Device | None:
        """Return a volume's crypt device; None if this node has none."""
        return self.devices.get(names.crypt(volume_id))

    def integrity(self, volume_id: str) -> dm_tables.Device | None:
        """Return the integrity device of an authenticated volume, or None."""
        return self.devices.get(names.integrity(volume_id))

    def upper_devices(self, volume_id: str) -> list[dm_tables.Device]:
        """Return a volume's upper devices, for use by a guest.

        An integrity device without a crypt device counts as well: it is left
        by an interrupted open or close of an authenticated volume.
        """
        found = self.guard(volume_id), (
            self.crypt(volume_id) or self.integrity(volume_id))
        return [device for device in found if device]

    def export_device(self, volume_id: str) -> dm_tables.Device | None:
        """Return the export device of a volume with an upper device, or None.
        """
        return self.devices.get(names.export_device(volume_id))

    def users(self, volume_id: str) -> int:
        """Return how often a volume is open, by its handle or an upper device.

        The driver's own devices do not count: they hold the handle open for as
        long as they exist.
        """
        handle = self.handle(volume_id)
        if handle is None:
            return 0
        own = sum(handle.number in device.uses()
                  for device in self.devices.values())
        export_device = self.export_device(volume_id)
        return handle.opened - own + sum(
            above.opened for above in self.upper_devices(volume_id)
            + ([export_device] if export_device else []))

    def guarded_sectors(self, volume_id: str) -> int:
        """Return the length of a header under its guard, in sectors.

        :returns: 0 if there is no usable guard above the whole handle
        """
        handle, device = self.handle(volume_id), self.guard(volume_id)
        guard = dm_tables.parse_guard(device) if device else None
        return guard.header if (
            handle and device and guard and not device.suspended
            and (guard.number, guard.sectors) == (
                handle.number, handle.sectors)) else 0

    def has(self, volume_id: str, lv: str) -> bool:
        """Return whether a volume's LV or handle exists on this node."""
        return lv in self.lvs or self.handle(volume_id) is not None

    def clone(self, move_id: str) -> dm_tables.Device | None:
        """Return the clone of a move; None if this node has none."""
        return self.devices.get(names.clone(move_id))

    def source(self, move_id: str) -> dm_tables.Device | None:
        """Return the source device of a move; None if this node has none."""
        return self.devices.get(names.source(move_id))

    def sources(self) -> list[str]:
        """Return the ids of moves with a source device on this node."""
        found = map(names.move_of_source, sorted(self.devices))
        return [move_id for move_id in found if move_id]

    def sources_above(self, lv: str) -> list[str]:
        """Return the ids of moves with a source device on an LV."""
        backing = self.lvs.get(lv)
        return [move_id for move_id in self.sources() if backing and
                backing.number in self.devices[names.source(move_id)].uses()]

    def metadata(self, move_id: str) -> lvm_reports.LogicalVolume | None:
        """Return the metadata LV of a move; None if this node has none."""
        return self.lvs.get(names.metadata_lv(move_id))

    def move_into(self, lv: str) -> lvm_reports.LogicalVolume | None:
        """Return the metadata LV of the move into an LV, or None."""
        # The name of a destination LV has the move id (see records.py).
        return next(filter(None, map(self.metadata, names.ids_in(lv))), None)

    def destination_lvs(self, move_id: str) -> list[str]:
        """Return the names of the destination LVs of a move."""
        # The name of a destination LV has the move id (see records.py).
        metadata = names.metadata_lv(move_id)
        return [name for name in self.lvs
                if move_id in name and name != metadata
                and not names.is_to_wipe(name)]

    def stray_metadata(self) -> dict[str, lvm_reports.LogicalVolume]:
        """Return the metadata LVs without a destination LV, by move id.

        LVM may have created such an LV late, after the end of its move.
        """
        found = {names.move_of_metadata(lv.name): lv
                 for lv in self.lvs.values()}
        return {move_id: lv for move_id, lv in found.items()
                if move_id and not lv.opened and not self.clone(move_id)
                and not self.destination_lvs(move_id)}

    def snapshots(self, group: str) -> dict[str, lvm_reports.LogicalVolume]:
        """Return the LVs of snapshots in a volume group, by snapshot id."""
        found = {names.facts(lv.tags).get('snapshot', ''): lv
                 for lv in self.lvs.values() if lv.group == group}
        return {key: lv for key, lv in found.items()
                if lv.name == names.snapshot_lv(key)}

    def uncommitted_lvs(self, group: str
                        ) -> list[tuple[str, lvm_reports.LogicalVolume]]:
        """Return the uncommitted LVs of a volume group, with volume ids."""
        return [(names.facts(lv.tags).get('volume', ''), lv)
                for lv in self.lvs.values()
                if lv.group == group and names.UNCOMMITTED in lv.tags
                and not names.is_to_wipe(lv.name)]

    def complete_lvs(self, volume_id: str, group: str
                     ) -> list[lvm_reports.LogicalVolume]:
        """Return the complete LVs of a volume in a volume group, by tags."""
        return [lv for lv in self.lvs.values()
                if lv.group == group
                and names.facts(lv.tags).get('volume') == volume_id
                and not names.move_of_metadata(lv.name)
                and not names.is_to_wipe(lv.name)
                and not self.move_into(lv.name)]

    def is_handle_on_lv(self, volume_id: str, lv: str, size: int = 0
                        ) -> bool:
        """Return whether a volume's handle is usable and maps to an LV.

        :param size: the least length of the handle, bytes
        """
        return self.is_on_lv(names.handle(volume_id), lv, size)

    def is_on_lv(self, name: str, lv: str, size: int = 0) -> bool:
        """Return whether a device is usable and maps to an LV.

        :param name: name of the device
        :param size: the least length of the device, bytes
        """
        backing = self.lvs.get(lv)
        return is_on(self.devices.get(name), backing.number if backing else '',
                     size)

    def is_handle_on_clone(self, move: state.Move) -> bool:
        """Return whether a volume's handle is usable and maps to a clone.

        The part added by an extension meanwhile maps to the LV.
        """
        clone, handle = self.clone(move.move_id), self.handle(move.volume_id)
        return bool(clone and handle
                    and handle.uses()[:1] == (clone.number,)
                    and _is_usable(handle, move.volume_bytes))

    def is_handle_foreign(self, volume_id: str) -> bool:
        """Return whether a volume's handle is on a disk of another node.

        The disk may be gone. A device-mapper device is never such a disk; LVs
        of other backends are device-mapper devices, too.
        """
        handle = self.handle(volume_id)
        if handle is None or not handle.uses():
            return False
        mapped, colon, _minor = handle.number.partition(':')
        return not any(
            number in self._own_numbers
            or (colon and number.partition(':')[0] == mapped)
            for number in handle.uses())

    @functools.cached_property
    def _own_numbers(self) -> set[str]:
        return {each.number for found in (self.lvs, self.devices)
                for each in found.values()}

    def foreign_handles(self) -> set[str]:
        """Return the ids of volumes with a handle on another node's disk."""
        return {volume_id for name in self.devices
                if (volume_id := names.volume_of_handle(name))
                and self.is_handle_foreign(volume_id)}

    def volumes_above(self, group: str, lv: str | None = None) -> set[str]:
        """Return the ids of volumes with a handle above LVs of a group.

        Handles of other backends on this node do not count.

        :param lv: only above this LV; None: any LV of the group
        """
        numbers = {each.number for each in self.lvs.values()
                   if each.group == group and lv in (None, each.name)}
        # Also above a clone on such an LV.
        numbers |= {device.number for device in self.devices.values()
                    if numbers.intersection(device.uses())}
        above = {names.volume_of_handle(name)
                 for name, device in self.devices.items()
                 if numbers.intersection(device.uses())}
        return {volume_id for volume_id in above if volume_id}


def names_of(volume_id: str, move_id: str = '') -> list[str]:
    """Return the names of the devices of a volume, and of a move.

    The kernel takes half a millisecond for each device. A caller with a single
    volume asks for these names only, however many devices the node has. A
    survey of them has no information about other volumes.

    :param volume_id: its upper devices are included, since they hold the
        handle open
    :param move_id: '': no move
    """
    found = [names.handle(volume_id), names.guard(volume_id),
             names.crypt(volume_id), names.integrity(volume_id),
             names.export_device(volume_id),
             *dm_tables.helper_names(volume_id)]
    return found + [names.clone(move_id), names.source(move_id),
                    names.absent_source(move_id)] * bool(move_id)


def is_on(device: dm_tables.Device | None, number: str, size: int = 0) -> bool:
    """Return whether a device is usable and maps to another device.

    :param number: ``major:minor`` of the other device; '' if there is none
    :param size: the least length, bytes
    """
    return bool(number and device and device.uses() == (number,)
                and _is_usable(device, size))


def _is_usable(device: dm_tables.Device, size: int) -> bool:
    return (not device.suspended
            and device.sectors * state.SECTOR >= size)
