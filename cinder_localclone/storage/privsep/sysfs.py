# SPDX-License-Identifier: Apache-2.0
"""Entries of sysfs (the kernel's Documentation/ABI).

Any process may read sysfs, so these functions work inside and outside the
privileged daemon. In parameters, ``number`` is "major:minor" of a device.
"""

import os
import stat

from cinder_localclone.core import exceptions

ROOT = '/sys'


def disk_entry(path: str, *entry: str) -> str:
    """Return the path of an entry below a disk's directory in sysfs.

    Not for partitions: they have no directory in /sys/block.

    :param path: path of the disk's node in /dev, or of a link to it
    :param entry: for example ``'queue', 'discard_max_bytes'``
    """
    name = os.path.basename(os.path.realpath(path))
    return os.path.join(ROOT, 'block', name, *entry)


def iscsi_session(*entry: str) -> str:
    """Return the path of an entry below /sys/class/iscsi_session.

    :param entry: for example ``'session1', 'targetname'``; without it, the
        directory with an entry for each session
    """
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
    """Check that /dev/mapper/NAME is the device-mapper device NAME.

    :raises WrongDevice: if the path leads to another device, or to none
    """
    found = mapped_name(path)
    if found != os.path.basename(path):
        raise exceptions.WrongDevice(path=path, found=found or 'nothing')


def check_opened(descriptor: int, path: str) -> None:
    """Check that a device opened at /dev/mapper/NAME is the device NAME.

    Unlike :func:`check_mapped`, it sees the device that is really open, also
    if the path was changed meanwhile.

    :raises WrongDevice: if it is another device
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


def device_directory(number: str) -> str:
    """Return the path of the directory of a block device in sysfs."""
    return os.path.join(ROOT, 'dev', 'block', number)


def target_of_session(session: str) -> str:
    """Return the iSCSI name of the target of a session, or ''.

    :param session: name of its directory, such as "session1"
    """
    return _text('class', 'iscsi_session', session, 'targetname')


def is_counted(number: str) -> bool:
    """Return whether the kernel keeps I/O counters of a disk.

    If not, :func:`counters` does not change. False for a partition.
    """
    return _text('dev', 'block', number, 'queue', 'iostats') == '1'


def counters(number: str) -> str:
    """Return a device's I/O counters (Documentation/block/stat.rst), or ''."""
    return _text('dev', 'block', number, 'stat')


def logical_block(number: str) -> int:
    """Return the logical block size of device ``major:minor``, in bytes.

    :returns: for a partition the size of its disk; 0 if there is no device
    """
    found = [_text('dev', 'block', number, *place, 'logical_block_size')
             for place in (('queue',), ('..', 'queue'))]
    return int(next(filter(None, found), 0))


def mapped_device(name: str) -> str:
    """Return the kernel's name of a device-mapper device, or ''.

    :param name: its name in /dev/mapper
    :returns: ``dm-N``
    """
    for entry in os.listdir(os.path.join(ROOT, 'block')):
        if _text('block', entry, 'dm', 'name') == name:
            return entry
    return ''


def is_readonly(path: str) -> bool:
    """Return whether the disk at a path is read-only.

    False for a partition, or if there is no disk.
    """
    return _text('block', os.path.basename(os.path.realpath(path)),
                 'ro') == '1'


def _text(*entry: str) -> str:
    try:
        with open(os.path.join(ROOT, *entry)) as file:
            return file.read().strip()
    except OSError:
        return ''  # no such entry (any more)
