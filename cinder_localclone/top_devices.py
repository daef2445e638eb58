# SPDX-License-Identifier: Apache-2.0
"""What stands above handles: guards and crypt devices, and their paths.

See :mod:`.stack`, which this is a base of; :mod:`.tops` says when there is
what.
"""

from collections.abc import Collection
from collections.abc import Mapping

from cinder_localclone.dm import guards
from cinder_localclone.dm import ioctl
from cinder_localclone.dm import tables
from cinder_localclone import encryption_errors
from cinder_localclone import exceptions
from cinder_localclone import logical_volumes
from cinder_localclone import names
from cinder_localclone.privileged import block
from cinder_localclone.privileged import crypt
from cinder_localclone.privileged import devicemapper
from cinder_localclone.privileged import links
from cinder_localclone.privileged import lvm
from cinder_localclone import state
from cinder_localclone import survey as surveys

#: Sectors that a header has at most: no tool makes one that is longer.
LONGEST = (32 << 20) // state.SECTOR


def own_devices(timeout: float, only: Collection[str] | None = None
                ) -> dict[str, tables.Device]:
    """Return the driver's own device-mapper devices, by name.

    :param timeout: seconds
    :param only: those of these names, as far as they are there
    """
    return tables.own_devices(
        (ioctl.Status(*each) for each in devicemapper.survey(
            timeout, None if only is None else [*only])),
        names.device_uuid(''))


class TopDevices(logical_volumes.LogicalVolumes):
    """The tops of volumes of one backend on this node."""

    def survey(self) -> surveys.Survey:
        """All LVs of the backend's groups and all of the driver's devices."""
        return surveys.Survey(self.lvs(), self.devices())

    def devices(self, only: Collection[str] | None = None
                ) -> dict[str, tables.Device]:
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
                   devicemapper.targets(self.timeout).splitlines())

    def header_sectors(self, volume_id: str) -> int:
        """How long the LUKS1 header at the beginning of a volume is.

        It is read, in a child with a time limit.

        :raises HeaderDamaged: if it can't be, or there is none that a guard
            can keep: what a guest has written to a volume that Nova does not
            encrypt may be anything
        """
        devicemapper.mend_path(names.handle(volume_id))
        path = names.handle_path(volume_id)
        found = crypt.payload_sectors(path, self.timeout)
        if not 0 < found <= LONGEST:
            raise encryption_errors.HeaderDamaged(
                path=path,
                reason='its data would begin at sector %d' % found)
        return found

    def _devices_with_handle(self, volume_id: str) -> tuple[
            Mapping[str, tables.Device], tables.Device]:
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
        wanted = guards.Guard(handle.number, header, handle.sectors)
        if guard and not guard.suspended and guards.parse(guard) == wanted:
            return devicemapper.mend_path(name)
        if guard:
            devicemapper.swap_table(name, str(wanted), self.timeout)
        else:
            devicemapper.create(name, names.device_uuid(name), str(wanted),
                                self.timeout)
        devicemapper.mend_path(name)
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
            devicemapper.remove(names.guard(volume_id), self.timeout)
        if present.crypt(volume_id):
            crypt.close(names.crypt(volume_id), self.timeout)
        if present.integrity(volume_id):  # it may be all that there was
            crypt.remove_integrity(names.integrity(volume_id), self.timeout)
        return links.remove(volume_id) or bool(present.tops(volume_id))


def _guarded(header: int) -> str:
    return names.tags(**{names.GUARDED: header})[0]
