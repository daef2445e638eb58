# SPDX-License-Identifier: Apache-2.0
"""What is done under a handle in use, suspended; see :mod:`.devicemapper`.

Run by its path, in a process of its own and without anything of the driver:
the guest's I/O waits meanwhile, so nothing may be started in between. Its
calls are those of the kernel's include/uapi/linux/dm-ioctl.h and fs.h.

``swap HANDLE DISK SECONDS`` gives the handle the table of standard input, and
flushes the disk before. ``discard HANDLE CLONE ...`` discards the parts of a
clone that standard input has, a line each: first byte, bytes. What is not
discarded when its time is up is left, without an error.

``refill HANDLE THIN LV SECTORS`` writes to an LV what standard input has: a
line with pairs of first byte and bytes, then these bytes. Each pair is a whole
block of the pool, of which nothing is mapped. Unless, once nothing is on its
way, the thin device has mapped more or less than so many sectors: somebody
else has written to it. It prints how many of them were written, the first
ones. Of a block that can't be written nothing is mapped afterwards, either:
one that is there in part would be taken for whole. If that fails, it says so.

A discard of a region that is being copied loses writes that follow it
(measured on 6.1). With the handle suspended nothing is on its way, and
hydration is off: only then the kernel marks what is not local as local, and
leaves alone what the guest has written. A clone that has once refused
discards takes them again only when its table is loaded anew.
"""

import contextlib
import fcntl
import mmap
import os
import signal
import struct
import sys
import time

#: struct dm_ioctl: version[3], data_size, data_start, target_count,
#: open_count, flags, event_nr, padding, dev, name, uuid, data.
_IOCTL = struct.Struct('=3I7IQ128s129s7x')
#: struct dm_target_spec: sector_start, length, status, next, target_type.
_SPEC = struct.Struct('=QQiI16s')
#: DM_DEV_SUSPEND, DM_TABLE_LOAD, DM_TABLE_CLEAR, DM_TABLE_STATUS:
#: _IOWR(0xfd, n, struct dm_ioctl).
_SUSPEND, _LOAD = 0xc138fd06, 0xc138fd09
_CLEAR, _STATUS = 0xc138fd0a, 0xc138fd0c
#: DM_SUSPEND_FLAG; DM_SKIP_LOCKFS_FLAG: nothing above it is frozen.
_SUSPENDED, _NO_LOCKFS = 1 << 1, 1 << 10
_BLKDISCARD = 0x1277

#: Seconds for what is on its way to end, and for a table to be loaded; for
#: discards until the guest's I/O may go on, and how long it then goes on at
#: least.
ENDING, AT_ONCE, BETWEEN = 2, 0.1, 0.1
#: What is said if it is not known that nothing is there in part.
IN_PART = 'a block may be there in part'
#: Seconds after which no block is begun any more while a guest waits.
WRITING = 2


class Device:
    """A device-mapper device.

    :param control: /dev/mapper/control
    """

    def __init__(self, control, name):
        self._control = control
        self._name = name

    def _call(self, request, flags=0, targets=0, data=b''):
        answer = bytearray(_IOCTL.pack(
            4, 0, 0, _IOCTL.size + len(data), _IOCTL.size, targets, 0, flags,
            0, 0, 0, self._name.encode(), b'') + data)
        fcntl.ioctl(self._control, request, answer)
        return answer[_IOCTL.size:]

    def resume(self):
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
    def suspended(self, seconds=ENDING):
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

    def load(self, table):
        """Load a table, for the next resume."""
        lines = [line.split(' ', 3) for line in table.splitlines()]
        self._call(_LOAD, 0, len(lines), b''.join(
            _target(int(start), int(sectors), target.encode(),
                    arguments.encode() + b'\0')
            for start, sectors, target, arguments in lines))

    def reload(self, table):
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

    def mapped(self):
        """How many sectors of a thin device are mapped."""
        return int(self._status().split()[0])

    def _status(self):
        """What its only target says of itself."""
        text = self._call(_STATUS, data=bytes(4096))[_SPEC.size:]
        return text.partition(b'\0')[0].decode()


def _target(start, sectors, target, text):
    text += bytes(-len(text) % 8)
    return _SPEC.pack(start, sectors, 0, _SPEC.size + len(text),
                      target) + text


@contextlib.contextmanager
def _limit(seconds):
    def expired(_number, _frame):
        raise TimeoutError('what is on its way has not ended in %d s'
                           % seconds)
    signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def swap(handle, table, disk, seconds):
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


def pieces(parts, at_once):
    """Parts of a device, none too large for one call: (first, bytes)."""
    for line in parts:
        start, length = map(int, line.split())
        for begin in range(start, start + length, at_once):
            yield begin, min(at_once, start + length - begin)


def discard(handle, clone, table, device, queue, todo, seconds):
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


def _discard_some(device, todo, until):
    while todo:
        fcntl.ioctl(device, _BLKDISCARD, struct.pack('=QQ', *todo.pop()))
        if time.monotonic() >= until:
            break


def refill(handle, thin, device, sectors, parts, data):
    """Write to an LV beneath a handle, unless others have written to it.

    :param handle: the Device that is suspended meanwhile
    :param thin: the Device of the LV
    :param device: a descriptor of the same
    :param sectors: that it had mapped when it was seen what is to be written
    :param parts: first byte, bytes; each a block of the pool
    :param data: all of these, in a file
    :returns: how many of them were written
    :raises OSError: if one can't be written; with IN_PART if that, or another,
        could not be taken back
    """
    memories = []
    for first, length in parts:  # as direct I/O wants it
        memories.append((first, mmap.mmap(-1, length)))
        memories[-1][1][:] = data.read(length)
    with handle.suspended():
        if thin.mapped() != sectors:
            return 0
        begun = 0
        deadline = time.monotonic() + WRITING
        try:
            for first, memory in memories:
                if time.monotonic() > deadline:
                    break
                begun += 1
                _write(device, first, memory)
            os.fsync(device)
        except OSError as exc:
            # The last one first: that is the one in part.
            for first, memory in reversed(memories[:begun]):
                with contextlib.suppress(OSError):
                    fcntl.ioctl(device, _BLKDISCARD,
                                struct.pack('=QQ', first, len(memory)))
            if thin.mapped() != sectors:
                raise OSError(exc.errno, IN_PART)
            raise
        return begun


def _write(device, first, memory):
    done = 0
    while done < len(memory):
        done += os.pwritev(device, [memoryview(memory)[done:]], first + done)


def _refill(control, handle, thin, path, sectors):
    """See :func:`refill`; ``path`` is that of the LV."""
    data = sys.stdin.buffer
    numbers = [int(word) for word in data.readline().split()]
    print(refill(
        Device(control, handle), Device(control, thin),
        os.open(path, os.O_RDWR | os.O_DIRECT), int(sectors),
        list(zip(numbers[::2], numbers[1::2])), data))


def _discard(control, handle, clone, table, path, queue, at_once, seconds):
    """See :func:`discard`; ``path`` is that of the clone."""
    todo = list(pieces(sys.stdin, int(at_once)))
    discard(Device(control, handle), Device(control, clone), table,
            os.open(path, os.O_RDWR), queue, todo[::-1], float(seconds))


def _swap(control, handle, disk, seconds):
    """See :func:`swap`; ``disk`` is a path, or ''."""
    swap(Device(control, handle), sys.stdin.read(),
         os.open(disk, os.O_RDONLY) if disk else None, int(seconds))


def main(what, *arguments):
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
