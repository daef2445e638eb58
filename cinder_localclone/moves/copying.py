# SPDX-License-Identifier: Apache-2.0
"""The copies to this node: their queue, pace and errors.

Pacing copies, and waking those that the I/O of guests has put to sleep.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses

from oslo_utils import timeutils

from cinder_localclone.core import copies as copies_module
from cinder_localclone.core import events
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import holes
from cinder_localclone.moves import hydration
from cinder_localclone.moves import pace
from cinder_localclone.moves import refill

#: Seconds between two checks of the copies, and between two prompts of the
#: kernel to go on with them. Left alone the kernel checks once a second
#: whether guest I/O is over; a guest's pauses are far shorter.
PROMPT = 0.05


class Copies:
    """The copies to one node, from look to look.

    The kernel copies what is here switched on, and nothing else.

    :param service: the service's own, if these are not: both remember the
        same of what was compared
    """

    def __init__(self, node: Node, service: 'Copies | None' = None):
        self._node = node
        self.comparison: refill.Comparison = refill.Comparison(
            node, service.comparison.memory if service else None)
        self._copies: dict[str, hydration.Copy] = {}
        #: What the look under way has found: each is used once.
        self._turns: dict[str, copies_module.Turn] = {}
        self._running: set[str] = set()
        self._some_ended = False
        self.waker = Waker(node.clones.seen, node.clones.wake_hydration,
                           node.pacing)

    def progress(self, shadow_id: str) -> copies_module.Progress | None:
        """How far a copy was when it was last checked."""
        return self.all_progress().get(shadow_id)

    def all_progress(self) -> dict[str, copies_module.Progress]:
        """The same of all copies, by their shadows' ids."""
        return {shadow_id: dataclasses.replace(
            copy.progress, pace=self.waker.speed(shadow_id))
            for shadow_id, copy in list(self._copies.items())
            if copy.progress}

    def soonest_end(self) -> float | None:
        """Seconds until the first of them ends; None: nobody knows."""
        return min((each.seconds_left
                    for shadow_id, each in self.all_progress().items()
                    if not each.pause and each.seconds_left is not None
                    and not self.waker.stands_still(shadow_id)),
                   default=None)

    # -- whose turn it is

    @contextlib.contextmanager
    def look(self, moves: Iterable[state.Move]) -> Iterator[None]:
        """During a look at this node the database is asked once for all.

        :param moves: from and to this node
        """
        copied = {move.shadow_id for move in moves if move.committed
                  and move.destination == self._node.host
                  and move.phase is Phase.MIGRATING}
        for shadow_id in set(self._copies) - copied:  # deleted, say
            self._forget(shadow_id)
        if copied:
            turns = self._all_turns()
            self._running = {shadow_id for shadow_id, turn
                             in turns.items() if turn.runs}
            self._turns = turns  # last: other threads use them up
        try:
            yield
        finally:
            self._turns = {}

    def still_waits(self, move: state.Move) -> bool:
        """Whether a copy that was seen to wait has nothing to do but that.

        During a look. Else twenty volumes that move would keep a node busy
        with looking at them; what else they may need the next look at all of
        the node sees to.
        """
        turn = self._turns.get(move.shadow_id)
        copy = self._copies.get(move.shadow_id)
        if not (turn and turn.place and copy and copy.place):
            return False
        copy.move_up(turn.place)
        return True

    def next(self) -> list[copies_module.Entry]:
        """Those, of all nodes, that run since copies to this node have ended.

        To be asked at the end of a look; other nodes would see it at their
        next.
        """
        if not self._some_ended:
            return []
        self._some_ended = False
        turns = self._all_turns()
        found = [turn.entry for turn in turns.values() if turn.runs
                 and turn.entry.shadow_id not in self._running]
        self._turns = turns  # last: other threads use them up
        return found

    def _all_turns(self) -> dict[str, copies_module.Turn]:
        entries = self._node.queue.copies(self._node.host)
        services = self._node.services.by_host()
        dead = {host for entry in entries for host in entry.ends
                if not services.get(host)}
        return copies_module.turns(entries, self._node.limits, dead)

    def _turn(self, shadow_id: str) -> copies_module.Turn | None:
        """None if it is not in the queue (any more)."""
        turn = self._turns.pop(shadow_id, None)
        return turn or self._all_turns().get(shadow_id)

    # -- one copy, for a caller that holds the volume's lock

    def drive(self, move: state.Move, disk: str) -> bool:
        """Let the kernel copy if it is its turn, and it makes progress.

        :param move: committed, and in phase "migrating"
        :param disk: path of the source's disk
        :returns: whether all is copied
        """
        if not self.comparison.resume(move):
            self.hindered(move)
            return False
        status = self._node.clones.clone_status(move.shadow_id)
        turn = None if status.finished else self._turn(move.shadow_id)
        place = turn.place if turn else int(not status.finished)
        if status.mode == 'rw' and not (
                place or status.enabled or status.finished):
            holes.leave_out(self._node, move)
            status = self._node.clones.clone_status(move.shadow_id)
        copy = self._copies.setdefault(move.shadow_id, hydration.Copy())
        before = copy.place
        progress = copy.update(
            status, self._node.clones.completed_reads(disk), timeutils.now(),
            place)
        if not place or place != before:
            events.say(events.COPYING, volume=move.volume_id,
                       source=move.source, progress=progress)
        if status.mode != 'rw':
            events.say(events.CLONE_FAILED, volume=move.volume_id,
                       mode=status.mode)
        runs = not (place or progress.pause)
        if status.enabled != runs and self._node.clones.set_hydration(
                move.shadow_id, runs) and progress.pause:
            events.say(events.COPYING_FAILS, volume=move.volume_id,
                       seconds=progress.pause)
        if runs and not status.finished:
            self.waker.watch(move.shadow_id, move.geometry,
                             turn.entry.pace if turn else '',
                             self._node.clones.counters(move),
                             bool(turn and turn.entry.migrating))
        else:
            self.waker.forget(move.shadow_id)
        if turn:
            self._note(move, turn.entry.stalled, copy.stall.check(
                status.hydrated, timeutils.now()))
        return status.finished

    def is_whole(self, move: state.Move) -> bool:
        """See that all that the source has is here, once all is copied.

        :returns: False if that can't be seen now
        :raises LocalCloneError: as :meth:`.refill.Comparison.is_whole`
        """
        whole = self.comparison.is_whole(move)
        if not whole:
            self.hindered(move)
        return whole

    def hindered(self, move: state.Move) -> None:
        """A copy can't be driven, or ended: it may have to make room.

        It goes on by itself if only its source could not be reached, so what
        has to wait is stopped.
        """
        turn = self._turn(move.shadow_id)
        if not (turn and turn.runs):
            self._forget(move.shadow_id)
            clone = names.clone(move.shadow_id)
            if clone in self._node.handles.devices([clone]):
                self._node.clones.set_hydration(move.shadow_id, False)
        else:
            copy = self._copies.setdefault(move.shadow_id, hydration.Copy())
            copy.hinder()
            self._note(move, turn.entry.stalled, copy.stall.check(
                None, timeutils.now()))

    def _note(self, move: state.Move, noted: float, stalled: bool | None
              ) -> None:
        """Have all nodes know whether a copy makes progress.

        :param noted: what they know
        """
        if stalled or (noted and stalled is False):
            self._node.queue.note_stalled(move, stalled)
        if stalled and not noted:
            events.say(events.STALLED, volume=move.volume_id,
                       source=move.source, seconds=hydration.STALLED)

    def ended(self, shadow_id: str) -> None:
        """A copy is complete."""
        self._forget(shadow_id)
        self._some_ended = True

    def _forget(self, shadow_id: str) -> None:
        self._copies.pop(shadow_id, None)
        self.waker.forget(shadow_id)


@dataclasses.dataclass
class _Copy:
    """A copy that is under way.

    :param migrating: whether its guest is: it yields whatever that does
    :param sent: what the kernel was told last; None: it may have forgotten
    """

    law: pace.Law
    how: copies_module.Pace
    counters: tuple[str, str]
    migrating: bool = False
    sent: copies_module.Step | None = None
    speed: copies_module.Speed = copies_module.Speed.FULL


class Waker:
    """Prompts the kernel to go on with copies, each at its pace.

    The kernel starts copying regions only while no guest I/O is in flight.
    If there is some when the last region under way is done, it checks again
    up to a second later (COMMIT_PERIOD in drivers/md/dm-clone-target.c), and
    a guest that does nothing but a few synchronous writes slows the copy to a
    twentieth. A message makes it check at once.

    A message says how many regions may be in flight, too: that is how a
    copy is slowed. It never lets the kernel copy what is held back, which is
    another message; see :meth:`.storage.Clones.set_hydration`.

    :param look: ``look({shadow id: counters})`` says what of them the kernel
        has counted; what can't be seen is left out
    :param send: ``send({shadow id: step})`` sends it to clones; returns the
        ids of those that are gone
    """

    def __init__(
            self,
            look: Callable[[Mapping[str, tuple[str, str]]],
                           dict[str, copies_module.Seen]],
            send: Callable[[Mapping[str, copies_module.Step]], list[str]],
            settings: copies_module.Settings):
        self._look = look
        self._send = send
        self._settings = settings
        self._copies: dict[str, _Copy] = {}
        self._budget = pace.Budget(settings.limit)
        self._prompted: float | None = None
        self._courtesy = pace.Courtesy()
        #: One for each that copies give way to; whether there was any since
        #: the last look.
        self._ahead: set[object] = set()
        self._was_ahead = False

    def watch(self, shadow_id: str, geometry: state.Geometry,
              extra_spec: str = '',
              counters: tuple[str, str] = ('', ''),
              migrating: bool = False) -> None:
        """A copy is under way; at each check, of which it may be the first.

        :param geometry: of its clone
        :param extra_spec: what the volume's type says of its pace
        :param counters: where the kernel counts what its guest does, and
            what is copied
        :param migrating: whether its guest is being live-migrated: the moment
            at which that stands still is no time to hurry
        """
        before = self._copies.get(shadow_id)
        law = before.law if before and before.counters == counters else (
            pace.Law(geometry))
        self._copies[shadow_id] = _Copy(
            law, self._settings.of(extra_spec), counters, migrating,
            # The clone may have been made again since.
            speed=before.speed if before else copies_module.Speed.FULL)

    def forget(self, shadow_id: str) -> None:
        """A copy is not under way any more."""
        self._copies.pop(shadow_id, None)

    def stands_still(self, shadow_id: str) -> bool:
        """Whether nothing of a copy is copied at this moment."""
        copy = self._copies.get(shadow_id)
        return copy is not None and copy.sent == copies_module.STANDSTILL

    def speed(self, shadow_id: str) -> str:
        """How fast a copy may go at this moment; '' if it may not."""
        copy = self._copies.get(shadow_id)
        return copy.speed.value if copy else ''

    @contextlib.contextmanager
    def give_way(self) -> Iterator[None]:
        """Somebody waits for what is done here: copies give way to it."""
        one = object()
        self._ahead.add(one)
        self._was_ahead = True
        try:
            yield
        finally:
            self._ahead.discard(one)

    def wake(self, now: float) -> bool:
        """Look at all copies that are under way, and prompt them.

        :param now: a monotonic time in seconds
        :returns: whether any of them is still there
        """
        copies = dict(self._copies)
        seen = self._look({shadow_id: copy.counters for shadow_id, copy
                           in copies.items() if copy.how
                           is not copies_module.Pace.FULL
                           or self._settings.limit})
        rooms = self._budget.spend({
            shadow_id: copy.law.take(seen.get(shadow_id), now)
            for shadow_id, copy in copies.items()}, now)
        waiting, self._was_ahead = self._was_ahead, bool(self._ahead)
        give_way = self._courtesy.take(waiting or self._was_ahead, now)
        steps = {}
        for shadow_id, copy in copies.items():
            way = (pace.GiveWay.SLOWING
                   if copy.migrating and give_way is pace.GiveWay.NO
                   else give_way)
            steps[shadow_id], copy.speed = copy.law.step(
                copy.how, now, rooms.get(shadow_id), way)
        self._tell(copies, steps, now)
        return bool(self._copies)

    def _tell(self, copies: dict[str, _Copy],
              steps: dict[str, copies_module.Step], now: float) -> None:
        """Tell the kernel what is new to it; and now and then all of it that
        is to go on.
        """
        again = self._prompted is None or now - self._prompted >= PROMPT
        if again:
            self._prompted = now
        steps = {shadow_id: step for shadow_id, step in steps.items()
                 if step != copies[shadow_id].sent
                 or again and step != copies_module.STANDSTILL}
        if steps:
            # Not known of any of them if this fails.
            for shadow_id in steps:
                copies[shadow_id].sent = None
            gone = self._send(steps)
            for shadow_id, step in steps.items():
                copies[shadow_id].sent = step
            for shadow_id in gone:
                self.forget(shadow_id)
