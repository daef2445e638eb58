# SPDX-License-Identifier: Apache-2.0
"""Directories with key files: header backups and sealed keys.

The paths come from :mod:`.configuration`. A directory is opened once, step by
step from the root, without following a link, and is used by its descriptor
from then on. Only root (or the user of this process) can change it or a
directory above it, so files read, overwritten or removed in it were put there
by root.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import errno
import os
import stat
import typing

from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import configuration

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclasses.dataclass(frozen=True)
class Folder:
    """An open directory.

    :param path: for messages; files are reached by the descriptor
    :param descriptor: valid as long as the folder is open
    """

    path: str
    descriptor: int

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        return sorted(os.listdir(self.descriptor))

    def flush(self) -> None:
        """Make new, renamed and removed entries outlive a power cut."""
        os.fsync(self.descriptor)

    def file(self, name: str, mode: str) -> typing.IO[bytes]:
        """Open a regular file.

        :param mode: 'rb', 'r+b', or 'xb' for a new file that root alone reads
        :raises OSError: if the entry is no regular file
        """
        opened = open(name, mode, opener=self._open)
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            opened.close()
            raise _refused(os.path.join(self.path, name), 'not a regular file')
        return opened

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600,
                       dir_fd=self.descriptor)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, and replace the file with this name."""
        os.replace(old, new, src_dir_fd=self.descriptor,
                   dst_dir_fd=self.descriptor)

    def unlink(self, name: str) -> bool:
        """Remove a file; return False if there is none."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return False
        return True

    def through(self, name: str) -> str:
        """Return a path for a command that inherits the descriptor."""
        return '/dev/fd/%d/%s' % (self.descriptor, name)


def _refused(path: str, reason: str) -> OSError:
    # privsep passes only the number and the text of an error to its caller.
    return PermissionError(errno.EPERM, '%s is %s' % (path, reason))


@contextlib.contextmanager
def configured(backend: str, option: str, make: bool = False
               ) -> Iterator[Folder]:
    """Open the directory in an option of a backend section.

    :param make: whether to create it, and directories above it
    :raises FileNotFoundError: if it does not exist
    :raises OSError: if the option is not set in the configuration of this
        process, or users other than root can change the directory
    """
    path = configuration.directory(backend, option)
    if not path:
        raise OSError(errno.EINVAL, (
            'The section [%s] in the configuration of the privileged process '
            '(%s) has no %s. If helper_command is set, it must name the '
            'configuration files of the service.') % (
                backend, ', '.join(configuration.files()), option))
    with _opened(path, make) as folder:
        yield folder


def problem(path: str) -> str:
    """Say why key files are not safe in a directory; '' if they are."""
    try:
        with _opened(path, False):
            return ''
    except OSError as exc:
        # A caller without access to the directory reports no problem.
        return str(exc.strerror) if exc.errno == errno.EPERM else ''


@contextlib.contextmanager
def _opened(path: str, make: bool) -> Iterator[Folder]:
    privsep.require(
        path.startswith('/') and '..' not in path.split('/'), path)
    descriptor, seen = os.open('/', _STEP), '/'
    try:
        for name in filter(None, path.split('/')):
            _check(descriptor, seen)
            seen = os.path.join(seen, name)
            inner = _step(descriptor, name, seen, make)
            os.close(descriptor)
            descriptor = inner
        with _readable(descriptor, seen) as folder:
            yield folder
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def inside(folder: Folder, name: str, make: bool = False
           ) -> Iterator[Folder]:
    """Open a directory in another directory.

    :param make: whether to create it
    :raises FileNotFoundError: if it does not exist
    :raises OSError: if users other than root can change it
    """
    path = os.path.join(folder.path, name)
    descriptor = _step(folder.descriptor, name, path, make)
    try:
        with _readable(descriptor, path) as opened:
            yield opened
    finally:
        os.close(descriptor)


def _step(descriptor: int, name: str, path: str, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=descriptor)
    try:
        return os.open(name, _STEP, dir_fd=descriptor)
    except OSError as exc:
        if exc.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise _refused(path, 'a link, or not a directory')


def _check(descriptor: int, path: str) -> None:
    """Refuse a directory in which other users can replace root's entries.

    :raises PermissionError: if they can
    """
    found = os.fstat(descriptor)
    if found.st_uid not in (0, os.geteuid()):
        raise _refused(path, 'not owned by root')
    if found.st_mode & _OTHERS and not found.st_mode & stat.S_ISVTX:
        raise _refused(path, 'writable by users other than root')


@contextlib.contextmanager
def _readable(descriptor: int, path: str) -> Iterator[Folder]:
    _check(descriptor, path)
    if os.fstat(descriptor).st_mode & _OTHERS:
        raise _refused(path, 'writable by users other than root')
    opened = os.open('.', os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,
                     dir_fd=descriptor)
    try:
        yield Folder(path, opened)
    finally:
        os.close(opened)
