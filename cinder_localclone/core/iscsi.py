# SPDX-License-Identifier: Apache-2.0
"""iSCSI names and targets, as values. Pure.

A name is recognized by what follows its prefix: exports keep theirs when
Cinder's ``target_prefix`` is changed.
"""

from collections.abc import Mapping
import hashlib
import ipaddress
import re
from typing import Any

from cinder_localclone.core import names

_WORD = '[0-9a-f]{8}'
_MOVE = re.compile(r'\S*localclone-(%s)' % names.UUID)
_EXPORT = re.compile(r'\S*volume-(%s)-(%s)' % (names.UUID, _WORD))
#: In the names of exports by which a node passes a volume through, and of no
#: others.
REMOTE = 'remote-'
#: Volume; backend, home and initiator.
_ATTACHMENT = re.compile(r'\S*%s(%s)-(%s)-(%s)-(%s)' % (
    REMOTE, names.UUID, _WORD, _WORD, _WORD))


def move_iqn(prefix: str, move_id: str) -> str:
    """The iSCSI name under which the source of a move is exported."""
    return '%slocalclone-%s' % (prefix, move_id)


def move_of_iqn(iqn: str) -> str | None:
    """The shadow id in the name of a move's export, if it is one."""
    match = _MOVE.fullmatch(iqn)
    return match and match.group(1)


def remote_iqn(prefix: str, volume_id: str, initiator: str) -> str:
    """The iSCSI name under which one initiator gets a volume remotely."""
    return '%svolume-%s-%s' % (prefix, volume_id, _digest(initiator))


def attachment_iqn(prefix: str, volume_id: str, initiator: str,
                   home: str) -> str:
    """The iSCSI name under which a node gets a volume to pass it through.

    Another than that of a remote export: what a node's volume service and
    os-brick log in to, and out of, stays apart. So does what different homes
    serve, one after the other, and what belongs to different backends.

    :param home: service host of the node that serves it
    """
    return '%s%s%s-%s-%s-%s' % (
        prefix, REMOTE, volume_id, _digest(names.backend_of(home)),
        _digest(home), _digest(initiator))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def volume_of_remote_iqn(iqn: str) -> str | None:
    """The volume id in the name of a remote export, if it is one.

    What is passed through is remote as well.
    """
    match = _EXPORT.fullmatch(iqn) or _ATTACHMENT.fullmatch(iqn)
    return match and match.group(1)


def is_remote_to(iqn: str, volume_id: str, initiator: str) -> bool:
    """Return whether a name is that of a volume's export to an initiator.

    Whatever the name of the home was when it made that.
    """
    match = _EXPORT.fullmatch(iqn) or _ATTACHMENT.fullmatch(iqn)
    return match is not None and (
        match.group(1), match.groups()[-1]) == (volume_id, _digest(initiator))


def volume_of_attachment_iqn(iqn: str, host: str) -> str | None:
    """The volume id in the name of what is passed through.

    :param host: a service host of the backend; None is that of another
    """
    match = _ATTACHMENT.fullmatch(iqn)
    return match.group(1) if match and match.group(2) == _digest(
        names.backend_of(host)) else None


def is_attached_from(iqn: str, home: str) -> bool:
    """Return whether a name says that a home's volume is passed through.

    :param home: service host, as it was when the name was given
    """
    match = _ATTACHMENT.fullmatch(iqn)
    return match is not None and match.group(3) == _digest(home)


def is_iqn(iqn: str) -> bool:
    """Whether a target of this name can be the driver's own."""
    return any(each.fullmatch(iqn) for each in (_MOVE, _EXPORT, _ATTACHMENT))


def plain(address: str) -> str:
    """Return the one form of an IP address, without brackets.

    IPv6 addresses have several: long, short, with capitals, in brackets.

    :returns: a name unchanged
    """
    address = address.strip()
    if address.startswith('[') and address.endswith(']'):
        address = address[1:-1]
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address


def bracketed(address: str) -> str:
    """Return an IP address as portals have it: IPv6 in brackets."""
    return '[%s]' % address if ':' in address else address


def portal(address: str, port: int) -> str:
    """Where targets are served: address and port."""
    return '%s:%d' % (bracketed(address), port)


def location(address: str, port: int, iqn: str) -> str:
    """Where a target is, in the form of Cinder's provider_location."""
    return '%s,1 %s 0' % (portal(address, port), iqn)


def portal_of(location: str) -> str:
    """Return the portal in a provider_location."""
    return location.partition(',')[0]


def auth(properties: Mapping[str, Any]) -> str:
    """What a connection logs in with, in the form of a provider_auth.

    :param properties: as :func:`connection_properties` gives them
    """
    return ' '.join(properties['auth_' + key]
                    for key in ('method', 'username', 'password'))


def connection_properties(where: str, auth: str) -> dict[str, Any]:
    """What os-brick needs to attach a target.

    :param where: a provider_location as :func:`location` builds it
    :param auth: a provider_auth as :func:`new_credentials` builds it
    :raises ValueError: if either is of another form
    """
    portal, iqn, lun = where.split(' ')
    method, user, password = auth.split(' ')
    return {'target_portal': portal.rpartition(',')[0], 'target_iqn': iqn,
            'target_lun': int(lun), 'target_discovered': False,
            'auth_method': method, 'auth_username': user,
            'auth_password': password}


def new_credentials() -> str:
    """One-time CHAP credentials, in the form of Cinder's provider_auth.

    Cinder's generators use no "0": the kernel's target takes a user name
    that begins with "0b" or "0x" for an encoded number and refuses it.
    """
    from cinder.volume import volume_utils  # slow: only where it is needed
    return 'CHAP %s %s' % (volume_utils.generate_username(),
                           volume_utils.generate_password())
