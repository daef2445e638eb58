# SPDX-License-Identifier: Apache-2.0
"""Keys that are kept on this node, sealed by systemd-creds(1).

What seals them is the node's own: a key in ``/var/lib/systemd``, and its TPM
if it has one. A key in plain text is in no file and on no command line, and
does not leave this daemon, which is that of :mod:`.secrets`. It is sealed
under a name that says which volume and which secret it is of, and is not
unsealed under another.
"""

import os
import pathlib

from cinder_localclone import encryption_errors
from cinder_localclone import exceptions
from cinder_localclone.luks import notes
from cinder_localclone import names
from cinder_localclone import privileged
from cinder_localclone.privileged import crypt
from cinder_localclone.privileged import process
from cinder_localclone.privileged import secrets

_COMMAND = 'systemd-creds'
#: Suffix of a file that is not written to its end.
_PARTIAL = '.partial'


def _directory(directory: str) -> pathlib.Path:
    path = pathlib.Path(directory)
    privileged.require(
        path.is_absolute() and '..' not in path.parts, directory)
    return path


def _file(directory: str, volume_id: str) -> pathlib.Path:
    privileged.require(names.is_id(volume_id), directory)
    return _directory(directory) / notes.sealed_key_file(volume_id)


def _partial(file: pathlib.Path) -> pathlib.Path:
    return file.with_name(file.name + _PARTIAL)


@secrets.entrypoint
def seal(directory: str, volume_id: str, recorded: str, key: bytes,
         timeout: float) -> None:
    """Keep the key of a volume; what was kept before goes.

    :param directory: of all that are kept; it is made
    :param recorded: reference of its secret
    :raises FileNotFoundError: if systemd-creds is not installed
    """
    file = _file(directory, volume_id)
    if not key:
        raise ValueError('there is no key of volume ' + volume_id)
    text = process.run(
        _COMMAND, 'encrypt', '--name=' + notes.sealed_key(
            volume_id, recorded), '-', '-', timeout=timeout,
        stdin=key.hex().encode())
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = _partial(file)
    partial.unlink(missing_ok=True)
    with open(partial, 'x', opener=_private) as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(partial, file)
    _flush(file.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


def _flush(directory: pathlib.Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@secrets.entrypoint
def open_device(path: str, name: str, directory: str, recorded: str,
                timeout: float, readonly: bool = False,
                keep_header: bool = False, discards: bool = False) -> None:
    """Have a volume decrypted with the key that is kept of it.

    :param recorded: reference of the secret that it must be of; the others
        as of :func:`.secrets.open_device`
    :raises NotSealed: if there is none, or it can't be unsealed here
    :raises WrongKey: if it does not open the volume
    """
    volume_id = crypt.require_handle(path)
    privileged.require(name == names.crypt(volume_id), name)
    secrets.open_with(path, name, _unseal(
        _file(directory, volume_id), notes.sealed_key(volume_id, recorded),
        timeout), timeout, readonly, keep_header, discards)


@secrets.entrypoint
def end_reencryption(path: str, directory: str, recorded: str,
                     timeout: float) -> None:
    """As :func:`.secrets.end_reencryption`, by the key that is kept.

    :param recorded: as of :func:`open_device`; and its errors
    """
    volume_id = crypt.require_handle(path)
    secrets.end_with(path, _unseal(
        _file(directory, volume_id), notes.sealed_key(volume_id, recorded),
        timeout), timeout)


@secrets.entrypoint
def resize(name: str, directory: str, recorded: str, timeout: float) -> None:
    """Let what decrypts a volume grow with its handle, by what is kept.

    :param name: of the device that decrypts it; the others, and errors, as
        of :func:`open_device`
    """
    privileged.require(names.is_crypt(name), name)
    volume_id = name.removeprefix(names.crypt(''))
    secrets.resize_with(name, _unseal(
        _file(directory, volume_id), notes.sealed_key(volume_id, recorded),
        timeout), timeout)


def _unseal(file: pathlib.Path, name: str, timeout: float) -> bytes:
    if not file.exists():
        raise encryption_errors.NotSealed(path=file, reason='there is none')
    try:
        return bytes.fromhex(process.run(
            _COMMAND, 'decrypt', '--name=' + name, str(file), '-',
            timeout=timeout).strip())
    except (exceptions.CommandFailed, exceptions.CommandTimeout,
            FileNotFoundError) as exc:  # a TPM may hang
        raise encryption_errors.NotSealed(path=file, reason=exc)
    except ValueError:  # whose text would quote it
        raise encryption_errors.NotSealed(
            path=file, reason='it is no key') from None


@secrets.entrypoint
def forget(directory: str, volume_id: str) -> None:
    """Keep the key of a volume no more."""
    file = _file(directory, volume_id)
    found = [each for each in (file, _partial(file)) if each.exists()]
    for each in found:
        each.unlink()
    if found:
        _flush(file.parent)


@privileged.entrypoint
def volumes(directory: str) -> list[str]:
    """The ids of the volumes whose keys are kept, or were about to be.

    In the daemon that has no keys: it reads the names of files.

    :raises FileNotFoundError: if there is no such directory
    """
    return sorted({volume_id for file in _directory(directory).iterdir() if (
        volume_id := notes.volume_of_sealed(
            file.name.removesuffix(_PARTIAL)))})
