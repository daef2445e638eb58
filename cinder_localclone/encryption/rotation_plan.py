# SPDX-License-Identifier: Apache-2.0
"""Plan the steps of a key rotation. Pure.

A slot is announced in a token, made, assigned, and only then recorded. The old
key is removed last. The plan depends only on the header and the volume's row,
so a rotation continues after a power cut. At each moment the secret in the row
opens the volume.
"""

from collections.abc import Container
import dataclasses
import enum

from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import volume_types

#: The maximum number of key slots, and of tokens, in a LUKS2 header.
MOST = 32


class CannotRotate(Exception):
    """The key can't be replaced now; the message says why."""


class Do(enum.Enum):
    """The kinds of steps."""

    #: Make the slot that a token announces, with the token's key.
    ADD_SLOT = 'add slot'
    #: Assign the announced slot to its token.
    ASSIGN = 'assign'
    #: Fetch the key again and test that it opens the volume; then record the
    #: secret in the volume's row.
    RECORD = 'record'
    #: Remove the slots of a token.
    DROP_SLOTS = 'drop slots'
    #: Delete the secret of a token unless a row names it, then the token.
    DROP_TOKEN = 'drop token'


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a rotation.

    :param token: the token to act on
    :param by: the token with a key that opens the volume, and with slots that
        stay. In batch mode cryptsetup removes even the last slot
    """

    do: Do
    token: luks_header.Token
    by: luks_header.Token


def announce(header: luks_header.Header, recorded: str, key: str,
             key_format: volume_types.KeyFormat) -> luks_header.Token:
    """Return the token of a new key, with the slot for it.

    :param recorded: the reference of the secret in the volume's row
    :param key: the reference of the new secret, which is stored already
    :raises CannotRotate: if the key can't be replaced now
    """
    if header.reencryption:
        raise CannotRotate('it is being re-encrypted')
    if next_step(header, recorded):
        raise CannotRotate('an earlier rotation of its key is incomplete')
    if _current(header, recorded).shared:
        raise CannotRotate('all volumes of its type share the key: change the '
                           'secret of the type')
    return luks_header.Token(
        key=key, key_format=key_format, number=free_token(header),
        slot=free_slot(header), replaces=recorded)


def announce_again(header: luks_header.Header, token: luks_header.Token
                   ) -> luks_header.Token:
    """Return the token with another slot, because the slot was taken.

    :raises CannotRotate: if no slot is free
    """
    return dataclasses.replace(token, slot=free_slot(header))


def free_slot(header: luks_header.Header) -> str:
    """Return a slot without a key or an announcement.

    :raises CannotRotate: if no slot is free
    """
    return _free({*header.all_keyslots, *(
        token.slot for token in header.tokens)})


def free_token(header: luks_header.Header) -> str:
    """Return an unused token number.

    :raises CannotRotate: if no number is free
    """
    return _free(header.all_tokens)


def next_step(header: luks_header.Header, recorded: str, give_up: bool = False
              ) -> Step | None:
    """Return the next step of a rotation; None if it is complete.

    :param recorded: the reference of the secret in the volume's row
    :param give_up: return to the old key, because the new key is unusable.
        This is impossible after the new key is recorded
    :raises CannotRotate: if the recorded secret does not open the volume, or
        would not after the step
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
        raise CannotRotate('two tokens in its header claim the same slot')
    return Step(Do.DROP_SLOTS if slots else Do.DROP_TOKEN, token, current)


def slots_of(header: luks_header.Header, token: luks_header.Token
             ) -> tuple[str, ...]:
    """Return the existing slots of a token, also the announced slot."""
    return tuple(slot for slot in header.all_keyslots
                 if slot in token.keyslots or slot == token.slot)


def _current(header: luks_header.Header, recorded: str) -> luks_header.Token:
    """Return the token of the recorded secret.

    :raises CannotRotate: if this secret does not open the volume
    """
    for token in header.tokens_with_role(luks_header.Role.VOLUME):
        if token.key == recorded:
            return token
    raise CannotRotate('its header has no key slot of its recorded secret; '
                       'run "cinder-localclone encryption verify"')


def _free(taken: Container[str]) -> str:
    for number in map(str, range(MOST)):
        if number not in taken:
            return number
    raise CannotRotate('its header is full; remove unused keys')
