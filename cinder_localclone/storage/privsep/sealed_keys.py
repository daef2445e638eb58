# SPDX-License-Identifier: Apache-2.0
"""Keys that are kept on this node, sealed by systemd-creds(1).

What seals them is the node's own: a key in ``/var/lib/systemd``, and its TPM
if it has one. A key in plain text is in no file and on no command line, and
does not leave this daemon, which is that of :mod:`.cryptsetup_keys`. It is
sealed under a name that says which volume and which secret it is of, and is
not unsealed under another.
"""

from collections.abc import Iterator
import contextlib
import os

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import header_notes
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import folders
from cinder_localclone.storage.privsep import process

_COMMAND = 'systemd-creds'
#: Suffix of a file that is not written to its end.
_PARTIAL = '.partial'


@contextlib.contextmanager
def _directory(backend: str, make: bool = False
               ) -> Iterator[folders.Folder]:
    with folders.configured(
            backend, configuration.SEALED_KEYS, make) as directory:
        yield directory


def _file(volume_id: str) -> str:
    privsep.require(names.is_id(volume_id), volume_id)
    return header_notes.sealed_key_file(volume_id)


@cryptsetup_keys.entrypoint
def seal(backend: str, volume_id: str, recorded: str, key: bytes,
         timeout: float) -> None:
    """Keep the key of a volume; what was kept before goes.

    Allows: keeps any key for any volume in the configured directory, in the
    place of the key that is there.

    :param backend: section of the backend, whose directory of keys is made
    :param recorded: reference of its secret
    :raises FileNotFoundError: if systemd-creds is not installed
    """
    file = _file(volume_id)
    if not key:
        raise ValueError('there is no key of volume ' + volume_id)
    text = process.run(
        _COMMAND, 'encrypt', '--name=' + header_notes.sealed_key(
            volume_id, recorded), '-', '-', timeout=timeout,
        stdin=key.hex().encode())
    with _directory(backend, make=True) as directory:
        directory.unlink(file + _PARTIAL)
        with directory.file(file + _PARTIAL, 'xb') as opened:
            opened.write(text.encode())
            opened.flush()
            os.fsync(opened.fileno())
        directory.rename(file + _PARTIAL, file)
        directory.flush()


@cryptsetup_keys.entrypoint
def open_device(path: str, name: str, backend: str, recorded: str,
                timeout: float, readonly: bool = False,
                keep_header: bool = False, discards: bool = False) -> None:
    """Have a volume decrypted with the key that is kept of it.

    Allows: opens any volume under its own name, with the key that is kept of
    it: a caller needs no key.

    :param recorded: reference of the secret that it must be of; the others
        as of :func:`.cryptsetup_keys.open_device`
    :raises NotSealed: if there is none, or it can't be unsealed here
    :raises WrongKey: if it does not open the volume
    """
    volume_id = cryptsetup.require_handle(path)
    privsep.require(name == names.crypt(volume_id), name)
    cryptsetup_keys.open_with(path, name, _unseal(
        backend, volume_id, recorded, timeout), timeout, readonly,
        keep_header, discards)


@cryptsetup_keys.entrypoint
def end_reencryption(path: str, backend: str, recorded: str,
                     timeout: float) -> None:
    """As :func:`.cryptsetup_keys.end_reencryption`, by the key that is kept.

    Allows: as ``secrets.end_reencryption``, with the key that is kept.

    :param recorded: as of :func:`open_device`; and its errors
    """
    volume_id = cryptsetup.require_handle(path)
    cryptsetup_keys.end_with(path, _unseal(
        backend, volume_id, recorded, timeout), timeout)


@cryptsetup_keys.entrypoint
def resize(name: str, backend: str, recorded: str, timeout: float) -> None:
    """Let what decrypts a volume grow with its handle, by what is kept.

    Allows: as ``secrets.resize``, with the key that is kept.

    :param name: of the device that decrypts it; the others, and errors, as
        of :func:`open_device`
    """
    privsep.require(names.is_crypt(name), name)
    volume_id = name.removeprefix(names.crypt(''))
    cryptsetup_keys.resize_with(name, _unseal(
        backend, volume_id, recorded, timeout), timeout)


def _unseal(backend: str, volume_id: str, recorded: str, timeout: float
            ) -> bytes:
    name = _file(volume_id)
    path = os.path.join(configuration.directory(
        backend, configuration.SEALED_KEYS), name)
    try:
        with _directory(backend) as directory:
            with directory.file(name, 'rb') as file:
                return bytes.fromhex(process.run(
                    _COMMAND, 'decrypt',
                    '--name=' + header_notes.sealed_key(volume_id, recorded),
                    '/dev/fd/%d' % file.fileno(), '-', timeout=timeout,
                    pass_fds=(file.fileno(),)).strip())
    except (exceptions.CommandFailed, exceptions.CommandTimeout,
            OSError) as exc:  # a TPM may hang
        raise encryption_exceptions.NotSealed(path=path, reason=exc)
    except ValueError:  # whose text would quote it
        raise encryption_exceptions.NotSealed(
            path=path, reason='the file contains no key') from None


@cryptsetup_keys.entrypoint
def forget(backend: str, volume_id: str) -> None:
    """Keep the key of a volume no more.

    Allows: removes the key that is kept of any volume.

    :param backend: section of the backend
    """
    file = _file(volume_id)
    with contextlib.suppress(FileNotFoundError):
        with _directory(backend) as directory:
            found = [directory.unlink(each)
                     for each in (file, file + _PARTIAL)]
            if any(found):
                directory.flush()


@privsep.entrypoint
def volumes(backend: str) -> list[str]:
    """Return the ids of the volumes whose keys are kept, or were about to be.

    Allows: lists the volumes whose keys are kept in the configured directory.

    In the daemon that has no keys: it reads the names of files.

    :param backend: section of the backend
    """
    with contextlib.suppress(FileNotFoundError):
        with _directory(backend) as directory:
            return sorted({volume_id for file in directory.names() if (
                volume_id := header_notes.volume_of_sealed(
                    file.removesuffix(_PARTIAL)))})
    return []
