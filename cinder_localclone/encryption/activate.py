# SPDX-License-Identifier: Apache-2.0
"""Having a volume decrypted: its header and a record say whose key it takes.

A header by itself could name any secret of the service: that of a volume
which is not encrypted is whatever its guest has written there. So a header
is compared with its pin (:mod:`.pinning`) before any secret is asked for. The
secret on record is used; and another one, which the header says is in its
place while the key is being changed, only if the key manager's own name of it
says that it is this volume's.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib

from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import survey
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import pinning

LOG = logging.getLogger(__name__)


def key_of(crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
           volume_id: str, header: luks_header.Header,
           expected: pinning.Expected, luks: str = '') -> bytes:
    """A key that opens a volume, proven.

    While its key is being changed it has two, and either may be gone from
    the key manager.

    :param header: of the volume
    :param expected: the header and the secret on record: what its row says,
        or what was noted when it was open on this node
    :param luks: the UUID that its header had then; '' if it is not known
    :raises ForeignHeader: if the header is another one
    :raises KeyUnavailable: if the key manager does not answer
    :raises KeyRefused: if it gives none
    :raises WrongKey: if what it gives opens nothing
    :raises NotRecovered: if it would, once a re-encryption is over of which
        only the end is missing
    :raises NotEnded: if that can't be made
    :raises HeaderDamaged: if the header names no secret
    """
    def test(key: bytes) -> None:
        try:
            crypt.test(volume_id, key)
        except encryption_exceptions.WrongKey:
            if not is_complete(header):
                raise
            crypt.test_ended(volume_id, key)
            raise _not_recovered(volume_id, 'only its last step is missing')

    with _no_backup_wanted(volume_id, header):
        return _opening(crypt, keys, volume_id, header, expected, luks, test)


@contextlib.contextmanager
def _no_backup_wanted(volume_id: str, header: luks_header.Header
                      ) -> Iterator[None]:
    """Nobody is told to restore the header of what is re-encrypted.

    Its backups are of before, also when that has just ended.

    :param header: as it was when it could be read
    """
    try:
        yield
    except encryption_exceptions.HeaderDamaged as exc:
        if header.reencryption and (
                type(exc) is encryption_exceptions.HeaderDamaged):
            raise _not_recovered(
                volume_id, 'its header could not be used just then (%s)'
                % exc.kwargs['reason']) from exc
        raise


def is_complete(header: luks_header.Header) -> bool:
    """Whether only the end of a volume's re-encryption is missing."""
    return bool(header.reencryption and header.reencryption.complete)


def _not_recovered(volume_id: str, reason: str
                   ) -> encryption_exceptions.NotRecovered:
    return encryption_exceptions.NotRecovered(
        path=names.handle_path(volume_id), reason=reason)


def _opening(crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
             volume_id: str, header: luks_header.Header,
             expected: pinning.Expected, luks: str,
             use: Callable[[bytes], None]) -> bytes:
    """:param use: raises WrongKey if it is given another one"""
    damaged = (encryption_exceptions.NotEnded if is_complete(header)
               else encryption_exceptions.HeaderDamaged)
    error: Exception = damaged(
        path=names.handle_path(volume_id), reason='it names no secret with a '
        'key that opens it')
    for token in _of_volume(crypt, volume_id, header, expected, luks):
        try:
            # That another secret is the volume's, only the header says; of
            # this one it may be LVM's tags alone, on the same disk.
            recorded = token.key == expected.key
            key = keys.get(
                token.key, token.key_format,
                '' if recorded and not expected.by_tag else volume_id,
                recorded)
            use(key)
            return key
        except (encryption_exceptions.KeyRefused,
                encryption_exceptions.WrongKey) as exc:
            LOG.warning('Secret %(key)s does not open volume %(volume)s: '
                        '%(error)s', {'volume': volume_id, 'key': token.key,
                                      'error': exc})
            error = exc
    raise error


def _of_volume(crypt: crypt_interfaces.Crypt, volume_id: str,
               header: luks_header.Header, expected: pinning.Expected,
               luks: str) -> list[luks_header.Token]:
    """The tokens that may be used, that of the secret on record first.

    :raises ForeignHeader: if there can't be any
    """
    pinning.check(volume_id, header, expected)
    path, recorded = names.handle_path(volume_id), expected.key
    found = crypt.uuid(volume_id) if luks else ''
    if found != luks:
        raise encryption_exceptions.ForeignHeader(
            path=path, reason='its UUID is %s and not %s' % (found, luks))
    own = [token for token in header.tokens if token.key == recorded]
    if not (recorded and own):
        raise encryption_exceptions.ForeignHeader(
            path=path, reason='it names %s, and the recorded secret is %s' % (
                ' and '.join(sorted(header.keys())) or 'no secret',
                recorded or 'none'))
    related = {recorded, *(token.replaces for token in own)}
    return sorted(
        (token for token in header.opened_by(luks_header.Role.VOLUME)
         if token.key in related or token.replaces == recorded),
        key=lambda token: token.key != recorded)


def end_reencryption(
        crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
        volume_id: str, header: luks_header.Header, expected: pinning.Expected,
        luks: str = '', check: Callable[[], None] = lambda: None) -> None:
    """Write that a re-encryption is over of which only that is missing.

    The volume is at rest, and at home; nothing re-encrypts it. It may be open.

    :param header: that says so
    :param check: as of :func:`open_volume`
    :raises HeaderInUse: if others write to its header
    :raises NotEnded: if more is missing than was seen
    :raises LocalCloneError: as :func:`key_of`
    """
    def end(key: bytes) -> None:
        check()
        crypt.end_reencryption(volume_id, key)

    def end_sealed() -> None:
        check()
        crypt.end_reencryption_sealed(volume_id, expected.key)
    with _no_backup_wanted(volume_id, header):
        try:
            _opening(crypt, keys, volume_id, header, expected, luks, end)
        except encryption_exceptions.KeyUnavailable:
            if not _is_done_sealed(volume_id, 'recovered', end_sealed):
                raise
    LOG.info('The re-encryption of volume %s was interrupted in its last '
             'step. It is complete now.', volume_id)


def open_volume(crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
                volume_id: str, expected: pinning.Expected,
                keep_header: bool = False, discards: bool = False,
                readonly: bool = False,
                recovers: bool = False, luks: str = '',
                check: Callable[[], None] = lambda: None,
                proven: Callable[[], None] = lambda: None) -> None:
    """Have a volume decrypted whose handle is here; it is not yet.

    :param expected: as of :func:`key_of`; ``luks``, too
    :param keep_header: nobody is to write its header: it is not at rest, or
        not at home
    :param readonly: neither is its data written, as a snapshot's
    :param recovers: nevertheless, if its re-encryption was interrupted: then
        it is at rest, and at home. To open it writes to it
    :param check: called when all was waited for, before anything is written
        or opened; it raises an error if the volume is not to be open any more
    :param proven: called when the header is known to be that of the volume
    :raises NotRecovered: if its re-encryption was interrupted, and nobody is
        to write to it
    :raises LocalCloneError: as :func:`key_of`
    """
    found = header = crypt.header(volume_id)
    pinning.check(volume_id, header, expected)
    keeps = readonly or keep_header
    ends = is_complete(header) and (not keeps or recovers and not readonly)
    if header.reencryption and not header.reencryption.interrupted:
        # cryptsetup's lock is one for all volumes made of one another, of
        # which another may be at work.
        keeps = True
    elif header.reencryption and keeps:
        if readonly or not recovers:
            raise _not_recovered(volume_id, 'opening the volume would write '
                                 'to its header')
        keeps = False
    how = keeps, discards, readonly
    if header.integrity:
        crypt.drop_half(volume_id)
    failed: Exception | None = None
    if ends:
        failed = _try_to_end(crypt, keys, volume_id, header, expected, luks,
                             check)
        if not failed:
            with _no_backup_wanted(volume_id, found):
                header = crypt.header(volume_id)
    try:
        key = key_of(crypt, keys, volume_id, header, expected, luks)
    except encryption_exceptions.NotRecovered as exc:
        raise failed or exc
    except encryption_exceptions.KeyUnavailable as exc:
        def open_sealed() -> None:
            check()
            with _no_backup_wanted(volume_id, found):
                crypt.open_sealed(volume_id, expected.key, *how)
            _check_opened(crypt, volume_id, header)
        # What it names was compared before anybody was asked.
        if not _is_opened_sealed(volume_id, open_sealed, exc):
            if failed:
                raise failed from exc  # who may be there later
            raise
        proven()
        return
    check()
    proven()
    with _no_backup_wanted(volume_id, found):
        crypt.open(volume_id, key, *how)
    _check_opened(crypt, volume_id, header)
    if not readonly:
        crypt.seal(volume_id, expected.key, key)


def _is_opened_sealed(volume_id: str, act: Callable[[], None],
                      away: encryption_exceptions.KeyUnavailable) -> bool:
    """Whether the key that is kept of a volume has opened it.

    :param away: what the key manager has failed with. It is the cause of
        whatever fails here: with its key the same may succeed
    :raises NotPossible: if the volume is not to be open any more
    """
    try:
        return _is_done_sealed(volume_id, 'opened', act)
    except exceptions.NotPossible:
        raise
    except (exceptions.LocalCloneError, OSError) as exc:
        raise exc from away


def _check_opened(crypt: crypt_interfaces.Crypt, volume_id: str,
                  header: luks_header.Header) -> None:
    """Close a volume that cryptsetup has opened by another header.

    Nobody was given its path yet.

    :param header: the header that was checked
    :raises OpenedOtherwise: if it was another one
    """
    try:
        pinning.check_opened(volume_id, header.pin, header.becoming,
                             crypt.opened(volume_id))
    except encryption_exceptions.OpenedOtherwise:
        crypt.close(volume_id)
        raise


def _try_to_end(crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
                volume_id: str, header: luks_header.Header,
                expected: pinning.Expected, luks: str,
                check: Callable[[], None]) -> Exception | None:
    """What kept a re-encryption from being ended: its key may open it yet.

    :raises KeyUnavailable: if no key is to be had, of those that are kept
        neither: it is not tried twice, which may take its time
    """
    try:
        end_reencryption(crypt, keys, volume_id, header, expected, luks,
                         check)
    except encryption_exceptions.KeyUnavailable:
        raise
    except (exceptions.LocalCloneError, OSError) as exc:
        LOG.warning('Only the last step of the re-encryption of volume '
                    '%(volume)s is missing, and it failed, will retry: '
                    '%(error)s',
                    {'volume': volume_id, 'error': exc})
        return exc
    return None


def _is_done_sealed(volume_id: str, what: str, act: Callable[[], None]
                    ) -> bool:
    """Whether the key that is kept of a volume was enough.

    :param what: was to be done, such as "opened"
    """
    try:
        act()
    except (encryption_exceptions.NotSealed,
            encryption_exceptions.WrongKey) as exc:
        LOG.debug('Volume %(volume)s is not %(what)s without the key '
                  'manager: %(error)s', {
                      'volume': volume_id, 'what': what, 'error': exc})
        return False
    LOG.warning('The key manager did not answer: volume %(volume)s was '
                '%(what)s with the key that this node keeps.',
                {'volume': volume_id, 'what': what})
    return True


def grow(crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
         volume_id: str, expected: pinning.Expected) -> None:
    """What decrypts a volume gets as long as its handle has become.

    A guest may have it open, so what was changed meanwhile closes nothing.

    :raises OpenedOtherwise: if its header was changed meanwhile; its path is
        not given out
    :raises LocalCloneError: as :func:`key_of`
    """
    header = crypt.header(volume_id)
    try:
        key = key_of(crypt, keys, volume_id, header, expected)
    except encryption_exceptions.KeyUnavailable:
        if not _is_done_sealed(volume_id, 'extended', lambda: (
                crypt.resize_sealed(volume_id, expected.key))):
            raise
    else:
        crypt.resize(volume_id, key)
    pinning.check_opened(volume_id, header.pin, header.becoming,
                         crypt.opened(volume_id))


def takes_discards(node: Node, volume: objects.Volume) -> bool:
    """Whether discards of the guest are passed down to the disk.

    Not if the properties of the type are not valid any more.
    """
    if rows.is_authenticated(volume):
        return False
    with contextlib.suppress(volume_types.InvalidType):
        encryption = node.volumes.wanted_encryption(volume)
        return bool(encryption and encryption.discards)
    return False


def is_short(present: survey.Survey, volume_id: str) -> bool:
    """Whether a volume is decrypted, but not all of it.

    While it is re-encrypted, cryptsetup has other devices in between. An
    authenticated one never grows.
    """
    handle, crypt = present.handle(volume_id), present.crypt(volume_id)
    header = volume_types.HEADER_BYTES // state.SECTOR
    return bool(handle and crypt and crypt.target == 'crypt'
                and not present.integrity(volume_id)
                and crypt.sectors + header < handle.sectors)
