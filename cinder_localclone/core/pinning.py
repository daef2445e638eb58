# SPDX-License-Identifier: Apache-2.0
"""Checks of a header against the records of its volume. Pure.

The first check applies to any header, also without a database: this driver
must be able to have made it. Its cipher must encrypt, and its key slots must
not open with any key. The second check needs the row of the volume: the header
must be the pinned header.

cryptsetup reads the header again to open the volume. The disk, or the network,
may return another header then. The third check compares the kernel's table
with the checked header.
"""

import dataclasses

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.core import pins
from cinder_localclone.core import state
from cinder_localclone.core import volume_types

#: LUKS2's name of each integrity of a volume type, and the bits that it adds
#: to the volume key.
_INTEGRITY = {'none': ('', 0), 'hmac-sha256': ('hmac(sha256)', 256),
              'hmac-sha512': ('hmac(sha512)', 512), 'aead': ('aead', 0),
              'poly1305': ('poly1305', 0)}


@dataclasses.dataclass(frozen=True)
class Expected:
    """The records about a volume to open.

    :param key: reference of its secret
    :param pin: the pin of its header; None if its row has none yet
    :param becoming: the pin of its header after the current re-encryption
    :param by_row: whether these are from the row. A boot has no row
    :param by_tag: whether only a tag on the same disk names the secret. Then
        the secret's name in the key manager must not be another volume's
    """

    key: str
    pin: pins.Pin | None = None
    becoming: pins.Pin | None = None
    by_row: bool = True
    by_tag: bool = False


def recorded_in_row(recorded: volume_types.Recorded | None) -> Expected:
    """Return the records in the row of a volume, or of a snapshot."""
    if recorded is None:
        return Expected('')
    return Expected(recorded.key, recorded.pin, recorded.becoming)


def pin(encryption: volume_types.Encryption, data_offset: int,
        digest: str) -> pins.Pin:
    """Return the pin of a new header.

    :param data_offset: bytes before the data
    :param digest: the digest of its key, from the header
    """
    integrity, more_bits = _INTEGRITY[encryption.integrity]
    return pins.Pin(
        encryption.cipher, encryption.key_bits + more_bits,
        encryption.sector_size, integrity, data_offset, digest)


def why_not_ours(header: luks_header.Header) -> str:
    """Return why this driver can't have made a header; '' if it can."""
    if header.odd:
        return header.odd
    if header.foreign_requirements:
        return ('it needs features unknown to this version of the driver: '
                + ', '.join(header.foreign_requirements))
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
    """Return why a header is not the expected header; '' if it is."""
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
    """Return whether a re-encryption has begun, but its key is not pinned yet.

    The row announces the re-encryption, and no data is encrypted with its key.
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

    :raises ForeignHeader: if it is not the expected header
    """
    problem = why_not(header, expected)
    if problem:
        raise encryption_exceptions.ForeignHeader(
            path=names.handle_path(volume_id), reason=problem)


def check_opened(volume_id: str, pin: pins.Pin | None,
                 becoming: pins.Pin | None, opened: dm_tables.Device | None
                 ) -> None:
    """Check that the kernel decrypts a volume as its header requires.

    :param pin: the pin of the header
    :param becoming: the pin of its re-encryption, if there is one
    :param opened: the crypt device of the volume
    :raises OpenedOtherwise: if the device was opened by another header
    """
    problem = why_not_opened(pin, becoming, opened)
    if problem:
        raise encryption_exceptions.OpenedOtherwise(
            path=names.handle_path(volume_id), reason=problem)


def why_not_opened(pin: pins.Pin | None, becoming: pins.Pin | None,
                   opened: dm_tables.Device | None) -> str:
    """Return why a crypt device does not match its header; '' if it does.

    The parameters are the same as of :func:`check_opened`.
    """
    if pin is None or opened is None or not opened.segments:
        return 'no device decrypts it'
    for segment in opened.segments:
        # Only a running re-encryption has devices in between. Both keys
        # authenticate its header.
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
    # The device below an authenticated volume begins with its data.
    begin = 0 if pin.integrity else pin.data_offset // state.SECTOR
    if (int(iv_offset) != segment.start
            or int(offset) != segment.start + begin):
        return 'the kernel decrypts the disk from sector %s on as sector ' \
            '%s of the volume; the header says from %d on as %d' % (
                offset, iv_offset, segment.start + begin, segment.start)
    return ''


def _kernel_cipher(pin: pins.Pin) -> str:
    """Return a cipher's name in the kernel's table, integrity included.

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


def after_reencryption(recorded: volume_types.Recorded,
                       header: luks_header.Header
                       ) -> volume_types.Recorded:
    """Return a row's record after the end of any re-encryption.

    :param header: the checked header
    """
    return dataclasses.replace(recorded, pin=header.pin, becoming=None)
