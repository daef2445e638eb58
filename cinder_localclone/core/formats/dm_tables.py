# SPDX-License-Identifier: Apache-2.0
"""Device-mapper tables, status lines and names. Pure.

Formats: the kernel's Documentation/admin-guide/device-mapper/linear.rst and
dm-clone.rst. All lengths are in 512-byte sectors.

A guard stands above the handle of a volume that Nova encrypts. Nova formats a
volume whose header it can't read, and a source that does not answer for a
moment is enough for that; nobody can tell it not to. Above a guard whatever
is written to the header ends with success, and nowhere: dm-flakey that is
always "down" and drops writes. It can't fail them instead: device-mapper
sends the flush of a guest to each part of a table, and that would fail too.
The rest is the handle itself (the kernel's
Documentation/admin-guide/device-mapper/dm-flakey.rst).
"""

from collections.abc import Iterable
import dataclasses
import functools
import re

from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core import names
from cinder_localclone.core import state

#: Which arguments of a target are devices below it.
_BELOW = {'linear': (0, 1), 'flakey': (0, 1), 'clone': (0, 3),
          'crypt': (3, 4), 'integrity': (0, 1)}

#: dm-flakey: up 0 s, down 1 s, one feature.
_DROPS_WRITES = ('0', '0', '1', '1', 'drop_writes')

_NAME = re.compile('localclone-crypt-(%s)-(overlay|hotzone-(for|back)ward)'
                   % names.UUID)


def linear(sectors: int, device: str) -> str:
    """A handle, or a source: all of ``device``, from its first sector."""
    return '0 %d linear %s 0' % (sectors, device)


def on_clone(sectors: int, clone: str, end: int, lv: str) -> str:
    """A handle on a clone, and beyond it on the clone's destination.

    :param sectors: of the clone
    :param end: of the handle: more, if the volume was extended meanwhile
    """
    table = linear(sectors, clone)
    if end > sectors:
        table += '\n%d %d linear %s %d' % (sectors, end - sectors, lv,
                                           sectors)
    return table


def error(sectors: int) -> str:
    """What fails each read and write."""
    return '0 %d error' % sectors


def clone(sectors: int, metadata: str, destination: str, source: str,
          geometry: state.Geometry) -> str:
    """A clone, not hydrating yet.

    It is told afterwards how many regions may be in flight; until then it is
    one, the kernel's default: a guest may be at work. Discards are not passed
    down: they would zero regions that were written before (measured on 6.1).
    """
    return '0 %d clone %s %s %s %d 2 no_hydration no_discard_passdown' % (
        sectors, metadata, destination, source, geometry.region_sectors)


@dataclasses.dataclass(frozen=True)
class CloneStatus:
    """One status line of the clone target.

    :param hydrated: regions that are local
    :param regions: all regions
    :param hydrating: regions being copied at this moment
    :param mode: ``rw``, ``ro`` or ``Fail``; ``Error``: it can't say more
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
        """Every region is local, none in flight, metadata writable."""
        return (self.hydrated == self.regions and not self.hydrating
                and self.mode == 'rw')


def parse_clone_status(line: str) -> CloneStatus:
    """Read ``dmsetup status`` of a clone device.

    :raises ValueError: if it is no clone's status line
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
    """One line of a table.

    :param start: its first sector
    :param sectors: its length
    :param target: its type: ``linear``, ``clone``, ...
    :param arguments: what the target is told
    """

    start: int
    sectors: int
    target: str
    arguments: tuple[str, ...]

    def uses(self) -> tuple[str, ...]:
        """The device numbers below it."""
        first, end = _BELOW.get(self.target, (0, 0))
        return self.arguments[first:end]


def parse(table: str) -> tuple[Segment, ...]:
    """Return the lines of a table; others are left out.

    :raises ValueError: if one has no numbers where its place is
    """
    found = (line.split() for line in table.splitlines())
    return tuple(Segment(int(words[0]), int(words[1]), words[2],
                         tuple(words[3:]))
                 for words in found if len(words) > 2)


@dataclasses.dataclass(frozen=True)
class Device:
    """A device-mapper device as the kernel shows it.

    :param number: ``major:minor``
    :param opened: open count
    :param table: its live table, a line for each segment, devices as
        ``major:minor``; '' if none
    """

    name: str
    uuid: str
    number: str
    opened: int
    suspended: bool
    table: str = ''

    @functools.cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The lines of its table."""
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
        """The device numbers below it, segment by segment."""
        return tuple(number for segment in self.segments
                     for number in segment.uses())


def parse_thin(table: str) -> tuple[str, int] | None:
    """Read the table of a thin device (thin-provisioning.rst).

    :returns: its pool's ``major:minor``, its id there; None if it is another
        device, or if what is not mapped reads as a third one (an external
        origin)
    """
    words = table.split()
    if len(words) == 5 and words[2] == 'thin':
        return words[3], int(words[4])
    return None


def parse_pool_metadata(table: str) -> str:
    """The ``major:minor`` of a thin pool's metadata, by its table.

    :raises ValueError: if it is no thin pool's
    """
    return _of_pool(table)[3]


def parse_pool_block(table: str) -> int:
    """How many sectors a thin pool maps at once, by its table.

    :raises ValueError: if it is no thin pool's
    """
    return int(_of_pool(table)[5])


def _of_pool(table: str) -> list[str]:
    words = table.split()
    if words[2:3] != ['thin-pool'] or len(words) < 6:
        raise ValueError('not the table of a thin pool: %r' % table)
    return words


def parse_metadata_snapshot(line: str) -> str:
    """Where a thin pool's metadata snapshot is, by its status; '-': none.

    :raises ValueError: if it is no thin pool's status line
    """
    return _said_of_pool(line)[6]


def parse_pool_mode(line: str) -> str:
    """The mode of a thin pool by its status: rw, ro, out_of_data_space, Fail.

    :raises ValueError: if it is no thin pool's status line
    """
    if line.split()[2:4] == ['thin-pool', 'Fail']:
        return 'Fail'
    return _said_of_pool(line)[7]


def parse_pool_space(line: str) -> int:
    """How many blocks a thin pool has left, by its status.

    :raises ValueError: if it is no thin pool's status line
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
    """Those of a node's devices that are the driver's, by name.

    :param found: with their tables
    :param prefix: of the UUIDs wanted; devices that cryptsetup made, to
        decrypt or re-encrypt a volume, are included whatever their UUID
    """
    return {each.name: Device(each.name, each.uuid, each.number, each.opened,
                              each.suspended, each.lines)
            for each in found if each.uuid.startswith(prefix)
            or names.volume_of_crypt(each.name, each.uuid)
            or names.volume_of_integrity(each.name, each.uuid)
            or volume_of_helper(each.name, each.uuid)}


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


def parse_guard(device: Device) -> Guard | None:
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


def helper_names(volume_id: str) -> list[str]:
    """How such devices of a volume are called."""
    return ['%s-%s' % (names.crypt(volume_id), kind)
            for kind in ('overlay', 'hotzone-forward', 'hotzone-backward')]


def volume_of_helper(name: str, uuid: str) -> str | None:
    """The volume id in the name of such a device.

    :param uuid: its device-mapper UUID, which cryptsetup makes
    :returns: None if it is no such device, or another's
    """
    match = _NAME.fullmatch(name)
    own = re.fullmatch('CRYPT-SUBDEV-[0-9a-f]{32}-' + re.escape(name), uuid)
    return match.group(1) if match and own else None
