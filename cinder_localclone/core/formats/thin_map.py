# SPDX-License-Identifier: Apache-2.0
"""Holes of a thin volume: ranges never written. Pure.

They are read from the output of thin_dump(8) (XML): the mapped blocks of a
thin device, in ascending order. Unmapped blocks read as zeros. Any unexpected
output makes the whole map unusable: data in a region wrongly treated as a hole
would be lost.

Holes are ``[first region, regions]``, ascending; they are sent like this over
the message bus.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import heapq
import typing
from xml.parsers import expat

from cinder_localclone.core import state

Holes: typing.TypeAlias = Sequence[Sequence[int]]

#: Greatest number of holes of a volume. A discard takes the kernel 16 us, and
#: each hole takes 15 bytes on the bus.
MOST = 16384
#: Greatest number of regions in all holes: 4 TiB in regions of 64 KiB. The
#: kernel marks 16 million in 0.1 to 0.4 s, and 67 million in 6 s.
MOST_REGIONS = 1 << 26
#: Greatest number of holes kept if all of them are needed.
ALL = 1 << 20


class OddMap(ValueError):
    """A map of a thin device that can't be parsed reliably."""


class Dump:
    """The output of thin_dump for a device, parsed in pieces.

    Only the largest holes are kept, so memory does not grow with the volume.

    :param device: the device's id in its pool
    :param size: bytes of the volume, from the device's beginning
    :param region: bytes of a region
    :param most: greatest number of holes to keep
    """

    def __init__(self, device: int, size: int, region: int,
                 most: int = MOST) -> None:
        self._device = device
        self._most = most
        self._regions = size // region
        self._region = region
        #: Bytes of a block, and the announced number of mapped blocks; 0 and
        #: None before they are read.
        self._block = 0
        self._promised: int | None = None
        #: End of the last mapped block; number of mapped blocks so far.
        self._end = self._mapped = 0
        self._largest: list[tuple[int, int]] = []
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._element

    def feed(self, piece: bytes) -> None:
        """Parse the next piece of the output.

        :raises OddMap: if it is not as expected
        """
        self._parse(piece, False)

    def largest_holes(self) -> Holes:
        """Return the largest holes, after the last piece.

        :raises OddMap: if the output is incomplete
        """
        self._end_of_text()
        return largest_holes((start, count) for count, start in self._largest)

    def all_holes(self) -> Holes:
        """Return all holes, ascending, after the last piece.

        :raises OddMap: if the output is incomplete, or has more holes than are
            kept
        """
        self._end_of_text()
        if len(self._largest) == self._most:
            raise OddMap('%d holes or more' % self._most)
        return sorted([start, count] for count, start in self._largest)

    def _end_of_text(self) -> None:
        self._parse(b'', True)
        if self._mapped != self._promised:
            raise OddMap('%s of %s blocks' % (self._mapped, self._promised))
        self._hole(None)

    def _parse(self, piece: bytes, final: bool) -> None:
        try:
            self._parser.Parse(piece, final)
        except (expat.ExpatError, KeyError, ValueError) as exc:
            raise OddMap(str(exc))

    def _element(self, name: str, values: Mapping[str, str]) -> None:
        if name == 'single_mapping':
            self._mapping(int(values['origin_block']), 1)
        elif name == 'range_mapping':
            self._mapping(int(values['origin_begin']), int(values['length']))
        elif name == 'superblock' and not self._block:
            self._block = int(values['data_block_size']) * state.SECTOR
        elif name == 'device' and self._block and self._promised is None:
            if int(values['dev_id']) != self._device:
                raise OddMap('device %s' % values['dev_id'])
            self._promised = int(values['mapped_blocks'])
        else:
            raise OddMap('<%s>' % name)

    def _mapping(self, begin: int, count: int) -> None:
        if self._promised is None or begin < self._end or count < 1:
            raise OddMap('mapping at %d' % begin)
        self._hole(begin)
        self._end = begin + count
        self._mapped += count

    def _hole(self, end: int | None) -> None:
        """Add the hole between the last mapped block and a later block.

        A partly mapped region is not a hole.

        :param end: the later block; None: the end of the volume
        """
        start = -(-self._end * self._block // self._region)
        if end is None or end * self._block > self._regions * self._region:
            count = self._regions - start
        else:
            count = end * self._block // self._region - start
        if count > 0:
            keep = (heapq.heappush if len(self._largest) < self._most
                    else heapq.heappushpop)
            keep(self._largest, (count, start))


def largest_holes(holes: Iterable[tuple[int, int]]) -> Holes:
    """Return the largest holes within the limits; the last may be cut."""
    kept, budget = [], MOST_REGIONS
    for start, count in heapq.nlargest(MOST, holes, lambda hole: hole[1]):
        if budget:
            kept.append([start, min(count, budget)])
            budget -= kept[-1][1]
    return sorted(kept)


def intersection(holes: Holes, others: Holes) -> Holes:
    """Return the intersection of two maps."""
    found, rest = [], list(reversed(others))
    for start, count in holes:
        end = start + count
        while rest:
            begin, length = rest[-1]
            first, last = max(start, begin), min(end, begin + length)
            if first < last:
                found.append([first, last - first])
            if begin + length > end:
                break
            rest.pop()
    return found


def difference(holes: Holes, others: Holes) -> Holes:
    """Return the holes of a map without the holes of another map."""
    found, rest = [], list(reversed(others))
    for start, count in holes:
        at, end = start, start + count
        while rest and rest[-1][0] < end:
            begin, length = rest[-1]
            if begin > at:
                found.append([at, begin - at])
            at = max(at, begin + length)
            if begin + length > end:
                break
            rest.pop()
        if at < end:
            found.append([at, end - at])
    return found


def union(holes: Holes, others: Holes) -> Holes:
    """Return the union of two maps."""
    found: list[list[int]] = []
    for start, count in sorted([*each] for each in (*holes, *others)):
        if found and start <= sum(found[-1]):
            found[-1][1] = max(start + count - found[-1][0], found[-1][1])
        else:
            found.append([start, count])
    return found


def in_smaller_regions(holes: Holes, factor: int) -> Holes:
    """Return the holes in units of smaller regions.

    :param factor: number of smaller regions in a region
    """
    return [[start * factor, count * factor] for start, count in holes]


def in_larger_regions(holes: Holes, factor: int) -> Holes:
    """Return the larger regions with a part in any of the holes.

    :param factor: number of regions in a larger region
    """
    found: list[list[int]] = []
    for start, count in holes:
        first, last = start // factor, -(-(start + count) // factor)
        if found and first <= sum(found[-1]):
            found[-1][1] = max(last - found[-1][0], found[-1][1])
        else:
            found.append([first, last - first])
    return found


def pieces(holes: Holes, most: int) -> list[tuple[int, int]]:
    """Return holes split into pieces: (first region, regions).

    :param most: greatest number of regions in a piece
    """
    return [(place, min(most, start + count - place))
            for start, count in holes
            for place in range(start, start + count, most)]


def in_bytes(holes: Holes, geometry: state.Geometry, size_bytes: int
             ) -> list[tuple[int, int]]:
    """Return holes sent by a peer as (first byte, bytes).

    :param size_bytes: of the clone
    :raises OddMap: if they are not valid holes of the clone
    """
    region, end, found = geometry.region_sectors * state.SECTOR, 0, []
    for start, count in holes:
        if start < end or count < 1:
            raise OddMap('hole at %d' % start)
        end = start + count
        found.append((start * region, count * region))
    if end * region > size_bytes or len(found) > MOST:
        raise OddMap('%d holes, to region %d' % (len(found), end))
    return found
