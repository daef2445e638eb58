# SPDX-License-Identifier: Apache-2.0
"""What cryptsetup(8) is told on its command line. Never a key."""

from collections.abc import Iterable

from cinder_localclone import encryption_types

SECTOR = 512
#: A random key can't be guessed, so nobody has to wait for it: opening takes
#: a tenth of the time.
RANDOM_KEY = ('--pbkdf', 'pbkdf2', '--pbkdf-force-iterations', '1000')
#: Of a passphrase. cryptsetup would take up to 1 GiB for one volume, and so
#: would a node that opens many when it starts.
PASSPHRASE = ('--pbkdf', 'argon2id', '--pbkdf-memory', '262144')


def key_derivation(encryption: encryption_types.Encryption
                   ) -> tuple[str, ...]:
    """How long whoever guesses a key has to work for each guess."""
    return PASSPHRASE if encryption.key_may_be_weak else RANDOM_KEY


def new_header(encryption: encryption_types.Encryption, luks_uuid: str,
               offset_bytes: int = 0) -> list[str]:
    """Options of ``luksFormat``.

    :param luks_uuid: by which a header knows its volume
    :param offset_bytes: where its data begin; 0: just behind the header
    """
    options = [
        '--type', 'luks2', '--uuid', luks_uuid,
        '--offset', str((
            offset_bytes or encryption_types.HEADER_BYTES) // SECTOR),
        '--cipher', encryption.cipher,
        '--key-size', str(encryption.key_bits),
        '--sector-size', str(encryption.sector_size),
        '--key-slot', '0', *key_derivation(encryption)]
    if encryption.authenticated:
        # It is zeroed later, in parts, each with a time limit. A header is
        # as long as others are, whatever comes after it.
        options += ['--integrity-no-wipe', '--luks2-metadata-size', '16k',
                    '--luks2-keyslots-size',
                    str(encryption_types.HEADER_BYTES - (32 << 10)),
                    '--integrity', encryption.integrity]
    return options


def reencryption(cipher: str, key_bits: int, resilience: str,
                 derivation: Iterable[str]) -> list[str]:
    """Options of ``reencrypt --init-only``: what is to become of a volume.

    :param derivation: of its new slot, whose key is that of the old one
    """
    return ['--cipher', cipher, '--key-size', str(key_bits),
            '--resilience', resilience, *derivation]


def going_on(resilience: str, zone: int) -> list[str]:
    """Options of ``reencrypt --resume-only``.

    :param zone: MiB that are encrypted anew at one time, at most: less if the
        header has no room for their checksums, or for a copy of them
    """
    return ['--resilience', resilience, '--hotzone-size', '%dM' % zone]


def opening(readonly: bool, readonly_header: bool, discards: bool
            ) -> list[str]:
    """Options of ``open``.

    :param readonly: whether nothing is to be written through it
    :param readonly_header: whether the header must not be written, as in a
        live move that both nodes may yet have to themselves. Else cryptsetup
        mends one of its two copies by the other (it does so even for
        ``isLuks``), unless it may take no locks.
    :param discards: whether the disk may know what was deleted
    """
    return ['--type', 'luks',
            '--perf-no_read_workqueue', '--perf-no_write_workqueue',
            *['--readonly'] * readonly,
            *['--allow-discards'] * discards,
            *['--disable-locks'] * readonly_header]
