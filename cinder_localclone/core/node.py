# SPDX-License-Identifier: Apache-2.0
"""What the work on this node needs, in one value."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import functools

from cinder_localclone import crypt_ports
from cinder_localclone import listing as listings
from cinder_localclone import names
from cinder_localclone import pace
from cinder_localclone import peer_ports
from cinder_localclone import ports
from cinder_localclone import queue
from cinder_localclone import record_ports
from cinder_localclone import state

#: The name of the lock around free space, beside those of volumes.
FREE_SPACE = 'free-space'


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
    records: record_ports.Records
    snapshots: record_ports.SnapshotRecords
    secrets: crypt_ports.Secrets
    attachments: record_ports.AttachmentRecords
    stack: ports.Stack
    crypt: crypt_ports.Crypt
    keys: crypt_ports.Keys
    runner: crypt_ports.Runner
    exports: ports.Exports
    sessions: ports.Sessions
    peers: peer_ports.Peers
    geometry: state.Geometry
    lock: Callable[[str], contextlib.AbstractContextManager[None]]
    try_lock: Callable[[str], contextlib.AbstractContextManager[None]]
    is_at: Callable[[ports.Connector, str], bool]
    clear: Callable[[str, int], None]
    limits: queue.Limits = queue.Limits()
    pacing: pace.Settings = pace.Settings()
    compare_wait: float = 3600
    authenticates: bool = False
    tell: Callable[[state.Milestone, state.Move], None] = (
        lambda _milestone, _move: None)
    detached: dict[str, float] = dataclasses.field(default_factory=dict)
    asked: dict[str, float] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def listing(self) -> listings.Listing:
        """The LVs of this node, for those who check its free space."""
        return listings.Listing(lambda: self.stack.lvs())

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
        return {host: alive for host, alive in self.records.services().items()
                if host != self.host and names.same_backend(host, self.host)}
