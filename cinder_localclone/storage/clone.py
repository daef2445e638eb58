# SPDX-License-Identifier: Apache-2.0
"""The block stack of this node: survey it, build it, tear it down.

::

    handle   dm-linear, one constant path per volume
    clone    dm-clone, only during a move (metadata LV | LV | source)
    LV       LVM, thin by default

At the source of a move there is a source device above the LV, beside the
handle or without it: dm-linear, read-only, what the destination reads.
Where a volume is passed through, the handle is on the disk that the volume's
home serves.

Every effect does what is missing and returns whether it did anything. It
checks first, or takes "there already" for an answer: each check costs a
command. Sizes are bytes; device-mapper lengths are 512-byte sectors.

Everything here may raise CommandFailed or CommandTimeout.
"""

from collections.abc import Mapping
import contextlib

from oslo_log import log as logging

from cinder_localclone.core import copies
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage import handles
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import lvm
from cinder_localclone.storage.privsep import sysfs

LOG = logging.getLogger(__name__)

#: How many regions the kernel marks in one call, and for how many seconds
#: in all: somebody waits for the volume.
REGIONS_AT_ONCE = 1 << 20
DISCARDING = 10


class Stack(handles.Handles):
    """The stack of one backend on this node."""

    # -- the clone

    def create_metadata(self, move: state.Move,
                        lvs: Mapping[str, lvm_reports.LogicalVolume]) -> bool:
        """Create the metadata LV, and zero its head before anything uses it.

        dm-clone trusts whatever it finds there, so that must be done, and
        never again: once the volume's LV is there, which is created
        afterwards, it has been.

        Tags say what :mod:`.restore` needs to know of the move. It outlives a
        power cut once :meth:`create_lv` has returned.

        :param lvs: as they have just been listed
        :raises MissingData: if it has gone since: a new one would seem to be
            zeroed before it is
        """
        name = names.metadata_lv(move.shadow_id)
        if move.destination_lv in lvs:
            if name not in lvs:
                raise exceptions.MissingData(
                    what='The move metadata', volume=move.volume_id,
                    host=self.host)
            return self._activate(lvs[name])
        tags = names.volume_tags(move.volume_id, move.extra_bytes)
        tags += names.tags(geometry=move.geometry, source=move.source_iqn,
                           copied=move.size_gib)
        tags += [names.FOLLOWS] * move.follows
        tags += [names.UNMAPPED] * move.is_under_guest
        # The volume's LV follows: if it outlives a power cut, so does this,
        # without which it would count as complete.
        if not lvm.create_thick(
                self.metadata_group, name,
                move.geometry.metadata_bytes(move.size_bytes), tags,
                self.timeout, flush=self.metadata_group != self.group):
            self.activate(name)
        block.zero_head(self.metadata_group, name, self.timeout)
        return True

    def clone_status(self, shadow_id: str) -> dm_tables.CloneStatus:
        """The state of a move's clone, without committing its metadata.

        :raises CommandFailed: if there is no such device
        :raises ValueError: if it is no clone
        """
        return dm_tables.parse_clone_status(dmsetup.status(
            names.clone(shadow_id), self.timeout))

    def clone_statuses(self) -> dict[str, dm_tables.CloneStatus]:
        """The same of all clones of this node, by their shadows' ids."""
        found = dmsetup.clone_statuses(self.timeout)
        return {shadow_id: dm_tables.parse_clone_status(line)
                for name, line in found.items()
                if (shadow_id := names.shadow_of_clone(name))}

    @staticmethod
    def completed_reads(disk: str) -> int:
        """How many reads a source's disk has completed, failed ones too."""
        return block.completed_reads(disk)

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
        :raises WrongDevice: if there is no device, or it is not the volume's
            any more; no clone is touched
        :raises MetadataTooSmall: a clone whose metadata LV runs full crashes
            the kernel
        :raises MetadataLost: if the metadata of a committed move are blank
        """
        return self._ensure_clone(move, source, holes, move.volume_id)

    def _ensure_clone(self, move: state.Move, source: str,
                      holes: thin_map.Holes, serial: str) -> bool:
        """:param serial: of the source's disk; '' if it is no disk"""
        name = names.clone(move.shadow_id)
        present = self._survey_of(move.volume_id, move.shadow_id)
        clone = present.clone(move.shadow_id)
        number = block.number(source)
        if not number:
            raise exceptions.WrongDevice(path=source, found='nothing')
        if clone and self._may_stay(move, clone, number, present):
            # Whoever built it may not have come to this.
            self._disable_discards(move)
            return False
        self._check_metadata(move)
        table = self._clone_table(move, number)
        disk = (number, serial) if serial else None
        if clone:
            loaded = clone.target == 'clone'
            used = loaded and bool(present.users(move.volume_id))
            if loaded and not used:
                self._say_if_failed(move)
            dmsetup.replace_suspended(
                name, table, self.timeout, used, *[disk] * bool(disk))
        else:
            self._create(name, table, disk)
            self._discard(move, holes)
        self._disable_discards(move)
        return True

    def _say_if_failed(self, move: state.Move) -> None:
        """A clone is loaded anew: afterwards nobody sees how it was."""
        with contextlib.suppress(exceptions.LocalCloneError):
            mode = self.clone_status(move.shadow_id).mode
            if mode != 'rw':
                events.say(events.CLONE_FAILED, volume=move.volume_id,
                           mode=mode)

    def read_clone(self, shadow_id: str) -> None:
        """Prove that a clone can be read, in a child with a time limit.

        Nothing becomes local by that.
        """
        block.read_head(names.clone_path(shadow_id), handles.HEAD,
                        self.timeout)

    def ensure_clone_alone(self, move: state.Move) -> bool:
        """The clone over LV and metadata LV, if there is none.

        Its source cannot be reached: what is not local can't be read. Once
        it can, :meth:`ensure_clone` loads the clone anew.

        :raises MetadataTooSmall: as ensure_clone
        :raises MetadataLost: as ensure_clone
        """
        absent = names.absent_source(move.shadow_id)
        devices = self.devices([names.clone(move.shadow_id), absent])
        clone = devices.get(names.clone(move.shadow_id))
        if clone and clone.target == 'clone' and not clone.suspended:
            self._disable_discards(move)
            return False
        table = dm_tables.error(move.size_bytes // state.SECTOR)
        if absent not in devices:
            dmsetup.create(absent, names.device_uuid(absent), table,
                           self.timeout)
        elif devices[absent].target != 'error':  # not made to the end
            dmsetup.swap_table(absent, table, self.timeout)
        return self._ensure_clone(move, '/dev/mapper/' + absent, (), '')

    def _may_stay(self, move: state.Move, clone: dm_tables.Device, source: str,
                  present: survey.Survey) -> bool:
        """Whether a clone is to be left as it is.

        :param source: number of the disk that it has to read from
        :param present: all devices of volume and move
        """
        handle = present.handle(move.volume_id)
        if (clone.target != 'clone' or clone.suspended
                # Whatever was done beneath it is over once the clone was.
                or handle and handle.suspended):
            return False
        right = clone.uses()[2] == source
        used = bool(present.users(move.volume_id))
        if right == used:
            return right
        # One that has failed goes when nothing uses it, and only then.
        works = self.clone_status(move.shadow_id).mode == 'rw'
        return works == right

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
                    self._discarded_at_once(move),
                    min(DISCARDING, self.timeout / 2), self.timeout)
        except (exceptions.CommandFailed, thin_map.OddMap) as exc:
            LOG.warning(
                'Holes of volume %(volume)s are copied, too: '
                '%(error)s', {'volume': move.volume_id, 'error': exc})

    def leave_out(self, move: state.Move, holes: thin_map.Holes) -> None:
        """Have the kernel take holes for copied, under a guest.

        What the guest has written is left alone. The guest's I/O is held up
        for moments; what takes longer in all is copied.

        :param move: whose clone does not hydrate, and whose handle is on it
        :param holes: where source and LV read as zeros, unless it was written
        :raises OddMap: if they can't be
        :raises CommandTimeout: if that hangs: it must not hydrate then
        """
        parts = thin_map.in_bytes(holes, move.geometry, move.size_bytes)
        name = names.clone(move.shadow_id)
        if parts:
            dmsetup.discard_beneath(
                names.handle(move.volume_id), name,
                self.devices([name])[name].table, parts,
                self._discarded_at_once(move),
                min(DISCARDING, self.timeout / 2), self.timeout)

    def is_unmapped(self, move: state.Move) -> bool:
        """Whether nobody has looked yet for what need not be copied."""
        lv = self.lvs().get(names.metadata_lv(move.shadow_id))
        return lv is not None and names.UNMAPPED in lv.tags

    def note_mapped(self, move: state.Move) -> None:
        """Somebody looks now, and nobody will again."""
        lvm.remove_tag(
            self.metadata_group, names.metadata_lv(move.shadow_id),
            names.UNMAPPED, self.timeout)

    @staticmethod
    def _discarded_at_once(move: state.Move) -> int:
        return REGIONS_AT_ONCE * move.geometry.region_sectors * state.SECTOR

    def _clone_table(self, move: state.Move, source: str) -> str:
        return dm_tables.clone(
            move.size_bytes // state.SECTOR, names.lv_path(
                self.metadata_group, names.metadata_lv(move.shadow_id)),
            names.lv_path(self.group, move.destination_lv), source,
            move.geometry)

    @staticmethod
    def _disable_discards(move: state.Move) -> None:
        """A clone refuses discards, and so does all that is stacked on it.

        A discard of a region that is being copied loses writes that follow
        it (measured on 6.1).
        """
        block.disable_discards(names.clone_path(move.shadow_id))

    def _check_metadata(self, move: state.Move) -> None:
        path = names.lv_path(self.metadata_group,
                             names.metadata_lv(move.shadow_id))
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
        dmsetup.message(
            names.clone(shadow_id),
            'enable_hydration' if enabled else 'disable_hydration',
            self.timeout)
        return True

    def wake_hydration(self, steps: Mapping[str, copies.Step]) -> list[str]:
        """Make the kernel check whether clones can go on copying.

        It does so when it is told the threshold, so that comes last.

        :param steps: how, by shadow id
        :returns: the shadow ids of clones that are gone
        """
        missing = dmsetup.send([
            (names.clone(shadow_id), text)
            for shadow_id, step in steps.items()
            for text in ('hydration_batch_size %d' % step.batch,
                         'hydration_threshold %d' % step.threshold)],
            self.timeout)
        return [shadow_id for shadow_id in steps
                if names.clone(shadow_id) in missing]

    def counters(self, move: state.Move) -> tuple[str, str]:
        """The device numbers of a volume's handle and of its LV.

        '' for one that is not there, or whose I/O the kernel does not count.
        """
        return (_counted(names.handle_path(move.volume_id)),
                _counted(names.lv_path(self.group, move.destination_lv)))

    @staticmethod
    def seen(counters: Mapping[str, tuple[str, str]]
             ) -> dict[str, copies.Seen]:
        """What guests have done so far, and what was copied, by shadow id.

        Read in this process, many times a second; sysfs answers without the
        disks. What has gone, or says something else, is left out.
        """
        found = {}
        for shadow_id, (handle, lv) in counters.items():
            with contextlib.suppress(ValueError):
                found[shadow_id] = copies.parse_seen(
                    sysfs.counters(handle), sysfs.counters(lv))
        return found

    def remove_clone(self, shadow_id: str) -> bool:
        """Remove the clone of a move; its LVs stay.

        :raises CommandFailed: if something uses it
        """
        removed = dmsetup.remove(names.clone(shadow_id), self.timeout)
        dmsetup.remove(names.absent_source(shadow_id), self.timeout)
        return removed

    def begin_swap(self, move: state.Move) -> bool:
        """The handle may be on the clone from now on: the move is committed.

        On record here, so that a boot gives out the clone.

        :returns: whether there is anything to swap; see :meth:`end_swap`
        """
        lv = self.lvs().get(names.metadata_lv(move.shadow_id))
        if lv is None or lv.tags.isdisjoint(
                (names.FOLLOWS, names.SWAPPING)):
            return False
        if names.FOLLOWS in lv.tags:
            lvm.retag(self.metadata_group, lv.name, [names.SWAPPING],
                      [names.FOLLOWS], self.timeout)
        return True

    def end_swap(self, move: state.Move) -> None:
        """The handle is on the clone, and nothing else is left to be done."""
        lvm.remove_tag(
            self.metadata_group, names.metadata_lv(move.shadow_id),
            names.SWAPPING, self.timeout)


def _counted(path: str) -> str:
    number = block.number(path)
    return number if sysfs.is_counted(number) else ''
