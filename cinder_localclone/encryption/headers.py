# SPDX-License-Identifier: Apache-2.0
"""Status, verification and backup of headers, for the operator.

A lost header is a lost volume, so there are backups. :mod:`.operator` restores
a backup, but only if it has the pin recorded in the volume's row.
"""

from collections.abc import Iterator
import typing

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import lvm_tags
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import pinning
from cinder_localclone.core import rpc
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import at_rest
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import reencrypt
from cinder_localclone.encryption import rotate


class Status(typing.TypedDict):
    """The header of a volume, read on its home. It contains no keys.

    :param recovery_keys: key slots of recovery keys
    :param unknown_keys: key slots without a token
    :param changing: whether a key rotation is incomplete
    :param shares_key: whether the volume uses the secret of its source
    :param open: whether the volume is decrypted on its home
    """

    cipher: str
    key_bits: int
    sector_size: int
    key_slots: list[str]
    recovery_keys: list[str]
    unknown_keys: list[str]
    changing: bool
    shares_key: bool
    open: bool


class Finding(typing.TypedDict):
    """The result of one check of a volume.

    :param problem: '' if the check has passed
    """

    what: str
    problem: str


# -- status

@rpc.method('encryption_status', rpc.HOME)
def full_status(node: Node, volume_id: str) -> dict[str, typing.Any]:
    """Return :func:`status`, and the progress of a re-encryption.

    :raises StaleMove: if this node is not the volume's home
    :raises HeaderDamaged: if the header can't be read
    """
    return dict(status(node, volume_id),
                reencryption=reencrypt.progress(node, volume_id))


def status(node: Node, volume_id: str) -> Status:
    """Return the status of the header of a volume on this node, its home.

    :raises StaleMove: if this node is not the volume's home
    :raises HeaderDamaged: if the header can't be read
    """
    volume = _encrypted_at_home(node, volume_id)
    header = node.crypt.header(volume_id)
    recorded = volume.encryption
    device = node.handles.survey().crypt(volume_id)
    return {
        'cipher': header.cipher, 'key_bits': header.key_bits,
        'sector_size': header.sector_size,
        'key_slots': list(header.keyslots),
        'recovery_keys': [
            slot
            for token in header.tokens_with_role(luks_header.Role.RECOVERY)
            for slot in token.keyslots],
        'unknown_keys': list(header.keyslots_without_token),
        'changing': rotate.is_pending(
            header, recorded.key if recorded else ''),
        'shares_key': bool(recorded and recorded.shares_key),
        'open': device is not None}


def _encrypted_at_home(node: Node, volume_id: str) -> Volume:
    """Return the row of a volume encrypted by the driver, with its home here.

    :raises StaleMove: if this node is not the volume's home
    :raises KeyNotChanged: if this driver does not encrypt the volume
    """
    volume = nodes.volume_at_home(node, volume_id)
    if volume.encryption is None:
        raise encryption_exceptions.KeyNotChanged(
            volume=volume_id, reason='this driver does not encrypt it')
    return volume


# -- verify

@rpc.method('encryption_verify', rpc.HOME)
def verify(node: Node, volume_id: str) -> list[Finding]:
    """Check header, key, tags and header backup of a volume.

    Nothing is written.

    :returns: a finding for each check, also for each passed check
    :raises StaleMove: if this node is not the volume's home
    """
    volume = _encrypted_at_home(node, volume_id)
    found: list[Finding] = []
    header: luks_header.Header | None = None

    def note(what: str, problems: Iterator[str]) -> None:
        try:
            found.append({'what': what, 'problem': '; '.join(problems)})
        except (exceptions.LocalCloneError, OSError) as exc:
            found.append({'what': what, 'problem': str(exc)})
    try:
        header = node.crypt.header(volume_id)
    except exceptions.LocalCloneError as exc:
        found.append({'what': 'header', 'problem': str(exc)})
    note('copies of the header', _wrong_with_copies(node, volume_id))
    if header:
        problem = pinning.why_not(header,
                                  pinning.recorded_in_row(record_of(volume)))
        found.append({'what': 'pin of the header', 'problem': problem})
        if problem:
            header = None  # no key is used on it
    if header:
        note('key', _wrong_with_key(node, volume, header))
        note('key slots', _wrong_with_slots(volume, header))
    note('tags of the LV', _wrong_with_tags(node, volume))
    note('backup of the header', backup_problems(node, volume_id, header))
    return found


def _wrong_with_copies(node: Node, volume_id: str) -> Iterator[str]:
    yield from node.crypt.damaged_copies(volume_id)


def _wrong_with_key(node: Node, volume: Volume,
                    header: luks_header.Header) -> Iterator[str]:
    """Yield the problems of the recorded secret.

    A missing last step of a re-encryption, and a secret shared with the source
    of a clone, are problems although the secret is right.

    :raises LocalCloneError: if the key manager does not have the secret, or
        the secret does not open the volume
    """
    key = record_of(volume).key
    token = next((each
                  for each in header.tokens_with_role(luks_header.Role.VOLUME)
                  if each.key == key), None)
    if token is None:
        yield ('its header has no key slot of the recorded secret, %s'
               % key)
        return
    opening = node.keys.get(key, token.key_format)
    if activate.lacks_only_last_step(header):
        node.crypt.test_ended(volume.id, opening)
        yield ('only the last step of its re-encryption is missing: unless '
               'another process writes it now, the next check of this node '
               'does')
        return
    for slot in token.keyslots:
        node.crypt.test(volume.id, opening, slot)
    if record_of(volume).shares_key:
        yield ('it shares the secret of its source, and gets its own secret '
               'at the end of its re-encryption')


def _wrong_with_slots(volume: Volume, header: luks_header.Header
                      ) -> Iterator[str]:
    """Yield key slots without a token, and an incomplete key rotation."""
    if header.keyslots_without_token:
        yield 'the key of slot %s is unknown' % (
            ', '.join(header.keyslots_without_token))
    if rotate.is_pending(header, record_of(volume).key):
        yield 'a key rotation is incomplete; run "rotate" again'


def _wrong_with_tags(node: Node, volume: Volume) -> Iterator[str]:
    """Yield how the LV's tags differ from the row or the header.

    Also if there is no LV. A missing tag is no problem: after a move most are
    missing.
    """
    lv = node.lvm.lvs().get(volume.name)
    facts = names.facts(lv.tags) if lv else {}
    if lv is None:
        yield 'there is no LV %s' % volume.name
    recorded = record_of(volume)
    wanted: dict[lvm_tags.Fact, str] = {
        'key': recorded.key, 'luks': node.crypt.uuid(volume.id),
        'extra': str(recorded.header_bytes)}
    for fact, true in wanted.items():
        if facts.get(fact, true) != true:
            yield '%s says %s, but it is %s' % (
                lvm_tags.FACTS[fact].text, facts[fact], true)


def backup_problems(node: Node, volume_id: str,
                    header: luks_header.Header | None) -> Iterator[str]:
    """Yield why the newest backup of a header is missing or outdated.

    It must have the pin, key slots and secrets of the header.

    :param header: the header to compare with; None if it can't be read. Then
        the backup must only be readable
    :raises LocalCloneError: if the backup can't be read
    """
    backups = node.crypt.backup_names(volume_id)
    if not backups:
        yield 'there is none'
        return
    saved = node.crypt.backed_up(volume_id, backups[-1])
    if header and saved.pin != header.pin:
        yield 'the last backup, %s, belongs to other data' % backups[-1]
    elif header and saved.all_keyslots != header.all_keyslots:
        yield 'the last backup, %s, has other key slots' % backups[-1]
    elif header and saved.keys() != header.keys():
        yield 'the last backup, %s, names other secrets' % backups[-1]


def record_of(volume: Volume) -> volume_types.Recorded:
    """Return the encryption recorded in the row of a volume.

    :raises KeyNotChanged: if this driver does not encrypt the volume
    """
    found = volume.encryption
    if found is None:
        raise encryption_exceptions.KeyNotChanged(
            volume=volume.id, reason='this driver does not encrypt it')
    return found


# -- backup

@rpc.method('encryption_header_backup', rpc.HOME, expected=(
    encryption_exceptions.KeyNotChanged, encryption_exceptions.NotAtRest))
def back_up(node: Node, volume_id: str) -> str:
    """Back up the header of a volume on this node, its home.

    :returns: the name of the backup file
    :raises NotAtRest: if another node may change the header
    :raises ForeignHeader: if the header is not the volume's. The old backups
        are not removed
    :raises WrongKey: if the volume's key does not open the header. The old
        backups are not removed
    :raises KeyUnavailable: if the key manager does not answer
    :raises Reencrypting: if the volume is being re-encrypted: this backup
        could not be restored, and would replace a usable backup
    :raises KeyNotChanged: if no backup directory is configured
    """
    with node.lock(volume_id):
        volume = at_rest.volume(node, volume_id)
        devices.check_not_reencrypted(
            node, volume, 'given a backup of its header')
        rotate.renew_backup(node, volume)
        backups = node.crypt.backup_names(volume_id)
        if not backups:
            raise encryption_exceptions.KeyNotChanged(
                volume=volume_id, reason='localclone_header_backup_dir is '
                'not set on %s' % node.host)
        return backups[-1]
