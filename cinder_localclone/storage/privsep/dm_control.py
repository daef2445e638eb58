# SPDX-License-Identifier: Apache-2.0
"""Looks at device-mapper by ioctl, without a process for each.

As :mod:`.process` has it, whatever the kernel does the caller goes on at its
time limit, in seconds. Each raises CommandFailed or CommandTimeout.
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
#: Bytes of room for an answer: at first, as dmsetup has it, and at most.
_ROOM, _MOST = 1 << 14, 1 << 26
_Result = typing.TypeVar('_Result')


def devices(timeout: float, only: Iterable[str] | None = None,
            prefixes: tuple[str, ...] = ('',)) -> list[dm_ioctl.Status]:
    """All devices whose UUIDs begin with a prefix, with their live tables.

    :param only: those of these names, as far as they are there
    """
    found = _within(timeout, 'table', lambda: _each(
        dm_ioctl.TABLE, _names(prefixes) if only is None else only))
    return [each for each in found if each.uuid.startswith(prefixes)]


def statuses(wanted: Callable[[str], typing.Any], timeout: float
             ) -> list[dm_ioctl.Status]:
    """The status of all devices whose names are wanted; nothing commits."""
    return _within(timeout, 'status', lambda: _each(
        dm_ioctl.NOFLUSH, filter(wanted, _names())))


def status(name: str, timeout: float) -> str:
    """The status of one, a line for each target; nothing commits."""
    return _within(timeout, 'status ' + name, lambda: _status(
        name=name, flags=dm_ioctl.NOFLUSH).lines)


def table(number: str, timeout: float) -> str:
    """The live table of the device ``major:minor``."""
    return _within(timeout, 'table ' + number, lambda: _status(
        number=number, flags=dm_ioctl.TABLE).lines)


def _names(prefixes: tuple[str, ...] = ('',)) -> list[str]:
    """Those whose UUIDs begin with a prefix, or are not known."""
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
            if exc.errno != errno.ENXIO:  # there is none, or no more
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
            raise dm_ioctl.Malformed('it takes more than %d bytes' % _MOST)


def _ioctl(call: int, buffer: bytearray) -> None:
    """The kernel answers where it was asked."""
    fcntl.ioctl(_control(), call, buffer)


@functools.cache
def _control() -> int:
    """Opened once: a node with 1,000 volumes is asked 1,000 times a look."""
    return os.open(CONTROL, os.O_RDWR)


def _within(timeout: float, what: str, act: Callable[[], _Result]
            ) -> _Result:
    try:
        return process.within(timeout, 'device-mapper: ' + what, act)
    except (OSError, dm_ioctl.Malformed) as exc:
        raise exceptions.CommandFailed(
            command='device-mapper: ' + what,
            code=getattr(exc, 'errno', None), stderr=exc)
