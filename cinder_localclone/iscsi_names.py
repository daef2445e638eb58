# SPDX-License-Identifier: Apache-2.0
"""The iSCSI names of what a node serves, and the way back from them. Pure."""

import hashlib
import re

from cinder_localclone import names

_EXPORT = re.compile(
    r'\S*(localclone-%s|volume-%s-[0-9a-f]{8}|pass-%s(-[0-9a-f]{8}){2})' % (
        names.UUID, names.UUID, names.UUID))
_PASS = re.compile(r'\S*pass-(%s)-([0-9a-f]{8})-[0-9a-f]{8}' % names.UUID)


def move_iqn(prefix: str, shadow_id: str) -> str:
    """The iSCSI name under which the source of a move is exported."""
    return '%slocalclone-%s' % (prefix, shadow_id)


def shadow_of_move_iqn(prefix: str, iqn: str) -> str | None:
    """The shadow id in the name of a move's export, if it is one."""
    return _id_in(re.escape(prefix) + 'localclone-(%s)' % names.UUID, iqn)


def remote_iqn(prefix: str, volume_id: str, initiator: str) -> str:
    """The iSCSI name under which one initiator gets a volume remotely."""
    return '%svolume-%s-%s' % (prefix, volume_id, _digest(initiator))


def pass_iqn(prefix: str, volume_id: str, initiator: str, home: str) -> str:
    """The iSCSI name under which a node gets a volume to pass it through.

    Another than that of a remote export: what a node's volume service and
    os-brick log in to, and out of, stays apart. So does what different homes
    serve, one after the other, and what belongs to different backends.

    :param home: service host of the node that serves it
    """
    return '%spass-%s-%s-%s' % (
        prefix, volume_id, _digest(names.backend_of(home)),
        _digest('%s %s' % (initiator, home)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def volume_of_remote_iqn(prefix: str, iqn: str) -> str | None:
    """The volume id in the name of a remote export, if it is one.

    What is passed through is remote as well.
    """
    return _id_in(
        re.escape(prefix) + '(?:volume|pass)-(%s)(?:-[0-9a-f]{8})+'
        % names.UUID, iqn)


def volume_of_pass_iqn(iqn: str, host: str) -> str | None:
    """The volume id in the name of what is passed through, by any prefix.

    :param host: a service host of the backend; None is that of another
    """
    match = _PASS.fullmatch(iqn)
    return match.group(1) if match and match.group(2) == _digest(
        names.backend_of(host)) else None


def is_iqn(iqn: str) -> bool:
    """Whether a target of this name can be the driver's own, by any prefix."""
    return bool(_EXPORT.fullmatch(iqn))


def _id_in(pattern: str, iqn: str) -> str | None:
    match = re.fullmatch(pattern, iqn)
    return match.group(1) if match else None
