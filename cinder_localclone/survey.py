# SPDX-License-Identifier: Apache-2.0
"""What LVM and device-mapper show on a node, put together. Pure."""

import dataclasses

from cinder_localclone.dm import tables
from cinder_localclone.lvm import reports
from cinder_localclone import names


@dataclasses.dataclass(frozen=True)
class Survey:
    """What LVM and device-mapper show on this node at one moment.

    :param lvs: by name, those of the backend's volume groups
    :param devices: by name, the driver's own, those of other backends too
    """

    lvs: dict[str, reports.LogicalVolume]
    devices: dict[str, tables.Device]

    def handle(self, volume_id: str) -> tables.Device | None:
        """A volume's handle, if it has one here."""
        return self.devices.get(names.handle(volume_id))

    def clone(self, shadow_id: str) -> tables.Device | None:
        """The clone of a move, if it is here."""
        return self.devices.get(names.clone(shadow_id))

    def metadata(self, shadow_id: str) -> reports.LogicalVolume | None:
        """The metadata LV of a move, if it is here."""
        return self.lvs.get(names.metadata_lv(shadow_id))

    def handle_is_on_lv(self, volume_id: str, lv: str) -> bool:
        """Whether a volume's handle is usable and maps to this very LV."""
        body = self.lvs.get(lv)
        return bool(body and self._handle_is_on(volume_id, body.number))

    def handle_is_on_clone(self, volume_id: str, shadow_id: str) -> bool:
        """Whether a volume's handle is usable and maps to a move's clone."""
        body = self.clone(shadow_id)
        return bool(body and self._handle_is_on(volume_id, body.number))

    def _handle_is_on(self, volume_id: str, number: str) -> bool:
        handle = self.handle(volume_id)
        return bool(handle and not handle.suspended
                    and handle.uses() == (number,))

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
