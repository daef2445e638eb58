# SPDX-License-Identifier: Apache-2.0
"""What is done under a handle in use, suspended; see :mod:`.dmsetup`.

Run by its path, in a process of its own and without anything of the driver:
the guest's I/O waits meanwhile, so nothing may be started in between. Its
calls are those of the kernel's include/uapi/linux/dm-ioctl.h and fs.h.

``swap HANDLE DISK SECONDS`` gives the handle the table of standard input, and
flushes the disk before. ``discard HANDLE CLONE ...`` discards the parts of a
clone that standard input has, a line each: first byte, bytes. What is not
discarded when its time is up is left, without an error.

``refill HANDLE POOL METADATA ID LV BLOCK`` writes to an LV what standard input
has: a line with pairs of first byte and bytes, then these bytes. Each pair is
a whole block of the pool. What the pool has mapped by then is left alone:
somebody else has written to it. That is looked for once nothing is on its way,
in a snapshot of the pool's metadata, which whoever has started this releases.
It prints how many pairs it has come to, and which of these it has written. If
one can't be written, none is: one that is there in part would be taken for
whole.

A discard of a region that is being copied loses writes that follow it
(measured on 6.1). With the handle suspended nothing is on its way, and
hydration is off: only then the kernel marks what is not local as local, and
leaves alone what the guest has written. A clone that has once refused
discards takes them again only when its table is loaded anew.
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

#: Seconds for what is on its way to end, and for a table to be loaded; for
#: discards until the guest's I/O may go on, and how long it then goes on at
#: least.
ENDING, AT_ONCE, BETWEEN = 2, 0.1, 0.1
#: Bytes of a block of a pool's metadata.
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
#: Levels of one tree, at most.
_DEPTH = 16
#: Seconds after which no block is begun any more while a guest waits.
WRITING = 2


class Device:
    """A device-mapper device.

    :param control: /dev/mapper/control
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
        """On the table that was loaded last, or else on the one it had.

        A table that is loaded may be refused only now; it stays suspended
        then until that is cleared.
        """
        try:
            self._call(_SUSPEND)
        except OSError:
            self._call(_CLEAR)
            self._call(_SUSPEND)
            raise

    @contextlib.contextmanager
    def suspended(self, seconds: int = ENDING) -> Iterator[None]:
        """Nothing is on its way, and what comes waits.

        :param seconds: in which what is on its way ends
        :raises TimeoutError: if something does not end; it is resumed
        """
        self._call(_CLEAR)  # what others gave up, and came late, is not taken
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

        :raises ValueError: if it could not record all that is local: its new
            table would not know, and the guest would not be told
        :raises TimeoutError: if that takes too long: whoever waits for this
            may have resumed it by then, so the table is not taken
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
        """Send its target a message."""
        self._call(_MESSAGE, data=struct.pack('=Q', 0) + text + b'\0')

    def _status(self) -> str:
        """What its only target says of itself."""
        text = self._call(_STATUS, data=bytes(4096))[_SPEC.size:]
        return text.partition(b'\0')[0].decode()


def _target(start: int, sectors: int, target: bytes, text: bytes) -> bytes:
    text += bytes(-len(text) % 8)
    return _SPEC.pack(start, sectors, 0, _SPEC.size + len(text),
                      target) + text


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def expired(_number: int, _frame: object) -> None:
        raise TimeoutError('what is on its way has not ended in %d s'
                           % seconds)
    signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def swap(handle: Device, table: str, disk: int | None, seconds: int
         ) -> None:
    """Give a handle another table; what was written before is flushed.

    Whatever fails, it goes on with the table that it has.

    :param handle: the Device
    :param disk: a descriptor of the disk; None if nothing can be flushed
    :param seconds: in which what is on its way ends
    """
    with handle.suspended(seconds):
        if disk is not None:
            os.fsync(disk)
        handle.load(table)  # last: it is what a resume takes


def pieces(parts: Iterable[str], at_once: int) -> Iterator[tuple[int, int]]:
    """Parts of a device, none too large for one call: (first, bytes)."""
    for line in parts:
        start, length = map(int, line.split())
        for begin in range(start, start + length, at_once):
            yield begin, min(at_once, start + length - begin)


def discard(handle: Device, clone: Device, table: str, device: int, queue: str,
            todo: list[tuple[int, int]], seconds: float) -> None:
    """Discard parts of a clone, for a moment at a time.

    :param handle: the Device that is suspended meanwhile
    :param clone: the Device of the clone, which is loaded with ``table``
    :param device: a descriptor of the clone
    :param queue: what of sysfs says how large a discard may be
    :param todo: (first, bytes), the last one first
    :param seconds: after which none is begun any more
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
    """What a thin pool has mapped, by a snapshot of its metadata.

    :param metadata: a descriptor of their device, for direct I/O
    """

    def __init__(self, metadata: int) -> None:
        self._metadata = metadata
        self._memory = mmap.mmap(-1, _METADATA)
        self._held = self._superblock(0)[8]
        if not self._held:
            raise ValueError('the pool has no snapshot of its metadata')
        self._devices = self._superblock(self._held)[-1]

    def of(self, device: int) -> int:
        """The root of a thin device's own tree.

        :raises ValueError: if there is no such device
        """
        root = self._find(self._devices, device)
        if root is None:
            raise ValueError('the pool has no device %d' % device)
        return root

    def has(self, root: int, block: int) -> bool:
        """Whether a block of the device with this root is mapped.

        :raises ValueError: also if another program has released the snapshot
            by then: that is recorded before its blocks are used again
        """
        found = self._find(root, block) is not None
        if self._superblock(0)[8] != self._held:
            raise ValueError('another program has released the snapshot')
        return found

    def _read(self, block: int) -> mmap.mmap:
        if os.preadv(self._metadata, [self._memory],
                     block * _METADATA) != _METADATA:
            raise ValueError('metadata end before block %d' % block)
        return self._memory

    def _superblock(self, block: int) -> tuple[typing.Any, ...]:
        fields = _SUPERBLOCK.unpack_from(self._read(block))
        if fields[2] != block or fields[4] != _MAGIC:
            raise ValueError('block %d of the metadata is no superblock'
                             % block)
        return fields

    def _find(self, block: int, wanted: int) -> int | None:
        """The value of a key in a tree, by its root; None if it has none."""
        for _level in range(_DEPTH):
            data = self._read(block)
            _csum, flags, number, entries, most, size, _padding = (
                _NODE.unpack_from(data))
            if (number != block or entries > most or size != 8
                    or flags not in (_INTERNAL, _LEAF)):
                raise ValueError('block %d of the metadata is no node' % block)
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
    """Write to an LV beneath a handle what its pool has not mapped.

    :param handle: the Device that is suspended meanwhile
    :param pool: the Device of the pool
    :param metadata: a descriptor of its metadata
    :param number: the LV's own, in the pool
    :param device: a descriptor of the LV
    :param block: bytes that the pool maps at once
    :param parts: first byte, bytes; each a block of the pool
    :param data: all of these, in a file
    :returns: how many of them it has come to; the first bytes of those that
        it has written
    :raises OSError: if one can't be written; then none is, as far as that
        can be taken back
    :raises ValueError: if it can't be seen what is mapped; the same
    """
    memories = []
    for first, length in parts:  # as direct I/O wants it
        memories.append((first, mmap.mmap(-1, length)))
        memories[-1][1][:] = data.read(length)
    with handle.suspended():
        pool.message(b'reserve_metadata_snap')
        mapping = Mapping(metadata)
        root = mapping.of(number)
        come, begun = 0, list[tuple[int, int]]()
        deadline = time.monotonic() + WRITING
        try:
            for first, memory in memories:
                if time.monotonic() > deadline:
                    break
                come += 1
                if not mapping.has(root, first // block):
                    begun.append((first, len(memory)))
                    _write(device, first, memory)
            os.fsync(device)
        except BaseException:
            # The last one first: that is the one in part.
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
    """See :func:`refill`; ``metadata`` and ``path`` are paths."""
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
    """See :func:`discard`; ``path`` is that of the clone."""
    todo = list(pieces(sys.stdin, int(at_once)))
    discard(Device(control, handle), Device(control, clone), table,
            os.open(path, os.O_RDWR), queue, todo[::-1], float(seconds))


def _swap(control: typing.IO[bytes], handle: str, disk: str, seconds: str
          ) -> None:
    """See :func:`swap`; ``disk`` is a path, or ''."""
    swap(Device(control, handle), sys.stdin.read(),
         os.open(disk, os.O_RDONLY) if disk else None, int(seconds))


def main(what: str, *arguments: str) -> None:
    """Do what is asked for by name."""
    # Its time is up soon. Whatever ended it in between might come just when
    # the guest is about to go on.
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
