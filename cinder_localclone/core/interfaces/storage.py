# SPDX-License-Identifier: Apache-2.0
"""The contracts of this node's storage, one class for each kind of object.

::

    Handles    handle of a volume, with its crypt device or header guard above
    Clones     dm-clone device, only during a move (metadata LV | LV | source)
    Lvm        LV, thin by default

:mod:`.interfaces.iscsi` has its iSCSI target and initiator.
The classes of :mod:`.storage` implement them, and so does the simulated world
of the tests; both subclass them, and mypy holds both to the signatures. A
method of an implementation has a docstring only for what is special there.

Sizes are bytes; device-mapper lengths are 512-byte sectors. An effect does
what is missing, so it may be repeated; where it returns a bool, that says
whether it did anything. Each method may raise CommandFailed or
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
    """The logical volumes, the thin pool and the free space of one backend."""

    #: The volume group of the volumes.
    group: str
    #: Its thin pool; None for thick volumes.
    pool: str | None = None

    # -- reads

    def lvs(self) -> dict[str, lvm_reports.LogicalVolume]:
        """Return all LVs of the backend's groups, by name."""

    def number_of(self, name: str) -> str:
        """Return the ``major:minor`` of an LV, '' unless it is active.

        The kernel answers at once; LVM is not asked.
        """

    def free_space(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                   | None = None) -> lvm_reports.FreeSpace:
        """Return how many bytes this node can take in.

        :param lvs: if they have just been listed; None: list them here
        """

    def pool_usage(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                   | None = None) -> lvm_reports.Usage:
        """Return how full the thin pool is; there may be none.

        :param lvs: if they have just been listed; None: list them here
        """

    def own_block(self) -> int:
        """Return the logical block size of this node's disks, in bytes.

        LVs, thin ones too, and devices above them have that of the disks
        below. LVM refuses a group whose disks have several.

        :raises OddDisks: if no disk tells its block size
        """

    def logical_block(self, path: str) -> int:
        """Return the logical block size of a device, in bytes.

        :returns: 0 if there is no such device
        """

    def holes(self, lv: str, size_bytes: int, geometry: state.Geometry,
              patient: bool = False) -> thin_map.Holes:
        """Return the regions of an idle LV to which nothing was ever written.

        :param size_bytes: of the volume on the LV
        :param geometry: of the clone that copies it
        :param patient: allow it as long as any command
        :returns: regions; none if the LV is not thin
        :raises OddMap: if the pool does not report its map clearly
        """

    def reads_zeros(self, name: str) -> bool:
        """Return whether unwritten blocks of a new LV read as zeros for good.
        """

    # -- creation and removal

    def create_lv(self, name: str, size_bytes: int, volume_id: str,
                  covered: bool = False, extra_bytes: int = 0,
                  lvs: Mapping[str, lvm_reports.LogicalVolume] | None = None,
                  uncommitted: bool = False) -> bool:
        """Create the LV of a volume, thin or thick as configured.

        It is tagged with the volume's id, for the restore at boot. Once this
        returns, the LV is active; it and all that was created before it
        outlive a power cut.

        :param covered: nobody reads what was not written to it before. Else
            it reads as zeros: a thick one is overwritten, and tagged until
            that is done; a later call completes an interrupted one. The
            rest of the last extent is overwritten in any case
        :param extra_bytes: by how much it is longer than the volume
        :param lvs: if they have just been listed; None: list them here
        :param newborn: tag it as uncommitted: Cinder has not taken it yet
        :raises PoolDoesNotZero: if it would show data of deleted volumes
        :raises TooFewDisks: if it can't be striped as configured
        """

    def create_snapshot(self, snapshot_id: str, origin: str,
                        volume_id: str) -> None:
        """Take a snapshot of a volume's LV, at this moment.

        The snapshot is read-only, and inactive until its first reader.
        """

    def create_copy(self, name: str, image: str, image_bytes: int,
                    size_bytes: int, volume_id: str,
                    extra_bytes: int = 0) -> None:
        """Create the LV of a volume with the data of another LV.

        The new LV is tagged as uncommitted.

        :param image: the LV to copy
        :param image_bytes: how much of it to copy: that LV is longer after
            an extension that failed, and no user sees the rest. The new LV
            has zeros beyond, also when it is extended later
        :param size_bytes: of the new LV
        :param extra_bytes: by how much the LV is longer than the volume
        :raises PoolDoesNotZero: if it would show data of deleted volumes
        """

    def remove_lv(self, name: str) -> bool:
        """Remove an LV, so that it does not come back after a power cut."""

    # -- tags

    def mark_uncommitted(self, name: str) -> None:
        """Tag an LV as uncommitted again: unless a row names it, it goes."""

    def accept(self, name: str) -> None:
        """Take the tag of an uncommitted LV off: Cinder has taken it."""

    def mark(self, name: str, tag: str) -> None:
        """Tag an LV with a tag of :mod:`.names` that needs no other."""

    def unmark(self, name: str, tag: str) -> None:
        """Take such a tag off an LV."""

    # -- LVs of others

    def adopt(self, name: str, own_name: str, tags: Iterable[str]) -> None:
        """Make the driver's own an LV that another tool has created.

        Its data stay as they are.

        :param own_name: its name afterwards
        :param tags: by which the driver finds it before it has that name
        :raises PoolDoesNotZero: if it could show data of deleted volumes
        """

    def disown(self, name: str, new_name: str) -> bool:
        """Leave an LV, with all its data, to other tools.

        :param new_name: its name afterwards, unless another LV has that
        :returns: False if there is no such LV, or it is not the driver's
        """

    def protect(self, name: str) -> None:
        """Make an LV read-only and inactive, as a snapshot is.

        :raises MissingData: if there is no such LV
        """

    # -- activation

    def activate(self, name: str, lvs: Mapping[
            str, lvm_reports.LogicalVolume] | None = None) -> bool:
        """Activate an LV, so that it has a device.

        :param lvs: if they have just been listed; None: list them here,
            unless the kernel has the LV
        :returns: False also if there is no such LV
        """

    def deactivate(self, name: str) -> None:
        """Deactivate an LV.

        :raises CommandFailed: if something has it open
        """

    def resume(self, name: str) -> bool:
        """Resume an LV that an interrupted LVM command has left suspended."""

    # -- length and contents

    def extend_lv(self, name: str, size_bytes: int) -> bool:
        """Make the LV of a volume longer; users see nothing more of it yet.

        :meth:`zero_part` and :meth:`show_lv` come next, in this order.

        :param size_bytes: the length that it has at least afterwards
        :returns: whether it was shorter
        :raises CommandFailed: if there is no such LV, or no free extents
        """

    def zero_part(self, name: str, start: int = 0, seconds: float = 0
                  ) -> int:
        """Overwrite a part of the deleted data that an LV may still have.

        LVM lists the LV once; each command looks at its tag again.

        :param start: where the last call has ended, in bytes
        :param seconds: after which this call ends, with the command that is
            running then
        :returns: where this call has ended, in bytes: the next one goes on
            there; 0 once nothing is left, also after a power cut
        :raises WrongDevice: if there is no such LV
        :raises CommandFailed: if it can't be written
        """

    def note_zeroed(self, name: str, end: int) -> None:
        """Record on disk where :meth:`zero_part` has ended.

        After a power cut the next :meth:`zero_part` begins there.

        :param end: bytes from the LV's beginning, all zeroed by now
        :raises CommandFailed: if there is no such LV
        """

    def show_lv(self, name: str, size_bytes: int) -> None:
        """Let users see an LV up to a length that is zeroed.

        Once this returns, a boot gives out that much.

        :param size_bytes: of the volume's data
        :raises MissingData: if there is no such LV
        :raises NotPossible: if it is not zeroed so far
        """

    def flush_lv(self, lv: str) -> None:
        """Put on stable storage everything written to an LV so far."""


class Handles(typing.Protocol):
    """Handles of volumes, with the devices beside and above them.

    A handle is dm-linear, at one constant path. Above it may be a crypt
    device or a header guard (its upper device); beside it the device that is
    exported to peers meanwhile, and the source device of a move.
    """

    # -- reads

    def survey(self) -> surveys.Survey:
        """Return what LVM and device-mapper show at this moment.

        All LVs of the backend's groups and all of the driver's devices. Ask
        once for many volumes: this runs a command of each.
        """

    def devices(self, only: Collection[str] | None = None
                ) -> dict[str, dm_tables.Device]:
        """Return the driver's own device-mapper devices, by name.

        :param only: those of these names, as far as they exist; see
            :func:`.survey.names_of`
        """

    def shown_bytes(self, volume_id: str, name: str, size_bytes: int) -> int:
        """Return how much of a volume its users may have seen, in bytes.

        The handle tells, and its LV: a handle that nothing has open may have
        been made again since, and a boot makes it by the LV.

        :param name: of the volume's LV on this node
        :param size_bytes: as its row says
        """

    def written(self, volume_id: str) -> int:
        """Return how much was written to a handle since it was made.

        :returns: sectors
        """

    # -- the handle

    def ensure_handle_on_lv(
            self, volume_id: str, lv: str, size_bytes: int,
            lvs: Mapping[str, lvm_reports.LogicalVolume] | None = None,
            swaps: bool = True) -> bool:
        """Map the handle of a volume to an LV, from its first byte on.

        A handle that maps to another device is swapped over while in use. A
        new one has all that users have seen, as after a boot: the home of a
        guest elsewhere may have lost its power, after an extension that
        failed had been shown.

        :param size_bytes: the length that it has at least: it never gets
            shorter while it is open
        :param lvs: if they have just been listed; None: list them here
        :param swaps: False for a caller without the volume's lock: a handle
            that maps to another device is left alone
        :raises MissingData: if there is no such LV; it is never created here
        :raises NotPossible: if users would see data of deleted volumes; or a
            handle would have to be swapped, and ``swaps`` is False
        """

    def ensure_handle_on_clone(self, move: state.Move, swaps: bool = True
                               ) -> bool:
        """Map the handle of a volume to the clone of its move.

        What the volume was extended by since the move began maps to the LV.
        A handle that maps to another device is swapped over while in use.

        :param swaps: as of :meth:`ensure_handle_on_lv`; its errors
        """

    def ensure_handle_on_disk(self, volume_id: str, disk: str,
                              swaps: bool = True) -> bool:
        """Map the handle of a volume to a disk that its home exports.

        The handle is as long as that disk, once this node sees its length.

        :param disk: its path
        :param swaps: as of :meth:`ensure_handle_on_lv`; its errors
        :raises WrongDevice: if there is no such disk (any more), or it is not
            the volume's
        """

    def ensure_handle_on_snapshot(self, snapshot_id: str,
                                  size_bytes: int) -> bool:
        """Map the read-only handle of a snapshot to its LV.

        :raises MissingData: if there is no LV
        """

    def switch_to_clone(self, move: state.Move, source: str) -> None:
        """Swap a handle in use from the home's disk to a pristine clone.

        What the guest has written is stable at the source before anything
        is written to the clone: a flush reaches only this node afterwards.

        :param source: path of the disk that the clone reads; '' if there is
            none any more
        :raises MissingData: if the volume has no handle
        :raises WrongDevice: if the clone reads another disk
        """

    def remove_handle(self, volume_id: str) -> bool:
        """Remove the handle of a volume or snapshot, and all that is above.

        Its data stay.

        :raises CommandFailed: if something has one of the devices open
        """

    def read_head(self, volume_id: str) -> None:
        """Prove that a handle can be read, in a child with a time limit.

        Nova formats a LUKS volume whose header it can't read.
        """

    def flush_handle(self, volume_id: str) -> None:
        """Put on stable storage everything written to a volume so far.

        Its upper device is flushed first: that has a page cache of its own.
        """

    def forget_read(self, volume_id: str) -> None:
        """Drop cached pages of a handle and its upper device.

        Whoever has read them reads them from the disk again.
        """

    # -- the upper device

    def can_guard(self) -> bool:
        """Return whether the kernel has the target of header guards."""

    def header_sectors(self, volume_id: str) -> int:
        """Return how long the LUKS1 header at the beginning of a volume is.

        It is read in a child with a time limit.

        :returns: sectors
        :raises HeaderDamaged: if it can't be read, or there is none that a
            guard can keep: a guest may have written anything to a volume
            that Nova does not encrypt
        """

    def ensure_guard(self, volume_id: str, header: int) -> bool:
        """Put the header guard of a volume above all of its handle.

        A guard that exists gets another table while it is in use. The table
        has the handle by its number, so the handle's own table may change.

        :param header: sectors of the volume's header
        :raises MissingData: if the volume has no handle
        """

    def read_guarded(self, volume_id: str, header: int) -> None:
        """Prove that the header of a volume can be read above its guard.

        :param header: its length, sectors
        """

    def links(self) -> dict[str, str]:
        """Return where the paths lead of volumes that Nova encrypts.

        :returns: names of devices by volume id; '' if the device is gone, or
            none of the driver's
        """

    def ensure_link(self, volume_id: str, device: str) -> bool:
        """Lead the path of a volume to its guard, or to its handle.

        :param device: name of the guard or the handle
        """

    def remove_link(self, volume_id: str) -> bool:
        """Remove the path of a volume."""

    def close_upper(self, volume_id: str) -> bool:
        """Remove the upper device of a volume, and the path that leads to it.

        :raises CommandFailed: if something has it open; then nothing is done
        """

    # -- devices beside the handle

    def ensure_export_device(self, volume_id: str) -> bool:
        """Make the device to export of a volume that has an upper device.

        The kernel gives a device to the one above it or to its iSCSI target,
        not to both. It gives it to a second device above the handle.

        :raises MissingData: if the volume has no handle
        """

    def remove_export_device(self, volume_id: str) -> bool:
        """Remove that device, unless it is still exported.

        :returns: whether it was there, and is gone
        """

    def ensure_source(self, move: state.Move) -> bool:
        """Make the read-only source device of a move above its LV.

        It has as much of the LV as is copied. The handle's name is free on
        this node once the volume is elsewhere.

        :raises MissingData: if there is no such LV; it is never created here
        """

    def remove_source(self, move_id: str) -> bool:
        """Remove the source device of a move; its LV stays.

        :raises CommandFailed: if it is exported
        """


class Clones(typing.Protocol):
    """dm-clone devices of moves to this node, and their metadata LVs."""

    # -- the metadata LV

    def create_metadata(self, move: state.Move,
                        lvs: Mapping[str, lvm_reports.LogicalVolume]) -> bool:
        """Create the metadata LV of a move; zero its head before first use.

        dm-clone trusts what it finds there, so the head is zeroed once and
        never again: it has been zeroed once the volume's LV exists, which is
        created afterwards.

        Its tags have what a restore at boot must know of the move. It
        outlives a power cut once :meth:`Lvm.create_lv` has returned.

        :param lvs: as they have just been listed
        :raises MissingData: if it has gone since: a new one would seem to be
            zeroed before it is
        """

    def is_unmapped(self, move: state.Move) -> bool:
        """Return whether the holes of a move were not looked for yet."""

    def note_mapped(self, move: state.Move) -> None:
        """Record that the holes of a move are looked for, for the only time.
        """

    def begin_swap(self, move: state.Move) -> bool:
        """Record that the handle of a committed move may be on the clone.

        A boot gives out the clone from now on.

        :returns: whether there is anything to swap; see :meth:`end_swap`
        """

    def end_swap(self, move: state.Move) -> None:
        """Record that the handle is on the clone, and the swap is over."""

    # -- the clone

    def ensure_clone(self, move: state.Move, source: str,
                     holes: thin_map.Holes = ()) -> bool:
        """Make the clone over LV, metadata LV and the source's disk.

        A clone that exists is left alone while it reads from this very
        disk. If the disk has come back under another number, the clone is
        suspended before its table is loaded again: the kernel copies the
        bitmap at load, and one that is live goes stale.

        A clone whose metadata failed is loaded again only while nothing has
        the handle open: a guest's writes that it has completed, but could not
        record, would vanish under the guest.

        :param source: path of the source's disk
        :param holes: regions that need not be copied, of a clone that this
            call creates: source and LV both read as zeros there
        :raises WrongDevice: if there is no device, or it is not the volume's
            any more; no clone is touched
        :raises MetadataTooSmall: a clone whose metadata LV runs full crashes
            the kernel
        :raises MetadataLost: if the metadata of a committed move are blank
        """

    def ensure_clone_alone(self, move: state.Move) -> bool:
        """Make the clone over LV and metadata LV, if there is none.

        For a source that can't be reached: regions that are not local can't
        be read. Once it can, :meth:`ensure_clone` loads the clone again.

        :raises MetadataTooSmall: as :meth:`ensure_clone`
        :raises MetadataLost: as :meth:`ensure_clone`
        """

    def remove_clone(self, move_id: str) -> bool:
        """Remove the clone of a move; its LVs stay.

        :raises CommandFailed: if something uses it
        """

    def clone_status(self, move_id: str) -> dm_tables.CloneStatus:
        """Return the state of a move's clone, without committing its metadata.

        :raises CommandFailed: if there is no such device
        :raises ValueError: if it is no clone
        """

    def read_clone(self, move_id: str) -> None:
        """Prove that a clone can be read, in a child with a time limit.

        No region becomes local by that.
        """

    def flush_disk(self, move: state.Move, disk: str) -> None:
        """Put on stable storage everything written at the source of a move.

        :param disk: path of the disk that the source is on this node
        :raises WrongDevice: if the clone reads another one
        """

    # -- hydration

    def set_hydration(self, move_id: str, enabled: bool) -> bool:
        """Have the kernel copy a move's regions in the background, or not.

        Writes to regions that are not local copy them in either case.
        """

    def wake_hydration(self, steps: Mapping[str, copies.Step]) -> list[str]:
        """Make the kernel check whether clones can go on copying.

        It does so when it is told the threshold, so that comes last.

        :param steps: how, by shadow id
        :returns: the shadow ids of clones that are gone
        """

    def leave_out(self, move: state.Move, holes: thin_map.Holes) -> None:
        """Have the kernel take holes for copied, under a guest.

        What the guest has written is left alone. The guest's I/O is held up
        for moments; holes that take longer in all are copied.

        :param move: whose clone does not hydrate, and whose handle is on it
        :param holes: where source and LV read as zeros, unless written since
        :raises MissingData: if there is no clone
        :raises OddMap: if they can't be left out
        :raises CommandTimeout: if that hangs: it must not hydrate then
        """

    def counters(self, move: state.Move) -> tuple[str, str]:
        """Return the device numbers of a volume's handle and of its LV.

        '' for a device that is not there, or whose I/O the kernel does not
        count.
        """

    def seen(self, counters: Mapping[str, tuple[str, str]]
             ) -> dict[str, copies.Seen]:
        """Return what guests have done so far, and what was copied.

        sysfs answers without the disks. A device that has gone, or that
        reports anything else, is left out.

        :param counters: :meth:`counters` of moves, by shadow id
        :returns: by shadow id
        """

    def completed_reads(self, disk: str) -> int:
        """Return how many reads a source's disk has completed or failed."""

    # -- comparison with the thin pool, and refill

    def recorded_as_local(self, move: state.Move) -> thin_map.Holes:
        """Return which regions the clone of a copy has on record as local.

        :raises ValueError: if its metadata are not understood
        """

    def unmapped(self, move: state.Move, factor: int) -> thin_map.Holes:
        """Return the parts of a copy's LV that its pool does not map.

        :param factor: into how many blocks a region is divided
        :returns: in these blocks; none if the LV is not thin
        :raises PoolFails: if the pool can't write its metadata
        :raises OddMap: if the pool does not report its map clearly
        """

    def check_pool(self, move: state.Move) -> None:
        """Check that the pool of a copy's LV can write its metadata.

        :raises PoolFails: if not
        """

    def refill(self, move: state.Move, disk: str, missing: thin_map.Holes,
               factor: int) -> Iterator[thin_map.Holes]:
        """Copy again, beneath the handle, what the LV of a copy lacks.

        All that the pool maps at once is copied together: a block that is
        there only in part can't be told from a whole one. What the guest has
        written since is left alone. Its I/O is held up for moments.

        :param disk: path of the source's disk
        :param missing: blocks that the source has
        :param factor: as of :meth:`unmapped`
        :returns: which of them have been copied, piece by piece; others were
            written to meanwhile
        :raises WrongDevice: if the clone reads another disk
        :raises SourceUnread: if something can't be read at the source
        :raises TakesLong: if it is not done in time
        """
