# SPDX-License-Identifier: Apache-2.0
"""LVM commands that Cinder's brick has no method for, and its reports.

Options: lvcreate(8), lvchange(8), lvremove(8), lvmreport(7), lvm.conf(5).
Sizes are bytes, time limits seconds. Each raises CommandFailed or
CommandTimeout.
"""

from cinder_localclone import names
from cinder_localclone import privileged
from cinder_localclone.privileged import process

_RETRY = 'activation { retry_deactivation = 1 }'
_JSON = ('--reportformat', 'json', '--units', 'b', '--nosuffix')


@privileged.entrypoint
def volumes(groups: list[str], timeout: float) -> str:
    """All LVs of some groups: LVM's JSON, sizes in bytes."""
    return process.run(
        'lvs', *_JSON, '-o', 'vg_name,lv_name,lv_size,lv_attr,lv_tags,'
        'data_percent,metadata_percent,lv_kernel_major,lv_kernel_minor,zero',
        *groups, timeout=timeout)


@privileged.entrypoint
def free(groups: list[str], timeout: float) -> str:
    """Size and free space of some groups: LVM's JSON, in bytes."""
    return process.run('vgs', *_JSON, '-o', 'vg_name,vg_size,vg_free', *groups,
                       timeout=timeout)


@privileged.entrypoint
def create_thin(group: str, pool: str, name: str, size: int,
                tags: list[str], timeout: float) -> bool:
    """Create a thin LV in a pool; old signatures are not asked for.

    :param size: bytes; LVM rounds up to whole extents
    :returns: False if there is such an LV
    """
    return process.run_unless(
        'already exists in volume group', 'lvcreate', '--yes',
        '--wipesignatures', 'n', '-V', '%db' % size, '-T',
        '%s/%s' % (group, pool), '-n', name, *_tagged(tags), timeout=timeout)


@privileged.entrypoint
def create_thick(group: str, name: str, size: int, tags: list[str],
                 timeout: float) -> bool:
    """Create a linear LV, with whatever its extents had before.

    :param size: bytes; LVM rounds up to whole extents
    :returns: False if there is such an LV
    """
    return process.run_unless(
        'already exists in volume group', 'lvcreate', '--yes',
        '--wipesignatures', 'n', '--zero', 'n', '-L', '%db' % size, '-n',
        name, *_tagged(tags), group, timeout=timeout)


@privileged.entrypoint
def flush_pvs(groups: list[str], timeout: float) -> None:
    """Make what LVM has changed outlive a power cut.

    LVM writes its metadata past the page cache but does not flush the
    disk's own (measured: an LV created seconds earlier was gone, a removed
    one was back).
    """
    for path in process.run('vgs', '--noheadings', '-o', 'pv_name', *groups,
                            timeout=timeout).split():
        if path.startswith('/'):  # not "[unknown]"
            process.run('sync', path, timeout=timeout)


def _tagged(tags: list[str]) -> list[str]:
    return [word for tag in tags for word in ('--addtag', tag)]


@privileged.entrypoint
def activate(group: str, name: str, timeout: float) -> None:
    """Activate an LV, one that is skipped at boot (-K), too."""
    process.run('lvchange', '-ay', '-K', '%s/%s' % (group, name),
                timeout=timeout)


@privileged.entrypoint
def add_tag(group: str, name: str, tag: str, timeout: float) -> None:
    """Tag an LV; one that has the tag keeps it."""
    process.run('lvchange', '--addtag', tag, '%s/%s' % (group, name),
                timeout=timeout)


@privileged.entrypoint
def remove_tag(group: str, name: str, tag: str, timeout: float) -> None:
    """Take a tag from an LV."""
    process.run('lvchange', '--deltag', tag, '%s/%s' % (group, name),
                timeout=timeout)


@privileged.entrypoint
def extend(group: str, name: str, size: int, timeout: float) -> None:
    """Extend an LV, active or not.

    :param size: bytes; LVM rounds up to whole extents
    """
    process.run('lvextend', '-L', '%db' % size, '%s/%s' % (group, name),
                timeout=timeout)


@privileged.entrypoint
def zero(group: str, name: str, start: int, length: int, timeout: float
         ) -> None:
    """Zero a part of an LV that nobody may see yet (blkdiscard(8)).

    Its tag says where that begins; see :func:`.names.shown`.

    :param start: bytes, a multiple of the sector size, as ``length``
    """
    path = names.lv_path(group, name)
    tags = process.run('lvs', '--noheadings', '-o', 'lv_tags',
                       '%s/%s' % (group, name), timeout=timeout)
    shown = names.facts(tags.strip().split(',')).get('shown')
    privileged.require(shown and int(shown) <= start, path)
    # --force: the handle may be on it; else it is opened exclusively.
    process.run('blkdiscard', '--force', '--zeroout', '--offset', str(start),
                '--length', str(length), path, timeout=timeout)


@privileged.entrypoint
def remove(group: str, name: str, timeout: float) -> bool:
    """Remove an LV that nothing has open.

    :returns: False if there is no such LV
    """
    return process.run_unless(
        'Failed to find logical volume', 'lvremove', '--force', '--config',
        _RETRY, '%s/%s' % (group, name), timeout=timeout)
