# SPDX-License-Identifier: Apache-2.0
"""Checks of the container in which ``cinder-localclone doctor`` runs.

udev's rules, LVM's filter and the kernel's modules belong to the host. In a
container the doctor sees the mounts of the engine; files of the image say
nothing about the host.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import os
import sys

from cinder_localclone.cmd.doctor.checks import FAIL
from cinder_localclone.cmd.doctor.checks import Finding
from cinder_localclone.cmd.doctor.checks import OK
from cinder_localclone.cmd.doctor.checks import RULE_DIRECTORIES
from cinder_localclone.cmd.doctor.checks import RULES
from cinder_localclone.cmd.doctor.checks import WARN

#: Directories of the host needed by the driver.
NEEDED = ('/dev', '/run', '/lib/modules', '/sys/kernel/config', '/etc/iscsi')
LVM = '/etc/lvm'
#: Sources of the key of a host, for systemd-creds.
CREDENTIALS = ('/var/lib/systemd', '/etc/machine-id')
MOUNT = 'mount in the container (kolla: cinder_volume_extra_volumes): '


@dataclasses.dataclass(frozen=True)
class Container:
    """The parts of its host in a container.

    :param own: its own namespaces, "pid" and "ipc"
    :param mounts: the file system of each mount point
    """

    own: frozenset[str]
    mounts: Mapping[str, str]

    def is_hosts(self, path: str) -> bool:
        """Return whether a path is on a mount, and not in the image.

        /dev of an engine is a tmpfs, with few devices.
        """
        path = os.path.realpath(path)
        if path == '/dev':
            return self.mounts.get(path) == 'devtmpfs'
        while path != '/' and path not in self.mounts:
            path = os.path.dirname(path)
        return path != '/'


def unknown() -> Finding:
    """Report that the doctor can't tell a container from its host."""
    return Finding(
        'container', WARN, 'it is not known whether this is a container: '
        '/proc does not show process 1. In a container, the checks of udev '
        'rules and of the LVM filter below are about the image',
        'run doctor as root, or mount /proc without hidepid')


def namespaces(container: Container) -> list[Finding]:
    """Check the namespaces of a container, and what is mounted in it."""
    check = 'container'
    if 'ipc' in container.own:
        return [Finding(
            check, FAIL, 'it has its own IPC namespace: LVM and dmsetup wait '
            'for udev without end', 'run the container with ipc_mode: host '
            '(docker run --ipc=host)')]
    missing = [each for each in NEEDED if not container.is_hosts(each)]
    if missing:
        return [Finding(
            check, FAIL, 'not mounted from the host: ' + ', '.join(missing),
            _mount(*missing))]
    return [Finding(
        check, OK, 'with its own PID namespace: it can\'t re-encrypt volumes'
        if 'pid' in container.own else '')]


def _mount(*paths: str, how: str = '') -> str:
    return MOUNT + ', '.join('%s:%s%s' % (each, each, how) for each in paths)


def rules(container: Container, found: Iterable[Finding]) -> list[Finding]:
    """Return the findings about udev's rules, with remedies for the host.

    :param found: by :func:`.checks.rules` in the :func:`rule_directories`
    """
    found = list(found)
    if all(each.verdict == OK for each in found):
        return found
    if not container.is_hosts(RULE_DIRECTORIES[0]):
        return [_unseen('udev rules', RULE_DIRECTORIES[0], ':ro')]
    fix = ('on the host: docker cp cinder_volume:%s %s/; '
           'udevadm control --reload' % (os.path.join(
               sys.prefix, 'lib/udev/rules.d', RULES), RULE_DIRECTORIES[0]))
    return [dataclasses.replace(each, fix=fix) for each in found]


def rule_directories(container: Container | None) -> list[str]:
    """Return the directories of udev rules of the host."""
    return [each for each in RULE_DIRECTORIES
            if container is None or container.is_hosts(each)]


def lvm_filter(container: Container | None) -> list[Finding]:
    """Report LVM without the settings of the host; [] if it has them."""
    if container is None or container.is_hosts(LVM):
        return []
    return [_unseen('LVM filter', LVM)]


def _unseen(check: str, path: str, how: str = '') -> Finding:
    return Finding(
        check, WARN, 'not checked: %s is the image\'s, not the host\'s' % path,
        _mount(path, how=how))


def in_image(found: Iterable[Finding]) -> list[Finding]:
    """Return findings whose remedies belong in the image."""
    return [dataclasses.replace(each, fix='in the image: ' + each.fix)
            if each.fix else each for each in found]


def kept(container: Container, directories: Mapping[str, str | None]
         ) -> list[Finding]:
    """Report directories removed with the container.

    :param directories: by their options
    """
    return [Finding(
        option, WARN, '%s is in the container\'s own layer: it is lost with '
        'the container' % path, _mount(path))
        for option, path in directories.items()
        if path and not container.is_hosts(path)]


def credentials(container: Container) -> list[Finding]:
    """Report sealed keys which no other container can open."""
    missing = [each for each in CREDENTIALS if not container.is_hosts(each)]
    return [Finding(
        'sealed keys', WARN, 'the secret of systemd-creds is in the '
        'container\'s own layer: no other container can open the keys',
        _mount(*missing))] if missing else []
