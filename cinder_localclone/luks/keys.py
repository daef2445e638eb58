# SPDX-License-Identifier: Apache-2.0
"""What opens a volume, made of what the key manager keeps.

It is given to cryptsetup on its standard input, to be taken as it is
(``--key-file -``): a line feed is a byte like any other.
"""

from cinder_localclone.encryption_types import KeyFormat

#: Bytes of a new secret: more than any cipher's key has.
NEW_BYTES = 64


def check_own(secret: bytes, key_format: KeyFormat) -> None:
    """Check the length of a secret that the driver has stored itself.

    :raises ValueError: if a part of it is missing, or if it is another one
    """
    length = NEW_BYTES
    if key_format is KeyFormat.PASSPHRASE:
        length *= 2  # hexadecimal digits
    if len(secret) != length:
        raise ValueError('it has %d bytes, but the driver has stored %d' % (
            len(secret), length))


def opening(secret: bytes, key_format: KeyFormat) -> bytes:
    """The key by the bytes of a secret.

    :raises ValueError: if it is empty: that would open what anybody can open
    """
    if not secret:
        raise ValueError('the secret is empty')
    return secret.hex().encode() if key_format is KeyFormat.HEX else secret
