# SPDX-License-Identifier: Apache-2.0
"""Device-mapper: changes by dmsetup(8), reads by ioctl.

Tables come from :mod:`.dm_tables`. A swap of a live table is ``load`` then
``resume``: the kernel suspends, swaps and resumes in a single step, so a
failure can't leave a guest suspended.

A table names a disk by its number. If the disk goes away, another disk may get
the number. After the load the kernel holds the disk, and the number stays.
Only then is the disk's serial number compared with the expected one.

Time limits are in seconds. Each function raises CommandFailed or
CommandTimeout.
"""

from collections.abc import Sequence
import contextlib
import fcntl
import os
import sys

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import dm_control
from cinder_localclone.storage.privsep import lower
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs
from cinder_localclone.storage.privsep import thin_pool
from cinder_localclone.storage.privsep import while_suspended

#: Maximum seconds for which a device in use is suspended.
SUSPENDED = 5


@privsep.entrypoint
def survey(timeout: float, only: list[str] | None = None
           ) -> list[tuple[str, str, str, int, bool, str]]:
    """Return the driver's own devices, and all of cryptsetup's.

    Allows: reads the tables of the driver's devices and of cryptsetup's, with
    keys masked.

    :param only: names to look up; names without a device are left out. None:
        all devices
    :returns: the fields of :class:`.dm_ioctl.Status`, with the live table
    """
    # dataclasses.astuple() makes a deep copy, which takes longer than the
    # rest.
    return [(each.name, each.uuid, each.number, each.opened, each.suspended,
             each.lines) for each in dm_control.devices(
                 timeout, only, (names.device_uuid(''), 'CRYPT-'))]


@privsep.entrypoint
def create(name: str, uuid: str, table: str, timeout: float,
           readonly: bool = False, disk: tuple[str, str] | None = None
           ) -> None:
    """Create a device with its first table, and activate it.

    Allows: creates a device of the driver's by name, with any table of the
    targets linear, clone, flakey and error. Its lower devices are the
    driver's, LVs of its volume groups, or disks of its iSCSI sessions; the
    caller chooses among these.

    :param disk: the SCSI disk in its table: number and serial number
    :raises WrongDevice: if the number is another disk's; the device is removed
        again
    """
    privsep.require(names.is_device(name), name)
    privsep.require(uuid == names.device_uuid(name), uuid)
    lower.require(table)
    _load('create', name, '--uuid', uuid, *['--readonly'] * readonly,
          table=table, timeout=timeout)
    try:
        _check_disk(disk)
    except exceptions.WrongDevice:
        process.run('dmsetup', 'remove', '--retry', name, timeout=timeout)
        raise


def _check_disk(disk: Sequence[str] | None) -> None:
    """Check that a loaded table has the intended disk.

    :raises WrongDevice: if it has another
    """
    if disk:
        number, serial = disk
        found = block.serial(number)
        if found != serial:
            raise exceptions.WrongDevice(
                path='/dev/block/' + number,
                found='a disk with serial number "%s"' % found)


def _load(*command: str, table: str, timeout: float) -> None:
    if '\n' in table:  # --table takes one line
        process.run('dmsetup', *command, stdin=table.encode(),
                    timeout=timeout)
    else:
        process.run('dmsetup', *command, '--table', table, timeout=timeout)


@privsep.entrypoint
def ensure_devnode(name: str) -> bool:
    """Make a device's path lead to this very device.

    Allows: turns the link of a device of the driver's in /dev/mapper back to
    it.

    os-brick's encryptors turn the link elsewhere, and udev, which made the
    link, does not check it again.

    :returns: False if the path was right already
    :raises WrongDevice: if there is no such device
    """
    privsep.require(names.is_device(name), name)
    path = '/dev/mapper/' + name
    if sysfs.mapped_name(path) == name:
        return False
    device = sysfs.mapped_device(name)
    if not device:
        raise exceptions.WrongDevice(path=path, found='nothing')
    # "dmsetup mknodes" does not repair a dangling link.
    new = '/dev/mapper/.%s.new' % name
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    os.symlink('../' + device, new)
    os.rename(new, path)
    return True


@privsep.entrypoint
def swap_table(name: str, table: str, timeout: float,
               disk: tuple[str, str] | None = None) -> None:
    """Give a device another table; I/O in flight ends on the old table.

    Allows: gives a device of the driver's another table, bounded as that of
    ``create``.

    After any failure the device is on its old table and not suspended.

    :param disk: as for :func:`create`
    :raises WrongDevice: as for :func:`create`
    """
    privsep.require(names.is_device(name), name)
    lower.require(table)
    _load('load', name, table=table, timeout=timeout)
    _check_loaded(name, disk, timeout)
    _resume(name, timeout)


def _check_loaded(name: str, disk: Sequence[str] | None, timeout: float
                  ) -> None:
    """Check the disk of a loaded table, and drop the table if it is wrong.

    :raises WrongDevice: if it is another disk
    """
    try:
        _check_disk(disk)
    except exceptions.WrongDevice:
        process.run('dmsetup', 'clear', name, timeout=timeout)
        raise


def _resume(name: str, timeout: float) -> None:
    """Resume a device: on its old table, if the kernel refuses the new one.

    The kernel may refuse a loaded table at this point, and would leave the
    device suspended.
    """
    try:
        process.run('dmsetup', 'resume', name, timeout=timeout)
    except Exception:
        for undo in ('clear', 'resume'):
            process.run('dmsetup', undo, name, timeout=timeout, ok=(0, 1))
        raise


@privsep.entrypoint
def swap_flushed(name: str, table: str, disk: str, timeout: float) -> None:
    """Give a handle in use another table, and flush earlier writes.

    Allows: gives a handle another table, bounded as that of ``create``;
    flushes any path.

    The disk with the earlier writes is flushed first while the handle is in
    use, so little is left for the second flush with the handle suspended.
    After any failure the handle is resumed on its old table.

    :param disk: path of the disk to flush; '' if nothing can be flushed
    """
    privsep.require(names.volume_of_handle(name), name)
    lower.require(table)
    if disk:
        process.run('sync', disk, timeout=timeout)
    try:
        process.run(
            sys.executable, '-I', '-S', while_suspended.__file__, 'swap',
            name, disk, str(SUSPENDED), stdin=table.encode(),
            timeout=min(timeout, 2 * SUSPENDED))
    except exceptions.LocalCloneError:
        if _is_suspended(name, timeout):  # it was killed
            _clear_and_resume(name, timeout)
        raise


def _clear_and_resume(name: str, timeout: float) -> None:
    """Resume a device on its old table."""
    process.run('dmsetup', 'clear', name, timeout=timeout)
    _resume(name, timeout)


@privsep.entrypoint
def remove(name: str, timeout: float) -> bool:
    """Remove a device that nothing has open.

    Allows: removes a device of the driver's that nothing uses.

    :returns: False if there is no such device
    """
    privsep.require(names.is_device(name), name)
    # udev opens new devices for a moment: EBUSY, so retry.
    return process.run_unless(
        'No such device', 'dmsetup', 'remove', '--retry', name,
        timeout=timeout)


@privsep.entrypoint
def message(name: str, text: str, timeout: float) -> None:
    """Send a message to a device's target (dm-clone.rst, "Messages").

    Allows: sends any message to a device of the driver's.
    """
    privsep.require(names.is_device(name), name)
    process.run('dmsetup', 'message', name, '0', *text.split(),
                timeout=timeout)


@privsep.entrypoint
def send(messages: list[tuple[str, str]], timeout: float) -> list[str]:
    """Send messages to devices, without a process for each.

    Allows: sends any message to devices of the driver's.

    See DM_TARGET_MSG of include/uapi/linux/dm-ioctl.h.

    :param messages: (name of a device, message)
    :param timeout: limit of all messages together
    :returns: the names of devices which did not take a message: they are gone
    """
    for name, _text in messages:
        privsep.require(names.is_device(name), name)
    return process.within(timeout, 'device-mapper: message',
                          lambda: _send(messages))


def _send(messages: list[tuple[str, str]]) -> list[str]:
    missing = []
    with open(dm_control.CONTROL, 'r+b', buffering=0) as kernel:
        for name, text in messages:
            try:
                fcntl.ioctl(kernel, dm_ioctl.TARGET_MSG,
                            dm_ioctl.message(name, text))
            except OSError:
                missing.append(name)
    return missing


@privsep.entrypoint
def status(name: str, timeout: float) -> str:
    """Return the status line of a device (dm-clone.rst, "Status").

    Allows: reads the status of any device-mapper device.
    """
    return dm_control.status(name, timeout)


@privsep.entrypoint
def clone_statuses(timeout: float) -> dict[str, str]:
    """Return the status lines of all clones, by name.

    Allows: reads the status of the driver's clones.
    """
    return {each.name: each.lines for each in dm_control.statuses(
        names.move_of_clone, timeout)
        # skip a clone without a table yet
        if each.lines.split()[2:3] == ['clone']}


@privsep.entrypoint
def targets(timeout: float) -> str:
    """Return the target types of the kernel, after loading the modules.

    Allows: lists device-mapper targets; loads four kernel modules.
    """
    for module in ('dm-clone', 'dm-thin-pool', 'dm-crypt', 'dm-flakey'):
        process.run('modprobe', '-q', module, timeout=timeout, ok=(0, 1))
    return process.run('dmsetup', 'targets', timeout=timeout)


@privsep.entrypoint
def replace_suspended(name: str, table: str, timeout: float,
                      in_use: bool = False,
                      disk: tuple[str, str] | None = None) -> None:
    """Replace a clone's table, and suspend the clone meanwhile.

    Allows: gives a device of the driver's another table, bounded as that of
    ``create``, and suspends it meanwhile.

    After any failure the device is resumed on its old table.

    :param in_use: whether a guest uses the clone. A clone that failed to
        record its state then keeps its table: the guest would never learn of
        the lost record
    :param disk: as for :func:`create`
    :raises WrongDevice: as for :func:`create`
    """
    privsep.require(names.is_device(name), name)
    lower.require(table)
    # A timed-out load may take effect late. A resume would take its table,
    # which does not know the regions that became local since.
    process.run('dmsetup', 'clear', name, timeout=timeout)
    process.run('dmsetup', 'suspend', name, timeout=timeout)
    try:
        # The suspended clone has now recorded all local regions, or has
        # failed.
        if not in_use or dm_tables.parse_clone_status(
                status(name, timeout)).mode == 'rw':
            process.run('dmsetup', 'load', name, '--table', table,
                        timeout=timeout)
            _check_loaded(name, disk, timeout)
    finally:
        _resume(name, timeout)


@privsep.entrypoint
def discard_beneath(handle: str, clone: str, table: str,
                    parts: list[tuple[int, int]], at_once: int,
                    seconds: float, timeout: float) -> None:
    """Discard parts of a clone while its handle is in use.

    Allows: discards any part of a clone of the driver's, and suspends a handle
    meanwhile.

    The handle is suspended repeatedly, for a moment each; see
    :mod:`.while_suspended`. Hydration must be off.

    :param table: table of the clone; once loaded, the clone refuses discards
        again as before
    :param parts: first byte, bytes
    :param at_once: most bytes of each call
    :param seconds: time after which no call is begun
    :raises WrongDevice: if the clone's path leads elsewhere
    :raises CommandFailed: if a discard fails
    :raises CommandTimeout: if it takes too long
    """
    privsep.require(names.volume_of_handle(handle), handle)
    privsep.require(names.move_of_clone(clone), clone)
    lower.require(table)
    path = '/dev/mapper/' + clone
    sysfs.check_mapped(path)
    queue = sysfs.disk_entry(path, 'queue', 'discard_max_bytes')
    try:
        process.run(
            sys.executable, '-I', '-S', while_suspended.__file__, 'discard',
            handle, clone, table, path, queue, str(at_once), str(seconds),
            timeout=timeout, grace=SUSPENDED, stdin=''.join(
                '%d %d\n' % tuple(part) for part in parts).encode())
    except exceptions.LocalCloneError:
        # The process was killed, or the kernel refused the new table.
        if any(_is_suspended(name, timeout) for name in (handle, clone)):
            # Suspending the clone waits for its I/O in flight. Only then may
            # the guest continue, on the clone's old table: a table loaded late
            # would not know the regions that became local since.
            process.run('dmsetup', 'suspend', clone, timeout=timeout)
            _clear_and_resume(clone, timeout)
            with open(queue, 'w') as limit:
                limit.write('0')
            _resume(handle, timeout)
        raise


def write_beneath(handle: str, thin: thin_pool.Thin, path: str, block: int,
                  parts: list[tuple[int, int]], data: bytes, timeout: float
                  ) -> tuple[int, list[int]]:
    """Write to an LV beneath a handle in use, and suspend it meanwhile.

    See :mod:`.while_suspended`. The work is done in a process of its own,
    because killing this process would leave the handle suspended. If the other
    process is killed, its last write may still be in flight, and would
    overwrite a later write of a guest.

    :param thin: pool and id of the LV; no other process may use the pool's
        metadata snapshot
    :param path: path of the LV
    :param block: bytes of a block of the pool
    :param parts: first byte, bytes; each a whole block of the pool
    :param data: the data of all parts
    :returns: number of parts processed, less than all if they take too long;
        the first bytes of the written parts. The pool had mapped the others
    :raises CommandFailed: if a write fails; all writes are undone as far as
        possible
    :raises CommandTimeout: if it takes too long; any part may be written in
        part
    """
    try:
        come, *written = map(int, process.run(
            sys.executable, '-I', '-S', while_suspended.__file__, 'refill',
            handle, thin.pool, thin.metadata, str(thin.number), path,
            str(block), timeout=min(timeout, 2 * SUSPENDED), dying=timeout,
            stdin=b'%s\n%s' % (' '.join(
                '%d %d' % part for part in parts).encode(), data)).split())
    except exceptions.LocalCloneError:
        if _is_suspended(handle, timeout):  # it was killed
            _clear_and_resume(handle, timeout)
        raise
    return come, written


def _is_suspended(name: str, timeout: float) -> bool:
    attributes = process.run('dmsetup', 'info', '-c', '--noheadings', '-o',
                             'attr', name, timeout=timeout)
    return 's' in attributes
