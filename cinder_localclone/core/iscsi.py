# SPDX-License-Identifier: Apache-2.0
"""The iSCSI names of what a node serves, and the way back from them. Pure.

A name is recognized by what follows its prefix: exports keep theirs when
Cinder's ``target_prefix`` is changed.
"""

import hashlib
import re

from cinder_localclone import names

_WORD = '[0-9a-f]{8}'
_MOVE = re.compile(r'\S*localclone-(%s)' % names.UUID)
_REMOTE = re.compile(r'\S*volume-(%s)-(%s)' % (names.UUID, _WORD))
#: Volume; backend, home and initiator.
_PASS = re.compile(r'\S*pass-(%s)-(%s)-(%s)-(%s)' % (
    names.UUID, _WORD, _WORD, _WORD))


def move_iqn(prefix: str, shadow_id: str) -> str:
    """The iSCSI name under which the source of a move is exported."""
    return '%slocalclone-%s' % (prefix, shadow_id)


def shadow_of_move_iqn(iqn: str) -> str | None:
    """The shadow id in the name of a move's export, if it is one."""
    match = _MOVE.fullmatch(iqn)
    return match and match.group(1)


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
    return '%spass-%s-%s-%s-%s' % (
        prefix, volume_id, _digest(names.backend_of(home)), _digest(home),
        _digest(initiator))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def volume_of_remote_iqn(iqn: str) -> str | None:
    """The volume id in the name of a remote export, if it is one.

    What is passed through is remote as well.
    """
    match = _REMOTE.fullmatch(iqn) or _PASS.fullmatch(iqn)
    return match and match.group(1)


def is_remote_to(iqn: str, volume_id: str, initiator: str) -> bool:
    """Return whether a name is that of a volume's export to an initiator.

    Whatever the name of the home was when it made that.
    """
    match = _REMOTE.fullmatch(iqn) or _PASS.fullmatch(iqn)
    return match is not None and (
        match.group(1), match.groups()[-1]) == (volume_id, _digest(initiator))


def volume_of_pass_iqn(iqn: str, host: str) -> str | None:
    """The volume id in the name of what is passed through.

    :param host: a service host of the backend; None is that of another
    """
    match = _PASS.fullmatch(iqn)
    return match.group(1) if match and match.group(2) == _digest(
        names.backend_of(host)) else None


def is_passed_from(iqn: str, home: str) -> bool:
    """Return whether a name says that a home's volume is passed through.

    :param home: service host, as it was when the name was given
    """
    match = _PASS.fullmatch(iqn)
    return match is not None and match.group(3) == _digest(home)


def is_iqn(iqn: str) -> bool:
    """Whether a target of this name can be the driver's own."""
    return any(each.fullmatch(iqn) for each in (_MOVE, _REMOTE, _PASS))
