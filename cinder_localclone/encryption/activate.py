# SPDX-License-Identifier: Apache-2.0
"""Open encrypted volumes with the key of the recorded secret.

A guest can write any header to an unencrypted volume, and a header can name
any secret of the service. Therefore the header is compared with its pin
(:mod:`.pinning`) before a secret is requested. The recorded secret is tried
first. During a key rotation the header may name a second secret. The second
secret is used only if the key manager stores it under the name of this volume.

If the key manager does not answer, the sealed key is used: a copy of the key,
kept by this node since it last opened the volume.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib

from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core import names
from cinder_localclone.core import pinning

LOG = logging.getLogger(__name__)


def key_of(crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
           volume_id: str, header: luks_header.Header,
           expected: pinning.Expected, luks: str = '') -> bytes:
    """Return a key that opens a volume.

    The key is tested before it is returned. During a key rotation a volume has
    two secrets, and the key manager may hold either.

    :param header: the header of the volume
    :param expected: the pinned header and the recorded secret: from the row,
        or from the notes that this node made when it opened the volume
    :param luks: the UUID of the header in these notes; '' if unknown
    :raises ForeignHeader: if the header is not the expected header
    :raises KeyUnavailable: if the key manager does not answer
    :raises KeyRefused: if the key manager refuses the secret
    :raises WrongKey: if the secret opens no key slot
    :raises NotRecovered: if the key is right, but the last step of a
        re-encryption is missing
    :raises NotEnded: if this step is missing, and the header can't be
        completed
    :raises HeaderDamaged: if none of the volume's secrets has a key slot
    """
    def test(key: bytes) -> None:
        try:
            crypt.test(volume_id, key)
        except encryption_exceptions.WrongKey:
            if not lacks_only_last_step(header):
                raise
            crypt.test_ended(volume_id, key)
            raise _not_recovered(volume_id, 'only its last step is missing')

    with _without_restore_advice(volume_id, header):
        return _first_accepted_key(
            crypt, keys, volume_id, header, expected, luks, test)


@contextlib.contextmanager
def _without_restore_advice(volume_id: str, header: luks_header.Header
                            ) -> Iterator[None]:
    """Replace HeaderDamaged by NotRecovered during a re-encryption.

    The text of HeaderDamaged tells the operator to restore a backup of the
    header. All backups are older than the re-encryption, so a restored backup
    would make the data unreadable. The re-encryption may also have ended a
    moment ago.

    :param header: the last header that could be read
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


def lacks_only_last_step(header: luks_header.Header) -> bool:
    """Return whether a header lacks only the last step of a re-encryption.

    All data is re-encrypted. The header does not say so yet, and possibly no
    key opens it.
    """
    return bool(header.reencryption and header.reencryption.complete)


def _not_recovered(volume_id: str, reason: str
                   ) -> encryption_exceptions.NotRecovered:
    return encryption_exceptions.NotRecovered(
        path=names.handle_path(volume_id), reason=reason)


def _first_accepted_key(
        crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
        volume_id: str, header: luks_header.Header, expected: pinning.Expected,
        luks: str, use: Callable[[bytes], None]) -> bytes:
    """Call ``use`` with the volume's keys in turn, until it accepts a key.

    :param use: called with a key; raises WrongKey if the key is wrong
    :returns: the accepted key
    """
    damaged = (encryption_exceptions.NotEnded if lacks_only_last_step(header)
               else encryption_exceptions.HeaderDamaged)
    error: Exception = damaged(
        path=names.handle_path(volume_id), reason='its tokens name no secret '
        'with a key slot')
    for token in _checked_tokens(crypt, volume_id, header, expected, luks):
        try:
            # A writer of the disk could name the secret of another volume. So
            # the key manager must confirm the owner of each secret named only
            # on the disk: any secret but the recorded secret, and the recorded
            # secret if only an LVM tag records it.
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


def _checked_tokens(crypt: crypt_interfaces.Crypt, volume_id: str,
                    header: luks_header.Header, expected: pinning.Expected,
                    luks: str) -> list[luks_header.Token]:
    """Check the header, and return its tokens with a key slot.

    The token of the recorded secret comes first. Another token is returned
    only if a key rotation has to do with both secrets.

    :returns: empty if no such secret has a key slot
    :raises ForeignHeader: if the header is not the expected header, or does
        not name the recorded secret
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
        (token for token in header.tokens_with_role(luks_header.Role.VOLUME)
         if token.key in related or token.replaces == recorded),
        key=lambda token: token.key != recorded)


def end_reencryption(
        crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
        volume_id: str, header: luks_header.Header, expected: pinning.Expected,
        luks: str = '', check: Callable[[], None] = lambda: None) -> None:
    """Write the missing last step of a re-encryption to the header.

    The volume is at rest on its home, and no re-encryption runs. The volume
    may be open.

    :param header: the header with only its last step missing
    :param check: called before the write, as for :func:`open_volume`
    :raises HeaderInUse: if another process writes to the header
    :raises NotEnded: if more than the last step is missing
    :raises LocalCloneError: as for :func:`key_of`
    """
    def end(key: bytes) -> None:
        check()
        crypt.end_reencryption(volume_id, key)

    def end_sealed() -> None:
        check()
        crypt.end_reencryption_sealed(volume_id, expected.key)
    with _without_restore_advice(volume_id, header):
        try:
            _first_accepted_key(
                crypt, keys, volume_id, header, expected, luks, end)
        except encryption_exceptions.KeyUnavailable:
            if not _try_sealed(volume_id, 'recovered', end_sealed):
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
    """Create the crypt device of a volume.

    The handle exists on this node, and the crypt device does not.

    :param expected: as for :func:`key_of`, also ``luks``
    :param keep_header: do not write to the header: the volume is moving, or
        its home is another node
    :param readonly: open read-only, without any write to header or data: for a
        snapshot
    :param recovers: write to the header in spite of ``keep_header`` if a
        re-encryption was interrupted. The caller knows that the volume is at
        rest on its home
    :param check: called after all waits, before the first write and before the
        volume is opened; raises NotPossible if the volume must stay closed
    :param proven: called when the header is proven to be the volume's own: a
        key opens one of its key slots
    :raises NotRecovered: if a re-encryption was interrupted, and the header
        must not be written
    :raises LocalCloneError: as for :func:`key_of`
    """
    found = header = crypt.header(volume_id)
    pinning.check(volume_id, header, expected)
    keeps = readonly or keep_header
    ends = lacks_only_last_step(header) and (not keeps or recovers
                                             and not readonly)
    if header.reencryption and not header.reencryption.interrupted:
        # Volumes cloned from each other share cryptsetup's lock, and a process
        # may be re-encrypting another of them.
        keeps = True
    elif header.reencryption and keeps:
        if readonly or not recovers:
            raise _not_recovered(volume_id, 'opening the volume would write '
                                 'to its header')
        keeps = False
    how = keeps, discards, readonly
    if header.integrity:
        crypt.remove_stray_integrity(volume_id)
    failed: Exception | None = None
    if ends:
        failed = _try_to_end(crypt, keys, volume_id, header, expected, luks,
                             check)
        if not failed:
            with _without_restore_advice(volume_id, found):
                header = crypt.header(volume_id)
    try:
        key = key_of(crypt, keys, volume_id, header, expected, luks)
    except encryption_exceptions.NotRecovered as exc:
        raise failed or exc
    except encryption_exceptions.KeyUnavailable as exc:
        def open_sealed() -> None:
            check()
            with _without_restore_advice(volume_id, found):
                crypt.open_sealed(volume_id, expected.key, *how)
            _check_or_close(crypt, volume_id, header)
        # A sealed key needs no other check of the header: key_of has compared
        # it with its pin before it called the key manager.
        if not _try_to_open_sealed(volume_id, open_sealed, exc):
            if failed:
                # The cause shows that a later attempt may succeed.
                raise failed from exc
            raise
        proven()
        return
    check()
    proven()
    with _without_restore_advice(volume_id, found):
        crypt.open(volume_id, key, *how)
    _check_or_close(crypt, volume_id, header)
    if not readonly:
        crypt.seal(volume_id, expected.key, key)


def _try_to_open_sealed(volume_id: str, act: Callable[[], None],
                        away: encryption_exceptions.KeyUnavailable) -> bool:
    """Open a volume with the sealed key of this node.

    :param act: opens the volume
    :param away: the error of the key manager. It becomes the cause of each
        error raised here: a caller sees that a later attempt, with the key
        manager's key, may succeed
    :returns: False if this node has no sealed key, or the key is wrong
    :raises NotPossible: if the volume must stay closed
    """
    try:
        return _try_sealed(volume_id, 'opened', act)
    except exceptions.NotPossible:
        raise
    except (exceptions.LocalCloneError, OSError) as exc:
        raise exc from away


def _check_or_close(crypt: crypt_interfaces.Crypt, volume_id: str,
                    header: luks_header.Header) -> None:
    """Compare the new crypt device with the checked header.

    The header may have been changed between the check and the open. If the
    device does not match, it is closed again: no user has its path yet.

    :param header: the header that was checked
    :raises OpenedOtherwise: if the device was closed
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
    """Try to end a re-encryption, and return the error if that fails.

    The volume may still open with its key.

    :raises KeyUnavailable: if neither the key manager nor this node has a key.
        It is not returned: opening the volume needs the same key, and would
        only wait for the key manager once more
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


def _try_sealed(volume_id: str, what: str, act: Callable[[], None]) -> bool:
    """Act with the sealed key of this node.

    :param what: a participle for the log, such as "opened"
    :param act: uses the sealed key
    :returns: False if this node has no sealed key, or the key is wrong
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
                '%(what)s with the sealed key of this node.',
                {'volume': volume_id, 'what': what})
    return True


def grow(crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
         volume_id: str, expected: pinning.Expected) -> None:
    """Extend the crypt device of a volume to the length of its handle.

    A guest may use the volume, so it stays open after an error.

    :raises OpenedOtherwise: if the crypt device does not match the header. The
        caller must not give out the path
    :raises LocalCloneError: as for :func:`key_of`
    """
    header = crypt.header(volume_id)
    try:
        key = key_of(crypt, keys, volume_id, header, expected)
    except encryption_exceptions.KeyUnavailable:
        if not _try_sealed(volume_id, 'extended', lambda: (
                crypt.resize_sealed(volume_id, expected.key))):
            raise
    else:
        crypt.resize(volume_id, key)
    pinning.check_opened(volume_id, header.pin, header.becoming,
                         crypt.opened(volume_id))
