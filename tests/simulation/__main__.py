# SPDX-License-Identifier: Apache-2.0
"""``make simulate``: orders of events that nobody thought of, by seeds."""

import argparse
import functools
import os
import random
import sys
import time

from lab.core import install
from tests import simulation
from tests.simulation import workers

#: Seconds between two lines of progress.
EVERY = 10


def parser():
    """The parser of the command line."""
    top = argparse.ArgumentParser(
        prog='python3 -m tests.simulation', description='Runs several '
        'simulated nodes at the same time, in an order that a seed chooses, '
        'with faults, and checks what the driver promises.')
    top.add_argument('--seed', type=int, help='the first seed; by default '
                     'any')
    top.add_argument('--schedules', type=int, metavar='N',
                     help='how many, each with the next seed; with --seed '
                     'alone one, which is told in full')
    top.add_argument('--minutes', type=float, help='for so long; of '
                     'planted faults: each')
    top.add_argument('--workers', type=int, metavar='N',
                     help='processes; by default one for each processor')
    top.add_argument('--encrypted', action='store_true', help='the driver '
                     'encrypts all volumes')
    top.add_argument('--file', help='a schedule that was shortened')
    top.add_argument('--planted', metavar='REGEX', help='plant faults in the '
                     'driver, one by one, and count how many schedules it '
                     'takes to find each; --schedules: at most')
    return top


def again():
    """Run this in the environment of the unit tests."""
    python = os.path.join(install.unit_venv(print), 'bin', 'python')
    os.execve(python, [python, '-W', 'ignore', '-m', 'tests.simulation',
                       *sys.argv[1:]],
              {**os.environ, simulation.HERE: '1'})


class Progress:
    """Says how many schedules were run, and how fast.

    :param crew: that runs them
    """

    def __init__(self, first, crew):
        self.first = first
        self.crew = crew
        self.began = self.last = time.monotonic()

    def step(self):
        now = time.monotonic()
        if now - self.last > EVERY:
            self.last = now
            self.say()

    def say(self):
        count, seconds = self.crew.count, time.monotonic() - self.began
        print('%d schedules (all seeds from %d to %d) in %.0f s: %.0f a '
              'second, %.0f a second of processor time' % (
                  count, self.first, self.crew.below - 1, seconds,
                  count / max(seconds, .001),
                  count / max(self.crew.used, .001)), flush=True)


def outcome(seed, encrypts=False):
    """Return what is wrong with the schedule of a seed; '': nothing."""
    from tests.world import schedules
    try:
        _run(seed, encrypts)
    except schedules.Broken as exc:
        return str(exc)
    return ''


def _run(seed, encrypts=False):
    """Return the schedule of a seed and what has happened in it."""
    from tests.world import drawing
    from tests.world import scheduler
    from tests.world import schedules
    schedule = drawing.draw(seed, encrypts)
    return schedule, schedules.run(schedule, scheduler.Choices(
        seed, schedule.how))


def run(first, count, until, size, encrypts=False):
    """Run many schedules.

    :param until: time of :func:`time.monotonic`
    :param size: how many at a time
    :param encrypts: whether the driver encrypts the volumes
    :returns: the exit code
    """
    crew = workers.Crew(functools.partial(outcome, encrypts=encrypts), size)
    progress = Progress(first, crew)
    try:
        failure = crew.run(first, count, until, progress.step)
    except workers.Interrupted as exc:
        print(exc)
        return 128 + exc.number
    finally:
        progress.say()
    if failure:
        fail(failure, encrypts)
    return int(failure is not None)


def fail(failure, encrypts=False):
    """Shorten a schedule that fails, tell it."""
    from tests.world import drawing
    from tests.world import scheduler
    from tests.world import schedules
    from tests.world import shrinking
    print('\nSEED=%d fails: %s' % (failure.seed, failure.what), flush=True)
    if not failure.ended:
        return
    schedule = drawing.draw(failure.seed, encrypts)
    try:
        schedules.run(schedule, scheduler.Choices(
            failure.seed, schedule.how))
    except schedules.Broken as exc:
        error = exc
    else:
        print('it does not when it is run again: what it depends on is not '
              'all in its seed')
        return
    events, choices = len(schedule.events), len(schedule.taken)
    schedule, error = shrinking.Shrinker(schedule, error).shrink()
    print('shortened from %d events and %d choices to %d and %d: %s' % (
        events, choices, len(schedule.events), len(schedule.taken), error))
    tell(schedule, error.trace)


def tell(schedule, trace):
    from tests.world import shrinking
    print('\n'.join(['events:', *map(str, schedule.events), 'choices:',
                     *('  %s: %s' % (' '.join(map(str, key)), value)
                       for key, value in schedule.taken.items()),
                     'what happened:', *shrinking.told(trace),
                     'schedule:', shrinking.dump(schedule)]), flush=True)


def main(arguments):
    options = parser().parse_args(arguments)
    if not os.environ.get(simulation.HERE):
        again()
    import logging

    from tests.helpers import unit
    unit.prepare()  # before anything imports Cinder's modules
    from tests.world import schedules
    logging.disable(logging.CRITICAL)
    with schedules.fast():
        size = options.workers or workers.processors()
        if options.planted:
            return find_planted(options, size)
        if options.file:
            return run_file(options.file)
        seed = (random.SystemRandom().randrange(10 ** 9)
                if options.seed is None else options.seed)
        print('SEED=%d' % seed, flush=True)
        if options.seed is not None and not (
                options.schedules or options.minutes):
            return run_one(seed, options.encrypted)
        minutes = options.minutes or (10 ** 6 if options.schedules else 2)
        return run(seed, options.schedules or 10 ** 9,
                   time.monotonic() + 60 * minutes, size,
                   options.encrypted)


def find_planted(options, size):
    """Plant faults, and run schedules until one finds each."""
    from tests.simulation import planted
    try:
        return planted.main(options, functools.partial(
            outcome, encrypts=options.encrypted), size)
    except workers.Interrupted as exc:
        print(exc)
        return 128 + exc.number


def run_file(path):
    """Run a schedule that was shortened, tell it."""
    from tests.world import schedules
    from tests.world import shrinking
    with open(path) as file:
        schedule = shrinking.load(file.read())
    try:
        trace = schedules.run(schedule)
    except schedules.Broken as exc:
        print('fails: %s' % exc)
        tell(schedule, exc.trace)
        return 1
    tell(schedule, trace)
    return 0


def run_one(seed, encrypts=False):
    """Run the schedule of a seed, tell it."""
    what = outcome(seed, encrypts)
    if what:
        fail(workers.Failure(seed, what), encrypts)
        return 1
    tell(*_run(seed, encrypts))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
