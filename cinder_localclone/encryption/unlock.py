# SPDX-License-Identifier: Apache-2.0
"""Opening this node's encrypted volumes after a boot, before guests start.

From LVM's tags and the volumes' own headers, and the key manager: neither
the database nor the message bus is asked. The tags say which secret may be
asked for, and for which header. The volume service's looks open what was not
opened here.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import logging
import queue
import threading
import time
import types
import typing

from cinder_localclone.core import boot_plan
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core.interfaces import storage
from cinder_localclone.core import lvm_tags
from cinder_localclone.core import names
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import pinning

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


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one volume.

    :param state: open (it was before), opened, or locked
    :param problem: why it is locked
    :param passing: whether that may pass in a moment
    """

    volume_id: str
    lv: str
    state: str
    problem: str = ''
    passing: bool = False


#: UUIDs of headers and references of secrets, by volume id.
Known: typing.TypeAlias = Mapping[str, tuple[str, str]]


def plan(present: survey.Survey, passed: Known = types.MappingProxyType({})
         ) -> list[boot_plan.Local]:
    """The volumes that were open when the node went down. Pure.

    :param passed: those that were passed through here, and encrypted
    """
    here = [local for local in boot_plan.plan(present)
            if local.lv and names.OPENED in present.lvs[local.lv].tags]
    own = {local.volume_id for local in here}
    return here + [boot_plan.Local(volume_id, '', 0, passed='yes')
                   for volume_id in sorted(passed) if volume_id not in own]


def noted_of(crypt: crypt_interfaces.Crypt, passed: Collection[str]) -> Known:
    """What is noted of the volumes that are passed through here.

    Of most there is nothing: they are not encrypted by this driver, whatever
    their guests have written to where a header would be.

    :param passed: their ids
    """
    return {volume_id: noted for volume_id, noted in crypt.passed().items()
            if volume_id in passed}


def known(present: survey.Survey, passed: Known) -> Known:
    """What is noted on this node of the volumes that it has, or had. Pure."""
    facts = [names.facts(lv.tags) for lv in present.lvs.values()
             if names.OPENED in lv.tags and names.AWAY not in lv.tags]
    return {**passed, **{
        each['volume']: (each.get('luks', ''), each.get('key', ''))
        for each in facts if 'volume' in each}}


def noted_on_body(present: survey.Survey, volume_id: str
                  ) -> tuple[str, str]:
    """What is noted of a volume on the LV that its handle is on. Pure."""
    facts = facts_on_body(present, volume_id)
    return facts.get('luks', ''), facts.get('key', '')


def facts_on_body(present: survey.Survey, volume_id: str
                  ) -> dict[lvm_tags.Fact, str]:
    """Return all facts in the tags of that LV; none if there is no such LV."""
    for lv in present.lvs.values():
        facts = names.facts(lv.tags)
        if (facts.get('volume') == volume_id
                and present.handle_is_on_lv(volume_id, lv.name)):
            return facts
    return {}


def unlock(lvm: storage.Lvm, handles: storage.Handles, passed: Known,
           crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys,
           seconds: float, only: str | None = None) -> list[Outcome]:
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
    wanted = [local for local in plan(present, passed)
              if only in (None, local.volume_id)]
    deadline, noted = time.monotonic() + seconds, known(present, passed)

    def act(local: boot_plan.Local, again: bool) -> Outcome:
        # The volume service has not waited: it may have opened it, or made
        # another handle.
        found = handles.survey() if again else present
        notes = known(found, passed) if again else noted
        return _unlock(lvm, found, crypt, keys, local,
                       notes.get(local.volume_id, ('', '')))
    return _side_by_side(act, wanted, deadline)


def locked(handles: storage.Handles, passed: Known,
           crypt: crypt_interfaces.Crypt, keys: crypt_interfaces.Keys
           ) -> list[Outcome]:
    """What :func:`unlock` would open now, and what keeps it from that.

    Nothing is opened. The first ones only are looked into, one by one.
    """
    present = handles.survey()
    noted = known(present, passed)
    return [_look_into(present, crypt, keys, local,
                       noted.get(local.volume_id, ('', '')), number)
            for number, local in enumerate(
                each for each in plan(present, passed)
                if not present.crypt(each.volume_id))]


def _look_into(present: survey.Survey, crypt: crypt_interfaces.Crypt,
               keys: crypt_interfaces.Keys, local: boot_plan.Local,
               noted: tuple[str, str], number: int) -> Outcome:
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


def _side_by_side(act: Callable[[boot_plan.Local, bool], Outcome],
                  wanted: list[boot_plan.Local], deadline: float
                  ) -> list[Outcome]:
    """A few at a time; who is not done in time is left behind.

    Whoever comes back from there begins with no other. What is to be tried
    again comes after the others.

    :param act: ``act(local, again)``; whether it was tried before
    """
    done: dict[int, Outcome] = {}
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
                if done[number].passing and again <= deadline:
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


def _locked(local: boot_plan.Local, problem: str, passing: bool = False
            ) -> Outcome:
    return Outcome(local.volume_id, local.lv, LOCKED, problem, passing)


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
            local: boot_plan.Local, noted: tuple[str, str]) -> Outcome:
    luks, key = noted
    if present.crypt(local.volume_id):
        return Outcome(local.volume_id, local.lv, OPEN)
    problem = _obstacle(present, local, noted)
    if problem:
        return _locked(local, problem)
    try:
        activate.open_volume(crypt, keys, local.volume_id,
                             _expected(key),
                             keep_header=True, luks=luks,
                             recovers=not local.passed,
                             check=lambda: _check_noted(lvm, local))
        return Outcome(local.volume_id, local.lv, OPENED)
    except exceptions.LocalCloneError as exc:
        return _locked(local, str(exc), _is_passing(exc))
    except Exception as exc:
        LOG.exception('Volume %s was not opened.', local.volume_id)
        return _locked(local, '%s: %s' % (type(exc).__name__, exc),
                       _is_passing(exc))


def _expected(key: str) -> pinning.Expected:
    return pinning.Expected(key, by_row=False, by_tag=True)


def _is_passing(exc: Exception) -> bool:
    """Whether the same may succeed in a moment.

    The key manager did not answer, whatever else failed then; or others had
    the header locked.
    """
    return isinstance(exc, encryption_exceptions.HeaderInUse) or any(
        isinstance(each, encryption_exceptions.KeyUnavailable)
        for each in (exc, exc.__cause__))
