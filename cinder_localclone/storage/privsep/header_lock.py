# SPDX-License-Identifier: Apache-2.0
"""The lock of whoever writes a LUKS2 header, as cryptsetup(8) takes it.

Source: lib/utils_device_locking.c of cryptsetup, 2.6 to 2.8. It is the lock
of a file that is named after the device; of a file, that of itself.
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

    A command that writes inherits both. It keeps them if it hangs and is left
    behind, so nobody else writes before it has ended.
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
    """No cryptsetup that takes locks writes the header meanwhile.

    Nor is the device removed. Others may turn the path elsewhere: what is
    locked is what was opened.

    :param path: of the device
    :param timeout: seconds, of each wait: for the device, for the lock
    :returns: the device, to get at it by, and its lock
    :raises HeaderInUse: if others take too long
    :raises CommandTimeout: if the device does
    """
    device = process.within(
        timeout, 'open ' + path,
        lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC), undo=os.close)
    try:
        with _taken(path, _file(path, device), timeout) as lock:
            yield Held(device, lock)
    finally:
        # All is done by now, whether this hangs or not.
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
            path=path, reason='other processes have locked it for %s s'
            % timeout) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take(file: str) -> int | None:
    """Return the descriptor that has the lock; None if others have it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    taken = False
    try:
        taken = _is_taken(descriptor, file)
    finally:
        if not taken:
            os.close(descriptor)
    return descriptor if taken else None


def _is_taken(descriptor: int, file: str) -> bool:
    """Whoever was the last to leave has removed the file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except (BlockingIOError, FileNotFoundError):
        return False
