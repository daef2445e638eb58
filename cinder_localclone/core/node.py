# SPDX-License-Identifier: Apache-2.0
"""Everything that acts on this node, as one value.

From the check for free space to the allocation, LVM is asked only once.
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
from cinder_localclone.core import events
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
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume

#: The name of the lock of free space, beside the locks of volumes.
FREE_SPACE = 'free-space'

#: Seconds for which LVM's last answer is used.
FRESH = 2.0

_Volumes = Mapping[str, lvm_reports.LogicalVolume]


class Listing:
    """The LVs of a node, kept from the check for free space to the allocation.

    An allocation holds the lock of free space and drops the kept listing
    (:meth:`spend`). So an answer of LVM from before an allocation, or during
    it, is never used after it.

    :param lvs: asks LVM
    """

    def __init__(self, lvs: Callable[[], _Volumes]):
        self._lvs = lvs
        #: The number of allocations; and of the last listing: this number when
        #: LVM was asked, the time, and the LVs.
        self._taken = 0
        self._last: tuple[int, float, _Volumes] | None = None

    def ask(self, now: float) -> _Volumes:
        """Return all LVs as they are now."""
        taken = self._taken
        lvs = self._lvs()
        self._last = taken, now, lvs
        return lvs

    def recent(self, now: float) -> _Volumes:
        """Return all LVs as they are now, or were moments ago.

        The caller holds the lock of free space.
        """
        last = self._last
        if last and last[0] == self._taken and now - last[1] < FRESH:
            return last[2]
        return self.ask(now)

    def spend(self) -> None:
        """Drop the kept listing: free space may have been taken."""
        self._taken += 1


@dataclasses.dataclass(frozen=True)
class Node:
    """Everything that acts on one node, and the settings of the node.

    :param host: this service's host, without pool
    :param geometry: geometry of new moves from this node
    :param lock: ``lock(volume_id)`` takes this node's lock on a volume; raises
        Busy after a time limit
    :param try_lock: the same for sweeps and checks: raises Busy at once. A
        queued sweep would delay a request, and the holder of the lock finishes
        the work on the volume itself
    :param is_at: ``is_at(connector, host)``: whether a connector belongs to
        the node of a service host
    :param clear: ``clear(lv_name, size_bytes)`` overwrites an LV's data before
        it is removed, where thick volumes would leak it
    :param limits: maximum numbers of running copies, for all nodes
    :param pacing: settings of the copies to this node
    :param compare_wait: seconds for which a copy's end waits for the
        comparison with its source
    :param authenticates: whether new volumes may be authenticated
    :param tell: ``tell(milestone, move)`` writes it to the log and sends
        Cinder's notification; it raises nothing
    :param detached: time of each detach here, by attachment id, in monotonic
        seconds. Cinder deletes the attachment only afterwards
    :param asked: time of the last request to this node to continue an
        extension, by volume id, in monotonic seconds
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
        """The LVs of this node, for checks of its free space."""
        return Listing(lambda: self.lvm.lvs())

    @contextlib.contextmanager
    def allocation_lock(self) -> Iterator[None]:
        """Hold the lock of free space from the check to the allocation.

        :raises Busy: if the lock is not free in time
        """
        with self.lock(FREE_SPACE):
            try:
                yield
            finally:
                self.listing.spend()

    def other_nodes(self) -> dict[str, bool]:
        """Return the other nodes of the backend.

        :returns: whether the node is alive, by service host
        """
        return {host: alive for host,
                alive in self.services.alive_by_host().items()
                if host != self.host and names.same_backend(host, self.host)}


def attempt(node: Node, key: str, act: Callable[[], object],
            tell: Callable[[Exception], None]) -> bool:
    """Act on one volume of a sweep, under its lock.

    The sweep continues with the next volume after any error. If the lock is
    taken, its holder, or the next sweep, does the work.

    :param key: id of the volume, or of the snapshot
    :param act: the work to do
    :param tell: logs the error; "will retry" is true
    :returns: whether the work was done
    """
    try:
        with node.try_lock(key):
            act()
    except exceptions.Busy:
        return False
    except Exception as exc:  # from the database, sysfs, a missing command
        tell(exc)
        return False
    return True


def cached_is_at(is_at: Callable[[objects.Connector, str], bool]
                 ) -> Callable[[objects.Connector, str], bool]:
    """Return :meth:`Directory.is_at` with a cache, for one sweep or check."""
    answers: dict[tuple[typing.Any, ...], bool] = {}

    def answer(connector: objects.Connector, host: str) -> bool:
        key = connector.get('host'), connector.get('ip'), host
        if key not in answers:
            answers[key] = is_at(connector, host)
        return answers[key]
    return answer


def volume_at_home(node: Node, volume_id: str) -> Volume:
    """Return a volume whose home is this node.

    :raises StaleMove: if this node is not its home (any more), or the volume
        is gone
    """
    volume = node.volumes.volume(volume_id)
    if volume is not None and volume.is_misplaced and (
            volume.home == node.host
            and has_lv(node, volume_id, volume.name)):
        volume = correct_home(node, volume)
    if (volume is None or volume.home != node.host
            or volume.is_misplaced):  # another node has the name of its home
        raise exceptions.StaleMove(volume=volume_id)
    return volume


def has_lv(node: Node, volume_id: str, lv: str) -> bool:
    """Return whether this node has an LV of this name with a volume's data.

    The LV's tags decide. A failed creation may have left an uncommitted LV: it
    counts only if Cinder has taken it. The LV of a revert always counts,
    because its name is unique.
    """
    found = node.lvm.lvs().get(lv)
    return _is_of(found, volume_id) and (
        has_committed_lv(found, volume_id, lv)
        or is_taken(node, node.volumes.last_known(volume_id), lv))


def has_committed_lv(found: lvm_reports.LogicalVolume | None, volume_id: str,
                     lv: str) -> bool:
    """Return whether an LV has a volume's data, whatever the volume's row.

    :param found: the LV of this name
    """
    return found is not None and _is_of(found, volume_id) and (
        names.UNCOMMITTED not in found.tags
        or volume_id not in names.ids_in(lv))


def _is_of(found: lvm_reports.LogicalVolume | None, volume_id: str) -> bool:
    return found is not None and (
        names.facts(found.tags).get('volume') == volume_id)


def is_taken(node: Node, recorded: rows.Uncommitted | None, lv: str) -> bool:
    """Return whether Cinder has taken an uncommitted LV of this node.

    :param recorded: the facts of its volume's row
    """
    return (recorded is not None and not recorded.deleted
            and (recorded.home, recorded.lv) == (node.host, lv)
            and recorded.status not in statuses.NOT_GIVEN_OUT)


def correct_home(node: Node, volume: Volume) -> Volume | None:
    """Let a volume's row name this node, its home.

    See :mod:`cinder_localclone.volumes.homes`.

    :param volume: its present row, which names another node
    :returns: the row afterwards
    """
    if node.volumes.correct_home(volume, node.host):
        events.say(events.HOME_CORRECTED, volume=volume.id,
                   host=names.service_host(volume.host))
    return node.volumes.volume(volume.id)


def check_length(node: Node, volume: Volume, size_gib: int = 0) -> None:
    """Check that the size in a volume's row covers all of its data.

    The caller holds the volume's lock, at its home.

    :param size_gib: GiB to keep; 0: the size in its row
    :raises LongerThanRecorded: if users may have written more
    """
    size_gib = size_gib or volume.size
    backing = volume.backing_bytes(size_gib)
    found = node.handles.shown_bytes(volume.id, volume.name, backing)
    # LVM rounds up to whole extents, by less than a GiB unless a tag says so.
    if found - backing >= state.GIB:
        raise exceptions.LongerThanRecorded(
            volume=volume.id, host=node.host, size=volume.size, kept=size_gib,
            found=found - volume.extra_bytes >> 30)


def exporter(node: Node) -> volume_attachments.Node:
    """Return a node by its names in attachments."""
    return volume_attachments.Node(node.host, node.exports.has_portal)


def remote_from(node: Node, volume: Volume
                ) -> Iterator[tuple[str, volume_attachments.Connection]]:
    """Yield the remote attachments of a volume with this node as its home.

    :returns: pairs of service host and connection
    """
    here = exporter(node)
    for host in node.other_nodes():
        connection = connection_to(node, volume, host)
        if connection and here.has_export_of(connection):
            yield host, connection


def connection_to(node: Node, volume: Volume, host: str
                  ) -> volume_attachments.Connection | None:
    """Return the remote attachment of a volume to a node; None without."""
    found = (volume_attachments.remote_to(attachment, node.is_at, host)
             for attachment in volume.volume_attachment)
    return next((connection for connection in found if connection), None)


def unnamed_exports(node: Node, volume: Volume,
                    move: state.Move | None) -> set[str]:
    """Return a volume's exports not named by any attachment, by iSCSI name.

    :param move: the volume's move, if one is under way
    """
    return volume_attachments.exports_without_attachment(
        volume, move, exporter(node),
        node.exports.remote().get(volume.handle_id, set()))
