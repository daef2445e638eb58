# SPDX-License-Identifier: Apache-2.0
"""``make simulate``: orders of events that nobody thought of, by seeds."""

import argparse
import os
import random
import sys
import time

from lab.core import install

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
              {**os.environ, 'LOCALCLONE_SIMULATION': '1'})


class Progress:
    """Says how many schedules were run, and how fast."""

    def __init__(self, first):
        self.first = first
        self.began = self.last = time.perf_counter()
        self.count = 0

    def step(self):
        self.count += 1
        now = time.perf_counter()
        if now - self.last > EVERY:
            self.last = now
            self.say()

    def say(self):
        seconds = time.perf_counter() - self.began
        print('%d schedules (seeds %d to %d) in %.0f s: %.0f a second, %.0f '
              'a second of processor time' % (
                  self.count, self.first, self.first + self.count - 1,
                  seconds, self.count / max(seconds, .001),
                  self.count / time.process_time()), flush=True)


def fail(seed, schedule, exc):
    """Shorten a schedule, tell it."""
    from tests.unit.world import shrinking
    print('\nSEED=%d fails: %s' % (seed, exc))
    events, choices = len(schedule.events), len(schedule.taken)
    schedule, exc = shrinking.Shrinker(schedule, exc).shrink()
    print('shortened from %d events and %d choices to %d and %d: %s' % (
        events, choices, len(schedule.events), len(schedule.taken), exc))
    tell(schedule, exc.trace)


def tell(schedule, trace):
    from tests.unit.world import shrinking
    print('\n'.join(['events:', *map(str, schedule.events), 'choices:',
                     *('  %s: %s' % (' '.join(map(str, key)), value)
                       for key, value in schedule.taken.items()),
                     'what happened:', *shrinking.told(trace),
                     'schedule:', shrinking.dump(schedule)]), flush=True)


def main(arguments):
    options = parser().parse_args(arguments)
    if not os.environ.get('LOCALCLONE_SIMULATION'):
        again()
    import logging

    import tests.unit  # noqa: F401 (registers Cinder's objects)
    from tests.unit.world import scheduler
    from tests.unit.world import schedules
    from tests.unit.world import shrinking
    from tests.unit.world import workload
    logging.disable(logging.CRITICAL)
    with schedules.fast():
        if options.planted:
            from tests.simulation import planted
            return planted.main(options)
        if options.file:
            with open(options.file) as file:
                schedule = shrinking.load(file.read())
            try:
                trace = schedules.run(schedule)
            except schedules.Broken as exc:
                print('fails: %s' % exc)
                tell(schedule, exc.trace)
                return 1
            tell(schedule, trace)
            return 0
        seed = (random.SystemRandom().randrange(10 ** 9)
                if options.seed is None else options.seed)
        count = options.schedules or (
            1 if options.seed is not None and not options.minutes
            else 10 ** 9)
        until = time.perf_counter() + 60 * (options.minutes or (
            2 if options.schedules is None and options.seed is None
            else 10 ** 6))
        print('SEED=%d' % seed, flush=True)
        progress = Progress(seed)
        for each in range(seed, seed + count):
            schedule = workload.draw(each)
            try:
                trace = schedules.run(schedule, scheduler.Choices(
                    each, schedule.how))
            except schedules.Broken as exc:
                fail(each, schedule, exc)
                progress.step()
                progress.say()
                return 1
            progress.step()
            if time.perf_counter() > until:
                break
        if count == 1:
            tell(schedule, trace)
        progress.say()
        return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
