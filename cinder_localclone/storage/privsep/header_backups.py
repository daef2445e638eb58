# SPDX-License-Identifier: Apache-2.0
"""Backups of LUKS headers, in files readable by root alone.

They are in the directory ``localclone_header_backup_dir`` of a backend, a
folder for each volume; see :mod:`.folders`. For errors and time limits see
:mod:`.cryptsetup`; OSError is raised if the directory can't be used.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import itertools
import os
import re
import shutil

from oslo_utils import units

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import folders
from cinder_localclone.storage.privsep import header_lock
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs

_PARTIAL = '.partial'


@contextlib.contextmanager
def _all_of(backend: str) -> Iterator[folders.Folder]:
    with folders.configured(
            backend, configuration.HEADER_BACKUPS) as directory:
        yield directory


@contextlib.contextmanager
def _of_volume(backend: str, volume_id: str) -> Iterator[folders.Folder]:
    privsep.require(names.is_id(volume_id), volume_id)
    with _all_of(backend) as directory:
        with folders.inside(directory, volume_id) as folder:
            yield folder


@contextlib.contextmanager
def _made_for(backend: str, volume_id: str) -> Iterator[folders.Folder]:
    with _all_of(backend) as directory:
        with folders.inside(directory, volume_id, make=True) as folder:
            yield folder
            directory.flush()


@contextlib.contextmanager
def opened(backend: str, volume_id: str, name: str
           ) -> Iterator[tuple[str, int]]:
    """Open a backup for reading.

    :param name: name of the file
    :returns: its path, for messages; a descriptor
    """
    _require_name(name)
    with _of_volume(backend, volume_id) as folder:
        with folder.file(name, 'rb') as file:
            yield os.path.join(folder.path, name), file.fileno()


def _require_name(name: str) -> str:
    privsep.require(names.is_header_backup(name), name)
    return name


def _number(name: str) -> int:
    found = re.fullmatch(names.UUID + r'-(\d{1,9})', name)
    return int(found.group(1)) if found else 0


# -- write

@privsep.entrypoint
def make(path: str, backend: str, name: str, timeout: float) -> None:
    """Copy the header of a volume into a file, so it outlives a power cut.

    Allows: writes the header of a volume's own handle into the folder of that
    volume in the configured directory.

    :param backend: section of the backend
    :param name: name of the file; an existing backup with this name is
        replaced
    """
    volume_id = cryptsetup.require_handle(path)
    _require_name(name)
    with _made_for(backend, volume_id) as folder:
        _copy(path, folder, name, timeout)


def _copy(path: str, folder: folders.Folder, name: str, timeout: float
          ) -> None:
    """Copy a header.

    A hung writer of an earlier command may still have the lock. Older backups
    must not be removed for a copy of a header which is about to be
    overwritten. The volume's own lock keeps other writers out. The header's
    lock is free again while the backup is written: otherwise a re-encryption,
    and the guest's I/O with it, would wait for it.

    :raises HeaderInUse: if there is such a writer
    """
    with header_lock.held(path, timeout):
        pass
    with _written(folder, name) as partial:
        cryptsetup.run(path, 'luksHeaderBackup', cryptsetup.LOOK, path,
                       '--header-backup-file', partial, timeout=timeout,
                       pass_fds=(folder.descriptor,))


@contextlib.contextmanager
def _written(folder: folders.Folder, name: str) -> Iterator[str]:
    """Yield the path of a new file; keep the file once it is written."""
    partial = _require_name(name) + _PARTIAL
    with contextlib.suppress(FileNotFoundError):
        _shred(folder, partial)  # a file left by a power cut has keys, too
    yield folder.through(partial)
    with folder.file(partial, 'rb') as written:
        os.fchmod(written.fileno(), 0o600)
        os.fsync(written.fileno())
    folder.rename(partial, name)
    folder.flush()


@privsep.entrypoint
def add(path: str, backend: str, timeout: float) -> str:
    """Copy the header of a volume into a new file, beside older backups.

    Allows: writes the header of a volume's own handle into a new file in the
    folder of the volume in the configured directory.

    :param backend: section of the backend
    :returns: the name of the file
    """
    volume_id = cryptsetup.require_handle(path)
    with _made_for(backend, volume_id) as folder:
        name = names.header_backup(volume_id, str(
            1 + max(map(_number, folder.names()), default=0)))
        _copy(path, folder, name, timeout)
    return name


@privsep.entrypoint
def keep_only(backend: str, volume_id: str, name: str) -> None:
    """Overwrite and remove all backups of a volume's header except one.

    Allows: overwrites and removes any backups of any volume in the configured
    directory, except an existing backup that the caller names.

    :param backend: section of the backend
    :param name: name of the file to keep
    :raises FileNotFoundError: if there is no such file; then nothing is
        removed
    """
    with opened(backend, volume_id, name), _of_volume(
            backend, volume_id) as folder:
        for each in folder.names():
            if names.is_header_backup(each) and each != name:
                _shred(folder, each)


@privsep.entrypoint
def remove(backend: str, volume_id: str, name: str) -> None:
    """Overwrite and remove a backup of a volume's header.

    Allows: overwrites and removes any backup of any volume in the configured
    directory.

    :param backend: section of the backend
    :param name: name of the file
    """
    _require_name(name)
    with _of_volume(backend, volume_id) as folder:
        _shred(folder, name)
        folder.flush()


@privsep.entrypoint
def save_beginning(path: str, backend: str, size: int, timeout: float
                   ) -> None:
    """Copy the beginning of a volume, whatever its contents, to a new file.

    Allows: writes the beginning of a volume, of the length that the caller
    names, into the folder of that volume in the configured directory.

    :param backend: section of the backend
    :param size: bytes; a multiple of 1 MiB
    """
    volume_id = cryptsetup.require_handle(path)
    with _made_for(backend, volume_id) as folder:
        name = next(each for each in (
            names.header_backup(volume_id, 'before-restore-%d' % number)
            for number in itertools.count(1)) if each not in folder.names())
        with _written(folder, name) as partial:
            folder.file(name + _PARTIAL, 'xb').close()  # for root alone
            process.run(
                'dd', 'if=' + path, 'of=' + partial, 'bs=1M', 'iflag=direct',
                'count=%d' % (size // units.Mi), 'status=none',
                timeout=timeout,
                pass_fds=(folder.descriptor,))


@privsep.entrypoint
def restore(path: str, backend: str, name: str, drop: Sequence[str],
            timeout: float) -> None:
    """Write the header in a backup over the header of its volume.

    Allows: overwrites the header of a volume with any backup in the folder of
    the same volume, without the key slots that the caller names.

    All changes are made to a copy in memory: the volume never has an unwanted
    key slot or another UUID. An interrupted restore needs no cleanup and can
    be repeated. The volume may have any data in place of its header, even a
    header over which cryptsetup would refuse to write another. :mod:`.headers`
    has made the checks before.

    :param backend: section of the backend
    :param name: name of the file
    :param drop: numbers of key slots to leave out
    :param timeout: limit of each command, seconds
    :raises HeaderDamaged: if the backup can't be read
    :raises CommandFailed: if the backup is incomplete
    """
    volume_id = cryptsetup.require_handle(path)
    for slot in drop:
        cryptsetup.require_number(slot)
    with opened(backend, volume_id, name) as (shown, descriptor), \
            _in_memory(descriptor) as copy:
        device = '/dev/fd/%d' % copy
        for argv in (*(('luksKillSlot', '--batch-mode', device, slot)
                       for slot in drop),
                     ('luksUUID', '--batch-mode', '--uuid', volume_id,
                      device)):
            cryptsetup.run(shown, *argv, timeout=timeout, pass_fds=(copy,))
        size = _header_size(shown, copy, timeout)
        with header_lock.held(path, timeout) as volume:
            sysfs.check_opened(volume.device, path)
            process.run(
                'dd', 'if=' + device, 'of=/dev/fd/%d' % volume.device,
                'bs=%d' % size, 'count=1', 'iflag=fullblock', 'oflag=direct',
                'conv=nocreat,notrunc,fsync', 'status=none', timeout=timeout,
                grace=cryptsetup.GRACE, pass_fds=(copy, *volume))


def _header_size(shown: str, copy: int, timeout: float) -> int:
    """Return the length of the header in a copy; data come after it.

    :returns: bytes
    :raises HeaderDamaged: if the header can't be read
    """
    try:
        return luks_header.parse(cryptsetup.run(
            shown, 'luksDump', '--dump-json-metadata', cryptsetup.LOOK,
            '/dev/fd/%d' % copy, timeout=timeout,
            pass_fds=(copy,))).data_offset
    except ValueError as exc:
        raise encryption_exceptions.HeaderDamaged(path=shown, reason=exc)


@contextlib.contextmanager
def _in_memory(descriptor: int) -> Iterator[int]:
    """Copy a backup to private memory, and yield a descriptor of the copy."""
    with open(descriptor, 'rb', closefd=False) as backup, os.fdopen(
            os.memfd_create('localclone-header'), 'r+b') as copy:
        shutil.copyfileobj(backup, copy)
        copy.flush()
        yield copy.fileno()


@privsep.entrypoint
def drop(backend: str, volume_id: str) -> None:
    """Overwrite and remove all backups of a volume's header.

    Allows: overwrites and removes the backups of any volume in the configured
    directory.

    :param backend: section of the backend
    """
    with contextlib.suppress(FileNotFoundError):
        with _of_volume(backend, volume_id) as folder:
            for each in folder.names():
                _shred(folder, _require_name(each))
            folder.flush()
        with _all_of(backend) as directory:
            os.rmdir(volume_id, dir_fd=directory.descriptor)


def _shred(folder: folders.Folder, name: str) -> None:
    """Overwrite and remove a file.

    A copy-on-write file system keeps the old data in spite of this.
    """
    with folder.file(name, 'r+b') as file:
        file.write(bytes(os.fstat(file.fileno()).st_size))
        file.flush()
        os.fsync(file.fileno())
    folder.unlink(name)


# -- read

@privsep.entrypoint
def listed(backend: str, volume_id: str) -> list[str]:
    """Return the names of the backups of a volume's header, oldest first.

    Allows: lists the backups of any volume in the configured directory.

    :param backend: section of the backend
    """
    with contextlib.suppress(FileNotFoundError):
        with _of_volume(backend, volume_id) as folder:
            return sorted(filter(_number, folder.names()), key=_number)
    return []


@privsep.entrypoint
def volumes(backend: str) -> list[str]:
    """Return the ids of the volumes with header backups.

    Allows: lists the volumes that have backups in the configured directory.

    :param backend: section of the backend
    """
    with contextlib.suppress(FileNotFoundError):
        with _all_of(backend) as directory:
            return [each for each in directory.names()
                    if names.is_id(each) and _has_any(directory, each)]
    return []


def _has_any(directory: folders.Folder, volume_id: str) -> bool:
    try:
        with folders.inside(directory, volume_id) as folder:
            return any('.' not in each for each in folder.names())
    except OSError:
        return False  # for example a file


@privsep.entrypoint
def dump(backend: str, volume_id: str, name: str, timeout: float) -> str:
    """Return the metadata of a backup as JSON, without keys.

    Allows: reads the metadata of any backup in the configured directory; no
    keys.

    :param backend: section of the backend
    :param name: name of the file
    :raises HeaderDamaged: if the backup can't be read
    """
    return _read_with_cryptsetup(backend, volume_id, name, 'luksDump',
                                 '--dump-json-metadata', timeout=timeout)


def _read_with_cryptsetup(backend: str, volume_id: str, name: str, *argv: str,
                          timeout: float) -> str:
    with opened(backend, volume_id, name) as (shown, descriptor):
        return cryptsetup.run(
            shown, *argv, cryptsetup.LOOK, '/dev/fd/%d' % descriptor,
            timeout=timeout, pass_fds=(descriptor,))
