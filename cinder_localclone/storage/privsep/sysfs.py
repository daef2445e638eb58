# SPDX-License-Identifier: Apache-2.0
"""Entries of sysfs (the kernel's Documentation/ABI)."""

import os
import stat

from cinder_localclone.core import exceptions

ROOT = '/sys'


def of_disk(path: str, *entry: str) -> str:
    """Return the path of a block device's entry in sysfs.

    :param path: path of the device, or of a link to it
    :param entry: for example ``'queue', 'discard_max_bytes'``
    """
    name = os.path.basename(os.path.realpath(path))
    return os.path.join(ROOT, 'block', name, *entry)


def iscsi_session(*entry: str) -> str:
    """Return the path of an entry in the directory of all iSCSI sessions."""
    return os.path.join(ROOT, 'class', 'iscsi_session', *entry)


def number(path: str) -> str:
    """Return the ``major:minor`` of the block device at a path, or ''."""
    try:
        found = os.stat(path)
    except OSError:
        return ''
    if not stat.S_ISBLK(found.st_mode):
        return ''
    return '%d:%d' % (os.major(found.st_rdev), os.minor(found.st_rdev))


def mapped_name(path: str) -> str:
    """Return the name of the device-mapper device at a path, or ''."""
    return name_of(number(path))


def check_mapped(path: str) -> None:
    """Check that a /dev/mapper path leads to the device of its name.

    :raises WrongDevice: if it leads elsewhere
    """
    found = mapped_name(path)
    if found != os.path.basename(path):
        raise exceptions.WrongDevice(path=path, found=found or 'nothing')


def check_opened(descriptor: int, path: str) -> None:
    """Check that an open device has the name in its /dev/mapper path.

    :raises WrongDevice: if it has another name
    """
    found = os.fstat(descriptor)
    name = name_of('%d:%d' % (
        os.major(found.st_rdev), os.minor(found.st_rdev)))
    if not stat.S_ISBLK(found.st_mode) or name != os.path.basename(path):
        raise exceptions.WrongDevice(path=path, found=name or 'nothing')


def name_of(number: str) -> str:
    """Return the name of the device-mapper device ``major:minor``, or ''."""
    return _text('dev', 'block', number, 'dm', 'name')


def uuid_of(number: str) -> str:
    """Return the UUID of the device-mapper device ``major:minor``, or ''."""
    return _text('dev', 'block', number, 'dm', 'uuid')


def of_number(number: str) -> str:
    """Return the path of the entry of the block device ``major:minor``."""
    return os.path.join(ROOT, 'dev', 'block', number)


def target_of_session(session: str) -> str:
    """Return the name of the target of an iSCSI session, or ''."""
    return _text('class', 'iscsi_session', session, 'targetname')


def is_counted(number: str) -> bool:
    """Return whether the kernel counts the I/O of device ``major:minor``."""
    return _text('dev', 'block', number, 'queue', 'iostats') == '1'


def counters(number: str) -> str:
    """Return a device's I/O counters (Documentation/block/stat.rst), or ''."""
    return _text('dev', 'block', number, 'stat')


def logical_block(number: str) -> int:
    """Return the logical block size of device ``major:minor``, in bytes.

    A partition has its disk's. 0 if the device does not exist.
    """
    found = [_text('dev', 'block', number, *place, 'logical_block_size')
             for place in (('queue',), ('..', 'queue'))]
    return int(next(filter(None, found), 0))


def mapped_device(name: str) -> str:
    """Return the kernel's name (``dm-N``) of a device-mapper device, or ''."""
    for entry in os.listdir(os.path.join(ROOT, 'block')):
        if _text('block', entry, 'dm', 'name') == name:
            return entry
    return ''


def is_readonly(path: str) -> bool:
    """Return whether the block device at a path is read-only."""
    return _text('block', os.path.basename(os.path.realpath(path)),
                 'ro') == '1'


def _text(*entry: str) -> str:
    try:
        with open(os.path.join(ROOT, *entry)) as file:
            return file.read().strip()
    except OSError:
        return ''  # no such entry (any more)
