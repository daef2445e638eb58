# SPDX-License-Identifier: Apache-2.0
"""The block stack of a simulated node: LVs, handles and clones."""

import copy
import dataclasses
import functools
import typing

from cinder_localclone.core import copies
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core.interfaces import storage
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core import state
from tests.world import disks
from tests.world import images
from tests.world import upper_devices


#: Cipher, bytes of its key, and sector size of a device, unless it says so.
HOW = 'aes-xts-plain64', 64, 512


class Listed(dict):
    """LVs as they were listed, with what was noted then on their group."""

    def __init__(self, noted, lvs):
        super().__init__(lvs)
        self.noted = dict(noted)


class _Sim:
    """A part of a node.

    :param node: the simulated node
    """

    def __init__(self, node):
        self.node = node
        self._insist = node.world.insist


class SimLvm(_Sim, storage.Lvm):
    """LVs without a kernel."""

    group = 'g'
    pool: typing.Any = property(lambda self: self.node.world.pool)

    def _insist_active(self, lv):
        self._insist(lv in self.node.lvs and lv not in
                     self.node.disk.inactive, 'LV has no device')

    def _check_there(self, *lvs):
        """As LVM, which is asked to change them."""
        for lv in lvs:
            if lv not in self.node.lvs:
                raise exceptions.CommandFailed(
                    command='lvm', code=5, stderr='Failed to find ' + lv)

    def _check_listed(self, lv):
        """As the driver, which looks for them in LVM's list."""
        if lv not in self.node.lvs:
            raise exceptions.MissingData(
                what='Logical volume ' + lv, volume=lv, host=self.node.host)

    def _insist_unused(self, lv):
        for device in self.node.devices.values():
            self._insist(lv not in (device.get('below'), device.get('lv'),
                                    device.get('metadata')), 'LV is in use')

    def lvs(self):
        disk, pool = self.node.disk, self.pool or ''
        used = {device.get(key) for device in self.node.devices.values()
                for key in ('below', 'lv', 'metadata')}
        suspended = self.node.suspended
        return Listed(disk.remotes, {name: _reported(
            name, disk.size(name), name not in disk.inactive,
            disk.tags.get(name, frozenset()), pool, disk.serial,
            name in disk.readonly, name in used, name in suspended)
            for name in disk.lvs})

    def number_of(self, name):
        active = name in self.node.lvs and name not in (
            self.node.disk.inactive)
        return name if active else ''

    def free_space(self, lvs=None):
        return lvm_reports.FreeSpace(
            self.node.free - lvm_reports.bytes_to_write(lvs or self.lvs()),
            self.node.free, False)

    def pool_usage(self, lvs=None):
        return lvm_reports.Usage(*self.node.usage)

    def own_block(self):
        return self.node.block

    def logical_block(self, path):
        """Of a source's disk: as its node serves it."""
        home = self.node.world.nodes.get(self.node.sessions.get(path))
        return (home or self.node).block

    def holes(self, lv, size, geometry, patient=False):
        if not self.pool:
            return []
        if self.node.odd_pool:
            raise thin_map.OddMap('<odd>')
        if lv in self.node.disk.inactive:
            raise thin_map.OddMap('it is not active')
        self._insist(size <= self.node.disk.size(lv), 'holes beyond the end')
        return self.node.disk.holes(lv, disks.regions(size))

    def reads_zeros(self, name):
        return bool(name in self.node.lvs and self.pool and self.node.zeroes)

    def create_lv(self, name, size, volume_id, covered=False,
                  extra_bytes=0, lvs=None, uncommitted=False):
        self._insist_backing(volume_id, size, extra_bytes)
        if name in {move.destination_lv
                    for move in self.node.world.move_records.values()}:
            # Somebody has looked whether it fits.
            self._insist(nodes.FREE_SPACE in self.node.held,
                         'create_lv without the lock of free space')
        self._check_pool_zeroes()
        created = self.node.disk.create(
            name, volume_id, [disks.EMPTY] * disks.regions(size), extra_bytes)
        if created and uncommitted:
            self.mark_uncommitted(name)
        self.node.disk.cut(name, size)
        if not created:
            self.activate(name)
        return created

    def _check_pool_zeroes(self):
        if self.pool and not self.node.zeroes:
            raise exceptions.PoolDoesNotZero(
                pool=self.pool, host=self.node.host)

    def _insist_backing(self, volume_id, size, extra):
        """Whole GiB, and what the encryption of the volume takes."""
        volume = self.node.world.volumes[volume_id]
        self._insist((size - extra) % disks.GIB == 0
                     and extra == volume.extra_bytes,
                     'an LV of %d bytes, %d of them extra', size, extra)

    def create_snapshot(self, snapshot_id, origin, volume_id):
        self._check_there(origin)
        name = names.snapshot_lv(snapshot_id)
        self._take(origin, name, [
            *names.tags(snapshot=snapshot_id, of=volume_id),
            names.node_tag(self.node.host)])
        self.node.disk.inactive.add(name)
        self.node.disk.readonly.add(name)

    def create_copy(self, name, image, image_bytes, size_bytes, volume_id,
                    extra_bytes=0):
        self._insist_backing(volume_id, size_bytes, extra_bytes)
        self._check_pool_zeroes()
        copied = min(image_bytes, size_bytes)
        longer = self.node.disk.size(image) > copied
        self._take(image, name, [
            *names.volume_tags(volume_id, extra_bytes),
            *names.uncommitted(self.node.host),
            *[names.shown(copied)] * longer])
        self.node.world.tick(self.node, 'after lvcreate')
        if size_bytes > image_bytes:
            self.node.disk.zero(name)
            self.node.disk.extend(name, size_bytes)
        self.node.disk.show(name, size_bytes)

    def _take(self, origin, name, tags):
        """LVM takes a snapshot in two steps: it may die in between."""
        disk = self.node.disk
        self._insist_unused(name)
        disk.remove(name)
        content = disk.flushed(origin)
        disk.lvs[name] = [images.LATE] * len(content)
        disk.cut(name, disk.size(origin))
        disk.tags[name] = frozenset(tags)
        with self.node.held_back(origin):
            self.node.world.tick(self.node, 'half of lvcreate')
            disk.lvs[name][:] = content
        self._copy_header(origin, name)

    def _copy_header(self, origin, name):
        """It comes with the rest; of the volume, or of the LV it gets."""
        facts = names.facts(self.node.disk.tags.get(origin, ()))
        headers = self.node.world.headers
        found = headers.get(facts.get('volume') or facts.get('snapshot'))
        if found:
            headers[name[-36:]] = copy.deepcopy(dataclasses.replace(
                found, uuid=found.uuid or facts.get('volume', '')))

    def remove_lv(self, name):
        self._insist_unused(name)
        for volume in self.node.world.volumes.values():
            self._insist(
                name != volume.name or name not in self.node.lvs
                or self.node.world.home(volume) is not self.node
                # The other after a peer that deletes has answered late.
                or volume.status in ('deleting', 'error_deleting')
                # Cinder writes the end of a retype over either.
                or volume.id in self.node.world.going or (
                    # In error, if the service that was asked has died.
                    volume.status in ('creating', 'error')
                    and (not {names.UNCOMMITTED, names.FRESH}.isdisjoint(
                        self.node.disk.tags[name])
                        or set(self.node.lvs[name]) <= {
                            disks.EMPTY, disks.CLEARED})),
                'LV has the volume')
        self._insist(
            names.move_of_metadata(name) or name not in self.node.lvs
            or self.pool or set(self.node.lvs[name]) == {disks.CLEARED}
            or names.shown(0) in self.node.disk.tags[name],
            'the next owner can read what is removed')
        self._forget_header(name)
        # Device-mapper removes what is suspended, too, if nobody has it open.
        self.node.suspended.discard(name)
        return self.node.disk.remove(name)

    def _forget_header(self, name):
        """It goes with the LV that a volume has."""
        for volume in self.node.world.volumes.values():
            if volume.name == name and (
                    self.node.world.home(volume) is self.node):
                self.node.world.headers.pop(volume.id, None)

    def clear(self, name, size):
        """Where volumes are thick."""
        self._insist_unused(name)
        if self.pool:
            return
        body = self.node.lvs[name]
        self._insist(size == self.node.disk.size(name), 'not all is cleared')
        body[:] = [disks.CLEARED] * len(body)

    def mark_uncommitted(self, name):
        self._check_there(name)
        tags = self.node.disk.tags
        tags[name] = tags[name] | set(names.uncommitted(self.node.host))

    def accept(self, name):
        self._check_there(name)
        tags = self.node.disk.tags
        tags[name] = tags[name] - set(names.uncommitted(self.node.host))

    def mark(self, name, tag):
        self._check_there(name)
        tags = self.node.disk.tags
        tags[name] = tags.get(name, frozenset()) | {tag}

    def unmark(self, name, tag):
        self._check_there(name)
        self.node.disk.tags[name] -= {tag}

    def adopt(self, name, own_name, tags):
        disk = self.node.disk
        self._check_pool_zeroes()
        self._check_there(name)
        disk.tags[name] = disk.tags.get(name, frozenset()) | set(tags)
        self.node.world.tick(self.node, 'after lvchange')
        if name != own_name:
            self._insist_unused(name)
            if own_name in disk.lvs:
                raise exceptions.CommandFailed(
                    command='lvrename', code=5, stderr='already exists')
            disk.rename(name, own_name)

    def disown(self, name, new_name):
        disk = self.node.disk
        facts = names.facts(disk.tags.get(name, ()))
        if not facts:
            return False
        if names.is_to_wipe(new_name) and name != new_name:
            self._insist_unused(name)
            self._forget_header(name)
        self.node.world.insist(
            facts.get('volume', facts.get('snapshot')) in self.node.held,
            'disown without the lock of its owner')
        if new_name not in disk.lvs:
            disk.rename(name, new_name)
            name = new_name
        self.node.world.tick(self.node, 'after lvrename')
        disk.tags[name] -= set(names.own_tags(disk.tags[name]))
        if int(facts.get('shown', 0)) >= disk.size(name):
            disk._fact(name, 'shown', None)
        return True

    def protect(self, name):
        self._check_listed(name)
        self._insist_unused(name)
        self.node.disk.readonly.add(name)
        self.node.disk.inactive.add(name)

    def activate(self, name, lvs=None):
        self._insist(name in self.node.lvs, 'no such LV')
        changed = name in self.node.disk.inactive
        self.node.disk.inactive.discard(name)
        return changed

    def deactivate(self, name):
        self._check_there(name)
        self._insist_unused(name)
        self.node.disk.inactive.add(name)

    def resume(self, name):
        found = name in self.node.suspended
        self.node.suspended.discard(name)
        return found

    def extend_lv(self, name, size):
        self._check_there(name)
        if self.node.disk.announce(name, size, thick=not self.pool) > 0:
            self.node.world.tick(self.node, 'before lvextend')
        return self.node.disk.extend(name, size, thick=not self.pool)

    def zero_part(self, name, start=0, seconds=0):
        if name not in self.node.lvs:
            raise exceptions.WrongDevice(path=name, found='nothing')
        start = self.node.disk.zero_part(name, start)
        while start and seconds > 0 and not self.node.slow:
            start = self.node.disk.zero_part(name, start)
        return start

    def note_zeroed(self, name, end):
        self._check_there(name)
        self.node.disk.note_zeroed(name, end)

    def show_lv(self, name, size):
        self._check_listed(name)
        self.node.disk.show(name, size)

    def flush_lv(self, lv):
        self._insist_active(lv)
        self.node.disk.flush(lv)


class SimHandles(_Sim, storage.Handles):
    """Handles, and devices above them, without a kernel."""

    def __init__(self, node, lvm):
        super().__init__(node)
        self.lvm = lvm

    def survey(self):
        return survey.Survey(self.lvm.lvs(), self.devices())

    def devices(self, only=None):
        devices = self._all_devices()
        return devices if only is None else {
            name: devices[name] for name in only if name in devices}

    def _all_devices(self):
        devices = dict(self.node.devices)
        below = [device.get('below') for device in devices.values()]
        # All exports of a device share one backstore.
        exported = {self.node.backing.get(v, names.handle(v))
                    for v, _who in self.node.remote}
        return {name: _shown(
            name, below.count(name) + (name in exported) + (
                names.move_of_source(name) in self.node.exports) + (
                name in self.node.opened), name in self.node.suspended,
            self._table_of(name, device)) for name, device in devices.items()}

    def _table_of(self, name, device):
        if names.volume_of_guard(name):
            return self.guard_table(device, _sectors(device))
        if names.is_integrity(name):
            return '0 %d integrity %s 32768 28 J 0' % (
                _sectors(device), device['below'])
        if names.volume_of_export_device(name):
            return dm_tables.linear(_sectors(device), device['below'])
        return self._table(device)

    def _table(self, device):
        end = _sectors(device)
        if names.is_integrity(device.get('below', '')):
            return ('0 %d crypt capi:gcm(aes)-random :32:logon:x 0 %s 0 1 '
                    'integrity:28:aead' % (end, device['below']))
        if str(device.get('below')).startswith('localclone-') and (
                names.volume_of_handle(device['below'])):
            if device.get('left'):  # cryptsetup was killed
                return dm_tables.linear(end, device['below'])
            cipher, size, sector = device.get('how', HOW)
            return '0 %d crypt %s :%d:logon:x 0 %s 32768 1 sector_size:%d' % (
                end, cipher, size, device['below'], sector)
        if 'below' not in device:
            return '0 %d clone %s %s %s' % (
                end, device['metadata'], device['lv'], device['record'])
        clone = self.node.devices.get(device['below'])
        if clone is None:
            return dm_tables.linear(end, device['below'])
        return dm_tables.on_clone(_sectors(clone), device['below'], end,
                                  clone['lv'])

    def shown_bytes(self, volume_id, name, _size):
        handle = self.node.devices.get(names.handle(volume_id))
        lv = self.lvm.lvs().get(name)
        return max(disks.size(handle) if handle else 0, lv.shown if lv else 0)

    def written(self, volume_id):
        return self.node.written.get(volume_id, 0)

    def ensure_handle_on_lv(self, volume_id, lv, size, lvs=None, swaps=True):
        if lv not in (self.node.lvs if lvs is None else lvs):
            raise exceptions.MissingData(what=lv, volume=volume_id, host='x')
        before = self.node.devices.get(names.handle(volume_id), {})
        if (self.node.disk.shown(lv) < min(size, self.node.disk.size(lv))
                and not (before.get('below') == lv
                         and disks.size(before) >= size)):
            raise exceptions.NotPossible(volume=volume_id, reason='not zeroed')
        self.lvm.activate(lv)
        return self._handle(volume_id, lv, lv, size, swaps)

    def ensure_handle_on_clone(self, move, swaps=True):
        self._insist(names.clone(move.move_id) in self.node.devices,
                     'no such clone')
        self._insist(not move.is_deferred or move.committed, 'what is written '
                     'now would be lost with the move')
        return self._handle(move.volume_id, names.clone(move.move_id),
                            move.destination_lv, move.volume_bytes, swaps)

    def ensure_handle_on_disk(self, volume_id, disk, swaps=True):
        self._insist(disk == 'disk of ' + volume_id
                     and volume_id in self.node.remotes, 'no such disk')
        before = self.node.devices.get(names.handle(volume_id))
        size = self.node.scanned[volume_id]
        if before and self.devices()[names.handle(volume_id)].opened:
            size = max(size, disks.size(before))
        return self._swap(volume_id, before, disks.sized(
            {'below': disk}, size), swaps)

    def ensure_handle_on_snapshot(self, snapshot_id, size):
        lv = names.snapshot_lv(snapshot_id)
        self.lvm.activate(lv)
        return self._handle(snapshot_id, lv, lv, size)

    def switch_to_clone(self, move, source):
        self._insist(move.volume_id in self.node.remote_handles(),
                     'the handle is not on the disk')
        clone = names.clone(move.move_id)
        metadata = self.node.devices[clone]['metadata']
        self._insist(move.committed and not self.node.lvs[metadata]['local'],
                     'a clone that is not pristine')
        if source:
            self.node.flush_source(move, source)
        with self.node.held_back(names.handle(move.volume_id)):
            if source:
                self.node.flush_source(move, source)
            if not self.devices()[names.handle(move.volume_id)].opened:
                del self.node.devices[names.handle(move.volume_id)]
            self.ensure_handle_on_clone(move)

    def _handle(self, volume_id, below, lv, size, swaps=True):
        before = self.node.devices.get(names.handle(volume_id))
        if before and (self.devices()[names.handle(volume_id)].opened
                       or below == lv
                       and disks.size(before) <= self.node.disk.shown(lv)):
            size = max(size, disks.size(before))
        if before is None:
            size = max(size, self.lvm.lvs()[lv].backing)
        self._insist(disks.GIB <= size <= self.node.disk.size(lv),
                     'a handle of %d bytes', size)
        changed = self._swap(volume_id, before, disks.sized(
            {'below': below}, size), swaps)
        if names.export_device(volume_id) in self.node.devices:
            self.ensure_export_device(volume_id)
        return changed

    def _swap(self, volume_id, before, after, swaps):
        """A table is loaded and taken at once: the device is resumed."""
        name = names.handle(volume_id)
        changed = before != after or name in self.node.suspended
        if before is not None and changed and not swaps:
            raise exceptions.NotPossible(volume=volume_id, reason='')
        self.node.devices[name] = after
        self.node.suspended.discard(name)
        return changed

    def remove_handle(self, volume_id):
        self.close_upper(volume_id)
        self.remove_export_device(volume_id)
        return self._remove(names.handle(volume_id))

    def _remove(self, name):
        if name in self.node.devices:
            self._insist(not self.devices()[name].opened,
                         '%s is in use', name)
        self.node.suspended.discard(name)
        return self.node.devices.pop(name, None) is not None

    def read_head(self, volume_id):
        self._insist(names.handle(volume_id) in self.node.devices,
                     'no such handle')
        try:
            self.node.read(volume_id, 0)
        except IOError as exc:
            raise exceptions.CommandFailed(command='dd', code=1, stderr=exc)

    def flush_handle(self, volume_id):
        self._insist(names.handle(volume_id) in self.node.devices,
                     'no such handle')
        self.node.flush(volume_id)

    def forget_read(self, volume_id):
        pass  # nothing here keeps what it has read

    def can_guard(self):
        return True

    def header_sectors(self, volume_id):
        try:
            found = self.node.read(volume_id, 0)
        except IOError as exc:
            raise exceptions.CommandFailed(command='luksDump', code=4,
                                           stderr=exc)
        if not found.startswith(upper_devices.HEADER):
            raise encryption_exceptions.HeaderDamaged(path='p', reason=found)
        return upper_devices.SECTORS

    def ensure_guard(self, volume_id, header):
        handle = self.node.devices.get(names.handle(volume_id))
        self._insist(handle is not None and header == upper_devices.SECTORS,
                     'a guard above nothing')
        self.node.insist_unclaimed(volume_id)
        after = disks.sized({'below': names.handle(volume_id)},
                            disks.size(handle))
        before = self.node.devices.get(names.guard(volume_id))
        self.node.devices[names.guard(volume_id)] = after
        return before != after

    @staticmethod
    def guard_table(device, end):
        return str(dm_tables.Guard(device['below'], upper_devices.SECTORS,
                                   end))

    def read_guarded(self, volume_id, header):
        try:
            self.node.read(volume_id, 0)
        except IOError as exc:
            raise exceptions.CommandFailed(command='dd', code=1, stderr=exc)

    def links(self):
        return {volume_id: device if device in self.node.devices else ''
                for volume_id, device in self.node.links.items()}

    def ensure_link(self, volume_id, device):
        self._insist(device in self.node.devices, 'a path to nothing')
        before = self.node.links.get(volume_id)
        self.node.links[volume_id] = device
        return before != device

    def remove_link(self, volume_id):
        return self.node.links.pop(volume_id, None) is not None

    def close_upper(self, volume_id):
        closed = False
        for name in (names.guard(volume_id), names.crypt(volume_id),
                     names.integrity(volume_id)):
            if name in self.node.devices and self.devices()[name].opened:
                raise exceptions.CommandFailed(command='dmsetup', code=1,
                                               stderr='busy')
            closed = self._remove(name) or closed
        return self.remove_link(volume_id) or closed

    def ensure_export_device(self, volume_id):
        handle = self.node.devices.get(names.handle(volume_id))
        if handle is None:
            raise exceptions.MissingData(what='h', volume=volume_id, host='x')
        before = self.node.devices.get(names.export_device(volume_id))
        self.node.devices[
            names.export_device(volume_id)] = after = disks.sized(
            {'below': names.handle(volume_id)}, disks.size(handle))
        return before != after

    def remove_export_device(self, volume_id):
        name = names.export_device(volume_id)
        return (name in self.node.devices and not self.devices()[name].opened
                and self._remove(name))

    def ensure_source(self, move):
        if move.source_lv not in self.node.lvs:
            raise exceptions.MissingData(
                what=move.source_lv, volume=move.volume_id, host='x')
        self.lvm.activate(move.source_lv)
        name = names.source(move.move_id)
        before = self.node.devices.get(name)
        after = disks.sized({'below': move.source_lv}, move.size_bytes)
        self.node.devices[name] = after
        return before != after

    def remove_source(self, move_id):
        return self._remove(names.source(move_id))


class SimClones(_Sim, storage.Clones):
    """dm-clone devices without a kernel."""

    def __init__(self, node, lvm, handles):
        super().__init__(node)
        self.lvm = lvm
        self.handles = handles

    def create_metadata(self, move, lvs):
        name = names.metadata_lv(move.move_id)
        if move.destination_lv in lvs:
            if name not in lvs:
                raise exceptions.MissingData(
                    what='The move metadata', volume=move.volume_id,
                    host=self.node.host)
            self.lvm.activate(name)
            return False
        if name not in self.node.lvs:
            # What was on the disk before: a move that was complete, say.
            self.node.disk.create(
                name, move.volume_id, {'local': set(range(disks.REGIONS))},
                move.extra_bytes)
            self.node.disk.tags[name] |= {
                names.DEFERRED} if move.is_deferred else frozenset()
            self.node.disk.tags[name] |= {
                names.UNMAPPED} if move.is_under_guest else frozenset()
        self.lvm.activate(name)
        self.node.world.tick(self.node, 'half of create_metadata')
        self.node.lvs[name]['local'] = set()
        return True

    def needs_hole_search(self, move):
        return names.UNMAPPED in self.node.disk.tags.get(
            names.metadata_lv(move.move_id), ())

    def note_holes_searched(self, move):
        self.node.disk.tags[names.metadata_lv(move.move_id)] -= {
            names.UNMAPPED}

    def begin_swap(self, move):
        name = names.metadata_lv(move.move_id)
        tags = self.node.disk.tags.get(name, frozenset())
        if tags.isdisjoint((names.DEFERRED, names.SWAPPING)):
            return False
        self.node.disk.tags[name] = tags - {names.DEFERRED} | {names.SWAPPING}
        return True

    def end_swap(self, move):
        name = names.metadata_lv(move.move_id)
        self.node.disk.tags[name] -= {names.SWAPPING}

    def ensure_clone(self, move, source, holes=()):
        self._insist(source is None or move.move_id in
                     self.node.sessions, 'no such disk')
        for lv in (move.destination_lv, names.metadata_lv(move.move_id)):
            self.lvm._insist_active(lv)
        if names.clone(move.move_id) in self.node.devices:
            before = names.clone(move.move_id), names.handle(move.volume_id)
            resumed = not self.node.suspended.isdisjoint(before)
            if resumed:
                with self.node.held_back(names.clone(move.move_id)):
                    pass  # its table is loaded anew, and it is resumed
            return resumed
        clone = self.node.devices[names.clone(move.move_id)] = disks.sized({
            'record': move.move_id, 'lv': move.destination_lv,
            'metadata': names.metadata_lv(move.move_id),
            'hydrating': False}, move.size_bytes)
        self._insist(move.size_bytes <= self.node.disk.size(
            move.destination_lv), 'a clone longer than its LV')
        for start, count in holes:
            self.node.world.tick(self.node, 'half of ensure_clone')
            for region in range(start, start + count):
                self._discard(clone, region)
        return True

    def ensure_clone_alone(self, move):
        if names.clone(move.move_id) in self.node.devices:
            return False
        return self.ensure_clone(move, None)

    def remove_clone(self, move_id):
        return self.handles._remove(names.clone(move_id))

    def _clone(self, move_id):
        """As dmsetup, which is asked for a clone."""
        device = self.node.devices.get(names.clone(move_id))
        if device is None:
            raise exceptions.CommandFailed(
                command='dmsetup', code=1, stderr='No such device')
        return device

    def clone_status(self, move_id):
        device = self._clone(move_id)
        local = self.node.lvs[device['metadata']]['local']
        regions = disks.length(device)
        in_flight = regions - len(local) if device['hydrating'] else 0
        return dm_tables.CloneStatus(
            128, 1, 9, len(local), regions, in_flight,
            device['hydrating'], self.node.clones)

    def read_clone(self, move_id):
        try:
            self.node.read_clone(self._clone(move_id), 0)
        except IOError as exc:
            raise exceptions.CommandFailed(command='dd', code=1, stderr=exc)

    def flush_disk(self, move, disk):
        self.node.flush_source(move, disk)

    def set_hydration(self, move_id, enabled):
        clone = self._clone(move_id)
        before, clone['hydrating'] = clone['hydrating'], enabled
        return before != enabled

    def wake_hydration(self, steps):
        gone = [move_id for move_id in steps
                if names.clone(move_id) not in self.node.devices]
        for move_id in set(steps) - set(gone):
            self.node.devices[names.clone(move_id)]['step'] = (
                steps[move_id])
        return gone

    def leave_out(self, move, holes):
        clone = self._clone(move.move_id)
        self._insist(not clone['hydrating'] and self.node.devices[
            names.handle(move.volume_id)]['below'] == names.clone(
                move.move_id), 'discards under what goes on')
        for start, count in holes:
            with self.node.held_back(names.handle(move.volume_id),
                                     names.clone(move.move_id)):
                self.node.world.tick(self.node, 'half of leave_out')
                for region in range(start, start + count):
                    self._discard(clone, region)

    def _discard(self, clone, region):
        """The kernel takes it for local; nothing reaches the LV."""
        self._insist(region < disks.length(clone), 'a hole beyond the end')
        body = self.node.lvs[clone['lv']]
        if region in self.node.lvs[clone['metadata']]['local']:
            return
        self.node.disk.make_local(clone['metadata'], region)
        if body[region] == disks.EMPTY and self.lvm.reads_zeros(clone['lv']):
            body[region] = disks.ZERO

    def device_numbers(self, move):
        return names.handle(move.volume_id), move.destination_lv

    def read_counters(self, counters):
        return {move_id: copies.Seen(
            self.node.ios.get(handle, 0), 0, self.node.copied.get(lv, 0))
            for move_id, (handle, lv) in counters.items()
            if handle in self.node.devices and not self.node.blind}

    def completed_reads(self, disk):
        if disk not in self.node.sessions:
            raise FileNotFoundError('no disk %r' % disk)
        return self.node.reads

    def recorded_as_local(self, move):
        return [[region, 1] for region in sorted(
            self.node.disk.committed(names.metadata_lv(move.move_id)))]

    def unmapped_blocks(self, move, factor):
        self.check_pool(move)
        if self.lvm.pool:
            # It commits before a snapshot of its metadata is taken.
            self.node.disk.flush(move.destination_lv)
        return self.lvm.holes(move.destination_lv, move.size_bytes, None)

    def check_pool(self, move):
        if self.lvm.pool and self.node.pool_fails:
            raise exceptions.PoolFails(
                pool=self.lvm.pool, mode='ro', host=self.node.host)

    def refill(self, move, disk, missing, factor):
        """The kernel counts it as local: what is written is what is read."""
        clone = self.node.devices[names.clone(move.move_id)]
        self._insist(move.move_id in self.node.sessions, 'no such disk')
        for start, count in missing:
            self.node.world.tick(self.node, 'half of refill')
            written = [
                region for region in range(start, start + count)
                if self.node.lvs[clone['lv']][region] in (
                    disks.EMPTY, disks.ZERO)]
            found = [self.node._from_source(clone, region)
                     for region in written]
            with self.node.held_back(names.handle(move.volume_id)):
                # Whatever the guest has written meanwhile stays.
                done = [region for region, value in zip(written, found)
                        if self._refill(clone['lv'], region, value)]
                self.node.disk.flush(clone['lv'])
            yield [[region, 1] for region in done]

    def _refill(self, lv, region, value):
        if self.node.lvs[lv][region] not in (disks.EMPTY, disks.ZERO):
            return False
        self.node.disk.write(lv, region, value)
        return True


@functools.lru_cache(4096)
def _reported(name, size, is_active, tags, pool, serial, readonly, opened,
              suspended):
    return lvm_reports.LogicalVolume(
        'g', name, size, name if is_active else '', tags, pool=pool,
        thin=bool(pool and not names.move_of_metadata(name)),
        plain=not pool, uuid='%s of %s' % (name, serial),
        readonly=readonly, opened=opened, suspended=suspended)


@functools.lru_cache(4096)
def _shown(name, users, suspended, table):
    return dm_tables.Device(name, _uuid(name), name, users, suspended, table)


def _sectors(device):
    return disks.size(device) // state.SECTOR


def _uuid(name):
    kind = {names.is_crypt(name): 'LUKS2',
            names.is_integrity(name): 'INTEGRITY'}.get(True)
    return 'CRYPT-%s-%s-%s' % (kind, 32 * '0', name) if (
        kind) else names.device_uuid(name)
