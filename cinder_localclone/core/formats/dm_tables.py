# SPDX-License-Identifier: Apache-2.0
"""Device-mapper tables, status lines and names. Pure.

Formats: the kernel's Documentation/admin-guide/device-mapper/linear.rst and
dm-clone.rst. All lengths are in 512-byte sectors.

A header guard stands above the handle of a volume encrypted by Nova. Nova
formats a volume if it can't read the header, which happens if a source does
not answer for a moment, and no option prevents it. Writes to the header above
a guard succeed without effect: dm-flakey is always "down" and drops writes.
Failing them is not possible: device-mapper sends a guest's flush to each
segment of a table, and the flush would fail too. The other segment is the
handle itself (the kernel's
Documentation/admin-guide/device-mapper/dm-flakey.rst).
"""

from collections.abc import Iterable
import dataclasses
import functools
import re

from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core import names
from cinder_localclone.core import state

#: Position of the lower devices in a target's arguments.
_BELOW = {'linear': (0, 1), 'flakey': (0, 1), 'clone': (0, 3),
          'crypt': (3, 4), 'integrity': (0, 1)}

#: dm-flakey: up 0 s, down 1 s, one feature.
_DROPS_WRITES = ('0', '0', '1', '1', 'drop_writes')

_NAME = re.compile('localclone-crypt-(%s)-(overlay|hotzone-(for|back)ward)'
                   % names.UUID)


def linear(sectors: int, device: str) -> str:
    """Return a table with all of ``device``, from its first sector."""
    return '0 %d linear %s 0' % (sectors, device)


def on_clone(sectors: int, clone: str, end: int, lv: str) -> str:
    """Return the table of a handle on a clone, and beyond it on the LV.

    :param sectors: length of the clone
    :param clone: path of the clone
    :param end: length of the handle; greater if the volume was extended
        meanwhile
    :param lv: path of the clone's destination
    """
    table = linear(sectors, clone)
    if end > sectors:
        table += '\n%d %d linear %s %d' % (sectors, end - sectors, lv,
                                           sectors)
    return table


def error(sectors: int) -> str:
    """Return a table with an error for each read and write."""
    return '0 %d error' % sectors


def clone(sectors: int, metadata: str, destination: str, source: str,
          geometry: state.Geometry) -> str:
    """Return the table of a clone without hydration.

    The number of regions in flight is set afterwards. Until then it is the
    kernel's default, 1: a guest may be at work. Discards are not passed down:
    they would zero regions written before (measured on 6.1).
    """
    return '0 %d clone %s %s %s %d 2 no_hydration no_discard_passdown' % (
        sectors, metadata, destination, source, geometry.region_sectors)


@dataclasses.dataclass(frozen=True)
class CloneStatus:
    """A status line of the clone target.

    :param region_sectors: length of a region
    :param metadata_used: blocks in use
    :param metadata_total: all blocks
    :param hydrated: number of local regions
    :param regions: number of all regions
    :param hydrating: regions being copied at this moment
    :param enabled: whether hydration is on
    :param mode: ``rw``, ``ro``, ``Fail``, or ``Error`` without further figures
    """

    region_sectors: int
    metadata_used: int
    metadata_total: int
    hydrated: int
    regions: int
    hydrating: int
    enabled: bool
    mode: str

    @property
    def finished(self) -> bool:
        """Whether all regions are local, none in flight, metadata writable."""
        return (self.hydrated == self.regions and not self.hydrating
                and self.mode == 'rw')


def parse_clone_status(line: str) -> CloneStatus:
    """Parse the ``dmsetup status`` of a clone.

    :raises ValueError: if it is not the status line of a clone
    """
    words = line.split()
    if len(words) < 4 or words[2] != 'clone':
        raise ValueError('not the status of a clone: %r' % line)
    if words[3] in ('Fail', 'Error'):
        return CloneStatus(0, 0, 0, 0, 0, 0, False, words[3])
    used, total = words[4].split('/')
    hydrated, regions = words[6].split('/')
    features = words[9:9 + int(words[8])]
    return CloneStatus(
        region_sectors=int(words[5]), metadata_used=int(used),
        metadata_total=int(total), hydrated=int(hydrated),
        regions=int(regions), hydrating=int(words[7]),
        enabled='no_hydration' not in features, mode=words[-1])


@dataclasses.dataclass(frozen=True)
class Segment:
    """A line of a table.

    :param start: its first sector
    :param sectors: its length
    :param target: its type: ``linear``, ``clone``, ...
    :param arguments: the arguments of the target
    """

    start: int
    sectors: int
    target: str
    arguments: tuple[str, ...]

    def uses(self) -> tuple[str, ...]:
        """Return the numbers of the devices below it."""
        first, end = _BELOW.get(self.target, (0, 0))
        return self.arguments[first:end]


def parse(table: str) -> tuple[Segment, ...]:
    """Return the segments of a table; short lines are left out.

    :raises ValueError: if start or length of a line is not a number
    """
    found = (line.split() for line in table.splitlines())
    return tuple(Segment(int(words[0]), int(words[1]), words[2],
                         tuple(words[3:]))
                 for words in found if len(words) > 2)


@dataclasses.dataclass(frozen=True)
class Device:
    """A device-mapper device as the kernel lists it.

    :param number: ``major:minor``
    :param opened: open count
    :param table: its live table, a line for each segment, devices as
        ``major:minor``; '' if it has no table
    """

    name: str
    uuid: str
    number: str
    opened: int
    suspended: bool
    table: str = ''

    @functools.cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of its table."""
        return parse(self.table)

    @property
    def target(self) -> str:
        """The type of its (first) target: ``linear``, ``clone``, ..."""
        return self.segments[0].target if self.segments else ''

    @property
    def sectors(self) -> int:
        """Its length in 512-byte sectors; 0 if it has no table."""
        return sum(segment.sectors for segment in self.segments)

    def uses(self) -> tuple[str, ...]:
        """Return the numbers of the devices below it, segment by segment."""
        return tuple(number for segment in self.segments
                     for number in segment.uses())


def parse_thin(table: str) -> tuple[str, int] | None:
    """Parse the table of a thin device (thin-provisioning.rst).

    :returns: the pool's ``major:minor``, the device id in the pool; None for
        another device, or if unmapped blocks read from a third device (an
        external origin)
    """
    words = table.split()
    if len(words) == 5 and words[2] == 'thin':
        return words[3], int(words[4])
    return None


def parse_pool_metadata(table: str) -> str:
    """Return the ``major:minor`` of a thin pool's metadata from its table.

    :raises ValueError: if it is not the table of a thin pool
    """
    return _of_pool(table)[3]


def parse_pool_block(table: str) -> int:
    """Return the chunk size of a thin pool in sectors, from its table.

    :raises ValueError: if it is not the table of a thin pool
    """
    return int(_of_pool(table)[5])


def _of_pool(table: str) -> list[str]:
    words = table.split()
    if words[2:3] != ['thin-pool'] or len(words) < 6:
        raise ValueError('not the table of a thin pool: %r' % table)
    return words


def parse_metadata_snapshot(line: str) -> str:
    """Return the block of a thin pool's metadata snapshot from its status.

    :returns: '-' if there is none
    :raises ValueError: if it is not the status line of a thin pool
    """
    return _said_of_pool(line)[6]


def parse_pool_mode(line: str) -> str:
    """Return the mode of a thin pool from its status.

    :returns: rw, ro, out_of_data_space or Fail
    :raises ValueError: if it is not the status line of a thin pool
    """
    if line.split()[2:4] == ['thin-pool', 'Fail']:
        return 'Fail'
    return _said_of_pool(line)[7]


def parse_pool_space(line: str) -> int:
    """Return the number of free blocks of a thin pool from its status.

    :raises ValueError: if it is not the status line of a thin pool
    """
    used, total = _said_of_pool(line)[5].split('/')
    return int(total) - int(used)


def _said_of_pool(line: str) -> list[str]:
    words = line.split()
    if words[2:3] != ['thin-pool'] or len(words) < 8:
        raise ValueError('not the status of a thin pool: %r' % line)
    return words


def own_devices(found: Iterable[dm_ioctl.Status], prefix: str
                ) -> dict[str, Device]:
    """Return the driver's devices among those of a node, by name.

    :param found: devices with their tables
    :param prefix: prefix of the driver's UUIDs. cryptsetup's devices for
        volumes of the driver are included, whatever their UUIDs
    """
    return {each.name: Device(each.name, each.uuid, each.number, each.opened,
                              each.suspended, each.lines)
            for each in found if each.uuid.startswith(prefix)
            or names.volume_of_crypt(each.name, each.uuid)
            or names.volume_of_integrity(each.name, each.uuid)
            or volume_of_helper(each.name, each.uuid)}


@dataclasses.dataclass(frozen=True)
class Guard:
    """A header guard.

    :param number: of the handle, ``major:minor``; the handle's own table may
        change
    :param header: length of the protected header, sectors
    :param sectors: length of the guard
    """

    number: str
    header: int
    sectors: int

    def __str__(self) -> str:
        """Return its table."""
        return '0 %d flakey %s %s\n%d %d linear %s %d' % (
            self.header, self.number, ' '.join(_DROPS_WRITES), self.header,
            self.sectors - self.header, self.number, self.header)


def parse_guard(device: Device) -> Guard | None:
    """Return the header guard in a device's table; None for other devices.

    A device that lets writes to the header pass is not a guard.
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


def helper_names(volume_id: str) -> list[str]:
    """Return the names of a volume's re-encryption helper devices."""
    return ['%s-%s' % (names.crypt(volume_id), kind)
            for kind in ('overlay', 'hotzone-forward', 'hotzone-backward')]


def volume_of_helper(name: str, uuid: str) -> str | None:
    """Return the volume id in the name of a re-encryption helper device.

    :param uuid: its device-mapper UUID, as cryptsetup sets it
    :returns: None for any other device
    """
    match = _NAME.fullmatch(name)
    own = re.fullmatch('CRYPT-SUBDEV-[0-9a-f]{32}-' + re.escape(name), uuid)
    return match.group(1) if match and own else None
