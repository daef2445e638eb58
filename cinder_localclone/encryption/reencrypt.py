# SPDX-License-Identifier: Apache-2.0
"""Re-encryption of a volume in use.

A process on the volume's home reads the whole volume and writes it encrypted
with a new key. The process continues while this service restarts
(:mod:`.cryptsetup`). Only the header records the progress, so the process
continues after a power cut, and on another home. It runs while the volume is
at rest. Each other operation pauses it first (:mod:`.devices`), and the sweep
of the node resumes it.

A tag on the LV is set before the re-encryption begins, and removed after its
last step. A second tag, valid on this node only, means that an operator has
paused it. A volume that moves continues on its new home.

The plan of a change has no effects. An impossible request is refused before
the first write.
"""

from collections.abc import Iterable
import contextlib
import dataclasses
import enum
import functools
import typing

from oslo_log import log as logging
from oslo_utils import units

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import pinning
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import rotate

LOG = logging.getLogger(__name__)

#: The resilience mode of cryptsetup. A journal writes all data twice.
RESILIENCE = 'checksum'


class Status(str, enum.Enum):
    """The status of a re-encryption."""

    #: It has not begun, or has ended.
    NONE = 'none'
    RUNNING = 'running'
    #: An operator has paused it.
    PAUSED = 'paused'
    #: It continues by itself when the volume is at rest.
    WAITING = 'waiting'
    #: It was killed; opening the volume recovers it.
    INTERRUPTED = 'interrupted'


@dataclasses.dataclass(frozen=True)
class State:
    """The progress of a re-encryption.

    :param done: bytes that are permanently re-encrypted
    :param total: bytes of the volume
    :param cipher: the new cipher; the volume's cipher without a re-encryption
    :param key_bits: bits of the key of this cipher
    :param rate: bytes a second of the running process; 0 if unknown
    """

    status: Status
    done: int
    total: int
    cipher: str
    key_bits: int
    rate: int = 0

    @property
    def seconds_left(self) -> float | None:
        """The time left in seconds; None if the rate is unknown."""
        return (self.total - self.done) / self.rate if self.rate else None


def judge(under_way: bool, interrupted: bool, running: bool,
          by_operator: bool) -> Status:
    """Return the status by the header, the process and the tag. Pure."""
    if running:
        return Status.RUNNING
    if interrupted:
        return Status.INTERRUPTED
    if not under_way:
        return Status.NONE
    return Status.PAUSED if by_operator else Status.WAITING


def state(node: Node, volume: Volume) -> State:
    """Return the progress of a re-encryption on this node, the home.

    :raises HeaderDamaged: if the header can't be read
    :raises LocalCloneError: if the volume has no handle
    """
    volume_id, recorded = volume.handle_id, _recorded(volume)
    running = node.runner.is_running(volume_id)
    header = node.crypt.header(volume_id)
    lv = node.lvm.lvs().get(volume.name)
    total = volume.backing_bytes() - recorded.header_bytes
    status = judge(bool(header.reencryption), not running
                   and devices.is_interrupted(node, volume_id, header),
                   running, bool(lv and names.PAUSED in lv.tags))
    found = header.reencryption
    if found is None:
        return State(status, 0, total, header.cipher, header.key_bits)
    said = node.runner.progress(volume_id) if running else None
    return State(status, total if found.complete else found.done, total,
                 found.cipher, found.key_bits,
                 said.rate if said else 0)


def _recorded(volume: Volume) -> volume_types.Recorded:
    found = volume.encryption
    if found is None:
        raise encryption_exceptions.CannotReencrypt(
            volume=volume.id, reason='this driver does not encrypt it')
    return found


def _at_rest(node: Node, volume: Volume) -> bool:
    """Return whether only a guest on this node uses the volume."""
    volume_id = volume.handle_id
    return bool(
        volume.home == node.host
        and volume.status in statuses.ONLY_A_GUEST
        and not volume.visible_id
        and node.moves.move_of(volume.id) is None
        and not node.handles.survey().metadata(volume.name_id)
        and all(node.is_at(each.connector, node.host)
                for each in volume.volume_attachment if each.connector)
        and not node.exports.remote().get(volume_id))


def _volume(node: Node, volume_id: str) -> Volume:
    """Return a volume that can be re-encrypted now; ensure its handle.

    :raises StaleMove: if this node is not the volume's home
    :raises NotAtRest: if another operation uses the volume
    :raises CannotReencrypt: if the volume can never be re-encrypted
    """
    volume = nodes.volume_at_home(node, volume_id)
    if _recorded(volume).authenticated:
        raise encryption_exceptions.CannotReencrypt(
            volume=volume_id, reason='cryptsetup can\'t re-encrypt '
            'authenticated volumes')
    if not _at_rest(node, volume):
        raise encryption_exceptions.NotAtRest(volume=volume_id)
    node.handles.ensure_handle_on_lv(volume_id, volume.name,
                                     volume.backing_bytes())
    return volume


@dataclasses.dataclass(frozen=True)
class Wish:
    """The parameters of a requested re-encryption.

    :param cipher: the new cipher; '' for the current cipher
    :param key_bits: bits of the new key; 0 for the current number, or the most
        of a new cipher
    :param resilience: the resilience mode of cryptsetup; '' for checksums
    :param drops_keys: whether other keys, such as recovery keys, may be lost
    :param zone: MiB that are re-encrypted at a time on this node; 0 for the
        default, or for the value of an earlier request
    """

    cipher: str = ''
    key_bits: int = 0
    resilience: str = ''
    drops_keys: bool = False
    zone: int = 0


def start(node: Node, volume_id: str, wish: Wish) -> State:
    """Re-encrypt a volume, also under a running guest.

    All checks precede the first write. A matching re-encryption that has begun
    is resumed.

    :raises NotAtRest: if another operation uses the volume
    :raises OtherKeys: if the volume has keys that would be lost
    :raises NoSpaceToReencrypt: if the thin pool has less free space than
        needed
    :raises CannotReencrypt: if the volume is authenticated, its key is being
        rotated, the cipher is unknown, cryptsetup is too old, or the end of
        the service would kill the process
    :raises KeyUnavailable: if the key manager does not answer
    """
    with node.lock(volume_id):
        volume = _volume(node, volume_id)
        check_zone(volume_id, wish.zone)
        header = node.crypt.header(volume_id, repair=True)
        pinning.check(volume.id, header,
                      pinning.recorded_in_row(_recorded(volume)))
        if header.reencryption:
            check_same(volume.id, header.reencryption, wish)
            _take_off(node, volume, names.PAUSED)
        else:
            problem = node.runner.obstacle()
            if problem:
                raise encryption_exceptions.CannotReencrypt(
                    volume=volume.id, reason=problem)
            volume = _begin(node, volume, header, wish)
        if wish.zone:
            _forget_zone(node, volume)
            node.lvm.mark(volume.name, names.zone_tag(wish.zone))
        _go_on(node, volume)
        return state(node, volume)


def _begin(node: Node, volume: Volume, header: luks_header.Header,
           wish: Wish) -> Volume:
    cipher, key_bits = new_cipher(volume.id, header, wish)
    node.crypt.check_reencrypts(volume.id)
    token, slot = own_slot(volume.id, header, wish.drops_keys)
    if token.key != _recorded(volume).key:
        raise encryption_exceptions.CannotReencrypt(
            volume=volume.id, reason='its header has no key slot of its '
            'recorded secret')
    key = node.keys.get(token.key, token.key_format)
    node.crypt.test(volume.id, key, slot)
    _ensure_open(node, volume)
    with node.allocation_lock():
        _check_space(node, volume)
        node.lvm.mark(volume.name, names.REENCRYPTED)
    _take_off(node, volume, names.PAUSED)
    # The row has both pins until the end is recorded.
    before = pinning.after_reencryption(_recorded(volume), header)
    recorded = dataclasses.replace(before, becoming=dataclasses.replace(
        header.pin, cipher=cipher, key_bits=key_bits, digest=''))
    volume = _record(node, volume, recorded)
    weak = token.shared and (
        token.key_format is volume_types.KeyFormat.PASSPHRASE)
    node.crypt.begin_reencryption(volume.id, slot, cryptsetup_cli.Reencryption(
        cipher, key_bits, wish.resilience or RESILIENCE,
        cryptsetup_cli.PASSPHRASE if weak else cryptsetup_cli.RANDOM_KEY), key)
    events.say(events.REENCRYPTION_BEGINS, volume=volume.id, cipher=cipher,
               bits=key_bits)
    return volume


def _record(node: Node, volume: Volume,
            recorded: volume_types.Recorded) -> Volume:
    """Change the row of a volume, and return the new row."""
    before = volume.encryption
    if recorded == before:
        return volume
    node.secrets.record(volume.id, recorded, before)
    return nodes.volume_at_home(node, volume.id)


def _pin_new_key(node: Node, volume: Volume) -> Volume:
    """Pin the new data key of a begun re-encryption in the row.

    Until now only the header has its digest. The volume's secret opens a slot
    of the new key, so the slot was made with knowledge of the secret.

    :raises LocalCloneError: as for :func:`.activate.key_of`
    """
    recorded = _recorded(volume)
    expected, header = pinning.recorded_in_row(recorded), node.crypt.header(
        volume.id)
    pinning.check(volume.id, header, expected)
    if not pinning.is_begun(header, expected):
        return volume
    activate.key_of(node.crypt, node.keys, volume.id, header, expected)
    return _record(node, volume, dataclasses.replace(
        recorded, becoming=header.becoming))


def _check_space(node: Node, volume: Volume) -> None:
    """Check the free space for a complete rewrite of the volume."""
    lvs = node.lvm.lvs()
    lv = lvs[volume.name]
    if not lv.thin:
        return
    shared = bool(lv.origin) or any(
        each.origin == lv.name for each in lvs.values())
    needed = lv.size - (0 if shared else lv.allocated)
    free = node.lvm.free_space(lvs).volumes
    if free < needed:
        raise encryption_exceptions.NoSpaceToReencrypt(
            volume=volume.id, host=node.host, needed=needed // units.Mi,
            free=max(0, free) >> 20)


def pause(node: Node, volume_id: str) -> State:
    """Pause a re-encryption on this node until an operator resumes it.

    :raises StaleMove: if this node is not the volume's home
    :raises StillReencrypting: if the process does not stop in time; it will
        stop later
    """
    with node.lock(volume_id):
        volume = nodes.volume_at_home(node, volume_id)
        _recorded(volume)
        if node.crypt.header(volume_id).reencryption:
            node.lvm.mark(volume.name, names.PAUSED)
        devices.stop_reencryption(node, volume_id)
        return state(node, volume)


def resume(node: Node, volume_id: str) -> State:
    """Resume a re-encryption that an operator has paused.

    :raises NotAtRest: if another operation uses the volume
    :raises Interrupted: if the re-encryption was killed, and a guest has the
        volume open
    """
    with node.lock(volume_id):
        volume = _volume(node, volume_id)
        _take_off(node, volume, names.PAUSED)
        if node.crypt.header(volume_id).reencryption:
            _go_on(node, volume)
        return state(node, volume)


def _take_off(node: Node, volume: Volume, tag: str) -> None:
    lv = node.lvm.lvs().get(volume.name)
    if lv and tag in lv.tags:
        node.lvm.unmark(lv.name, tag)


def _forget_zone(node: Node, volume: Volume) -> None:
    lv = node.lvm.lvs().get(volume.name)
    value = names.facts(lv.tags).get(names.ZONE) if lv else None
    if value is not None:
        _take_off(node, volume, names.zone_tag(value))


def _ensure_open(node: Node, volume: Volume) -> None:
    """Open a volume without noting it for the boot service."""
    if not node.handles.survey().crypt(volume.id):
        activate.open_volume(
            node.crypt, node.keys, volume.id,
            pinning.recorded_in_row(_recorded(volume)),
            discards=devices.takes_discards(node, volume))


def _reserve_space(node: Node, volume: Volume) -> None:
    """Reserve space for an LV that is rewritten for the first time.

    A clone or a reverted volume in the middle of a re-encryption shares the
    blocks of its image until all blocks are rewritten.

    :raises NoSpaceToReencrypt: if free space is missing; the next sweep tries
        again
    """
    with node.allocation_lock():
        lv = node.lvm.lvs().get(volume.name)
        if lv and names.REENCRYPTED not in lv.tags:
            _check_space(node, volume)
            node.lvm.mark(lv.name, names.REENCRYPTED)


def _go_on(node: Node, volume: Volume) -> None:
    """Run a begun re-encryption; the caller holds the volume's lock."""
    if node.runner.is_running(volume.id):
        return
    header = node.crypt.header(volume.id)
    if devices.is_interrupted(node, volume.id, header):
        devices.recover(node, volume)
        header = node.crypt.header(volume.id)
    if not header.reencryption:
        return  # complete, perhaps just now; the next sweep does the rest
    node.crypt.check_reencrypts(volume.id)  # this may be a new home
    # The pin first: without free space the row would still accept any key.
    volume = _pin_new_key(node, volume)
    _reserve_space(node, volume)
    _ensure_open(node, volume)
    lv = node.lvm.lvs().get(volume.name)
    if lv:
        boot_notes.note_key(node, lv, volume.id, _recorded(volume).key)
    node.runner.start(volume.id)
    events.say(events.REENCRYPTION_GOES_ON, volume=volume.id)


class Sweep:
    """Resumes re-encryptions, and completes ended ones."""

    def __init__(self, node: Node) -> None:
        self._node = node
        #: Volumes, with their LVs, without a re-encryption in their headers.
        self._clean: set[tuple[str, str]] = set()

    def sweep(self, volumes: Iterable[Volume], present: survey.Survey) -> None:
        """Resume or complete re-encryptions; an error stops one volume only.

        :param volumes: the volumes of this node
        :param present: the survey of this node
        """
        for volume in volumes:
            tell = functools.partial(
                events.failed, events.REENCRYPTION_STOPPED, volume=volume.id)
            try:
                concerned = self._may_concern(volume, present)
            except Exception as exc:  # also a missing command
                tell(exc)
                continue
            if concerned:
                nodes.attempt(self._node, volume.id, functools.partial(
                    self._sweep_one, volume.id), tell)

    def _may_concern(self, volume: Volume, present: survey.Survey) -> bool:
        """Return whether the header must be read. Most headers are skipped."""
        lv = present.lvs.get(volume.name)
        return bool(
            lv and volume.encryption
            and volume.status in statuses.ONLY_A_GUEST
            and present.handle(volume.id)
            and (names.REENCRYPTED in lv.tags
                 or (volume.id, volume.name) not in self._clean))

    def _sweep_one(self, volume_id: str) -> None:
        node = self._node
        volume = node.volumes.volume(volume_id)
        if volume is None or not _at_rest(node, volume):
            return
        lv = node.lvm.lvs().get(volume.name)
        header = node.crypt.header(volume_id)
        if lv is None or node.runner.is_running(volume_id):
            return
        if header.reencryption is None:
            if names.REENCRYPTED in lv.tags or _recorded(volume).becoming:
                if devices.is_interrupted(node, volume_id, header):
                    # cryptsetup's devices remain
                    devices.recover(node, volume)
                _end(node, volume)
            if _has_own_key(node, volume_id):
                self._clean.add((volume.id, volume.name))
        elif activate.lacks_only_last_step(header):
            # only the last step is missing, so a pause has no effect
            devices.recover(node, volume)
        elif names.PAUSED not in lv.tags:
            _go_on(node, volume)


def _has_own_key(node: Node, volume_id: str) -> bool:
    """Give a clone its own key after an inherited re-encryption.

    :returns: whether the clone has its own key; if not, the next sweep tries
        again
    """
    volume = node.volumes.volume(volume_id)
    try:
        if volume and _recorded(volume).shares_key:
            rotate.give_own_key_late(node, volume_id)
    except (exceptions.LocalCloneError, OSError) as exc:
        LOG.warning('Volume %(volume)s still shares the secret of its source, '
                    'will retry: %(error)s',
                    {'volume': volume_id, 'error': exc})
        return False
    return True


def _end(node: Node, volume: Volume) -> None:
    """Complete a re-encryption: backup, tags and row.

    :raises ForeignHeader: if the header is not the announced header
    """
    # The process may have been killed between both copies of the header.
    header = node.crypt.header(volume.id, repair=True)
    if header.reencryption:
        return  # another has begun; the next sweep runs it
    if not header.tokens_with_role(luks_header.Role.VOLUME):
        raise encryption_exceptions.HeaderDamaged(
            path=names.handle_path(volume.id), reason='its tokens name no '
            'secret with a key slot')
    recorded = _recorded(volume)
    pinning.check(volume.id, header, pinning.recorded_in_row(recorded))
    begun = header.pin != recorded.pin
    # Older backups would turn the data into noise, so the tag of the LV stays
    # as long as there may be one.
    node.crypt.renew_backup(volume.id, header, activate.key_of(
        node.crypt, node.keys, volume.id, header,
        pinning.recorded_in_row(recorded))
        if _has_backup(node, volume.id, header) else b'')
    _take_off(node, volume, names.PAUSED)
    _forget_zone(node, volume)
    _take_off(node, volume, names.REENCRYPTED)
    # Last: while the row has both pins, the next sweep repeats all this.
    _record(node, volume, pinning.after_reencryption(recorded, header))
    if not begun and recorded.becoming:
        events.say(events.REENCRYPTION_NOT_BEGUN, volume=volume.id)
    elif begun:
        events.say(events.REENCRYPTION_ENDED, volume=volume.id,
                   cipher=header.cipher, bits=header.key_bits)


def _has_backup(node: Node, volume_id: str, header: luks_header.Header
                ) -> bool:
    """Return whether a backup belongs to the current data of a volume."""
    for name in node.crypt.backup_names(volume_id):
        with contextlib.suppress(exceptions.LocalCloneError):
            if node.crypt.backed_up(volume_id, name).pin == header.pin:
                return True
    return False


def as_dict(found: State) -> dict[str, typing.Any]:
    """Return a state as a dictionary for the message bus."""
    return dict(dataclasses.asdict(found), status=found.status.value,
                seconds_left=found.seconds_left)


# -- for the operator's command

@rpc.method('encryption_progress', rpc.HOME, prompt=True)
def progress(node: Node, volume_id: str) -> dict[str, typing.Any]:
    """Return the progress of a re-encryption; see :class:`State`.

    :raises StaleMove: if this node is not the volume's home
    """
    return as_dict(state(node, nodes.volume_at_home(node, volume_id)))


@rpc.method('encryption_reencrypt', rpc.HOME)
def start_as_asked(node: Node, volume_id: str, cipher: str, key_bits: int,
                   resilience: str, drops_keys: bool, zone: int
                   ) -> dict[str, typing.Any]:
    """Re-encrypt a volume; see :func:`start` and :class:`Wish`.

    :raises CannotReencrypt: as for :func:`start`, among others
    """
    return as_dict(start(node, volume_id, Wish(
        cipher, key_bits, resilience, drops_keys, zone)))


@rpc.method('encryption_pause', rpc.HOME)
def pause_as_asked(node: Node, volume_id: str) -> dict[str, typing.Any]:
    """Pause the re-encryption of a volume; see :func:`pause`."""
    return as_dict(pause(node, volume_id))


@rpc.method('encryption_resume', rpc.HOME)
def resume_as_asked(node: Node, volume_id: str) -> dict[str, typing.Any]:
    """Resume the re-encryption of a volume; see :func:`resume`."""
    return as_dict(resume(node, volume_id))


def check_same(volume_id: str, found: luks_header.Reencryption, wish: Wish
               ) -> None:
    """Check that a begun re-encryption matches the request.

    :raises CannotReencrypt: if it does not
    """
    if (wish.cipher not in ('', found.cipher)
            or wish.key_bits not in (0, found.key_bits)):
        raise encryption_exceptions.CannotReencrypt(
            volume=volume_id, reason='a re-encryption with %s and %d bits has '
            'begun and has to end first' % (found.cipher, found.key_bits))


def check_zone(volume_id: str, zone: int) -> None:
    """Refuse a zone size that cryptsetup does not accept.

    :raises CannotReencrypt: if ``zone`` is neither 0 nor in
        :data:`.cryptsetup_cli.ZONES`
    """
    if zone and zone not in cryptsetup_cli.ZONES:
        raise encryption_exceptions.CannotReencrypt(
            volume=volume_id, reason='%s MiB at a time is neither 0 nor from '
            '%d to %d' % (zone, cryptsetup_cli.ZONES[0],
                          cryptsetup_cli.ZONES[-1]))


def new_cipher(volume_id: str, header: luks_header.Header, wish: Wish
               ) -> tuple[str, int]:
    """Return the new cipher of a volume, and the bits of its key.

    :raises CannotReencrypt: if the request is invalid
    """
    if wish.resilience not in ('', *cryptsetup_cli.RESILIENCES):
        raise encryption_exceptions.CannotReencrypt(
            volume=volume_id, reason='resilience "%s" would not survive a '
            'power cut' %
            wish.resilience)
    cipher = wish.cipher or header.cipher
    known = volume_types.CIPHERS.get(cipher)
    if header.integrity or known is None or 'none' not in known.integrity:
        raise encryption_exceptions.CannotReencrypt(
            volume=volume_id, reason='%s is no cipher for a re-encryption' % (
                header.integrity or cipher))
    key_bits = wish.key_bits or (
        header.key_bits if cipher == header.cipher else known.key_bits[-1])
    if key_bits not in known.key_bits:
        raise encryption_exceptions.CannotReencrypt(
            volume=volume_id, reason='%s takes keys of %s bits' % (
                cipher, ' or '.join(map(str, known.key_bits))))
    return cipher, key_bits


def own_slot(volume_id: str, header: luks_header.Header, drops_keys: bool
             ) -> tuple[luks_header.Token, str]:
    """Return the token and the key slot of the volume's own key.

    :param drops_keys: whether all other keys may be lost
    :raises OtherKeys: if other keys exist and must not be lost
    :raises CannotReencrypt: if the header does not have exactly one own key
    """
    own = [each for each in header.tokens
           if each.role is luks_header.Role.VOLUME]
    slots = [slot for each in own for slot in each.keyslots
             if slot in header.keyslots]
    if len(own) != 1 or len(slots) != 1 or own[0].slot:
        raise encryption_exceptions.CannotReencrypt(
            volume=volume_id, reason='a key rotation is incomplete, or its '
            'header does not have a single key of the volume; run '
            '"cinder-localclone encryption key rotate" first')
    others = set(header.keyslots) - set(slots)
    if others and not drops_keys:
        raise encryption_exceptions.OtherKeys(
            volume=volume_id, slots=', '.join(sorted(others)))
    return own[0], slots[0]
