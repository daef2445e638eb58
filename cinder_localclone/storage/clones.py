# SPDX-License-Identifier: Apache-2.0
"""dm-clone devices of moves to this node, and their metadata LVs."""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import random
import time

from oslo_log import log as logging

from cinder_localclone.core import copies
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core.interfaces import storage
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage import devices as dm_devices
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import lvm
from cinder_localclone.storage.privsep import refill
from cinder_localclone.storage.privsep import sysfs
from cinder_localclone.storage.privsep import thin_pool

LOG = logging.getLogger(__name__)

#: Maximum regions for the kernel to mark in a single call, and the time limit
#: of all these calls in seconds: a client waits for the volume meanwhile.
REGIONS_AT_ONCE = 1 << 20
DISCARDING = 10


class Clones(storage.Clones):
    """Clones of a backend.

    :param lvm_: LVs of the backend
    :param handles: handles of the backend
    """

    def __init__(self, lvm_: logical_volumes.Lvm,
                 handles: storage.Handles) -> None:
        self.lvm = lvm_
        self.handles = handles
        self.timeout = lvm_.timeout

    # -- the metadata LV

    def create_metadata(self, move: state.Move,
                        lvs: Mapping[str, lvm_reports.LogicalVolume]) -> bool:
        name = names.metadata_lv(move.move_id)
        if move.destination_lv in lvs:
            if name not in lvs:
                raise exceptions.MissingData(
                    what='The move metadata', volume=move.volume_id,
                    host=self.lvm.host)
            return self.lvm.activate(name, lvs)
        tags = names.volume_tags(move.volume_id, move.extra_bytes)
        tags += names.tags(geometry=move.geometry, source=move.source_iqn,
                           copied=move.size_gib)
        tags += [names.DEFERRED] * move.is_deferred
        tags += [names.UNMAPPED] * move.is_under_guest
        # The LV of the volume is created next. If that LV outlives a power
        # cut, the metadata LV must too: an LV without metadata counts as
        # complete.
        if not lvm.create_thick(
                self.lvm.metadata_group, name,
                move.geometry.metadata_bytes(move.size_bytes), tags,
                self.timeout, flush=self.lvm.metadata_group != self.lvm.group):
            self.lvm.activate(name)
        block.zero_head(self.lvm.metadata_group, name, self.timeout)
        return True

    def _check_metadata(self, move: state.Move) -> None:
        path = names.lv_path(self.lvm.metadata_group,
                             names.metadata_lv(move.move_id))
        size = block.size(path)
        needed = move.geometry.metadata_bytes(move.size_bytes)
        if size < needed:
            raise exceptions.MetadataTooSmall(
                device=path, volume=move.volume_id, found=size,
                needed=needed)
        # The kernel takes a zeroed head for a new clone without any local
        # region (dm-clone-metadata.c). A clone is new only until its move is
        # committed.
        if move.committed and block.head_is_zero(path, self.timeout):
            raise exceptions.MetadataLost(
                device=path, volume=move.volume_id)

    def needs_hole_search(self, move: state.Move) -> bool:
        lv = self.lvm.lvs().get(names.metadata_lv(move.move_id))
        return lv is not None and names.UNMAPPED in lv.tags

    def note_holes_searched(self, move: state.Move) -> None:
        lvm.remove_tag(
            self.lvm.metadata_group, names.metadata_lv(move.move_id),
            names.UNMAPPED, self.timeout)

    def begin_swap(self, move: state.Move) -> bool:
        lv = self.lvm.lvs().get(names.metadata_lv(move.move_id))
        if lv is None or lv.tags.isdisjoint(
                (names.DEFERRED, names.SWAPPING)):
            return False
        if names.DEFERRED in lv.tags:
            lvm.retag(self.lvm.metadata_group, lv.name, [names.SWAPPING],
                      [names.DEFERRED], self.timeout)
        return True

    def end_swap(self, move: state.Move) -> None:
        lvm.remove_tag(
            self.lvm.metadata_group, names.metadata_lv(move.move_id),
            names.SWAPPING, self.timeout)

    # -- the clone

    def ensure_clone(self, move: state.Move, source: str,
                     holes: thin_map.Holes = ()) -> bool:
        return self._ensure_clone(move, source, holes, move.volume_id)

    def _ensure_clone(self, move: state.Move, source: str,
                      holes: thin_map.Holes, serial: str) -> bool:
        """Create or reload the clone of a move.

        :param serial: serial number of the source's disk; '' if the source is
            no disk
        """
        name = names.clone(move.move_id)
        present = survey.Survey({}, self.handles.devices(
            survey.names_of(move.volume_id, move.move_id)))
        clone = present.clone(move.move_id)
        number = block.number(source)
        if not number:
            raise exceptions.WrongDevice(path=source, found='nothing')
        if clone and self._may_stay(move, clone, number, present):
            # The process that created the clone may have been killed before
            # this call.
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
            dm_devices.create(name, table, self.timeout, disk)
            self._discard(move, holes)
        self._disable_discards(move)
        return True

    def _may_stay(self, move: state.Move, clone: dm_tables.Device, source: str,
                  present: survey.Survey) -> bool:
        """Return whether a clone stays as it is.

        :param source: number of the right source disk
        :param present: all devices of volume and move
        """
        handle = present.handle(move.volume_id)
        if (clone.target != 'clone' or clone.suspended
                # A suspended handle is a sign of an interrupted operation
                # beneath it. That operation is over once the clone is loaded
                # again.
                or handle and handle.suspended):
            return False
        right = clone.uses()[2] == source
        used = bool(present.users(move.volume_id))
        if right == used:
            return right
        # A failed clone is replaced only while nothing uses it.
        works = self.clone_status(move.move_id).mode == 'rw'
        return works == right

    def _clone_table(self, move: state.Move, source: str) -> str:
        return dm_tables.clone(
            move.size_bytes // state.SECTOR, names.lv_path(
                self.lvm.metadata_group, names.metadata_lv(move.move_id)),
            names.lv_path(self.lvm.group, move.destination_lv), source,
            move.geometry)

    @staticmethod
    def _disable_discards(move: state.Move) -> None:
        """Make a clone, and all devices above it, refuse discards.

        A discard during the copy of a region loses later writes to the region
        (measured on 6.1).
        """
        block.disable_discards(names.clone_path(move.move_id))

    def _say_if_failed(self, move: state.Move) -> None:
        """Log the failure of a clone, because a reload hides it."""
        with contextlib.suppress(exceptions.LocalCloneError):
            mode = self.clone_status(move.move_id).mode
            if mode != 'rw':
                events.say(events.CLONE_FAILED, volume=move.volume_id,
                           mode=mode)

    def ensure_clone_alone(self, move: state.Move) -> bool:
        absent = names.absent_source(move.move_id)
        devices = self.handles.devices([names.clone(move.move_id), absent])
        clone = devices.get(names.clone(move.move_id))
        if clone and clone.target == 'clone' and not clone.suspended:
            self._disable_discards(move)
            return False
        table = dm_tables.error(move.size_bytes // state.SECTOR)
        if absent not in devices:
            dmsetup.create(absent, names.device_uuid(absent), table,
                           self.timeout)
        elif devices[absent].target != 'error':  # its creation was interrupted
            dmsetup.swap_table(absent, table, self.timeout)
        return self._ensure_clone(move, '/dev/mapper/' + absent, (), '')

    def remove_clone(self, move_id: str) -> bool:
        removed = dmsetup.remove(names.clone(move_id), self.timeout)
        dmsetup.remove(names.absent_source(move_id), self.timeout)
        return removed

    def clone_status(self, move_id: str) -> dm_tables.CloneStatus:
        return dm_tables.parse_clone_status(dmsetup.status(
            names.clone(move_id), self.timeout))

    def clone_statuses(self) -> dict[str, dm_tables.CloneStatus]:
        """Return the states of all clones of this node, by move id."""
        found = dmsetup.clone_statuses(self.timeout)
        return {move_id: dm_tables.parse_clone_status(line)
                for name, line in found.items()
                if (move_id := names.move_of_clone(name))}

    def read_clone(self, move_id: str) -> None:
        block.read_head(names.clone_path(move_id), dm_devices.HEAD,
                        self.timeout)

    def flush_disk(self, move: state.Move, disk: str) -> None:
        self._check_source(move, disk)
        block.flush(disk, self.timeout)

    def _check_source(self, move: state.Move, disk: str) -> str:
        """See :func:`.devices.check_source`."""
        name = names.clone(move.move_id)
        return dm_devices.check_source(
            self.handles.devices([name]).get(name), disk)

    # -- hydration

    def set_hydration(self, move_id: str, enabled: bool) -> bool:
        if self.clone_status(move_id).enabled == enabled:
            return False
        dmsetup.message(
            names.clone(move_id),
            'enable_hydration' if enabled else 'disable_hydration',
            self.timeout)
        return True

    def wake_hydration(self, steps: Mapping[str, copies.Step]) -> list[str]:
        missing = dmsetup.send([
            (names.clone(move_id), text)
            for move_id, step in steps.items()
            for text in ('hydration_batch_size %d' % step.batch,
                         'hydration_threshold %d' % step.threshold)],
            self.timeout)
        return [move_id for move_id in steps
                if names.clone(move_id) in missing]

    def leave_out(self, move: state.Move, holes: thin_map.Holes) -> None:
        parts = thin_map.in_bytes(holes, move.geometry, move.size_bytes)
        name = names.clone(move.move_id)
        if parts:
            clone = self.handles.devices([name]).get(name)
            if clone is None:
                raise exceptions.MissingData(
                    what='The clone', volume=move.volume_id,
                    host=self.lvm.host)
            dmsetup.discard_beneath(
                names.handle(move.volume_id), name, clone.table, parts,
                self._discarded_at_once(move),
                min(DISCARDING, self.timeout / 2), self.timeout)

    def _discard(self, move: state.Move, holes: thin_map.Holes) -> None:
        """Make the kernel mark holes as copied.

        Call it before discards are refused (they stay refused until the table
        is loaded again), and before anything is copied or written. Holes
        without a discard are copied.

        :raises CommandTimeout: if a discard hangs; no guest may get this
            clone, because the discard may take effect later
        """
        try:
            parts = thin_map.in_bytes(holes, move.geometry, move.size_bytes)
            if parts:
                block.discard(
                    names.clone_path(move.move_id), parts,
                    self._discarded_at_once(move),
                    min(DISCARDING, self.timeout / 2), self.timeout)
        except (exceptions.CommandFailed, thin_map.OddMap) as exc:
            LOG.warning(
                'Holes of volume %(volume)s are copied, too: '
                '%(error)s', {'volume': move.volume_id, 'error': exc})

    @staticmethod
    def _discarded_at_once(move: state.Move) -> int:
        return REGIONS_AT_ONCE * move.geometry.region_sectors * state.SECTOR

    def device_numbers(self, move: state.Move) -> tuple[str, str]:
        return (_counted(names.handle_path(move.volume_id)),
                _counted(names.lv_path(self.lvm.group, move.destination_lv)))

    @staticmethod
    def read_counters(counters: Mapping[str, tuple[str, str]]
                      ) -> dict[str, copies.Seen]:
        found = {}
        for move_id, (handle, lv) in counters.items():
            with contextlib.suppress(ValueError):
                found[move_id] = copies.parse_seen(
                    sysfs.counters(handle), sysfs.counters(lv))
        return found

    @staticmethod
    def completed_reads(disk: str) -> int:
        return block.completed_reads(disk)

    # -- comparison with the thin pool, and refill

    def recorded_as_local(self, move: state.Move) -> thin_map.Holes:
        return refill.local_regions(self.lvm.metadata_group, names.metadata_lv(
            move.move_id), move.geometry.regions(move.size_bytes),
                    self.timeout)

    def unmapped_blocks(self, move: state.Move, factor: int) -> thin_map.Holes:
        return thin_pool.all_holes(
            self.lvm.group, move.destination_lv, move.size_bytes,
            _block(move, factor), self.timeout)

    def check_pool(self, move: state.Move) -> None:
        thin_pool.check_metadata_writable(self.lvm.group, move.destination_lv,
                                          self.timeout)

    def refill(self, move: state.Move, disk: str, missing: thin_map.Holes,
               factor: int) -> Iterator[thin_map.Holes]:
        number = self._check_source(move, disk)
        at_once = thin_pool.block_size(self.lvm.group, move.destination_lv,
                                       self.timeout)
        ratio = at_once // _block(move, factor)
        todo = thin_map.pieces(thin_map.in_larger_regions(missing, ratio),
                               max(1, refill.AT_ONCE // at_once))
        # In random order: otherwise a slow part would always delay the same
        # later parts.
        random.shuffle(todo)
        reason: exceptions.LocalCloneError = exceptions.TakesLong(
            seconds=self.timeout)
        failed, deadline = False, time.monotonic() + self.timeout
        while todo and time.monotonic() <= deadline:
            start, count = todo.pop()
            try:
                come, written = refill.refill(
                    names.handle(move.volume_id), self.lvm.group,
                    move.destination_lv, (disk, number), move.size_bytes,
                    at_once, start, count, self.timeout)
            except exceptions.SourceUnread as exc:
                # If a read of several blocks fails, some of them may be
                # readable: read each block alone, but after all other parts,
                # because a disk may take long to report an error.
                reason, failed = exc, failed or count == 1
                if count > 1:
                    todo[:0] = thin_map.pieces([[start, count]], 1)
                continue
            if come < count:
                todo.append((start + come, count - come))
            yield thin_map.intersection(
                missing, thin_map.in_smaller_regions(written, ratio))
        if todo or failed:
            raise reason


def _counted(path: str) -> str:
    number = block.number(path)
    return number if sysfs.is_counted(number) else ''


def _block(move: state.Move, factor: int) -> int:
    return move.geometry.region_sectors * state.SECTOR // factor
