# SPDX-License-Identifier: Apache-2.0
"""iSCSI exports of this node, each for a single initiator with CHAP.

Handles are exported to hosts without the backend and to nodes with a remote
attachment, sources of moves to their destinations.

Checks read configfs without calling the kernel's target. Only a change calls
it, and may raise ExportFailed, or TargetTimeout if the target hangs.
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

#: Seconds for Cinder to delete the attachment of an ended connection. An
#: attachment that still exists afterwards counts again.
ENDING = 600
#: Seconds within which Cinder records an export in an attachment.
OFFERING = 600
#: Seconds for each target to answer a check for hanging changes.
PROBE_TIMEOUT = 2
#: The kernel's IPv4 routes (net/ipv4/fib_trie.c), with this node's addresses.
ROUTES = '/proc/net/fib_trie'


class Recent:
    """Keys noted within the last seconds, by any thread.

    :param seconds: how long a key counts
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._noted: dict[Hashable, float] = {}
        # Without eventlet, threads switch also in the middle of a statement.
        self._lock = threading.Lock()

    def note(self, what: Hashable) -> None:
        """Note a key at the present time."""
        now = time.monotonic()
        with self._lock:
            self._noted = {each: when for each, when in self._noted.items()
                           if when > now - self._seconds}
            self._noted[what] = now

    def forget(self, what: Hashable) -> None:
        """Drop a key."""
        with self._lock:
            self._noted.pop(what, None)

    def __contains__(self, what: Hashable) -> bool:
        since = time.monotonic() - self._seconds
        return self._noted.get(what, since) > since


class Exports(interfaces.Exports):
    """Exports of this node, through the kernel's own target (LIO).

    :param prefix: Cinder's ``target_prefix``
    :param address: IP address of the exports
    :param port: TCP port of the exports
    :param host: this service's host
    :param has_address: function that returns whether this node has an address
    """

    def __init__(self, prefix: str, address: str, port: int,
                 host: str = '',
                 has_address: Callable[[str], bool] = lambda _address: False
                 ) -> None:
        # The kernel's target has names in lower case.
        self.prefix = prefix.lower()
        self.host = host
        self.address = iscsi.plain(address)
        self.port = port
        self._has_address = has_address
        #: The portal for hosts without the backend.
        self.portal = iscsi.portal(self.address, port)
        #: iSCSI names of recent exports.
        self._exported = Recent(OFFERING)
        #: Ids of recently exported snapshots.
        self._lent = Recent(OFFERING)
        #: Backstores without a target at the last check.
        self._unused: set[str] = set()
        #: Recently ended connections: (volume id, initiator or None for all).
        self._ended = Recent(ENDING)

    def source_location(self, move_id: str) -> str:
        return iscsi.location(
            self.address, self.port,
            iscsi.move_iqn(self.prefix, move_id))

    def portal_for(self, portal: str) -> str:
        return self.portal if (
            not self.has_portal(portal)
            # Without the address, the node's network is not up yet.
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
                reason='the move record of volume %s has no initiator or no '
                'CHAP secret' % move.volume_id)
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

    def has_open_unexported(self, volume_id: str) -> bool:
        return names.handle(volume_id) in _unused()

    def problem(self) -> str:
        hanging = [*filter(iscsi.is_iqn,
                           lio_configfs.hanging(PROBE_TIMEOUT))]
        return hanging and (
            'its iSCSI target hangs: a change of %s waits for an '
            'unresponsive device' % ', '.join(hanging)) or ''

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
                volume=volume_id, reason='its attachment names target %s, '
                'which is not its export to %s. Detach the volume from the '
                'host and attach it again.' % (iqn, initiator))
        return self._export(
            iqn, device or names.handle_path(volume_id), volume_id, False,
            initiator, iscsi.auth(properties),
            properties['target_portal'])

    def _has_ended(self, volume_id: str, initiator: str) -> bool:
        return any((volume_id, which) in self._ended
                   for which in (initiator, None))

    def exported(self) -> set[str]:
        """Return the names of all targets of this driver on this node."""
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
        for iqn in iqns:  # if the removal fails now, the next check repeats it
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
        """Return the arguments of :func:`.lio.export`."""
        _method, user, password = auth.split(' ')
        return (iqn, names.backstore(device), device, volume_id, readonly,
                *_parts(portal), initiator, user, password)

    def _unexport(self, iqn: str, name: str) -> bool:
        if iqn not in self.exported() and name not in _unused():
            return False
        return lio.unexport(iqn, name)


def _parts(portal: str) -> tuple[str, int]:
    """Return the address and port of a portal."""
    address, _colon, port = portal.rpartition(':')
    return iscsi.plain(address), int(port)


def has_address(address: str) -> bool:
    """Return whether this node has an IP address.

    IPv4 addresses are read from the kernel's routes. For IPv6 the kernel
    selects the source address of a packet to the address itself, without
    sending one. That does not work for a second IPv4 address in a network,
    because the kernel selects the first. Binding is no proof either: it may
    succeed anywhere (ip_nonlocal_bind).
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
    """Remove each export, and continue after a failure.

    :returns: whether anything was removed
    :raises LocalCloneError: the first failure, after all attempts
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
    """Remove an unused export, and log a failure.

    :param store: backstore, removed as well if it is the driver's
    :returns: False after a failure
    """
    try:
        lio.unexport(iqn, store if names.is_backstore(store) else '')
    except exceptions.LocalCloneError as exc:
        LOG.error('The unused export %(what)s could not be removed; the next '
                  'periodic check tries again: %(error)s',
                  {'what': iqn or store, 'error': exc})
        return False
    return True
