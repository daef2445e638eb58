# SPDX-License-Identifier: Apache-2.0
"""What this node serves, each device to one initiator with CHAP.

Handles to hosts without the backend, the sources of moves to their
destinations.

What there is is looked up without the kernel's target, which is only called
when there is something to change: then it may raise ExportFailed, or
TargetTimeout if the target hangs.
"""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Mapping
import ipaddress
import json
import re
import socket
import threading
import time
from typing import Any

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import iscsi as interfaces
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage.privsep import lio
from cinder_localclone.storage.privsep import lio_configfs

LOG = logging.getLogger(__name__)

#: Seconds after which a connection that was ended, but is still attached by
#: Cinder's records, counts as one again.
ENDING = 600
#: Seconds within which Cinder records what it was offered.
OFFERING = 600
#: Seconds for a target to show that no change hangs in it.
PROBE_TIMEOUT = 2
#: The kernel's IPv4 routes (net/ipv4/fib_trie.c), with this node's addresses.
ROUTES = '/proc/net/fib_trie'


class Recent:
    """What was noted a moment ago, by whichever thread.

    :param seconds: how long that is
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._noted: dict[Hashable, float] = {}
        # Without eventlet another thread may run in the midst of a line.
        self._lock = threading.Lock()

    def note(self, what: Hashable) -> None:
        """It is now."""
        now = time.monotonic()
        with self._lock:
            self._noted = {each: when for each, when in self._noted.items()
                           if when > now - self._seconds}
            self._noted[what] = now

    def forget(self, what: Hashable) -> None:
        """It does not count any more."""
        with self._lock:
            self._noted.pop(what, None)

    def __contains__(self, what: Hashable) -> bool:
        since = time.monotonic() - self._seconds
        return self._noted.get(what, since) > since


class Exports(interfaces.Exports):
    """What this node serves, through the kernel's own target (LIO).

    :param prefix: Cinder's ``target_prefix``
    :param address: IP address to serve on
    :param port: TCP port to serve on
    :param host: this service's host
    :param has_address: whether this node has an address
    """

    def __init__(self, prefix: str, address: str, port: int,
                 host: str = '',
                 has_address: Callable[[str], bool] = lambda _address: False
                 ) -> None:
        # As the kernel's target has names: without capitals.
        self.prefix = prefix.lower()
        self.host = host
        self.address = iscsi.plain(address)
        self.port = port
        self._has_address = has_address
        #: Where hosts without the backend are served.
        self.portal = iscsi.portal(self.address, port)
        #: iSCSI names of what was offered.
        self._exported = Recent(OFFERING)
        #: Snapshots that were offered.
        self._lent = Recent(OFFERING)
        #: Backstores that nothing served at the last look.
        self._unused: set[str] = set()
        #: (volume id, initiator or None for all)
        self._ended = Recent(ENDING)

    def source_location(self, move_id: str) -> str:
        return iscsi.location(
            self.address, self.port,
            iscsi.move_iqn(self.prefix, move_id))

    def portal_for(self, portal: str) -> str:
        return self.portal if (
            not self.has_portal(portal)
            # Otherwise its network is not up yet.
            and self._has_address(self.address)) else portal

    def has_portal(self, portal: str) -> bool:
        return portal == self.portal or self._has_address(
            _parts(portal)[0])

    def location_for(self, move: state.Move) -> str:
        portal = iscsi.portal_of(move.location)
        return iscsi.location(
            *_parts(self.portal_for(portal)), move.source_iqn)

    def export_source(self, move: state.Move) -> bool:
        if not (move.initiator and move.auth):
            raise exceptions.ExportFailed(
                reason='the record of the move of volume %s names no '
                'initiator or no CHAP secret' % move.volume_id)
        return lio.export(*self._asked_of(move))

    def is_source_exported_as_recorded(self, move: state.Move) -> bool:
        return bool(move.initiator and move.auth
                    and self.location_for(move) == move.location
                    and lio.is_exported(*self._asked_of(move)))

    def _asked_of(self, move: state.Move) -> tuple[Any, ...]:
        return self._asked(
            move.source_iqn, names.source_path(move.move_id),
            move.volume_id, True, move.initiator, move.auth,
            iscsi.portal_of(move.location))

    def withdraw_source(self, move_id: str) -> bool:
        name = names.source(move_id)
        iqns = {iqn for iqn in self.exported()
                if iscsi.move_of_iqn(iqn) == move_id}
        if iqns:
            return _withdraw_each(lio.unexport, name, iqns)
        return name in _unused() and lio.unexport('', name)

    def is_exported(self, volume_id: str) -> bool:
        return self._is_exported(names.handle_path(volume_id),
                                 names.export_device_path(volume_id))

    def is_source_exported(self, move_id: str) -> bool:
        return self._is_exported(names.source_path(move_id))

    def _is_exported(self, *devices: str) -> bool:
        return any(device in target['devices']
                   for target in self._targets() for device in devices)

    def opens_in_vain(self, volume_id: str) -> bool:
        return names.handle(volume_id) in _unused()

    def problem(self) -> str:
        hanging = [*filter(iscsi.is_iqn,
                           lio_configfs.hanging(PROBE_TIMEOUT))]
        return hanging and (
            'its iSCSI target hangs: a change of %s waits for a device that '
            'does not answer' % ', '.join(hanging)) or ''

    def export_volume(self, volume_id: str, initiator: str, auth: str,
                      readonly: bool = False, remote: bool = False,
                      device: str = '') -> dict[str, Any]:
        iqn = iscsi.attachment_iqn(
            self.prefix, volume_id, initiator, self.host
        ) if remote else iscsi.remote_iqn(
            self.prefix, volume_id, initiator)
        self._exported.note(iqn)
        self._export(iqn, device or names.handle_path(volume_id), volume_id,
                     readonly, initiator, auth, self.portal)
        for which in (initiator, None):
            self._ended.forget((volume_id, which))
        return dict(iscsi.connection_properties(
            iscsi.location(self.address, self.port, iqn), auth),
            volume_id=volume_id)

    def note_exported(self, snapshot_id: str) -> None:
        self._lent.note(snapshot_id)

    def was_exported(self, snapshot_id: str) -> bool:
        return snapshot_id in self._lent

    def export_again(self, volume_id: str, initiator: str,
                     properties: Mapping[str, Any], device: str = '') -> bool:
        iqn = properties['target_iqn']
        if self._has_ended(volume_id, initiator):
            return False
        if not iscsi.is_remote_to(iqn, volume_id, initiator):
            raise exceptions.NotPossible(
                volume=volume_id, reason='its attachment names %s, which is '
                'not the name of its export to %s. Detach the volume on that '
                'host and attach it again.' % (iqn, initiator))
        return self._export(
            iqn, device or names.handle_path(volume_id), volume_id, False,
            initiator, iscsi.auth(properties),
            properties['target_portal'])

    def _has_ended(self, volume_id: str, initiator: str) -> bool:
        return any((volume_id, which) in self._ended
                   for which in (initiator, None))

    def exported(self) -> set[str]:
        """The names of all targets that this node serves."""
        return set(json.loads(lio_configfs.targets()))

    def unfinished(self) -> set[str]:
        return set(json.loads(lio_configfs.unfinished()))

    def remote(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for iqn in self.exported():
            volume_id = iscsi.volume_of_remote_iqn(iqn)
            if volume_id:
                found.setdefault(volume_id, set()).add(iqn)
        return found

    def withdraw_unnamed(self, volume_id: str, unnamed: set[str],
                         at_once: bool = False) -> bool:
        return _withdraw_each(
            self._unexport, names.handle(volume_id),
            {iqn for iqn in unnamed if at_once or iqn not in self._exported})

    def is_last(self, volume_id: str, initiator: str | None) -> bool:
        exported = self.remote().get(volume_id, set())
        return bool(exported) and (
            initiator is None or all(
                iscsi.is_remote_to(iqn, volume_id, initiator)
                for iqn in exported))

    def withdraw_volume(self, volume_id: str, initiator: str | None) -> bool:
        self._ended.note((volume_id, initiator))
        iqns = {iqn for iqn in self.exported() if (
            iscsi.is_remote_to(iqn, volume_id, initiator) if initiator
            else volume_id == iscsi.volume_of_remote_iqn(iqn))}
        for iqn in iqns:  # if it can't be withdrawn now, the next look does
            self._exported.forget(iqn)
        name = names.handle(volume_id)
        if iqns:
            return _withdraw_each(lio.unexport, name, iqns)
        return name in _unused() and lio.unexport('', name)

    def withdraw_strays(self, wanted: Callable[[str], bool]) -> list[str]:
        strays: list[str] = []
        try:
            for target in self._targets():
                strays += self._withdraw_stray(target, wanted)
            unused = _unused()
            for name in sorted(unused & self._unused):
                _attempt('', name)
            self._unused = unused
        except (exceptions.LocalCloneError, OSError) as exc:
            LOG.error('The search for exports of ended moves failed; the next '
                      'periodic check tries again: %s', exc)
        return strays

    def _withdraw_stray(self, target: dict[str, Any],
                        wanted: Callable[[str], bool]) -> list[str]:
        move_id = iscsi.move_of_iqn(target['iqn'])
        if not move_id or wanted(move_id):
            return []
        gone = [_attempt(target['iqn'], names.backstore(device))
                for device in target['devices'] or ['']]
        return [move_id] * all(gone)

    def _targets(self) -> list[dict[str, Any]]:
        targets: list[dict[str, Any]] = json.loads(lio_configfs.exports())
        return targets

    def _export(self, iqn: str, device: str, volume_id: str, readonly: bool,
                initiator: str, auth: str, portal: str) -> bool:
        return lio.export(*self._asked(iqn, device, volume_id, readonly,
                                       initiator, auth, portal))

    @staticmethod
    def _asked(iqn: str, device: str, volume_id: str, readonly: bool,
               initiator: str, auth: str, portal: str) -> tuple[Any, ...]:
        """What the kernel's target is asked for."""
        _method, user, password = auth.split(' ')
        return (iqn, names.backstore(device), device, volume_id, readonly,
                *_parts(portal), initiator, user, password)

    def _unexport(self, iqn: str, name: str) -> bool:
        if iqn not in self.exported() and name not in _unused():
            return False
        return lio.unexport(iqn, name)


def _parts(portal: str) -> tuple[str, int]:
    """Address and port of a portal."""
    address, _colon, port = portal.rpartition(':')
    return iscsi.plain(address), int(port)


def has_address(address: str) -> bool:
    """Return whether this node has an IP address.

    Of IPv6, the kernel says from which address it would send something there;
    nothing is sent. For a second IPv4 address of a network it would name the
    first. To bind to an address may succeed anywhere (ip_nonlocal_bind).
    """
    try:
        if ipaddress.ip_address(address).version == 4:
            with open(ROUTES) as routes:
                return bool(re.search(
                    r'\|-- %s\n +/32 host LOCAL\n' % re.escape(address),
                    routes.read()))
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return iscsi.plain(probe.getsockname()[0]) == address
    except (ValueError, OSError):
        return False


def _unused() -> set[str]:
    return set(json.loads(lio_configfs.unused_backstores()))


def _withdraw_each(unexport: Callable[[str, str], bool], store: str,
                   iqns: set[str]) -> bool:
    """Stop serving under each name; one that fails does not keep the others.

    :returns: whether anything was withdrawn
    :raises LocalCloneError: the first failure, when all was tried
    """
    done, failure = False, None
    for iqn in sorted(iqns):
        try:
            done = unexport(iqn, store) or done
        except exceptions.LocalCloneError as exc:
            failure = failure or exc
    if failure:
        raise failure
    return done


def _attempt(iqn: str, store: str) -> bool:
    """Withdraw what is served in vain; whether that was possible.

    :param store: of the driver's, to be removed as well
    """
    try:
        lio.unexport(iqn, store if names.is_backstore(store) else '')
    except exceptions.LocalCloneError as exc:
        LOG.error('%(what)s is exported without need, and the export could '
                  'not be removed; the next periodic check tries again: '
                  '%(error)s',
                  {'what': iqn or store, 'error': exc})
        return False
    return True
