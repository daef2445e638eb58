# SPDX-License-Identifier: Apache-2.0
"""Exports named by attachments, and late requests. Pure.

The home of a volume exports its handle to hosts without the backend, and to
nodes with a remote attachment. An attachment names its export by initiator,
iSCSI name and portal, so each node reads the attachments to know its exports
and removes all others. A node may have changed its host name or its address
since an attachment was made: a match of either is enough.

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
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.core import statuses

#: The keys of a connector to identify its host. A match of either is enough:
#: the host may have changed its name or its iSCSI name.
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


def connections(volume: objects.Volume) -> Iterator[Connection]:
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
    """Return the remote attachment of a node; None if this is not it.

    :param is_at: whether a connector belongs to the node of a service host
    :param host: service host of the node
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


def is_exported(volume: objects.Volume, move: state.Move | None,
                host: str) -> bool:
    """Return whether a node may export a volume to another host.

    The home may. During a live migration the source may as well: the guest
    still runs against its export. In a deferred move the source may until the
    handle on the destination is on the clone.
    """
    if move and _both_export(move):
        return host in (move.source, move.destination)
    return rows.is_home(volume, host)


def _both_export(move: state.Move) -> bool:
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

    def is_meant(self, connection: Connection) -> bool:
        """Return whether a connection is to this node."""
        return self.has_portal(connection.portal) or (
            iscsi.is_attached_from(connection.iqn, self.host))


def wanted(volume: objects.Volume, move: state.Move | None, node: Node
           ) -> list[Connection]:
    """Return the connections a node must export the volume for.

    :param move: the volume's move, if one is under way
    """
    if not is_exported(volume, move, node.host):
        return []
    return [each for each in connections(volume) if node.is_meant(each)]


def lost(volume: objects.Volume, move: state.Move | None, node: Node
         ) -> list[Connection]:
    """Return the connections that the home of a volume at rest can't export.

    Their portal has an address this node no longer has.
    """
    if move or not rows.is_home(volume, node.host):
        return []
    return [each for each in connections(volume) if not node.is_meant(each)]


def unnamed(volume: objects.Volume, move: state.Move | None, node: Node,
            exported: set[str]) -> set[str]:
    """Return a node's exports of a volume not named by any attachment.

    If only the home exports the volume, the portal is not compared: the
    address of the node may have changed, and a connected host must not lose
    its disk. The same is true at the source of a deferred move: the guest uses
    that export until its attachment names none.

    :param exported: iSCSI names of the volume's exports to hosts on the node
    """
    both = move is not None and _both_export(move)
    alone = rows.is_home(volume, node.host) and not both
    left = bool(move and both and move.is_deferred and node.host
                == move.source)
    named = (connections(volume) if alone or left
             else wanted(volume, move, node))
    return exported - {each.iqn for each in named}


def by_attachment(volume: objects.Volume, by_cinder: bool) -> bool:
    """Return whether every host with the volume over iSCSI has an attachment.

    Not so while Cinder itself reads or writes the volume, nor for a client
    that attaches in two calls, as clients did before attachments had a
    connector.

    :param by_cinder: whether Cinder's own migration or retype uses the volume
    """
    return (volume.status in statuses.BY_ATTACHMENT and not by_cinder
            and not any(not each.connector and each.mountpoint
                        for each in volume.volume_attachment))


def is_idle(volume: objects.Volume) -> bool:
    """Return whether no host has the volume, and no attach has begun.

    An attach changes the status first.
    """
    return volume.status == 'available' and not volume.volume_attachment


def of_request(volume: rows.Row) -> objects.Attachments:
    """Return a volume's attachments in the form that a request carries."""
    return {str(each.id): each.connector and {
        name: each.connector.get(name) for name in NAMES}
        for each in volume.volume_attachment}


def unsent(volume: rows.Row, recorded: rows.Row, connector: objects.Connector
           ) -> str | None:
    """Return a request's own attachment, if Cinder's API did not send it.

    ``attachment_update`` sends the volume with its attachments, the request's
    own among them, and refuses if any of them is connected.
    ``attachment_create`` with a connector, as Nova calls it for a live
    migration, reads the volume before it reserves the request's own attachment
    (both in cinder/volume/api.py). So its own is the oldest attachment without
    a host among the attachments not sent. Nova learns the id only from the
    answer. Nova's connector has a mount point (nova/volume/cinder.py). The
    connector of ``os-initialize_connection``, which has no attachment, lacks
    it. So if the connection is refused, a client other than Nova must itself
    delete an attachment created with a connector without a mount point.

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


def is_late_to_connect(volume: rows.Row, connector: objects.Connector | None,
                       before: objects.Attachments) -> bool:
    """Return whether a request to connect is older than its attachment.

    The request is late if no attachment for it is left, or if an attachment
    was replaced by a newer attachment.

    :param connector: None: the request may be for any attachment
    :param before: the attachments when Cinder's API asked
    """
    now = of_request(volume)
    if before.keys() - now.keys() and now.keys() - before.keys():
        return True
    meant = set(_meant(before, connector))
    # No attachment: Cinder itself asks, or a client that attaches in two
    # calls.
    return bool(meant and now and meant.isdisjoint(_meant(now, connector)))


def is_late_to_detach(volume: rows.Row, connector: objects.Connector | None,
                      before: objects.Attachments) -> bool:
    """Return whether a host may have a volume by a newer attachment.

    Cinder deletes an attachment after the driver's answer. So a request is in
    time if all attachments of the host are still there. If one is gone, an
    earlier request was for it, and this request may be for it too. An
    attachment without a host may be connected by now: Cinder records this
    after the driver's answer.

    :param connector: None: of all hosts
    :param before: the attachments when Cinder's API asked
    """
    now = of_request(volume)
    old, new = set(_meant(before, connector)), set(_meant(now, connector))
    named = {each for each in old if before[each]}
    if not named:  # an attach in two calls
        return any(now[each] or each not in old for each in new)
    if named - new:
        return bool(new)
    # In time, but the request leaves later attachments of the host alone.
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


def may_be_attached(volume: objects.Volume) -> bool:
    """Return whether an attachment lacks its connector or connection_info."""
    return bool(unsaid(volume))


def unsaid(volume: objects.Volume) -> list[objects.Attachment]:
    return [each for each in volume.volume_attachment
            if each.connection_info is None or not each.connector]


def check_in_time(volume: objects.Volume, host: str | None,
                  connector: objects.Connector | None,
                  attachments: objects.Attachments) -> None:
    """Check that a request to connect is not older than its attachment.

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
