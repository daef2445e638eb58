# SPDX-License-Identifier: Apache-2.0
"""Where the key of a volume is, as its own header says it.

A token of LUKS2 (cryptsetup-token(8)) travels with the volume, so every node
that has the volume knows its key without asking anybody. It names a secret of
the key manager, and never is one.
"""

from collections.abc import Mapping
import dataclasses
import enum
import json
import typing

from cinder_localclone import encryption_types

#: ("luks2-..." is reserved for cryptsetup's own.)
TYPE = 'localclone'


class Role(str, enum.Enum):
    """What a key is for."""

    #: Whoever attaches the volume opens it with this.
    VOLUME = 'volume'
    #: For the day on which that one is lost.
    RECOVERY = 'recovery'


@dataclasses.dataclass(frozen=True)
class Token:
    """One of the driver's tokens.

    :param key: reference of the secret; '' of a recovery key that only a
        person has
    :param shared: whether other volumes have the same secret
    :param keyslots: ids of what it opens; cryptsetup adds those that a
        re-encryption makes
    :param number: its own id in the header; None before it is there
    :param slot: which slot its key is about to get: written down first, so
        that a slot which is found later is known; '' once it has that
    :param replaces: reference of the secret that its own takes the place of
    """

    key: str
    key_format: encryption_types.KeyFormat
    shared: bool = False
    role: Role = Role.VOLUME
    keyslots: tuple[str, ...] = ()
    number: str | None = None
    slot: str = ''
    replaces: str = ''

    def __str__(self) -> str:
        """As ``cryptsetup token import`` reads it."""
        return json.dumps({
            'type': TYPE, 'keyslots': list(self.keyslots), 'key': self.key,
            'format': self.key_format.value, 'shared': self.shared,
            'role': self.role.value, 'slot': self.slot,
            'replaces': self.replaces})


def parse(number: str, token: Mapping[str, typing.Any]) -> Token | None:
    """One token of a header; None if it is not one of the driver's.

    :raises ValueError: if it is, and can't be read
    """
    if token.get('type') != TYPE:
        return None
    try:
        return Token(
            key=str(token['key']),
            key_format=encryption_types.KeyFormat(token['format']),
            shared=bool(token['shared']), role=Role(token['role']),
            keyslots=tuple(map(str, token['keyslots'])), number=number,
            slot=str(token.get('slot', '')),
            replaces=str(token.get('replaces', '')))
    except (KeyError, TypeError) as exc:
        raise ValueError('token %s of the header lacks %s' % (number, exc))
