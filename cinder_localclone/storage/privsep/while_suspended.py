# SPDX-License-Identifier: Apache-2.0
"""Work beneath a handle in use while it is suspended; see :mod:`.dmsetup`.

This script runs by its path, in a process of its own and without importing the
driver: the guest's I/O waits meanwhile, so no other process may be started in
between. Its calls are those of the kernel's include/uapi/linux/dm-ioctl.h and
fs.h.

``swap HANDLE DISK SECONDS`` flushes the disk, and gives the handle the table
on standard input.

``discard HANDLE CLONE ...`` discards parts of a clone. Standard input has a
line for each part: first byte, bytes. Parts left when the time is up are
skipped without an error.

``refill HANDLE POOL METADATA ID LV BLOCK`` writes blocks to an LV. Standard
input has a line with pairs of first byte and bytes, then the data. Each pair
is a whole block of the pool. A block which the pool has mapped by then is left
alone: the guest has written to it. The check is made in a snapshot of the
pool's metadata after all I/O has ended; the calling process releases the
snapshot. The script prints the number of processed pairs and the first bytes
of the written blocks. If a write fails, all writes are undone as far as
possible: a block written in part could not be told from a whole block.

A discard of a region that is being copied loses later writes to the region
(measured on 6.1). With the handle suspended and hydration off, no I/O is in
flight. Only then does the kernel mark regions as local without touching
regions written by the guest. A clone which has refused discards accepts them
again only after a reload of its table.
"""

import bisect
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import fcntl
import mmap
import os
import signal
import struct
import sys
import time
import typing

#: struct dm_ioctl: version[3], data_size, data_start, target_count,
#: open_count, flags, event_nr, padding, dev, name, uuid, data.
_IOCTL = struct.Struct('=3I7IQ128s129s7x')
#: struct dm_target_spec: sector_start, length, status, next, target_type.
_SPEC = struct.Struct('=QQiI16s')
#: DM_DEV_SUSPEND, DM_TABLE_LOAD, DM_TABLE_CLEAR, DM_TABLE_STATUS,
#: DM_TARGET_MSG: _IOWR(0xfd, n, struct dm_ioctl).
_SUSPEND, _LOAD = 0xc138fd06, 0xc138fd09
_CLEAR, _STATUS, _MESSAGE = 0xc138fd0a, 0xc138fd0c, 0xc138fd0e
#: DM_SUSPEND_FLAG; DM_SKIP_LOCKFS_FLAG: nothing above it is frozen.
_SUSPENDED, _NO_LOCKFS = 1 << 1, 1 << 10
_BLKDISCARD = 0x1277

#: Seconds: for I/O in flight to end, and for a table to be loaded; of a series
#: of discards; and of the guest's I/O between two series at least.
ENDING, AT_ONCE, BETWEEN = 2, 0.1, 0.1
#: Block size of a pool's metadata, in bytes.
_METADATA = 4096
#: struct thin_disk_superblock, of drivers/md/dm-thin-metadata.c: csum, flags,
#: blocknr, uuid, magic, version, time, trans_id, held_root, both space maps'
#: roots, data_mapping_root.
_SUPERBLOCK = struct.Struct('<IIQ16sQIIQQ128s128sQ')
_MAGIC = 27022010
#: struct node_header, of drivers/md/persistent-data/dm-btree-internal.h: csum,
#: flags, blocknr, nr_entries, max_entries, value_size, padding; then keys,
#: then values.
_NODE = struct.Struct('<IIQIIII')
_INTERNAL, _LEAF = 1, 2
#: Maximum levels of a tree.
_DEPTH = 16
#: Seconds after which no further block is written while a guest waits.
WRITING = 2


class Device:
    """A device-mapper device.

    :param control: /dev/mapper/control
    :param name: name of the device
    """

    def __init__(self, control: typing.IO[bytes], name: str) -> None:
        self._control = control
        self._name = name

    def _call(self, request: int, flags: int = 0, targets: int = 0,
              data: bytes = b'') -> bytearray:
        answer = bytearray(_IOCTL.pack(
            4, 0, 0, _IOCTL.size + len(data), _IOCTL.size, targets, 0, flags,
            0, 0, 0, self._name.encode(), b'') + data)
        fcntl.ioctl(self._control, request, answer)
        return answer[_IOCTL.size:]

    def resume(self) -> None:
        """Resume the device on its loaded table, or else on its present table.

        The kernel may refuse a loaded table only at this point. The device
        then stays suspended until the table is cleared.

        :raises OSError: if the kernel refuses; the device has been resumed on
            its old table
        """
        try:
            self._call(_SUSPEND)
        except OSError:
            self._call(_CLEAR)
            self._call(_SUSPEND)
            raise

    @contextlib.contextmanager
    def suspended(self, seconds: int = ENDING) -> Iterator[None]:
        """Suspend the device, after its I/O in flight has ended.

        New I/O waits until the device is resumed.

        :param seconds: time limit for I/O in flight
        :raises TimeoutError: if some I/O does not end; the device is resumed
        """
        # a late load of a timed-out command must not take effect
        self._call(_CLEAR)
        try:
            with _limit(seconds):
                self._call(_SUSPEND, _SUSPENDED | _NO_LOCKFS)
            yield
        finally:
            self.resume()

    def load(self, table: str) -> None:
        """Load a table, for the next resume."""
        lines = [line.split(' ', 3) for line in table.splitlines()]
        self._call(_LOAD, 0, len(lines), b''.join(
            _target(int(start), int(sectors), target.encode(),
                    arguments.encode() + b'\0')
            for start, sectors, target, arguments in lines))

    def reload(self, table: str) -> None:
        """Load the table of a clone that is suspended, for the next resume.

        :raises ValueError: if the clone could not record all local regions:
            the new table would not know them, and the guest would not learn of
            it
        :raises TimeoutError: if the load takes too long: the calling process
            may have resumed the clone by then, so the table is dropped
        """
        status = self._status()
        if status.split()[-1:] != ['rw']:
            raise ValueError('the clone has failed: ' + status)
        try:
            with _limit(ENDING):
                self.load(table)
        except BaseException:
            self._call(_CLEAR)
            raise

    def message(self, text: bytes) -> None:
        """Send a message to the device's target."""
        self._call(_MESSAGE, data=struct.pack('=Q', 0) + text + b'\0')

    def _status(self) -> str:
        """Return the status line of the device's only target."""
        text = self._call(_STATUS, data=bytes(4096))[_SPEC.size:]
        return text.partition(b'\0')[0].decode()


def _target(start: int, sectors: int, target: bytes, text: bytes) -> bytes:
    text += bytes(-len(text) % 8)
    return _SPEC.pack(start, sectors, 0, _SPEC.size + len(text),
                      target) + text


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def expired(_number: int, _frame: object) -> None:
        raise TimeoutError('I/O in flight has not ended within %d s'
                           % seconds)
    signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def swap(handle: Device, table: str, disk: int | None, seconds: int
         ) -> None:
    """Give a handle another table, and flush earlier writes.

    After any failure the handle continues on its present table.

    :param handle: the handle
    :param table: the new table
    :param disk: descriptor of the disk to flush; None if nothing can be
        flushed
    :param seconds: time limit for I/O in flight
    :raises OSError: if the disk can't be flushed, or the kernel refuses the
        table
    :raises TimeoutError: if some I/O does not end
    """
    with handle.suspended(seconds):
        if disk is not None:
            os.fsync(disk)
        handle.load(table)  # last, because a resume takes it


def pieces(parts: Iterable[str], at_once: int) -> Iterator[tuple[int, int]]:
    """Divide parts of a device into pieces for single calls: (first, bytes).

    :param parts: lines of first byte and bytes
    :param at_once: most bytes of a piece
    """
    for line in parts:
        start, length = map(int, line.split())
        for begin in range(start, start + length, at_once):
            yield begin, min(at_once, start + length - begin)


def discard(handle: Device, clone: Device, table: str, device: int, queue: str,
            todo: list[tuple[int, int]], seconds: float) -> None:
    """Discard parts of a clone, for a moment at a time.

    :param handle: the handle, suspended during discards
    :param clone: the clone
    :param table: table of the clone
    :param device: descriptor of the clone
    :param queue: path of the clone's discard limit in sysfs
    :param todo: (first, bytes), in reverse order
    :param seconds: time after which no discard is begun
    """
    deadline = time.monotonic() + seconds
    while todo and time.monotonic() < deadline:
        with handle.suspended():
            with clone.suspended():
                clone.reload(table)
            try:
                _discard_some(device, todo, time.monotonic() + AT_ONCE)
            finally:
                with open(queue, 'w') as limit:
                    limit.write('0')
        time.sleep(BETWEEN)


def _discard_some(device: int, todo: list[tuple[int, int]], until: float
                  ) -> None:
    while todo:
        fcntl.ioctl(device, _BLKDISCARD, struct.pack('=QQ', *todo.pop()))
        if time.monotonic() >= until:
            break


class Mapping:
    """The mapped blocks of a thin pool, in a snapshot of its metadata.

    :param metadata: descriptor of the metadata device, for direct I/O
    :raises ValueError: if there is no snapshot, or it is not understood
    """

    def __init__(self, metadata: int) -> None:
        self._metadata = metadata
        self._memory = mmap.mmap(-1, _METADATA)
        self._held = self._superblock(0)[8]
        if not self._held:
            raise ValueError('the pool has no snapshot of its metadata')
        self._devices = self._superblock(self._held)[-1]

    def root_of(self, device: int) -> int:
        """Return the root of a thin device's own tree.

        :raises ValueError: if there is no such device
        """
        root = self._find(self._devices, device)
        if root is None:
            raise ValueError('the pool has no device %d' % device)
        return root

    def is_mapped(self, root: int, block: int) -> bool:
        """Return whether a block of a thin device is mapped.

        :param root: root of the device's tree
        :raises ValueError: also if another program has released the snapshot
            meanwhile: the release is recorded before the snapshot's blocks are
            used again
        """
        found = self._find(root, block) is not None
        if self._superblock(0)[8] != self._held:
            raise ValueError('another program has released the snapshot')
        return found

    def _read(self, block: int) -> mmap.mmap:
        if os.preadv(self._metadata, [self._memory],
                     block * _METADATA) != _METADATA:
            raise ValueError('the metadata end before block %d' % block)
        return self._memory

    def _superblock(self, block: int) -> tuple[typing.Any, ...]:
        fields = _SUPERBLOCK.unpack_from(self._read(block))
        if fields[2] != block or fields[4] != _MAGIC:
            raise ValueError('block %d of the metadata is not a superblock'
                             % block)
        return fields

    def _find(self, block: int, wanted: int) -> int | None:
        """Return the value of a key in a tree; None if there is no such key.

        :param block: root of the tree
        :param wanted: the key
        """
        for _level in range(_DEPTH):
            data = self._read(block)
            _csum, flags, number, entries, most, size, _padding = (
                _NODE.unpack_from(data))
            if (number != block or entries > most or size != 8
                    or flags not in (_INTERNAL, _LEAF)):
                raise ValueError(
                    'block %d of the metadata is not a node' % block)
            keys = struct.unpack_from('<%dQ' % entries, data, _NODE.size)
            place = bisect.bisect_right(keys, wanted) - 1
            if place < 0 or (flags == _LEAF and keys[place] != wanted):
                return None
            value: int
            value, = struct.unpack_from(
                '<Q', data, _NODE.size + 8 * (most + place))
            if flags == _LEAF:
                return value
            block = value
        raise ValueError('the tree of the metadata is too deep')


def refill(handle: Device, pool: Device, metadata: int, number: int,
           device: int, block: int, parts: Iterable[tuple[int, int]],
           data: typing.IO[bytes]) -> tuple[int, list[int]]:
    """Write blocks to an LV beneath a handle if its pool has not mapped them.

    :param handle: the handle, suspended meanwhile
    :param pool: the pool
    :param metadata: descriptor of the pool's metadata device
    :param number: the LV's id in the pool
    :param device: descriptor of the LV
    :param block: bytes of a block of the pool
    :param parts: first byte, bytes; each a block of the pool
    :param data: a file with the data of all parts
    :returns: number of processed parts; the first bytes of the written parts
    :raises OSError: if a write fails; all writes are undone as far as possible
    :raises ValueError: if the pool's map can't be read; all writes are undone
        as far as possible
    """
    memories = []
    for first, length in parts:  # page-aligned, for direct I/O
        memories.append((first, mmap.mmap(-1, length)))
        memories[-1][1][:] = data.read(length)
    with handle.suspended():
        pool.message(b'reserve_metadata_snap')
        mapping = Mapping(metadata)
        root = mapping.root_of(number)
        come, begun = 0, list[tuple[int, int]]()
        deadline = time.monotonic() + WRITING
        try:
            for first, memory in memories:
                if time.monotonic() > deadline:
                    break
                come += 1
                if not mapping.is_mapped(root, first // block):
                    begun.append((first, len(memory)))
                    _write(device, first, memory)
            os.fsync(device)
        except BaseException:
            # In reverse order: the last block may be written in part.
            for first, length in reversed(begun):
                with contextlib.suppress(OSError):
                    fcntl.ioctl(device, _BLKDISCARD,
                                struct.pack('=QQ', first, length))
            raise
        return come, [first for first, _length in begun]


def _write(device: int, first: int, memory: mmap.mmap) -> None:
    done = 0
    while done < len(memory):
        done += os.pwritev(device, [memoryview(memory)[done:]], first + done)


def _refill(control: typing.IO[bytes], handle: str, pool: str, metadata: str,
            number: str, path: str, block: str) -> None:
    """Run :func:`refill`; ``metadata`` and ``path`` are paths."""
    data = sys.stdin.buffer
    numbers = [int(word) for word in data.readline().split()]
    come, written = refill(
        Device(control, handle), Device(control, pool),
        os.open(metadata, os.O_RDONLY | os.O_DIRECT), int(number),
        os.open(path, os.O_RDWR | os.O_DIRECT), int(block),
        list(zip(numbers[::2], numbers[1::2])), data)
    print(come, *written)


def _discard(control: typing.IO[bytes], handle: str, clone: str, table: str,
             path: str, queue: str, at_once: str, seconds: str) -> None:
    """Run :func:`discard`; ``path`` is the path of the clone."""
    todo = list(pieces(sys.stdin, int(at_once)))
    discard(Device(control, handle), Device(control, clone), table,
            os.open(path, os.O_RDWR), queue, todo[::-1], float(seconds))


def _swap(control: typing.IO[bytes], handle: str, disk: str, seconds: str
          ) -> None:
    """Run :func:`swap`; ``disk`` is a path, or ''."""
    swap(Device(control, handle), sys.stdin.read(),
         os.open(disk, os.O_RDONLY) if disk else None, int(seconds))


def main(what: str, *arguments: str) -> None:
    """Run a command of this script.

    :param what: swap, refill or discard
    :param arguments: see the module
    """
    # SIGTERM comes at the time limit, and might arrive just before the guest's
    # I/O is resumed. This script ends soon without it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open('/dev/mapper/control', 'r+b', buffering=0) as control:
        if what == 'swap':
            _swap(control, *arguments)
        elif what == 'refill':
            _refill(control, *arguments)
        else:
            _discard(control, *arguments)


if __name__ == '__main__':
    main(*sys.argv[1:])
