# SPDX-License-Identifier: Apache-2.0
"""Copying into a thin LV what its pool has forgotten, beneath its handle.

dmsetup(8), the kernel's dm-clone.rst. The clone in between counts all of it
as local, so what is written to the LV is what the handle reads.
"""

from cinder_localclone.dm import clone_metadata
from cinder_localclone import exceptions
from cinder_localclone import names
from cinder_localclone import privileged
from cinder_localclone.privileged import devicemapper
from cinder_localclone.privileged import process
from cinder_localclone.privileged import sysfs
from cinder_localclone.privileged import thin_pool
from cinder_localclone import thin_map

#: Bytes of one call: the guest's I/O waits until they are written.
AT_ONCE = 4 << 20


@privileged.entrypoint
def local(group: str, lv: str, parts: thin_map.Holes, timeout: float
          ) -> thin_map.Holes:
    """Which regions a clone has on record as local.

    Past the page cache, which does not know what the kernel writes.

    :param lv: of its metadata
    :param parts: the regions that are asked for
    :raises OddMetadata: if they are not understood
    """
    return clone_metadata.local(_dd(
        timeout, 'if=' + names.lv_path(group, lv), 'iflag=direct'), parts)


@privileged.entrypoint
def refill(handle: str, group: str, lv: str, disk: str, size: int,
           region: int, start: int, count: int, timeout: float
           ) -> list[int]:
    """Copy some regions, unless anything was written to them meanwhile.

    They are read, and looked for in the pool's map, before the handle is
    suspended. Once it is, the LV must have mapped as much as by that map.

    :param disk: path of the source's disk
    :param size: bytes of the clone
    :param region: bytes of a region
    :param start: the first region
    :param count: how many
    :returns: how many of them have been dealt with, the first ones; less
        than asked for, if these are many; 0 if something was written to the
        LV meanwhile. And how many bytes of them were written
    :raises WrongDevice: if a path does not lead to the device that it names
    :raises CommandFailed: if the source can't be read; nothing is written
    :raises CommandTimeout: if it takes too long; the same
    """
    privileged.require(names.volume_of_handle(handle), handle)
    path = names.lv_path(group, lv)
    if sysfs.mapped_name(path) != names.mapped(group, lv):
        raise exceptions.WrongDevice(
            path=path, found=sysfs.mapped_name(path) or 'nothing')
    count = min(count, max(1, AT_ONCE // region))
    first = start * region
    data = _read(disk, first, min(count * region, size - first), timeout)
    sectors, holes = thin_pool.look(group, lv, size, region, timeout)
    missing = thin_map.common([[start, count]], holes)
    parts = [(begin * region, regions * region) for begin, regions in missing]
    if parts and not devicemapper.write_beneath(
            handle, names.mapped(group, lv), path, sectors, parts,
            b''.join(data[at - first:at - first + length]
                     for at, length in parts), timeout):
        return [0, 0]
    # Whoever has read zeros reads again.
    process.run('blockdev', '--flushbufs', '/dev/mapper/' + handle,
                timeout=timeout)
    return [count, sum(length for _first, length in parts)]


def _read(disk: str, first: int, length: int, timeout: float) -> bytes:
    """:raises CommandFailed: also if the disk ends before that"""
    data = _dd(timeout, 'if=' + disk, 'skip=%d' % first, 'count=%d' % length,
               'iflag=direct,fullblock,skip_bytes,count_bytes')
    if len(data) != length:
        raise exceptions.CommandFailed(
            command='dd', code=0, stderr='%d bytes at %d of %s instead of %d'
            % (len(data), first, disk, length))
    return data


def _dd(timeout: float, *words: str) -> bytes:
    pieces: list[bytes] = []
    process.stream(pieces.append, 'dd', *words, 'bs=1M', 'status=none',
                   timeout=timeout)
    return b''.join(pieces)
