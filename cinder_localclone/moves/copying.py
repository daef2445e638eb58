# SPDX-License-Identifier: Apache-2.0
"""The copies to this node: their queue, pace and errors.

Sets the pace of copies, and wakes copies that guest I/O has put to sleep.
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

#: Seconds between two checks of the copies, and between two messages for the
#: kernel to go on with them. By itself the kernel checks only once a second
#: whether guest I/O is over. A guest's pauses are far shorter.
PROMPT = 0.05


class Copies:
    """The copies to a node, from sweep to sweep.

    The kernel copies only the clones enabled here.

    :param service: the service's own copies, if these are others: both share
        the memory of the comparison
    """

    def __init__(self, node: Node, service: 'Copies | None' = None):
        self._node = node
        self.comparison: refill.Comparison = refill.Comparison(
            node, service.comparison.memory if service else None)
        self._copies: dict[str, hydration.Copy] = {}
        #: Queue positions from the current sweep. Each is used only once.
        self._positions: dict[str, copies_module.Position] = {}
        self._running: set[str] = set()
        self._some_ended = False
        self.waker = Waker(node.clones.read_counters,
                           node.clones.wake_hydration,
                           node.pacing)

    def progress(self, move_id: str) -> copies_module.Progress | None:
        """Return the progress of a copy at its last check."""
        return self.all_progress().get(move_id)

    def all_progress(self) -> dict[str, copies_module.Progress]:
        """Return the progress of all copies by move record id."""
        return {move_id: dataclasses.replace(
            copy.progress, pace=self.waker.speed(move_id))
            for move_id, copy in list(self._copies.items())
            if copy.progress}

    def soonest_end(self) -> float | None:
        """Return the seconds until the first copy ends; None if unknown."""
        return min((each.seconds_left
                    for move_id, each in self.all_progress().items()
                    if not each.pause and each.seconds_left is not None
                    and not self.waker.stands_still(move_id)),
                   default=None)

    # -- the queue

    @contextlib.contextmanager
    def round(self, moves: Iterable[state.Move]) -> Iterator[None]:
        """Read the queue from the database once for a sweep of this node.

        :param moves: from and to this node
        """
        copied = {move.move_id for move in moves if move.committed
                  and move.destination == self._node.host
                  and move.phase is Phase.MIGRATING}
        for move_id in set(self._copies) - copied:  # for example deleted
            self._forget(move_id)
        if copied:
            positions = self._all_positions()
            self._running = {move_id for move_id, position
                             in positions.items() if position.may_run}
            self._positions = positions  # last: other threads use them up
        try:
            yield
        finally:
            self._positions = {}

    def only_waits(self, move: state.Move) -> bool:
        """Return whether a waiting copy needs nothing but its new position.

        Valid during a sweep. Without this, twenty waiting volumes would keep a
        node busy with checks. The next full sweep handles their other work.
        """
        position = self._positions.get(move.move_id)
        copy = self._copies.get(move.move_id)
        if not (position and position.number and copy and copy.position):
            return False
        copy.move_up(position.number)
        return True

    def take_next(self) -> list[copies_module.Entry]:
        """Return the copies to start on all nodes, if a copy here has ended.

        Call this at the end of a sweep: each end counts only once. Otherwise
        other nodes would start these copies at their own next sweep.
        """
        if not self._some_ended:
            return []
        self._some_ended = False
        positions = self._all_positions()
        found = [position.entry for position in positions.values()
                 if position.may_run
                 and position.entry.move_id not in self._running]
        self._positions = positions  # last: other threads use them up
        return found

    def _all_positions(self) -> dict[str, copies_module.Position]:
        entries = self._node.queue.copies(self._node.host)
        services = self._node.services.alive_by_host()
        dead = {host for entry in entries for host in entry.hosts
                if not services.get(host)}
        return copies_module.positions(entries, self._node.limits, dead)

    def _position(self, move_id: str) -> copies_module.Position | None:
        """Return the queue position of a copy; None if it is not queued."""
        position = self._positions.pop(move_id, None)
        return position or self._all_positions().get(move_id)

    # -- a single copy; the caller holds the volume's lock

    def drive(self, move: state.Move, disk: str) -> bool:
        """Let the kernel copy, if the queue allows it and there is progress.

        :param move: committed, and in phase "migrating"
        :param disk: path of the source's disk
        :returns: whether the copy is complete
        """
        if not self.comparison.resume(move):
            self.note_failed_check(move)
            return False
        status = self._node.clones.clone_status(move.move_id)
        position = None if status.finished else self._position(move.move_id)
        number = position.number if position else int(not status.finished)
        if status.mode == 'rw' and not (
                number or status.enabled or status.finished):
            holes.leave_out(self._node, move)
            status = self._node.clones.clone_status(move.move_id)
        copy = self._copies.setdefault(move.move_id, hydration.Copy())
        before = copy.position
        progress = copy.update(
            status, self._node.clones.completed_reads(disk), timeutils.now(),
            number)
        if not number or number != before:
            events.say(events.COPYING, volume=move.volume_id,
                       source=move.source, progress=progress)
        if status.mode != 'rw':
            events.say(events.CLONE_FAILED, volume=move.volume_id,
                       mode=status.mode)
        runs = not (number or progress.pause)
        if status.enabled != runs and self._node.clones.set_hydration(
                move.move_id, runs) and progress.pause:
            events.say(events.COPYING_FAILS, volume=move.volume_id,
                       seconds=progress.pause)
        if runs and not status.finished:
            self.waker.watch(move.move_id, move.geometry,
                             position.entry.pace if position else '',
                             self._node.clones.device_numbers(move),
                             bool(position and position.entry.migrating))
        else:
            self.waker.forget(move.move_id)
        if position:
            self._note(move, position.entry.stalled, copy.stall.is_stalled(
                status.hydrated, timeutils.now()))
        return status.finished

    def ensure_whole(self, move: state.Move) -> bool:
        """Compare a complete copy with its source, and copy lost blocks again.

        :returns: False if the comparison is not possible now
        :raises LocalCloneError: as :meth:`.refill.Comparison.ensure_whole`
        """
        whole = self.comparison.ensure_whole(move)
        if not whole:
            self.note_failed_check(move)
        return whole

    def note_failed_check(self, move: state.Move) -> None:
        """Note an error of a copy; stop it if the queue does not let it run.

        A copy goes on by itself if only its source was unreachable. So a copy
        which must wait is stopped here.
        """
        position = self._position(move.move_id)
        if not (position and position.may_run):
            self._forget(move.move_id)
            clone = names.clone(move.move_id)
            if clone in self._node.handles.devices([clone]):
                self._node.clones.set_hydration(move.move_id, False)
        else:
            copy = self._copies.setdefault(move.move_id, hydration.Copy())
            copy.clear_rate()
            self._note(move, position.entry.stalled, copy.stall.is_stalled(
                None, timeutils.now()))

    def _note(self, move: state.Move, noted: float, stalled: bool | None
              ) -> None:
        """Record in the queue, for all nodes, whether a copy makes progress.

        :param noted: the time in the present record; 0: it makes progress
        :param stalled: None: unknown
        """
        if stalled or (noted and stalled is False):
            self._node.queue.note_stalled(move, stalled)
        if stalled and not noted:
            events.say(events.STALLED, volume=move.volume_id,
                       source=move.source, seconds=hydration.STALLED)

    def ended(self, move_id: str) -> None:
        """Note the end of a complete copy."""
        self._forget(move_id)
        self._some_ended = True

    def _forget(self, move_id: str) -> None:
        self._copies.pop(move_id, None)
        self.waker.forget(move_id)


@dataclasses.dataclass
class _Copy:
    """A running copy.

    :param migrating: whether its guest is being live-migrated: the copy then
        always gives way
    :param sent: the last step sent to the kernel; None: the kernel may have
        forgotten it
    """

    law: pace.Law
    how: copies_module.Pace
    counters: tuple[str, str]
    migrating: bool = False
    sent: copies_module.Step | None = None
    speed: copies_module.Speed = copies_module.Speed.FULL


class Waker:
    """Prompts the kernel to go on with copies, each at its pace.

    The kernel starts to copy regions only without guest I/O in flight. If
    there is guest I/O at the end of the last region, the kernel checks again
    up to a second later (COMMIT_PERIOD in drivers/md/dm-clone-target.c). So a
    guest with only a few synchronous writes slows the copy to a twentieth. A
    message makes the kernel check at once.

    The message also sets the number of regions in flight, which slows a copy
    down. It never enables a paused copy; another message does, see
    :meth:`.storage.Clones.set_hydration`.

    :param ask: ``ask({move record id: counters})`` returns the kernel's
        counts; copies with unreadable counters are left out
    :param send: ``send({move record id: step})`` sends steps to clones;
        returns the ids without a clone
    """

    def __init__(
            self,
            ask: Callable[[Mapping[str, tuple[str, str]]],
                          dict[str, copies_module.Seen]],
            send: Callable[[Mapping[str, copies_module.Step]], list[str]],
            settings: copies_module.Settings):
        self._ask = ask
        self._send = send
        self._settings = settings
        self._copies: dict[str, _Copy] = {}
        self._budget = pace.Budget(settings.limit)
        self._prompted: float | None = None
        self._courtesy = pace.Courtesy()
        #: A token for each caller that copies give way to; whether there was
        #: any since the last check.
        self._ahead: set[object] = set()
        self._was_ahead = False

    def watch(self, move_id: str, geometry: state.Geometry,
              extra_spec: str = '',
              counters: tuple[str, str] = ('', ''),
              migrating: bool = False) -> None:
        """Watch a running copy; called at each of its checks.

        :param geometry: of its clone
        :param extra_spec: the pace in the volume's type
        :param counters: of the kernel, for the guest's I/O and for the copy
        :param migrating: whether its guest is being live-migrated: while such
            a guest is paused, the copy must not hurry
        """
        before = self._copies.get(move_id)
        law = before.law if before and before.counters == counters else (
            pace.Law(geometry))
        self._copies[move_id] = _Copy(
            law, self._settings.pace_for(extra_spec), counters, migrating,
            # The clone may have been made again since then.
            speed=before.speed if before else copies_module.Speed.FULL)

    def forget(self, move_id: str) -> None:
        """Stop watching a copy."""
        self._copies.pop(move_id, None)

    def stands_still(self, move_id: str) -> bool:
        """Return whether a copy is at standstill at this moment."""
        copy = self._copies.get(move_id)
        return copy is not None and copy.sent == copies_module.STANDSTILL

    def speed(self, move_id: str) -> str:
        """Return the present speed of a copy; '' if it does not run."""
        copy = self._copies.get(move_id)
        return copy.speed.value if copy else ''

    @contextlib.contextmanager
    def give_way(self) -> Iterator[None]:
        """Let copies give way while a caller waits for work of this node."""
        one = object()
        self._ahead.add(one)
        self._was_ahead = True
        try:
            yield
        finally:
            self._ahead.discard(one)

    def wake(self, now: float) -> bool:
        """Check all running copies, and prompt them.

        :param now: a monotonic time in seconds
        :returns: whether any of them still runs
        """
        copies = dict(self._copies)
        seen = self._ask({move_id: copy.counters for move_id, copy
                          in copies.items() if copy.how
                          is not copies_module.Pace.FULL
                          or self._settings.limit})
        unspent = self._budget.spend({
            move_id: copy.law.take(seen.get(move_id), now)
            for move_id, copy in copies.items()}, now)
        waiting, self._was_ahead = self._was_ahead, bool(self._ahead)
        give_way = self._courtesy.take(waiting or self._was_ahead, now)
        steps = {}
        for move_id, copy in copies.items():
            way = (pace.GiveWay.SLOWING
                   if copy.migrating and give_way is pace.GiveWay.NO
                   else give_way)
            steps[move_id], copy.speed = copy.law.step(
                copy.how, now, unspent.get(move_id), way)
        self._tell(copies, steps, now)
        return bool(self._copies)

    def _tell(self, copies: dict[str, _Copy],
              steps: dict[str, copies_module.Step], now: float) -> None:
        """Send new steps to the kernel, and sometimes all steps.

        Every :data:`PROMPT` seconds all steps are sent, except for a
        standstill, which needs no repeat.
        """
        again = self._prompted is None or now - self._prompted >= PROMPT
        if again:
            self._prompted = now
        steps = {move_id: step for move_id, step in steps.items()
                 if step != copies[move_id].sent
                 or again and step != copies_module.STANDSTILL}
        if steps:
            # All of them are unknown if this fails.
            for move_id in steps:
                copies[move_id].sent = None
            gone = self._send(steps)
            for move_id, step in steps.items():
                copies[move_id].sent = step
            for move_id in gone:
                self.forget(move_id)
