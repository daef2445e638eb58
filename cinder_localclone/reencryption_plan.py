# SPDX-License-Identifier: Apache-2.0
"""How a volume is to be encrypted anew, by its header and a wish. No effects.

What can't be is refused here, before anything is written.
"""

import dataclasses

from cinder_localclone import encryption_types
from cinder_localclone.luks import headers
from cinder_localclone.luks import options
from cinder_localclone.luks import tokens
from cinder_localclone import reencryption_errors


@dataclasses.dataclass(frozen=True)
class Wish:
    """How a volume is to be encrypted anew.

    :param cipher: '' for the one that it has
    :param key_bits: of its key; 0: as now, or the most that the cipher takes
    :param resilience: '' for what the node's configuration says
    :param drops_keys: whether keys of others, which are lost, may be
    """

    cipher: str = ''
    key_bits: int = 0
    resilience: str = ''
    drops_keys: bool = False


def check_same(volume_id: str, found: headers.Reencryption, wish: Wish
               ) -> None:
    """One that has begun is the one that is wished.

    :raises CannotReencrypt: if it is another
    """
    if (wish.cipher not in ('', found.cipher)
            or wish.key_bits not in (0, found.key_bits)):
        raise reencryption_errors.CannotReencrypt(
            volume=volume_id, reason='a re-encryption with %s and %d bits has '
            'begun and has to end first' % (found.cipher, found.key_bits))


def new_cipher(volume_id: str, header: headers.Header, wish: Wish
               ) -> tuple[str, int]:
    """The cipher that a volume gets, and how many bits its key has.

    :raises CannotReencrypt: if it can't have that
    """
    if wish.resilience not in ('', *options.RESILIENCES):
        raise reencryption_errors.CannotReencrypt(
            volume=volume_id, reason='resilience "%s" would not survive a '
            'power cut' %
            wish.resilience)
    cipher = wish.cipher or header.cipher
    known = encryption_types.CIPHERS.get(cipher)
    if header.integrity or known is None or 'none' not in known.integrity:
        raise reencryption_errors.CannotReencrypt(
            volume=volume_id, reason='%s is no cipher for a re-encryption' % (
                header.integrity or cipher))
    key_bits = wish.key_bits or (
        header.key_bits if cipher == header.cipher else known.key_bits[-1])
    if key_bits not in known.key_bits:
        raise reencryption_errors.CannotReencrypt(
            volume=volume_id, reason='%s takes keys of %s bits' % (
                cipher, ' or '.join(map(str, known.key_bits))))
    return cipher, key_bits


def own_slot(volume_id: str, header: headers.Header, drops_keys: bool
             ) -> tuple[tokens.Token, str]:
    """The slot whose key goes on to open the volume, and its token.

    :param drops_keys: whether those of all others may be lost
    :raises OtherKeys: if they may not
    :raises CannotReencrypt: if it is not clear which it is
    """
    own = [each for each in header.tokens
           if each.role is tokens.Role.VOLUME]
    slots = [slot for each in own for slot in each.keyslots
             if slot in header.keyslots]
    if len(own) != 1 or len(slots) != 1 or own[0].slot:
        raise reencryption_errors.CannotReencrypt(
            volume=volume_id, reason='its key is being changed, or its header '
            'does not name exactly one key of the volume; run '
            '"cinder-localclone encryption rotate" first')
    others = set(header.keyslots) - set(slots)
    if others and not drops_keys:
        raise reencryption_errors.OtherKeys(
            volume=volume_id, slots=', '.join(sorted(others)))
    return own[0], slots[0]
