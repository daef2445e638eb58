# SPDX-License-Identifier: Apache-2.0
"""Everything that acts on this node, as one value.

LVM is asked once for a volume that arrives, not twice.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import functools
import typing

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import copies
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core.interfaces import iscsi
from cinder_localclone.core.interfaces import records
from cinder_localclone.core.interfaces import storage
from cinder_localclone.core import names
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import state

#: The name of the lock around free space, beside those of volumes.
FREE_SPACE = 'free-space'

#: Seconds for which what LVM has shown is believed.
FRESH = 2.0

_Volumes = Mapping[str, lvm_reports.LogicalVolume]


class Listing:
    """The LVs of a node, kept from the check for free space to the allocation.

    Allocations hold the lock of free space and end what is kept
    (:meth:`spend`): an answer that LVM gave before one, or during it, is never
    used after it.

    :param lvs: asks LVM
    """

    def __init__(self, lvs: Callable[[], _Volumes]):
        self._lvs = lvs
        #: How often something was taken; how often it was when LVM was asked,
        #: when that was, and what it has shown.
        self._taken = 0
        self._last: tuple[int, float, _Volumes] | None = None

    def ask(self, now: float) -> _Volumes:
        """All LVs, as they are now."""
        taken = self._taken
        lvs = self._lvs()
        self._last = taken, now, lvs
        return lvs

    def recent(self, now: float) -> _Volumes:
        """The same, or as they were moments ago.

        For a caller that holds the lock of free space.
        """
        last = self._last
        if last and last[0] == self._taken and now - last[1] < FRESH:
            return last[2]
        return self.ask(now)

    def spend(self) -> None:
        """Free space may have been taken: what is kept is no longer valid."""
        self._taken += 1


@dataclasses.dataclass(frozen=True)
class Node:
    """The rooms that act on one node, and what is known of the node.

    :param host: this service's host, without pool
    :param geometry: what new moves from this node use
    :param lock: ``lock(volume_id)`` holds this node's work on one volume;
        raises Busy if that takes too long
    :param try_lock: the same for a look, for which nobody waits: raises Busy
        at once. A look that queued would keep a request waiting, and whoever
        has the lock brings his work to its end
    :param is_at: ``is_at(connector, host)``: whether a connector belongs to
        the node of a service host
    :param clear: ``clear(lv_name, size_bytes)`` overwrites an LV's data before
        it is removed, where thick volumes would leak it
    :param limits: how many copies run at one time, of all nodes'
    :param pacing: how fast those to this node may be
    :param compare_wait: how long the end of a copy waits until it can be
        compared with its source, seconds
    :param authenticates: whether new volumes may be authenticated
    :param tell: ``tell(milestone, move)`` says it in the log, and to whoever
        gets Cinder's notifications; it raises nothing
    :param detached: attachments that were ended here, by id: when, monotonic
        seconds. Cinder deletes them only afterwards
    :param asked: when this node was last asked to go on with an extension, by
        volume id, monotonic seconds
    """

    host: str
    moves: records.Moves
    volumes: records.Volumes
    snapshots: records.Snapshots
    attachments: records.Attachments
    secrets: records.Secrets
    services: records.Services
    queue: records.Queue
    interrupted: records.Interrupted
    lvm: storage.Lvm
    handles: storage.Handles
    clones: storage.Clones
    crypt: crypt_interfaces.Crypt
    keys: crypt_interfaces.Keys
    runner: crypt_interfaces.Runner
    exports: iscsi.Exports
    sessions: iscsi.Sessions
    peers: rpc.Calls
    geometry: state.Geometry
    lock: Callable[[str], contextlib.AbstractContextManager[None]]
    try_lock: Callable[[str], contextlib.AbstractContextManager[None]]
    is_at: Callable[[objects.Connector, str], bool]
    clear: Callable[[str, int], None]
    limits: copies.Limits = copies.Limits()
    pacing: copies.Settings = copies.Settings()
    compare_wait: float = 3600
    authenticates: bool = False
    tell: Callable[[state.Milestone, state.Move], None] = (
        lambda _milestone, _move: None)
    detached: dict[str, float] = dataclasses.field(default_factory=dict)
    asked: dict[str, float] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def listing(self) -> Listing:
        """The LVs of this node, for those who check its free space."""
        return Listing(lambda: self.lvm.lvs())

    @contextlib.contextmanager
    def allocation_lock(self) -> Iterator[None]:
        """Held from the check of this node's free space until it is taken.

        :raises Busy: if that takes too long
        """
        with self.lock(FREE_SPACE):
            try:
                yield
            finally:
                self.listing.spend()

    def other_nodes(self) -> dict[str, bool]:
        """The others of the backend: service host, and whether it is alive."""
        return {host: alive for host, alive in self.services.by_host().items()
                if host != self.host and names.same_backend(host, self.host)}


def attempt(node: Node, key: str, act: Callable[[], object],
            tell: Callable[[Exception], None]) -> bool:
    """Act on one volume of a sweep, under its lock.

    The sweep goes on with the next volume, whatever happens with this one: if
    its lock is taken, the holder of the lock brings the volume to its end, or
    the next sweep does.

    :param key: id of the volume, or of the snapshot
    :param tell: logs what has failed; "will retry" is true
    :returns: whether it was done
    """
    try:
        with node.try_lock(key):
            act()
    except exceptions.Busy:
        return False
    except Exception as exc:  # of the database, sysfs, a missing command
        tell(exc)
        return False
    return True


def remembered(is_at: Callable[[objects.Connector, str], bool]
               ) -> Callable[[objects.Connector, str], bool]:
    """:meth:`Directory.is_at` for one look, which asks for each host once."""
    answers: dict[tuple[typing.Any, ...], bool] = {}

    def answer(connector: objects.Connector, host: str) -> bool:
        key = connector.get('host'), connector.get('ip'), host
        if key not in answers:
            answers[key] = is_at(connector, host)
        return answers[key]
    return answer


def volume_at_home(node: Node, volume_id: str) -> objects.Volume:
    """A volume whose home is this node.

    :raises StaleMove: if it is not (any more), or the volume is gone
    """
    volume = node.volumes.volume(volume_id)
    if volume is None or not rows.is_home(volume, node.host):
        raise exceptions.StaleMove(volume=volume_id)
    return volume


def check_length(node: Node, volume: objects.Volume, size_gib: int = 0
                 ) -> None:
    """See that a copy of a volume, as long as its row says, has all of it.

    For a caller that holds the volume's lock, at its home.

    :param size_gib: how much of it there will be; 0: as its row says
    :raises LongerThanRecorded: if users may have written more
    """
    size_gib = size_gib or volume.size
    backing = rows.backing_bytes(volume, size_gib)
    found = node.handles.shown_bytes(volume.id, volume.name, backing)
    # LVM rounds up to whole extents, by less than that unless a tag says so.
    if found - backing >= state.GIB:
        raise exceptions.LongerThanRecorded(
            volume=volume.id, host=node.host, size=volume.size, kept=size_gib,
            found=found - rows.extra_bytes(volume) >> 30)


def as_told(node: Node) -> volume_attachments.Node:
    """Return a node as attachments call it."""
    return volume_attachments.Node(node.host, node.exports.has_portal)


def remote_from(node: Node, volume: objects.Volume
                ) -> Iterator[tuple[str, volume_attachments.Connection]]:
    """Where a volume that is at home here is passed through.

    :returns: service hosts, with how they have it
    """
    here = as_told(node)
    for host in node.other_nodes():
        connection = connection_to(node, volume, host)
        if connection and here.is_meant(connection):
            yield host, connection


def connection_to(node: Node, volume: objects.Volume, host: str
                  ) -> volume_attachments.Connection | None:
    """How a volume is passed through to a node, by its attachments."""
    found = (volume_attachments.remote_to(attachment, node.is_at, host)
             for attachment in volume.volume_attachment)
    return next((connection for connection in found if connection), None)


def unnamed_exports(node: Node, volume: objects.Volume,
                    move: state.Move | None) -> set[str]:
    """The iSCSI names of a volume's exports that no attachment names.

    :param move: the volume's move, if one is under way
    """
    return volume_attachments.unnamed(
        volume, move, as_told(node),
        node.exports.remote().get(rows.handle_id(volume), set()))
