# SPDX-License-Identifier: Apache-2.0
"""Block devices: read, flush, sysfs. Each in a child with a time limit.

The service's own process never opens a device that may hang: file I/O on a
dead source would block all of it.
"""

import errno
import json
import os
import re

from cinder_localclone import privileged
from cinder_localclone.privileged import process


@privileged.default.entrypoint
def read_head(path: str, length: int, timeout: float) -> None:
    """Read the first ``length`` bytes, past the page cache."""
    process.run('dd', 'if=' + path, 'of=/dev/null', 'iflag=direct',
                'bs=%d' % min(length, 1 << 20),
                'count=%d' % max(1, length >> 20), 'status=none',
                timeout=timeout)


@privileged.default.entrypoint
def zero_head(path: str, timeout: float) -> None:
    """Write zeros over the first 4 KiB and flush them."""
    process.run('dd', 'if=/dev/zero', 'of=' + path, 'bs=4096', 'count=1',
                'oflag=direct', 'conv=fsync', 'status=none', timeout=timeout)


@privileged.default.entrypoint
def head_is_zero(path: str, timeout: float) -> bool:
    """Whether the first 4 KiB are all zeros on the disk itself."""
    return not process.run(
        'dd', 'if=' + path, 'bs=4096', 'count=1', 'iflag=direct',
        'status=none', timeout=timeout).strip('\0')


@privileged.default.entrypoint
def flush(path: str, timeout: float) -> None:
    """Flush the device's volatile caches (fsync of the block device)."""
    process.run('sync', path, timeout=timeout)


@privileged.default.entrypoint
def identity(path: str) -> tuple[int, str]:
    """What a SCSI disk says it is, from sysfs, without reading it.

    :returns: size in bytes, unit serial number ('' if it names none)
    """
    serial = ''
    page = '/sys/block/%s/device/vpd_pg80' % _kernel_name(path)
    if os.path.exists(page):
        with open(page, 'rb') as data:
            serial = parse_serial(data.read())
    return _size(path), serial


def parse_serial(page: bytes) -> str:
    """The unit serial number in a vital product data page 80h (SPC-4)."""
    return page[4:].decode('ascii', 'replace').strip('\0 ')


@privileged.default.entrypoint
def size(path: str) -> int:
    """The size of a device in bytes, from sysfs."""
    return _size(path)


def _kernel_name(path):
    return os.path.basename(os.path.realpath(path))


def _size(path):
    with open('/sys/block/%s/size' % _kernel_name(path)) as sectors:
        return int(sectors.read()) * 512


@privileged.default.entrypoint
def completed_reads(path: str) -> int:
    """Reads completed since the disk is there (block/stat.rst)."""
    with open('/sys/block/%s/stat' % _kernel_name(path)) as counters:
        return int(counters.read().split()[0])


@privileged.default.entrypoint
def disable_discards(path: str) -> None:
    """Make a device refuse discards, and so all that is stacked on it."""
    limit = '/sys/block/%s/queue/discard_max_bytes' % _kernel_name(path)
    with open(limit, 'w') as setting:
        setting.write('0')


@privileged.default.entrypoint
def number(path: str) -> str:
    """The ``major:minor`` of a device, '' if there is none at the path."""
    try:
        device = os.stat(path).st_rdev
    except FileNotFoundError:
        return ''
    return '%d:%d' % (os.major(device), os.minor(device))


def _session_of(path: str) -> str | None:
    return parse_session(
        os.path.realpath('/sys/block/%s/device' % _kernel_name(path)))


def parse_session(device: str) -> str | None:
    """The iSCSI session that a disk's place in sysfs names, if one."""
    found = re.search(r'/(session\d+)/', device)
    return found.group(1) if found else None


@privileged.default.entrypoint
def set_recovery_timeout(path: str, seconds: int) -> None:
    """How long an iSCSI disk holds I/O while its session is down.

    The kernel refuses it (EBUSY) of a session that is down at the moment;
    then it is for the next look.
    """
    session = _session_of(path)
    if session:
        limit = '/sys/class/iscsi_session/%s/recovery_tmo' % session
        try:
            with open(limit, 'w') as setting:
                setting.write(str(seconds))
        except OSError as exc:
            if exc.errno != errno.EBUSY:
                raise


@privileged.default.entrypoint
def iscsi_disks() -> str:
    """The disks of all iSCSI sessions: JSON of {target name: [path]}."""
    found: dict[str, list[str]] = {}
    for target, device in _sessions():
        found[target] = []
        for root, names, _files in os.walk(device):
            if os.path.basename(root) == 'block':
                found[target] += ['/dev/' + name for name in names]
                names.clear()
    return json.dumps(found)


def _sessions():
    """The target name of each iSCSI session, and its device in sysfs."""
    base = '/sys/class/iscsi_session'
    for session in os.listdir(base) if os.path.isdir(base) else ():
        try:
            with open('%s/%s/targetname' % (base, session)) as name:
                target = name.read().strip()
        except OSError:
            continue  # it has just ended
        yield target, os.path.realpath('%s/%s/device' % (base, session))


@privileged.default.entrypoint
def end_session(iqn: str, timeout: float) -> None:
    """Log out of a target and forget it, whatever still uses its disk.

    The way out of a hang: I/O that waits for a dead source fails within a
    second. 21 is iscsiadm's "no such object".
    """
    process.run('iscsiadm', '-m', 'node', '-T', iqn, '--logout',
                timeout=timeout, ok=(0, 21))
    process.run('iscsiadm', '-m', 'node', '-T', iqn, '-o', 'delete',
                timeout=timeout, ok=(0, 21))


@privileged.default.entrypoint
def known_portal(iqn: str, timeout: float) -> str:
    """The portal that the initiator's records have for a target, or ''."""
    return parse_portal(process.run(
        'iscsiadm', '-m', 'node', timeout=timeout, ok=(0, 21)), iqn)


def parse_portal(records: str, iqn: str) -> str:
    """The portal of a target in what ``iscsiadm -m node`` prints, or ''."""
    for line in records.splitlines():
        portal, _space, name = line.partition(' ')
        if name.strip() == iqn:
            return portal.rpartition(',')[0]
    return ''


@privileged.default.entrypoint
def record_target(iqn: str, portal: str, timeout: float) -> None:
    """Make the initiator's record of a target, for os-brick to complete.

    By default iscsid asks for 120 s for a target that has been withdrawn
    (node.session.initial_login_retry_max), and os-brick, which tries three
    times, keeps all other connections of the node waiting meanwhile.
    """
    record = ('iscsiadm', '-m', 'node', '-T', iqn, '-p', portal)
    process.run(*record, '--interface', 'default', '--op', 'new',
                timeout=timeout)
    process.run(*record, '--op', 'update',
                '-n', 'node.session.initial_login_retry_max', '-v', '0',
                timeout=timeout)


@privileged.default.entrypoint
def login(iqn: str, timeout: float) -> None:
    """Log in as recorded and find the disk. 15 is "session exists".

    os-brick records that sessions are scanned by hand, so that only the
    disks that it asks for appear; of a move's target there is one.
    """
    process.run('iscsiadm', '-m', 'node', '-T', iqn, '--login',
                timeout=timeout, ok=(0, 15))
    for target, device in _sessions():
        if target == iqn:
            host = os.path.basename(os.path.dirname(device))
            process.run('tee', '/sys/class/scsi_host/%s/scan' % host,
                        stdin=b'0 0 0', timeout=timeout)
