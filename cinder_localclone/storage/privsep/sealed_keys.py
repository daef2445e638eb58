# SPDX-License-Identifier: Apache-2.0
"""Keys of volumes kept on this node, sealed by systemd-creds(1).

A sealed key is a file encrypted by keys of the node: by the host key in
``/var/lib/systemd``, and by the TPM if there is one. Only this node can unseal
it. A key in plain text is in no file and on no command line, and does not
leave this daemon, the daemon of :mod:`.cryptsetup_keys`.

The *secret* of a volume is the entry of the key manager with its key. A key is
sealed under a credential name made of the volume's id and the reference of the
secret. It can't be unsealed under another name, so a change of the secret
makes the kept key useless.
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
#: Suffix of an incomplete file.
_PARTIAL = '.partial'


@contextlib.contextmanager
def _directory(backend: str, make: bool = False
               ) -> Iterator[folders.Folder]:
    """Open the configured directory of sealed keys within the context.

    :param make: whether a missing directory is created
    """
    with folders.configured(
            backend, configuration.SEALED_KEYS, make) as directory:
        yield directory


def _file_name(volume_id: str) -> str:
    """Return the file name of a volume's sealed key.

    :raises Foreign: if the text is no id
    """
    privsep.require(names.is_id(volume_id), volume_id)
    return header_notes.sealed_key_file(volume_id)


@cryptsetup_keys.entrypoint
def seal(backend: str, volume_id: str, recorded: str, key: bytes,
         timeout: float) -> None:
    """Seal the key of a volume into its file, in place of an earlier key.

    Allows: keeps any key for any volume in the configured directory, in place
    of an earlier key.

    :param backend: section of the backend; its directory of keys is created
    :param recorded: reference of the secret with this key
    :raises ValueError: if the key is empty
    :raises FileNotFoundError: if systemd-creds is not installed
    """
    file = _file_name(volume_id)
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
    """Open the crypt device of a volume with the volume's kept key.

    Allows: opens any volume under its own name with its kept key: a caller
    needs no key.

    For the other parameters see :func:`.cryptsetup_keys.open_device`.

    :param backend: section of the backend
    :param recorded: reference of the volume's present secret
    :raises NotSealed: if no key is kept, or it was sealed for another secret,
        or can't be unsealed on this node
    :raises WrongKey: if the key does not open the volume
    """
    volume_id = cryptsetup.require_handle(path)
    privsep.require(name == names.crypt(volume_id), name)
    cryptsetup_keys.open_with(path, name, _unseal(
        backend, volume_id, recorded, timeout), timeout, readonly,
        keep_header, discards)


@cryptsetup_keys.entrypoint
def end_reencryption(path: str, backend: str, recorded: str,
                     timeout: float) -> None:
    """Write the final header of a re-encryption, with the volume's kept key.

    Allows: as ``cryptsetup_keys.end_reencryption``, with the kept key.

    See :func:`.cryptsetup_keys.end_reencryption`.

    :param recorded: as for :func:`open_device`
    :raises NotSealed: as :func:`open_device`
    """
    volume_id = cryptsetup.require_handle(path)
    cryptsetup_keys.end_with(path, _unseal(
        backend, volume_id, recorded, timeout), timeout)


@cryptsetup_keys.entrypoint
def resize(name: str, backend: str, recorded: str, timeout: float) -> None:
    """Grow a crypt device to the length of its handle, with the kept key.

    Allows: as ``cryptsetup_keys.resize``, with the kept key.

    :param name: name of the crypt device
    :param recorded: as for :func:`open_device`
    :raises NotSealed: as :func:`open_device`
    :raises WrongKey: as :func:`open_device`
    """
    privsep.require(names.is_crypt(name), name)
    volume_id = name.removeprefix(names.crypt(''))
    cryptsetup_keys.resize_with(name, _unseal(
        backend, volume_id, recorded, timeout), timeout)


def _unseal(backend: str, volume_id: str, recorded: str, timeout: float
            ) -> bytes:
    """Return the kept key of a volume; raise as :func:`open_device`."""
    name = _file_name(volume_id)
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
    except ValueError:  # its text would quote the key
        raise encryption_exceptions.NotSealed(
            path=path, reason='the file contains no key') from None


@cryptsetup_keys.entrypoint
def forget(backend: str, volume_id: str) -> None:
    """Remove the kept key of a volume.

    Allows: removes the kept key of any volume.

    :param backend: section of the backend
    """
    file = _file_name(volume_id)
    with contextlib.suppress(FileNotFoundError):
        with _directory(backend) as directory:
            found = [directory.unlink(each)
                     for each in (file, file + _PARTIAL)]
            if any(found):
                directory.flush()


@privsep.entrypoint
def volumes(backend: str) -> list[str]:
    """Return the ids of volumes with kept keys, or with incomplete files.

    Allows: lists the volumes with kept keys in the configured directory.

    This runs in the daemon without keys, because it reads only the names of
    files.

    :param backend: section of the backend
    """
    with contextlib.suppress(FileNotFoundError):
        with _directory(backend) as directory:
            return sorted({volume_id for file in directory.names() if (
                volume_id := header_notes.volume_of_sealed(
                    file.removesuffix(_PARTIAL)))})
    return []
