# SPDX-License-Identifier: Apache-2.0
"""Serving a handle to one initiator, and attaching what a peer serves."""

import json
import socket
import time

from os_brick import exception as brick
from oslo_log import log as logging
import tenacity

from cinder_localclone import exceptions
from cinder_localclone import names
from cinder_localclone.privileged import block
from cinder_localclone.privileged import lio
from cinder_localclone import state

LOG = logging.getLogger(__name__)

#: Seconds for a peer's portal to accept a connection. iscsiadm itself would
#: retry a login for two minutes.
PORTAL_TIMEOUT = 4
#: Seconds for a disk to appear after a login.
DISK_TIMEOUT = 10
#: Seconds after which a connection that was ended, but is still attached by
#: Cinder's records, counts as one again.
ENDING = 600


def new_credentials() -> str:
    """One-time CHAP credentials, in the form of Cinder's provider_auth.

    Cinder's generators use no "0": the kernel's target takes a user name
    that begins with "0b" or "0x" for an encoded number and refuses it.
    """
    from cinder.volume import volume_utils  # slow: only where it is needed
    return 'CHAP %s %s' % (volume_utils.generate_username(),
                           volume_utils.generate_password())


def location(address: str, port: int, iqn: str) -> str:
    """Where a target is, in the form of Cinder's provider_location."""
    host = '[%s]' % address if ':' in address else address
    return '%s:%d,1 %s 0' % (host, port, iqn)


def connection_properties(where: str, auth: str) -> dict:
    """What os-brick needs to attach a target.

    :param where: a provider_location as :func:`location` builds it
    :param auth: a provider_auth as :func:`new_credentials` builds it
    """
    portal, iqn, lun = where.split(' ')
    method, user, password = auth.split(' ')
    return {'target_portal': portal.rpartition(',')[0], 'target_iqn': iqn,
            'target_lun': int(lun), 'target_discovered': False,
            'auth_method': method, 'auth_username': user,
            'auth_password': password}


class Exports:
    """What this node serves, through the kernel's own target (LIO).

    :param prefix: Cinder's ``target_prefix``
    :param address: IP address to serve on
    """

    def __init__(self, prefix: str, address: str, port: int):
        self.prefix = prefix
        self.address = address
        self.port = port
        self._ended = {}  # (volume, initiator): when, monotonic seconds

    def source_location(self, shadow_id: str) -> str:
        return location(self.address, self.port,
                        names.move_iqn(self.prefix, shadow_id))

    def offer_source(self, move: state.Move) -> bool:
        """Serve a move's source, read-only, to its destination.

        Who may log in is in the record, with the CHAP secret: so the same
        export stands again after this node was down, and the destination's
        initiator comes back by itself.
        """
        return self._export(
            names.move_iqn(self.prefix, move.shadow_id),
            move.volume_id, True, move.initiator, move.auth)

    def withdraw_source(self, move: state.Move) -> bool:
        return self._unexport(
            names.move_iqn(self.prefix, move.shadow_id),
            move.volume_id)

    def serving(self, volume_id: str) -> tuple[bool, bool]:
        """How a volume's handle is served at this moment.

        :returns: whether it is at all (which opens it once), and whether to
            anyone but the destination of a move
        """
        device = names.handle_path(volume_id)
        iqns = [found['iqn'] for found in self._found()
                if device in found['devices']]
        return bool(iqns), any(
            not names.shadow_of_move_iqn(self.prefix, iqn) for iqn in iqns)

    def offer_volume(self, volume_id: str, initiator: str,
                     auth: str) -> dict:
        """Serve a volume to a host without this backend.

        :returns: connection properties for that host
        """
        iqn = names.remote_iqn(self.prefix, volume_id, initiator)
        self._export(iqn, volume_id, False, initiator, auth)
        for which in (initiator, None):
            self._ended.pop((volume_id, which), None)
        return dict(connection_properties(
            location(self.address, self.port, iqn), auth),
            volume_id=volume_id)

    def offer_again(self, volume_id: str, initiator: str,
                    properties: dict) -> bool:
        """Serve a volume as before: a reboot forgets all exports.

        Not if the connection was ended here: Cinder deletes its attachment
        only afterwards.

        :param properties: what :meth:`offer_volume` gave
        """
        iqn = names.remote_iqn(self.prefix, volume_id, initiator)
        if properties['target_iqn'] != iqn or self._has_ended(
                volume_id, initiator):
            return False
        return self._export(
            iqn, volume_id, False, initiator, ' '.join(
                properties['auth_' + key]
                for key in ('method', 'username', 'password')))

    def _has_ended(self, volume_id, initiator):
        since = time.monotonic() - ENDING
        return any(self._ended.get((volume_id, which), since) > since
                   for which in (initiator, None))

    def _note_ended(self, volume_id, initiator):
        now = time.monotonic()
        self._ended = {which: when for which, when in self._ended.items()
                       if when > now - ENDING}
        self._ended[volume_id, initiator] = now

    def offered(self) -> set[str]:
        """The names of all targets that this node serves."""
        return {found['iqn'] for found in self._found()}

    def served_to_others(self) -> set[str]:
        """The volumes that are served to hosts without this backend."""
        return {names.volume_of_remote_iqn(self.prefix, iqn)
                for iqn in self.offered()} - {None}

    def withdraw_volume(self, volume_id: str, initiator: str | None) -> bool:
        """Stop serving a volume to one initiator, or (None) to all."""
        self._note_ended(volume_id, initiator)
        if initiator:
            return self._unexport(
                names.remote_iqn(self.prefix, volume_id, initiator),
                volume_id)
        return any([self._unexport(found['iqn'], volume_id)
                    for found in self._found()
                    if volume_id == names.volume_of_remote_iqn(
                        self.prefix, found['iqn'])])

    def withdraw_strays(self, wanted) -> list[str]:
        """Stop serving the sources of moves that are over.

        :param wanted: ``wanted(shadow_id)``: whether it is still a move
        :returns: the shadow ids that were served in vain
        """
        strays = []
        for found in self._found():
            shadow_id = names.shadow_of_move_iqn(self.prefix, found['iqn'])
            if shadow_id and not wanted(shadow_id):
                for device in found['devices'] or ['']:
                    lio.unexport(found['iqn'], names.backstore(device))
                strays.append(shadow_id)
        return strays

    def _found(self):
        return json.loads(lio.exports(self.prefix))

    def _export(self, iqn, volume_id, readonly, initiator, auth):
        _method, user, password = auth.split(' ')
        device = names.handle_path(volume_id)
        return lio.export(
            iqn, names.backstore(device), device, volume_id, readonly,
            self.address, self.port, initiator, user, password)

    def _unexport(self, iqn, volume_id):
        return lio.unexport(
            iqn, names.backstore(names.handle_path(volume_id)))


class Imports:
    """What this node attaches from its peers, through os-brick.

    :param timeout: limit of a command, seconds
    :param stall: how long I/O waits for a dead source, seconds
    """

    def __init__(self, timeout: float, stall: int):
        self.timeout = timeout
        self.stall = stall

    def initiator(self) -> str:
        """This node's iSCSI initiator name; '' if it has none."""
        from cinder.volume import volume_utils  # slow
        return volume_utils.brick_get_connector(
            'ISCSI').get_connector_properties(
                '', multipath=False, enforce_multipath=False).get(
                    'initiator') or ''

    def disk(self, move: state.Move) -> str | None:
        """The path of a move's source disk if a session has it."""
        return self._known_disk(move.source_iqn)

    @staticmethod
    def _known_disk(iqn):
        disks = json.loads(block.iscsi_disks()).get(iqn)
        return disks[0] if disks else None

    def attach(self, move: state.Move) -> str:
        """Log in to a move's source; verify that it is that source.

        :returns: path of the disk
        :raises WrongSource: if its size or serial number differs; it is
            logged out again
        :raises SourceUnreachable: if its portal does not answer
        :raises LoginFailed: if no disk came of it
        """
        properties = connection_properties(move.location, move.auth)
        path = self.disk(move)
        if path is None:
            self._probe(properties['target_portal'])
            block.record_target(properties['target_iqn'],
                                properties['target_portal'], self.timeout)
            path = self._connect(properties)
        try:
            self._verify(move, properties['target_iqn'], path)
        except exceptions.WrongSource:
            self.detach(move)
            raise
        block.set_recovery_timeout(path, self.stall)
        return path

    @staticmethod
    def _connect(properties):
        from cinder.volume import volume_utils  # slow
        try:
            return volume_utils.brick_get_connector('ISCSI').connect_volume(
                properties)['path']
        except brick.BrickException as exc:
            raise exceptions.LoginFailed(
                iqn=properties['target_iqn'],
                portal=properties['target_portal'], reason=exc)

    def login_from_records(self, move: state.Move) -> str:
        """Log in with what this node's own iSCSI records know.

        :returns: path of the disk
        :raises WrongSource: if it is another disk
        :raises NotPossible: if the records do not know the source
        :raises SourceUnreachable: if it does not answer
        """
        iqn = move.source_iqn
        path = self._known_disk(iqn)
        if path is None:
            portal = block.known_portal(iqn, self.timeout)
            if not portal:
                raise exceptions.NotPossible(
                    volume=move.volume_id, reason='this node\'s iSCSI '
                    'records do not know %s; the volume service logs in to '
                    'it.' % iqn)
            self._probe(portal)
            block.login(iqn, self.timeout)
            path = self._await_disk(iqn)
            if path is None:
                raise exceptions.SourceUnreachable(
                    portal=portal, reason='no disk came with the session')
        self._verify(move, iqn, path)
        block.set_recovery_timeout(path, self.stall)
        return path

    def _await_disk(self, iqn):
        return tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda found: not found),
            stop=tenacity.stop_after_delay(DISK_TIMEOUT),
            wait=tenacity.wait_fixed(0.2),
            retry_error_callback=lambda state: None)(self._known_disk, iqn)

    def detach(self, move: state.Move) -> None:
        """Log out, whatever still uses the disk; nothing on it is dirty."""
        block.end_session(connection_properties(
            move.location, move.auth)['target_iqn'], self.timeout)

    @staticmethod
    def _probe(portal):
        host, _colon, port = portal.rpartition(':')
        try:
            socket.create_connection(
                (host.strip('[]'), int(port)), PORTAL_TIMEOUT).close()
        except OSError as exc:
            raise exceptions.SourceUnreachable(portal=portal, reason=exc)

    @staticmethod
    def _verify(move, iqn, path):
        size, serial = block.identity(path)
        if serial != move.volume_id:
            raise exceptions.WrongSource(
                iqn=iqn, device=path, reason='serial number "%s" instead of '
                '"%s"' % (serial, move.volume_id))
        if size != move.size_bytes:
            raise exceptions.WrongSource(
                iqn=iqn, device=path, reason='%d bytes instead of %d'
                % (size, move.size_bytes))
