# SPDX-License-Identifier: Apache-2.0
"""Open the encrypted volumes of a node after a boot; sweep them.

After a boot the volumes are opened before guests start. The boot service uses
LVM tags, the headers and the key manager, but neither the database nor the
message bus. The tags name the secret, and the UUID of the header.

Periodic sweeps open the other volumes, resume re-encryptions, keep header
backups, and remove sealed keys. A node keeps sealed keys only for volumes in
use there. The boot service opens volumes without their locks. Therefore it may
seal a key just after the volume service has closed the volume, or the volume
has moved away.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
import functools
import logging
import queue
import threading
import time

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
from cinder_localclone.core import pinning
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import header_backups
from cinder_localclone.encryption import reencrypt

LOG = logging.getLogger(__name__)

#: The number of volumes opened in parallel.
AT_ONCE = 4
#: Seconds before a retry, if the key manager did not answer or another process
#: had locked the header.
PAUSE = 3
#: The number of locked volumes that are examined.
EXAMINED = 10
#: The results for a volume.
OPEN, OPENED, LOCKED = 'open', 'opened', 'locked'
_NOT_DONE = 'the time limit was reached'
_NOT_USED = 'it has no attachment on this node'
_NOT_OURS = 'this driver does not encrypt it'
_NO_HANDLE = ('it has no handle on this node; the volume service creates it '
              'as soon as possible')


def noted_of(crypt: crypt_interfaces.Crypt, remotes: Collection[str]
             ) -> boot_plan.Known:
    """Return the notes of remotely attached volumes on this node.

    Most have no note: this driver does not encrypt them, and their guests may
    write any data in place of a header.

    :param remotes: the IDs of the remotely attached volumes
    """
    return {volume_id: noted for volume_id, noted in crypt.remotes().items()
            if volume_id in remotes}


def known(present: survey.Survey, remotes: boot_plan.Known) -> boot_plan.Known:
    """Return the notes of all volumes of this node, by ID. Pure."""
    facts = [names.facts(lv.tags) for lv in present.lvs.values()
             if names.OPENED in lv.tags and names.AWAY not in lv.tags]
    return {**remotes, **{
        each['volume']: (each.get('luks', ''), each.get('key', ''))
        for each in facts if 'volume' in each}}


def facts_on_lv(present: survey.Survey, volume_id: str
                ) -> dict[lvm_tags.Fact, str]:
    """Return the facts in the tags of the LV below a handle; {} if none."""
    for lv in present.lvs.values():
        facts = names.facts(lv.tags)
        if (facts.get('volume') == volume_id
                and present.is_handle_on_lv(volume_id, lv.name)):
            return facts
    return {}


def unlock(lvm: storage.Lvm, handles: storage.Handles,
           remotes: boot_plan.Known,
           crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
           seconds: float, only: str | None = None) -> list[boot_plan.Outcome]:
    """Open all encrypted volumes; an error stops one volume only.

    Headers are not written, because another node may have a volume open. The
    exception is an interrupted or nearly complete re-encryption: only this
    node has its volume open, because a move or a remote attachment pauses it
    first.

    :param remotes: the notes of remotely attached volumes
    :param seconds: the time limit; the volume service opens the rest
    :param only: the ID of a single volume to open
    """
    present = handles.survey()
    wanted = [local for local in boot_plan.to_unlock(present, remotes)
              if only in (None, local.volume_id)]
    deadline, noted = time.monotonic() + seconds, known(present, remotes)

    def act(local: boot_plan.Local, again: bool) -> boot_plan.Outcome:
        # Meanwhile the volume service may have opened the volume, or created
        # another handle.
        found = handles.survey() if again else present
        notes = known(found, remotes) if again else noted
        return _unlock(lvm, found, crypt, keys, local,
                       notes.get(local.volume_id, ('', '')))
    return _side_by_side(act, wanted, deadline)


def locked(handles: storage.Handles, remotes: boot_plan.Known,
           crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys
           ) -> list[boot_plan.Outcome]:
    """Return the closed volumes that :func:`unlock` opens, with reasons.

    Nothing is opened. Only the first :data:`EXAMINED` volumes are examined,
    in sequence.
    """
    present = handles.survey()
    noted = known(present, remotes)
    return [_examine(present, crypt, keys, local,
                     noted.get(local.volume_id, ('', '')), number)
            for number, local in enumerate(
                each for each in boot_plan.to_unlock(present, remotes)
                if not present.crypt(each.volume_id))]


def _examine(present: survey.Survey, crypt: crypt_interfaces.Crypt,
             keys: crypt_interfaces.Keys, local: boot_plan.Local,
             noted: tuple[str, str], number: int) -> boot_plan.Outcome:
    problem = _obstacle(present, local, noted)
    if not problem and number < EXAMINED:
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
    """Return why a volume can't be opened; '' if the header decides."""
    if local.reason or present.handle(local.volume_id) is None:
        return local.reason or ('it has no handle on this node; the volume '
                                'service creates it as soon as possible')
    return '' if all(noted) else (
        'this node has no record of the volume\'s header and secret')


def _side_by_side(act: Callable[[boot_plan.Local, bool], boot_plan.Outcome],
                  wanted: list[boot_plan.Local], deadline: float
                  ) -> list[boot_plan.Outcome]:
    """Open a few volumes at a time until the deadline.

    A thread that is blocked beyond the deadline begins no other volume.
    Retries come after the other volumes.

    :param act: ``act(local, again)``; ``again`` tells a retry
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
    """Check, after all waits, that a volume must still be opened.

    The volume service does not wait for the boot service. It may have closed
    the volume, or moved it to another node.

    :raises NotPossible: if the LV has no note any more
    """
    lv = lvm.lvs().get(local.lv)
    if local.lv and not (lv and names.OPENED in lv.tags
                         and names.AWAY not in lv.tags):
        raise exceptions.NotPossible(
            volume=local.volume_id, reason='the note to open the volume was '
            'removed meanwhile.')


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
    """Return whether a retry may succeed in a moment.

    True if the key manager did not answer, even if another error came first,
    or if another process had locked the header.
    """
    return isinstance(exc, encryption_exceptions.HeaderInUse) or any(
        isinstance(each, encryption_exceptions.KeyUnavailable)
        for each in (exc, exc.__cause__))


def open_wanted(node: Node, volume_ids: Collection[str] = ()
                ) -> list[boot_plan.Outcome]:
    """Open all volumes that attachments name; an error stops one only.

    The volumes are opened in sequence, each under its own lock.

    :param volume_ids: the only volumes to open, each with a result
    """
    return [_open_locked(node, volume_id) for volume_id in
            volume_ids or sorted(each.id for each in _here(node)
                                 if _concerns(node, each))]


def _here(node: Node) -> list[Volume]:
    return [*node.volumes.volumes_of(node.host),
            *node.attachments.remote_to(node.host)]


def _concerns(node: Node, volume: Volume) -> bool:
    try:
        return not _why_unwanted(node, volume)
    except exceptions.LocalCloneError:
        return True  # the error is reported for this volume only


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
    lv = volume.name if volume.home == node.host else ''
    present = node.handles.survey()
    if present.crypt(volume.handle_id):
        return boot_plan.Outcome(volume_id, lv, OPEN)
    if present.handle(volume.handle_id) is None:
        return boot_plan.Outcome(volume_id, lv, LOCKED, _NO_HANDLE)
    devices.open(node, volume, lv)
    return boot_plan.Outcome(volume_id, lv, OPENED)


def _why_unwanted(node: Node, volume: Volume | None) -> str:
    """Return why a volume must stay closed here; '' if it must be open."""
    if volume is None or not volume.encryption:
        return _NOT_OURS
    here = (volume.home == node.host
            or nodes.connection_to(node, volume, node.host))
    return '' if here and devices.is_wanted(node, volume) else _NOT_USED


def sweep_sealed_keys(node: Node) -> None:
    """Remove the sealed keys of volumes unused on this node.

    An error stops one volume only; the next sweep tries again.
    """
    try:
        kept = node.crypt.sealed_volumes()
        unused = kept and kept - _in_use(node, kept)
    except exceptions.LocalCloneError as exc:
        LOG.error('No sealed keys were removed from this node, because their '
                  'use is unknown, will retry: %s',
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


def _may_have_to_be_opened(node: Node, volume: Volume) -> bool:
    if not names.same_backend(volume.host, node.host):
        # Another backend on this node may keep its keys in the same directory.
        return any(
            not each.connector or node.is_at(each.connector, node.host)
            for each in volume.volume_attachment)
    if volume.home == node.host:
        return devices.is_wanted(node, volume) is not False
    return nodes.connection_to(node, volume, node.host) is not None


def _in_use(node: Node, volume_ids: Iterable[str]) -> set[str]:
    """Return the volumes that are open here, or opened by a boot."""
    present = node.handles.survey()
    opened = known(present, node.crypt.remotes())
    return {volume_id for volume_id in volume_ids
            if volume_id in opened or present.crypt(volume_id)}


class Sweeps:
    """The periodic sweeps over a node's encrypted volumes.

    Each sweep remembers which volumes need no second check.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._reencryptions = reencrypt.Sweep(node)
        self._backups = header_backups.Sweep(node)

    def resume_reencryptions(self, volumes: Iterable[Volume],
                             present: survey.Survey) -> None:
        """Resume re-encryptions, and complete ended ones.

        :param volumes: the volumes of this node
        :param present: the survey of this node
        """
        self._reencryptions.sweep(volumes, present)

    def keep_header_backups(self) -> None:
        """Make missing header backups, and remove old ones."""
        self._backups.sweep()
