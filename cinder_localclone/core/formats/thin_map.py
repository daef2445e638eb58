# SPDX-License-Identifier: Apache-2.0
"""What of a thin volume nothing was ever written to. Pure.

Read from what thin_dump(8) prints (XML): the mapped blocks of one thin
device, in ascending order. What lies between them reads as zeros. Whatever
is not as expected there means that nothing is known: a region that is taken
for a hole though it has data would be lost.

Holes are ``[first region, regions]``, ascending, as they travel on the
message bus.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import heapq
import typing
from xml.parsers import expat

from cinder_localclone.core import state

Holes: typing.TypeAlias = Sequence[Sequence[int]]

#: Holes of one volume, at most. A discard takes the kernel 16 us, and one
#: more hole is 15 bytes on the bus.
MOST = 16384
#: Regions in all of them, at most: 4 TiB in regions of 64 KiB. The kernel
#: marks 16 million in 0.1 to 0.4 s, and 67 million in 6 s.
MOST_REGIONS = 1 << 26
#: Holes of one volume that are kept where none may be left out.
ALL = 1 << 20


class OddMap(ValueError):
    """A map of a thin device that cannot be relied upon."""


class Dump:
    """What thin_dump prints of one device, piece by piece.

    Only the largest holes are kept, so what it takes does not grow with the
    volume.

    :param most: how many are kept
    :param device: the device's id in its pool
    :param size: bytes of the volume, from the device's beginning
    :param region: bytes of a region
    """

    def __init__(self, device: int, size: int, region: int,
                 most: int = MOST) -> None:
        self._device = device
        self._most = most
        self._regions = size // region
        self._region = region
        #: Bytes of a block; how many blocks the device is said to have
        #: mapped. 0 and None: that was not said yet.
        self._block = 0
        self._promised: int | None = None
        #: Where the last mapped block ended; how many there were.
        self._end = self._mapped = 0
        self._largest: list[tuple[int, int]] = []
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._element

    def feed(self, piece: bytes) -> None:
        """The next piece of the text.

        :raises OddMap: if that is not as expected
        """
        self._parse(piece, False)

    def holes(self) -> Holes:
        """The largest holes, when all of the text has been fed.

        :raises OddMap: if it was not complete
        """
        self._end_of_text()
        return bounded((start, count) for count, start in self._largest)

    def all_holes(self) -> Holes:
        """All holes, ascending.

        :raises OddMap: the same; or if there were more than are kept
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
        """Between the last mapped block and a block, or the volume's end.

        A region that is mapped in part is no hole.
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


def bounded(holes: Iterable[tuple[int, int]]) -> Holes:
    """The largest holes, as many as may be; the last may be cut."""
    kept, room = [], MOST_REGIONS
    for start, count in heapq.nlargest(MOST, holes, lambda hole: hole[1]):
        if room:
            kept.append([start, min(count, room)])
            room -= kept[-1][1]
    return sorted(kept)


def common(holes: Holes, others: Holes) -> Holes:
    """What is a hole in both of two maps."""
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


def without(holes: Holes, others: Holes) -> Holes:
    """What is a hole in the first of two maps alone."""
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
    """What is a hole in any of two maps."""
    found: list[list[int]] = []
    for start, count in sorted([*each] for each in (*holes, *others)):
        if found and start <= sum(found[-1]):
            found[-1][1] = max(start + count - found[-1][0], found[-1][1])
        else:
            found.append([start, count])
    return found


def scaled(holes: Holes, factor: int) -> Holes:
    """The same in smaller regions, of which a region has so many."""
    return [[start * factor, count * factor] for start, count in holes]


def covering(holes: Holes, factor: int) -> Holes:
    """The larger regions that have any of these."""
    found: list[list[int]] = []
    for start, count in holes:
        first, last = start // factor, -(-(start + count) // factor)
        if found and first <= sum(found[-1]):
            found[-1][1] = max(last - found[-1][0], found[-1][1])
        else:
            found.append([first, last - first])
    return found


def pieces(holes: Holes, most: int) -> list[tuple[int, int]]:
    """The same in pieces of so many regions at most: (first, how many)."""
    return [(place, min(most, start + count - place))
            for start, count in holes
            for place in range(start, start + count, most)]


def in_bytes(holes: Holes, geometry: state.Geometry, size_bytes: int
             ) -> list[tuple[int, int]]:
    """Holes that a peer has named: (first byte, bytes).

    :param size_bytes: of the clone
    :raises OddMap: if they are none
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
