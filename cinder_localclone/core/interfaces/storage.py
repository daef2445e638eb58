# SPDX-License-Identifier: Apache-2.0
"""The contracts of this node's storage, one class for each kind of object.

::

    Handles    handle of a volume, with its crypt device or header guard above
    Clones     dm-clone device, only during a move (metadata LV | LV | source)
    Lvm        LV, thin by default

:mod:`.interfaces.iscsi` has the contracts of iSCSI target and initiator. The
    classes of :mod:`.storage` implement these contracts; so does the simulated
    world of the tests. Both subclass them, and mypy checks their signatures. A
    method of an implementation has a docstring only for what is special there.

Sizes are in bytes, device-mapper lengths in sectors of 512 bytes. An effect
does what is missing, so it can be repeated. Where an effect returns a bool, it
is True if the effect changed anything. Each method may raise CommandFailed or
CommandTimeout.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import typing

from cinder_localclone.core import copies
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey as surveys
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import state


class Lvm(typing.Protocol):
    """The logical volumes, the thin pool and the free space of a backend."""

    #: The volume group of the volumes.
    group: str
    #: The thin pool in this group; None for thick volumes.
    pool: str | None = None

    # -- reads

    def lvs(self) -> dict[str, lvm_reports.LogicalVolume]:
        """Return all LVs of the backend's volume groups, by name."""

    def number_of(self, name: str) -> str:
        """Return the ``major:minor`` of an LV; '' if it is not active.

        The kernel answers this at once, without LVM.
        """

    def free_space(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                   | None = None) -> lvm_reports.FreeSpace:
        """Return the free space of this node for volumes and move metadata.

        :param lvs: a fresh list of the LVs; None: list them here
        """

    def pool_usage(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                   | None = None) -> lvm_reports.Usage:
        """Return the usage of the thin pool; 0 percent for thick volumes.

        :param lvs: a fresh list of the LVs; None: list them here
        """

    def own_block(self) -> int:
        """Return the logical block size of this node's disks in bytes.

        LVs, thin LVs and the devices above them have the block size of the
        disks. LVM refuses a volume group with mixed block sizes.

        :raises OddDisks: if no disk reports its block size
        """

    def logical_block(self, path: str) -> int:
        """Return the logical block size of a device in bytes.

        :returns: 0 if there is no such device
        """

    def holes(self, lv: str, size_bytes: int, geometry: state.Geometry,
              patient: bool = False) -> thin_map.Holes:
        """Return the holes of an LV that nothing writes to.

        :param size_bytes: of the volume on the LV
        :param geometry: of the clone for the copy
        :param patient: wait as long as for any command; otherwise only briefly
        :returns: ranges of regions; none if the LV is not thin
        :raises OddMap: if the pool does not report its mappings clearly
        """

    def reads_zeros(self, name: str) -> bool:
        """Return whether unwritten blocks of a new LV always read as zeros.

        True for a thin LV in a pool with zeroing.
        """

    # -- creation and removal

    def create_lv(self, name: str, size_bytes: int, volume_id: str,
                  covered: bool = False, extra_bytes: int = 0,
                  lvs: Mapping[str, lvm_reports.LogicalVolume] | None = None,
                  uncommitted: bool = False) -> bool:
        """Create the LV of a volume, thin or thick as configured.

        The LV is tagged with the volume's id, for the restore at boot. After
        the return the LV is active. The LV, and every LV created before it,
        survives a power cut.

        :param size_bytes: of the LV
        :param covered: all data is written before it is read, so a thick LV is
            not overwritten with zeros. Otherwise it is, and has a tag until
            then; a later call completes an interrupted one. The rest of the
            last extent is overwritten in any case
        :param extra_bytes: by how much the LV is longer than the volume
        :param lvs: a fresh list of the LVs; None: list them here
        :param uncommitted: tag the LV as uncommitted, until :meth:`accept`
        :returns: whether the LV was created, or an interrupted call completed
        :raises PoolDoesNotZero: if the LV would show data of deleted volumes
        :raises TooFewDisks: if the LV can't be striped as configured
        """

    def create_snapshot(self, snapshot_id: str, origin: str,
                        volume_id: str) -> None:
        """Take a snapshot of a volume's LV.

        The snapshot is read-only, and stays inactive until its first reader.

        :param origin: the name of the volume's LV
        """

    def create_copy(self, name: str, image: str, image_bytes: int,
                    size_bytes: int, volume_id: str,
                    extra_bytes: int = 0) -> None:
        """Create the LV of a volume as a thin snapshot of another LV.

        The new LV is tagged as uncommitted.

        :param image: the name of the LV to copy
        :param image_bytes: how much of it to copy. After a failed extension
            that LV is longer than its users have seen. The new LV has zeros
            beyond, also after a later extension
        :param size_bytes: of the new LV
        :param extra_bytes: by how much the new LV is longer than the volume
        :raises PoolDoesNotZero: if the new LV would show data of deleted
            volumes
        """

    def remove_lv(self, name: str) -> bool:
        """Remove an LV; it does not come back after a power cut."""

    # -- tags

    def mark_uncommitted(self, name: str) -> None:
        """Tag an LV as uncommitted; it is removed unless a row names it."""

    def accept(self, name: str) -> None:
        """Remove the tag of an uncommitted LV: a row of Cinder names the LV.
        """

    def mark(self, name: str, tag: str) -> None:
        """Add one of the plain tags of :mod:`.names` to an LV."""

    def unmark(self, name: str, tag: str) -> None:
        """Remove a tag added by :meth:`mark`."""

    # -- LVs of others

    def adopt(self, name: str, own_name: str, tags: Iterable[str]) -> None:
        """Take over an LV created by another tool, with its data.

        :param own_name: its name afterwards
        :param tags: tags by which the driver finds the LV before the rename
        :raises PoolDoesNotZero: if the LV could show data of deleted volumes
        """

    def disown(self, name: str, new_name: str) -> bool:
        """Leave an LV, with its data, to other tools.

        :param new_name: its name afterwards, unless another LV has this name
        :returns: False if the LV does not exist, or is not the driver's
        """

    def protect(self, name: str) -> None:
        """Make an LV read-only and inactive, as a snapshot.

        :raises MissingData: if there is no such LV
        """

    # -- activation

    def activate(self, name: str, lvs: Mapping[
            str, lvm_reports.LogicalVolume] | None = None) -> bool:
        """Activate an LV, to give it a device.

        :param lvs: a fresh list of the LVs; None: list them here, unless the
            kernel already has the LV
        :returns: False if the LV was active, or does not exist
        """

    def deactivate(self, name: str) -> None:
        """Deactivate an LV.

        :raises CommandFailed: if it is in use
        """

    def resume(self, name: str) -> bool:
        """Resume an LV left suspended by an interrupted LVM command."""

    # -- length and contents

    def extend_lv(self, name: str, size_bytes: int) -> bool:
        """Extend the LV of a volume; its users do not see the new part yet.

        :meth:`zero_part` and then :meth:`show_lv` complete the extension.

        :param size_bytes: the least length of the LV afterwards
        :returns: whether the LV was shorter
        :raises CommandFailed: if the LV does not exist, or the group has too
            few free extents
        """

    def zero_part(self, name: str, start: int = 0, seconds: float = 0
                  ) -> int:
        """Overwrite a part of the deleted data in an LV.

        LVM lists the LV once for each call. A caller repeats the call until it
        returns 0.

        :param start: the return value of the previous call (bytes), 0 at first
        :param seconds: time limit of the call; a running command is completed
        :returns: where this call has ended, in bytes from the beginning of the
            LV; 0 once no deleted data is left, also after a power cut
        :raises CommandFailed: if the LV can't be written
        :raises WrongDevice: if the LV's path does not lead to the LV, or the
            LV does not exist
        """

    def note_zeroed(self, name: str, end: int) -> None:
        """Record on disk how far :meth:`zero_part` has come.

        After a power cut the next :meth:`zero_part` begins there.

        :param end: bytes from the beginning of the LV, all of them zeroed
        :raises CommandFailed: if there is no such LV
        """

    def show_lv(self, name: str, size_bytes: int) -> None:
        """Let users see an LV up to a zeroed length.

        After the return, a boot restores the handle at this length.

        :param size_bytes: of the volume's data
        :raises NotPossible: if the LV is not zeroed that far
        :raises MissingData: if there is no such LV
        """

    def flush_lv(self, lv: str) -> None:
        """Flush all data written to an LV to stable storage."""


class Handles(typing.Protocol):
    """Handles of volumes, with the devices beside and above them.

    A handle is dm-linear, at a constant path. Above it can be its upper
    device: a crypt device or a header guard. Beside it are the device exported
    to peers meanwhile, and the source device of a move.
    """

    # -- reads

    def survey(self) -> surveys.Survey:
        """Return all LVs and all device-mapper devices of the backend.

        This runs a command of LVM and another of device-mapper. Call it once
        for many volumes.
        """

    def devices(self, only: Collection[str] | None = None
                ) -> dict[str, dm_tables.Device]:
        """Return the driver's device-mapper devices, by name.

        :param only: the names to look up; None: all. Missing devices are left
            out. See :func:`.survey.names_of`
        """

    def shown_bytes(self, volume_id: str, name: str, size_bytes: int) -> int:
        """Return the length that a volume's users may have seen, in bytes.

        It is the length of the handle, or of the visible part of the LV if
        this is longer: a closed handle may have been created again since, and
        a boot creates it by the LV.

        :param name: of the volume's LV on this node
        :param size_bytes: the size in the volume's row
        """

    def written(self, volume_id: str) -> int:
        """Return how many sectors were written to a handle since its creation.
        """

    # -- the handle

    def ensure_handle_on_lv(
            self, volume_id: str, lv: str, size_bytes: int,
            lvs: Mapping[str, lvm_reports.LogicalVolume] | None = None,
            swaps: bool = True) -> bool:
        """Map the handle of a volume to an LV, from its first byte on.

        A handle on another device is swapped over while in use. A new handle
        has the length that the users have seen, as after a boot: the home of a
        remote guest may have lost power after a failed extension had become
        visible.

        :param size_bytes: the least length of the handle; it never gets
            shorter while it is open
        :param lvs: a fresh list of the LVs; None: list them here
        :param swaps: False for a caller without the volume's lock: a handle on
            another device is left alone
        :raises MissingData: if the LV does not exist; it is never created here
        :raises NotPossible: if users would see data of deleted volumes, or if
            a swap is needed and ``swaps`` is False
        """

    def ensure_handle_on_clone(self, move: state.Move, swaps: bool = True
                               ) -> bool:
        """Map the handle of a volume to the clone of its move.

        The part added by an extension since the move began maps to the LV. A
        handle on another device is swapped over while in use.

        :param swaps: as in :meth:`ensure_handle_on_lv`
        :raises NotPossible: as :meth:`ensure_handle_on_lv`
        """

    def ensure_handle_on_disk(self, volume_id: str, disk: str,
                              swaps: bool = True) -> bool:
        """Map the handle of a volume to the disk of a remote attachment.

        The handle is as long as the disk, once this node sees its length.

        :param disk: path of the disk
        :param swaps: as in :meth:`ensure_handle_on_lv`
        :raises NotPossible: as :meth:`ensure_handle_on_lv`
        :raises WrongDevice: if the disk does not exist (any more), or is not
            the volume's
        """

    def ensure_handle_on_snapshot(self, snapshot_id: str,
                                  size_bytes: int) -> bool:
        """Map the read-only handle of a snapshot to its LV.

        :param size_bytes: of the snapshot
        :raises MissingData: if the LV does not exist
        """

    def switch_to_clone(self, move: state.Move, source: str) -> None:
        """Swap a handle in use from the home's disk to a pristine clone.

        The guest's writes are flushed at the source before the first write to
        the clone. After the swap a flush reaches only this node.

        :param source: path of the disk that the clone reads; '' if the disk is
            gone
        :raises MissingData: if the volume has no handle
        :raises WrongDevice: if the clone reads another disk
        """

    def remove_handle(self, volume_id: str) -> bool:
        """Remove the handle of a volume or snapshot, and all devices above it.

        The data stays.

        :raises CommandFailed: if one of the devices is in use
        """

    def read_head(self, volume_id: str) -> None:
        """Check that a handle can be read, in a child with a time limit.

        Nova formats a LUKS volume if it can't read the header.
        """

    def flush_handle(self, volume_id: str) -> None:
        """Flush all data written to a volume to stable storage.

        Its upper device is flushed first: it has a page cache of its own.
        """

    def forget_read(self, volume_id: str) -> None:
        """Drop the cached pages of a handle and its upper device.

        The next read reads from the disk.
        """

    # -- the upper device

    def can_guard(self) -> bool:
        """Return whether the kernel has the target of header guards."""

    def header_sectors(self, volume_id: str) -> int:
        """Return the length of a volume's LUKS1 header in sectors.

        It is read in a child with a time limit.

        :raises HeaderDamaged: if the header can't be read, or its length is
            impossible: a guest can write anything to a volume that Nova does
            not encrypt
        """

    def ensure_guard(self, volume_id: str, header: int) -> bool:
        """Create the header guard of a volume, above its whole handle.

        An existing guard gets a new table while it is in use. The table names
        the handle by its number, so the handle's own table may change.

        :param header: length of the volume's header, sectors
        :raises MissingData: if the volume has no handle
        """

    def read_guarded(self, volume_id: str, header: int) -> None:
        """Check that the header of a volume can be read through its guard.

        :param header: length of the header, sectors
        """

    def links(self) -> dict[str, str]:
        """Return the targets of the paths of volumes encrypted by Nova.

        :returns: names of devices by volume id; '' if the device is gone, or
            is not the driver's
        """

    def ensure_link(self, volume_id: str, device: str) -> bool:
        """Point the path of a volume at its header guard, or at its handle.

        :param device: name of the guard or the handle
        """

    def remove_link(self, volume_id: str) -> bool:
        """Remove the path of a volume."""

    def close_upper(self, volume_id: str) -> bool:
        """Remove the upper device of a volume, and the path to it.

        :raises CommandFailed: if the device is in use; then nothing is changed
        """

    # -- devices beside the handle

    def ensure_export_device(self, volume_id: str) -> bool:
        """Create the export device of a volume with an upper device.

        The kernel gives a device to one exclusive user: the device above it,
        or its iSCSI target. The target gets a second device above the handle.

        :raises MissingData: if the volume has no handle
        """

    def remove_export_device(self, volume_id: str) -> bool:
        """Remove the export device of a volume, unless it is still exported.

        :returns: whether it was removed
        """

    def ensure_source(self, move: state.Move) -> bool:
        """Create the read-only source device of a move, on its LV.

        The device is as long as the copy. The handle's name stays free on this
        node, after the volume has another home.

        :raises MissingData: if the LV does not exist; it is never created here
        """

    def remove_source(self, move_id: str) -> bool:
        """Remove the source device of a move; its LV stays.

        :raises CommandFailed: if the device is exported
        """


class Clones(typing.Protocol):
    """dm-clone devices of moves to this node, and their metadata LVs."""

    # -- the metadata LV

    def create_metadata(self, move: state.Move,
                        lvs: Mapping[str, lvm_reports.LogicalVolume]) -> bool:
        """Create the metadata LV of a move, and zero its head.

        dm-clone trusts the content of the LV, so the head is zeroed exactly
        once. The volume's LV is created afterwards: if it exists, the head has
        been zeroed.

        The tags of the LV have all facts that a restore at boot needs. The
        metadata LV survives a power cut once :meth:`Lvm.create_lv` of the
        volume's LV has returned.

        :param lvs: a fresh list of the LVs
        :raises MissingData: if the volume's LV exists without the metadata LV
        """

    def needs_hole_search(self, move: state.Move) -> bool:
        """Return whether the search for holes of a move is still to do."""

    def note_holes_searched(self, move: state.Move) -> None:
        """Record that the holes of a move have been searched; done once only.
        """

    def begin_swap(self, move: state.Move) -> bool:
        """Record that the handle of a committed move may be on the clone.

        From now on a boot maps the handle to the clone.

        :returns: whether the handle has to be swapped; see :meth:`end_swap`
        """

    def end_swap(self, move: state.Move) -> None:
        """Record that the handle is on the clone, and the swap is complete."""

    # -- the clone

    def ensure_clone(self, move: state.Move, source: str,
                     holes: thin_map.Holes = ()) -> bool:
        """Create the clone of LV, metadata LV and the source's disk.

        An existing clone is left alone while it reads from this very disk. If
        the disk has come back under another number, the clone is suspended
        before its table is loaded again: the kernel copies the bitmap at load,
        and the copy of a live clone goes stale.

        A clone with failed metadata is loaded again only while nothing has the
        handle open. Otherwise a running guest would lose completed writes that
        the metadata could not record.

        :param source: path of the source's disk
        :param holes: regions that a new clone need not copy: source and LV
            both read as zeros there
        :raises WrongDevice: if the disk does not exist, or is not the volume's
            any more; no clone is changed
        :raises MetadataTooSmall: if the metadata LV is too short. A clone
            whose metadata runs full panics the kernel
        :raises MetadataLost: if the metadata of a committed move is blank
        """

    def ensure_clone_alone(self, move: state.Move) -> bool:
        """Create the clone of LV and metadata LV, if there is none.

        For a source that can't be reached: reads of regions that are not local
        fail. Once the source is back, :meth:`ensure_clone` loads the clone
        again.

        :raises MetadataTooSmall: as :meth:`ensure_clone`
        :raises MetadataLost: as :meth:`ensure_clone`
        """

    def remove_clone(self, move_id: str) -> bool:
        """Remove the clone of a move; its LVs stay.

        :raises CommandFailed: if it is in use
        """

    def clone_status(self, move_id: str) -> dm_tables.CloneStatus:
        """Return the status of a move's clone; do not commit its metadata.

        :raises CommandFailed: if the device does not exist
        :raises ValueError: if it is not a clone
        """

    def read_clone(self, move_id: str) -> None:
        """Check that a clone can be read, in a child with a time limit.

        This makes no region local.
        """

    def flush_disk(self, move: state.Move, disk: str) -> None:
        """Flush all data written to the source of a move, at the source.

        :param disk: path of the source's disk on this node
        :raises WrongDevice: if the clone reads another disk
        """

    # -- hydration

    def set_hydration(self, move_id: str, enabled: bool) -> bool:
        """Start or stop the background copy of a move's regions.

        Writes to regions that are not local copy them in either case.
        """

    def wake_hydration(self, steps: Mapping[str, copies.Step]) -> list[str]:
        """Set batch and threshold of clones, so that hydration continues.

        The kernel checks for more work when it receives the threshold, so the
        threshold is sent last.

        :param steps: batch and threshold by move id
        :returns: the move ids of clones that no longer exist
        """

    def leave_out(self, move: state.Move, holes: thin_map.Holes) -> None:
        """Mark holes as copied in a clone, under a running guest.

        Data written by the guest is left alone. The guest's I/O is held up for
        moments only; holes that would take longer in all are copied.

        :param move: its clone does not hydrate, and its handle is on the clone
        :param holes: regions where source and LV read as zeros, unless written
            since
        :raises OddMap: if the holes can't be left out
        :raises CommandTimeout: if the command hangs; the clone must not
            hydrate then
        :raises MissingData: if there is no clone
        """

    def device_numbers(self, move: state.Move) -> tuple[str, str]:
        """Return the device numbers of a volume's handle and LV.

        '' stands for a device that does not exist, or whose I/O the kernel
        does not count.
        """

    def read_counters(self, counters: Mapping[str, tuple[str, str]]
                      ) -> dict[str, copies.Seen]:
        """Return the guests' I/O and the copied amount so far, for moves.

        The figures come from sysfs, which answers even if the disks do not. A
        missing device, or one with other figures, is left out.

        :param counters: :meth:`device_numbers` of each move, by move id
        :returns: the figures by move id
        """

    def completed_reads(self, disk: str) -> int:
        """Return how many reads a source's disk has completed or failed.

        :param disk: path of the disk
        """

    # -- comparison with the thin pool, and refill

    def recorded_as_local(self, move: state.Move) -> thin_map.Holes:
        """Return the regions of a copy that the clone's metadata has as local.

        :raises ValueError: if the metadata can't be parsed
        """

    def unmapped_blocks(self, move: state.Move, factor: int) -> thin_map.Holes:
        """Return the parts of a copy's LV that its pool does not map.

        :param factor: number of blocks in a region
        :returns: ranges of these blocks; none if the LV is not thin
        :raises PoolFails: if the pool can't write its metadata
        :raises OddMap: if the pool does not report its mappings clearly
        """

    def check_pool(self, move: state.Move) -> None:
        """Check that the pool of a copy's LV can write its metadata.

        :raises PoolFails: if it can't
        """

    def refill(self, move: state.Move, disk: str, missing: thin_map.Holes,
               factor: int) -> Iterator[thin_map.Holes]:
        """Copy missing blocks to the LV of a copy again, beneath the handle.

        A chunk of the pool is copied as a whole: the pool does not show which
        part of a chunk is missing. Data written by the guest since is left
        alone. The guest's I/O is held up for moments.

        :param disk: path of the source's disk
        :param missing: ranges of blocks that the source has
        :param factor: as in :meth:`unmapped_blocks`
        :returns: ranges of blocks, as they are copied; blocks written by the
            guest meanwhile are left out
        :raises WrongDevice: if the clone reads another disk
        :raises SourceUnread: if the source can't be read somewhere
        :raises TakesLong: if the time limit ends the call
        """
