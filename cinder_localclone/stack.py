# SPDX-License-Identifier: Apache-2.0
"""The block stack of this node: survey it, build it, tear it down.

::

    handle   dm-linear, one constant path per volume
    clone    dm-clone, only during a move (metadata LV | LV | source)
    LV       LVM, thin by default

At the source of a move there is a source device above the LV, beside the
handle or without it: dm-linear, read-only, what the destination reads.

Every effect does what is missing and returns whether it did anything. It
checks first, or takes "there already" for an answer: each check costs a
command. Sizes are bytes; device-mapper lengths are 512-byte sectors.

Everything here may raise CommandFailed or CommandTimeout.
"""

from collections.abc import Mapping

from oslo_log import log as logging

from cinder_localclone.dm import tables
from cinder_localclone import exceptions
from cinder_localclone import logical_volumes
from cinder_localclone import names
from cinder_localclone.privileged import block
from cinder_localclone.privileged import devicemapper
from cinder_localclone import state
from cinder_localclone import survey
from cinder_localclone import thin_map

LOG = logging.getLogger(__name__)

#: How much of a new handle is read before it is given out, in bytes. Nova
#: formats a LUKS volume whose header it cannot read.
HEAD = 1 << 20
#: How many regions the kernel marks in one call, and for how many seconds
#: in all: somebody waits for the volume.
REGIONS_AT_ONCE = 1 << 20
DISCARDING = 10


class Stack(logical_volumes.LogicalVolumes):
    """The stack of one backend on this node."""

    # -- what there is

    def survey(self) -> survey.Survey:
        """All LVs of the backend's groups and all of the driver's devices."""
        return survey.Survey(self.lvs(), self.devices())

    def devices(self) -> dict[str, tables.Device]:
        """The driver's own device-mapper devices, by name."""
        info, table = devicemapper.survey(self.timeout)
        return tables.parse_devices(info, table, names.device_uuid(''))

    def clone_status(self, shadow_id: str) -> tables.CloneStatus:
        """The state of a move's clone, without committing its metadata.

        :raises CommandFailed: if there is no such device
        :raises ValueError: if it is no clone
        """
        return tables.parse_clone_status(devicemapper.status(
            names.clone(shadow_id), self.timeout))

    @staticmethod
    def completed_reads(disk: str) -> int:
        """How many reads a source's disk has completed, failed ones too."""
        return block.completed_reads(disk)

    # -- the clone

    def ensure_clone(self, move: state.Move, source: str,
                     holes: thin_map.Holes = ()) -> bool:
        """The clone over LV, metadata LV and the source's disk.

        A clone that exists is left alone while it reads from this very
        disk. If the disk has come back under another number, the clone is
        suspended before its table is loaded anew: the kernel copies the
        bitmap at load, and one that is live goes stale.

        One whose metadata failed is loaded anew only while nothing has the
        handle open: a guest's writes that it has completed, but could not
        record, would vanish under it.

        :param source: path of the source's disk
        :param holes: what need not be copied, of a clone that is created
            here and now over an LV that was: its source reads as zeros
            there, and so does the LV
        :raises WrongDevice: if there is no device; no clone is touched
        :raises MetadataTooSmall: a clone whose metadata LV runs full crashes
            the kernel
        :raises MetadataLost: if the metadata of a committed move are blank
        """
        name = names.clone(move.shadow_id)
        devices = self.devices()
        clone = devices.get(name)
        number = block.number(source)
        if not number:
            raise exceptions.WrongDevice(path=source, found='nothing')
        if clone and self._may_stay(
                move, clone, number, devices.get(
                    names.handle(move.volume_id))):
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
        if clone:
            devicemapper.replace_suspended(name, table, self.timeout)
        else:
            devicemapper.create(name, names.device_uuid(name), table,
                                self.timeout)
            self._discard(move, holes)
        self._disable_discards(move)
        return True

    def ensure_clone_alone(self, move: state.Move) -> bool:
        """The clone over LV and metadata LV, if there is none.

        Its source cannot be reached: what is not local can't be read. Once
        it can, :meth:`ensure_clone` loads the clone anew.

        :raises MetadataTooSmall: as ensure_clone
        :raises MetadataLost: as ensure_clone
        """
        devices = self.devices()
        clone = devices.get(names.clone(move.shadow_id))
        if clone and clone.target == 'clone' and not clone.suspended:
            self._disable_discards(move)
            return False
        absent = names.absent_source(move.shadow_id)
        if absent not in devices:
            devicemapper.create(
                absent, names.device_uuid(absent),
                tables.error(move.size_bytes // state.SECTOR), self.timeout)
        return self.ensure_clone(move, '/dev/mapper/' + absent)

    def _may_stay(self, move: state.Move, clone: tables.Device, source: str,
                  handle: tables.Device | None) -> bool:
        """Whether a clone is to be left as it is.

        :param source: number of the disk that it has to read from
        """
        if (clone.target != 'clone' or clone.suspended
                or clone.uses()[2] != source):
            return False
        return bool(handle and handle.opened) or (
            self.clone_status(move.shadow_id).mode == 'rw')

    def _discard(self, move: state.Move, holes: thin_map.Holes) -> None:
        """Have the kernel take holes for copied.

        Before discards are refused, which can't be undone, and before
        anything is copied or written. What is not discarded is copied.

        :raises CommandTimeout: if that hangs: whatever it does later, no
            guest may have the clone by then
        """
        try:
            parts = thin_map.in_bytes(holes, move.geometry, move.size_bytes)
            if parts:
                block.discard(
                    names.clone_path(move.shadow_id), parts,
                    REGIONS_AT_ONCE * move.geometry.region_sectors
                    * state.SECTOR, min(DISCARDING, self.timeout / 2),
                    self.timeout)
        except (exceptions.CommandFailed, thin_map.OddMap) as exc:
            LOG.warning(
                'What was never written of volume %(volume)s is copied, '
                'too: %(error)s', {'volume': move.volume_id, 'error': exc})

    @staticmethod
    def _disable_discards(move: state.Move) -> None:
        """A clone refuses discards, and so does all that is stacked on it.

        A discard of a region that is being copied loses writes that follow
        it (measured on 6.1).
        """
        block.disable_discards(names.clone_path(move.shadow_id))

    def _check_metadata(self, move: state.Move, path: str) -> None:
        size = block.size(path)
        needed = move.geometry.metadata_bytes(move.size_bytes)
        if size < needed:
            raise exceptions.MetadataTooSmall(
                device=path, volume=move.volume_id, found=size,
                needed=needed)
        # The kernel takes zeros for a new clone, of which nothing is local
        # (dm-clone-metadata.c). It is new only until the move is committed.
        if move.committed and block.head_is_zero(path, self.timeout):
            raise exceptions.MetadataLost(
                device=path, volume=move.volume_id)

    def set_hydration(self, shadow_id: str, enabled: bool) -> bool:
        """Have the kernel copy a move's regions in the background, or not.

        Writes to regions that are not local copy them in either case.
        """
        if self.clone_status(shadow_id).enabled == enabled:
            return False
        devicemapper.message(
            names.clone(shadow_id),
            'enable_hydration' if enabled else 'disable_hydration',
            self.timeout)
        return True

    def wake_hydration(self, thresholds: Mapping[str, int]) -> list[str]:
        """Make the kernel check whether clones can go on copying.

        :param thresholds: regions at once, as they are, by shadow id
        :returns: the shadow ids of clones that are gone
        """
        missing = devicemapper.send([
            (names.clone(shadow_id), 'hydration_threshold %d' % threshold)
            for shadow_id, threshold in thresholds.items()])
        return [shadow_id for shadow_id in thresholds
                if names.clone(shadow_id) in missing]

    def remove_clone(self, shadow_id: str) -> bool:
        """Remove the clone of a move; its LVs stay.

        :raises CommandFailed: if something uses it
        """
        removed = devicemapper.remove(names.clone(shadow_id), self.timeout)
        devicemapper.remove(names.absent_source(shadow_id), self.timeout)
        return removed

    # -- the handle

    def ensure_handle_on_lv(self, volume_id: str, lv: str,
                            size_bytes: int) -> bool:
        """The handle of a volume, on an LV from its first byte on.

        A handle that is on something else is swapped over while in use.

        :param size_bytes: which it has at least: it never gets shorter
        :raises MissingData: if there is no such LV; it is never created here
        :raises NotPossible: if others could be read there
        """
        present = self.survey()
        if present.handle_is_on_lv(volume_id, lv, size_bytes):
            return self._mend_path(volume_id)
        if lv not in present.lvs:
            raise exceptions.MissingData(
                what='Logical volume %s' % lv, volume=volume_id,
                host=self.host)
        if present.lvs[lv].shown < min(size_bytes, present.lvs[lv].size):
            raise exceptions.NotPossible(
                volume=volume_id, reason='its LV %s may still have what '
                'others have deleted: it was not zeroed to its end. Delete '
                'the volume.' % lv)
        self._activate(present.lvs[lv])
        return self._ensure_handle(
            present.devices, volume_id, tables.linear(
                _length(present, volume_id, size_bytes),
                names.lv_path(present.lvs[lv].group, lv)))

    def ensure_handle_on_clone(self, move: state.Move) -> bool:
        """The handle of a volume, on the clone of its move.

        What the volume was extended by since the move began is on the LV. A
        handle that is on something else is swapped over while in use.
        """
        present = survey.Survey({}, self.devices())
        if present.handle_is_on_clone(move):
            return self._mend_path(move.volume_id)
        return self._ensure_handle(
            present.devices, move.volume_id, tables.on_clone(
                move.size_bytes // state.SECTOR,
                names.clone_path(move.shadow_id),
                _length(present, move.volume_id, move.volume_bytes),
                names.lv_path(self.group, move.destination_lv)))

    def ensure_handle_on_snapshot(self, snapshot_id: str,
                                  size_bytes: int) -> bool:
        """The handle of a snapshot, which can only be read.

        :raises MissingData: if there is no LV
        """
        return self._ensure_readonly(
            names.handle(snapshot_id), snapshot_id,
            names.snapshot_lv(snapshot_id), size_bytes)

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
        return devicemapper.remove(names.source(shadow_id), self.timeout)

    # -- how

    def _ensure_readonly(self, name: str, owner: str, lv: str,
                         size_bytes: int) -> bool:
        present = self.survey()
        if present.is_on_lv(name, lv):
            return devicemapper.mend_path(name)
        if lv not in present.lvs:
            raise exceptions.MissingData(
                what='Logical volume %s' % lv, volume=owner, host=self.host)
        # One that is on nothing usable.
        devicemapper.remove(name, self.timeout)
        self._activate(present.lvs[lv])
        devicemapper.create(
            name, names.device_uuid(name), tables.linear(
                size_bytes // state.SECTOR,
                names.lv_path(present.lvs[lv].group, lv)),
            self.timeout, readonly=True)
        devicemapper.mend_path(name)
        return True

    def _ensure_handle(self, devices: Mapping[str, tables.Device],
                       volume_id: str, table: str) -> bool:
        name = names.handle(volume_id)
        if name in devices:
            devicemapper.swap_table(name, table, self.timeout)
        else:
            devicemapper.create(name, names.device_uuid(name), table,
                                self.timeout)
        self._mend_path(volume_id)
        return True

    @staticmethod
    def _mend_path(volume_id: str) -> bool:
        """Whoever opens the handle's path gets the handle."""
        return devicemapper.mend_path(names.handle(volume_id))

    def remove_handle(self, volume_id: str) -> bool:
        """Remove the handle of a volume; its data stay.

        :raises CommandFailed: if something has it open
        """
        return devicemapper.remove(names.handle(volume_id), self.timeout)

    # -- data

    def read_head(self, volume_id: str) -> None:
        """Prove that a handle can be read, in a child with a time limit."""
        self._mend_path(volume_id)
        block.read_head(names.handle_path(volume_id), HEAD, self.timeout)

    def written(self, volume_id: str) -> int:
        """How much was written to a handle since it is there, in sectors."""
        self._mend_path(volume_id)
        return block.written_sectors(names.handle_path(volume_id))

    def flush_handle(self, volume_id: str) -> None:
        """Everything written so far is on stable storage afterwards."""
        self._mend_path(volume_id)
        block.flush(names.handle_path(volume_id), self.timeout)


def _length(present: survey.Survey, volume_id: str, size_bytes: int) -> int:
    """Sectors of a handle: what its users have seen, they keep."""
    handle = present.handle(volume_id)
    return max(size_bytes // state.SECTOR, handle.sectors if handle else 0)
