# SPDX-License-Identifier: Apache-2.0
"""LVM commands that Cinder's brick has no method for, and its reports.

Options: lvcreate(8), lvchange(8), lvextend(8), lvremove(8), lvmreport(7),
lvm.conf(5). Sizes are bytes, time limits seconds. Each raises CommandFailed
or CommandTimeout.

What changes anything is never killed: a snapshot that is killed halfway
leaves its origin suspended, with the guest above it, or a thin pool in which
nothing can be changed any more (measured with LVM 2.03.16). LVM puts SIGTERM
off for those moments.

What has changed outlives a power cut once the function returns, or the next
one of which it was told.
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
#: Seconds more for what was asked to end.
GRACE = 60
#: How much of a striped LV is on one disk before the next one follows.
_STRIPE = '64k'
#: lvm(8), "Valid names".
_NAME = re.compile('[A-Za-z0-9+_.][A-Za-z0-9+_.-]{,126}')
#: Seconds until a process that another thread has forked runs its command:
#: it has all locks of this process so long.
FORKED = 1
#: What LVM says of an LV that is to be created and is there.
_EXISTS = 'already exists in volume group'


def _require(group: str, *lvs: str) -> None:
    """Refuse other groups, and names that LVM could take for options.

    :raises ForeignGroup: if the group is no backend's
    :raises Foreign: if LVM takes no LV of such a name
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
    if flush:  # whoever has done it may not have come to this
        _flush(group, timeout)
    return changed


def _flush(group: str, timeout: float) -> None:
    """Make what LVM has changed outlive a power cut.

    LVM writes a group's metadata, and then the header that names it, past
    the page cache, but does not flush the disk's own (measured with LVM
    2.03.16: an LV created seconds earlier was gone, a removed one was back;
    with the header alone on the disk the whole group was unreadable).
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
    """All LVs of some groups, and these: LVM's JSON, sizes in bytes.

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
    """A thin pool's transaction id, by LVM's metadata and by the kernel.

    Allows: reads the transaction id of a thin pool of the driver's volume
    groups.

    :returns: None for the kernel's if the pool is not active
    """
    _require(group, pool)
    of_lvm = int(process.run(
        'lvs', '--noheadings', '-o', 'transaction_id',
        '%s/%s' % (group, pool), timeout=timeout))
    try:
        status = process.run('dmsetup', 'status', names.mapped(
            group, pool, 'tpool'), timeout=timeout).split()
    except exceptions.CommandFailed:
        return of_lvm, None
    # A pool that has failed says "Fail" in place of the number.
    return of_lvm, int(status[3]) if status[3:4] and (
        status[3].isdigit()) else None


@privsep.entrypoint
def free(groups: list[str], timeout: float) -> str:
    """Size and free space of some groups: LVM's JSON, in bytes.

    Allows: reads the free space of the driver's volume groups.
    """
    configuration.require_groups(*groups)
    return process.run(
        'vgs', *_JSON, '-o', 'vg_name,vg_size,vg_free,vg_missing_pv_count',
        *groups, timeout=timeout)


@privsep.entrypoint
def archive_space(timeout: float) -> tuple[str, int]:
    """Where LVM archives metadata before it changes them, and what is free.

    Allows: reads LVM's configuration, and the free space of its archive.

    :returns: directory, bytes; ('', 0) if it archives nothing
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
    """Create a thin LV in a pool; old signatures are not asked for.

    Allows: creates a thin LV of any name and tags in one of the driver's
    volume groups.

    :param size: bytes; LVM rounds up to whole extents
    :returns: False if there is such an LV
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
    """Create a linear or striped LV, with whatever its extents had before.

    Allows: creates an LV of any name and tags in one of the driver's volume
    groups. It has what its extents had before.

    :param size: bytes; LVM rounds up to whole extents, of each stripe
    :param stripes: over how many disks
    :param flush: False if a change of the group follows that flushes this
        one, too: LVM writes all of a group at once
    :returns: False if there is such an LV
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
    """Take a snapshot of a thin LV: another thin LV, as large.

    Allows: takes a snapshot of any name and tags of any thin LV of the
    driver's volume groups.

    It gets none of the origin's tags, and lives on without it. While it is
    taken LVM suspends the origin for a moment; what was written past the page
    cache before is in it.

    :param writable: active then, and after a reboot; one that is not is
        read-only, and inactive until :func:`activate`
    :returns: False if there is such an LV, of whatever
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
    """Make an LV larger; what a thin one gets reads as zeros.

    Allows: extends any LV of the driver's volume groups.

    A striped one gets as many stripes as it ends with.

    :param size: bytes; LVM rounds up to whole extents, of each stripe
    """
    _require(group, name)
    _change(group, 'lvextend', '-L', '%db' % size, '%s/%s' % (group, name),
            timeout=timeout)


def _tagged(tags: list[str]) -> list[str]:
    return [word for tag in tags for word in ('--addtag', tag)]


@privsep.entrypoint
def activate(group: str, name: str, timeout: float) -> None:
    """Activate an LV, one that is skipped at boot (-K), too.

    Allows: activates any LV of the driver's volume groups.
    """
    _require(group, name)
    process.run('lvchange', '-ay', '-K', '%s/%s' % (group, name),
                timeout=timeout, grace=GRACE)


@privsep.entrypoint
def deactivate(group: str, name: str, timeout: float) -> None:
    """Deactivate an LV that nothing has open.

    Allows: deactivates any LV of the driver's volume groups that nothing uses.
    """
    _require(group, name)
    process.run('lvchange', '-an', '--config', _RETRY,
                '%s/%s' % (group, name), timeout=timeout, grace=GRACE)


@privsep.entrypoint
def add_tag(group: str, name: str, tag: str, timeout: float) -> None:
    """Tag an LV; one that has the tag keeps it.

    Allows: tags any LV of the driver's volume groups with any tag: a boot, and
    ``zero``, believe the driver's tags.
    """
    _require(group, name)
    _lvchange(group, name, '--addtag', tag, timeout=timeout)


@privsep.entrypoint
def remove_tag(group: str, name: str, tag: str, timeout: float) -> None:
    """Take a tag off an LV.

    Allows: takes any tag off any LV of the driver's volume groups.
    """
    _require(group, name)
    _lvchange(group, name, '--deltag', tag, timeout=timeout)


@privsep.entrypoint
def retag(group: str, name: str, added: list[str], removed: list[str],
          timeout: float) -> None:
    """Change the tags of an LV, all at once.

    Allows: changes any tags of any LV of the driver's volume groups.
    """
    _require(group, name)
    words = _tagged(added) + [
        word for tag in removed for word in ('--deltag', tag)]
    _lvchange(group, name, *words, timeout=timeout)


@privsep.entrypoint
def physical_volumes(group: str, timeout: float) -> list[str]:
    """The paths of the disks that a group is on.

    Allows: lists the disks of the driver's volume groups.
    """
    _require(group)
    return process.run('vgs', '--noheadings', '-o', 'pv_name', group,
                       timeout=timeout).split()


@privsep.entrypoint
def extent_size(group: str, timeout: float) -> int:
    """The size of the pieces that a group is allocated in, in bytes.

    Allows: reads the extent size of a volume group of the driver's.
    """
    configuration.require_groups(group)
    return int(process.run(
        'vgs', '--noheadings', '--units', 'b', '--nosuffix', '-o',
        'vg_extent_size', group, timeout=timeout))


@privsep.entrypoint
def free_of_disks(group: str, timeout: float) -> list[int]:
    """What is free of each disk that a group is on, in bytes.

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
    """The tags of a group itself.

    Allows: reads the tags of the driver's volume groups.

    :returns: how often the group was changed, as LVM counts it; its tags
    """
    _require(group)
    changes, *tags = process.run(
        'vgs', '--noheadings', '-o', 'vg_seqno,vg_tags', group,
        timeout=timeout).split()
    return int(changes), ','.join(tags).split(',')


@privsep.entrypoint
def retag_group(group: str, added: list[str], removed: list[str],
                timeout: float) -> None:
    """Change the tags of a group, all at once.

    Allows: changes any tags of the driver's volume groups.
    """
    _require(group)
    _change(group, 'vgchange', *_tagged(added), *[
        word for tag in removed for word in ('--deltag', tag)], group,
        timeout=timeout)


@privsep.entrypoint
def rename(group: str, old: str, new: str, timeout: float) -> None:
    """Give an LV another name, also while it is in use.

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
    """Leave an LV inactive until :func:`activate`, at boot, too.

    Allows: leaves any LV of the driver's volume groups inactive at a boot.
    """
    _require(group, name)
    _lvchange(group, name, '--setactivationskip', 'y', timeout=timeout)


@privsep.entrypoint
def zero(group: str, name: str, start: int, length: int, timeout: float
         ) -> None:
    """Zero a part of an LV that nobody may see yet (blkdiscard(8)).

    Allows: zeroes a part of an LV of the driver's volume groups that its tag
    says nobody has seen; who may call ``add_tag`` can set that tag.

    Its tag says where that begins; see :func:`.names.shown`.

    :param start: bytes, a multiple of the sector size, as ``length``
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
    """Zero a part of an encrypted volume that nobody was given yet.

    Allows: zeroes a part of an open crypt device, if the tags of the LV that
    the caller names say that it is new and this volume's.

    The tag of its LV says that.

    :param crypt: the device that decrypts it
    :param start: bytes, a multiple of the sector size, as ``length``
    :raises WrongDevice: if its path leads to another device
    """
    _require(group, name)
    tags = process.run('lvs', '--noheadings', '-o', 'lv_tags',
                       '%s/%s' % (group, name), timeout=timeout)
    found = tags.strip().split(',')
    privsep.require(
        names.FRESH in found and crypt == names.crypt(
            names.facts(found).get('volume', '')), crypt)
    sysfs.check_mapped('/dev/mapper/' + crypt)
    # Without a look at what is there: of what is authenticated no sector can
    # be read before it is written.
    _zero(names.lv_path(group, name), '/dev/mapper/' + crypt, start, length,
          timeout)


def _zero(lv: str, path: str, start: int, length: int, timeout: float
          ) -> None:
    """Zero a part of a device, unless an earlier command is still at it.

    A command that hangs in the kernel outlives its time limit. Later it would
    zero what a guest has written since.

    :param lv: path of the LV
    :param path: of the device: the LV, or what is above it
    :raises Busy: if an earlier one has not ended
    """
    with process.locked(lv, 'Zeroing of ' + lv, FORKED) as lock:
        # --force: the handle may be on it; else it is opened exclusively.
        process.run('blkdiscard', '--force', '--zeroout',
                    '--offset', str(start), '--length', str(length), path,
                    timeout=timeout, pass_fds=(lock,))


@privsep.entrypoint
def remove(group: str, name: str, timeout: float) -> bool:
    """Remove an LV that nothing has open.

    Allows: removes any LV of the driver's volume groups whose name has an id,
    as ``volume_name_template`` and the driver give it, and that nothing uses.

    :returns: False if there is no such LV
    :raises Foreign: if the name is none that the driver, or Cinder's
        volume_name_template, gives
    """
    _require(group, name)
    privsep.require(names.ids_in(name) or names.is_to_wipe(name), name)
    return _change_unless(
        'Failed to find logical volume', group, 'lvremove', '--force',
        '--config', _RETRY, '%s/%s' % (group, name), timeout=timeout)


@privsep.entrypoint
def resume(number: str, timeout: float) -> None:
    """Resume the device of an LV that something has left suspended.

    Allows: resumes any LV of the driver's volume groups.

    :param number: its ``major:minor``
    :raises Foreign: if it is no LV of a backend's group
    """
    privsep.require(lower.is_own_lv(number), number)
    major, minor = number.split(':')
    process.run('dmsetup', 'resume', '-j', major, '-m', minor,
                timeout=timeout)
