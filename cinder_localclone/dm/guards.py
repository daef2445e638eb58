# SPDX-License-Identifier: Apache-2.0
"""The table of a guard, as a value. Pure.

A guard stands above the handle of a volume that Nova encrypts. Nova formats a
volume whose header it can't read, and a source that does not answer for a
moment is enough for that; nobody can tell it not to. Above a guard whatever
is written to the header ends with success, and nowhere: dm-flakey that is
always "down" and drops writes. It can't fail them instead: device-mapper
sends the flush of a guest to each part of a table, and that would fail too.
The rest is the handle itself (the kernel's
Documentation/admin-guide/device-mapper/dm-flakey.rst).
"""

import dataclasses

from cinder_localclone.dm import tables

#: dm-flakey: up 0 s, down 1 s, one feature.
_DROPS_WRITES = ('0', '0', '1', '1', 'drop_writes')


@dataclasses.dataclass(frozen=True)
class Guard:
    """What a guard is.

    :param number: of the handle, ``major:minor``: that can be given another
        table beneath it
    :param header: sectors to which nothing is written
    :param sectors: its length
    """

    number: str
    header: int
    sectors: int

    def __str__(self) -> str:
        """Its table."""
        return '0 %d flakey %s %s\n%d %d linear %s %d' % (
            self.header, self.number, ' '.join(_DROPS_WRITES), self.header,
            self.sectors - self.header, self.number, self.header)


def parse(device: tables.Device) -> Guard | None:
    """What a device is, by its table; None if it is no guard at all.

    One through which the header can be written is none.
    """
    if len(device.segments) != 2:
        return None
    header, rest = device.segments
    guard = Guard(header.arguments[0] if header.arguments else '',
                  header.sectors, device.sectors)
    same = (header.target, header.arguments[1:], rest.target, rest.start,
            rest.arguments) == (
                'flakey', _DROPS_WRITES, 'linear', guard.header,
                (guard.number, str(guard.header)))
    return guard if same and not header.start else None
