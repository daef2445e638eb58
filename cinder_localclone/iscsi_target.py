# SPDX-License-Identifier: Apache-2.0
"""A served iSCSI target as Cinder records it and os-brick attaches it."""

from collections.abc import Mapping
import ipaddress
from typing import Any


def new_credentials() -> str:
    """One-time CHAP credentials, in the form of Cinder's provider_auth.

    Cinder's generators use no "0": the kernel's target takes a user name
    that begins with "0b" or "0x" for an encoded number and refuses it.
    """
    from cinder.volume import volume_utils  # slow: only where it is needed
    return 'CHAP %s %s' % (volume_utils.generate_username(),
                           volume_utils.generate_password())


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
