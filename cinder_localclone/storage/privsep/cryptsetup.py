# SPDX-License-Identifier: Apache-2.0
"""cryptsetup(8) without a key: looking at headers, changing, erasing them.

What only looks takes no locks: with one, cryptsetup mends a damaged copy of
the header by the other, whatever it was asked for, so it writes; and nobody
must while two nodes may have the volume open (:mod:`.cryptsetup_keys` for what
takes a key).

Each raises CommandFailed or CommandTimeout, and what
:func:`.encryption_exceptions.of_cryptsetup` makes of them. Time limits are in
seconds.
"""

from collections.abc import Callable
import os
import re
import typing

import tenacity

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_binary
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs

_Seen = typing.TypeVar('_Seen')
LOOK = '--disable-locks'
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
        raise encryption_exceptions.of_cryptsetup(exc, path)


def require_handle(path: str) -> str:
    """Refuse any device that is not the handle of a volume.

    The path must lead there, too: os-brick's encryptors turn such links to
    devices of their own.

    :returns: the volume id
    :raises Foreign: if it is anything else
    :raises WrongDevice: if the path leads to another device
    """
    directory, name = os.path.split(path)
    volume_id = names.volume_of_handle(name)
    privsep.require(volume_id and directory == '/dev/mapper', path)
    sysfs.check_mapped(path)
    return volume_id or ''


def require_number(number: str) -> str:
    """Refuse what is no number of a key slot or a token.

    cryptsetup would take other words for options of its own.

    :returns: the number
    :raises Foreign: if it is anything else
    """
    privsep.require(_NUMBER.fullmatch(number), number)
    return number


def beside_writer(look: Callable[[], _Seen]) -> _Seen:
    """What is seen of a header that somebody may be writing.

    :param look: raises HeaderDamaged if it has met him
    """
    seen: _Seen = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(
            encryption_exceptions.HeaderDamaged),
        stop=tenacity.stop_after_attempt(LOOKS),
        wait=tenacity.wait_fixed(BETWEEN), reraise=True)(look)
    return seen


def _read(path: str, *argv: str, timeout: float) -> str:
    require_handle(path)
    return beside_writer(
        lambda: run(path, *argv, LOOK, path, timeout=timeout))


def _change(path: str, *argv: str, timeout: float,
            stdin: bytes | None = None) -> str:
    require_handle(path)
    return run(path, *argv, path, timeout=timeout, stdin=stdin, grace=GRACE)


@privsep.entrypoint
def dump(path: str, timeout: float, mend: bool = False) -> str:
    """What the header of a LUKS2 device says, as JSON. No keys are in it.

    Allows: reads the metadata of any volume's header, no keys; has cryptsetup
    repair one damaged copy by the other.

    :param mend: whether one damaged copy of it is to be mended by the other
    :raises HeaderDamaged: if it has none that can be read
    """
    words = 'luksDump', '--dump-json-metadata'
    if not mend:
        return _read(path, *words, timeout=timeout)
    require_handle(path)
    return run(path, *words, path, timeout=timeout)


@privsep.entrypoint
def version(timeout: float) -> str:
    """Return what cryptsetup says of its version.

    Allows: reads the version of cryptsetup.
    """
    return process.run('cryptsetup', '--version', timeout=timeout)


@privsep.entrypoint
def luks_uuid(path: str, timeout: float) -> str:
    """Return the LUKS UUID of a volume.

    Allows: reads the UUID of any volume's header.
    """
    return _read(path, 'luksUUID', timeout=timeout).strip()


@privsep.entrypoint
def damaged_copies(path: str, timeout: float) -> list[str]:
    """What is wrong with the copies of a LUKS2 header, in words.

    Allows: reads any volume's header.

    cryptsetup does not say it, as long as one of them is whole.
    """
    require_handle(path)
    found: list[str] = tenacity.Retrying(  # a copy may be being written
        retry=tenacity.retry_if_result(bool),
        stop=tenacity.stop_after_attempt(LOOKS),
        wait=tenacity.wait_fixed(BETWEEN),
        retry_error_callback=lambda state: state.outcome.result())(
            _damaged_copies, path, timeout)
    return found


def _damaged_copies(path: str, timeout: float) -> list[str]:
    return luks_binary.problems(bytes(
        beginning(path, luks_binary.READ_BYTES, timeout)))


def beginning(path: str, size: int, timeout: float,
              pass_fds: tuple[int, ...] = ()) -> bytearray:
    """What a device begins with, as the disk has it.

    :param size: bytes, at least
    :param pass_fds: by which the path is to be read
    """
    data, block = bytearray(), luks_binary.READ_BYTES
    process.stream(
        data.extend, 'dd', 'if=' + path, 'bs=%d' % block,
        'count=%d' % -(-size // block), 'iflag=direct', 'status=none',
        timeout=timeout, pass_fds=pass_fds)
    return data


@privsep.entrypoint
def payload_sectors(path: str, timeout: float) -> int:
    """Where the data of a LUKS1 device begins, in sectors of 512 bytes.

    Allows: reads the LUKS1 header of any volume.

    :raises HeaderDamaged: if it has no such header that can be read
    """
    require_handle(path)
    found = _PAYLOAD.search(run(
        path, 'luksDump', '--type', 'luks1', LOOK, path,
        timeout=timeout))
    if not found:
        raise encryption_exceptions.HeaderDamaged(
            path=path, reason='it does not say where its data begins')
    return int(found.group(1))


@privsep.entrypoint
def close(name: str, timeout: float) -> bool:
    """Close what decrypts a volume, if nothing has it open.

    Allows: closes the crypt device of any volume that nothing uses.

    To close a device cryptsetup reads its header, and would mend that.

    :returns: False if there is no such device
    :raises CommandFailed: if something uses it
    """
    privsep.require(names.is_crypt(name), name)
    try:
        run(name, 'close', LOOK, name, timeout=timeout)
    except exceptions.CommandFailed as exc:
        if _NOT_ACTIVE in str(exc):
            return False
        raise
    return True


@privsep.entrypoint
def remove_integrity(name: str, timeout: float) -> bool:
    """Remove what has a volume's tags, if nothing has it open.

    Allows: removes the integrity device of any volume that nothing uses.

    What decrypts the volume is above it, and is closed with it.

    :returns: False if there is no such device
    :raises CommandFailed: if something uses it
    """
    privsep.require(names.is_integrity(name), name)
    return process.run_unless(
        'No such device', 'dmsetup', 'remove', '--retry', name,
        timeout=timeout)


@privsep.entrypoint
def erase(path: str, timeout: float) -> None:
    """Empty all key slots: nobody opens it any more, whatever key he has.

    Allows: destroys the key slots of any volume.
    """
    _change(path, 'erase', '--batch-mode', timeout=timeout)


@privsep.entrypoint
def import_token(path: str, text: str, token_id: str | None = None,
                 replace: bool = False, timeout: float = 30) -> None:
    """Write a token into a header.

    Allows: writes any token into the header of any volume.

    :param text: :class:`.luks_header.Token`, as it is printed
    :param token_id: its number
    :param replace: whether there is one of that number already
    """
    words = [] if token_id is None else [
        '--token-id', require_number(token_id)]
    _change(path, 'token', 'import', '--json-file', '-', *words,
            *['--token-replace'] * replace, timeout=timeout,
            stdin=text.encode())


@privsep.entrypoint
def remove_token(path: str, token_id: str, timeout: float) -> None:
    """Remove a token from a header.

    Allows: removes any token of the header of any volume.
    """
    _change(path, 'token', 'remove', '--token-id', require_number(token_id),
            timeout=timeout)


@privsep.entrypoint
def set_uuid(path: str, uuid: str, timeout: float) -> None:
    """Give a header another UUID.

    Allows: changes the LUKS UUID of any volume.
    """
    privsep.require(names.is_id(uuid), uuid)
    _change(path, 'luksUUID', '--batch-mode', '--uuid', uuid, timeout=timeout)
