# SPDX-License-Identifier: Apache-2.0
"""What this node's kernel, commands and volume groups provide.

These functions need no backend and change nothing. They are the only part of
storage that :mod:`.cmd.doctor` and :mod:`.cmd.report` use without
:mod:`.service.operator`: both also work on a node on which no service can
start.
"""

from collections.abc import Iterable
import contextlib
import json
import os
import typing

import psutil

from cinder_localclone.core import exceptions
from cinder_localclone.storage.privsep import container
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import folders
from cinder_localclone.storage.privsep import lio_configfs
from cinder_localclone.storage.privsep import lvm
from cinder_localclone.storage.privsep import network
from cinder_localclone.storage.privsep import process


def has_module(module: str, timeout: float) -> bool:
    """Return whether a kernel module is loaded, or can be.

    :param timeout: seconds, as in all functions of this module
    """
    return os.path.isdir('/sys/module/' + module) or _succeeds(
        'modprobe', '--dry-run', '--quiet', module, timeout=timeout)


def has_tpm(timeout: float) -> bool:
    """Return whether systemd can seal keys with a TPM 2.0."""
    return _succeeds('systemd-creds', 'has-tpm2', '--quiet', timeout=timeout)


def _succeeds(*words: str, timeout: float) -> bool:
    try:
        process.run(*words, timeout=timeout)
    except exceptions.CommandFailed:
        return False
    return True


def mapper_targets(timeout: float) -> str:
    """Return the device-mapper targets of the kernel, as dmsetup prints them.
    """
    found: str = dmsetup.targets(timeout)
    return found


def cryptsetup_version(timeout: float) -> str:
    """Return cryptsetup's message with its version; '' without the command."""
    with contextlib.suppress(FileNotFoundError):
        return process.run('cryptsetup', '--version', timeout=timeout)
    return ''


def lvm_settings(names: Iterable[str], timeout: float) -> str:
    """Return settings of lvm.conf(5) with their defaults, as LVM prints them.

    :param names: such as ``devices/filter``
    """
    return process.run('lvmconfig', '--typeconfig', 'full', *names,
                       timeout=timeout)


def hanging_changes(timeout: float) -> list[str]:
    """Return the iSCSI targets of this node with a hanging change.

    :param timeout: seconds after which a change counts as hanging
    """
    found: list[str] = lio_configfs.hanging(timeout)
    return found


def programs_listening(port: int) -> list[str]:
    """Return the names of programs that listen on a TCP port.

    The kernel's own sockets, as those of its iSCSI target, belong to none.
    Only root sees the programs of other users.
    """
    found = set()
    for each in psutil.net_connections('tcp'):
        if (each.pid and each.status == psutil.CONN_LISTEN
                and each.laddr.port == port):
            with contextlib.suppress(psutil.NoSuchProcess):  # ended meanwhile
                found.add(psutil.Process(each.pid).name())
    return sorted(found)


def group_report(group: str, timeout: float) -> str:
    """Return LVM's report of the size and free space of a volume group."""
    found: str = lvm.free([group], timeout)
    return found


def group_disks(group: str, timeout: float) -> list[str]:
    """Return the paths of a volume group's disks."""
    found: list[str] = lvm.physical_volumes(group, timeout)
    return found


def disks_with_space(group: str, timeout: float) -> int:
    """Return the number of disks of a volume group, without missing disks."""
    return len(lvm.free_of_disks(group, timeout))


def isolation() -> container.Isolation:
    """Return whether this process runs in a container, and what it mounts."""
    return container.isolation()


def ipsec_policies(timeout: float) -> str:
    """Return the IPsec policies of this node, as ip(8) prints them.

    :raises CommandFailed: if the kernel has no IPsec
    :raises FileNotFoundError: without the command
    """
    found: str = network.ipsec_policies(timeout)
    return found


def route(address: str, timeout: float) -> tuple[str, str]:
    """Return the network device and the source address towards an address.

    :returns: '' for a source address that ip(8) does not print
    :raises CommandFailed: if there is no route
    :raises FileNotFoundError: without the command
    :raises ValueError: if the route has no device
    """
    found: list[dict[str, typing.Any]] = json.loads(process.run(
        'ip', '-j', 'route', 'get', address, timeout=timeout))
    if not found or 'dev' not in found[0]:
        raise ValueError('the route to %s has no network device' % address)
    return found[0]['dev'], found[0].get('prefsrc', '')


def is_wireguard(device: str) -> bool:
    """Return whether a network device is one of WireGuard."""
    with contextlib.suppress(OSError), open(os.path.join(
            '/sys/class/net', device, 'uevent')) as file:
        return 'DEVTYPE=wireguard\n' in file
    return False


def why_unsafe(path: str) -> str:
    """Return why key files are not safe in a directory; '' if they are."""
    return folders.problem(path)


def run(*words: str, timeout: float) -> tuple[str, int]:
    """Return the output of a command, with its errors in place, and its code.

    The time limit holds even if the command hangs in the kernel.

    :raises CommandTimeout: after this time
    """
    text, _newline, code = process.run(
        'sh', '-c', '"$@" 2>&1; printf "\\n%s" $?', 'sh', *words,
        timeout=timeout).rpartition('\n')
    return text, int(code)
