# SPDX-License-Identifier: Apache-2.0
"""cryptsetup(8) with a key, in a privileged daemon without a log.

A key arrives as an argument and goes unchanged to cryptsetup's standard input.
It is on no command line, in no file and in no environment. No function here
returns anything. Errors contain only the command and cryptsetup's messages,
which have no key either. privsep logs replies and failures, but never
arguments; for this daemon it logs nothing below "critical".

For errors and time limits see :mod:`.cryptsetup`.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import logging
import os
import typing

from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import priv_context
from oslo_utils import units

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_binary
from cinder_localclone.core.formats import luks_ending
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import header_backups
from cinder_localclone.storage.privsep import header_lock
from cinder_localclone.storage.privsep import memory
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import reencrypt_process
from cinder_localclone.storage.privsep import sysfs

_Parameters = typing.ParamSpec('_Parameters')
_LOGGER = 'localclone_hide_output'

context = priv_context.PrivContext(
    'cinder_localclone',
    # Contexts with the same section share their logger, too.
    cfg_section='localclone_secrets',
    pypath=__name__ + '.context',
    # For device-mapper, and for locked memory (.memory, and cryptsetup's own).
    capabilities=[
        capabilities.CAP_SYS_ADMIN, capabilities.CAP_DAC_OVERRIDE,
        capabilities.CAP_DAC_READ_SEARCH, capabilities.CAP_MKNOD,
        capabilities.CAP_IPC_LOCK, capabilities.CAP_SYS_NICE,
        capabilities.CAP_SYS_RESOURCE, capabilities.CAP_SYS_MODULE,
    ],
    logger_name=_LOGGER,
)
cfg.CONF.set_default('thread_pool_size', 8, group='localclone_secrets')
logging.getLogger(_LOGGER).setLevel(logging.CRITICAL)

_KEY_ON_STDIN = ('--batch-mode', '--key-file', '-')
_PROOF = '--test-passphrase', '--type', 'luks', '--disable-locks'
#: Message of cryptsetup, with exit code 5, for a name in use.
_EXISTS = 'already exists'
#: Bytes at the beginning of a device that must be blank before it is
#: formatted: more than the small headers of any version.
_BLANK = units.Mi


def entrypoint(function: Callable[_Parameters, None]
               ) -> Callable[_Parameters, None]:
    """Register a function to run in the daemon without a log.

    See :func:`.privsep.entrypoint`. From the first call on, the memory of this
    daemon is kept out of swap and core dumps.
    """
    @functools.wraps(function)
    def protected(*args: _Parameters.args, **words: _Parameters.kwargs
                  ) -> None:
        memory.protect()
        function(*args, **words)
    return typing.cast(Callable[_Parameters, None],
                       context.entrypoint(protected))


def _run(path: str, *argv: str, key: bytes, timeout: float,
         pass_fds: tuple[int, ...] = ()) -> None:
    """Run cryptsetup with a key on its standard input.

    :raises ValueError: if the key is empty: cryptsetup reports success for
        "nothing to read"
    """
    if not key:
        raise ValueError('there is no key for %s' % path)
    cryptsetup.run(path, *argv, timeout=timeout, stdin=key,
                   grace=cryptsetup.GRACE, pass_fds=pass_fds)


# -- format, only of new devices

def _check_blank(path: str, timeout: float) -> None:
    """Check that a device is blank: a new LV reads as zeros.

    An unreadable device is not formatted either.

    :raises NotBlank: if the device has other data, or is too short
    """
    head = process.run(
        'dd', 'if=' + path, 'bs=%d' % _BLANK, 'count=1', 'iflag=direct',
        'status=none', timeout=timeout)
    if len(head) < _BLANK or head.strip('\0'):
        raise encryption_exceptions.NotBlank(
            path=path, reason='there is data at its beginning')


@entrypoint
def format_luks1(path: str, cipher: str, key_bits: int, key: bytes,
                 timeout: float) -> None:
    """Write a LUKS1 header for QEMU to a blank device.

    Allows: formats the handle of any volume whose first MiB is blank.

    :raises NotBlank: if the device has data already
    """
    cryptsetup.require_handle(path)
    _check_blank(path, timeout)
    _run(path, 'luksFormat', *_KEY_ON_STDIN, '--type', 'luks1', '--cipher',
         cipher, '--key-size', str(key_bits), '--pbkdf-force-iterations',
         '1000', path, key=key, timeout=timeout)


@entrypoint
def format_luks2(path: str, wanted: Sequence[typing.Any], key: bytes,
                 timeout: float) -> None:
    """Write a LUKS2 header to a blank device.

    Allows: formats the handle of any volume whose first MiB is blank, with a
    cipher of the driver's list.

    :param wanted: :class:`.cryptsetup_cli.NewHeader`
    :raises NotBlank: if the device has data already
    :raises ValueError: if the driver never uses these parameters
    """
    cryptsetup.require_handle(path)
    options = cryptsetup_cli.NewHeader(*wanted).words()
    _check_blank(path, timeout)
    _run(path, 'luksFormat', *_KEY_ON_STDIN, *options, path, key=key,
         timeout=timeout)


# -- open devices

@entrypoint
def open_device(path: str, name: str, key: bytes, timeout: float,
                readonly: bool = False, keep_header: bool = False,
                discards: bool = False) -> None:
    """Open the crypt device of a volume.

    Allows: opens any volume under its own name, with its key.

    :param path: path of its handle
    :param name: name of the crypt device
    :param keep_header: write nothing to the header, not even a repair
    :raises WrongKey: if the key does not open the volume
    :raises HeaderDamaged: if no header can be read
    """
    privsep.require(
        name == names.crypt(cryptsetup.require_handle(path)), name)
    open_with(path, name, key, timeout, readonly, keep_header, discards)


def open_with(path: str, name: str, key: bytes, timeout: float,
              readonly: bool, keep_header: bool, discards: bool) -> None:
    """Do the work of :func:`open_device`, for callers in this daemon.

    The device may be open already.
    """
    try:
        _run(path, 'open', *_KEY_ON_STDIN,
             *cryptsetup_cli.open_options(readonly, keep_header, discards),
             path,
             name, key=key, timeout=timeout)
    except exceptions.CommandFailed as exc:
        # A boot and the volume service may open it at the same time. Only the
        # text of an error leaves this daemon, without the exit code.
        if not (exc.kwargs.get('code') == 5
                and '%s %s' % (name, _EXISTS) in str(exc)):
            raise


@entrypoint
def test(path: str, key: bytes, timeout: float, slot: str | None = None
         ) -> None:
    """Prove that a key opens a volume, or a given slot of it.

    Allows: tells whether a key opens any volume.

    :raises WrongKey: if it does not
    :raises HeaderDamaged: if no header can be read
    """
    cryptsetup.require_handle(path)
    _test(path, key, timeout, slot)


@entrypoint
def test_backup(backend: str, volume_id: str, name: str, key: bytes,
                timeout: float, slot: str | None = None) -> None:
    """Prove that a key opens the header in a backup, or a given slot of it.

    Allows: tells whether a key opens any backup in the configured directory.

    :param backend: section of the backend
    :param name: name of the file
    :raises WrongKey: if it does not
    :raises HeaderDamaged: if the backup can't be read
    """
    with header_backups.opened(backend, volume_id, name) as (
            shown, descriptor):
        _run(shown, 'open', *_KEY_ON_STDIN, *_PROOF, *_at(slot),
             '/dev/fd/%d' % descriptor, key=key, timeout=timeout,
             pass_fds=(descriptor,))


def _test(path: str, key: bytes, timeout: float, slot: str | None) -> None:
    cryptsetup.beside_writer(lambda: _run(
        path, 'open', *_KEY_ON_STDIN, *_PROOF, *_at(slot), path, key=key,
        timeout=timeout))


def _at(slot: str | None) -> list[str]:
    return [] if slot is None else [
        '--key-slot', cryptsetup.require_number(slot)]


@entrypoint
def resize(name: str, key: bytes, timeout: float) -> None:
    """Grow the crypt device of a volume to the length of its handle.

    Allows: resizes the crypt device of any volume to its handle, with its key.

    The volume may be attached remotely, so nothing is written to its header.
    """
    privsep.require(names.is_crypt(name), name)
    resize_with(name, key, timeout)


def resize_with(name: str, key: bytes, timeout: float) -> None:
    """Do the work of :func:`resize`, for callers in this daemon."""
    _run(name, 'resize', *_KEY_ON_STDIN, '--disable-locks', name, key=key,
         timeout=timeout)


@entrypoint
def begin_reencryption(path: str, name: str, slot: str,
                       wanted: Sequence[typing.Any], key: bytes,
                       timeout: float) -> None:
    """Write the beginning of a re-encryption into a header.

    Allows: begins the re-encryption of any open volume, with a cipher of the
    driver's list and the volume's key.

    No data are re-encrypted by this; see :mod:`.reencrypt_process`.

    :param name: name of the crypt device
    :param slot: key slot opened by the key
    :param wanted: :class:`.cryptsetup_cli.Reencryption`
    :raises ValueError: if the driver never uses these parameters
    """
    privsep.require(
        name == names.crypt(cryptsetup.require_handle(path)), name)
    cryptsetup.require_number(slot)
    options = cryptsetup_cli.Reencryption(*wanted).words()
    _run(path, 'reencrypt', *_KEY_ON_STDIN, '--init-only', '--key-slot', slot,
         '--active-name', name, *options, path, key=key, timeout=timeout)


@entrypoint
def end_reencryption(path: str, key: bytes, timeout: float) -> None:
    """Write the end of a complete re-encryption into the header.

    Allows: writes the end of a complete re-encryption into the header of any
    volume, with its key.

    cryptsetup was killed just before it wrote the end itself. Before anything
    is written, the key must open a copy of the completed header in memory. The
    header copy used as the source of the new header is written last. Old key
    material stays in the areas of removed slots, but opens nothing.

    :param key: key of the volume
    :raises HeaderInUse: if another process writes the header or re-encrypts
        the volume
    :raises WrongKey: if the key would not open the completed header
    :raises NotEnded: if more than the end is missing
    """
    end_with(path, key, timeout)


def end_with(path: str, key: bytes, timeout: float) -> None:
    """Do the work of :func:`end_reencryption`, for callers in this daemon."""
    volume_id = cryptsetup.require_handle(path)
    with header_lock.held(path, timeout) as held:
        sysfs.check_opened(held.device, path)
        if reencrypt_process.processes(volume_id):
            raise encryption_exceptions.HeaderInUse(
                path=path, reason='its volume is being re-encrypted')
        opened = '/dev/fd/%d' % held.device
        head, found = _ended(path, opened, timeout, (held.device,))
        if not found:
            return  # another process has ended it
        _prove(path, head, key, timeout)
        for begin, copy in found:
            process.run('dd', 'of=' + opened, 'bs=%d' % len(copy), 'count=1',
                        'seek=%d' % (begin // len(copy)), 'iflag=fullblock',
                        'oflag=direct', 'conv=nocreat,notrunc,fsync',
                        'status=none', stdin=copy, timeout=timeout,
                        grace=cryptsetup.GRACE, pass_fds=held)


@entrypoint
def test_ended(path: str, key: bytes, timeout: float) -> None:
    """Prove that a key opens a volume after the end of its re-encryption.

    Allows: tells whether a key opens any volume once its re-encryption is
    over.

    The re-encryption must be complete except for its end. Nothing is written.

    :raises WrongKey: if the key would not open it
    :raises NotEnded: if more than the end is missing
    """
    cryptsetup.require_handle(path)
    cryptsetup.beside_writer(lambda: _prove(
        path, _ended(path, path, timeout)[0], key, timeout))


def _ended(path: str, opened: str, timeout: float,
           pass_fds: tuple[int, ...] = ()
           ) -> tuple[bytearray, list[tuple[int, bytes]]]:
    """Return the header of a volume as it is after its re-encryption.

    :param path: path of the device, for errors
    :param opened: path for reading the device
    :returns: the header; the pieces of it to write: offset in bytes, data
    :raises NotEnded: if more than the end is missing
    """
    head = bytes(cryptsetup.beginning(opened, luks_binary.READ_BYTES, timeout,
                                      pass_fds))
    try:
        header = luks_header.parse(luks_ending.text(head))
        found = luks_ending.end(head, [
            os.urandom(luks_ending.SALT) for _copy in range(2)])
    except ValueError as exc:
        raise encryption_exceptions.NotEnded(path=path, reason=exc)
    ended = cryptsetup.beginning(opened, header.data_offset, timeout, pass_fds)
    for begin, copy in found:
        ended[begin:begin + len(copy)] = copy
    return ended, found


def _prove(path: str, head: bytearray, key: bytes, timeout: float) -> None:
    """Prove, in memory alone, that a key opens a volume with a header.

    :raises WrongKey: if it does not
    :raises NotEnded: if cryptsetup can't read the header
    """
    with open(os.memfd_create('header'), 'w+b') as file:
        file.write(head)
        file.flush()
        try:
            _run(path, 'open', *_KEY_ON_STDIN, *_PROOF,
                 '/dev/fd/%d' % file.fileno(), key=key, timeout=timeout,
                 pass_fds=(file.fileno(),))
        except encryption_exceptions.HeaderDamaged as exc:
            raise encryption_exceptions.NotEnded(
                path=path, reason='cryptsetup can\'t read the completed '
                'header') from exc


# -- key slots

@entrypoint
def add_key(path: str, key: bytes, new_key: bytes, slot: str,
            derivation: str, timeout: float) -> None:
    """Add a key to a volume.

    Allows: adds a key to any volume, with an existing key of the volume.

    :param key: an existing key of the volume
    :param slot: a free key slot
    :param derivation: a :class:`.cryptsetup_cli.Derivation`
    :raises ValueError: if there is no such derivation
    """
    cryptsetup.require_handle(path)
    cryptsetup.require_number(slot)
    options = cryptsetup_cli.derivation_words(derivation)
    with _pipe(new_key) as descriptor:
        _run(path, 'luksAddKey', *_KEY_ON_STDIN, '--new-key-slot', slot,
             '--new-keyfile', '/dev/fd/%d' % descriptor, *options, path,
             key=key, timeout=timeout, pass_fds=(descriptor,))


@contextlib.contextmanager
def _pipe(key: bytes) -> Iterator[int]:
    """Return a descriptor from which a key can be read once.

    :raises ValueError: if the key is empty, or too long for a pipe
    """
    if not 0 < len(key) <= 4096:
        raise ValueError('a key of %d bytes' % len(key))
    reading, writing = os.pipe()
    try:
        with open(writing, 'wb') as pipe:
            pipe.write(key)
        yield reading
    finally:
        os.close(reading)


@entrypoint
def kill_slot(path: str, slot: str, key: bytes, timeout: float) -> None:
    """Remove a key slot.

    Allows: removes a key slot of any volume, with the key of another slot that
    stays.

    In batch mode cryptsetup would remove even the last slot, with the slot's
    own key or without any.

    :param key: key of another slot; of a recovery key if the volume's own
        secret is lost
    :raises LastKey: if no other slot of the driver's opens the volume
    :raises WrongKey: if the key opens none of the others
    """
    cryptsetup.require_handle(path)
    cryptsetup.require_number(slot)
    header = _header(path, timeout)
    others = {each
              for token in header.tokens_with_role(luks_header.Role.VOLUME)
              for each in token.keyslots
              if each in header.keyslots} - {slot}
    if not others:
        raise encryption_exceptions.LastKey(path=path, slot=slot)
    recovery = {each
                for token in header.tokens_with_role(luks_header.Role.RECOVERY)
                for each in token.keyslots} - {slot}
    _check_opens_one(path, others | recovery, key, timeout)
    _run(path, 'luksKillSlot', *_KEY_ON_STDIN, path, slot, key=key,
         timeout=timeout)


def _header(path: str, timeout: float) -> luks_header.Header:
    try:
        return luks_header.parse(cryptsetup.run(
            path, 'luksDump', '--dump-json-metadata', '--disable-locks', path,
            timeout=timeout))
    except ValueError as exc:
        raise encryption_exceptions.HeaderDamaged(path=path, reason=exc)


def _check_opens_one(path: str, slots: set[str], key: bytes, timeout: float
                     ) -> None:
    for each in sorted(slots):
        with contextlib.suppress(encryption_exceptions.WrongKey):
            _test(path, key, timeout, each)
            return
    raise encryption_exceptions.WrongKey(path=path)
