# SPDX-License-Identifier: Apache-2.0
"""Exports named by attachments, and late requests. Pure.

The home of a volume exports its handle to hosts without the backend, and to
nodes with a remote attachment. An attachment names its export by initiator,
iSCSI name and portal, so each node reads the attachments to know its exports
and removes all others. A node may have changed its host name or its address
since an attachment was made: the attachment belongs to the node if its iSCSI
name has the host name, or its portal has an address of the node.

A request waits for a lock or for a service. Meanwhile Nova may detach twice,
or delete an attachment and create another. Therefore a request carries the
attachments as Cinder's API saw them.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any

from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.core import objects
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume

#: The keys of a connector to identify its host. Two connectors are of the same
#: host if one of the values is equal: the host may have changed the other.
NAMES = ('host', 'initiator')


@dataclasses.dataclass(frozen=True)
class Connection:
    """An attachment over iSCSI.

    :param initiator: iSCSI name of the host
    :param iqn: iSCSI name of the export in the attachment
    :param portal: portal of the export in the attachment
    :param properties: the connection_info of the attachment, with the CHAP
        secret
    :param is_remote: whether this is a remote attachment of a node
    """

    initiator: str
    iqn: str
    portal: str
    properties: Mapping[str, Any] = dataclasses.field(repr=False)
    is_remote: bool = False


def connections(volume: Volume) -> Iterator[Connection]:
    """Yield the iSCSI connections in a volume's attachments."""
    for attachment in volume.volume_attachment:
        connection = connection_of(attachment)
        if connection:
            yield connection


def connection_of(attachment: Any) -> Connection | None:
    """Return the iSCSI connection of an attachment; None without one."""
    properties = attachment.connection_info or {}
    initiator = (attachment.connector or {}).get('initiator')
    if not initiator or 'target_iqn' not in properties:
        return None
    return Connection(
        initiator, properties['target_iqn'], properties['target_portal'],
        properties, properties.get('driver_volume_type') == 'local')


def remote_to(attachment: Any, is_at: Callable[[Any, str], bool], host: str
              ) -> Connection | None:
    """Return an attachment's connection, if it is a node's remote attachment.

    :param is_at: whether a connector belongs to the node of a service host
    :param host: service host of the node
    :returns: None if this is not the remote attachment of the node
    """
    connection = connection_of(attachment)
    return connection if (
        connection and connection.is_remote
        and is_at(attachment.connector, host)) else None


def without_export(connection_info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection_info of an ended remote attachment.

    The handle stays; the keys of the export and its credentials go.
    """
    return {key: value for key, value in connection_info.items()
            if not key.startswith(('target_', 'auth_'))}


def may_export(volume: Volume, move: state.Move | None, host: str) -> bool:
    """Return whether a node may export a volume to another host.

    The home may. During a live migration the source may, too: the guest uses
    the source's export until it runs elsewhere. In a deferred move the source
    may until the destination has switched its handle from the export to the
    dm-clone device.
    """
    if move and _both_export(move):
        return host in (move.source, move.destination)
    return volume.home == host


def _both_export(move: state.Move) -> bool:
    """Return whether source and destination of a move may export."""
    return move.committed and (
        move.phase is Phase.STARTING
        or move.is_deferred and move.phase is Phase.MIGRATING)


@dataclasses.dataclass(frozen=True)
class Node:
    """A node, by its names in attachments.

    :param host: its service host
    :param has_portal: ``has_portal(portal)``: whether the node can export
        there
    """

    host: str
    has_portal: Callable[[str], bool]

    def has_export_of(self, connection: Connection) -> bool:
        """Return whether a connection's export is on this node."""
        return self.has_portal(connection.portal) or (
            iscsi.is_attached_from(connection.iqn, self.host))


def to_export(volume: Volume, move: state.Move | None, node: Node
              ) -> list[Connection]:
    """Return the connections a node must export the volume for.

    :param move: the volume's move, if one is under way
    """
    if not may_export(volume, move, node.host):
        return []
    return [each for each in connections(volume) if node.has_export_of(each)]


def with_stale_export(volume: Volume, move: state.Move | None, node: Node
                      ) -> list[Connection]:
    """Return the connections to exports that their home can't make any more.

    Neither portal nor iSCSI name belongs to this node. Only for a volume at
    rest on this node, else empty.
    """
    if move or volume.home != node.host:
        return []
    return [each
            for each in connections(volume) if not node.has_export_of(each)]


def exports_without_attachment(volume: Volume, move: state.Move | None,
                               node: Node,
                               exported: set[str]) -> set[str]:
    """Return a node's exports of a volume not named by any attachment.

    If only the home exports the volume, the portal is not compared: the
    address of the node may have changed, and a connected host must not lose
    its disk. The same is true at the source of a deferred move: the guest uses
    the source's export as long as its attachment names this export.

    :param exported: iSCSI names of the volume's exports to hosts on the node
    """
    both = move is not None and _both_export(move)
    alone = volume.home == node.host and not both
    left = bool(move and both and move.is_deferred
                and node.host == move.source)
    named = (connections(volume) if alone or left
             else to_export(volume, move, node))
    return exported - {each.iqn for each in named}


def names_all_users(volume: Volume) -> bool:
    """Return whether the attachments name every user of a volume's exports.

    Only then may an export without an attachment be removed. False while
    Cinder itself reads, writes or migrates the volume, and if a client
    attaches in two calls: such an attachment has a mount point and no
    connector.
    """
    return (volume.status in statuses.BY_ATTACHMENT
            and not volume.is_migrated_by_cinder
            and not any(not each.connector and each.mountpoint
                        for each in volume.volume_attachment))


def is_idle(volume: Volume) -> bool:
    """Return whether no host has the volume, and no attach has begun.

    The status "available" excludes a begun attach: an attach first changes the
    status.
    """
    return volume.status == 'available' and not volume.volume_attachment


def as_sent(volume: Volume) -> objects.Attachments:
    """Return a volume's attachments in the form carried by a request.

    :returns: by attachment id, the host's :data:`NAMES`; None without a host
    """
    return {str(each.id): each.connector and {
        name: each.connector.get(name) for name in NAMES}
        for each in volume.volume_attachment}


def own_unsent(volume: Volume, recorded: Volume, connector: objects.Connector
               ) -> str | None:
    """Return a request's own attachment, if Cinder's API did not send it.

    A client's request to connect comes from one of three calls of Cinder's API
    (cinder/volume/api.py):

    - ``attachment_update`` sends the volume with all its attachments, among
      them the request's own. It refuses if any of them is connected. So the
      own attachment was sent if attachments were sent, none of them connected.
    - ``attachment_create`` with a connector, as Nova calls it for a live
      migration, reads the volume before it reserves the own attachment. So the
      own attachment is missing in the request. It is the oldest attachment
      without a host among those in the row only.
    - ``os-initialize_connection`` has no own attachment. Its connector has no
      mount point; Nova's connector for the other calls has one
      (nova/volume/cinder.py).

    The caller deletes the returned attachment if it refuses the connection,
    because Nova does not know its id yet. Other clients may send no mount
    point with ``attachment_create``; they must delete the attachment.

    :param volume: the object that came with the request
    :param recorded: its row now
    :param connector: the connector of the request
    :returns: the attachment's id; None if it was sent, or is gone
    """
    sent = {str(each.id) for each in volume.volume_attachment}
    if not connector.get('mountpoint') or sent and not any(
            each.connection_info for each in volume.volume_attachment):
        return None
    own = min((each for each in recorded.volume_attachment
               if not each.connector and str(each.id) not in sent),
              key=lambda each: each.created_at, default=None)
    return str(own.id) if own else None


def is_late_to_connect(volume: Volume, connector: objects.Connector | None,
                       before: objects.Attachments) -> bool:
    """Return whether the attachment of a request to connect is gone.

    The request is late if the volume has lost an attachment and got another
    since Cinder's API asked, or if the request can be for none of its present
    attachments.

    It is in time if the volume has no attachment now: Cinder itself asks. It
    is also in time if no attachment was there for it: a client attaches in two
    calls, and makes the attachment last.

    :param connector: None: the request may be for any attachment
    :param before: the attachments when Cinder's API asked
    """
    now = as_sent(volume)
    if before.keys() - now.keys() and now.keys() - before.keys():
        return True
    meant = set(_meant(before, connector))
    return bool(meant and now and meant.isdisjoint(_meant(now, connector)))


def is_late_to_detach(volume: Volume, connector: objects.Connector | None,
                      before: objects.Attachments) -> bool:
    """Return whether a request to detach would cut off a newer attachment.

    Cinder deletes an attachment only after the driver has answered the request
    to detach it. So if all attachments of the host are still there, the
    request is in time, unless the host got another attachment meanwhile. If an
    attachment of the host is gone, an earlier request has detached it, and
    this request may be a repetition: it is late if the host still has any
    attachment.

    An attachment without a host may be connected by now: Cinder records the
    host after the driver's answer. So it counts as an attachment of the host.

    :param connector: None: of all hosts
    :param before: the attachments when Cinder's API asked
    """
    now = as_sent(volume)
    old, new = set(_meant(before, connector)), set(_meant(now, connector))
    named = {each for each in old if before[each]}
    if not named:  # an attach in two calls
        return any(now[each] or each not in old for each in new)
    if named - new:
        return bool(new)
    # All are still there. The host may have got another since.
    return any(now[each] != before.get(each) for each in new)


def _meant(found: objects.Attachments, connector: objects.Connector | None
           ) -> Iterator[str]:
    """Yield the ids of the attachments that a request may be for.

    These are the attachments of the connector's host, and all without a host.
    """
    for each, host in found.items():
        if not (connector and host) or any(
                connector.get(name) and connector[name] == host.get(name)
                for name in NAMES):
            yield each


def incomplete(volume: Volume) -> list[objects.Attachment]:
    """Return the attachments without a connector or a connection_info.

    Cinder's API creates an attachment with an empty connection_info, its
    manager writes the connector, and afterwards the API the connection_info
    (``attachment_create`` and ``attachment_update`` in cinder/volume/api.py).
    """
    return [each for each in volume.volume_attachment
            if not each.connection_info or not each.connector]


def check_in_time(volume: Volume, host: str | None,
                  connector: objects.Connector | None,
                  attachments: objects.Attachments) -> None:
    """Check that the attachment of a request to connect is not gone.

    See :func:`is_late_to_connect`.

    :param host: host of the connector
    :param connector: of that host; None if the request is for all attachments
    :param attachments: the attachments at the time of the request
    :raises Refused: if the request is late
    """
    if is_late_to_connect(volume, connector, attachments):
        raise exceptions.Refused(
            volume=volume.id, host=host, reason='the request came too late: '
                                                'its attachment was deleted, '
                                                'and the volume has another '
                                                'attachment.')
