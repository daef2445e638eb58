# SPDX-License-Identifier: Apache-2.0
"""cryptsetup(8) without a key: looking at headers, changing, erasing them.

What only looks takes no locks: with one, cryptsetup mends a damaged copy of
the header by the other, whatever it was asked for, so it writes; and nobody
must while two nodes may have the volume open (:mod:`.secrets` for what takes
a key).

Each raises CommandFailed or CommandTimeout, and what
:func:`.encryption_errors.of_cryptsetup` makes of them. Time limits are in
seconds.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import itertools
import os
import pathlib
import re
import time
import typing

from cinder_localclone import encryption_errors
from cinder_localclone import exceptions
from cinder_localclone.luks import copies
from cinder_localclone import names
from cinder_localclone import privileged
from cinder_localclone.privileged import process

_Seen = typing.TypeVar('_Seen')
_LOOK = '--disable-locks'
_PAYLOAD = re.compile(r'^Payload offset:\s*(\d+)$', re.MULTILINE)
_NUMBER = re.compile('[0-9]{1,3}')
#: What cryptsetup says of a name that no device has.
_NOT_ACTIVE = 'is not active'
#: Who looks without locks may meet a writer at both copies, one after the
#: other: how often it looks, and seconds in between.
LOOKS = 4
BETWEEN = 0.3
#: Seconds more for what is about to write a header.
GRACE = 5


def run(path: str, *argv: str, timeout: float, stdin: bytes | None = None,
        grace: float = 0, pass_fds: tuple[int, ...] = ()) -> str:
    """Run cryptsetup; see :func:`.process.run`.

    :param path: of what it works on, for its errors
    """
    try:
        return process.run('cryptsetup', *argv, timeout=timeout, stdin=stdin,
                           grace=grace, pass_fds=pass_fds)
    except exceptions.CommandFailed as exc:
        raise encryption_errors.of_cryptsetup(exc, path)


def require_handle(path: str) -> str:
    """What has a header of the driver's: the handle of a volume.

    :returns: the volume id
    :raises Foreign: if it is anything else
    """
    directory, name = os.path.split(path)
    volume_id = names.volume_of_handle(name)
    privileged.require(volume_id and directory == '/dev/mapper', path)
    return volume_id or ''


def require_number(number: str) -> str:
    """Refuse what is no number of a key slot or a token.

    cryptsetup would take other words for options of its own.

    :returns: the number
    :raises Foreign: if it is anything else
    """
    privileged.require(_NUMBER.fullmatch(number), number)
    return number


def require_path(path: str) -> str:
    """Refuse what cryptsetup could take for an option.

    :returns: the path
    :raises Foreign: if it is not absolute, or goes up again
    """
    privileged.require(path.startswith('/') and '..' not in path.split('/'),
                       path)
    return path


def beside_writer(look: Callable[[], _Seen]) -> _Seen:
    """What is seen of a header that somebody may be writing.

    :param look: raises HeaderDamaged if it has met him
    """
    for _time in range(LOOKS - 1):
        with contextlib.suppress(encryption_errors.HeaderDamaged):
            return look()
        time.sleep(BETWEEN)
    return look()


def _look(path: str, *argv: str, timeout: float) -> str:
    require_path(path)
    return beside_writer(
        lambda: run(path, *argv, _LOOK, path, timeout=timeout))


def _change(path: str, *argv: str, timeout: float,
            stdin: bytes | None = None) -> str:
    require_handle(path)
    return run(path, *argv, path, timeout=timeout, stdin=stdin, grace=GRACE)


@privileged.entrypoint
def dump(path: str, timeout: float, mend: bool = False) -> str:
    """What the header of a LUKS2 device says, as JSON. No keys are in it.

    :param mend: whether one damaged copy of it is to be mended by the other
    :raises HeaderDamaged: if it has none that can be read
    """
    words = 'luksDump', '--dump-json-metadata'
    if not mend:
        return _look(path, *words, timeout=timeout)
    require_handle(path)
    return run(path, *words, path, timeout=timeout)


@privileged.entrypoint
def is_luks(path: str, timeout: float) -> bool:
    """Whether a header, LUKS1 or LUKS2, can be read.

    A read error looks as if there were none: never a reason to format.
    """
    require_path(path)
    try:
        run(path, 'isLuks', _LOOK, path, timeout=timeout)
    except exceptions.CommandFailed as exc:
        if exc.kwargs.get('code') == 1:
            return False
        raise
    except encryption_errors.HeaderDamaged:
        return False
    return True


@privileged.entrypoint
def luks_uuid(path: str, timeout: float) -> str:
    """The UUID in a header, or in a backup of one."""
    return _look(path, 'luksUUID', timeout=timeout).strip()


@privileged.entrypoint
def damaged_copies(path: str, timeout: float) -> list[str]:
    """What is wrong with the copies of a LUKS2 header, in words.

    cryptsetup does not say it, as long as one of them is whole.
    """
    require_handle(path)
    found = _damaged_copies(path, timeout)
    for _time in range(LOOKS - 1):
        if found:  # or being written
            time.sleep(BETWEEN)
            found = _damaged_copies(path, timeout)
    return found


def _damaged_copies(path: str, timeout: float) -> list[str]:
    return copies.problems(bytes(
        beginning(path, copies.READ_BYTES, timeout)))


def beginning(path: str, size: int, timeout: float,
              pass_fds: tuple[int, ...] = ()) -> bytearray:
    """What a device begins with, as the disk has it.

    :param size: bytes, at least
    :param pass_fds: by which the path is to be read
    """
    data, block = bytearray(), copies.READ_BYTES
    process.stream(
        data.extend, 'dd', 'if=' + path, 'bs=%d' % block,
        'count=%d' % -(-size // block), 'iflag=direct', 'status=none',
        timeout=timeout, pass_fds=pass_fds)
    return data


@privileged.entrypoint
def payload_sectors(path: str, timeout: float) -> int:
    """Where the data of a LUKS1 device begins, in sectors of 512 bytes.

    :raises HeaderDamaged: if it has no such header that can be read
    """
    found = _PAYLOAD.search(run(
        require_path(path), 'luksDump', '--type', 'luks1', _LOOK, path,
        timeout=timeout))
    if not found:
        raise encryption_errors.HeaderDamaged(
            path=path, reason='it does not say where its data begins')
    return int(found.group(1))


@privileged.entrypoint
def close(name: str, timeout: float) -> bool:
    """Close what decrypts a volume, if nothing has it open.

    To close a device cryptsetup reads its header, and would mend that.

    :returns: False if there is no such device
    :raises CommandFailed: if something uses it
    """
    privileged.require(names.is_crypt(name), name)
    try:
        run(name, 'close', _LOOK, name, timeout=timeout)
    except exceptions.CommandFailed as exc:
        if _NOT_ACTIVE in str(exc):
            return False
        raise
    return True


@privileged.entrypoint
def remove_integrity(name: str, timeout: float) -> bool:
    """Remove what has a volume's tags, if nothing has it open.

    What decrypts the volume is above it, and is closed with it.

    :returns: False if there is no such device
    :raises CommandFailed: if something uses it
    """
    privileged.require(names.is_integrity(name), name)
    return process.run_unless(
        'No such device', 'dmsetup', 'remove', '--retry', name,
        timeout=timeout)


@privileged.entrypoint
def erase(path: str, timeout: float) -> None:
    """Empty all key slots: nobody opens it any more, whatever key he has."""
    _change(path, 'erase', '--batch-mode', timeout=timeout)


@privileged.entrypoint
def import_token(path: str, text: str, token_id: str | None = None,
                 replace: bool = False, timeout: float = 30) -> None:
    """Write a token into a header.

    :param text: :class:`.luks.tokens.Token`, as it is printed
    :param token_id: its number
    :param replace: whether there is one of that number already
    """
    words = [] if token_id is None else [
        '--token-id', require_number(token_id)]
    _change(path, 'token', 'import', '--json-file', '-', *words,
            *['--token-replace'] * replace, timeout=timeout,
            stdin=text.encode())


@privileged.entrypoint
def remove_token(path: str, token_id: str, timeout: float) -> None:
    """Remove a token from a header."""
    _change(path, 'token', 'remove', '--token-id', require_number(token_id),
            timeout=timeout)


@privileged.entrypoint
def set_uuid(path: str, uuid: str, timeout: float) -> None:
    """Give a header another UUID."""
    privileged.require(names.is_id(uuid), uuid)
    _change(path, 'luksUUID', '--batch-mode', '--uuid', uuid, timeout=timeout)


# -- backups of headers

def _require_backup(path: str, volume_id: str) -> pathlib.Path:
    file = pathlib.Path(path)
    privileged.require(
        file.is_absolute() and '..' not in file.parts
        and file.parent.name == volume_id
        and names.is_header_backup(file.name), path)
    return file


@privileged.entrypoint
def header_backup(path: str, file: str, timeout: float) -> None:
    """Copy the header of a volume into a file, which outlives a power cut.

    :param file: ``<directory>/<volume id>/<name>``; that directory is made
    """
    _back_up(path, _require_backup(file, require_handle(path)), timeout)


def _back_up(path: str, target: pathlib.Path, timeout: float) -> None:
    with _written(target) as partial:
        run(path, 'luksHeaderBackup', _LOOK, path, '--header-backup-file',
            str(partial), timeout=timeout)


@privileged.entrypoint
def save_beginning(path: str, directory: str, luks_uuid: str, size: int,
                   timeout: float) -> None:
    """Copy what a volume begins with, whatever it is, into a new file.

    :param directory: of all volumes' backups
    :param luks_uuid: that it should have
    :param size: bytes
    """
    of_volume = pathlib.Path(directory, require_handle(path))
    target = next(file for file in (
        of_volume / names.header_backup(
            luks_uuid, 'before-restore-%d' % number)
        for number in itertools.count(1)) if not file.exists())
    with _written(_require_backup(
            str(target), require_handle(path))) as partial:
        process.run(
            'dd', 'if=' + path, 'of=%s' % partial, 'bs=1M', 'iflag=direct',
            'count=%d' % (size >> 20), 'status=none', timeout=timeout)


@contextlib.contextmanager
def _written(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file that is about to be written; it is kept when that is done."""
    partial = target.with_name(target.name + '.partial')
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        _shred(partial)  # that of a power cut has keys, too
    yield partial
    with open(partial, 'rb') as written:
        os.fchmod(written.fileno(), 0o600)
        os.fsync(written.fileno())
    os.replace(partial, target)
    for directory in (target.parent, target.parent.parent):
        with _opened(directory) as descriptor:
            os.fsync(descriptor)


@privileged.entrypoint
def backups(directory: str, volume_id: str) -> list[str]:
    """The names of the backups of a volume's header, the oldest first.

    :param directory: of all volumes' backups
    """
    privileged.require(names.is_id(volume_id), volume_id)
    return [file.name for file in sorted(
        pathlib.Path(directory, volume_id).glob('*'), key=_number)
        if _number(file)]


@privileged.entrypoint
def renew_backup(path: str, directory: str, timeout: float) -> str:
    """Copy the header of a volume into a new file, then drop the old ones.

    :param directory: of all volumes' backups
    :returns: the name of the file
    """
    volume_id = require_handle(path)
    of_volume = pathlib.Path(directory, volume_id)
    luks_uuid = run(path, 'luksUUID', _LOOK, path, timeout=timeout).strip()
    name = names.header_backup(luks_uuid, str(1 + max(
        map(_number, of_volume.glob('*')), default=0)))
    _back_up(path, _require_backup(str(of_volume / name), volume_id), timeout)
    for file in sorted(of_volume.glob('*')):
        if names.is_header_backup(file.name) and file.name != name:
            _shred(file)
    return name


def _number(file: pathlib.Path) -> int:
    found = re.fullmatch(names.UUID + r'-(\d{1,9})', file.name)
    return int(found.group(1)) if found else 0


@privileged.entrypoint
def header_restore(path: str, file: str, timeout: float) -> None:
    """Write the header in a file over that of a volume.

    What is to be checked before, :mod:`.encryption` has checked.
    """
    _require_backup(file, require_handle(path))
    _change(path, 'luksHeaderRestore', '--batch-mode',
            '--header-backup-file', file, timeout=timeout)


@privileged.entrypoint
def drop_backups(directory: str, volume_id: str) -> None:
    """Overwrite the backups of a volume's header, and remove them.

    :param directory: of all volumes' backups
    """
    privileged.require(names.is_id(volume_id), volume_id)
    of_volume = pathlib.Path(directory, volume_id)
    for file in sorted(of_volume.glob('*')):
        _shred(_require_backup(str(file), volume_id))
    with contextlib.suppress(FileNotFoundError):
        with _opened(of_volume) as descriptor:
            os.fsync(descriptor)
        of_volume.rmdir()


@privileged.entrypoint
def backed_up_volumes(directory: str) -> list[str]:
    """The ids of the volumes of whose headers there are backups."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(
            each.name for each in pathlib.Path(directory).iterdir()
            if names.is_id(each.name) and each.is_dir()
            and any(file.name.partition('.')[1:] == ('', '')
                    for file in each.iterdir()))
    return []


def _shred(file: pathlib.Path) -> None:
    """Best effort: where a file system writes anew, the old is still there."""
    with open(file, 'r+b') as opened:
        opened.write(bytes(file.stat().st_size))
        opened.flush()
        os.fsync(opened.fileno())
    file.unlink()


@contextlib.contextmanager
def _opened(directory: pathlib.Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
