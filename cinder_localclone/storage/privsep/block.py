# SPDX-License-Identifier: Apache-2.0
"""Block devices: read, flush, discard, sysfs. Each with a time limit.

A device that may hang is opened in a child process, or in a thread which is
left behind at the time limit: file I/O on a dead source would block the whole
service. sysfs answers without the disk.

Time limits are in seconds. A function that runs a command raises CommandFailed
or CommandTimeout.
"""

from collections.abc import Iterable
import fcntl
import os
import struct
import time

from oslo_utils import units

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs

#: BLKDISCARD of include/uapi/linux/fs.h, _IO(0x12, 119): two 64-bit numbers.
_BLKDISCARD = 0x1277


@privsep.entrypoint
def read_head(path: str, length: int, timeout: float) -> None:
    """Read the first ``length`` bytes, past the page cache.

    Allows: reads the beginning of any path; the caller learns whether the read
    succeeds, and no byte.
    """
    process.run('dd', 'if=' + path, 'of=/dev/null', 'iflag=direct',
                'bs=%d' % min(length, units.Mi),
                'count=%d' % max(1, length // units.Mi), 'status=none',
                timeout=timeout)


@privsep.entrypoint
def zero_head(group: str, lv: str, timeout: float) -> None:
    """Write zeros over the first 4 KiB of move metadata and flush them.

    Allows: zeroes 4 KiB of the metadata LV of a move.

    :raises WrongDevice: if the path does not lead to the LV: the zeros would
        go into a file, or into another volume
    """
    configuration.require_groups(group)
    path = names.lv_path(group, lv)
    privsep.require(names.move_of_metadata(lv), path)
    if not _lv_number(group, lv):
        raise exceptions.WrongDevice(
            path=path, found=sysfs.mapped_name(path) or 'nothing')
    process.run('dd', 'if=/dev/zero', 'of=' + path, 'bs=4096', 'count=1',
                'oflag=direct', 'conv=fsync', 'status=none', timeout=timeout)


@privsep.entrypoint
def head_is_zero(path: str, timeout: float) -> bool:
    """Return whether the first 4 KiB are all zeros on the disk itself.

    Allows: tells whether any path begins with 4 KiB of zeros.
    """
    return not process.run(
        'dd', 'if=' + path, 'bs=4096', 'count=1', 'iflag=direct',
        'status=none', timeout=timeout).strip('\0')


@privsep.entrypoint
def flush(path: str, timeout: float) -> None:
    """Flush a device's volatile caches (sync(1): fsync of the device).

    Allows: flushes any path.
    """
    process.run('sync', path, timeout=timeout)


@privsep.entrypoint
def identity(path: str) -> tuple[int, str]:
    """Return the size and serial number of a SCSI disk, from sysfs.

    Allows: reads sysfs of any disk: size and serial number.

    The disk itself is not read.

    :returns: size in bytes, unit serial number; 0 and '' if the disk does not
        report them (it is being scanned, or has just gone)
    """
    try:
        size = _size(path)
        with open(sysfs.disk_entry(path, 'device', 'vpd_pg80'), 'rb') as page:
            return size, parse_serial(page.read())
    except OSError:
        return 0, ''


def serial(number: str) -> str:
    """Return the serial number of the SCSI disk ``major:minor``.

    :returns: '' if there is no such disk, or it reports none
    """
    try:
        with open(os.path.join(sysfs.ROOT, 'dev', 'block', number, 'device',
                               'vpd_pg80'), 'rb') as page:
            return parse_serial(page.read())
    except OSError:
        return ''


def parse_serial(page: bytes) -> str:
    """Return the unit serial number in a product data page 80h (SPC-4)."""
    return page[4:].decode('ascii', 'replace').strip('\0 ')


@privsep.entrypoint
def size(path: str) -> int:
    """Return the size of a device in bytes, from sysfs.

    Allows: reads the size of any block device in sysfs.
    """
    return _size(path)


def _size(path: str) -> int:
    # In sectors of 512 bytes, even for disks with larger sectors
    # (sysfs-block).
    with open(sysfs.disk_entry(path, 'size')) as sectors:
        return int(sectors.read()) * state.SECTOR


@privsep.entrypoint
def completed_reads(path: str) -> int:
    """Return the reads completed or failed by a disk since it appeared.

    Allows: reads a counter of any disk in sysfs.

    It is the first field of Documentation/block/stat.rst.
    """
    with open(sysfs.disk_entry(path, 'stat')) as counters:
        return int(counters.read().split()[0])


@privsep.entrypoint
def written_sectors(path: str) -> int:
    """Return the sectors written to a device since it appeared.

    Allows: reads a counter of any disk in sysfs.

    It is the seventh field of Documentation/block/stat.rst. A flush writes no
    sectors.

    :raises ValueError: if the kernel does not count the device's I/O
    """
    with open(sysfs.disk_entry(path, 'queue', 'iostats')) as counts:
        if counts.read().strip() != '1':
            raise ValueError('the kernel does not count writes to %s' % path)
    with open(sysfs.disk_entry(path, 'stat')) as counters:
        return int(counters.read().split()[6])


@privsep.entrypoint
def discard(path: str, parts: list[tuple[int, int]], at_once: int,
            seconds: float, timeout: float) -> None:
    """Discard parts of a clone that is not given out yet.

    Allows: discards any part of a clone of the driver.

    :param parts: first byte, bytes
    :param at_once: most bytes of each call, to keep calls short
    :param seconds: time after which no call is begun
    :raises WrongDevice: if the path leads elsewhere
    :raises CommandFailed: if the clone takes no discards
    :raises CommandTimeout: if a call hangs
    """
    privsep.require(names.move_of_clone(os.path.basename(path)), path)
    sysfs.check_mapped(path)
    what = 'discard parts of ' + path
    try:
        process.within(timeout, what, lambda: _discard(
            path, parts, at_once, seconds))
    except OSError as exc:
        raise exceptions.CommandFailed(
            command=what, code=exc.errno, stderr=exc.strerror) from exc


def _discard(path: str, parts: Iterable[tuple[int, int]], at_once: int,
             seconds: float) -> None:
    deadline = time.monotonic() + seconds
    device = os.open(path, os.O_RDWR)
    try:
        for start, length in parts:
            for begin in range(start, start + length, at_once):
                if time.monotonic() >= deadline:
                    return
                fcntl.ioctl(device, _BLKDISCARD, struct.pack(
                    '=QQ', begin, min(at_once, start + length - begin)))
    finally:
        os.close(device)


@privsep.entrypoint
def disable_discards(path: str) -> None:
    """Make a clone, and all devices above it, refuse discards.

    Allows: makes a clone of the driver refuse discards.
    """
    privsep.require(names.move_of_clone(os.path.basename(path)), path)
    sysfs.check_mapped(path)
    with open(sysfs.disk_entry(path, 'queue', 'discard_max_bytes'),
              'w') as limit:
        limit.write('0')


@privsep.entrypoint
def logical_block(path: str) -> int:
    """Return the logical block size of a device, in bytes.

    Allows: reads the sector size of any block device in sysfs.

    :returns: 0 if there is no such device
    """
    return sysfs.logical_block(sysfs.number(path))


@privsep.entrypoint
def lv_number(group: str, lv: str) -> str:
    """Return the ``major:minor`` of an LV, '' unless it is active.

    Allows: reads the device number of any active LV.

    The kernel answers: its device has the name given by LVM.
    """
    return _lv_number(group, lv)


def _lv_number(group: str, lv: str) -> str:
    found = sysfs.number(names.lv_path(group, lv))
    return found if found and sysfs.name_of(found) == names.mapped_name(
        group, lv) else ''


@privsep.entrypoint
def number(path: str) -> str:
    """Return the ``major:minor`` of the block device at a path.

    Allows: reads the device number of any path.

    :returns: '' if the path leads to no block device
    """
    return sysfs.number(path)
