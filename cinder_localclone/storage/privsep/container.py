# SPDX-License-Identifier: Apache-2.0
"""Whether this process runs in a container, as far as /proc shows it.

A container has a PID namespace of its own, or another root than process 1 of
the host. Some processes can't see process 1: /proc may be mounted with an
option such as ``hidepid=ptraceable``. Then nothing tells a container in the
host's PID namespace from the host. These functions need no privilege, and each
process asks for itself.
"""

from collections.abc import Mapping
import dataclasses
import os

#: The inodes of the first namespaces (PROC_*_INIT_INO of the kernel).
FIRST = {'pid': 0xEFFFFFFC, 'ipc': 0xEFFFFFFF}


@dataclasses.dataclass(frozen=True)
class Isolation:
    """The parts of its environment that a process has apart from its host.

    :param own: its own namespaces, of :data:`FIRST`
    :param has_own_root: whether it has another root than process 1 of its PID
        namespace; None if /proc does not show both
    :param mounts: the file system of each mount point
    """

    own: frozenset[str]
    has_own_root: bool | None
    mounts: Mapping[str, str]

    @property
    def is_container(self) -> bool | None:
        """Whether the process runs in a container; None if unknown."""
        return True if 'pid' in self.own else self.has_own_root


def isolation(proc: str = '/proc') -> Isolation:
    """Return the isolation of this process.

    A service with a mount namespace of its own has the root of its host.
    """
    mounts, hosts = (_mounts(proc, pid) for pid in ('self', '1'))
    try:
        own = frozenset(name for name, first in FIRST.items()
                        if _namespace(proc, name) not in (first, None))
    except OSError:
        own, hosts = frozenset(), None
    return Isolation(
        own, None if mounts is None or hosts is None
        else _root(mounts) != _root(hosts),
        {point: kind for _device, point, kind in mounts or ()})


def _namespace(proc: str, name: str) -> int | None:
    """Return the inode of a namespace; None if the kernel has none."""
    try:
        return os.stat(os.path.join(proc, 'self/ns', name)).st_ino
    except FileNotFoundError:
        return None


def _mounts(proc: str, pid: str) -> list[tuple[str, str, str]] | None:
    """Return (device and its directory, mount point, file system) of each.

    /proc/PID/root is closed to the daemon, which lacks CAP_SYS_PTRACE.

    :returns: None if the process can't be seen
    """
    found = []
    try:
        with open(os.path.join(proc, pid, 'mountinfo')) as file:
            for line in file:
                before, _dash, after = line.partition(' - ')
                words = before.split()
                found.append(
                    (' '.join(words[2:4]), words[4], after.split()[0]))
    except OSError:
        return None
    return found


def _root(mounts: list[tuple[str, str, str]]) -> list[str]:
    """Return which directory of which file system is the root of a process.

    :returns: [] for a root made by chroot(2)
    """
    return [where for where, point, _kind in mounts if point == '/'][-1:]
