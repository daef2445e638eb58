# SPDX-License-Identifier: Apache-2.0
"""Which node a connector belongs to."""

from collections.abc import Callable
from collections.abc import Iterable
import typing

from cinder_localclone import exceptions
from cinder_localclone import host_names
from cinder_localclone import iscsi_target
from cinder_localclone import peer_ports
from cinder_localclone import ports
from cinder_localclone import record_ports


class Directory:
    """The nodes of this backend, by host name and by IP address.

    Nodes are the volume services whose backend section has the same name as
    this one's. A connector is matched by host name, then by IP address,
    which each node is asked for once.

    :param host: this service's host
    """

    def __init__(self, host: str, records: record_ports.Services,
                 peers: peer_ports.Peers):
        self.host = host
        self._records = records
        self._peers = peers
        self._addresses: dict[str, frozenset[str]] = {}

    def find(self, context: ports.Context, connector: ports.Connector
             ) -> str | None:
        """The service host of the connecting node; None if it is none.

        :raises PeerUnreachable: if the node that matches by name is down
        """
        nodes = self._nodes()
        match = _by_name(connector, nodes)
        if match is None:
            return self._find_by_address(
                context, _address(connector),
                [host for host, alive in nodes.items() if alive])
        if not nodes[match] and match != self.host:
            raise exceptions.PeerUnreachable(
                host=match, method='heartbeat', seconds='service_down_time')
        return match

    def is_at(self, connector: ports.Connector, host: str) -> bool:
        """Whether a connector belongs to the node of a service host.

        Alive or not; an address counts if that node was asked for its own.
        """
        match = _by_name(connector, self._nodes())
        if match is None:
            return _address(connector) in self._addresses.get(host, ())
        return match == host

    def know(self, host: str, addresses: Iterable[str]) -> None:
        """Remember a node's addresses."""
        self._addresses[host] = frozenset(map(iscsi_target.plain, addresses))

    def _nodes(self) -> dict[str, bool]:
        backend = self.host.partition('@')[2]
        return {host: alive for host, alive in
                self._records.services().items()
                if host.partition('@')[2] == backend}

    def _find_by_address(self, context: ports.Context, address: str | None,
                         hosts: list[str]) -> str | None:
        for host in hosts:
            if address and host not in self._addresses:
                try:
                    self.know(host, self._peers.describe(
                        context, host)['addresses'])
                except exceptions.PeerUnreachable:
                    continue
        return next((host for host in hosts
                     if address in self._addresses.get(host, ())), None)


def _address(connector: ports.Connector) -> str | None:
    ip = connector.get('ip')
    return iscsi_target.plain(ip) if ip else None


def _by_name(connector: ports.Connector, hosts: Iterable[str]) -> str | None:
    """The service host of the node that a connector names, if it is one."""
    return host_names.Names(hosts).match(connector.get('host') or '')


def remembered(is_at: Callable[[ports.Connector, str], bool]
               ) -> Callable[[ports.Connector, str], bool]:
    """:meth:`Directory.is_at` for one look, which asks for each host once."""
    answers: dict[tuple[typing.Any, ...], bool] = {}

    def answer(connector: ports.Connector, host: str) -> bool:
        key = connector.get('host'), connector.get('ip'), host
        if key not in answers:
            answers[key] = is_at(connector, host)
        return answers[key]
    return answer
