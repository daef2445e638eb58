# SPDX-License-Identifier: Apache-2.0
"""What LVM and device-mapper show on a node, put together. Pure."""

from collections.abc import Mapping
import dataclasses
import functools

from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core import state


@dataclasses.dataclass(frozen=True)
class Survey:
    """What LVM and device-mapper show on this node at one moment.

    :param lvs: by name, those of the backend's volume groups
    :param devices: by name, the driver's own, those of other backends too
    """

    lvs: Mapping[str, lvm_reports.LogicalVolume]
    devices: dict[str, dm_tables.Device]

    def handle(self, volume_id: str) -> dm_tables.Device | None:
        """A volume's handle, if it has one here."""
        return self.devices.get(names.handle(volume_id))

    def guard(self, volume_id: str) -> dm_tables.Device | None:
        """What keeps a volume's header as it is, if that is here."""
        return self.devices.get(names.guard(volume_id))

    def crypt(self, volume_id: str) -> dm_tables.Device | None:
        """What decrypts a volume, if that is here."""
        return self.devices.get(names.crypt(volume_id))

    def integrity(self, volume_id: str) -> dm_tables.Device | None:
        """What has the tags of an authenticated volume, if it is open."""
        return self.devices.get(names.integrity(volume_id))

    def upper_devices(self, volume_id: str) -> list[dm_tables.Device]:
        """What stands above a volume's handle, for others to open.

        Or is left of it: of an authenticated volume that was not opened, or
        not closed, to the end.
        """
        found = self.guard(volume_id), (
            self.crypt(volume_id) or self.integrity(volume_id))
        return [device for device in found if device]

    def export_device(self, volume_id: str) -> dm_tables.Device | None:
        """What other nodes are served of a volume with a top."""
        return self.devices.get(names.export_device(volume_id))

    def users(self, volume_id: str) -> int:
        """How many have a volume open, by its handle or what is above it.

        A device of the driver's own is none of them: it has the handle open
        for as long as it is there, whoever uses it.
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

    def header_guarded(self, volume_id: str) -> int:
        """The sectors of the header that a volume's guard keeps as it is.

        0 if there is no usable guard above all of its handle.
        """
        handle, device = self.handle(volume_id), self.guard(volume_id)
        guard = dm_tables.parse_guard(device) if device else None
        return guard.header if (
            handle and device and guard and not device.suspended
            and (guard.number, guard.sectors) == (
                handle.number, handle.sectors)) else 0

    def has(self, volume_id: str, lv: str) -> bool:
        """Whether there is anything of a volume: its LV, or a handle."""
        return lv in self.lvs or self.handle(volume_id) is not None

    def clone(self, move_id: str) -> dm_tables.Device | None:
        """The clone of a move, if it is here."""
        return self.devices.get(names.clone(move_id))

    def source(self, move_id: str) -> dm_tables.Device | None:
        """The source device of a move, if it is here."""
        return self.devices.get(names.source(move_id))

    def sources(self) -> list[str]:
        """The moves, by shadow id, that have a source device here."""
        found = map(names.move_of_source, sorted(self.devices))
        return [move_id for move_id in found if move_id]

    def sources_above(self, lv: str) -> list[str]:
        """Those of them that serve this very LV."""
        backing = self.lvs.get(lv)
        return [move_id for move_id in self.sources() if backing and
                backing.number in self.devices[names.source(move_id)].uses()]

    def metadata(self, move_id: str) -> lvm_reports.LogicalVolume | None:
        """The metadata LV of a move, if it is here."""
        return self.lvs.get(names.metadata_lv(move_id))

    def move_into(self, lv: str) -> lvm_reports.LogicalVolume | None:
        """Return the metadata LV of the move that copies into an LV."""
        # A destination LV is named after the shadow (see records.py).
        return next(filter(None, map(self.metadata, names.ids_in(lv))), None)

    def destination_lvs(self, move_id: str) -> list[str]:
        """Return the names of the LVs that a move copies into."""
        # A destination LV is named after the shadow (see records.py).
        metadata = names.metadata_lv(move_id)
        return [name for name in self.lvs
                if move_id in name and name != metadata
                and not names.is_to_wipe(name)]

    def stray_metadata(self) -> dict[str, lvm_reports.LogicalVolume]:
        """Return the metadata LVs without a destination LV, by shadow id.

        LVM may have created one late, after its move was given up.
        """
        found = {names.move_of_metadata(lv.name): lv
                 for lv in self.lvs.values()}
        return {move_id: lv for move_id, lv in found.items()
                if move_id and not lv.opened and not self.clone(move_id)
                and not self.destination_lvs(move_id)}

    def snapshots(self, group: str) -> dict[str, lvm_reports.LogicalVolume]:
        """The LVs of snapshots in a group, by the snapshots' ids."""
        found = {names.facts(lv.tags).get('snapshot', ''): lv
                 for lv in self.lvs.values() if lv.group == group}
        return {key: lv for key, lv in found.items()
                if lv.name == names.snapshot_lv(key)}

    def uncommitted_lvs(self, group: str
                        ) -> list[tuple[str, lvm_reports.LogicalVolume]]:
        """The LVs in a group that nobody was given yet, with volume ids."""
        return [(names.facts(lv.tags).get('volume', ''), lv)
                for lv in self.lvs.values()
                if lv.group == group and names.UNCOMMITTED in lv.tags
                and not names.is_to_wipe(lv.name)]

    def left_of(self, volume_id: str, group: str
                ) -> list[lvm_reports.LogicalVolume]:
        """The LVs in a group that say they are a volume, all of it."""
        return [lv for lv in self.lvs.values()
                if lv.group == group
                and names.facts(lv.tags).get('volume') == volume_id
                and not names.move_of_metadata(lv.name)
                and not names.is_to_wipe(lv.name)
                and not self.move_into(lv.name)]

    def handle_is_on_lv(self, volume_id: str, lv: str, size: int = 0
                        ) -> bool:
        """Whether a volume's handle is usable and maps to this very LV.

        :param size: bytes that it must have at least
        """
        return self.is_on_lv(names.handle(volume_id), lv, size)

    def is_on_lv(self, name: str, lv: str, size: int = 0) -> bool:
        """The same for a device of this name."""
        backing = self.lvs.get(lv)
        return is_on(self.devices.get(name), backing.number if backing else '',
                     size)

    def handle_is_on_clone(self, move: state.Move) -> bool:
        """Whether a volume's handle is usable and maps to a move's clone.

        What the volume was extended by meanwhile is on the LV.
        """
        clone, handle = self.clone(move.move_id), self.handle(move.volume_id)
        return bool(clone and handle
                    and handle.uses()[:1] == (clone.number,)
                    and _is_usable(handle, move.volume_bytes))

    def is_handle_foreign(self, volume_id: str) -> bool:
        """Whether a volume's handle is on a disk of another node.

        That may be gone. It is no device of device-mapper, as are the LVs of
        other backends, too.
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
        """The volumes whose handles are on disks of other nodes."""
        return {volume_id for name in self.devices
                if (volume_id := names.volume_of_handle(name))
                and self.is_handle_foreign(volume_id)}

    def volumes_above(self, group: str, lv: str | None = None) -> set[str]:
        """The volumes whose handles are above a group's LVs, or one of them.

        Handles of other backends on this node are none of them.
        """
        numbers = {each.number for each in self.lvs.values()
                   if each.group == group and lv in (None, each.name)}
        # And above a clone that is above one.
        numbers |= {device.number for device in self.devices.values()
                    if numbers.intersection(device.uses())}
        above = {names.volume_of_handle(name)
                 for name, device in self.devices.items()
                 if numbers.intersection(device.uses())}
        return {volume_id for volume_id in above if volume_id}


def names_of(volume_id: str, move_id: str = '') -> list[str]:
    """The devices by which a survey tells of one volume, and of one move.

    The kernel takes half a millisecond for each that it is asked for: whoever
    looks at one volume asks for these, however many there are on the node.
    Of all volumes together such a survey tells nothing.

    :param volume_id: what stands above its handle, too: all that has that
        open without being a user
    """
    found = [names.handle(volume_id), names.guard(volume_id),
             names.crypt(volume_id), names.integrity(volume_id),
             names.export_device(volume_id),
             *dm_tables.helper_names(volume_id)]
    return found + [names.clone(move_id), names.source(move_id),
                    names.absent_source(move_id)] * bool(move_id)


def is_on(device: dm_tables.Device | None, number: str, size: int = 0) -> bool:
    """Whether a device is usable and maps to this very one.

    :param number: the other's; '' if there is none
    :param size: bytes that it must have at least
    """
    return bool(number and device and device.uses() == (number,)
                and _is_usable(device, size))


def _is_usable(device: dm_tables.Device, size: int) -> bool:
    return (not device.suspended
            and device.sectors * state.SECTOR >= size)
