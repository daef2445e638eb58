# SPDX-License-Identifier: Apache-2.0
"""LVM commands for which Cinder's brick has no method, and LVM's reports.

Options: lvcreate(8), lvchange(8), lvextend(8), lvremove(8), lvmreport(7),
lvm.conf(5). Sizes are bytes, time limits seconds. Each function raises
CommandFailed or CommandTimeout.

A command that makes changes is never killed. A snapshot killed halfway leaves
its origin suspended, with the guest above it, or a thin pool which refuses all
further changes (measured with LVM 2.03.16). LVM delays SIGTERM during these
steps.

A change outlives a power cut once its function returns, or, with
``flush=False``, the next one.
"""

import os
import re

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import lower
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs

_RETRY = 'activation { retry_deactivation = 1 }'
_JSON = ('--reportformat', 'json', '--units', 'b', '--nosuffix')
#: Additional seconds for a command after SIGTERM.
GRACE = 60
#: Size of a stripe on a disk.
_STRIPE = '64k'
#: lvm(8), "Valid names".
_NAME = re.compile('[A-Za-z0-9+_.][A-Za-z0-9+_.-]{,126}')
#: Seconds until a process forked by another thread runs its command. Until
#: then it holds all locks of this process.
FORKED = 1
#: LVM's message if the new LV exists already.
_EXISTS = 'already exists in volume group'


def _require(group: str, *lvs: str) -> None:
    """Refuse foreign groups, and names which LVM could take for options.

    :raises ForeignGroup: if no backend has the group
    :raises Foreign: if LVM does not allow the name
    """
    configuration.require_groups(group)
    for name in lvs:
        privsep.require(_NAME.fullmatch(name), name)


def _change(group: str, *argv: str, timeout: float) -> None:
    process.run(*argv, timeout=timeout, grace=GRACE)
    _flush(group, timeout)


def _change_unless(done: str, group: str, *argv: str, timeout: float,
                   flush: bool = True) -> bool:
    changed = process.run_unless(done, *argv, timeout=timeout, grace=GRACE)
    if flush:  # an earlier call may have been killed before this
        _flush(group, timeout)
    return changed


def _flush(group: str, timeout: float) -> None:
    """Flush LVM's metadata on the disks, so a change outlives a power cut.

    LVM writes a group's metadata, and then the header with their location,
    past the page cache, but does not flush the disk's own cache. Measured with
    LVM 2.03.16: an LV created seconds earlier was gone, a removed LV was back;
    with the header alone on the disk the whole group was unreadable.
    """
    paths = [path for path in process.run(
        'vgs', '--noheadings', '-o', 'pv_name', group,
        timeout=timeout).split() if path.startswith('/')]  # not "[unknown]"
    if paths:
        process.run('sync', *paths, timeout=timeout)


def _lvchange(group: str, name: str, *words: str, timeout: float) -> None:
    _change(group, 'lvchange', *words, '%s/%s' % (group, name),
            timeout=timeout)


@privsep.entrypoint
def volumes(groups: list[str], timeout: float) -> str:
    """Return all LVs of the groups and the groups: LVM's JSON, in bytes.

    Allows: lists the LVs of the driver's volume groups.
    """
    configuration.require_groups(*groups)
    return process.run(
        'lvs', *_JSON, '-o', 'vg_name,lv_name,lv_size,lv_attr,lv_tags,'
        'data_percent,metadata_percent,lv_kernel_major,lv_kernel_minor,zero,'
        'lv_uuid,pool_lv,origin,lv_metadata_size,vg_size,vg_free,vg_seqno,'
        'vg_missing_pv_count',
        *groups, timeout=timeout)


@privsep.entrypoint
def transactions(group: str, pool: str, timeout: float
                 ) -> tuple[int, int | None]:
    """Return a thin pool's transaction id, by LVM and by the kernel.

    Allows: reads the transaction id of a thin pool of the driver's volume
    groups.

    :returns: LVM's id; the kernel's, or None if the pool is not active or has
        failed
    """
    _require(group, pool)
    of_lvm = int(process.run(
        'lvs', '--noheadings', '-o', 'transaction_id',
        '%s/%s' % (group, pool), timeout=timeout))
    try:
        status = process.run('dmsetup', 'status', names.mapped_name(
            group, pool, 'tpool'), timeout=timeout).split()
    except exceptions.CommandFailed:
        return of_lvm, None
    # A failed pool reports "Fail" in place of the number.
    return of_lvm, int(status[3]) if status[3:4] and (
        status[3].isdigit()) else None


@privsep.entrypoint
def free(groups: list[str], timeout: float) -> str:
    """Return the size and free space of groups: LVM's JSON, in bytes.

    Allows: reads the free space of the driver's volume groups.
    """
    configuration.require_groups(*groups)
    return process.run(
        'vgs', *_JSON, '-o', 'vg_name,vg_size,vg_free,vg_missing_pv_count',
        *groups, timeout=timeout)


@privsep.entrypoint
def archive_space(timeout: float) -> tuple[str, int]:
    """Return LVM's archive directory of metadata, and its free space.

    Allows: reads LVM's configuration, and the free space of its archive.

    LVM archives a group's metadata before it changes them.

    :returns: directory, bytes; ('', 0) if LVM archives nothing
    """
    # Options of lvm.conf(5). LVM creates the directory.
    options = dict(line.partition('=')[::2] for line in process.run(
        'lvmconfig', '--typeconfig', 'full', 'backup/archive',
        'backup/archive_dir', timeout=timeout).splitlines())
    if options['archive'] != '1':
        return '', 0
    directory = options['archive_dir'].strip('"')
    place = os.path.abspath(directory)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    found = os.statvfs(place)
    full = found.f_flag & os.ST_RDONLY or found.f_files and not found.f_ffree
    return directory, 0 if full else found.f_bfree * found.f_frsize


@privsep.entrypoint
def create_thin(group: str, pool: str, name: str, size: int,
                tags: list[str], timeout: float) -> bool:
    """Create a thin LV in a pool, without asking about old signatures.

    Allows: creates a thin LV of any name and tags in one of the driver's
    volume groups.

    :param size: bytes; LVM rounds up to whole extents
    :returns: False if the LV exists already
    """
    _require(group, pool, name)
    return _change_unless(
        _EXISTS, group, 'lvcreate', '--yes', '--wipesignatures', 'n', '-V',
        '%db' % size, '-T', '%s/%s' % (group, pool), '-n', name,
        *_tagged(tags), timeout=timeout)


@privsep.entrypoint
def create_thick(group: str, name: str, size: int, tags: list[str],
                 timeout: float, stripes: int = 1, flush: bool = True
                 ) -> bool:
    """Create a linear or striped LV, with the old data of its extents.

    Allows: creates an LV of any name and tags in one of the driver's volume
    groups. The LV has the old data of its extents.

    :param size: bytes; LVM rounds up to whole extents of each stripe
    :param stripes: number of disks
    :param flush: False if another change of the group comes next, whose flush
        includes this change: LVM writes the metadata of a group as a whole
    :returns: False if the LV exists already
    """
    _require(group, name)
    striped = ('--type', 'striped', '--stripes', str(stripes),
               '--stripesize', _STRIPE) if stripes > 1 else ()
    return _change_unless(
        _EXISTS, group, 'lvcreate', '--yes', '--wipesignatures', 'n',
        '--zero', 'n', *striped, '-L', '%db' % size, '-n', name,
        *_tagged(tags), group, timeout=timeout, flush=flush)


@privsep.entrypoint
def create_snapshot(group: str, origin: str, name: str, writable: bool,
                    tags: list[str], timeout: float) -> bool:
    """Take a snapshot of a thin LV: another thin LV of the same size.

    Allows: takes a snapshot of any name and tags of any thin LV of the
    driver's volume groups.

    The snapshot gets none of the origin's tags, and does not depend on it. LVM
    suspends the origin for a moment. The snapshot has all data written past
    the page cache before.

    :param writable: whether the snapshot is writable, and active now and after
        a reboot. Otherwise it is read-only, and inactive until
        :func:`activate`
    :returns: False if an LV of this name exists already, of any kind
    """
    _require(group, origin, name)
    return _change_unless(
        _EXISTS, group, 'lvcreate', '--yes', '--snapshot', '--permission',
        *(('rw', '--setactivationskip', 'n') if writable else
          ('r', '--setactivationskip', 'y')),
        '-n', name, *_tagged(tags), '%s/%s' % (group, origin),
        timeout=timeout)


@privsep.entrypoint
def extend(group: str, name: str, size: int, timeout: float) -> None:
    """Make an LV larger; the new part of a thin LV reads as zeros.

    Allows: extends any LV of the driver's volume groups.

    A striped LV is extended with as many stripes as its last segment has.

    :param size: bytes; LVM rounds up to whole extents of each stripe
    """
    _require(group, name)
    _change(group, 'lvextend', '-L', '%db' % size, '%s/%s' % (group, name),
            timeout=timeout)


def _tagged(tags: list[str]) -> list[str]:
    return [word for tag in tags for word in ('--addtag', tag)]


@privsep.entrypoint
def activate(group: str, name: str, timeout: float) -> None:
    """Activate an LV, even if it is skipped at boot (-K).

    Allows: activates any LV of the driver's volume groups.
    """
    _require(group, name)
    process.run('lvchange', '-ay', '-K', '%s/%s' % (group, name),
                timeout=timeout, grace=GRACE)


@privsep.entrypoint
def deactivate(group: str, name: str, timeout: float) -> None:
    """Deactivate an LV that nothing has open.

    Allows: deactivates any LV of the driver's volume groups, unless it is in
    use.
    """
    _require(group, name)
    process.run('lvchange', '-an', '--config', _RETRY,
                '%s/%s' % (group, name), timeout=timeout, grace=GRACE)


@privsep.entrypoint
def add_tag(group: str, name: str, tag: str, timeout: float) -> None:
    """Add a tag to an LV, unless the LV has it already.

    Allows: tags any LV of the driver's volume groups with any tag; the restore
    at boot, and ``zero``, trust the driver's tags.
    """
    _require(group, name)
    _lvchange(group, name, '--addtag', tag, timeout=timeout)


@privsep.entrypoint
def remove_tag(group: str, name: str, tag: str, timeout: float) -> None:
    """Remove a tag of an LV.

    Allows: takes any tag off any LV of the driver's volume groups.
    """
    _require(group, name)
    _lvchange(group, name, '--deltag', tag, timeout=timeout)


@privsep.entrypoint
def retag(group: str, name: str, added: list[str], removed: list[str],
          timeout: float) -> None:
    """Change tags of an LV, all at once.

    Allows: changes any tags of any LV of the driver's volume groups.
    """
    _require(group, name)
    words = _tagged(added) + [
        word for tag in removed for word in ('--deltag', tag)]
    _lvchange(group, name, *words, timeout=timeout)


@privsep.entrypoint
def physical_volumes(group: str, timeout: float) -> list[str]:
    """Return the paths of a group's disks.

    Allows: lists the disks of the driver's volume groups.
    """
    _require(group)
    return process.run('vgs', '--noheadings', '-o', 'pv_name', group,
                       timeout=timeout).split()


@privsep.entrypoint
def extent_size(group: str, timeout: float) -> int:
    """Return the extent size of a group, in bytes.

    Allows: reads the extent size of a volume group of the driver's.
    """
    configuration.require_groups(group)
    return int(process.run(
        'vgs', '--noheadings', '--units', 'b', '--nosuffix', '-o',
        'vg_extent_size', group, timeout=timeout))


@privsep.entrypoint
def free_of_disks(group: str, timeout: float) -> list[int]:
    """Return the free space of each disk of a group, in bytes.

    Allows: reads the free space of the disks of the driver's volume groups.
    """
    _require(group)
    rows = process.run(
        'vgs', '--noheadings', '--units', 'b', '--nosuffix', '-o',
        'pv_name,pv_free', group, timeout=timeout).splitlines()
    return [int(row.split()[-1]) for row in rows
            if row.strip().startswith('/')]  # not "[unknown]"


@privsep.entrypoint
def group_tags(group: str, timeout: float) -> tuple[int, list[str]]:
    """Return the tags of a group itself.

    Allows: reads the tags of the driver's volume groups.

    :returns: number of changes of the group, as counted by LVM; its tags
    """
    _require(group)
    changes, *tags = process.run(
        'vgs', '--noheadings', '-o', 'vg_seqno,vg_tags', group,
        timeout=timeout).split()
    return int(changes), ','.join(tags).split(',')


@privsep.entrypoint
def retag_group(group: str, added: list[str], removed: list[str],
                timeout: float) -> None:
    """Change tags of a group, all at once.

    Allows: changes any tags of the driver's volume groups.
    """
    _require(group)
    _change(group, 'vgchange', *_tagged(added), *[
        word for tag in removed for word in ('--deltag', tag)], group,
        timeout=timeout)


@privsep.entrypoint
def rename(group: str, old: str, new: str, timeout: float) -> None:
    """Give an LV another name, even while it is in use.

    Allows: gives any LV of the driver's volume groups any other name.
    """
    _require(group, old, new)
    _change(group, 'lvrename', group, old, new, timeout=timeout)


@privsep.entrypoint
def protect(group: str, name: str, timeout: float) -> None:
    """Make an LV read-only.

    Allows: makes any LV of the driver's volume groups read-only.
    """
    _require(group, name)
    _lvchange(group, name, '--permission', 'r', timeout=timeout)


@privsep.entrypoint
def skip_activation(group: str, name: str, timeout: float) -> None:
    """Keep an LV inactive until :func:`activate`, also at boot.

    Allows: leaves any LV of the driver's volume groups inactive at a boot.
    """
    _require(group, name)
    _lvchange(group, name, '--setactivationskip', 'y', timeout=timeout)


@privsep.entrypoint
def zero(group: str, name: str, start: int, length: int, timeout: float
         ) -> None:
    """Zero a part of an LV that no user may see yet (blkdiscard(8)).

    Allows: zeroes any part of an LV of the driver's volume groups from the
    offset in its tag on; a caller of ``add_tag`` can set this tag.

    The LV's tag has the offset of the part without readers; see
    :func:`.names.shown`.

    :param start: bytes, a multiple of the sector size
    :param length: bytes, a multiple of the sector size
    :raises Foreign: if the tag does not allow it
    :raises Busy: if an earlier command has not ended
    """
    _require(group, name)
    path = names.lv_path(group, name)
    tags = process.run('lvs', '--noheadings', '-o', 'lv_tags',
                       '%s/%s' % (group, name), timeout=timeout)
    shown = names.facts(tags.strip().split(',')).get('shown', '')
    privsep.require(shown.isdecimal() and int(shown) <= start, path)
    _zero(path, path, start, length, timeout)


@privsep.entrypoint
def zero_decrypted(group: str, name: str, crypt: str, start: int, length: int,
                   timeout: float) -> None:
    """Zero a part of an encrypted volume that is not given out yet.

    Allows: zeroes any part of an open crypt device, if the tags of an LV named
    by the caller declare it new and of the same volume.

    :param crypt: name of the crypt device
    :param start: bytes, a multiple of the sector size
    :param length: bytes, a multiple of the sector size
    :raises Foreign: if the LV's tags do not allow it
    :raises WrongDevice: if the crypt device's path leads to another device
    :raises Busy: if an earlier command has not ended
    """
    _require(group, name)
    tags = process.run('lvs', '--noheadings', '-o', 'lv_tags',
                       '%s/%s' % (group, name), timeout=timeout)
    found = tags.strip().split(',')
    privsep.require(
        names.FRESH in found and crypt == names.crypt(
            names.facts(found).get('volume', '')), crypt)
    sysfs.check_mapped('/dev/mapper/' + crypt)
    # Without reading first: a sector of an authenticated device can't be read
    # before its first write.
    _zero(names.lv_path(group, name), '/dev/mapper/' + crypt, start, length,
          timeout)


def _zero(lv: str, path: str, start: int, length: int, timeout: float
          ) -> None:
    """Zero a part of a device, unless an earlier command is still running.

    A command that hangs in the kernel outlives its time limit. Later it would
    zero new data of a guest.

    :param lv: path of the LV, for the lock
    :param path: path of the device: the LV, or the crypt device above it
    :raises Busy: if an earlier command has not ended
    """
    with process.locked(lv, 'Zeroing of ' + lv, FORKED) as lock:
        # --force: without it the device is opened exclusively, and a handle
        # may be on it.
        process.run('blkdiscard', '--force', '--zeroout',
                    '--offset', str(start), '--length', str(length), path,
                    timeout=timeout, pass_fds=(lock,))


@privsep.entrypoint
def remove(group: str, name: str, timeout: float) -> bool:
    """Remove an LV that nothing has open.

    Allows: removes any unused LV of the driver's volume groups whose name
    contains an id, as in ``volume_name_template`` and the driver's own names.

    :returns: False if there is no such LV
    :raises Foreign: if the name is of another form than the driver's, or
        Cinder's volume_name_template's
    """
    _require(group, name)
    privsep.require(names.ids_in(name) or names.is_to_wipe(name), name)
    return _change_unless(
        'Failed to find logical volume', group, 'lvremove', '--force',
        '--config', _RETRY, '%s/%s' % (group, name), timeout=timeout)


@privsep.entrypoint
def resume(number: str, timeout: float) -> None:
    """Resume the device of a suspended LV.

    Allows: resumes any LV of the driver's volume groups.

    :param number: its ``major:minor``
    :raises Foreign: if the device is not an LV of a backend's group
    """
    privsep.require(lower.is_own_lv(number), number)
    major, minor = number.split(':')
    process.run('dmsetup', 'resume', '-j', major, '-m', minor,
                timeout=timeout)
