# SPDX-License-Identifier: Apache-2.0
"""Pacing copies, and waking those that the I/O of guests has put to sleep."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses

from cinder_localclone import pace
from cinder_localclone import state


@dataclasses.dataclass
class _Copy:
    """A copy that is under way.

    :param migrating: whether its guest is: it yields whatever that does
    :param sent: what the kernel was told last; None: it may have forgotten
    """

    law: pace.Law
    how: pace.Pace
    counters: tuple[str, str]
    migrating: bool = False
    sent: pace.Step | None = None
    speed: pace.Speed = pace.Speed.FULL


class Waker:
    """Prompts the kernel to go on with copies, each at its pace.

    The kernel starts copying regions only while no guest I/O is in flight.
    If there is some when the last region under way is done, it checks again
    up to a second later (COMMIT_PERIOD in drivers/md/dm-clone-target.c), and
    a guest that does nothing but a few synchronous writes slows the copy to a
    twentieth. A message makes it check at once.

    A message says how many regions may be in flight, too: that is how a
    copy is slowed. It never lets the kernel copy what is held back, which is
    another message; see :meth:`.ports.Stack.set_hydration`.

    :param look: ``look({shadow id: counters})`` says what of them the kernel
        has counted; what can't be seen is left out
    :param send: ``send({shadow id: step})`` sends it to clones; returns the
        ids of those that are gone
    """

    def __init__(
            self,
            look: Callable[[Mapping[str, tuple[str, str]]],
                           dict[str, pace.Seen]],
            send: Callable[[Mapping[str, pace.Step]], list[str]],
            settings: pace.Settings):
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
            pace.Law(geometry, self._settings.floor))
        self._copies[shadow_id] = _Copy(
            law, self._settings.of(extra_spec), counters, migrating,
            # The clone may have been made again since.
            speed=before.speed if before else pace.Speed.FULL)

    def forget(self, shadow_id: str) -> None:
        """A copy is not under way any more."""
        self._copies.pop(shadow_id, None)

    def stands_still(self, shadow_id: str) -> bool:
        """Whether nothing of a copy is copied at this moment."""
        copy = self._copies.get(shadow_id)
        return copy is not None and copy.sent == pace.STANDSTILL

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
        seen = self._look({
            shadow_id: copy.counters for shadow_id, copy in copies.items()
            if copy.how is not pace.Pace.FULL or self._settings.limit})
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

    def _tell(self, copies: dict[str, _Copy], steps: dict[str, pace.Step],
              now: float) -> None:
        """Tell the kernel what is new to it; and now and then all of it that
        is to go on.
        """
        prompt = self._settings.prompt
        again = bool(prompt) and (self._prompted is None
                                  or now - self._prompted >= prompt)
        if again:
            self._prompted = now
        steps = {shadow_id: step for shadow_id, step in steps.items()
                 if step != copies[shadow_id].sent
                 or again and step != pace.STANDSTILL}
        if steps:
            # Not known of any of them if this fails.
            for shadow_id in steps:
                copies[shadow_id].sent = None
            gone = self._send(steps)
            for shadow_id, step in steps.items():
                copies[shadow_id].sent = step
            for shadow_id in gone:
                self.forget(shadow_id)
