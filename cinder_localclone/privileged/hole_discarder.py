# SPDX-License-Identifier: Apache-2.0
"""Discards parts of a clone under a handle in use; see :mod:`.devicemapper`.

Run by its path, in a process of its own and without anything of the driver:
the guest's I/O waits meanwhile, so nothing may be started in between. Its
calls are those of the kernel's include/uapi/linux/dm-ioctl.h and fs.h.

A discard of a region that is being copied loses writes that follow it
(measured on 6.1). With the handle suspended nothing is on its way, and
hydration is off: only then the kernel marks what is not local as local, and
leaves alone what the guest has written. A clone that has once refused
discards takes them again only when its table is loaded anew.

Standard input has a part a line: first byte, bytes. What is not discarded
when its time is up is left, without an error.
"""

import contextlib
import fcntl
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
#: _IOWR(0xfd, n, struct dm_ioctl); DM_DEV_SUSPEND and DM_TABLE_LOAD.
_REQUEST = 3 << 30 | _IOCTL.size << 16 | 0xfd << 8
_SUSPEND, _LOAD = _REQUEST | 6, _REQUEST | 9
#: DM_SUSPEND_FLAG; DM_SKIP_LOCKFS_FLAG: nothing above it is frozen.
_SUSPENDED, _NO_LOCKFS = 1 << 1, 1 << 10
_BLKDISCARD = 0x1277

#: Seconds for what is on its way to end; for discards until the guest's I/O
#: may go on, and how long it then goes on at least.
ENDING, AT_ONCE, BETWEEN = 2, 0.1, 0.1


class Device:
    """A device-mapper device.

    :param control: /dev/mapper/control
    """

    def __init__(self, control, name):
        self._control = control
        self._name = name

    def _call(self, request, flags, targets=0, data=b''):
        fcntl.ioctl(self._control, request, bytearray(_IOCTL.pack(
            4, 0, 0, _IOCTL.size + len(data), _IOCTL.size, targets, 0, flags,
            0, 0, 0, self._name.encode(), b'') + data))

    def resume(self):
        """On the table that was loaded last."""
        self._call(_SUSPEND, 0)

    @contextlib.contextmanager
    def suspended(self):
        """Nothing is on its way, and what comes waits.

        :raises TimeoutError: if something does not end; it is resumed
        """
        try:
            with _limit(ENDING):
                self._call(_SUSPEND, _SUSPENDED | _NO_LOCKFS)
            yield
        finally:
            self.resume()

    def load(self, table):
        """Load a table of one line, for the next resume."""
        start, sectors, target, arguments = table.split(' ', 3)
        text = arguments.encode() + b'\0'
        text += bytes(-len(text) % 8)
        self._call(_LOAD, 0, 1, _SPEC.pack(
            int(start), int(sectors), 0, _SPEC.size + len(text),
            target.encode()) + text)


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
                clone.load(table)
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


def main(handle, clone, table, path, queue, at_once, seconds):
    """See :func:`discard`; ``path`` is that of the clone."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    todo = list(pieces(sys.stdin, int(at_once)))
    device = os.open(path, os.O_RDWR)
    with open('/dev/mapper/control', 'r+b', buffering=0) as control:
        discard(Device(control, handle), Device(control, clone), table,
                device, queue, todo[::-1], float(seconds))


if __name__ == '__main__':
    main(*sys.argv[1:])
