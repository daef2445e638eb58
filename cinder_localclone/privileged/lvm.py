# SPDX-License-Identifier: Apache-2.0
"""LVM commands that Cinder's brick has no method for, and its reports."""

from cinder_localclone import privileged
from cinder_localclone.privileged import process

_RETRY = 'activation { retry_deactivation = 1 }'


_JSON = ('--reportformat', 'json', '--units', 'b', '--nosuffix')


@privileged.default.entrypoint
def volumes(groups: list[str], timeout: float) -> str:
    """All LVs of some groups: LVM's JSON, sizes in bytes."""
    return process.run(
        'lvs', *_JSON, '-o', 'vg_name,lv_name,lv_size,lv_attr,lv_tags,'
        'data_percent,metadata_percent,lv_kernel_major,lv_kernel_minor,zero',
        *groups, timeout=timeout)


@privileged.default.entrypoint
def free(groups: list[str], timeout: float) -> str:
    """Size and free room of some groups: LVM's JSON, in bytes."""
    return process.run('vgs', *_JSON, '-o', 'vg_name,vg_size,vg_free', *groups,
                       timeout=timeout)


@privileged.default.entrypoint
def create_thin(group: str, pool: str, name: str, size: int,
                tags: list[str], timeout: float) -> bool:
    """:param size: bytes

    :returns: False if there is such an LV
    """
    return process.run_unless(
        'already exists in volume group', 'lvcreate', '--yes',
        '--wipesignatures', 'n', '-V', '%db' % size, '-T',
        '%s/%s' % (group, pool), '-n', name, *_tagged(tags), timeout=timeout)


@privileged.default.entrypoint
def create_thick(group: str, name: str, size: int, tags: list[str],
                 timeout: float) -> bool:
    """:param size: bytes; LVM rounds up to whole extents

    :returns: False if there is such an LV
    """
    return process.run_unless(
        'already exists in volume group', 'lvcreate', '--yes',
        '--wipesignatures', 'n', '--zero', 'n', '-L', '%db' % size, '-n',
        name, *_tagged(tags), group, timeout=timeout)


@privileged.default.entrypoint
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


def _tagged(tags):
    return [word for tag in tags for word in ('--addtag', tag)]


@privileged.default.entrypoint
def activate(group: str, name: str, timeout: float) -> None:
    process.run('lvchange', '-ay', '-K', '%s/%s' % (group, name),
                timeout=timeout)


@privileged.default.entrypoint
def add_tag(group: str, name: str, tag: str, timeout: float) -> None:
    process.run('lvchange', '--addtag', tag, '%s/%s' % (group, name),
                timeout=timeout)


@privileged.default.entrypoint
def remove(group: str, name: str, timeout: float) -> bool:
    """Returns False if there is no such LV."""
    return process.run_unless(
        'Failed to find logical volume', 'lvremove', '--force', '--config',
        _RETRY, '%s/%s' % (group, name), timeout=timeout)
