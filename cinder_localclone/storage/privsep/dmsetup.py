# SPDX-License-Identifier: Apache-2.0
"""Device-mapper: what changes is done by dmsetup(8), looks by ioctl.

Tables come from :mod:`.dm_tables`. A swap of a live table
is ``load`` then ``resume``: the kernel suspends, swaps and resumes in that
one step, so nothing that fails can leave a guest suspended.

A disk in a table is named by its number, which another disk may get once this
one has gone. From the load on the kernel holds the disk, and it keeps its
number: so only then is it compared with the serial number that it should
have.

Time limits are in seconds. Each raises CommandFailed or CommandTimeout.
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

#: Seconds for which a device in use is suspended at most.
SUSPENDED = 5


@privsep.entrypoint
def survey(timeout: float, only: list[str] | None = None
           ) -> list[tuple[str, str, str, int, bool, str]]:
    """The driver's own devices, and all of cryptsetup's.

    Allows: reads the tables of the driver's devices and of cryptsetup's, with
    keys masked.

    :param only: those of these names, as far as they are there
    :returns: the fields of :class:`.dm_ioctl.Status`, with the live table
    """
    # dataclasses.astuple() copies deeply, which takes longer than all else.
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
    driver's, LVs of its volume groups, or disks of its iSCSI sessions; which
    of these, the caller chooses.

    :param disk: the SCSI disk in its table: number and serial number
    :raises WrongDevice: if the number is another disk's; there is no device
        then
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
    """See that a table that was loaded has the disk that was meant."""
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
    """See that a device's path leads to this very device.

    Allows: turns the link of a device of the driver's in /dev/mapper back to
    it.

    Others may turn the link elsewhere (os-brick's encryptors do), and udev,
    which made it, does not look again.

    :returns: False if it did
    :raises WrongDevice: if there is no such device
    """
    privsep.require(names.is_device(name), name)
    path = '/dev/mapper/' + name
    if sysfs.mapped_name(path) == name:
        return False
    device = sysfs.mapped_device(name)
    if not device:
        raise exceptions.WrongDevice(path=path, found='nothing')
    # "dmsetup mknodes" leaves a link that dangles as it is.
    new = '/dev/mapper/.%s.new' % name
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    os.symlink('../' + device, new)
    os.rename(new, path)
    return True


@privsep.entrypoint
def swap_table(name: str, table: str, timeout: float,
               disk: tuple[str, str] | None = None) -> None:
    """Give a device another table; I/O in flight ends on the old one.

    Allows: gives a device of the driver's another table, bounded as that of
    ``create``.

    Whatever fails, the device is not left suspended: it is on its old table.

    :param disk: as for :func:`create`; its error
    """
    privsep.require(names.is_device(name), name)
    lower.require(table)
    _load('load', name, table=table, timeout=timeout)
    _check_loaded(name, disk, timeout)
    _resume(name, timeout)


def _check_loaded(name: str, disk: Sequence[str] | None, timeout: float
                  ) -> None:
    """Drop a table that was loaded, if it has another disk than was meant."""
    try:
        _check_disk(disk)
    except exceptions.WrongDevice:
        process.run('dmsetup', 'clear', name, timeout=timeout)
        raise


def _resume(name: str, timeout: float) -> None:
    """Resume a device: on its old table, if the kernel refuses the new one.

    A table that is loaded may be refused only then, and the device stays
    suspended.
    """
    try:
        process.run('dmsetup', 'resume', name, timeout=timeout)
    except Exception:
        for undo in ('clear', 'resume'):
            process.run('dmsetup', undo, name, timeout=timeout, ok=(0, 1))
        raise


@privsep.entrypoint
def swap_flushed(name: str, table: str, disk: str, timeout: float) -> None:
    """Give a handle in use another table; what was written before is flushed.

    Allows: gives a handle another table, bounded as that of ``create``;
    flushes any path.

    A disk on which that is stable then is flushed once while the device is
    used, so that little is left when it is flushed again, with the device
    suspended. Whatever fails, the device is resumed: on its old table then.

    :param disk: its path; '' if nothing can be flushed
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
    """On the table that it has."""
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

    DM_TARGET_MSG of include/uapi/linux/dm-ioctl.h.

    :param messages: (name of a device, message)
    :param timeout: of all together
    :returns: the names of devices that do not take it: they are gone
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
    """The status line of a device (dm-clone.rst, "Status").

    Allows: reads the status of any device-mapper device.
    """
    return dm_control.status(name, timeout)


@privsep.entrypoint
def clone_statuses(timeout: float) -> dict[str, str]:
    """The status lines of all clones, by name.

    Allows: reads the status of the driver's clones.
    """
    return {each.name: each.lines for each in dm_control.statuses(
        names.move_of_clone, timeout)
        if each.lines.split()[2:3] == ['clone']}  # one is just being made


@privsep.entrypoint
def targets(timeout: float) -> str:
    """The target types the kernel knows, after loading those needed.

    Allows: lists device-mapper targets; loads four kernel modules.
    """
    for module in ('dm-clone', 'dm-thin-pool', 'dm-crypt', 'dm-flakey'):
        process.run('modprobe', '-q', module, timeout=timeout, ok=(0, 1))
    return process.run('dmsetup', 'targets', timeout=timeout)


@privsep.entrypoint
def replace_suspended(name: str, table: str, timeout: float,
                      in_use: bool = False,
                      disk: tuple[str, str] | None = None) -> None:
    """Replace a clone's table: suspended while the new one is loaded.

    Allows: gives a device of the driver's another table, bounded as that of
    ``create``, and suspends it meanwhile.

    Whatever fails, the device is resumed: on its old table then.

    :param in_use: whether a guest would have to be told of what the clone
        could not record: then it keeps its table
    :param disk: as for :func:`create`; its error
    """
    privsep.require(names.is_device(name), name)
    lower.require(table)
    # A load that was given up, and came late: a resume would take it, which
    # does not know what is local by now.
    process.run('dmsetup', 'clear', name, timeout=timeout)
    process.run('dmsetup', 'suspend', name, timeout=timeout)
    try:
        # It has recorded all that is local, or failed, by now.
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

    The handle is suspended for a moment, again and again; see
    :mod:`.while_suspended`. Hydration has to be off.

    :param table: what the clone is loaded with; afterwards it refuses
        discards, as before
    :param parts: first byte, bytes
    :param at_once: most bytes of one call
    :param seconds: after which none is begun any more
    :raises WrongDevice: if the clone's path leads elsewhere
    """
    privsep.require(names.volume_of_handle(handle), handle)
    privsep.require(names.move_of_clone(clone), clone)
    lower.require(table)
    path = '/dev/mapper/' + clone
    sysfs.check_mapped(path)
    queue = sysfs.of_disk(path, 'queue', 'discard_max_bytes')
    try:
        process.run(
            sys.executable, '-I', '-S', while_suspended.__file__, 'discard',
            handle, clone, table, path, queue, str(at_once), str(seconds),
            timeout=timeout, grace=SUSPENDED, stdin=''.join(
                '%d %d\n' % tuple(part) for part in parts).encode())
    except exceptions.LocalCloneError:
        # It was killed, or the kernel has refused the new table.
        if any(_is_suspended(name, timeout) for name in (handle, clone)):
            # A clone that was suspended has nothing on its way any more:
            # only then the guest may go on. On its old table: one that
            # comes to be loaded later would not know what is local by then.
            process.run('dmsetup', 'suspend', clone, timeout=timeout)
            _clear_and_resume(clone, timeout)
            with open(queue, 'w') as limit:
                limit.write('0')
            _resume(handle, timeout)
        raise


def write_beneath(handle: str, thin: thin_pool.Thin, path: str, block: int,
                  parts: list[tuple[int, int]], data: bytes, timeout: float
                  ) -> tuple[int, list[int]]:
    """Write to an LV beneath a handle in use, which is suspended meanwhile.

    See :mod:`.while_suspended`. Not in this process: one that is killed would
    leave the handle suspended. If it is killed itself, its last write may be
    on its way still: a guest that went on might write there before it.

    :param thin: where the LV is; nobody else may use its pool's snapshot of
        its metadata
    :param path: of the LV
    :param block: bytes that the pool maps at once
    :param parts: first byte, bytes; each a whole block of the pool
    :param data: all of these
    :returns: how many of them it has come to, less than all if it takes too
        long; the first bytes of those that were written: the pool had mapped
        the others
    :raises CommandFailed: if one can't be written; then none is, as far as
        that can be taken back
    :raises CommandTimeout: if it takes too long: any may be there, in part
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
