# SPDX-License-Identifier: Apache-2.0
"""The move state machine: phases, events and one frozen table. Pure.

A *move* brings a volume from its home to another node. Its phase is in the
move record (see :mod:`cinder_localclone.db.moves`), in a column changed by
compare-and-swap only. The identity swap leaves this column alone. Whether the
swap has happened (*committed*) is not a phase: it is read from the identities
themselves, so the two can never disagree.
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
    """Return the length of a volume's LV, handle, clone and exports in bytes.

    :param size_gib: size of the volume for its user
    :param extra_bytes: bytes of the header of its encryption
    """
    return size_gib * GIB + extra_bytes


class Phase(str, enum.Enum):
    """The phase of a move."""

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
    #: Identities are as before; the destination removes its devices.
    ROLLING_BACK = 'rolling-back'


class Event(str, enum.Enum):
    """An event that changes the phase of a move."""

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
    """The requester of a move."""

    #: An instance that attaches the volume on another node.
    ATTACH = 'attach'
    #: Cinder's own migration or retype of a detached volume.
    MIGRATION = 'migration'
    #: The operator, who drains the node of a detached volume.
    DRAIN = 'drain'
    #: The home of a volume with a remote attachment: a deferred move.
    DEFERRED = 'deferred'


class Milestone(str, enum.Enum):
    """A step of a move, by its name in Cinder's notifications."""

    BEGUN = 'begin'
    COMMITTED = 'commit'
    COMPLETED = 'complete'
    ROLLED_BACK = 'roll_back'


#: The next phase for each (phase, event, committed). Any other combination is
#: refused. ``committed`` is whether the identities are swapped when the event
#: arrives; DESTINATION_DETACHED swaps them back in the same transaction.
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
#: Phases with nothing left but the cleanup of one node.
OVER = frozenset((Phase.RELEASING, Phase.ROLLING_BACK))


def next_phase(phase: Phase, event: Event, committed: bool) -> Phase:
    """Return the phase after an event.

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
    """The geometry of a clone, the same at every re-creation.

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
        """:raises ValueError: if the text is no geometry"""
        region, threshold, batch = text.split(':')
        return cls(int(region), int(threshold), int(batch))

    def regions(self, size_bytes: int) -> int:
        """Return the number of regions of a device of this size in bytes."""
        return -(-size_bytes // (self.region_sectors * SECTOR))

    def metadata_bytes(self, size_bytes: int) -> int:
        """Return the bytes needed for the metadata of a device of this size.

        One 4 KiB block holds the bits of 32576 regions, and the kernel's
        copy-on-write of metadata may double the blocks in use. A full metadata
        device panics the kernel, so this is generous: measured, then doubled,
        then rounded.

        :param size_bytes: bytes of the device
        """
        blocks = 2 * -(-self.regions(size_bytes) // 32576) + 64
        return max(blocks * 4096, 4 * 1024 * 1024)


@dataclasses.dataclass(frozen=True)
class Token:
    """The content of the move record's compare-and-swap column."""

    phase: Phase
    nonce: str
    geometry: Geometry

    def __str__(self) -> str:
        return ':'.join((
            TOKEN_VERSION, self.phase.value, self.nonce,
            str(self.geometry)))

    @classmethod
    def parse(cls, text: str | None) -> 'Token':
        """Return the token in a text.

        :raises InvalidToken: if it is no token, or of an unknown version
        """
        try:
            version, phase, nonce, geometry = (text or '').split(':', 3)
            if version != TOKEN_VERSION:
                raise ValueError('version %s' % version)
            return cls(Phase(phase), nonce, Geometry.parse(geometry))
        except ValueError as exc:
            raise exceptions.InvalidToken(token=text, reason=str(exc))

    def after(self, event: Event, committed: bool) -> 'Token':
        """Return the token after an event.

        :raises InvalidTransition: if the phase allows none
        """
        return dataclasses.replace(
            self, phase=next_phase(self.phase, event, committed))


@dataclasses.dataclass(frozen=True)
class Move:
    """A move, by its record in the database.

    A move with nothing left but a cleanup is a *pending cleanup*. It does not
    keep the volume from moving again, so its other end may be the volume's
    home no longer.

    Hosts are volume service hosts without the pool (``node1@localclone``). LV
    names are the names of the volume's LV on either node. After the delete of
    its volume, ``source_lv`` is '' if the move was not committed.
    ``size_gib`` is the size copied; ``volume_gib`` is larger if the volume was
    extended meanwhile. Both backing devices are longer by ``extra_bytes``.
    ``location`` and ``auth`` are the location and credentials of the source's
    export, for ``initiator`` alone, in the form of Cinder's provider_location
    and provider_auth.
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
        """Whether this is a deferred move: the instance is at the destination.

        The instance uses the volume through the source. So before the handle
        is on the clone, nothing may be in the clone that is not on the source.
        """
        return self.asked_by is Asked.DEFERRED

    @property
    def is_under_guest(self) -> bool:
        """Whether a guest writes to the source until the commit.

        In a live migration it may write to it beyond the commit.
        """
        return self.is_deferred or self.phase is Phase.STARTING

    @property
    def phase(self) -> Phase:
        """The phase."""
        return self.token.phase

    @property
    def is_over(self) -> bool:
        """Whether nothing but a cleanup is left."""
        return self.phase in OVER

    @property
    def keeps_handle(self) -> bool:
        """Whether the source has the volume's handle.

        It has as long as a guest may use the volume there, or get it back.
        """
        return not self.committed or self.phase is Phase.STARTING

    @property
    def cleanup_node(self) -> str:
        """The host with a pending cleanup after the move.

        It is the host of the move record, wherever the volume is by then.
        """
        return self.source if self.committed else self.destination

    @property
    def cleanup_lv(self) -> str:
        """The LV that the cleanup removes."""
        return self.source_lv if self.committed else self.destination_lv

    @property
    def display_phase(self) -> str:
        """The phase for people: ``preparing`` before the commit."""
        building = self.phase in (Phase.MIGRATING, Phase.STARTING)
        return ('preparing' if building and not self.committed
                else self.phase.value)

    @property
    def geometry(self) -> Geometry:
        """The geometry of its clone."""
        return self.token.geometry

    @property
    def source_iqn(self) -> str:
        """The iSCSI name of the source's export."""
        return self.location.split(' ')[1]

    @property
    def size_bytes(self) -> int:
        """The bytes copied."""
        return backing_bytes(self.size_gib, self.extra_bytes)

    @property
    def volume_bytes(self) -> int:
        """The length of the backing device at the destination, in bytes."""
        return backing_bytes(max(self.size_gib, self.volume_gib),
                             self.extra_bytes)
