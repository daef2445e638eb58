# SPDX-License-Identifier: Apache-2.0
"""The move state machine: phases, events and one frozen table. Pure.

A *move* is the move of one volume from one node to another. Its phase
lives in the row of its *shadow* (see :mod:`cinder_localclone.db.moves`), in a
column that is entered by compare-and-swap and that the identity swap leaves
alone. Whether the swap has happened (*committed*) is not a phase: it is read
from the identities themselves, so that the two can never disagree.
"""

import dataclasses
import enum
import types

from oslo_utils import units

from cinder_localclone.core import exceptions

TOKEN_VERSION = 'lc1'
SECTOR = 512
GIB: int = units.Gi


def backing_bytes(size_gib: int, extra_bytes: int = 0) -> int:
    """How long the body of a volume is: its LV, handle, clone and exports.

    :param size_gib: what its user has of it
    :param extra_bytes: what its encryption takes besides
    """
    return size_gib * GIB + extra_bytes


class Phase(str, enum.Enum):
    """How far a move is."""

    #: There is no move.
    ABSENT = 'absent'
    #: Both nodes attached (live migration): clone built, hydration off.
    STARTING = 'starting'
    #: The clone is being built or, once committed, hydrated.
    MIGRATING = 'migrating'
    #: All regions are local and flushed; the destination removes its clone.
    COMPLETING = 'completing'
    #: The destination uses nothing of the source; the source may be removed.
    RELEASING = 'releasing'
    #: Identities are as before; the destination removes its stack.
    ROLLING_BACK = 'rolling-back'


class Event(str, enum.Enum):
    """What moves a move from one phase to another."""

    MOVE_BEGUN = 'move begun'
    LIVE_MOVE_BEGUN = 'live move begun'
    SOURCE_DETACHED = 'source detached'
    DESTINATION_DETACHED = 'destination detached'
    FAILED = 'failed before commit'
    HYDRATED = 'all regions local and flushed'
    DRAINED = 'destination uses nothing of the source'
    VOLUME_DELETED = 'volume deleted on the destination'
    SOURCE_REMOVED = 'source removed'
    DESTINATION_REMOVED = 'destination removed'


class Asked(str, enum.Enum):
    """Who asked for a move."""

    #: An instance that attaches the volume elsewhere.
    ATTACH = 'attach'
    #: Cinder's own migration or retype, of a volume that nobody attaches.
    MIGRATION = 'migration'
    #: The operator, of such a volume: its node is drained.
    DRAIN = 'drain'
    #: Its home, of a volume that it serves to the node of its instance.
    DEFERRED = 'deferred'


class Milestone(str, enum.Enum):
    """What others are told of a move, as Cinder's notifications call it."""

    BEGUN = 'begin'
    COMMITTED = 'commit'
    COMPLETED = 'complete'
    ROLLED_BACK = 'roll_back'


#: For each (phase, event, committed): the next phase. What is not here is
#: refused. ``committed`` is whether the identities are swapped when the
#: event arrives; DESTINATION_DETACHED swaps them back in the same
#: transaction.
TRANSITIONS = types.MappingProxyType({
    (Phase.ABSENT, Event.MOVE_BEGUN, False): Phase.MIGRATING,
    (Phase.ABSENT, Event.LIVE_MOVE_BEGUN, False): Phase.STARTING,
    (Phase.STARTING, Event.FAILED, False): Phase.ROLLING_BACK,
    (Phase.MIGRATING, Event.FAILED, False): Phase.ROLLING_BACK,
    (Phase.STARTING, Event.SOURCE_DETACHED, True): Phase.MIGRATING,
    (Phase.STARTING, Event.DESTINATION_DETACHED, True): Phase.ROLLING_BACK,
    (Phase.MIGRATING, Event.HYDRATED, True): Phase.COMPLETING,
    (Phase.COMPLETING, Event.DRAINED, True): Phase.RELEASING,
    (Phase.STARTING, Event.VOLUME_DELETED, True): Phase.RELEASING,
    (Phase.MIGRATING, Event.VOLUME_DELETED, True): Phase.RELEASING,
    (Phase.COMPLETING, Event.VOLUME_DELETED, True): Phase.RELEASING,
    (Phase.RELEASING, Event.SOURCE_REMOVED, True): Phase.ABSENT,
    (Phase.ROLLING_BACK, Event.DESTINATION_REMOVED, False): Phase.ABSENT,
})

#: Phases in which the destination may read from the source.
READS_SOURCE = frozenset(
    (Phase.STARTING, Phase.MIGRATING, Phase.COMPLETING))
#: Phases in which one node has to remove its part, and nothing else is left.
OVER = frozenset((Phase.RELEASING, Phase.ROLLING_BACK))


def next_phase(phase: Phase, event: Event, committed: bool) -> Phase:
    """The phase after an event.

    :raises InvalidTransition: if the table has no such transition
    """
    try:
        return TRANSITIONS[(phase, event, committed)]
    except KeyError:
        raise exceptions.InvalidTransition(
            phase=phase.value, event=event.value,
            committed='committed' if committed else 'not committed')


@dataclasses.dataclass(frozen=True)
class Geometry:
    """What a clone was created with; the same at every re-creation.

    :param region_sectors: region size in 512-byte sectors
    :param threshold: maximum number of regions in flight
    :param batch: maximum number of contiguous regions in one request
    """

    region_sectors: int
    threshold: int
    batch: int

    def __str__(self) -> str:
        return '%d:%d:%d' % (
            self.region_sectors, self.threshold, self.batch)

    @classmethod
    def parse(cls, text: str) -> 'Geometry':
        """:raises ValueError: if it is none"""
        region, threshold, batch = text.split(':')
        return cls(int(region), int(threshold), int(batch))

    def regions(self, size_bytes: int) -> int:
        """How many regions a device of this size (bytes) has."""
        return -(-size_bytes // (self.region_sectors * SECTOR))

    def metadata_bytes(self, size_bytes: int) -> int:
        """Room that the metadata of such a device may ever need (bytes).

        One 4 KiB block holds the bits of 32576 regions and shadow paging may
        double the blocks in use. A metadata device that runs full panics the
        kernel, so this is generous: measured, then doubled, then rounded.
        """
        blocks = 2 * -(-self.regions(size_bytes) // 32576) + 64
        return max(blocks * 4096, 4 * 1024 * 1024)


@dataclasses.dataclass(frozen=True)
class Token:
    """What the shadow's compare-and-swap column says."""

    phase: Phase
    nonce: str
    geometry: Geometry

    def __str__(self) -> str:
        return ':'.join((
            TOKEN_VERSION, self.phase.value, self.nonce,
            str(self.geometry)))

    @classmethod
    def parse(cls, text: str | None) -> 'Token':
        """Read a token back.

        :raises InvalidToken: if it is not one, or of a version unknown here
        """
        try:
            version, phase, nonce, geometry = (text or '').split(':', 3)
            if version != TOKEN_VERSION:
                raise ValueError('version %s' % version)
            return cls(Phase(phase), nonce, Geometry.parse(geometry))
        except ValueError as exc:
            raise exceptions.InvalidToken(token=text, reason=str(exc))

    def after(self, event: Event, committed: bool) -> 'Token':
        """The token after an event.

        :raises InvalidTransition: if the phase allows none
        """
        return dataclasses.replace(
            self, phase=next_phase(self.phase, event, committed))


@dataclasses.dataclass(frozen=True)
class Move:
    """One move as the database tells it.

    One that is over but for a clean-up is named *remains*. It pins nothing:
    the volume may have moved on, so its other end may not be that of the
    move any more.

    Hosts are volume service hosts without the pool (``node1@localclone``);
    LV names are those of the volume's data on either side. Of a volume that
    was deleted only the shadow's end is known; the other host is ''.
    ``size_gib`` is what is copied; ``volume_gib`` is more if the volume was
    extended meanwhile. Both bodies are ``extra_bytes`` longer than that.
    ``location`` and ``auth`` are where and how the source is served, to
    ``initiator`` alone, in the form of Cinder's provider_location and
    provider_auth.
    """

    volume_id: str
    move_id: str
    token: Token
    committed: bool
    source: str
    destination: str
    source_lv: str
    destination_lv: str
    size_gib: int
    location: str = ''
    auth: str = dataclasses.field(default='', repr=False)
    initiator: str = ''
    volume_gib: int = 0
    asked_by: Asked = Asked.ATTACH
    extra_bytes: int = 0

    @property
    def is_deferred(self) -> bool:
        """Whether its instance has the volume at the destination already.

        Through the source, so nothing may be in the clone that the source
        has not, before the handle is on the clone.
        """
        return self.asked_by is Asked.DEFERRED

    @property
    def is_under_guest(self) -> bool:
        """Whether a guest goes on to write to the source until the commit.

        Or beyond it, in a live migration.
        """
        return self.is_deferred or self.phase is Phase.STARTING

    @property
    def phase(self) -> Phase:
        """How far it is."""
        return self.token.phase

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of it but a clean-up."""
        return self.phase in OVER

    @property
    def keeps_handle(self) -> bool:
        """Whether its source has the volume's handle.

        As long as a guest may use the volume there, or be given it back.
        """
        return not self.committed or self.phase is Phase.STARTING

    @property
    def cleanup_node(self) -> str:
        """The host that has to remove its part once the move is over.

        That of the shadow's own row, wherever the volume is by then.
        """
        return self.source if self.committed else self.destination

    @property
    def cleanup_lv(self) -> str:
        """The LV that is removed there."""
        return self.source_lv if self.committed else self.destination_lv

    @property
    def display_phase(self) -> str:
        """The phase as people read it: ``preparing`` before the commit."""
        building = self.phase in (Phase.MIGRATING, Phase.STARTING)
        return ('preparing' if building and not self.committed
                else self.phase.value)

    @property
    def geometry(self) -> Geometry:
        """What its clone was, or will be, created with."""
        return self.token.geometry

    @property
    def source_iqn(self) -> str:
        """The iSCSI name that the source is served under."""
        return self.location.split(' ')[1]

    @property
    def size_bytes(self) -> int:
        """What is copied, in bytes."""
        return backing_bytes(self.size_gib, self.extra_bytes)

    @property
    def volume_bytes(self) -> int:
        """How long the volume's body at its destination is, in bytes."""
        return backing_bytes(max(self.size_gib, self.volume_gib),
                             self.extra_bytes)
