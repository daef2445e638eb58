# SPDX-License-Identifier: Apache-2.0
"""Schedules in several processes: one for each processor.

Seeds are handed out in their order, a few at a time. The schedule of a seed
depends on nothing that ran before it in its process, so the outcome is the
same however many processes there are: of the seeds that fail, the lowest.
"""

import collections
from collections.abc import Callable
import contextlib
import dataclasses
import faulthandler
import gc
import multiprocessing
from multiprocessing import connection
import os
import signal
import time
import typing

#: Seconds of processor time within which one schedule ends on the slowest of
#: machines.
PATIENCE = 300
#: How much longer it may take where other processes keep it waiting.
STARVED = 6
#: Seconds for a process to end that was told to.
GRACE = 10
#: Seeds that a process has ahead of it, so that it never waits.
AHEAD = 8
#: Schedules from one run of the garbage collector to the next.
COLLECT = 200
#: Seconds between two looks at whether a process hangs.
EVERY = 1
#: What ends a run: by a person, by a time limit, by a terminal that closes.
SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


class Interrupted(Exception):
    """A signal ends the run.

    :param number: of the signal
    """

    def __init__(self, number: int):
        super().__init__('interrupted by ' + signal.Signals(number).name)
        self.number = number


@dataclasses.dataclass(frozen=True)
class Failure:
    """What a seed has come to.

    :param ended: whether its schedule has, so that it can be run again
    """

    seed: int
    what: str
    ended: bool = True


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


class _Worker:
    """A process that runs schedules.

    :param act: see :class:`Crew`
    :param others: what the others hold of their pipes, which it closes
    """

    def __init__(self, act: Callable[[int], str],
                 others: list[connection.Connection]):
        context = multiprocessing.get_context('fork')
        self.pipe, its = context.Pipe()
        self.seeds: collections.deque[int] = collections.deque()
        self.used = 0.0
        self._process = context.Process(
            target=_work, args=(act, its, [*others, self.pipe]), daemon=True)
        self._process.start()
        its.close()
        self._begin()

    def _begin(self) -> None:
        """Note when it begins with the first of its seeds."""
        self._since, self._worked = time.monotonic(), self._work_time()

    def _work_time(self) -> float:
        """Return the processor time of the process, in seconds."""
        # Its clock: see clock_getcpuclockid(3) and CPUCLOCK_SCHED in Linux.
        try:
            return time.clock_gettime(
                ~typing.cast(int, self._process.pid) << 3 | 2)
        except OSError:
            return self.used  # it has ended

    def give(self, seeds: list[int]) -> None:
        if not self.seeds:
            self._begin()
        self.seeds.extend(seeds)
        with contextlib.suppress(BrokenPipeError):  # the next read tells
            self.pipe.send(seeds)

    def take(self) -> Failure | None:
        """Note that a schedule has ended, or the process before it did."""
        try:
            seed, what, self.used = self.pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(GRACE)
            code = self._process.exitcode or 0
            return Failure(self.seeds[0], 'its process ended before it did '
                           '(%s)' % (signal.Signals(-code).name if code < 0
                                     else 'exit code %d' % code), False)
        self.seeds.popleft()
        self._begin()
        return Failure(seed, what) if what else None

    def hangs(self, patience: float) -> Failure | None:
        """Say whether its schedule takes too long; it tells where it is.

        :param patience: seconds of processor time
        """
        if not self.seeds or (
                self._work_time() - self._worked < patience
                and time.monotonic() - self._since < STARVED * patience):
            return None
        os.kill(typing.cast(int, self._process.pid), signal.SIGUSR1)
        self._process.join(GRACE)
        return Failure(self.seeds[0], 'has not ended within %g s; where it '
                       'was is told above' % patience, False)

    def end(self) -> None:
        self.pipe.close()
        if self.seeds:
            self._process.kill()
        self._process.join(GRACE)


def _work(act: Callable[[int], str], pipe: connection.Connection,
          others: list[connection.Connection]) -> None:
    for each in others:
        each.close()  # so that the end of a pipe is seen
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, to all
    faulthandler.register(signal.SIGUSR1, chain=True)  # it ends, then
    # What was imported stays; what schedules leave is collected seldom.
    gc.freeze()
    gc.disable()
    count = 0
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            for seed in pipe.recv():
                pipe.send((seed, act(seed), time.process_time()))
                count += 1
                if count % COLLECT == 0:
                    gc.collect()


class Crew:
    """Runs schedules.

    :param act: runs the one of a seed; returns what is wrong, or nothing
    :param count: of processes
    :param patience: seconds of processor time for one schedule
    """

    def __init__(self, act: Callable[[int], str], count: int,
                 patience: float = PATIENCE):
        self.count = 0
        self._act = act
        self._size = count
        self._patience = patience
        self._workers: list[_Worker] = []
        self._next = 0

    @property
    def used(self) -> float:
        """The processor time of all, in seconds."""
        return time.process_time() + sum(each.used for each in self._workers)

    @property
    def below(self) -> int:
        """All seeds below this one have been run, from the first."""
        return min([self._next, *(each.seeds[0] for each in self._workers
                                  if each.seeds)])

    def run(self, first: int, most: int, until: float,
            progress: Callable[[], None] = lambda: None) -> Failure | None:
        """Run seeds in their order until one fails.

        :param most: how many
        :param until: time of :func:`time.monotonic` from which no other is
            begun
        :param progress: is called after each
        :returns: the lowest that fails; all below it were run
        :raises Interrupted: by a signal; no process is left
        """
        self._next = first
        before = {number: signal.signal(number, _interrupt)
                  for number in SIGNALS}
        try:
            for _each in range(min(self._size, most)):
                self._workers.append(_Worker(
                    self._act, [each.pipe for each in self._workers]))
            return self._run(first + most, until, progress)
        finally:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            for worker in self._workers:
                worker.end()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self, end: int, until: float,
             progress: Callable[[], None]) -> Failure | None:
        failure = None
        while True:
            if failure is None and time.monotonic() < until:
                self._hand_out(end)
            # Those that are at work on a seed above one that fails are done.
            busy = [each for each in self._workers if each.seeds and (
                failure is None or each.seeds[0] < failure.seed)]
            if not busy:
                return failure
            ready = connection.wait([each.pipe for each in busy], EVERY)
            for worker in busy:
                if worker.pipe in ready:
                    found = worker.take()
                    self.count += found is None or found.ended
                    progress()
                else:
                    found = worker.hangs(self._patience)
                if found and (failure is None or found.seed < failure.seed):
                    failure = found

    def _hand_out(self, end: int) -> None:
        for worker in self._workers:
            if len(worker.seeds) <= AHEAD // 2:
                seeds = list(range(self._next, min(
                    end, self._next + AHEAD - len(worker.seeds))))
                self._next += len(seeds)
                if seeds:
                    worker.give(seeds)


def _interrupt(number: int, _frame: object) -> None:
    raise Interrupted(number)
