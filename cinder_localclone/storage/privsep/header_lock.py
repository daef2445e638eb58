# SPDX-License-Identifier: Apache-2.0
"""The writer's lock of a LUKS2 header, compatible with cryptsetup(8).

Source: lib/utils_device_locking.c of cryptsetup, 2.6 to 2.8. For a device it
is the lock of a file named after the device; for a file, the lock of the file
itself.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import stat
import typing

import tenacity

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.storage.privsep import process

DIRECTORY = '/run/cryptsetup'


class Held(typing.NamedTuple):
    """Descriptors of a device and of its lock.

    A writing command inherits both. If it hangs and is left behind, it keeps
    them, so no other process writes before it has ended.
    """

    device: int
    lock: int


def _file(path: str, device: int) -> str:
    found = os.fstat(device)
    if not stat.S_ISBLK(found.st_mode):
        return path
    os.makedirs(DIRECTORY, mode=0o700, exist_ok=True)
    return os.path.join(DIRECTORY, 'L_%d:%d' % (
        os.major(found.st_rdev), os.minor(found.st_rdev)))


@contextlib.contextmanager
def held(path: str, timeout: float) -> Iterator[Held]:
    """Lock a header, so no cryptsetup with locks writes it meanwhile.

    The device can't be removed meanwhile, either. Another process may turn the
    path elsewhere: use the returned device, which is the locked one.

    :param path: path of the device
    :param timeout: limit of each wait (device, lock), seconds
    :returns: descriptors of the device and of its lock
    :raises HeaderInUse: if other processes hold the lock too long
    :raises CommandTimeout: if the device can't be opened in time
    """
    device = process.within(
        timeout, 'open ' + path,
        lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC), undo=os.close)
    try:
        with _taken(path, _file(path, device), timeout) as lock:
            yield Held(device, lock)
    finally:
        # The work is done by now, even if closing the device hangs.
        process.has_ended(process.in_thread(lambda: os.close(device)),
                          timeout)


@contextlib.contextmanager
def _taken(path: str, file: str, timeout: float) -> Iterator[int]:
    try:
        descriptor = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda found: found is None),
            stop=tenacity.stop_after_delay(timeout),
            wait=tenacity.wait_fixed(0.05))(_take, file)
    except tenacity.RetryError:
        raise encryption_exceptions.HeaderInUse(
            path=path, reason='other processes held its lock for %s s'
            % timeout) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take(file: str) -> int | None:
    """Return the descriptor of the lock; None if another process has it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    taken = False
    try:
        taken = _is_taken(descriptor, file)
    finally:
        if not taken:
            os.close(descriptor)
    return descriptor if taken else None


def _is_taken(descriptor: int, file: str) -> bool:
    """Return whether the lock was acquired, on a file that still exists.

    The last process to leave removes the file.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except (BlockingIOError, FileNotFoundError):
        return False
