# SPDX-License-Identifier: Apache-2.0
"""Find the node of a connector."""

from collections.abc import Iterable
from concurrent import futures
import threading
import time

from cinder_localclone.core import exceptions
from cinder_localclone.core import hosts as host_names
from cinder_localclone.core.interfaces import peers as interfaces
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import iscsi
from cinder_localclone.core import objects
from cinder_localclone.core import rpc

#: Seconds for which the addresses of a node are cached.
BELIEVED = 600
#: The number of nodes asked in parallel.
AT_ONCE = 32
#: Seconds before a silent node is asked again.
PAUSE = 60


class Directory:
    """The nodes of this backend, by host name and by IP address.

    Nodes are the volume services with the same backend section name. A
    connector is matched by host name, then by IP address. Each node is asked
    for its addresses when they are needed. It is asked again after some
    minutes, because another node may have an address by then.

    :param host: this service's host
    """

    def __init__(self, host: str, services: records.Services,
                 peers: rpc.Calls):
        self.host = host
        self._services = services
        self.peers = peers
        self._addresses: dict[str, frozenset[str]] = {}
        self._knowing = threading.Lock()
        #: When each other node is asked again, in monotonic seconds.
        self._again: dict[str, float] = {}

    def find(self, connector: objects.Connector) -> str | None:
        """Return the service host of the connecting node; None if unknown.

        :raises PeerDown: if the node with the connector's name is down
        """
        nodes = self._nodes()
        match = _by_name(connector, nodes)
        if match is None:
            alive = [host for host, is_alive in nodes.items() if is_alive]
            return self._find_by_address(_address(connector), alive, alive)
        if not nodes[match] and match != self.host:
            raise exceptions.PeerDown(host=match)
        return match

    def is_at(self, connector: objects.Connector, host: str) -> bool:
        """Return whether a connector belongs to the node of a service host.

        The node may be down. If the connector names no node, and the cached
        addresses are too old, all live nodes are asked.
        """
        nodes = self._nodes()
        match = _by_name(connector, nodes)
        if match is None:
            return host in nodes and host == self._find_by_address(
                _address(connector), list(nodes),
                [each for each, alive in nodes.items() if alive])
        return match == host

    def know(self, host: str, addresses: Iterable[str]) -> None:
        """Store the addresses of a node, and remove them from other nodes."""
        found = frozenset(map(iscsi.plain, addresses))
        with self._knowing:
            if host != self.host:  # this node knows its own
                found -= self._addresses.get(self.host, frozenset())
            # A single assignment, because readers take no lock.
            self._addresses = {
                **{each: theirs - found for each, theirs
                   in self._addresses.items()}, host: found}

    def _nodes(self) -> dict[str, bool]:
        backend = self.host.partition('@')[2]
        return {host: alive for host, alive in
                self._services.alive_by_host().items()
                if host.partition('@')[2] == backend}

    def _find_by_address(self, address: str | None,
                         hosts: list[str], alive: list[str]) -> str | None:
        """Return the host with an address; None if no host has it.

        :param alive: the hosts to ask for their addresses
        """
        if address is None:
            return None
        if address in self._addresses.get(self.host, ()):
            return self.host if self.host in hosts else None
        now = time.monotonic()
        self._ask([
            host for host in alive
            if host != self.host and self._again.get(host, now) <= now])
        return next((host for host in hosts
                     if address in self._addresses.get(host, ())), None)

    def _ask(self, hosts: list[str]) -> None:
        """Ask nodes for their addresses, and store them.

        All nodes are asked in parallel: the caller may hold the lock of a
        volume, and other requests wait for this lock only for a limited time.
        """
        if not hosts:
            return
        with futures.ThreadPoolExecutor(min(len(hosts), AT_ONCE)) as pool:
            answers = list(pool.map(
                self._addresses_of, hosts))
        now = time.monotonic()
        for host, addresses in zip(hosts, answers):
            if addresses is None:  # its last answer counts
                self._again[host] = now + PAUSE
            else:
                self.know(host, addresses)
                self._again[host] = now + BELIEVED

    def _addresses_of(self, host: str) -> list[str] | None:
        """Return the addresses of a node; None if it does not answer."""
        try:
            found: list[str] = rpc.call_at(
                host, interfaces.describe, self)['addresses']
        except exceptions.LocalCloneError:
            return None
        return found


def _address(connector: objects.Connector) -> str | None:
    ip = connector.get('ip')
    return iscsi.plain(ip) if ip else None


def _by_name(connector: objects.Connector, hosts: Iterable[str]) -> str | None:
    """Return the service host with the connector's host name; or None."""
    return host_names.Names(hosts).match(connector.get('host') or '')
