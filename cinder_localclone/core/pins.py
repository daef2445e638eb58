# SPDX-License-Identifier: Apache-2.0
"""The pin of an encrypted volume: the header allowed by its row. Pure.

A LUKS2 header is not authenticated: its checksum needs no secret, so a program
with write access to the disk can write a header. Cinder's row is out of reach
of the disk. The row gets a pin of the header when the volume is formatted, and
when its re-encryption ends. Each use of a key compares both.
"""

import dataclasses

from cinder_localclone.core import state


@dataclasses.dataclass(frozen=True)
class Pin:
    """Every field of a header that determines how the data is encrypted.

    :param cipher: in the notation of dm-crypt, for example aes-xts-plain64
    :param key_bits: size of the volume key, with the key of its integrity
    :param sector_size: bytes
    :param integrity: in the notation of the kernel; '' without
    :param data_offset: bytes before the data
    :param digest: :func:`.luks_header.fingerprint` of the digest of the volume
        key; '' before a re-encryption has begun
    """

    cipher: str
    key_bits: int
    sector_size: int
    integrity: str
    data_offset: int
    digest: str

    def __str__(self) -> str:
        return '/'.join(map(str, (
            self.cipher, self.key_bits, self.sector_size, self.integrity,
            self.data_offset // state.SECTOR, self.digest)))

    def difference(self, found: 'Pin') -> str:
        """Return the first difference in words; '' if there is none."""
        for field in dataclasses.fields(self):
            pinned, other = (getattr(each, field.name)
                             for each in (self, found))
            if pinned != other:
                return '%s is %s instead of %s' % (
                    field.name.replace('_', ' '), other or 'none',
                    pinned or 'none')
        return ''


def parse(text: str) -> Pin | None:
    """Return the pin in a text; None for an empty text.

    :raises ValueError: if the text is no pin
    """
    if not text:
        return None
    cipher, key_bits, sector_size, integrity, offset, digest = text.split('/')
    return Pin(cipher, int(key_bits), int(sector_size), integrity,
               int(offset) * state.SECTOR, digest)
