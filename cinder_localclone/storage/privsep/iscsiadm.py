# SPDX-License-Identifier: Apache-2.0
"""The iSCSI initiator: sessions, iscsiadm(8)'s records, logins.

Time limits are in seconds. What runs a command raises CommandFailed or
CommandTimeout.
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
#: Where this node's name is, see iscsid(8).
_INITIATOR_NAME = '/etc/iscsi/initiatorname.iscsi'
#: What a command failed with that met another in the records.
_RECORDS_CHANGED = 'failed with exit code 6:'


def _has_met_another(exc: BaseException) -> bool:
    return isinstance(exc, exceptions.CommandFailed) and (
        _RECORDS_CHANGED in str(exc))


# The records are files; one that another command removes meanwhile makes this
# one fail (7 of 30 deletes beside another).
@tenacity.retry(retry=tenacity.retry_if_exception(_has_met_another),
                stop=tenacity.stop_after_attempt(5), reraise=True,
                wait=tenacity.wait_fixed(0.2))
def _iscsiadm(*argv: str, timeout: float, ok: tuple[int, ...] = (_OK,),
              secret: str = '') -> str:
    """Run iscsiadm(8); what it printed."""
    return process.run('iscsiadm', *argv, timeout=timeout, ok=ok,
                       secret=secret)


@privsep.entrypoint
def initiator_name() -> str:
    """This node's name, which root alone may read; '' if none can be read.

    Allows: reads the iSCSI name of this node.
    """
    try:
        with open(_INITIATOR_NAME, errors='replace') as file:
            lines = file.read().splitlines()
    except OSError:
        return ''
    # The first one is what os-brick tells others of this node.
    return next((value.strip() for word, _equals, value in (
        line.partition('=') for line in lines) if word == 'InitiatorName'),
        '')


@privsep.entrypoint
def disks(iqn: str = '') -> str:
    """The disks of all iSCSI sessions: JSON of {target name: [path]}.

    Allows: lists all iSCSI sessions and their disks.

    :param iqn: of those with this target alone
    """
    paths: dict[str, list[str]] = {}
    for target, device in _sessions(iqn):
        # To walk through all of it takes 10 ms a session.
        paths[target] = ['/dev/' + os.path.basename(disk) for disk in
                         glob.glob(device + '/target*/*/block/*')]
    return json.dumps(paths)


def _sessions(iqn: str = '') -> Iterator[tuple[str, str]]:
    """The target name of each iSCSI session, and its device in sysfs.

    :param iqn: of those with this target alone
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
    """How long an iSCSI disk holds I/O while its session is down.

    Allows: sets how long any iSCSI disk of the node waits for its session.

    The kernel refuses it (EBUSY) of a session that is down at the moment;
    the next reconciliation sets it then.

    :param path: of the disk; of one that is no iSCSI disk nothing is set
    """
    session = parse_session(os.path.realpath(sysfs.of_disk(path)))
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
    """A disk that the kernel has set offline works again.

    Allows: sets any SCSI disk of the node online that the kernel has set
    offline.

    It does that to a disk that did not answer to its error handling, and
    never undoes it: all I/O fails at once, also when the disk answers again.
    The kernel refuses it (EINVAL) of a disk whose session is down; the next
    look tries again.

    :param timeout: seconds. Once the disk works, the kernel scans it, behind
        all that is being read from it (more than 20 s on a slow link); that
        need not be waited for
    :returns: whether it was offline and is no more
    """
    if _state(path) != 'offline':
        return False
    try:
        process.run('tee', sysfs.of_disk(path, 'device', 'state'),
                    stdin=b'running\n', timeout=timeout, ok=(0, 1))
    except exceptions.CommandTimeout:
        pass
    return _state(path) != 'offline'


@privsep.entrypoint
def rescan(path: str, timeout: float) -> None:
    """Ask a disk for its size again.

    Allows: has any SCSI disk of the node read its size again.
    """
    process.run('tee', sysfs.of_disk(path, 'device', 'rescan'), stdin=b'1\n',
                timeout=timeout)


def _state(path: str) -> str:
    try:
        with open(sysfs.of_disk(path, 'device', 'state')) as state:
            return state.read().strip()
    except OSError:
        return ''  # it has just gone


def parse_session(device: str) -> str | None:
    """The iSCSI session that a disk's place in sysfs names, if one."""
    match = re.search(r'/(session\d+)/', device)
    return match.group(1) if match else None


@privsep.entrypoint
def end_session(iqn: str, timeout: float) -> None:
    """Log out of a target and forget it, whatever still uses its disk.

    Allows: logs out of any target that has a name of the driver's, whatever
    uses its disk.

    The way out of a hang: I/O that waits for a dead source fails within a
    second. What iscsiadm finds neither a record nor a session of may have
    one nevertheless, in sysfs; else it is done already.
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
    """Whether there is a session with a target, which does not answer.

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
    """The portal that the initiator's records have for a target, or ''.

    Allows: reads the initiator's record of any target; no secrets.
    """
    return parse_portal(_records(timeout), iqn)


@privsep.entrypoint
def recorded(timeout: float) -> list[str]:
    """The names of all targets that the initiator's records have.

    Allows: lists the targets of the initiator's records.
    """
    return parse_targets(_records(timeout))


def _records(timeout: float) -> str:
    records: str = _iscsiadm('-m', 'node', timeout=timeout,
                             ok=(_OK, _NO_SUCH_OBJECT))
    return records


def parse_targets(records: str) -> list[str]:
    """The targets in what ``iscsiadm -m node`` prints."""
    return [line.split()[1] for line in records.splitlines()
            if len(line.split()) == 2]


def parse_portal(records: str, iqn: str) -> str:
    """The portal of a target in what ``iscsiadm -m node`` prints, or ''."""
    return next(iter(parse_portals(records, iqn)), '')


def parse_portals(records: str, iqn: str) -> list[str]:
    """Return the portals of a target in what ``iscsiadm -m node`` prints."""
    found = (line.partition(' ') for line in records.splitlines())
    return [portal.rpartition(',')[0] for portal, _space, name in found
            if name.strip() == iqn]


@privsep.entrypoint
def record_target(iqn: str, portal: str, auth: str, timeout: float) -> None:
    """Make the initiator's record of a target, or complete it.

    Allows: records a target that has a name of the driver's, by any prefix, at
    any portal: another machine can so become the source of a disk.

    Records of it at other portals go: a login is to all that there are.

    A login fails at once where the target is not served (any more): iscsid
    would ask for it for two minutes. Nor does iscsid log in at a boot: the
    driver does. Disks are scanned for by hand, so that only those appear
    that are asked for. The kernel sizes the receive buffer: iscsid would pin
    it (512 KiB, cut to net.core.rmem_max), which ends TCP's own tuning, and
    stalls of 200 ms follow once it is full. One session has one disk; one that
    is never asked for a sign of life never counts as down; targets of the
    driver do not authenticate themselves.

    :param auth: what it is logged in to with, in the form of Cinder's
        provider_auth
    """
    privsep.require(iscsi.is_iqn(iqn), iqn)
    method, user, secret = auth.split(' ')
    record = ('-m', 'node', '-T', iqn, '-p', portal)
    known = parse_portals(_records(timeout), iqn)
    for other in known:
        if other != portal:
            _iscsiadm('-m', 'node', '-T', iqn, '-p', other, '-o', 'delete',
                      timeout=timeout, ok=(_OK, _NO_SUCH_OBJECT))
    # A record that is made anew loses its secret.
    if portal not in known:
        _iscsiadm(*record, '--interface', 'default', '--op', 'new',
                  timeout=timeout)
    values = {'startup': 'manual', 'conn[0].tcp.window_size': '0',
              'session.initial_login_retry_max': '0',
              # All that follows may be otherwise in iscsid.conf, for arrays
              # that this host uses, too.
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
    """Log in as recorded and scan for the disk; a session that exists is ok.

    Allows: logs in to a target that has a name of the driver's, as recorded.

    Targets of the driver have one disk each.
    """
    privsep.require(iscsi.is_iqn(iqn), iqn)
    _iscsiadm('-m', 'node', '-T', iqn, '--login',
              timeout=timeout, ok=(_OK, _SESSION_EXISTS))
    for _target, device in _sessions(iqn):
        host = os.path.basename(os.path.dirname(device))
        process.run('tee', '/sys/class/scsi_host/%s/scan' % host,
                    stdin=b'0 0 0', timeout=timeout)
