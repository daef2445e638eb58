# SPDX-License-Identifier: Apache-2.0
"""Another data key, or another cipher, for a volume that is in use.

All of a volume is read, and written encrypted anew, at its home, by a process
that outlives this service (:mod:`.runner`). Its header says how far that is:
nothing else does, so it goes on after a power cut, and at another home. It
runs while the volume is at rest; whatever else is done to the volume pauses
it before (:mod:`.pausing`), and the node's look has it go on.

A volume is tagged from before it begins until what belongs to its end is done
as well. What only this node knows is another tag, of an operator's pause: a
volume that moves goes on at its new home.
"""

from collections.abc import Iterable
import contextlib
import dataclasses
import enum
import typing

from oslo_log import log as logging

from cinder_localclone import crypt_tops
from cinder_localclone import decrypting
from cinder_localclone import encryption_errors
from cinder_localclone import encryption_types
from cinder_localclone import events
from cinder_localclone import exceptions
from cinder_localclone.luks import headers
from cinder_localclone.luks import options
from cinder_localclone.luks import tokens
from cinder_localclone.moves import checks
from cinder_localclone import names
from cinder_localclone import node as nodes
from cinder_localclone import own_key
from cinder_localclone import pausing
from cinder_localclone import pinning
from cinder_localclone import ports
from cinder_localclone import reencryption_errors
from cinder_localclone import reencryption_plan as plan
from cinder_localclone import rows
from cinder_localclone import survey as surveys

LOG = logging.getLogger(__name__)

#: In any other status something else is being done to a volume.
QUIET = ('available', 'in-use')


class Status(str, enum.Enum):
    """What is the matter with the re-encryption of a volume."""

    #: None has begun, or it has ended.
    NONE = 'none'
    RUNNING = 'running'
    #: An operator has paused it.
    PAUSED = 'paused'
    #: It goes on by itself as soon as the volume is at rest.
    WAITING = 'waiting'
    #: It was killed: opening the volume recovers it.
    INTERRUPTED = 'interrupted'


@dataclasses.dataclass(frozen=True)
class State:
    """How far the re-encryption of a volume is.

    :param done: bytes that are encrypted anew for good
    :param total: bytes of the volume
    :param cipher: the new one; that of the volume if there is no other
    :param key_bits: of its key
    :param rate: bytes a second of what runs; 0: not known
    """

    status: Status
    done: int
    total: int
    cipher: str
    key_bits: int
    rate: int = 0

    @property
    def seconds_left(self) -> float | None:
        """At this rate; None if that is not known."""
        return (self.total - self.done) / self.rate if self.rate else None


def judge(under_way: bool, interrupted: bool, running: bool,
          by_operator: bool) -> Status:
    """What is the matter, by the header, the process and the tag. Pure."""
    if running:
        return Status.RUNNING
    if interrupted:
        return Status.INTERRUPTED
    if not under_way:
        return Status.NONE
    return Status.PAUSED if by_operator else Status.WAITING


def state(node: nodes.Node, volume: ports.Volume) -> State:
    """How far the re-encryption of a volume is; its home is here.

    :raises HeaderDamaged: if its header can't be read
    :raises LocalCloneError: if it has no handle
    """
    volume_id, recorded = rows.handle_id(volume), _recorded(volume)
    running = node.runner.is_running(volume_id)
    header = node.crypt.header(volume_id)
    lv = node.stack.lvs().get(volume.name)
    total = rows.body_bytes(volume) - recorded.header_bytes
    status = judge(
        bool(header.reencryption), not running and pausing.is_interrupted(
            node, volume_id, header), running,
        bool(lv and names.PAUSED in lv.tags))
    found = header.reencryption
    if found is None:
        return State(status, 0, total, header.cipher, header.key_bits)
    said = node.runner.progress(volume_id) if running else None
    return State(status, total if found.complete else found.done, total,
                 found.cipher, found.key_bits,
                 said.rate if said else 0)


def _recorded(volume: ports.Volume) -> encryption_types.Recorded:
    found = rows.recorded(volume)
    if found is None:
        raise reencryption_errors.CannotReencrypt(
            volume=volume.id, reason='this driver does not encrypt it')
    return found


# -- what may be done now

def _at_rest(node: nodes.Node, volume: ports.Volume) -> bool:
    """Whether nothing but a guest here has to do with a volume."""
    volume_id = rows.handle_id(volume)
    return bool(
        rows.is_home(volume, node.host)
        and volume.status in QUIET and not rows.visible_id(volume)
        and node.records.move_of(volume.id) is None
        and not node.stack.survey().metadata(volume.name_id)
        and all(node.is_at(each.connector, node.host)
                for each in volume.volume_attachment if each.connector)
        and not node.exports.remote().get(volume_id))


def _volume(node: nodes.Node, volume_id: str) -> ports.Volume:
    """A volume that can be re-encrypted now; its handle is there.

    :raises StaleMove: if its home is elsewhere
    :raises NotAtRest: if something else is being done to it
    :raises CannotReencrypt: if it never can
    """
    volume = checks.volume_at_home(node, volume_id)
    if _recorded(volume).authenticated:
        raise reencryption_errors.CannotReencrypt(
            volume=volume_id, reason='cryptsetup can\'t re-encrypt '
            'authenticated volumes')
    if not _at_rest(node, volume):
        raise encryption_errors.NotAtRest(volume=volume_id)
    node.stack.ensure_handle_on_lv(volume_id, volume.name,
                                   rows.body_bytes(volume))
    return volume


# -- start

def start(node: nodes.Node, volume_id: str, wish: plan.Wish) -> State:
    """Encrypt a volume anew, under its guest if it has one.

    Nothing is written before all that can be known has been checked. One
    that has begun as is wished goes on.

    :raises NotAtRest: if something else is being done to it
    :raises OtherKeys: if it has keys that would be lost
    :raises NoRoomToReencrypt: if its thin pool can't take all of it
    :raises CannotReencrypt: if it is authenticated, or its key is being
        changed, or there is no such cipher; if cryptsetup is too old; or if
        the end of the service would kill it
    :raises KeyUnavailable: if the key manager does not answer
    """
    with node.lock(volume_id):
        volume = _volume(node, volume_id)
        header = node.crypt.header(volume_id, mend=True)
        pinning.check(volume.id, header, pinning.of_row(_recorded(volume)))
        if header.reencryption:
            plan.check_same(volume.id, header.reencryption, wish)
            _take_off(node, volume, names.PAUSED)
        else:
            problem = node.runner.obstacle()
            if problem:
                raise reencryption_errors.CannotReencrypt(
                    volume=volume.id, reason=problem)
            volume = _begin(node, volume, header, wish)
        _go_on(node, volume)
        return state(node, volume)


def _begin(node: nodes.Node, volume: ports.Volume, header: headers.Header,
           wish: plan.Wish) -> ports.Volume:
    cipher, key_bits = plan.new_cipher(volume.id, header, wish)
    node.crypt.check_reencrypts(volume.id)
    token, slot = plan.own_slot(volume.id, header, wish.drops_keys)
    if token.key != _recorded(volume).key:
        raise reencryption_errors.CannotReencrypt(
            volume=volume.id, reason='its header has no key of the secret '
            'that its row names')
    key = node.keys.get(token.key, token.key_format)
    node.crypt.test(volume.id, key, slot)
    _ensure_open(node, volume)
    with node.allocation_lock():
        _check_room(node, volume)
        node.crypt.mark(volume.name, names.REENCRYPTED)
    _take_off(node, volume, names.PAUSED)
    # Until its end is recorded the row has both pins.
    before = pinning.settled(_recorded(volume), header)
    recorded = dataclasses.replace(before, becoming=dataclasses.replace(
        header.pin, cipher=cipher, key_bits=key_bits, digest=''))
    volume = _record(node, volume, recorded)
    weak = token.shared and (
        token.key_format is encryption_types.KeyFormat.PASSPHRASE)
    node.crypt.begin_reencryption(volume.id, slot, options.Reencryption(
        cipher, key_bits, wish.resilience or node.runner.resilience,
        options.PASSPHRASE if weak else options.RANDOM_KEY), key)
    events.say(events.REENCRYPTION_BEGINS, volume=volume.id, cipher=cipher,
               bits=key_bits)
    return volume


def _record(node: nodes.Node, volume: ports.Volume,
            recorded: encryption_types.Recorded) -> ports.Volume:
    """Change the row of a volume; return the row as it is then."""
    before = rows.recorded(volume)
    if recorded == before:
        return volume
    node.secrets.record(volume.id, recorded, before)
    return checks.volume_at_home(node, volume.id)


def _pin_new_key(node: nodes.Node, volume: ports.Volume) -> ports.Volume:
    """Have the row pin the new key of a re-encryption that has begun.

    Its digest is in the header alone until here. The secret of the volume
    opens a slot of it: so whoever has made the slot knew the secret.

    :raises LocalCloneError: as :func:`.decrypting.key_of`
    """
    recorded = _recorded(volume)
    expected, header = pinning.of_row(recorded), node.crypt.header(volume.id)
    pinning.check(volume.id, header, expected)
    if not pinning.is_begun(header, expected):
        return volume
    decrypting.key_of(node.crypt, node.keys, volume.id, header, expected)
    return _record(node, volume, dataclasses.replace(
        recorded, becoming=header.becoming))


def _check_room(node: nodes.Node, volume: ports.Volume) -> None:
    """What is written becomes the volume's own, all of it."""
    lvs = node.stack.lvs()
    lv = lvs[volume.name]
    if not lv.thin:
        return
    shared = bool(lv.origin) or any(
        each.origin == lv.name for each in lvs.values())
    needed = lv.size - (0 if shared else lv.allocated)
    free = node.stack.free_space(lvs).volumes
    if free < needed:
        raise reencryption_errors.NoRoomToReencrypt(
            volume=volume.id, host=node.host, needed=needed >> 20,
            free=max(0, free) >> 20)


# -- pause and go on

def pause(node: nodes.Node, volume_id: str) -> State:
    """Let it wait until an operator says otherwise, here.

    :raises StaleMove: if its home is elsewhere
    :raises StillReencrypting: if it does not pause in time; it does later
    """
    with node.lock(volume_id):
        volume = checks.volume_at_home(node, volume_id)
        _recorded(volume)
        if node.crypt.header(volume_id).reencryption:
            node.crypt.mark(volume.name, names.PAUSED)
        pausing.stop(node, volume_id)
        return state(node, volume)


def resume(node: nodes.Node, volume_id: str) -> State:
    """Let it go on.

    :raises NotAtRest: if something else is being done to the volume
    :raises Interrupted: if it was killed, and a guest has the volume open
    """
    with node.lock(volume_id):
        volume = _volume(node, volume_id)
        _take_off(node, volume, names.PAUSED)
        if node.crypt.header(volume_id).reencryption:
            _go_on(node, volume)
        return state(node, volume)


def _take_off(node: nodes.Node, volume: ports.Volume, tag: str) -> None:
    lv = node.stack.lvs().get(volume.name)
    if lv and tag in lv.tags:
        node.crypt.unmark(lv.name, tag)


def _ensure_open(node: nodes.Node, volume: ports.Volume) -> None:
    """Unlike for a guest: nobody is given its path, no boot opens it."""
    if not node.stack.survey().crypt(volume.id):
        decrypting.open_volume(
            node.crypt, node.keys, volume.id,
            pinning.of_row(_recorded(volume)),
            discards=crypt_tops.takes_discards(node, volume))


def _take_room(node: nodes.Node, volume: ports.Volume) -> None:
    """Make sure of the room for an LV that is written for the first time.

    A clone, or a revert, of a volume in mid re-encryption shares the blocks
    of its image until all of it is written.

    :raises NoRoomToReencrypt: if there is none; the next check tries again
    """
    with node.allocation_lock():
        lv = node.stack.lvs().get(volume.name)
        if lv and names.REENCRYPTED not in lv.tags:
            _check_room(node, volume)
            node.crypt.mark(lv.name, names.REENCRYPTED)


def _go_on(node: nodes.Node, volume: ports.Volume) -> None:
    """What has begun runs; the caller holds the volume's lock."""
    if node.runner.is_running(volume.id):
        return
    if pausing.is_interrupted(node, volume.id, node.crypt.header(volume.id)):
        pausing.recover(node, volume)
        if not node.crypt.header(volume.id).reencryption:
            return  # it was complete; what is left is the next look's
    node.crypt.check_reencrypts(volume.id)  # this may be another node
    # The pin first: without room the row would go on announcing any key.
    volume = _pin_new_key(node, volume)
    _take_room(node, volume)
    _ensure_open(node, volume)
    lv = node.stack.lvs().get(volume.name)
    if lv:
        crypt_tops.note_key(node, lv, volume.id, _recorded(volume).key)
    node.runner.start(volume.id)
    events.say(events.REENCRYPTION_GOES_ON, volume=volume.id)


# -- the node's look

class Look:
    """Has go on what may, and ends what has ended."""

    def __init__(self, node: nodes.Node) -> None:
        self._node = node
        #: Volumes, with their LVs, whose headers say that there is none.
        self._clean: set[tuple[str, str]] = set()

    def look(self, volumes: Iterable[ports.Volume],
             present: surveys.Survey) -> None:
        """One volume that fails does not stop the others.

        :param volumes: at home here
        :param present: what there is on this node
        """
        for volume in volumes:
            try:
                if self._may_concern(volume, present):
                    with self._node.try_lock(volume.id):
                        self._look_at(volume.id)
            except exceptions.Busy:
                pass
            except Exception as exc:  # a command that is missing, too
                events.say(events.REENCRYPTION_STOPPED, volume=volume.id,
                           error=exc, exc_info=not isinstance(
                               exc, exceptions.LocalCloneError))

    def _may_concern(self, volume: ports.Volume, present: surveys.Survey
                     ) -> bool:
        """Without reading its header each time."""
        lv = present.lvs.get(volume.name)
        return bool(
            lv and rows.recorded(volume) and volume.status in QUIET
            and present.handle(volume.id)
            and (names.REENCRYPTED in lv.tags
                 or (volume.id, volume.name) not in self._clean))

    def _look_at(self, volume_id: str) -> None:
        node = self._node
        volume = node.records.volume(volume_id)
        if volume is None or not _at_rest(node, volume):
            return
        lv = node.stack.lvs().get(volume.name)
        header = node.crypt.header(volume_id)
        if lv is None or node.runner.is_running(volume_id):
            return
        if header.reencryption is None:
            if names.REENCRYPTED in lv.tags or _recorded(volume).becoming:
                if pausing.is_interrupted(node, volume_id, header):
                    pausing.recover(node, volume)  # its devices are left
                _end(node, volume)
            if _has_own_key(node, volume_id):
                self._clean.add((volume.id, volume.name))
        elif decrypting.is_complete(header):
            pausing.recover(node, volume)  # nothing is left to be paused
        elif names.PAUSED not in lv.tags:
            _go_on(node, volume)


def _has_own_key(node: nodes.Node, volume_id: str) -> bool:
    """Give a clone of a volume that was being re-encrypted its own key.

    :returns: whether that is done; else the next check tries again
    """
    volume = node.records.volume(volume_id)
    try:
        if volume and _recorded(volume).shares_key:
            own_key.give_late(node, volume_id)
    except (exceptions.LocalCloneError, OSError) as exc:
        LOG.warning('Volume %(volume)s still shares the secret of its source, '
                    'will retry: %(error)s',
                    {'volume': volume_id, 'error': exc})
        return False
    return True


def _end(node: nodes.Node, volume: ports.Volume) -> None:
    """Do all that comes after a re-encryption that is complete.

    :raises ForeignHeader: if it is not the one that the row has announced
    """
    # Whoever wrote its end may have been killed between both copies of it.
    header = node.crypt.header(volume.id, mend=True)
    if header.reencryption:
        return  # it has begun meanwhile; the next look has it go on
    if not header.opened_by(tokens.Role.VOLUME):
        raise encryption_errors.HeaderDamaged(
            path=names.handle_path(volume.id), reason='it names no secret '
            'with a key that opens it')
    recorded = _recorded(volume)
    pinning.check(volume.id, header, pinning.of_row(recorded))
    begun = header.pin != recorded.pin
    # What they would restore makes noise of the volume: as long as there may
    # be one, its LV says so.
    node.crypt.renew_backup(volume.id, header, decrypting.key_of(
        node.crypt, node.keys, volume.id, header, pinning.of_row(recorded))
        if _has_backup(node, volume.id, header) else b'')
    _take_off(node, volume, names.PAUSED)
    _take_off(node, volume, names.REENCRYPTED)
    # Last: as long as the row announces it, the next look does all this.
    _record(node, volume, pinning.settled(recorded, header))
    if not begun and recorded.becoming:
        events.say(events.REENCRYPTION_NOT_BEGUN, volume=volume.id)
    elif begun:
        events.say(events.REENCRYPTION_ENDED, volume=volume.id,
                   cipher=header.cipher, bits=header.key_bits)


def _has_backup(node: nodes.Node, volume_id: str, header: headers.Header
                ) -> bool:
    """Whether a backup is of the data that a volume has now."""
    for name in node.crypt.backup_names(volume_id):
        with contextlib.suppress(exceptions.LocalCloneError):
            if node.crypt.backed_up(volume_id, name).pin == header.pin:
                return True
    return False


def as_dict(found: State) -> dict[str, typing.Any]:
    """A state as it goes over the bus."""
    return dict(dataclasses.asdict(found), status=found.status.value,
                seconds_left=found.seconds_left)
