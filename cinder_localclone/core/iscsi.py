# SPDX-License-Identifier: Apache-2.0
"""iSCSI names and targets, as values. Pure.

A name is recognized by the part after its prefix: exports keep their names
when Cinder's ``target_prefix`` is changed.
"""

from collections.abc import Mapping
import hashlib
import ipaddress
import re
from typing import Any

from cinder_localclone.core import names

_WORD = '[0-9a-f]{8}'
_MOVE = re.compile(r'[^\s/]*localclone-(%s)' % names.UUID)
_EXPORT = re.compile(r'[^\s/]*volume-(%s)-(%s)' % (names.UUID, _WORD))
#: Only in the names of exports for remote attachments.
REMOTE = 'remote-'
#: Volume; backend, home and initiator.
_ATTACHMENT = re.compile(r'[^\s/]*%s(%s)-(%s)-(%s)-(%s)' % (
    REMOTE, names.UUID, _WORD, _WORD, _WORD))


def move_iqn(prefix: str, move_id: str) -> str:
    """Return the iSCSI name of a move's source export."""
    return '%slocalclone-%s' % (prefix, move_id)


def move_of_iqn(iqn: str) -> str | None:
    """Return the move id in the name of a move's export; None in others."""
    match = _MOVE.fullmatch(iqn)
    return match and match.group(1)


def remote_iqn(prefix: str, volume_id: str, initiator: str) -> str:
    """Return the iSCSI name of a volume's export to a foreign host.

    The host has no service of the backend.
    """
    return '%svolume-%s-%s' % (prefix, volume_id, _digest(initiator))


def attachment_iqn(prefix: str, volume_id: str, initiator: str,
                   home: str) -> str:
    """Return the iSCSI name of a volume's export for a remote attachment.

    It differs from :func:`remote_iqn`, so logins of a node's volume service
    and of os-brick stay apart. So do exports of successive homes, and of
    different backends.

    :param home: service host of the exporting node
    """
    return '%s%s%s-%s-%s-%s' % (
        prefix, REMOTE, volume_id, _digest(names.backend_of(home)),
        _digest(home), _digest(initiator))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def volume_of_remote_iqn(iqn: str) -> str | None:
    """Return the volume id in the name of an export to a host; None in others.

    Exports for remote attachments are among them.
    """
    match = _EXPORT.fullmatch(iqn) or _ATTACHMENT.fullmatch(iqn)
    return match and match.group(1)


def is_remote_to(iqn: str, volume_id: str, initiator: str) -> bool:
    """Return whether a name belongs to a volume's export to an initiator.

    The home may have had any name when it made the export.
    """
    match = _EXPORT.fullmatch(iqn) or _ATTACHMENT.fullmatch(iqn)
    return match is not None and (
        match.group(1), match.groups()[-1]) == (volume_id, _digest(initiator))


def volume_of_attachment_iqn(iqn: str, host: str) -> str | None:
    """Return the volume id in the name of a remote attachment's export.

    :param host: a service host of the backend
    :returns: None for any other name, or another backend
    """
    match = _ATTACHMENT.fullmatch(iqn)
    return match.group(1) if match and match.group(2) == _digest(
        names.backend_of(host)) else None


def is_attached_from(iqn: str, home: str) -> bool:
    """Return whether a name belongs to a remote attachment from a home.

    :param home: service host, as it was when the name was given
    """
    match = _ATTACHMENT.fullmatch(iqn)
    return match is not None and match.group(3) == _digest(home)


def is_iqn(iqn: str) -> bool:
    """Return whether a target of this name can be the driver's own."""
    return any(each.fullmatch(iqn) for each in (_MOVE, _EXPORT, _ATTACHMENT))


def is_initiator(name: str) -> bool:
    """Return whether a text can be the name of an initiator, and no path."""
    return bool(re.fullmatch(r'[^\s/]+', name))


def is_address(text: str) -> bool:
    """Return whether a text is an IP address, IPv6 without brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_portal(text: str) -> bool:
    """Return whether a text is a portal: IP address and port."""
    address, _colon, port = text.rpartition(':')
    return port.isdecimal() and is_address(plain(address))


def plain(address: str) -> str:
    """Return the canonical form of an IP address, without brackets.

    IPv6 addresses have several: long, short, with capitals, in brackets.

    :returns: a host name unchanged
    """
    address = address.strip()
    if address.startswith('[') and address.endswith(']'):
        address = address[1:-1]
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address


def bracketed(address: str) -> str:
    """Return an IP address in the form of portals: IPv6 in brackets."""
    return '[%s]' % address if ':' in address else address


def portal(address: str, port: int) -> str:
    """Return a portal of targets: address and port."""
    return '%s:%d' % (bracketed(address), port)


def location(address: str, port: int, iqn: str) -> str:
    """Return a target in the form of Cinder's provider_location."""
    return '%s,1 %s 0' % (portal(address, port), iqn)


def portal_of(location: str) -> str:
    """Return the portal in a provider_location."""
    return location.partition(',')[0]


def auth(properties: Mapping[str, Any]) -> str:
    """Return a connection's credentials in the form of a provider_auth.

    :param properties: the result of :func:`connection_properties`
    """
    return ' '.join(properties['auth_' + key]
                    for key in ('method', 'username', 'password'))


def connection_properties(where: str, auth: str) -> dict[str, Any]:
    """Return the properties for os-brick to connect a target.

    :param where: a provider_location as :func:`location` builds it
    :param auth: a provider_auth as :func:`new_credentials` builds it
    :raises ValueError: if either has another form
    """
    portal, iqn, lun = where.split(' ')
    method, user, password = auth.split(' ')
    return {'target_portal': portal.rpartition(',')[0], 'target_iqn': iqn,
            'target_lun': int(lun), 'target_discovered': False,
            'auth_method': method, 'auth_username': user,
            'auth_password': password}


def new_credentials() -> str:
    """Return one-time CHAP credentials in the form of Cinder's provider_auth.

    Cinder's generators use no "0": the kernel's target decodes a user name
    with "0b" or "0x" at its beginning as an encoded number, and refuses it.
    """
    from cinder.volume import volume_utils  # slow, so only here
    return 'CHAP %s %s' % (volume_utils.generate_username(),
                           volume_utils.generate_password())
