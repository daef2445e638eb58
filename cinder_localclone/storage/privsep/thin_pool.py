# SPDX-License-Identifier: Apache-2.0
"""Read the map of a thin LV: the parts of a volume that were never written.

Also lock a pool for :mod:`.refill`, which reads the map and writes blocks.

See dmsetup(8), thin_dump(8), the kernel's thin-provisioning.rst. The metadata
of a pool in use can be read only in a metadata snapshot. A pool has at most
one snapshot of its metadata, so a lock excludes other readers on the node. A
snapshot left behind costs the pool up to twice its metadata: it is released
after every use, even after an error. A snapshot left by a killed process is
released by the next use.

Each command has a time limit in seconds. Each entry point can also raise
CommandFailed or CommandTimeout.
"""

from collections.abc import Iterator
import contextlib
import socket
import typing

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import dm_control
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs

#: Time limit in seconds for a read on behalf of a waiting client.
LIMIT = 10
#: Modes of a pool with writable metadata; in the second it has no free space.
_WRITES, _FULL = 'rw', 'out_of_data_space'
#: Text in dmsetup's error if there is no metadata snapshot to release.
_NO_SNAPSHOT = 'Invalid argument'


class Thin(typing.NamedTuple):
    """The location of a thin LV.

    :param pool: name of its pool's device
    :param metadata: path of the pool's metadata device
    :param number: the LV's id in the pool
    """

    pool: str
    metadata: str
    number: int


@privsep.entrypoint
def largest_holes(group: str, lv: str, size: int, region: int, timeout: float
                  ) -> thin_map.Holes:
    """Return the never-written regions of a volume.

    Allows: reads the map of a thin LV of the driver's volume groups.

    A region written during the call may be among them.

    :param size: bytes of the volume
    :param region: bytes of a region
    :returns: the largest holes; none for an LV that is not thin
    :raises OddMap: if the pool does not report its map clearly
    :raises PoolFails: if the pool can't write its metadata
    :raises WrongDevice: if a path does not lead to the device in its name
    """
    configuration.require_groups(group)
    dump = _dump(group, lv, size, region, timeout, thin_map.MOST)
    return dump.largest_holes() if dump else []


@privsep.entrypoint
def all_holes(group: str, lv: str, size: int, region: int, timeout: float
              ) -> thin_map.Holes:
    """Return all unmapped regions of a volume, not only the largest.

    Allows: reads the map of a thin LV of the driver's volume groups.

    A region written during the call may be among them. For parameters and
    errors see :func:`largest_holes`.

    :raises OddMap: also if there are too many holes
    """
    configuration.require_groups(group)
    dump = _dump(group, lv, size, region, timeout, thin_map.ALL)
    return dump.all_holes() if dump else []


@privsep.entrypoint
def check_metadata_writable(group: str, lv: str, timeout: float) -> None:
    """Check that the pool of an LV can write its metadata.

    Allows: reads the state of the pool of an LV of the driver's volume groups.

    A pool without free space passes. For an LV that is not thin, nothing is
    checked.

    :raises OddMap: if the LV is not active
    :raises PoolFails: if the pool can't write its metadata
    :raises WrongDevice: if the LV's path leads elsewhere
    """
    configuration.require_groups(group)
    thin = _pool_and_id(group, lv, timeout)
    if thin:
        pool = sysfs.name_of(thin[0])
        _require_mode(dm_control.status(pool, timeout), pool, (_WRITES, _FULL))


@privsep.entrypoint
def block_size(group: str, lv: str, timeout: float) -> int:
    """Return the block size of an LV's pool in bytes; 0 if it is not thin.

    Allows: reads the block size of the pool of an LV of the driver's volume
    groups.

    :raises OddMap: if the LV is not active
    :raises WrongDevice: if the LV's path leads elsewhere
    """
    configuration.require_groups(group)
    thin = _pool_and_id(group, lv, timeout)
    return state.SECTOR * dm_tables.parse_pool_block(
        dm_control.table(thin[0], timeout)) if thin else 0


def _pool_and_id(group: str, lv: str, limit: float) -> tuple[str, int] | None:
    """Return the device number of an LV's pool, and the LV's id in the pool.

    :returns: device number as major:minor; None if the LV is not thin
    :raises OddMap: if the LV is not active
    :raises WrongDevice: if the LV's path leads elsewhere
    """
    path = names.lv_path(group, lv)
    number = sysfs.number(path)
    if not number:
        raise thin_map.OddMap('%s is not active' % path)
    if sysfs.name_of(number) != names.mapped_name(group, lv):
        raise exceptions.WrongDevice(path=path, found=number)
    return dm_tables.parse_thin(dm_control.table(number, limit))


def _located(group: str, lv: str, limit: float) -> Thin | None:
    """Return the location of an LV; None if it is not thin."""
    thin = _pool_and_id(group, lv, limit)
    if thin is None:
        return None
    number, device = thin
    return Thin(sysfs.name_of(number), _metadata(number, limit), device)


def _dump(group: str, lv: str, size: int, region: int, limit: float,
          most: int) -> thin_map.Dump | None:
    """Return the parsed map of an LV; None if it is not thin.

    For parameters and errors see :func:`largest_holes`.

    :param most: greatest number of holes to keep
    """
    thin = _located(group, lv, limit)
    if thin is None:
        return None
    pool, metadata, device = thin
    dump = thin_map.Dump(device, size, region, most)
    with _map_lock(metadata, limit), _snapshot(pool, limit):
        held = _snapshot_block(pool, limit)
        process.stream(dump.feed, 'thin_dump', '--metadata-snap', '--dev-id',
                       str(device), metadata, timeout=limit)
        if held == '-' or _snapshot_block(pool, limit) != held:
            raise thin_map.OddMap('another program has released the snapshot')
    return dump


@contextlib.contextmanager
def locked_for_writing(group: str, lv: str, blocks: int, timeout: float
                       ) -> Iterator[Thin]:
    """Lock a pool's map while the caller writes blocks to an LV.

    The caller itself takes a metadata snapshot of the pool. It is released
    here afterwards.

    :param blocks: number of blocks to write
    :returns: the location of the LV
    :raises Busy: if other readers of the map take too long
    :raises OddMap: if the LV is not active, or not thin
    :raises PoolFails: if the pool can't write its metadata
    :raises PoolOutOfSpace: if the pool may not have enough free space: a write
        would wait very long, with the handle suspended
    """
    thin = _located(group, lv, timeout)
    if thin is None:
        raise thin_map.OddMap('%s/%s is not thin' % (group, lv))
    pool = thin.pool
    with _map_lock(thin.metadata, timeout):
        free = dm_tables.parse_pool_space(_prepare(pool, timeout, (_WRITES,)))
        # Guests write to the pool as well.
        if free < 2 * blocks:
            raise exceptions.PoolOutOfSpace(
                pool=pool, host=socket.gethostname())
        try:
            yield thin
            # A failed commit of the metadata shows only in the pool's mode.
            _require_mode(dm_control.status(pool, timeout), pool,
                          (_WRITES, _FULL))
        finally:
            # On failure the next use releases it; the written blocks matter
            # more.
            with contextlib.suppress(exceptions.LocalCloneError):
                _release(pool, timeout)


@privsep.entrypoint
def release_metadata_snapshot(group: str, pool: str, timeout: float) -> bool:
    """Release a metadata snapshot of a pool left by a killed service.

    Allows: releases the metadata snapshot of a pool of the driver's volume
    groups.

    :param pool: name of the pool's LV
    :returns: whether there was a snapshot; False if the pool is not active
    """
    configuration.require_groups(group)
    device = names.mapped_name(group, pool, 'tpool')
    number = sysfs.number('/dev/mapper/' + device)
    if not number:
        return False  # the pool is not active
    limit = min(timeout, LIMIT)
    metadata = _metadata(number, limit)
    with _map_lock(metadata, limit):
        return _release_left(device, limit)


def _metadata(number: str, timeout: float) -> str:
    """Return the path of a pool's metadata device.

    :param number: the pool's device number, as major:minor
    """
    path = '/dev/mapper/' + sysfs.name_of(
        dm_tables.parse_pool_metadata(dm_control.table(number, timeout)))
    sysfs.check_mapped(path)
    return path


def _snapshot_block(pool: str, timeout: float) -> str:
    """Return the block of a pool's metadata snapshot; '-' if it has none."""
    return dm_tables.parse_metadata_snapshot(dm_control.status(pool, timeout))


def _map_lock(metadata: str, timeout: float
              ) -> contextlib.AbstractContextManager[int]:
    """Lock a pool's map against other readers on this node.

    :param metadata: path of the pool's metadata device
    :raises Busy: if other readers take too long
    """
    return process.locked(metadata, metadata, timeout)


@contextlib.contextmanager
def _snapshot(pool: str, timeout: float) -> Iterator[None]:
    """Take a snapshot of a pool's metadata, and release it in any case.

    :raises PoolFails: if the pool can't write its metadata
    """
    _prepare(pool, timeout, (_WRITES, _FULL))
    try:
        _message(pool, 'reserve_metadata_snap', timeout)
    except exceptions.CommandTimeout:
        _release(pool, timeout)
        raise
    try:
        yield
    finally:
        _release(pool, timeout)


def _prepare(pool: str, timeout: float, modes: tuple[str, ...]) -> str:
    """Prepare a pool for a metadata snapshot, and return its status.

    A snapshot left behind is released.

    :param modes: allowed modes of the pool
    :raises PoolFails: if the pool is in another mode
    :raises PoolOutOfSpace: if the pool has no free space, and ``modes`` does
        not allow this
    """
    status = dm_control.status(pool, timeout)
    _require_mode(status, pool, modes)
    if dm_tables.parse_metadata_snapshot(status) != '-':
        _release(pool, timeout)
    return status


def _require_mode(status: str, pool: str, modes: tuple[str, ...]) -> None:
    """Check the mode in a pool's status; for errors see :func:`_prepare`."""
    mode, host = dm_tables.parse_pool_mode(status), socket.gethostname()
    if mode == _FULL and mode not in modes:
        raise exceptions.PoolOutOfSpace(pool=pool, host=host)
    if mode not in modes:
        raise exceptions.PoolFails(pool=pool, mode=mode, host=host)


def _release_left(pool: str, timeout: float) -> bool:
    """Release a metadata snapshot, if the pool's status shows one."""
    if _snapshot_block(pool, timeout) == '-':
        return False
    return _release(pool, timeout)


def _release(pool: str, timeout: float) -> bool:
    """Release the metadata snapshot of a pool.

    :returns: whether there was a snapshot
    """
    return process.run_unless(_NO_SNAPSHOT, 'dmsetup', 'message', pool, '0',
                              'release_metadata_snap', timeout=timeout)


def _message(pool: str, text: str, timeout: float) -> None:
    process.run('dmsetup', 'message', pool, '0', text, timeout=timeout)
