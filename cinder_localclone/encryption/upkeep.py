# SPDX-License-Identifier: Apache-2.0
"""What a node does with all its encrypted volumes: unlock, and sweeps.

After a boot it opens them before guests start, from LVM's tags and the
volumes' own headers, and the key manager: neither the database nor the message
bus is asked. The tags say which secret may be asked for, and for which header.

Periodic sweeps open what was not opened then, have re-encryptions go on, keep
header backups, and remove sealed keys. A node keeps sealed keys only of
volumes that are in use there. A boot opens volumes without their locks, so it
may seal a key just after the volume service has closed the volume, or the
volume has moved away.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
import functools
import logging
import queue
import threading
import time

from cinder_localclone.core import attachments
from cinder_localclone.core import boot_plan
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core.interfaces import storage
from cinder_localclone.core import lvm_tags
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import pinning
from cinder_localclone.core import rows
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import header_backups
from cinder_localclone.encryption import reencrypt

LOG = logging.getLogger(__name__)

#: How many volumes are opened at one time.
AT_ONCE = 4
#: Seconds until a volume is tried again whose key manager did not answer, or
#: whose header others had locked.
PAUSE = 3
#: Of how many volumes that are locked the reason is looked for.
LOOKED_INTO = 10
#: What became of a volume.
OPEN, OPENED, LOCKED = 'open', 'opened', 'locked'
_NOT_DONE = 'there was no time left'
_NOT_USED = 'no attachment says that it is used on this node'
_NOT_OURS = 'this driver does not encrypt it'
_NO_HANDLE = ('it has no handle on this node; the volume service makes one '
              'as soon as it can')


def noted_of(crypt: crypt_interfaces.Crypt, remotes: Collection[str]
             ) -> boot_plan.Known:
    """What is noted of the volumes that are passed through here.

    Of most there is nothing: they are not encrypted by this driver, whatever
    their guests have written to where a header would be.

    :param passed: their ids
    """
    return {volume_id: noted for volume_id, noted in crypt.remotes().items()
            if volume_id in remotes}


def known(present: survey.Survey, remotes: boot_plan.Known) -> boot_plan.Known:
    """What is noted on this node of the volumes that it has, or had. Pure."""
    facts = [names.facts(lv.tags) for lv in present.lvs.values()
             if names.OPENED in lv.tags and names.AWAY not in lv.tags]
    return {**remotes, **{
        each['volume']: (each.get('luks', ''), each.get('key', ''))
        for each in facts if 'volume' in each}}


def facts_on_lv(present: survey.Survey, volume_id: str
                ) -> dict[lvm_tags.Fact, str]:
    """Return all facts in the tags of the LV that a volume's handle is on.

    :returns: none if there is no such LV
    """
    for lv in present.lvs.values():
        facts = names.facts(lv.tags)
        if (facts.get('volume') == volume_id
                and present.handle_is_on_lv(volume_id, lv.name)):
            return facts
    return {}


def unlock(lvm: storage.Lvm, handles: storage.Handles,
           remotes: boot_plan.Known,
           crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
           seconds: float, only: str | None = None) -> list[boot_plan.Outcome]:
    """Open all that can be; one that fails does not stop the others.

    Their headers are not written: this node can't know whether another one
    has a volume open as well. But none has one whose re-encryption was
    interrupted, or only has to be ended: what moves, or is passed through,
    was paused before.

    :param passed: what is noted of volumes that are passed through here
    :param seconds: after which the others are left to the volume service
    :param only: id of the only volume that is wanted
    """
    present = handles.survey()
    wanted = [local for local in boot_plan.encrypted(present, remotes)
              if only in (None, local.volume_id)]
    deadline, noted = time.monotonic() + seconds, known(present, remotes)

    def act(local: boot_plan.Local, again: bool) -> boot_plan.Outcome:
        # The volume service has not waited: it may have opened it, or made
        # another handle.
        found = handles.survey() if again else present
        notes = known(found, remotes) if again else noted
        return _unlock(lvm, found, crypt, keys, local,
                       notes.get(local.volume_id, ('', '')))
    return _side_by_side(act, wanted, deadline)


def locked(handles: storage.Handles, remotes: boot_plan.Known,
           crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys
           ) -> list[boot_plan.Outcome]:
    """What :func:`unlock` would open now, and what keeps it from that.

    Nothing is opened. The first ones only are looked into, one by one.
    """
    present = handles.survey()
    noted = known(present, remotes)
    return [_look_into(present, crypt, keys, local,
                       noted.get(local.volume_id, ('', '')), number)
            for number, local in enumerate(
                each for each in boot_plan.encrypted(present, remotes)
                if not present.crypt(each.volume_id))]


def _look_into(present: survey.Survey, crypt: crypt_interfaces.Crypt,
               keys: crypt_interfaces.Keys, local: boot_plan.Local,
               noted: tuple[str, str], number: int) -> boot_plan.Outcome:
    problem = _obstacle(present, local, noted)
    if not problem and number < LOOKED_INTO:
        luks, key = noted
        try:
            activate.key_of(crypt, keys, local.volume_id,
                            crypt.header(local.volume_id),
                            _expected(key), luks)
        except (exceptions.LocalCloneError, OSError) as exc:
            problem = str(exc)
    return _locked(local, problem)


def _obstacle(present: survey.Survey, local: boot_plan.Local,
              noted: tuple[str, str]) -> str:
    """Why a volume can't be opened, whatever its header says; '' if it can."""
    if local.reason or present.handle(local.volume_id) is None:
        return local.reason or ('it has no handle on this node; the volume '
                                'service makes one as soon as it can')
    return '' if all(noted) else (
        'this node has no record of the volume\'s header and secret')


def _side_by_side(act: Callable[[boot_plan.Local, bool], boot_plan.Outcome],
                  wanted: list[boot_plan.Local], deadline: float
                  ) -> list[boot_plan.Outcome]:
    """A few at a time; who is not done in time is left behind.

    Whoever comes back from there begins with no other. What is to be tried
    again comes after the others.

    :param act: ``act(local, again)``; whether it was tried before
    """
    done: dict[int, boot_plan.Outcome] = {}
    waiting: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
    for number in range(len(wanted)):
        waiting.put((0, number))

    def work(over: threading.Event) -> None:
        try:
            while time.monotonic() < deadline:
                due, number = waiting.get_nowait()
                early = due - time.monotonic()
                if early > 0:
                    time.sleep(early)
                    if time.monotonic() >= deadline:
                        return
                done[number] = act(wanted[number], number in done)
                again = time.monotonic() + PAUSE
                if done[number].transient and again <= deadline:
                    waiting.put((again, number))
        except queue.Empty:
            pass
        finally:
            over.set()
    # Not join(): see Keys._call.
    overs = [threading.Event() for _each in range(min(AT_ONCE, len(wanted)))]
    for over in overs:
        threading.Thread(target=work, args=(over,), daemon=True).start()
    for over in overs:
        over.wait(max(0, deadline - time.monotonic()))
    return [done.get(number, _locked(local, _NOT_DONE))
            for number, local in enumerate(wanted)]


def _locked(local: boot_plan.Local, problem: str, transient: bool = False
            ) -> boot_plan.Outcome:
    return boot_plan.Outcome(
        local.volume_id, local.lv, LOCKED, problem, transient)


def _check_noted(lvm: storage.Lvm, local: boot_plan.Local) -> None:
    """A volume is still to be open here, after whatever was waited for.

    The volume service does not wait. It may have the volume closed, or
    copied to another node, by now.

    :raises NotPossible: if it is not
    """
    lv = lvm.lvs().get(local.lv)
    if local.lv and not (lv and names.OPENED in lv.tags
                         and names.AWAY not in lv.tags):
        raise exceptions.NotPossible(
            volume=local.volume_id, reason='this node has no record any more '
            'that the volume has to be open.')


def _unlock(lvm: storage.Lvm, present: survey.Survey,
            crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
            local: boot_plan.Local, noted: tuple[str, str]
            ) -> boot_plan.Outcome:
    luks, key = noted
    if present.crypt(local.volume_id):
        return boot_plan.Outcome(local.volume_id, local.lv, OPEN)
    problem = _obstacle(present, local, noted)
    if problem:
        return _locked(local, problem)
    try:
        activate.open_volume(crypt, keys, local.volume_id,
                             _expected(key),
                             keep_header=True, luks=luks,
                             recovers=not local.remote,
                             check=lambda: _check_noted(lvm, local))
        return boot_plan.Outcome(local.volume_id, local.lv, OPENED)
    except exceptions.LocalCloneError as exc:
        return _locked(local, str(exc), _is_transient(exc))
    except Exception as exc:
        LOG.exception('Volume %s was not opened.', local.volume_id)
        return _locked(local, '%s: %s' % (type(exc).__name__, exc),
                       _is_transient(exc))


def _expected(key: str) -> pinning.Expected:
    return pinning.Expected(key, by_row=False, by_tag=True)


def _is_transient(exc: Exception) -> bool:
    """Whether the same may succeed in a moment.

    The key manager did not answer, whatever else failed then; or others had
    the header locked.
    """
    return isinstance(exc, encryption_exceptions.HeaderInUse) or any(
        isinstance(each, encryption_exceptions.KeyUnavailable)
        for each in (exc, exc.__cause__))


def open_wanted(node: Node, volume_ids: Collection[str] = ()
                ) -> list[boot_plan.Outcome]:
    """Open all that can be; one that fails does not stop the others.

    One by one: each has its own lock.

    :param volume_ids: the only ones that are wanted; of each it is said what
        became of it
    """
    return [_open_locked(node, volume_id) for volume_id in
            volume_ids or sorted(each.id for each in _here(node)
                                 if _concerns(node, each))]


def _here(node: Node) -> list[objects.Volume]:
    return [*node.volumes.volumes_of(node.host),
            *node.attachments.remote_to(node.host)]


def _concerns(node: Node, volume: objects.Volume) -> bool:
    try:
        return not _why_unwanted(node, volume)
    except exceptions.LocalCloneError:
        return True  # which is said of that volume, and stops no other


def _open_locked(node: Node, volume_id: str) -> boot_plan.Outcome:
    try:
        with node.lock(volume_id):
            return _open(node, volume_id)
    except exceptions.LocalCloneError as exc:
        problem = str(exc)
    except Exception as exc:
        LOG.exception('Volume %s was not opened.', volume_id)
        problem = '%s: %s' % (type(exc).__name__, exc)
    return boot_plan.Outcome(volume_id, '', LOCKED, problem)


def _open(node: Node, volume_id: str) -> boot_plan.Outcome:
    volume = node.volumes.volume(volume_id)
    problem = _why_unwanted(node, volume)
    if volume is None or problem:
        return boot_plan.Outcome(volume_id, '', LOCKED, problem)
    lv = volume.name if rows.is_home(volume, node.host) else ''
    present = node.handles.survey()
    if present.crypt(rows.handle_id(volume)):
        return boot_plan.Outcome(volume_id, lv, OPEN)
    if present.handle(rows.handle_id(volume)) is None:
        return boot_plan.Outcome(volume_id, lv, LOCKED, _NO_HANDLE)
    devices.open(node, volume, lv)
    return boot_plan.Outcome(volume_id, lv, OPENED)


def _why_unwanted(node: Node, volume: objects.Volume | None) -> str:
    """Why a volume is not to be open on this node; '' if it is."""
    if volume is None or not rows.recorded(volume):
        return _NOT_OURS
    here = (rows.is_home(volume, node.host)
            or nodes.connection_to(node, volume, node.host))
    return '' if here and devices.is_wanted(node, volume) else _NOT_USED


def sweep_sealed_keys(node: Node) -> None:
    """Remove the keys of volumes that nobody uses here.

    A volume that fails does not stop the others; the next look tries again.
    """
    try:
        kept = node.crypt.sealed_volumes()
        unused = kept and kept - _in_use(node, kept)
    except exceptions.LocalCloneError as exc:
        LOG.error('This node removed no kept keys: it could not find out '
                  'which of them are still in use, will retry: %s',
                  exc)
        return
    for volume_id in sorted(unused):
        nodes.attempt(
            node, volume_id,
            functools.partial(_forget_if_unused, node, volume_id),
            functools.partial(events.failed, events.NOT_RECONCILED,
                              volume=volume_id))


def _forget_if_unused(node: Node, volume_id: str) -> None:
    volume = node.volumes.volume(volume_id)
    if ((volume is None or not _may_have_to_be_opened(node, volume))
            and not _in_use(node, {volume_id})):
        node.crypt.forget_sealed(volume_id)


def _may_have_to_be_opened(node: Node, volume: objects.Volume) -> bool:
    if not names.same_backend(volume.host, node.host):
        # Another service on this node may keep its keys there, too.
        return attachments.may_be_attached(volume) or any(
            node.is_at(each.connector, node.host)
            for each in volume.volume_attachment)
    if rows.is_home(volume, node.host):
        return devices.is_wanted(node, volume) is not False
    return nodes.connection_to(node, volume, node.host) is not None


def _in_use(node: Node, volume_ids: Iterable[str]) -> set[str]:
    """Those that are open on this node, or that a boot would open."""
    present = node.handles.survey()
    opened = known(present, node.crypt.remotes())
    return {volume_id for volume_id in volume_ids
            if volume_id in opened or present.crypt(volume_id)}


class Sweeps:
    """The periodic passes over a node's encrypted volumes.

    Each knows from one to the next what needs no second look.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._reencryptions = reencrypt.Sweep(node)
        self._backups = header_backups.Sweep(node)

    def resume_reencryptions(self, volumes: Iterable[objects.Volume],
                             present: survey.Survey) -> None:
        """Have go on what may, and end what has ended.

        :param volumes: at home here
        :param present: what there is on this node
        """
        self._reencryptions.sweep(volumes, present)

    def keep_header_backups(self) -> None:
        """Make the header backups that are missing, and drop old ones."""
        self._backups.sweep()
