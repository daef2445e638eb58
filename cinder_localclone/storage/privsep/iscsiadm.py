# SPDX-License-Identifier: Apache-2.0
"""The iSCSI initiator: sessions, iscsiadm(8)'s records, logins.

Time limits are in seconds. A function that runs a command raises CommandFailed
or CommandTimeout.
"""

from collections.abc import Iterator
import contextlib
import errno
import glob
import json
import os
import re

import tenacity

from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs

#: Exit codes of iscsiadm(8).
_OK, _SESSION_EXISTS, _NO_SUCH_OBJECT = 0, 15, 21
#: File with this node's initiator name, see iscsid(8).
_INITIATOR_NAME = '/etc/iscsi/initiatorname.iscsi'
#: Error of a command that met another command in the records.
_RECORDS_CHANGED = 'failed with exit code 6:'


def _has_met_another(exc: BaseException) -> bool:
    return isinstance(exc, exceptions.CommandFailed) and (
        _RECORDS_CHANGED in str(exc))


# The records are files. If another command removes a record meanwhile, this
# command fails (7 of 30 deletes beside another).
@tenacity.retry(retry=tenacity.retry_if_exception(_has_met_another),
                stop=tenacity.stop_after_attempt(5), reraise=True,
                wait=tenacity.wait_fixed(0.2))
def _iscsiadm(*argv: str, timeout: float, ok: tuple[int, ...] = (_OK,),
              secret: str = '') -> str:
    """Run iscsiadm(8), and return its output."""
    return process.run('iscsiadm', *argv, timeout=timeout, ok=ok,
                       secret=secret)


@privsep.entrypoint
def initiator_name() -> str:
    """Return this node's initiator name, which only root may read.

    Allows: reads the iSCSI name of this node.

    :returns: '' if no name can be read
    """
    try:
        with open(_INITIATOR_NAME, errors='replace') as file:
            lines = file.read().splitlines()
    except OSError:
        return ''
    # os-brick reports the first name in the file to other hosts.
    return next((value.strip() for word, _equals, value in (
        line.partition('=') for line in lines) if word == 'InitiatorName'),
        '')


@privsep.entrypoint
def disks(iqn: str = '') -> str:
    """Return the disks of iSCSI sessions: JSON of {target name: [path]}.

    Allows: lists all iSCSI sessions and their disks.

    :param iqn: target of the sessions; '' for all sessions
    """
    paths: dict[str, list[str]] = {}
    for target, device in _sessions(iqn):
        # A walk through the whole tree takes 10 ms a session.
        paths[target] = ['/dev/' + os.path.basename(disk) for disk in
                         glob.glob(device + '/target*/*/block/*')]
    return json.dumps(paths)


def _sessions(iqn: str = '') -> Iterator[tuple[str, str]]:
    """Yield the target name and the sysfs device of each iSCSI session.

    :param iqn: target of the sessions; '' for all sessions
    """
    base = sysfs.iscsi_session()
    for session in os.listdir(base) if os.path.isdir(base) else ():
        try:
            with open(sysfs.iscsi_session(session, 'targetname')) as name:
                target = name.read().strip()
        except OSError:
            continue  # it has just ended
        if iqn in ('', target):
            yield target, os.path.realpath(
                sysfs.iscsi_session(session, 'device'))


@privsep.entrypoint
def set_recovery_timeout(path: str, seconds: int) -> None:
    """Set how long an iSCSI disk holds I/O while its session is down.

    Allows: sets how long any iSCSI disk of the node waits for its session.

    The kernel refuses this (EBUSY) while the session is down; the next
    reconciliation repeats it.

    :param path: path of the disk; other disks are ignored
    :param seconds: the time limit
    """
    session = parse_session(os.path.realpath(sysfs.disk_entry(path)))
    if session:
        try:
            with open(sysfs.iscsi_session(session, 'recovery_tmo'),
                      'w') as limit:
                limit.write(str(seconds))
        except OSError as exc:
            if exc.errno != errno.EBUSY:
                raise


@privsep.entrypoint
def bring_back(path: str, timeout: float) -> bool:
    """Set a disk online again that the kernel has set offline.

    Allows: sets any SCSI disk of the node online that the kernel has set
    offline.

    The kernel sets a disk offline if it does not answer to error handling, and
    never undoes this: all I/O fails at once, even when the disk answers again.
    The kernel refuses the change (EINVAL) while the disk's session is down;
    the next sweep repeats it.

    :param timeout: seconds. The kernel scans a disk as soon as it works, after
        all queued reads (more than 20 s on a slow link); the caller need not
        wait for the scan
    :returns: whether the disk was offline and works now
    """
    if _state(path) != 'offline':
        return False
    try:
        process.run('tee', sysfs.disk_entry(path, 'device', 'state'),
                    stdin=b'running\n', timeout=timeout, ok=(0, 1))
    except exceptions.CommandTimeout:
        pass
    return _state(path) != 'offline'


@privsep.entrypoint
def rescan(path: str, timeout: float) -> None:
    """Make the kernel read the size of a disk again.

    Allows: has any SCSI disk of the node read its size again.
    """
    process.run('tee', sysfs.disk_entry(path, 'device', 'rescan'),
                stdin=b'1\n',
                timeout=timeout)


def _state(path: str) -> str:
    try:
        with open(sysfs.disk_entry(path, 'device', 'state')) as state:
            return state.read().strip()
    except OSError:
        return ''  # it has just gone


def parse_session(device: str) -> str | None:
    """Return the iSCSI session in the sysfs path of a disk, or None."""
    match = re.search(r'/(session\d+)/', device)
    return match.group(1) if match else None


@privsep.entrypoint
def end_session(iqn: str, timeout: float) -> None:
    """Log out of a target and delete its record, even with its disk in use.

    Allows: logs out of any target that has a name of the driver's, even with
    its disk in use.

    This is the way out of a hang: I/O waiting for a dead source fails within a
    second. A session may exist in sysfs without a record, and without being
    found by iscsiadm. Without a session and a record there is nothing to do.
    """
    privsep.require(iscsi.is_iqn(iqn), iqn)
    _iscsiadm('-m', 'node', '-T', iqn, '--logout',
              timeout=timeout, ok=(_OK, _NO_SUCH_OBJECT))
    for _target, device in _sessions(iqn):
        number = os.path.basename(device).removeprefix('session')
        _iscsiadm('-m', 'session', '-r', number, '-u',
                  timeout=timeout, ok=(_OK, _NO_SUCH_OBJECT))
    _iscsiadm('-m', 'node', '-T', iqn, '-o', 'delete',
              timeout=timeout, ok=(_OK, _NO_SUCH_OBJECT))


@privsep.entrypoint
def is_down(iqn: str) -> bool:
    """Return whether a target has a session, and none is logged in.

    Allows: reads the state of any iSCSI session.
    """
    states = []
    for _target, device in _sessions(iqn):
        with contextlib.suppress(OSError):  # it has just ended
            with open(sysfs.iscsi_session(
                    os.path.basename(device), 'state')) as state:
                states.append(state.read().strip())
    return bool(states) and 'LOGGED_IN' not in states


@privsep.entrypoint
def known_portal(iqn: str, timeout: float) -> str:
    """Return the portal of a target in the initiator's records, or ''.

    Allows: reads the initiator's record of any target; no secrets.
    """
    return parse_portal(_records(timeout), iqn)


@privsep.entrypoint
def recorded(timeout: float) -> list[str]:
    """Return the names of all targets in the initiator's records.

    Allows: lists the targets of the initiator's records.
    """
    return parse_targets(_records(timeout))


def _records(timeout: float) -> str:
    records: str = _iscsiadm('-m', 'node', timeout=timeout,
                             ok=(_OK, _NO_SUCH_OBJECT))
    return records


def parse_targets(records: str) -> list[str]:
    """Return the targets in the output of ``iscsiadm -m node``."""
    return [line.split()[1] for line in records.splitlines()
            if len(line.split()) == 2]


def parse_portal(records: str, iqn: str) -> str:
    """Return a target's portal in the output of ``iscsiadm -m node``, or ''.
    """
    return next(iter(parse_portals(records, iqn)), '')


def parse_portals(records: str, iqn: str) -> list[str]:
    """Return a target's portals in the output of ``iscsiadm -m node``."""
    found = (line.partition(' ') for line in records.splitlines())
    return [portal.rpartition(',')[0] for portal, _space, name in found
            if name.strip() == iqn]


@privsep.entrypoint
def record_target(iqn: str, portal: str, auth: str, timeout: float) -> None:
    """Create or complete the initiator's record of a target.

    Allows: records a target that has a name of the driver's, by any prefix, at
    any portal: another machine can so become the source of a disk.

    Records of the target at other portals are deleted, because a login goes to
    all recorded portals.

    Settings of the record, with their reasons:

    * A login fails at once if the target is not exported (any more): by
      default iscsid would retry for two minutes.
    * iscsid does not log in at boot: the driver does.
    * Disks are scanned for by hand, so only requested disks appear.
    * The kernel sizes the receive buffer. iscsid would fix it (512 KiB, cut to
      net.core.rmem_max), which disables TCP's own tuning, and a full buffer
      leads to stalls of 200 ms.
    * A session has a single disk.
    * iscsid sends pings: without them a session would never count as down.
    * Targets of the driver do not authenticate themselves.

    :param auth: login data, in the form of Cinder's provider_auth
    """
    privsep.require(iscsi.is_iqn(iqn), iqn)
    method, user, secret = auth.split(' ')
    record = ('-m', 'node', '-T', iqn, '-p', portal)
    known = parse_portals(_records(timeout), iqn)
    for other in known:
        if other != portal:
            _iscsiadm('-m', 'node', '-T', iqn, '-p', other, '-o', 'delete',
                      timeout=timeout, ok=(_OK, _NO_SUCH_OBJECT))
    # Creating an existing record again would remove its secret.
    if portal not in known:
        _iscsiadm(*record, '--interface', 'default', '--op', 'new',
                  timeout=timeout)
    values = {'startup': 'manual', 'conn[0].tcp.window_size': '0',
              'session.initial_login_retry_max': '0',
              # iscsid.conf may have other values for all the settings below,
              # because of other arrays used by this host.
              'session.nr_sessions': '1', 'conn[0].startup': 'manual',
              'conn[0].timeo.noop_out_interval': '5',
              'conn[0].timeo.noop_out_timeout': '5',
              'session.scan': 'manual',
              'session.auth.authmethod': method,
              'session.auth.username': user,
              'session.auth.password': secret,
              'session.auth.username_in': '',
              'session.auth.password_in': ''}
    settings = [each for key, value in values.items()
                for each in ('-n', 'node.' + key, '-v', value)]
    _iscsiadm(*record, '--op', 'update', *settings, timeout=timeout,
              secret=secret)


@privsep.entrypoint
def login(iqn: str, timeout: float) -> None:
    """Log in as recorded and scan for the disk; an existing session is ok.

    Allows: logs in to a target that has a name of the driver's, as recorded.

    Targets of the driver have a single disk each.
    """
    privsep.require(iscsi.is_iqn(iqn), iqn)
    _iscsiadm('-m', 'node', '-T', iqn, '--login',
              timeout=timeout, ok=(_OK, _SESSION_EXISTS))
    for _target, device in _sessions(iqn):
        host = os.path.basename(os.path.dirname(device))
        process.run('tee', '/sys/class/scsi_host/%s/scan' % host,
                    stdin=b'0 0 0', timeout=timeout)
