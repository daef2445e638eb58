# SPDX-License-Identifier: Apache-2.0
"""Read-only queries of device-mapper by ioctl, without a process for each.

As in :mod:`.process`, the caller continues at its time limit (seconds), even
if the kernel does not answer. Each function raises CommandFailed or
CommandTimeout.
"""

from collections.abc import Callable
from collections.abc import Iterable
import errno
import fcntl
import functools
import os
import typing

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.storage.privsep import process

CONTROL = '/dev/mapper/control'
#: Size of the buffer for an answer in bytes: at first, as in dmsetup, and at
#: most.
_ROOM, _MOST = 1 << 14, 1 << 26
_Result = typing.TypeVar('_Result')


def devices(timeout: float, only: Iterable[str] | None = None,
            prefixes: tuple[str, ...] = ('',)) -> list[dm_ioctl.Status]:
    """Return the devices whose UUIDs have a prefix, with their live tables.

    :param only: names to look up; names without a device are left out. None:
        all devices
    """
    found = _within(timeout, 'table', lambda: _each(
        dm_ioctl.TABLE, _names(prefixes) if only is None else only))
    return [each for each in found if each.uuid.startswith(prefixes)]


def statuses(wanted: Callable[[str], typing.Any], timeout: float
             ) -> list[dm_ioctl.Status]:
    """Return the status of all devices with wanted names.

    The kernel commits nothing for this.

    :param wanted: function that returns whether a name is wanted
    """
    return _within(timeout, 'status', lambda: _each(
        dm_ioctl.NOFLUSH, filter(wanted, _names())))


def status(name: str, timeout: float) -> str:
    """Return the status of a device, a line for each target.

    The kernel commits nothing for this.
    """
    return _within(timeout, 'status ' + name, lambda: _status(
        name=name, flags=dm_ioctl.NOFLUSH).lines)


def table(number: str, timeout: float) -> str:
    """Return the live table of the device ``major:minor``."""
    return _within(timeout, 'table ' + number, lambda: _status(
        number=number, flags=dm_ioctl.TABLE).lines)


def _names(prefixes: tuple[str, ...] = ('',)) -> list[str]:
    """Return the devices whose UUIDs have a prefix, or are unknown."""
    named = dm_ioctl.parse_names(
        _ask(dm_ioctl.LIST_DEVICES, flags=dm_ioctl.UUIDS))
    return [name for name, uuid in named.items()
            if uuid is None or uuid.startswith(prefixes)]


def _each(flags: int, names: Iterable[str]) -> list[dm_ioctl.Status]:
    found = []
    for name in names:
        try:
            found.append(_status(name=name, flags=flags))
        except OSError as exc:
            if exc.errno != errno.ENXIO:  # no such device (any more)
                raise
    return found


def _status(**what: typing.Any) -> dm_ioctl.Status:
    return dm_ioctl.parse_status(_ask(dm_ioctl.TABLE_STATUS, **what))


def _ask(call: int, **what: typing.Any) -> bytearray:
    size = _ROOM
    while True:
        answer = dm_ioctl.request(size, **what)
        _ioctl(call, answer)
        if not dm_ioctl.is_full(answer):
            return answer
        size *= 2
        if size > _MOST:
            raise dm_ioctl.Malformed(
                'the answer has more than %d bytes' % _MOST)


def _ioctl(call: int, buffer: bytearray) -> None:
    """Call the kernel, which writes its answer into the request's buffer."""
    fcntl.ioctl(_control(), call, buffer)


@functools.cache
def _control() -> int:
    """Return a descriptor of the control device.

    It is opened once: a sweep of a node with 1,000 volumes makes 1,000 calls.
    """
    return os.open(CONTROL, os.O_RDWR)


def _within(timeout: float, what: str, act: Callable[[], _Result]
            ) -> _Result:
    try:
        return process.within(timeout, 'device-mapper: ' + what, act)
    except (OSError, dm_ioctl.Malformed) as exc:
        raise exceptions.CommandFailed(
            command='device-mapper: ' + what,
            code=getattr(exc, 'errno', None), stderr=exc)
