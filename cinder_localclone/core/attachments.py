# SPDX-License-Identifier: Apache-2.0
"""Exports that attachments name, and requests that come late. Pure.

The home of a volume exports its handle to hosts without the backend, and to
nodes that use the volume by a remote attachment. An attachment names each
export: by initiator, iSCSI name and portal. So each node tells from the
attachments which exports it must have, and removes all others. A node may have
got another host name, or another address, since an attachment was made: one of
the two is enough.

A request waits for a lock or for a service. Meanwhile Nova may ask for a
detach twice, or give an attachment up and make another. So a request carries
the attachments of the moment at which Cinder's API asked.
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

#: What of a connector says which host it is of: either is enough, for a host
#: may have got another name or another iSCSI name since.
NAMES = ('host', 'initiator')


@dataclasses.dataclass(frozen=True)
class Connection:
    """An attachment over iSCSI.

    :param initiator: iSCSI name of the host that has the volume
    :param iqn: what it was told that the export is named
    :param portal: where it was told that the export is
    :param properties: all that it was told, the CHAP secret too
    :param passes: whether that host passes it through
    """

    initiator: str
    iqn: str
    portal: str
    properties: Mapping[str, Any] = dataclasses.field(repr=False)
    is_remote: bool = False


def connections(volume: objects.Volume) -> Iterator[Connection]:
    """Which hosts have a volume over iSCSI, by Cinder's records."""
    for attachment in volume.volume_attachment:
        connection = connection_of(attachment)
        if connection:
            yield connection


def connection_of(attachment: Any) -> Connection | None:
    """How an attachment has its volume over iSCSI, if it does."""
    properties = attachment.connection_info or {}
    initiator = (attachment.connector or {}).get('initiator')
    if not initiator or 'target_iqn' not in properties:
        return None
    return Connection(
        initiator, properties['target_iqn'], properties['target_portal'],
        properties, properties.get('driver_volume_type') == 'local')


def remote_to(attachment: Any, is_at: Callable[[Any, str], bool], host: str
              ) -> Connection | None:
    """How an attachment's volume is passed through to a node, if it is.

    :param is_at: whether a connector belongs to the node of a service host
    """
    connection = connection_of(attachment)
    return connection if (
        connection and connection.is_remote
        and is_at(attachment.connector, host)) else None


def without_export(connection_info: Mapping[str, Any]) -> dict[str, Any]:
    """What an attachment says of a handle that is passed through no more."""
    return {key: value for key, value in connection_info.items()
            if not key.startswith(('target_', 'auth_'))}


def is_exported(volume: objects.Volume, move: state.Move | None,
                host: str) -> bool:
    """Whether a node may serve a volume to another host.

    Its home does. During a live migration the source does as well: the
    guest is still where that serves it. So it does if the volume follows its
    instance, for as long as the handle there is not on the clone.
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
    """A node, by what attachments may call it.

    :param host: its service host
    :param has_portal: ``has_portal(portal)``: whether it can export there
    """

    host: str
    has_portal: Callable[[str], bool]

    def is_meant(self, connection: Connection) -> bool:
        """Return whether a connection is with this node."""
        return self.has_portal(connection.portal) or (
            iscsi.is_attached_from(connection.iqn, self.host))


def wanted(volume: objects.Volume, move: state.Move | None, node: Node
           ) -> list[Connection]:
    """Those that a node must serve.

    :param move: the volume's move, if one is under way
    """
    if not is_exported(volume, move, node.host):
        return []
    return [each for each in connections(volume) if node.is_meant(each)]


def lost(volume: objects.Volume, move: state.Move | None, node: Node
         ) -> list[Connection]:
    """Return those of a volume at rest that its home can't make again.

    They are with an address that it does not have any more.
    """
    if move or not rows.is_home(volume, node.host):
        return []
    return [each for each in connections(volume) if not node.is_meant(each)]


def unnamed(volume: objects.Volume, move: state.Move | None, node: Node,
            exported: set[str]) -> set[str]:
    """What a node serves though no attachment names it.

    Where its home alone serves it a portal does not count: the node's address
    may have been changed since, which need not end what is connected. Nor
    does it at the source of a deferred move: the guest has its volume from
    there until its attachment names no export any more.

    :param served: iSCSI names of the volume's remote exports on the node
    """
    both = move is not None and _both_export(move)
    alone = rows.is_home(volume, node.host) and not both
    left = bool(move and both and move.is_deferred and node.host
                == move.source)
    named = (connections(volume) if alone or left
             else wanted(volume, move, node))
    return exported - {each.iqn for each in named}


def by_attachment(volume: objects.Volume, by_cinder: bool) -> bool:
    """Whether whoever has a volume over iSCSI has an attachment that says so.

    Not Cinder itself; nor a client that attaches in two calls of its own,
    as was done before attachments were told the connector.

    :param by_cinder: whether Cinder's own migration or retype has it
    """
    return (volume.status in statuses.BY_ATTACHMENT and not by_cinder
            and not any(not each.connector and each.mountpoint
                        for each in volume.volume_attachment))


def is_idle(volume: objects.Volume) -> bool:
    """Nothing is attached, and nothing is about to be.

    What attaches a volume changes its status first.
    """
    return volume.status == 'available' and not volume.volume_attachment


def of_request(volume: rows.Row) -> objects.Attachments:
    """The attachments that a volume has, as a request carries them."""
    return {str(each.id): each.connector and {
        name: each.connector.get(name) for name in NAMES}
        for each in volume.volume_attachment}


def unsent(volume: rows.Row, recorded: rows.Row, connector: objects.Connector
           ) -> str | None:
    """Return the id of a request's own attachment if Cinder's API sent others.

    ``attachment_update`` sends the volume with its attachments, the request's
    own among them, and refuses if one of them is connected.
    ``attachment_create`` with a connector, as Nova calls it for a live
    migration, reads the volume before it reserves the request's own (both in
    cinder/volume/api.py). That is the oldest one without a host that the
    volume sent does not have. Nova learns its id only from the answer. Its
    connector has the mount point (nova/volume/cinder.py); that of
    ``os-initialize_connection``, for which there is no attachment, has not.
    So a client other than Nova must delete an attachment that it created with
    a connector without a mount point, if the connection is refused.

    :param volume: the object that came with the request
    :param recorded: its row now
    :returns: None if it was sent, or is gone
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
    """Whether a request to connect a volume is older than its attachment.

    It is if no attachment is left that it may be for; or if one is gone, and
    there is a newer one.

    :param connector: None: it may be for any attachment
    :param before: the attachments when Cinder asked
    """
    now = of_request(volume)
    if before.keys() - now.keys() and now.keys() - before.keys():
        return True
    meant = set(_meant(before, connector))
    # Without one, Cinder itself asks, or a client that attaches in two calls.
    return bool(meant and now and meant.isdisjoint(_meant(now, connector)))


def is_late_to_detach(volume: rows.Row, connector: objects.Connector | None,
                      before: objects.Attachments) -> bool:
    """Whether a host may have a volume by another attachment than was meant.

    Cinder deletes what is detached after the driver has answered. So a
    request is in time if all that named the host are there. If one is gone,
    an earlier request was for it, as this one may be; and what names no host
    may be connected by now: Cinder records that after the driver's answer.

    :param connector: None: of all hosts
    :param before: the attachments when Cinder asked
    """
    now = of_request(volume)
    old, new = set(_meant(before, connector)), set(_meant(now, connector))
    named = {each for each in old if before[each]}
    if not named:  # of whoever attaches in two calls
        return any(now[each] or each not in old for each in new)
    if named - new:
        return bool(new)
    # It is in time, but means nobody who has got the volume since.
    return any(now[each] != before.get(each) for each in new)


def _meant(found: objects.Attachments, connector: objects.Connector | None
           ) -> Iterator[str]:
    """Ids of those that a request may be for.

    Of the host that the connector names, and of those that name none yet.
    """
    for each, host in found.items():
        if not (connector and host) or any(
                connector.get(name) and connector[name] == host.get(name)
                for name in NAMES):
            yield each


def may_be_attached(volume: objects.Volume) -> bool:
    """Return whether an attachment does not say yet where, or how."""
    return bool(unsaid(volume))


def unsaid(volume: objects.Volume) -> list[objects.Attachment]:
    return [each for each in volume.volume_attachment
            if each.connection_info is None or not each.connector]


def check_in_time(volume: objects.Volume, host: str | None,
                  connector: objects.Connector | None,
                  attachments: objects.Attachments) -> None:
    """A request to connect a volume is not older than its attachment.

    :param host: where it is to be connected
    :param connector: that host's; None if all attachments may be meant
    :param attachments: those that there were when it was made
    :raises Refused: if it is
    """
    if is_late_to_connect(volume, connector, attachments):
        raise exceptions.Refused(
            volume=volume.id, host=host, reason='the request came late: its '
            'attachment does not exist any more, and the volume has another '
            'one.')
