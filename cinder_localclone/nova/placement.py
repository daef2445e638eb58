# SPDX-License-Identifier: Apache-2.0
"""The suitability of hosts for a server, by its volumes. Pure."""

from collections.abc import Mapping
import dataclasses
import functools

from cinder_localclone.core import hosts

#: Part of the greatest weight (1) for a node that the volumes can move to. The
#: rest is for their home.
NODE = 0.1


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume of a server.

    :param size: GiB
    :param home: host name of its home
    :param backend: name of the backend section there
    :param stays: whether it never moves, because it is in a group
    """

    id: str
    size: int
    home: str
    backend: str
    stays: bool = False
    encrypted: bool = False


@dataclasses.dataclass(frozen=True)
class Node:
    """A node of a backend, as Cinder knows it.

    :param up: whether its volume service is up
    :param free: GiB; None if Cinder's scheduler does not report it, as for a
        disabled service
    :param problems: why no volume can move there; '' if volumes can
    :param block: logical block size of its disks in bytes, which a volume
        keeps; None if unknown
    """

    up: bool
    free: float | None = None
    problems: str = ''
    block: int | None = None


@dataclasses.dataclass(frozen=True)
class Backend:
    """A backend section of this driver.

    :param nodes: by host name
    """

    nodes: Mapping[str, Node] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def names(self) -> hosts.Names:
        """The names of its nodes."""
        return hosts.Names(self.nodes)


#: The backends of this driver, by name.
Backends = Mapping[str, Backend]


@dataclasses.dataclass(frozen=True)
class Outlook:
    """The data for the placement of a server.

    :param volumes: the server's volumes on these backends
    :param names: Cinder's host name by Nova's, where they differ
    """

    volumes: tuple[Volume, ...] = ()
    backends: Backends = dataclasses.field(default_factory=dict)
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def refusal(self, host: str) -> str:
        """Return why a host can't take the server's volumes; '' if it can."""
        return '; '.join(filter(None, (
            self._refusal(host, backend) for backend in self._used())))

    def weight(self, host: str) -> float:
        """Return the weight of a host, from 0 to 1; 0 without volumes."""
        total = sum(volume.size for volume in self.volumes)
        if not total or self.refusal(host):
            return 0.0
        at_home = sum(volume.size for volume in self.volumes
                      if volume.home == self._name(host, volume.backend))
        takes = all(self._takes(host, backend) for backend in self._used())
        return takes * NODE + (1 - NODE) * at_home / total

    def _used(self) -> list[str]:
        return sorted({volume.backend for volume in self.volumes})

    def _name(self, host: str, backend: str) -> str | None:
        """Return Cinder's name of a host; None for no node of the backend."""
        return self.backends[backend].names.match(
            self.names.get(host, host))

    def _takes(self, host: str, backend: str) -> bool:
        name = self._name(host, backend)
        if name is None:
            return False
        node = self.backends[backend].nodes[name]
        return node.up and node.free is not None

    def _refusal(self, host: str, backend: str) -> str:
        name = self._name(host, backend)
        away = [volume for volume in self.volumes
                if volume.backend == backend and volume.home != name]
        if not away:
            return ''
        nodes = self.backends[backend].nodes
        for volume in away:  # only its home has the data
            if volume.home in nodes and not nodes[volume.home].up:
                return _down(volume.home, backend)
        if name is None:  # exported over iSCSI
            encrypted = [each.id for each in away if each.encrypted]
            return encrypted and (
                'volume %s is encrypted, and the host is not a node of "%s"'
                % (encrypted[0], backend)) or ''
        node = nodes[name]
        if not node.up:
            return _down(name, backend)
        moving = [each for each in away if not each.stays]
        return next(filter(None, (
            _other_block(nodes.get(each.home), node) for each in moving)),
            '') or _lack(node, sum(each.size for each in moving))


def _down(host: str, backend: str) -> str:
    return 'volume service %s@%s is down' % (host, backend)


def _other_block(home: Node | None, node: Node) -> str:
    """Return why a volume can't keep its block size on a node, or ''."""
    if home is None or None in (home.block, node.block) or (
            home.block == node.block):
        return ''
    return ('its disks have sectors of %s bytes, the volume\'s home has '
            'sectors of %s bytes' % (node.block, home.block))


def _lack(node: Node, size: int) -> str:
    """Return why volumes can't move to a node; '' if they can.

    :param size: GiB of all the volumes
    """
    if not size:
        return ''
    if node.problems:
        return node.problems
    if node.free is not None and size > node.free:
        return '%d GiB of volumes, %.1f GiB free' % (size, node.free)
    return ''
