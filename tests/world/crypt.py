# SPDX-License-Identifier: Apache-2.0
"""The key manager of the simulated world, and headers of volumes.

What a volume has in its regions stands for its ciphertext. Its header is one
value, wherever the volume is: the world knows it by the volume's id, and a
node can read it where it can read the first region.
"""

import copy
import dataclasses
import json

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core import names
from cinder_localclone.core import pinning
from cinder_localclone.core import pins
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types
from tests.world import disks
from tests.world import reencryption
from tests.world import stack
from tests.world import upper_devices

AWAY, REFUSES = 'away', 'refuses'
#: The digest of a header that somebody else has written.
FORGED = 'forged'


@dataclasses.dataclass
class SimHeader:
    """A header.

    :param slots: the keys that open the volume, by id
    :param under_way: what it says of a re-encryption
    :param digest: of the key of its data, which no change of a key changes
    :param uuid: '' if it is the volume's id
    """

    slots: dict[str, bytes]
    tokens: dict = dataclasses.field(default_factory=dict)
    cipher: str = 'aes-xts-plain64'
    under_way: luks_header.Reencryption | None = None
    digest: str = 'of the data'
    uuid: str = ''
    integrity: str = ''
    key_bits: int = 512
    sector_size: int = 512
    data_offset: int = volume_types.HEADER_BYTES


#: Of a header as it is unless a test says otherwise.
PIN = pins.Pin('aes-xts-plain64', 512, 512, '', 16 << 20, SimHeader({}).digest)


def encrypt(world, volume, key=''):
    """A volume that is there is one that the driver has encrypted."""
    key = key or 'secret-' + volume.id
    world.secrets.kept[key] = names.secret(volume.id), b'key ' + key.encode()
    world.headers[volume.id] = SimHeader(
        {'0': world.secrets.kept[key][1]}, {'0': luks_header.Token(
            key, volume_types.KeyFormat.HEX, keyslots=('0',),
            number='0')})
    volume.provider_id = recorded(key)
    return key


def recorded(key):
    """What the row of such a volume says."""
    return str(volume_types.Recorded(
        volume_types.HEADER_BYTES, key, pin=PIN))


def authenticate(world, volume):
    """An encrypted volume that is there is an authenticated one."""
    header = world.headers[volume.id]
    header.cipher, header.key_bits, header.integrity = (
        'aes-gcm-random', 256, 'aead')
    pin_again(world, volume, moves_live=False)


def pin_again(world, volume, **more):
    """The row says what the header is by now, as an operation would."""
    recorded = volume.encryption
    assert recorded
    volume.provider_id = str(dataclasses.replace(
        recorded, pin=_as_header(world.headers[volume.id]).pin,
        becoming=None, **more))


def _as_header(found):
    slots = tuple(found.slots)
    integrity, more_bits = pinning._INTEGRITY[found.integrity or 'none']
    # Once all is encrypted anew, the data has the new key only.
    data = (found.under_way if found.under_way and found.under_way.complete
            else found)
    return luks_header.Header(
        data.cipher, data.key_bits + more_bits, found.sector_size,
        integrity, found.data_offset, True, slots,
        tuple(found.tokens.values()), reencryption=found.under_way,
        all_keyslots=_all_slots(found), all_tokens=tuple(found.tokens),
        digest=data.digest)


def _kill(found, slot):
    """Its key goes; the token that names it stays."""
    del found.slots[slot]
    for number, token in found.tokens.items():
        found.tokens[number] = dataclasses.replace(token, keyslots=tuple(
            each for each in token.keyslots if each != slot))


def _all_slots(found):
    """One more keeps what a re-encryption has between both."""
    slots = tuple(found.slots)
    return slots if found.under_way is None else (
        *slots, str(1 + max(map(int, slots), default=-1)))


class SimSecrets:
    """The key manager; one for all nodes."""

    def __init__(self):
        #: By reference: the name, what it is.
        self.kept = {}
        self.consumers = set()
        #: '', AWAY or REFUSES. Whether it was away, or did not answer.
        self.state = ''
        self.missed = False


class SimKeys(crypt_interfaces.Keys):
    """The key manager, as a node sees it."""

    def __init__(self, node):
        self.node = node
        self.world = node.world

    def _ask(self, key=None):
        secrets = self.world.secrets
        if secrets.state == AWAY:
            raise encryption_exceptions.KeyUnavailable(reason='away')
        if secrets.state == REFUSES or (
                key is not None and key not in secrets.kept):
            raise encryption_exceptions.KeyRefused(key=key, reason='no')
        return secrets

    def create(self, volume_id, key_format=volume_types.KeyFormat.HEX):
        secrets = self._ask()
        key = 'secret-%d' % next(self.world.clock)
        secrets.kept[key] = names.secret(volume_id), b'key of %s' % (
            key.encode())
        return key

    def get(self, key, key_format, volume_id='', or_shared=False):
        secrets = self._ask(key)
        name, secret = secrets.kept[key]
        if not or_shared or names.volume_of_secret(name) and (
                key, 'volumes', volume_id) not in secrets.consumers:
            self._check_name(key, volume_id)
        return secret

    def check_shared(self, key):
        if names.volume_of_secret(self._ask(key).kept[key][0]):
            raise encryption_exceptions.KeyRefused(key=key, reason='its name')

    def get_again(self, key, key_format, volume_id=''):
        return self.get(key, key_format, volume_id)

    def _check_name(self, key, volume_id):
        name, _secret = self._ask().kept.get(key, ('', b''))
        if volume_id and name != names.secret(volume_id):
            raise encryption_exceptions.KeyRefused(key=key, reason='its name')

    def remove(self, key, volume_id=''):
        secrets = self._ask()
        if key in secrets.kept:
            self._check_name(key, volume_id)
        if names.volume_of_secret(secrets.kept.get(key, ('', b''))[0]):
            self.world.insist(
                key not in self.node.node.secrets.secrets_in_use(
                    self.world.going),
                'a secret goes that is in use')
            if any(used == key for used, *_who in secrets.consumers):
                raise encryption_exceptions.KeyRefused(
                    key=key, reason='in use')
            del secrets.kept[key]

    def owner_of(self, key):
        name, _secret = self._ask().kept.get(key, ('', b''))
        return names.volume_of_secret(name)

    def find(self, volume_id):
        return [key for key, (name, _secret) in self._ask().kept.items()
                if name == names.secret(volume_id)]

    def of_volumes(self):
        return [(key, volume_id)
                for key, (name, _secret) in self._ask().kept.items()
                if (volume_id := names.volume_of_secret(name))]

    def consume(self, key, kind, resource_id):
        self._ask(key).consumers.add((key, kind, resource_id))

    def consumers(self, key):
        return sorted((kind, who) for used, kind, who in self._ask().consumers
                      if used == key)

    def release(self, key, kind, resource_id):
        self._ask().consumers.discard((key, kind, resource_id))

    def owners_key(self, context, key):
        return self._ask(key).kept[key][1]


class SimCrypt(crypt_interfaces.Crypt):
    """Headers and crypt devices of a simulated node."""

    def __init__(self, node):
        self.node = node
        self.world = node.world
        self._insist = node.world.insist

    def _header(self, volume_id):
        """:raises HeaderDamaged: if it can't be read here and now"""
        self._insist(names.handle(volume_id) in self.node.devices,
                     'no handle')
        found = self.world.headers.get(volume_id)
        try:
            self.node.read(volume_id, 0)
        except IOError as exc:
            raise encryption_exceptions.HeaderDamaged(path='p', reason=exc)
        if found is None or self.node.headers_unreadable:
            raise encryption_exceptions.HeaderDamaged(path='p', reason='none')
        return found

    def _insist_at_rest(self, volume_id, what):
        """Nobody else has it open, and it is all here."""
        row = self.world.volumes[volume_id]
        self._insist(
            # Whoever has asked for it may have given up by now, and its owner
            # may have deleted it.
            (self.world.home(row) is self.node or row.status in (
                *statuses.BEING_CREATED, 'error')
                or names.UNCOMMITTED in self.node.disk.tags.get(row.name, ()))
            and volume_id not in self.node.remote_handles()
            and not any(move.volume_id == volume_id and not move.is_over
                        for move in self.world.move_records.values()),
            '%s of a header that others may read', what)

    def header(self, volume_id, repair=False):
        if repair:
            self._insist_at_rest(volume_id, 'mending')
        elif names.handle(volume_id) not in self.node.devices:
            # Whoever only says how a volume is says that, too.
            raise exceptions.CommandFailed(
                command='cryptsetup', code=4, stderr='no such device')
        return _as_header(self._header(volume_id))

    def uuid(self, volume_id):
        return self._header(volume_id).uuid or volume_id

    def _own_header(self, volume_id):
        """The header, to be used: it was compared with the pin by now."""
        found = self._header(volume_id)
        self._insist(found.digest != FORGED, 'a forged header is used')
        return found

    def set_uuid(self, volume_id, uuid):
        self._insist_alone(volume_id, 'a UUID')
        self._header(volume_id).uuid = uuid

    def damaged_copies(self, volume_id):
        try:
            self._header(volume_id)
        except encryption_exceptions.HeaderDamaged:
            return ['damaged']
        return []

    def format(self, volume_id, wanted, key):
        """Of what is blank, and newly created by the same service."""
        self._insist_at_rest(volume_id, 'format')
        row = self.world.volumes[volume_id]
        self._insist(row.status == 'creating'
                     and self.world.headers.get(volume_id) is None,
                     'a format of what has a header')
        self._insist(set(self.node.lvs[row.name]) == {disks.EMPTY},
                     'a format of what has data')
        self._insist(wanted.words() and wanted.luks_uuid == volume_id,
                     'what it is made with')
        self.world.headers[volume_id] = SimHeader(
            {'0': key}, cipher=wanted.cipher,
            integrity=wanted.integrity.replace('none', ''),
            key_bits=wanted.key_bits, sector_size=wanted.sector_size,
            data_offset=wanted.offset)

    def format_luks1(self, volume_id, cipher, key_bits, key):
        """Of what is blank, and newly created by the same service."""
        self._insist_at_rest(volume_id, 'format')
        row = self.world.volumes[volume_id]
        self._insist(row.status in statuses.BEING_CREATED and set(
            self.node.lvs[row.name]) == {disks.EMPTY} and key,
            'a format of what may be more than blank')
        self.node.write(volume_id, 0, upper_devices.HEADER)

    def write_token(self, volume_id, number, token, replace=False):
        self._insist_at_rest(volume_id, 'a token')
        found = self._header(volume_id)
        self._insist((number in found.tokens) is replace, 'tokens')
        found.tokens[number] = luks_header.parse_token(
            number, json.loads(token))

    def remove_token(self, volume_id, number):
        self._insist_alone(volume_id, 'no token')
        self._insist(not self._header(volume_id).tokens[number].keyslots,
                     'a token goes that has slots')
        del self._header(volume_id).tokens[number]

    def add_key(self, volume_id, key, new_key, slot, derivation):
        self._insist_alone(volume_id, 'a slot')
        self.test(volume_id, key)
        found = self._own_header(volume_id).slots
        self._insist(slot not in found and new_key and derivation,
                     'a slot that there is already')
        found[slot] = new_key

    def kill_slot(self, volume_id, slot, key):
        """As privileged.secrets does, with the header as it is then."""
        self._insist_alone(volume_id, 'no slot')
        found = self._header(volume_id)
        others = {each for token in self.header(volume_id).tokens_with_role(
            luks_header.Role.VOLUME) for each in token.keyslots} - {slot}
        if not others:
            raise encryption_exceptions.LastKey(path='p', slot=slot)
        recovery = {each for token in self.header(volume_id).tokens_with_role(
            luks_header.Role.RECOVERY) for each in token.keyslots} - {slot}
        if key not in [found.slots[each] for each in others | recovery]:
            raise encryption_exceptions.WrongKey(path='p')
        _kill(found, slot)

    def _insist_alone(self, volume_id, what):
        """It is at rest, and nobody else has it open through here."""
        self._insist_at_rest(volume_id, what)
        self._insist(not any(
            volume_id in node.remote_handles()
            for node in self.world.nodes.values()) or not any(
                each == volume_id for each, _who in self.node.remote),
            '%s of a header that is passed through', what)

    def test(self, volume_id, key, slot=None):
        self._insist(key, 'no key')
        header = self._header(volume_id)
        found = header.slots
        # cryptsetup wants both keys until it is over.
        if (header.under_way and header.under_way.complete and len(found) < 2
                or key not in ([found.get(slot)] if slot
                               else found.values())):
            raise encryption_exceptions.WrongKey(path='p')

    def erase(self, volume_id):
        self._header(volume_id).slots.clear()

    def back_up(self, volume_id, what='1'):
        self.world.backups.setdefault(volume_id, []).append(what)
        self._copy(volume_id, what)

    def renew_backup(self, volume_id, header, key):
        """What is in the copy is compared, whoever writes the disk."""
        self._insist_alone(volume_id, 'a backup')
        self._insist(not header.reencryption, 'a backup')
        copied = copy.deepcopy(self._header(volume_id))
        if _as_header(copied) != header:
            raise encryption_exceptions.ForeignHeader(
                path='p', reason='changed')
        if key and key not in copied.slots.values():
            raise encryption_exceptions.WrongKey(path='p')
        self._insist(copied.digest != FORGED, 'a forged header is used')
        found = self.world.backups.setdefault(volume_id, [])
        what = str(1 + max(map(int, found), default=0))
        self._keep(volume_id, what, copied)
        found[:] = [what]

    def _copy(self, volume_id, what):
        self._keep(volume_id, what, copy.deepcopy(
            self._own_header(volume_id)))

    def _keep(self, volume_id, what, copied):
        self.world.copies[volume_id, names.header_backup(
            volume_id, what)] = copied

    def backup_names(self, volume_id):
        return [name for each, name in self.world.copies
                if each == volume_id and name[37:] in self.world.backups.get(
                    volume_id, ())]

    def backed_up(self, volume_id, name):
        return _as_header(self.world.copies[volume_id, name])

    def test_backup(self, volume_id, name, key, slot=None):
        found = self.world.copies[volume_id, name].slots
        if key not in ([found.get(slot)] if slot else found.values()):
            raise encryption_exceptions.WrongKey(path='p')

    def save(self, volume_id):
        self.world.saved.append((volume_id, self.world.headers[volume_id]))

    def restore(self, volume_id, name, drop):
        """It is written in two halves; the copy is changed in memory."""
        self._insist_alone(volume_id, 'a header')
        self._insist(names.crypt(volume_id) not in self.node.devices, 'open')
        self.world.headers[volume_id] = None
        self.world.tick(self.node, 'half of a header')
        written = copy.deepcopy(self.world.copies[volume_id, name])
        for slot in drop:
            _kill(written, slot)
        written.uuid = volume_id
        self.world.headers[volume_id] = written

    def backup_space(self):
        return self.world.backup_disk

    def keeps_backups(self):
        return True

    def backed_up_volumes(self):
        return sorted(self.world.backups)

    def drop_backups(self, volume_id):
        self.world.backups.pop(volume_id, None)

    def check_reencrypts(self, volume_id):
        if self.node.old_cryptsetup:
            raise encryption_exceptions.CannotReencrypt(
                volume=volume_id, reason='cryptsetup is too old')

    def begin_reencryption(self, volume_id, slot, wanted, key):
        self._insist_at_rest(volume_id, 're-encryption')
        self._insist(names.crypt(volume_id) in self.node.devices, 'closed')
        self.test(volume_id, key, slot)
        reencryption.begin(self._own_header(volume_id), slot, wanted)

    def end_reencryption(self, volume_id, key):
        self._insist_alone(volume_id, 'an end')
        self._insist(volume_id not in self.node.reencrypting, 'it runs')
        found = self._header(volume_id)
        self._insist(found.under_way.complete, 'the end of what is not')
        if key not in found.slots.values():
            raise encryption_exceptions.WrongKey(path='p')
        reencryption.end(self.node, volume_id)

    def test_ended(self, volume_id, key):
        self._insist(self._header(volume_id).under_way.complete,
                     'the end of what is not')
        if key not in self._header(volume_id).slots.values():
            raise encryption_exceptions.WrongKey(path='p')

    def open(self, volume_id, key, keep_header=False, discards=False,
             readonly=False):
        under_way = self._own_header(volume_id).under_way
        if not keep_header:
            self._insist_at_rest(volume_id, 'opening, and mending,')
        elif under_way:
            self._insist(not under_way.interrupted,
                         'opening writes to it, whatever was asked for')
        if under_way:
            reencryption.recover(self._header(volume_id))
        self.test(volume_id, key)
        name = names.crypt(volume_id)
        self._insist(name not in self.node.devices, 'it is open')
        self.node.insist_unclaimed(volume_id)
        if self._header(volume_id).integrity:
            self._open_authenticated(volume_id, readonly or discards)
            return
        handle, header = (self.node.devices[names.handle(volume_id)],
                          self._header(volume_id))
        how = header.cipher, header.key_bits // 8, header.sector_size
        self.node.devices[name] = disks.sized(
            {'below': names.handle(volume_id),
             **({} if how == stack.HOW else {'how': how})},
            disks.size(handle) - volume_types.HEADER_BYTES)

    def opened(self, volume_id):
        name = names.crypt(volume_id)
        return self.node.node.handles.devices([name]).get(name)

    def _open_authenticated(self, volume_id, otherwise):
        """Two devices; to open it writes to it, so nobody else may have it."""
        self._insist(not otherwise, 'this way it can\'t be opened')
        name = names.integrity(volume_id)
        self._insist(name not in self.node.devices, 'half of it is there')
        self._insist(not any(
            each in node.devices for node in self.world.nodes.values()
            for each in (name, names.crypt(volume_id))),
            'two nodes have an authenticated volume open')
        self._insist(volume_id not in self.node.remote_handles(),
                     'an authenticated volume is passed through')
        self.node.devices[name] = {'below': names.handle(volume_id)}
        self.world.tick(self.node, 'half open')
        handle = self.node.devices[names.handle(volume_id)]
        row = self.world.volumes[volume_id]
        self.node.devices[names.crypt(volume_id)] = disks.sized(
            {'below': name}, min(row.size * disks.GIB, disks.size(handle)))

    def remove_stray_integrity(self, volume_id):
        if names.crypt(volume_id) not in self.node.devices:
            self.node.devices.pop(names.integrity(volume_id), None)

    def size(self, volume_id):
        return disks.size(self.node.devices[names.crypt(volume_id)])

    def seal(self, volume_id, recorded, key):
        if self.node.disk.sealed is not None:
            self.node.disk.sealed[volume_id] = recorded, key

    def open_sealed(self, volume_id, recorded, *how):
        self.open(volume_id, self._kept(volume_id, recorded), *how)

    def end_reencryption_sealed(self, volume_id, recorded):
        self.end_reencryption(volume_id, self._kept(volume_id, recorded))

    def resize_sealed(self, volume_id, recorded):
        self.resize(volume_id, self._kept(volume_id, recorded))

    def _kept(self, volume_id, recorded):
        of, key = (self.node.disk.sealed or {}).get(volume_id, ('', b''))
        if of != recorded:
            raise encryption_exceptions.NotSealed(path='p', reason='none')
        return key

    def forget_sealed(self, volume_id):
        (self.node.disk.sealed or {}).pop(volume_id, None)

    def sealed_volumes(self):
        return set(self.node.disk.sealed or ())

    def close(self, volume_id):
        name = names.crypt(volume_id)
        if name in self.node.opened:
            raise exceptions.CommandFailed(
                command='cryptsetup', code=5, stderr='in use')
        self.node.devices.pop(names.integrity(volume_id), None)
        return self.node.devices.pop(name, None) is not None

    def resize(self, volume_id, key):
        self.test(volume_id, key)
        handle = self.node.devices[names.handle(volume_id)]
        before = self.node.devices[names.crypt(volume_id)]
        self.node.devices[names.crypt(volume_id)] = disks.sized(
            {key: before[key] for key in ('below', 'how') if key in before},
            disks.size(handle) - volume_types.HEADER_BYTES)

    def zero(self, lv, volume_id, slow=False):
        self._insist(names.FRESH in self.node.disk.tags[lv],
                     'zeros over what somebody has written')
        self._insist(names.crypt(volume_id) in self.node.devices, 'closed')
        self.node.lvs[lv][:] = ['encrypted zeros'] * len(self.node.lvs[lv])

    def note(self, lv, outdated=(), **facts):
        self.node.disk.tags[lv] -= set(outdated)
        self.node.disk.tags[lv] |= set(names.tags(**facts))

    def remotes(self, lvs=None):
        """As old as the listing, if one is given: the group seems the same."""
        return dict(getattr(lvs, 'noted', self.node.disk.remotes))

    def note_remote(self, volume_id, luks, key):
        self.node.disk.remotes[volume_id] = luks, key

    def forget_remote(self, volume_id):
        self.node.disk.remotes.pop(volume_id, None)

    def note_directories(self):
        return self.node.former_directories

    def former_directories(self):
        return self.node.former_directories
