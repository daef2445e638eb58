# SPDX-License-Identifier: Apache-2.0
"""One contract of headers, for the simulated node and the real one.

As :mod:`.storage`: what cryptsetup does with the header of a volume, and what
decrypts the volume, through the driver's privileged daemon.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import typing

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core import volume_types
from tests.contracts import storage
from tests.contracts.storage import GIB
from tests.contracts.storage import refused
from tests.contracts.storage import same

HEADER = volume_types.HEADER_BYTES
KEY, OTHER_KEY, NO_KEY = (bytes([each]) * 64 for each in b'kon')
CIPHER = 'aes-xts-plain64'


class Bench(storage.Bench, typing.Protocol):
    """A node that keeps backups of headers.

    :ivar crypt: the driver's cryptsetup
    """

    crypt: typing.Any


#: All of them, by name.
SCENARIOS: dict[str, Callable[[Bench], None]] = {}


def scenario(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
    SCENARIOS[function.__name__] = function
    return function


def blank(bench: Bench) -> str:
    """Make a volume with a handle, and nothing on it; its id."""
    volume = bench.volume(encrypted=True)
    lv = storage.lv_of(volume)
    with bench.locked(volume):
        same(True, bench.lvm.create_lv(
            lv, GIB + HEADER, volume, extra_bytes=HEADER))
    same(True, bench.handles.ensure_handle_on_lv(volume, lv, GIB + HEADER))
    return volume


def new_header(volume: str) -> cryptsetup_cli.NewHeader:
    return cryptsetup_cli.NewHeader(volume, HEADER, CIPHER, 512, 512, 'none',
                                    cryptsetup_cli.RANDOM_KEY.value)


@contextlib.contextmanager
def encrypted(bench: Bench) -> Iterator[str]:
    """A volume with a header that a key opens, and a token of that."""
    volume = blank(bench)
    bench.crypt.format(volume, new_header(volume), KEY)
    bench.crypt.write_token(volume, '0', token('first', '0'))
    yield volume
    bench.crypt.close(volume)
    bench.crypt.drop_backups(volume)


def token(key: str, *slots: str) -> str:
    return str(luks_header.Token(key, volume_types.KeyFormat.HEX,
                                 keyslots=slots))


def keys_of(header: luks_header.Header) -> dict[str, tuple[str, ...]]:
    """Which slots each secret opens, by the tokens of a header."""
    return {each.key: each.keyslots for each in header.tokens}


def add(bench: Bench, volume: str) -> None:
    """Have a second key open a volume, as a rotation does."""
    bench.crypt.add_key(volume, KEY, OTHER_KEY, '1', cryptsetup_cli.RANDOM_KEY)
    bench.crypt.write_token(volume, '1', token('second', '1'))


# -- what it says

@scenario
def header_says_how_it_was_made(bench: Bench) -> None:
    with encrypted(bench) as volume:
        found = bench.crypt.header(volume)
        same((CIPHER, 512, 512, '', HEADER, True), (
            found.cipher, found.key_bits, found.sector_size,
            found.integrity, found.data_offset, found.grows))
        same((('0',), ('0',), None, ''), (
            found.keyslots, found.all_keyslots, found.reencryption,
            found.odd))
        same({'first': ('0',)}, keys_of(found))
        same(volume, bench.crypt.uuid(volume))
        same([], list(bench.crypt.damaged_copies(volume)))
        same(True, bool(found.digest))
        same(found, bench.crypt.header(volume, repair=True))
        # Nothing of this has it open.
        same(None, bench.crypt.opened(volume))


@scenario
def header_of_each_volume_is_another(bench: Bench) -> None:
    with encrypted(bench) as volume:
        other = '00000000-0000-4000-8000-000000000001'
        bench.crypt.set_uuid(volume, other)
        same(other, bench.crypt.uuid(volume))
        bench.crypt.test(volume, KEY)
        bench.crypt.set_uuid(volume, volume)
        same(volume, bench.crypt.uuid(volume))


@scenario
def no_header(bench: Bench) -> None:
    volume = blank(bench)
    for act in (bench.crypt.header,
                lambda volume: bench.crypt.test(volume, KEY),
                lambda volume: bench.crypt.open(volume, KEY)):
        with refused(encryption_exceptions.HeaderDamaged):
            act(volume)
    same(True, bool(bench.crypt.damaged_copies(volume)))
    same(None, bench.crypt.opened(volume))
    same(False, bench.crypt.close(volume))


@scenario
def header_is_made_of_what_is_blank(bench: Bench) -> None:
    with encrypted(bench) as volume:
        before = bench.crypt.header(volume)
        with bench.impossible():
            bench.crypt.format(volume, new_header(volume), OTHER_KEY)
        same(before, bench.crypt.header(volume))
        bench.crypt.test(volume, KEY)


# -- keys

@scenario
def key_opens_its_slot(bench: Bench) -> None:
    with encrypted(bench) as volume:
        same(None, bench.crypt.test(volume, KEY))
        same(None, bench.crypt.test(volume, KEY, '0'))
        with refused(encryption_exceptions.WrongKey):
            bench.crypt.test(volume, NO_KEY)
        add(bench, volume)
        for key, slot in ((KEY, '0'), (OTHER_KEY, '1')):
            same(None, bench.crypt.test(volume, key))
            same(None, bench.crypt.test(volume, key, slot))
        for key, slot in ((KEY, '1'), (OTHER_KEY, '0')):
            with refused(encryption_exceptions.WrongKey):
                bench.crypt.test(volume, key, slot)


@scenario
def key_takes_the_place_of_another(bench: Bench) -> None:
    with encrypted(bench) as volume:
        before = bench.crypt.header(volume)
        with refused(encryption_exceptions.WrongKey):
            bench.crypt.add_key(volume, NO_KEY, OTHER_KEY, '1',
                                cryptsetup_cli.RANDOM_KEY)
        same(before, bench.crypt.header(volume))
        add(bench, volume)
        same({'first': ('0',), 'second': ('1',)},
             keys_of(bench.crypt.header(volume)))
        # Only who has another slot's key may drop one.
        with refused(encryption_exceptions.WrongKey):
            bench.crypt.kill_slot(volume, '0', KEY)
        same(('0', '1'), bench.crypt.header(volume).keyslots)
        same(None, bench.crypt.kill_slot(volume, '0', OTHER_KEY))
        found = bench.crypt.header(volume)
        same((('1',), {'first': (), 'second': ('1',)}), (
            found.keyslots, keys_of(found)))
        bench.crypt.remove_token(volume, '0')
        same({'second': ('1',)}, keys_of(bench.crypt.header(volume)))
        same(before.digest, bench.crypt.header(volume).digest)
        with refused(encryption_exceptions.WrongKey):
            bench.crypt.test(volume, KEY)
        with refused(encryption_exceptions.LastKey):
            bench.crypt.kill_slot(volume, '1', OTHER_KEY)
        same(None, bench.crypt.test(volume, OTHER_KEY))


@scenario
def token_is_replaced(bench: Bench) -> None:
    with encrypted(bench) as volume:
        with bench.impossible():
            bench.crypt.write_token(volume, '0', token('third', '0'))
        same({'first': ('0',)}, keys_of(bench.crypt.header(volume)))
        bench.crypt.write_token(volume, '0', token('third', '0'),
                                replace=True)
        same({'third': ('0',)}, keys_of(bench.crypt.header(volume)))


@scenario
def erased(bench: Bench) -> None:
    with encrypted(bench) as volume:
        add(bench, volume)
        bench.crypt.erase(volume)
        for key in (KEY, OTHER_KEY):
            with refused(encryption_exceptions.WrongKey):
                bench.crypt.test(volume, key)
        same((), bench.crypt.header(volume).all_keyslots)


# -- what decrypts it

@scenario
def opened_with_its_key(bench: Bench) -> None:
    with encrypted(bench) as volume:
        device = names.crypt(volume)
        with refused(encryption_exceptions.WrongKey):
            bench.crypt.open(volume, NO_KEY)
        same(None, bench.crypt.opened(volume))
        same(None, bench.crypt.open(volume, KEY))
        found = bench.crypt.opened(volume)
        same((0, False, 'crypt', GIB), (
            found.opened, found.suspended, found.target,
            found.sectors * state.SECTOR))
        same(GIB, bench.crypt.size(volume))
        bench.write(device, 1, 'data')
        with bench.opened(device):
            same(1, bench.crypt.opened(volume).opened)
            with refused(exceptions.CommandFailed):
                bench.crypt.close(volume)
        # Another key of the volume opens the same data.
        add(bench, volume)
        for key, how in ((OTHER_KEY, {}), (KEY, {'keep_header': True})):
            same(True, bench.crypt.close(volume))
            same(False, bench.crypt.close(volume))
            same(None, bench.crypt.open(volume, key, **how))
            same('data', bench.read(device, 1))


@scenario
def opened_keeps_its_handle(bench: Bench) -> None:
    with encrypted(bench) as volume:
        bench.crypt.open(volume, KEY)
        same(1, bench.handles.devices()[names.handle(volume)].opened)
        same(True, bench.crypt.close(volume))
        same(True, bench.handles.remove_handle(volume))
        same(False, bench.crypt.close(volume))


@scenario
def opened_is_extended(bench: Bench) -> None:
    with encrypted(bench) as volume:
        lv, more = storage.lv_of(volume), 2 * GIB + HEADER
        bench.crypt.open(volume, KEY)
        bench.write(names.crypt(volume), 1, 'data')
        same(True, bench.lvm.extend_lv(lv, more))
        same(0, bench.lvm.zero_part(lv))
        bench.lvm.show_lv(lv, more)
        same(True, bench.handles.ensure_handle_on_lv(volume, lv, more))
        same(GIB, bench.crypt.size(volume))
        with refused(encryption_exceptions.WrongKey):
            bench.crypt.resize(volume, NO_KEY)
        same(GIB, bench.crypt.size(volume))
        same(None, bench.crypt.resize(volume, KEY))
        same(2 * GIB, bench.crypt.size(volume))
        bench.write(names.crypt(volume), 6, 'end')
        same(['data', 'end'], [
            bench.read(names.crypt(volume), each) for each in (1, 6)])


# -- backups

@scenario
def backup_is_restored(bench: Bench) -> None:
    with encrypted(bench) as volume:
        same([], list(bench.crypt.backup_names(volume)))
        bench.crypt.back_up(volume)
        kept, = bench.crypt.backup_names(volume)
        same(names.header_backup(volume, '1'), kept)
        same(True, volume in bench.crypt.backed_up_volumes())
        same(bench.crypt.header(volume),
             bench.crypt.backed_up(volume, kept))
        same(None, bench.crypt.test_backup(volume, kept, KEY))
        with refused(encryption_exceptions.WrongKey):
            bench.crypt.test_backup(volume, kept, OTHER_KEY)
        bench.crypt.erase(volume)
        bench.crypt.restore(volume, kept, ())
        same(volume, bench.crypt.uuid(volume))
        same(None, bench.crypt.test(volume, KEY))
        same([], list(bench.crypt.damaged_copies(volume)))
        same(bench.crypt.backed_up(volume, kept),
             bench.crypt.header(volume))


@scenario
def backup_is_restored_without_a_key(bench: Bench) -> None:
    """And without the UUID of another, whatever the backup has."""
    with encrypted(bench) as volume:
        add(bench, volume)
        before = bench.crypt.header(volume)
        bench.crypt.set_uuid(volume, '00000000-0000-4000-8000-000000000001')
        bench.crypt.back_up(volume)
        kept, = bench.crypt.backup_names(volume)
        same(None, bench.crypt.test_backup(volume, kept, OTHER_KEY, '1'))
        with refused(encryption_exceptions.WrongKey):
            bench.crypt.test_backup(volume, kept, OTHER_KEY, '0')
        bench.crypt.erase(volume)
        bench.crypt.restore(volume, kept, ('1',))
        same(volume, bench.crypt.uuid(volume))
        same(None, bench.crypt.test(volume, KEY))
        with refused(encryption_exceptions.WrongKey):
            bench.crypt.test(volume, OTHER_KEY)
        found = bench.crypt.header(volume)
        same((('0',), {'first': ('0',), 'second': ()}, before.digest), (
            found.all_keyslots, keys_of(found), found.digest))
        same(('0', '1'), bench.crypt.backed_up(volume, kept).all_keyslots)
        same([], list(bench.crypt.damaged_copies(volume)))


@scenario
def backup_is_renewed(bench: Bench) -> None:
    with encrypted(bench) as volume:
        bench.crypt.back_up(volume)
        add(bench, volume)
        header = bench.crypt.header(volume)
        for said, key, error in (
                (header, NO_KEY, encryption_exceptions.WrongKey),
                (dataclasses.replace(header, digest='x'), OTHER_KEY,
                 encryption_exceptions.ForeignHeader)):
            with refused(error):
                bench.crypt.renew_backup(volume, said, key)
            same([names.header_backup(volume, '1')], list(
                bench.crypt.backup_names(volume)))
        bench.crypt.renew_backup(volume, header, OTHER_KEY)
        kept, = bench.crypt.backup_names(volume)
        same(bench.crypt.header(volume), bench.crypt.backed_up(volume, kept))
        same(None, bench.crypt.test_backup(volume, kept, OTHER_KEY))
        bench.crypt.drop_backups(volume)
        same([], list(bench.crypt.backup_names(volume)))
        same(False, volume in bench.crypt.backed_up_volumes())


# -- encrypted anew

@scenario
def reencryption_begins(bench: Bench) -> None:
    with encrypted(bench) as volume:
        bench.crypt.check_reencrypts(volume)
        before = bench.crypt.header(volume)
        bench.crypt.open(volume, KEY)
        bench.write(names.crypt(volume), 1, 'data')
        bench.crypt.begin_reencryption(
            volume, '0',
            cryptsetup_cli.Reencryption('serpent-xts-plain64', 512, 'checksum',
                                        cryptsetup_cli.RANDOM_KEY.value), KEY)
        found = bench.crypt.header(volume)
        same(('serpent-xts-plain64', 512, 0, 'checksum', False, False), (
            found.reencryption.cipher, found.reencryption.key_bits,
            found.reencryption.done, found.reencryption.resilience,
            found.reencryption.interrupted, found.reencryption.complete))
        # What is pinned stays until it has ended.
        same(before.pin, found.pin)
        same('serpent-xts-plain64', found.becoming.cipher)
        same(False, found.becoming.digest == before.digest)
        # One more keeps what is between both.
        same((('0', '1'), ('0', '1', '2')), (
            found.keyslots, found.all_keyslots))
        same({'first': ('0', '1')}, keys_of(found))
        same(None, bench.crypt.test(volume, KEY))
        same('data', bench.read(names.crypt(volume), 1))
        same(True, bench.crypt.close(volume))
        same(None, bench.crypt.open(volume, KEY))
        same('data', bench.read(names.crypt(volume), 1))
