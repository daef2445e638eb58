# SPDX-License-Identifier: Apache-2.0
"""The order in which the key of a volume is replaced by another. Pure.

A slot is announced in a token, made, assigned, and only then recorded; the
old one goes last. What was done is read from the header and the volume's row
alone, so whoever comes after a power cut goes on where that was. At every
moment the key that the row names opens the volume.
"""

from collections.abc import Container
import dataclasses
import enum

from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import volume_types

#: How many slots, and how many tokens, a LUKS2 header may have.
MOST = 32


class CannotRotate(Exception):
    """A key that is not to be replaced now; says why, in words."""


class Do(enum.Enum):
    """What is to be done next."""

    #: Give a token's key the slot that the token announces.
    ADD_SLOT = 'add slot'
    #: Write into a token that it has the slot which it has announced.
    ASSIGN = 'assign'
    #: Prove that a token's key, fetched anew, opens the volume; then have the
    #: volume's row name it.
    RECORD = 'record'
    #: Drop a token's slots.
    DROP_SLOTS = 'drop slots'
    #: Delete a token's secret unless a row names it, then the token.
    DROP_TOKEN = 'drop token'


@dataclasses.dataclass(frozen=True)
class Step:
    """One step.

    :param token: what it is about
    :param by: whose key opens the volume meanwhile, and whose slots stay.
        cryptsetup, run as a batch, drops even the last slot that there is
    """

    do: Do
    token: luks_header.Token
    by: luks_header.Token


def announce(header: luks_header.Header, recorded: str, key: str,
             key_format: volume_types.KeyFormat) -> luks_header.Token:
    """The token by which a rotation begins; to be imported by its number.

    :param recorded: reference of the secret that the volume's row names
    :param key: reference of the new secret, which is stored already
    :raises CannotRotate: if it is not possible now
    """
    if header.reencryption:
        raise CannotRotate('it is being re-encrypted')
    if next_step(header, recorded):
        raise CannotRotate('an earlier change of its key is not complete')
    if _current(header, recorded).shared:
        raise CannotRotate('other volumes have the same key: change the '
                           'secret that their type names')
    return luks_header.Token(
        key=key, key_format=key_format, number=free_token(header),
        slot=free_slot(header), replaces=recorded)


def announce_again(header: luks_header.Header, token: luks_header.Token
                   ) -> luks_header.Token:
    """The same with another slot: somebody else has the announced one.

    :raises CannotRotate: if there is none
    """
    return dataclasses.replace(token, slot=free_slot(header))


def free_slot(header: luks_header.Header) -> str:
    """A slot that nobody has, and that none has been announced for.

    :raises CannotRotate: if there is none
    """
    return _free({*header.all_keyslots, *(
        token.slot for token in header.tokens)})


def free_token(header: luks_header.Header) -> str:
    """The number of a token that there is not.

    :raises CannotRotate: if there is none
    """
    return _free(header.all_tokens)


def next_step(header: luks_header.Header, recorded: str, give_up: bool = False
              ) -> Step | None:
    """What is to be done next of a rotation; None if there is none.

    :param recorded: reference of the secret that the volume's row names
    :param give_up: go back, because the new key is no good; once it is
        recorded there is no way back
    :raises CannotRotate: if the key that the row names does not open it, or
        would not any more
    """
    current = _current(header, recorded)
    for token in header.tokens:
        if token.role is not luks_header.Role.VOLUME:
            continue
        if token.replaces == recorded and not give_up:
            return _forward(header, token, current)
        if token.replaces == recorded or token.key == current.replaces:
            return _drop(header, token, current)
    return None


def _forward(header: luks_header.Header, token: luks_header.Token,
             current: luks_header.Token) -> Step:
    if not token.slot:
        do = Do.RECORD
    elif token.slot in header.all_keyslots:
        do = Do.ASSIGN
    else:
        do = Do.ADD_SLOT
    return Step(do, token, current)


def _drop(header: luks_header.Header, token: luks_header.Token,
          current: luks_header.Token) -> Step:
    slots = slots_of(header, token)
    if set(slots).intersection(current.keyslots):
        raise CannotRotate('two tokens in its header claim one slot')
    return Step(Do.DROP_SLOTS if slots else Do.DROP_TOKEN, token, current)


def slots_of(header: luks_header.Header, token: luks_header.Token
             ) -> tuple[str, ...]:
    """The slots of a token that there are, the announced one too."""
    return tuple(slot for slot in header.all_keyslots
                 if slot in token.keyslots or slot == token.slot)


def _current(header: luks_header.Header, recorded: str) -> luks_header.Token:
    """The token of the key that the volume's row names.

    :raises CannotRotate: if that does not open the volume
    """
    for token in header.opened_by(luks_header.Role.VOLUME):
        if token.key == recorded:
            return token
    raise CannotRotate('its header has no key of the secret that its row '
                       'names; compare both first')


def _free(taken: Container[str]) -> str:
    for number in map(str, range(MOST)):
        if number not in taken:
            return number
    raise CannotRotate('its header is full; remove keys that are not needed')
