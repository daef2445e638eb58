# SPDX-License-Identifier: Apache-2.0
"""cryptsetup(8) without a key: read headers, write tokens, erase key slots.

Reads take no locks. With a lock, cryptsetup repairs a damaged copy of the
header from the other copy, even if only asked to read, so it writes to the
volume. No node may write to a header while two nodes may have the volume open.
For commands with a key see :mod:`.cryptsetup_keys`.

The paragraph "Allows:" of an entry point tells its worst use by a caller who
has taken over the unprivileged service.

Each function raises CommandFailed or CommandTimeout, and the errors into which
:func:`.encryption_exceptions.error_of_cryptsetup` translates them. Time limits are
in seconds.
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
#: The option of each read: take no locks, so repair nothing.
LOOK = '--disable-locks'
_PAYLOAD = re.compile(r'^Payload offset:\s*(\d+)$', re.MULTILINE)
_NUMBER = re.compile('[0-9]{1,3}')
#: Message of cryptsetup for a name without a device.
_NOT_ACTIVE = 'is not active'
#: The number of attempts to read a header, and seconds between them. Another
#: process may be writing the first copy at one attempt, and the second copy at
#: the next.
LOOKS = 4
BETWEEN = 0.3
#: Additional seconds for a command that may be writing a header.
GRACE = 5


def run(path: str, *argv: str, timeout: float, stdin: bytes | None = None,
        grace: float = 0, pass_fds: tuple[int, ...] = ()) -> str:
    """Run cryptsetup; see :func:`.process.run`.

    :param path: device or file, only for the text of errors
    :param argv: all arguments, including the path
    """
    try:
        return process.run('cryptsetup', *argv, timeout=timeout, stdin=stdin,
                           grace=grace, pass_fds=pass_fds)
    except exceptions.CommandFailed as exc:
        raise encryption_exceptions.error_of_cryptsetup(exc, path)


def require_handle(path: str) -> str:
    """Refuse any device that is not the handle of a volume.

    The path must also lead to the handle: os-brick's encryptors replace such
    links by links to their own crypt devices.

    :returns: the volume id
    :raises Foreign: if it is another device
    :raises WrongDevice: if the path leads to another device
    """
    directory, name = os.path.split(path)
    volume_id = names.volume_of_handle(name)
    privsep.require(volume_id and directory == '/dev/mapper', path)
    sysfs.check_mapped(path)
    return volume_id or ''


def require_number(number: str) -> str:
    """Refuse words other than the number of a key slot or a token.

    cryptsetup would take other words for options of its own.

    :returns: the number
    :raises Foreign: if the word is not such a number
    """
    privsep.require(_NUMBER.fullmatch(number), number)
    return number


def beside_writer(look: Callable[[], _Seen]) -> _Seen:
    """Read a header without locks; retry while another process writes it.

    :param look: function to read the header. It raises HeaderDamaged for a
        half-written header
    :returns: the result of ``look``
    :raises HeaderDamaged: if all attempts fail
    """
    seen: _Seen = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(
            encryption_exceptions.HeaderDamaged),
        stop=tenacity.stop_after_attempt(LOOKS),
        wait=tenacity.wait_fixed(BETWEEN), reraise=True)(look)
    return seen


def _read(path: str, *argv: str, timeout: float) -> str:
    """Run cryptsetup on a handle without locks, so it writes nothing."""
    require_handle(path)
    return beside_writer(
        lambda: run(path, *argv, LOOK, path, timeout=timeout))


def _change(path: str, *argv: str, timeout: float,
            stdin: bytes | None = None) -> str:
    """Run cryptsetup on a handle with locks, to write to the header."""
    require_handle(path)
    return run(path, *argv, path, timeout=timeout, stdin=stdin, grace=GRACE)


@privsep.entrypoint
def dump(path: str, timeout: float, repair: bool = False) -> str:
    """Return the metadata of a LUKS2 header as JSON, without keys.

    Allows: reads the metadata of any volume's header, no keys; has cryptsetup
    repair a damaged copy of it from the other copy.

    :param repair: whether cryptsetup takes its locks, and writes to the header
        if a copy is damaged
    :raises HeaderDamaged: if no copy can be read
    """
    words = 'luksDump', '--dump-json-metadata'
    if not repair:
        return _read(path, *words, timeout=timeout)
    return _change(path, *words, timeout=timeout)


@privsep.entrypoint
def version(timeout: float) -> str:
    """Return cryptsetup's message with its version.

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
    """Return descriptions of the damage to a LUKS2 header's two copies.

    Allows: reads any volume's header.

    cryptsetup does not report a damaged copy while the other is whole.

    :returns: a description for each problem; none if both copies are whole
    """
    require_handle(path)
    found: list[str] = tenacity.Retrying(  # a writer may be at a copy
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
    """Return the first bytes of a device, read past the page cache.

    :param size: bytes, rounded up to whole blocks of
        :data:`.luks_binary.READ_BYTES`
    :param pass_fds: open file descriptors for a path such as ``/dev/fd/N``
    """
    data, block = bytearray(), luks_binary.READ_BYTES
    process.stream(
        data.extend, 'dd', 'if=' + path, 'bs=%d' % block,
        'count=%d' % -(-size // block), 'iflag=direct', 'status=none',
        timeout=timeout, pass_fds=pass_fds)
    return data


@privsep.entrypoint
def payload_sectors(path: str, timeout: float) -> int:
    """Return the offset of the data in a LUKS1 volume: its header's length.

    Allows: reads the LUKS1 header of any volume.

    :returns: sectors of 512 bytes
    :raises HeaderDamaged: if no LUKS1 header can be read
    """
    require_handle(path)
    found = _PAYLOAD.search(run(
        path, 'luksDump', '--type', 'luks1', LOOK, path,
        timeout=timeout))
    if not found:
        raise encryption_exceptions.HeaderDamaged(
            path=path, reason='it has no offset of the data')
    return int(found.group(1))


@privsep.entrypoint
def close(name: str, timeout: float) -> bool:
    """Close the crypt device of a volume, if nothing has it open.

    Allows: closes the crypt device of any volume, unless it is in use.

    cryptsetup reads the header to close a device. It takes no locks here, so
    it does not repair the header.

    :returns: False if there is no such device
    :raises CommandFailed: if the device is in use
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
    """Remove the integrity device of a volume, if nothing has it open.

    Allows: removes the integrity device of any volume, unless it is in use.

    cryptsetup removes it together with the crypt device above. This is for an
    integrity device left without a crypt device.

    :returns: False if there is no such device
    :raises CommandFailed: if the device is in use
    """
    privsep.require(names.is_integrity(name), name)
    return process.run_unless(
        'No such device', 'dmsetup', 'remove', '--retry', name,
        timeout=timeout)


@privsep.entrypoint
def erase(path: str, timeout: float) -> None:
    """Erase all key slots of a header: no key opens the volume any more.

    Allows: destroys the key slots of any volume.
    """
    _change(path, 'erase', '--batch-mode', timeout=timeout)


@privsep.entrypoint
def import_token(path: str, text: str, token_id: str | None = None,
                 replace: bool = False, timeout: float = 30) -> None:
    """Write a token into a header.

    Allows: writes any token into the header of any volume.

    :param text: the token as JSON: a :class:`.luks_header.Token` as text
    :param token_id: its number; None: cryptsetup chooses a free number
    :param replace: whether a token with this number exists already
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
