# SPDX-License-Identifier: Apache-2.0
"""Copy lost blocks into a thin LV, beneath its handle.

See dmsetup(8) and the kernel's dm-clone.rst. A pool may have lost blocks which
it had mapped. The clone between LV and handle counts all these blocks as
local, so data written to the LV are read by the handle.
"""

from oslo_utils import units

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_clone_metadata
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs
from cinder_localclone.storage.privsep import thin_pool

#: Maximum bytes of a call: the guest's I/O waits until they are written.
AT_ONCE = 4 * units.Mi


@privsep.entrypoint
def local_regions(group: str, lv: str, regions: int, timeout: float
                  ) -> thin_map.Holes:
    """Return the regions recorded as local in a clone's metadata.

    Allows: reads the map in any LV of the driver's volume groups.

    The metadata are read past the page cache, because the kernel writes them
    without it.

    :param lv: the metadata LV
    :param regions: number of regions of the clone
    :raises OddMetadata: if the metadata are not understood
    """
    configuration.require_groups(group)
    return dm_clone_metadata.local_regions(_dd(
        timeout, 'if=' + names.lv_path(group, lv), 'iflag=direct'), regions)


@privsep.entrypoint
def refill(handle: str, group: str, lv: str, disk: tuple[str, str], size: int,
           at_once: int, start: int, count: int, timeout: float
           ) -> tuple[int, thin_map.Holes]:
    """Copy blocks of a pool, unless anything was written to them since.

    Allows: copies blocks of any path into an LV of the driver's volume groups
    where its pool has none, and suspends a handle meanwhile.

    The blocks are read before the handle is suspended, and looked up in the
    pool's map afterwards. Each block is written whole, with zeros beyond the
    end of the clone, where the LV has no data either.

    :param disk: path and number of the source's disk, which the clone has open
    :param size: bytes of the clone
    :param at_once: bytes of a block of the pool
    :param start: the first block
    :param count: number of blocks; :data:`AT_ONCE` bytes at most
    :returns: number of processed blocks, from the first on; the written blocks
        among them. The pool had mapped the others
    :raises WrongDevice: if a path does not lead to the device in its name
    :raises SourceUnread: if the source can't be read; nothing is written
    :raises PoolFails: if the pool can't write its metadata; nothing is written
    :raises PoolOutOfSpace: if the pool has no free space; nothing is written
    :raises CommandFailed: if a write fails; all writes are undone as far as
        possible
    :raises CommandTimeout: if it takes too long; any block may be written in
        part
    """
    configuration.require_groups(group)
    privsep.require(names.volume_of_handle(handle), handle)
    path = names.lv_path(group, lv)
    if sysfs.mapped_name(path) != names.mapped_name(group, lv):
        raise exceptions.WrongDevice(
            path=path, found=sysfs.mapped_name(path) or 'nothing')
    first, end = start * at_once, min((start + count) * at_once,
                                      block.size(path))
    source, number = disk
    if sysfs.number(source) != number:
        raise exceptions.WrongDevice(
            path=source, found=sysfs.number(source) or 'nothing')
    data = _read(source, first, min(end, size) - first, timeout)
    data += bytes(end - first - len(data))
    parts = [(place, min(at_once, end - place))
             for place in range(first, end, at_once)]
    with thin_pool.locked_for_writing(group, lv, count, timeout) as thin:
        come, written = dmsetup.write_beneath(
            handle, thin, path, at_once, parts, data, timeout)
    return come, [[place // at_once, 1] for place in written]


@privsep.entrypoint
def forget_read(devices: list[str], timeout: float) -> None:
    """Drop cached pages, so readers of stale zeros read the disk again.

    Allows: drops the page cache of any device in /dev/mapper.

    :param devices: names of a handle and its upper devices
    """
    for name in devices:
        privsep.require('/' not in name, name)  # cryptsetup's, too
        process.run('blockdev', '--flushbufs', '/dev/mapper/' + name,
                    timeout=timeout)


def _read(disk: str, first: int, length: int, timeout: float) -> bytes:
    """Read a part of the source's disk.

    :raises SourceUnread: also if the disk ends before the part's end
    """
    try:
        data = _dd(timeout, 'if=' + disk, 'skip=%d' % first,
                   'count=%d' % length,
                   'iflag=direct,fullblock,skip_bytes,count_bytes')
    except (exceptions.CommandFailed, exceptions.CommandTimeout) as exc:
        raise exceptions.SourceUnread(disk=disk, first=first, reason=exc)
    if len(data) != length:
        raise exceptions.SourceUnread(
            disk=disk, first=first, reason='%d bytes instead of %d' % (
                len(data), length))
    return data


def _dd(timeout: float, *words: str) -> bytes:
    pieces: list[bytes] = []
    process.stream(pieces.append, 'dd', *words, 'bs=1M', 'status=none',
                   timeout=timeout)
    return b''.join(pieces)
