# SPDX-License-Identifier: Apache-2.0
"""Whether a header is the one that its volume must have. Pure.

Two tests. Any header, also one of which no database can be asked, has to be
one that this driver makes: no cipher that encrypts nothing, no key slot that
any key opens. Where the row of the volume is at hand, the header has to be
the one that the row has pinned.

cryptsetup reads the header once more to open the volume. A disk, or a network,
may answer otherwise then, so the third test compares the table that the kernel
has with the header that was checked.
"""

import dataclasses

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.core import pins
from cinder_localclone.core import state
from cinder_localclone.core import volume_types

#: How LUKS2 names what a type calls its integrity, and the bits that the key
#: of the data is longer by.
_INTEGRITY = {'none': ('', 0), 'hmac-sha256': ('hmac(sha256)', 256),
              'hmac-sha512': ('hmac(sha512)', 512), 'aead': ('aead', 0),
              'poly1305': ('poly1305', 0)}


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is on record of a volume that is to be opened.

    :param key: reference of its secret
    :param pin: the header that it has; None if its row has none yet
    :param becoming: the header that a re-encryption gives it
    :param by_row: whether its row was asked. A boot can't ask it
    :param by_tag: whether only a tag on the same disk names the secret: then
        its name in the key manager must not be that of another volume
    """

    key: str
    pin: pins.Pin | None = None
    becoming: pins.Pin | None = None
    by_row: bool = True
    by_tag: bool = False


def of_row(recorded: volume_types.Recorded | None) -> Expected:
    """Return what the row of a volume, or of a snapshot, says of it."""
    if recorded is None:
        return Expected('')
    return Expected(recorded.key, recorded.pin, recorded.becoming)


def pin(encryption: volume_types.Encryption, data_offset: int,
        digest: str) -> pins.Pin:
    """Return the pin of a new header.

    :param data_offset: bytes before the data
    :param digest: of its key, which only the header has
    """
    integrity, more_bits = _INTEGRITY[encryption.integrity]
    return pins.Pin(
        encryption.cipher, encryption.key_bits + more_bits,
        encryption.sector_size, integrity, data_offset, digest)


def why_not_ours(header: luks_header.Header) -> str:
    """Say why this driver has not made a header; '' if it may have."""
    if header.odd:
        return header.odd
    if header.foreign_requirements:
        return ('it needs features that this version of the driver does not '
                'know: ' + ', '.join(header.foreign_requirements))
    for each in filter(None, (header.pin, header.becoming)):
        problem = _why_not_allowed(each)
        if problem:
            return problem
    for cipher in sorted(header.slot_ciphers - set(
            volume_types.CIPHERS)):
        return 'a key slot is encrypted with %s' % cipher
    return ''


def _why_not_allowed(found: pins.Pin) -> str:
    known = volume_types.CIPHERS.get(found.cipher)
    if known is None:
        return 'its cipher is %s' % found.cipher
    allowed = {_INTEGRITY[each] for each in known.integrity}
    if found.integrity not in {name for name, _bits in allowed}:
        return 'its integrity is %s' % (found.integrity or 'none')
    if found.key_bits not in {bits + more for bits in known.key_bits
                              for name, more in allowed
                              if name == found.integrity}:
        return 'its key has %d bits' % found.key_bits
    if found.sector_size not in volume_types.SECTOR_SIZES:
        return 'its sectors have %d bytes' % found.sector_size
    header_bytes = volume_types.HEADER_BYTES
    if (found.data_offset < header_bytes or not found.integrity
            and found.data_offset != header_bytes):
        return 'its data begins at byte %d' % found.data_offset
    return ''


def why_not(header: luks_header.Header, expected: Expected) -> str:
    """Say why a header is not the expected one; '' if it is."""
    problem = why_not_ours(header)
    if problem or not expected.by_row:
        return problem
    if expected.pin is None:
        return 'its row records no header'
    found, becoming = header.pin, header.becoming
    if found not in (expected.pin, expected.becoming):
        return expected.pin.difference(found)
    if becoming is None or becoming == expected.becoming:
        return ''
    if expected.becoming is None:
        return 'it is being re-encrypted, and its row does not say so'
    if is_begun(header, expected):
        return ''
    return expected.becoming.difference(becoming)


def is_begun(header: luks_header.Header, expected: Expected) -> bool:
    """Whether a re-encryption has begun whose key is not pinned yet.

    Its row announces it, and nothing is encrypted with that key.
    """
    found, becoming = header.reencryption, header.becoming
    return bool(
        found and becoming and expected.becoming
        and not (found.done or found.complete or found.interrupted)
        and header.pin == expected.pin and expected.becoming
        == dataclasses.replace(becoming, digest=''))


def check(volume_id: str, header: luks_header.Header, expected: Expected
          ) -> None:
    """Check a header before any secret is used on it.

    :raises ForeignHeader: if it is not the expected one
    """
    problem = why_not(header, expected)
    if problem:
        raise encryption_exceptions.ForeignHeader(
            path=names.handle_path(volume_id), reason=problem)


def check_opened(volume_id: str, pin: pins.Pin | None,
                 becoming: pins.Pin | None, opened: dm_tables.Device | None
                 ) -> None:
    """Check that the kernel decrypts a volume as its header must say.

    :param pin: the pin of the header
    :param becoming: the pin of its re-encryption, if there is one
    :param opened: the device that decrypts the volume
    :raises OpenedOtherwise: if it was opened by another header
    """
    problem = why_not_opened(pin, becoming, opened)
    if problem:
        raise encryption_exceptions.OpenedOtherwise(
            path=names.handle_path(volume_id), reason=problem)


def why_not_opened(pin: pins.Pin | None, becoming: pins.Pin | None,
                   opened: dm_tables.Device | None) -> str:
    """Say why a volume is not decrypted as it must be; '' if it is.

    The parameters are those of :func:`check_opened`.
    """
    if pin is None or opened is None or not opened.segments:
        return 'no device decrypts it'
    for segment in opened.segments:
        # Only a running re-encryption has other devices in between. Its
        # header is authenticated by both keys.
        if segment.target == 'linear' and becoming:
            continue
        if segment.target != 'crypt' or len(segment.arguments) < 5:
            return 'its device is of type %s' % segment.target
        problem = _why_otherwise(pin, becoming, segment)
        if problem:
            return problem
    return ''


def _why_otherwise(pin: pins.Pin, becoming: pins.Pin | None,
                   segment: dm_tables.Segment) -> str:
    """Compare a table of dm-crypt with pins.

    See the kernel's Documentation/admin-guide/device-mapper/dm-crypt.rst.
    """
    cipher, key, iv_offset, _device, offset, *options = segment.arguments
    more = {name: value for name, _colon, value in (
        each.partition(':') for each in options[1:])}
    if pin.integrity and not more.get('integrity', '').endswith(':aead'):
        return 'the kernel does not authenticate it'
    key_bits = (8 * int(key.split(':')[1]) if key.startswith(':')
                else 4 * len(key))
    found = cipher, key_bits, int(more.get('sector_size', state.SECTOR))
    if found not in [(_kernel_cipher(each), each.key_bits, each.sector_size)
                     for each in (pin, becoming) if each]:
        return 'the kernel decrypts it by %s with %d bits and sectors of %d ' \
            'bytes' % found
    # Below an authenticated volume is a device that begins with its data.
    begin = 0 if pin.integrity else pin.data_offset // state.SECTOR
    if (int(iv_offset) != segment.start
            or int(offset) != segment.start + begin):
        return 'the kernel decrypts the disk from sector %s on as sector ' \
            '%s of the volume; the header says from %d on as %d' % (
                offset, iv_offset, segment.start + begin, segment.start)
    return ''


def _kernel_cipher(pin: pins.Pin) -> str:
    """Return how the kernel's table names a cipher, integrity included.

    See dm-crypt.rst, "capi", and cipher_c2dm in cryptsetup's
    lib/libdevmapper.c.
    """
    if not pin.integrity:
        return pin.cipher
    name, mode, iv = (pin.cipher.split('-') + [''])[:3]
    if not iv:  # aegis128-random
        mode, iv = '', mode
    if pin.integrity == 'poly1305':
        spec = 'rfc7539(%s,poly1305)' % name
    elif pin.integrity == 'aead':
        spec = '%s(%s)' % (mode, name) if mode else name
    else:
        spec = 'authenc(%s,%s(%s))' % (pin.integrity, mode, name)
    return 'capi:%s-%s' % (spec, iv)


def settled(recorded: volume_types.Recorded, header: luks_header.Header
            ) -> volume_types.Recorded:
    """Return a row's record once no re-encryption is under way.

    :param header: which was checked
    """
    return dataclasses.replace(recorded, pin=header.pin, becoming=None)
