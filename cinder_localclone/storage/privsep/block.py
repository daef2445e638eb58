# SPDX-License-Identifier: Apache-2.0
"""Block devices: read, flush, discard, sysfs. Each with a time limit.

What opens a device that may hang is in a child, or in a thread of its own
that is left behind: file I/O on a dead source would block all of the service.
sysfs answers without the disk.

Time limits are in seconds. What runs a command raises CommandFailed or
CommandTimeout.
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

    Allows: reads the beginning of any path; the caller learns whether that
    works, and no byte.
    """
    process.run('dd', 'if=' + path, 'of=/dev/null', 'iflag=direct',
                'bs=%d' % min(length, units.Mi),
                'count=%d' % max(1, length // units.Mi), 'status=none',
                timeout=timeout)


@privsep.entrypoint
def zero_head(group: str, lv: str, timeout: float) -> None:
    """Write zeros over the first 4 KiB of move metadata and flush them.

    Allows: zeroes 4 KiB of the metadata LV of a move.

    :raises WrongDevice: if the path does not lead to the LV: that would be
        written into a file, or to another volume
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
    """Whether the first 4 KiB are all zeros on the disk itself.

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
    """What a SCSI disk says it is, from sysfs, without reading it.

    Allows: reads sysfs of any disk: size and serial number.

    :returns: size in bytes, unit serial number; 0 and '' if it does not say,
        as while it is being scanned, or has just gone
    """
    try:
        size = _size(path)
        with open(sysfs.of_disk(path, 'device', 'vpd_pg80'), 'rb') as page:
            return size, parse_serial(page.read())
    except OSError:
        return 0, ''


def serial(number: str) -> str:
    """Return what the SCSI disk ``major:minor`` says is its serial number.

    :returns: '' if there is no such disk, or it does not say
    """
    try:
        with open(os.path.join(sysfs.ROOT, 'dev', 'block', number, 'device',
                               'vpd_pg80'), 'rb') as page:
            return parse_serial(page.read())
    except OSError:
        return ''


def parse_serial(page: bytes) -> str:
    """The unit serial number in a vital product data page 80h (SPC-4)."""
    return page[4:].decode('ascii', 'replace').strip('\0 ')


@privsep.entrypoint
def size(path: str) -> int:
    """The size of a device in bytes, from sysfs.

    Allows: reads the size of any block device in sysfs.
    """
    return _size(path)


def _size(path: str) -> int:
    # In sectors of 512 bytes, whatever the disk's own are (sysfs-block).
    with open(sysfs.of_disk(path, 'size')) as sectors:
        return int(sectors.read()) * state.SECTOR


@privsep.entrypoint
def completed_reads(path: str) -> int:
    """Reads that a disk has completed since it appeared, failed ones too.

    Allows: reads a counter of any disk in sysfs.

    The first field of Documentation/block/stat.rst.
    """
    with open(sysfs.of_disk(path, 'stat')) as counters:
        return int(counters.read().split()[0])


@privsep.entrypoint
def written_sectors(path: str) -> int:
    """Sectors that were written to a device since it appeared.

    Allows: reads a counter of any disk in sysfs.

    The seventh field of Documentation/block/stat.rst. Flushes write none.

    :raises ValueError: if the kernel was told not to count
    """
    with open(sysfs.of_disk(path, 'queue', 'iostats')) as counts:
        if counts.read().strip() != '1':
            raise ValueError('what is written to %s is not counted' % path)
    with open(sysfs.of_disk(path, 'stat')) as counters:
        return int(counters.read().split()[6])


@privsep.entrypoint
def discard(path: str, parts: list[tuple[int, int]], at_once: int,
            seconds: float, timeout: float) -> None:
    """Discard parts of a clone that nobody was given yet.

    Allows: discards any part of a clone of the driver.

    :param parts: first byte, bytes
    :param at_once: most bytes of one call, so that none takes long
    :param seconds: after which no more are begun
    :raises WrongDevice: if the path leads elsewhere
    :raises CommandFailed: if it takes no discards
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
    """Make a clone refuse discards, and so all that is stacked on it.

    Allows: makes a clone of the driver refuse discards.
    """
    privsep.require(names.move_of_clone(os.path.basename(path)), path)
    sysfs.check_mapped(path)
    with open(sysfs.of_disk(path, 'queue', 'discard_max_bytes'),
              'w') as limit:
        limit.write('0')


@privsep.entrypoint
def logical_block(path: str) -> int:
    """The logical block size of a device, in bytes; 0 if there is none.

    Allows: reads the sector size of any block device in sysfs.
    """
    return sysfs.logical_block(sysfs.number(path))


@privsep.entrypoint
def lv_number(group: str, lv: str) -> str:
    """The ``major:minor`` of an LV, '' unless it is active.

    Allows: reads the device number of any active LV.

    By the kernel, in which the device bears the name that LVM gave it.
    """
    return _lv_number(group, lv)


def _lv_number(group: str, lv: str) -> str:
    found = sysfs.number(names.lv_path(group, lv))
    return found if found and sysfs.name_of(found) == names.mapped(
        group, lv) else ''


@privsep.entrypoint
def number(path: str) -> str:
    """The ``major:minor`` of a block device, '' if the path leads to none.

    Allows: reads the device number of any path.
    """
    return sysfs.number(path)
