# SPDX-License-Identifier: Apache-2.0
"""iSCSI sessions with peers: sources of moves, and remote attachments."""

from collections.abc import Mapping
import hashlib
import json
import socket
import time
from typing import Any

from oslo_log import log as logging
import tenacity

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import iscsi as interfaces
from cinder_localclone.core import iscsi
from cinder_localclone.core import state
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import iscsiadm

LOG = logging.getLogger(__name__)

#: Seconds for a peer's portal to accept a connection.
PORTAL_TIMEOUT = 4
#: Seconds for a disk that was offline to be scanned.
SCAN_TIMEOUT = 5
#: Seconds for a disk to appear after a login.
DISK_TIMEOUT = 10
#: Seconds for a new disk to report its size and serial number.
IDENTITY_TIMEOUT = 3
#: Seconds within which Cinder records a remote attachment.
RECORDED = 600
#: A refused login is tried once more.
_RETRYING = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(exceptions.CommandFailed),
    stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_fixed(1),
    reraise=True)


class Sessions(interfaces.Sessions):
    """iSCSI disks of peers on this node.

    :param command_timeout: limit of a command, seconds
    :param source_timeout: how long I/O waits for an unreachable source,
        seconds
    :param host: a service host of the backend; remote attachments of other
        backends are ignored
    """

    def __init__(self, command_timeout: float, source_timeout: int,
                 host: str = '') -> None:
        self.command_timeout = command_timeout
        self.source_timeout = source_timeout
        self.host = host
        #: Digests of the CHAP data used at the last login, by iSCSI name.
        self._secrets: dict[str, str] = {}
        #: CHAP users of the last remote attachments, by volume id.
        self._users: dict[str, str] = {}
        #: Times of the last remote attachments, monotonic seconds, by volume
        #: id.
        self._attached: dict[str, float] = {}
        #: Portals of the last logins, by iSCSI name.
        self._portals: dict[str, str] = {}
        #: Portals without an answer, each with its error, and the time until
        #: which new requests fail at once (monotonic seconds).
        self._silent: dict[str, tuple[OSError, float]] = {}

    def initiator(self) -> str:
        """Return the initiator name without os-brick.

        os-brick would start a privileged daemon of its own.
        """
        return iscsiadm.initiator_name()

    def disk(self, move: state.Move) -> str | None:
        return _disk_of(move.source_iqn)

    def attach(self, move: state.Move) -> str:
        path = self.disk(move)
        if path and self._has_left(move.source_iqn, iscsi.portal_of(
                move.location)):
            path = None
        if path:
            _verify(move, path)
        else:
            path = self._log_in_to_source(move)
        self._look_after(path)
        return path

    # -- remote attachments

    def remotes(self) -> dict[str, str]:
        return {volume_id: (paths or [''])[0]
                for iqn, paths in json.loads(iscsiadm.disks()).items()
                if (volume_id := iscsi.volume_of_attachment_iqn(
                    iqn, self.host))}

    def attach_remote(self, volume_id: str, size_bytes: int,
                      properties: Mapping[str, Any], in_use: bool) -> str:
        iqn, auth = properties['target_iqn'], iscsi.auth(properties)
        path = _disk_of(iqn)
        if path and not in_use and (
                iscsiadm.is_down(iqn)
                or self._secrets.get(iqn, _digest(auth)) != _digest(auth)):
            self._check_portal(properties['target_portal'])
            iscsiadm.end_session(iqn, self.command_timeout)
            path = None
        if path and self._has_left(iqn, properties['target_portal']):
            path = None
        if path is None:
            path = self._log_in(iqn, properties['target_portal'], auth)
            self._secrets[iqn] = _digest(auth)
        if _identify(volume_id, iqn, path) < size_bytes:
            iscsiadm.rescan(path, SCAN_TIMEOUT)  # the volume was extended
        _verify_remote(volume_id, size_bytes, iqn, path)
        self._look_after(path)
        self._attached[volume_id] = time.monotonic()
        self._users[volume_id] = properties['auth_username']
        return path

    def may_be_attached_by(self, volume_id: str, user: str) -> bool:
        return self._users.get(volume_id, user) == user

    def was_just_attached(self, volume_id: str) -> bool:
        since = time.monotonic() - RECORDED
        return self._attached.get(volume_id, since) > since

    def _has_left(self, iqn: str, portal: str) -> bool:
        """End a session that is down if its target has another portal now.

        :param portal: the target's portal in the move record or the connection
            properties
        :returns: whether the session was ended
        :raises SourceUnreachable: if the new portal does not answer, either
        """
        if self._portals.get(iqn) == portal:
            return False
        known = iscsiadm.known_portal(iqn, self.command_timeout)
        if known in ('', portal):
            self._portals[iqn] = portal
            return False
        if not iscsiadm.is_down(iqn):
            return False
        self._check_portal(portal)
        LOG.warning('The portal of %(iqn)s has changed to %(portal)s. The '
                    'session with %(known)s is ended, and I/O waiting for '
                    'it fails.',
                    {'iqn': iqn, 'portal': portal, 'known': known})
        iscsiadm.end_session(iqn, self.command_timeout)
        return True

    def end_other_remotes(self, volume_id: str, iqn: str) -> None:
        for other in sorted(self._remotes_of(volume_id) - {iqn}):
            iscsiadm.end_session(other, self.command_timeout)

    def _remotes_of(self, volume_id: str) -> set[str]:
        """Return the iSCSI names of all sessions and records for a volume."""
        return {iqn for iqn in [*json.loads(iscsiadm.disks()),
                                *iscsiadm.recorded(self.command_timeout)]
                if iscsi.volume_of_attachment_iqn(iqn, self.host) == volume_id}

    def is_down(self, move: state.Move) -> bool:
        return any(iscsiadm.is_down(iqn) for iqn in sorted(
            {move.source_iqn, *self._remotes_of(move.volume_id)}))

    def recorded_remotes(self) -> dict[str, str]:
        return {volume_id: iqn for iqn in iscsiadm.recorded(
            self.command_timeout)
            if (volume_id := iscsi.volume_of_attachment_iqn(iqn, self.host))}

    def remote_from_records(self, volume_id: str, iqn: str) -> str:
        """Log in to a volume's home with this node's own iSCSI records.

        :returns: path of the disk
        :raises WrongSource: if it is another disk
        :raises NotPossible: if the records do not contain the target
        :raises SourceUnreachable: if the home's portal does not answer
        :raises LoginFailed: if no disk appears
        """
        path = _disk_of(iqn) or self._log_in_as_recorded(iqn, volume_id)
        _verify_remote(volume_id, 0, iqn, path)
        self._look_after(path)
        return path

    def end_remote(self, volume_id: str) -> bool:
        iqns = self._remotes_of(volume_id)
        for iqn in sorted(iqns):
            iscsiadm.end_session(iqn, self.command_timeout)
        self._attached.pop(volume_id, None)
        self._users.pop(volume_id, None)
        return bool(iqns)

    def end_remote_if_down(self, volume_id: str) -> bool:
        return any(iscsiadm.is_down(iqn) for iqn in sorted(
            self._remotes_of(volume_id))) and self.end_remote(volume_id)

    # -- logging in

    def _check_portal(self, portal: str) -> None:
        """Check that a portal accepts connections.

        Many volumes share a single wait for an unreachable peer. After a
        failed attempt all requests fail at once, for as long as the attempt
        took.

        :raises SourceUnreachable: if the portal does not accept a connection
        """
        host, _colon, port = portal.rpartition(':')
        reason, until = self._silent.get(portal, (None, 0.0))
        began = time.monotonic()
        if began >= until:
            try:
                socket.create_connection(
                    (host.strip('[]'), int(port)), PORTAL_TIMEOUT).close()
                self._silent.pop(portal, None)
                return
            except OSError as exc:
                now, reason = time.monotonic(), exc
                self._silent[portal] = exc, now + (now - began)
        raise exceptions.SourceUnreachable(portal=portal, reason=reason)

    def _log_in_to_source(self, move: state.Move) -> str:
        properties = iscsi.connection_properties(
            move.location, move.auth)
        path = self._log_in(properties['target_iqn'],
                            properties['target_portal'], move.auth)
        try:
            _verify(move, path)
        except exceptions.WrongSource:
            # Nothing uses this disk yet. A session from an earlier login may
            # have a guest above it and is not ended here.
            self.detach(move)
            raise
        return path

    def _log_in(self, iqn: str, portal: str, auth: str) -> str:
        """Log in to a target.

        os-brick is not used: it tries three times, and forgets the record
        after a failed login. iscsid then retries a withdrawn target for two
        minutes, and os-brick connects nothing else on the node meanwhile.

        :returns: path of its disk
        :raises SourceUnreachable: if the portal does not answer
        :raises LoginFailed: if no disk appears
        """
        self._check_portal(portal)
        iscsiadm.record_target(iqn, portal, auth, self.command_timeout)
        path = self._disk_once_logged_in(iqn, portal)
        self._portals[iqn] = portal
        return path

    def _disk_once_logged_in(self, iqn: str, portal: str) -> str:
        try:
            _RETRYING(iscsiadm.login, iqn, self.command_timeout)
        except exceptions.CommandFailed as exc:
            raise exceptions.LoginFailed(
                iqn=iqn, portal=portal, reason=str(exc))
        path = _await_disk(iqn)
        if path is None:
            raise exceptions.LoginFailed(
                iqn=iqn, portal=portal, reason='no disk appeared within '
                '%d s' % DISK_TIMEOUT)
        return path

    def _look_after(self, path: str) -> None:
        iscsiadm.set_recovery_timeout(path, self.source_timeout)
        if iscsiadm.bring_back(path, SCAN_TIMEOUT):
            LOG.warning('The kernel had set %s, the disk of a source, '
                        'offline. The driver has set it online again.', path)

    def login_from_records(self, move: state.Move) -> str:
        """Log in to a move's source with this node's own iSCSI records.

        :returns: path of the disk
        :raises WrongSource: if it is another disk
        :raises NotPossible: if the records do not contain the source
        :raises SourceUnreachable: if its portal does not answer
        :raises LoginFailed: if no disk appears
        """
        iqn = move.source_iqn
        path = _disk_of(iqn) or self._log_in_as_recorded(iqn, move.volume_id)
        _verify(move, path)
        self._look_after(path)
        return path

    def _log_in_as_recorded(self, iqn: str, volume_id: str) -> str:
        portal = iscsiadm.known_portal(iqn, self.command_timeout)
        if not portal:
            raise exceptions.NotPossible(
                volume=volume_id, reason='this node\'s iSCSI records do not '
                'contain %s. The volume service logs in when it runs.' % iqn)
        self._check_portal(portal)
        return self._disk_once_logged_in(iqn, portal)

    def end_if_down(self, move: state.Move) -> bool:
        if not iscsiadm.is_down(move.source_iqn):
            return False
        self.detach(move)
        return True

    def detach(self, move: state.Move) -> None:
        iscsiadm.end_session(move.source_iqn, self.command_timeout)


def _digest(auth: str) -> str:
    return hashlib.sha256(auth.encode()).hexdigest()


def _disk_of(iqn: str) -> str | None:
    disks = json.loads(iscsiadm.disks(iqn)).get(iqn)
    return disks[0] if disks else None


def _await_disk(iqn: str) -> str | None:
    path: str | None = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda path: not path),
        stop=tenacity.stop_after_delay(DISK_TIMEOUT),
        wait=tenacity.wait_fixed(0.05),
        retry_error_callback=lambda state: None)(_disk_of, iqn)
    return path


def _verify(move: state.Move, path: str) -> None:
    """Check that a disk has the serial number and size of a move's source.

    :raises WrongSource: if it is another disk
    :raises LoginFailed: if the disk does not report them yet
    """
    size = _identify(move.volume_id, move.source_iqn, path)
    if size != move.size_bytes:
        raise exceptions.WrongSource(
            iqn=move.source_iqn, device=path,
            reason='%d bytes instead of %d' % (size, move.size_bytes))


def _verify_remote(volume_id: str, size_bytes: int, iqn: str, path: str
                   ) -> None:
    """Check the disk of a remote attachment.

    :param size_bytes: minimum size of the disk
    :raises WrongSource: if it is another disk, or too small
    :raises LoginFailed: if the disk does not report its size yet
    """
    size = _identify(volume_id, iqn, path)
    if size < size_bytes:
        raise exceptions.WrongSource(
            iqn=iqn, device=path,
            reason='%d bytes instead of %d' % (size, size_bytes))


def _identify(volume_id: str, iqn: str, path: str) -> int:
    """Check the serial number of a disk, and return its size in bytes.

    :raises WrongSource: if the disk has another serial number
    :raises LoginFailed: if the disk reports no size or serial number yet
    """
    # The kernel reads both from a new disk before sysfs shows them.
    size: int
    size, serial = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda found: not all(found)),
        stop=tenacity.stop_after_delay(IDENTITY_TIMEOUT),
        wait=tenacity.wait_fixed(0.2),
        retry_error_callback=lambda state: state.outcome.result())(
            block.identity, path)
    if not (size and serial):
        raise exceptions.LoginFailed(
            iqn=iqn, portal=path, reason='the disk does not report its size '
            'and serial number (yet)')
    if serial != volume_id:
        raise exceptions.WrongSource(
            iqn=iqn, device=path, reason='serial number "%s" instead of '
            '"%s"' % (serial, volume_id))
    return size
