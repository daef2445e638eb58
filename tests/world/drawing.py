# SPDX-License-Identifier: Apache-2.0
"""What a schedule consists of, drawn by its seed.

A schedule draws a few kinds of work and of trouble, and how often each comes
(swarm testing): so some do little but the same two things to one volume on
two nodes, over and over, where others mix all. Most events need what others
have brought about, so they come in rows that make sense.
"""

import dataclasses
import random as randoms

from tests.world import encrypted
from tests.world import instances
from tests.world import scheduler as schedulers
from tests.world import seeded
from tests.world import troubles

#: What is done in a row, and how often.
WORK = {
    ('attach', 'io'): 6, ('io',): 6, ('detach',): 2,
    ('detach', 'attach', 'io'): 6, ('live',): 1, ('finish', 'io'): 2,
    ('live', 'io', 'finish', 'io'): 6,
    ('live', 'finish', 'attach', 'lose source', 'boot', 'io'): 2,
    ('crash', 'boot', 'io'): 2, ('crash', 'detach', 'attach', 'io'): 1,
    ('evacuate', 'io'): 2, ('give up',): 1, ('give up', 'delete'): 1,
    ('copy', 'look'): 6, ('copy', 'look', 'look'): 4, ('look',): 3,
    ('node look',): 4, ('lose source', 'boot', 'io'): 4, ('fill', 'io'): 1,
    ('snapshot',): 3, ('snapshot', 'io', 'from snapshot'): 2,
    ('from snapshot',): 1, ('from snapshot', 'kill'): 2,
    ('delete snapshot',): 2, ('clone',): 4, ('clone', 'kill'): 2,
    ('create',): 1, ('delete',): 4, ('sweep',): 1,
    ('migrate',): 2, ('migrate', 'drain'): 2,
    ('migrate', 'attach', 'io'): 3, ('drain',): 2,
    ('drain', 'attach', 'io'): 3, ('extend',): 2, ('extend', 'io'): 2,
    ('extend', 'io', 'extend', 'io'): 2,
    ('retype',): 3, ('live', 'retype', 'finish', 'look'): 2,
    ('restart',): 1, ('detach', 'attach', 'restart'): 1, ('cut',): 2,
    ('kill',): 2}
#: What a schedule may begin with, so that there is something to disturb.
RUNNING = ('attach', 'io')
MOVED = (*RUNNING, 'detach', 'attach', 'io')
STARTING = (*RUNNING, 'live', 'io')
LIVE = (*STARTING, 'finish', 'io')
PASSED = (*MOVED, 'detach', 'attach', 'io', 'copy', 'copy', 'look', 'look',
          'io', 'node look', 'node look', 'io', 'look')
LOST = 'lose source', 'boot', 'io'
BEGINNINGS: tuple[tuple[str, ...], ...] = (
    (), RUNNING, MOVED, (*MOVED, *LOST), (*MOVED, 'copy', 'look'),
    STARTING, LIVE, (*LIVE, 'copy', 'look'),
    (*LIVE, 'copy', 'copy', 'look', 'look'),
    (*LIVE, 'attach', 'io', *LOST),
    (*STARTING, 'finish', 'look', 'finish', 'look'),
    (*RUNNING, 'crash', 'drain', 'boot', 'io'),
    PASSED, (*PASSED, *LOST), (*PASSED, 'look', 'live', 'look'),
    (*PASSED, 'look', 'node look', 'io'),
    (*MOVED, 'live', 'finish', 'io'),
    (*RUNNING, 'evacuate', 'io', 'attach', 'io', 'copy', 'io'),
    (*RUNNING, 'detach', 'attach', 'give up', 'delete'),
    (*RUNNING, 'detach', 'attach', 'kill', 'give up', 'delete'),
    (*RUNNING, 'snapshot', 'io', 'from snapshot', 'detach'),
    ('attach', 'detach', 'migrate'), ('drain', 'copy'),
    ('drain', 'attach', 'migrate', 'attach'))
#: Seconds by which the clock of a node is wrong.
SKEWS = (0, 0, 0, -3600, -7, 7, 3600)
#: Seconds from one event to the next: most at the same time, or not.
GAPS = ((0, 0, 0, 0, 0, 0, 0, 1, 6, 25, 70), (0, 0, 1, 1, 1, 6, 25),
        (0, 1, 1, 1, 1, 6))
#: How often something that may fail is among what does in a schedule.
SHARES = .2, .5, 1
#: Values of what tells an event which, where and how much.
VALUES = 6
#: Of what guests do there are more patterns.
PATTERNS = 1000


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that somebody does; whether it can is seen when it begins.

    :param number: the name of its actor, which stays when others are taken
        out
    :param at: when, seconds
    :param a: which volume, snapshot or node, of those that there are
    :param b: which node, or how much
    """

    number: int
    at: float
    kind: str
    a: int
    b: int

    def __str__(self):
        return '%5.1f s  #%d %s %d %d' % (
            self.at, self.number, self.kind, self.a, self.b)


@dataclasses.dataclass
class Schedule:
    """All that a run depends on."""

    seed: int
    how: dict
    hosts: int
    volumes: int
    pool: str | None
    events: list[Event]
    no_space: str = seeded.NO_SPACE[0]
    #: By how many seconds the nodes' clocks are wrong.
    skews: tuple = (0, 0, 0)
    #: Whether the driver encrypts the volumes.
    encrypted: bool = False
    #: Whether a guest runs on each volume's home from the beginning.
    running: bool = False
    taken: dict = dataclasses.field(default_factory=dict)


def draw(seed, encrypts=False):
    """Return the schedule of a seed; its choices are taken as it runs.

    :param encrypts: whether the driver encrypts the volumes
    """
    random = randoms.Random('events %s' % seed)
    begins, running = random.choice(BEGINNINGS), random.random() < .5
    if running and begins[:len(RUNNING)] == RUNNING:
        begins = begins[len(RUNNING):]
    kinds = [*begins, *_draw_work(random, _possible(encrypts), begins)]
    gaps, events, at = random.choice(GAPS), [], 0.0
    values = range(VALUES) if random.random() < .7 else random.sample(
        range(VALUES), 2)
    for number, kind in enumerate(kinds):
        at += random.choice(gaps)
        a, b = random.choice(values), random.choice(values)
        if kind == 'io':
            b += VALUES * random.randrange(PATTERNS)
        events.append(Event(number, at, kind, a, b))
    return Schedule(
        seed, schedulers.Choices.draw(random, _draw_troubles(random)),
        random.choice((2, 2, 3)), random.choice((1, 1, 1, 2)),
        'pool' if random.random() < (
            .9 if encrypted.COPIES.intersection(kinds) else .5) else None,
        events,
        random.choice(seeded.NO_SPACE),
        tuple(random.choice(SKEWS) for _each in instances.HOSTS), encrypts,
        running)


def _possible(encrypts):
    """Return what may be drawn of :data:`WORK`, and the same of encryption."""
    work = dict(WORK)
    if encrypts:
        work.update({(kind,): rate for kind, rate in (
            *encrypted.KINDS.items(), *encrypted.FORGES.items())})
    return work


def _draw_work(random, work, begins):
    """Draw a few kinds of work, and of these what is done in turn."""
    count = random.choice((1, 2, 3, 4, 6, len(work)))
    few = sorted(work, key=lambda each: random.random() ** (1 / work[each])
                 )[-count:]
    if encrypted.COPIES.intersection(
            kind for row in (*few, begins) for kind in row):
        few = [row for row in few if row != ('forge',)] or [('look',)]
    rates = [work[each] * random.choice((1, 1, 3)) for each in few]
    rows = random.choices(few, rates, k=random.choice((2, 3, 4, 6, 9)))
    return [kind for row in rows for kind in row]


def _draw_troubles(random):
    """Draw what may fail at all."""
    share = random.choice(SHARES)
    return [each for each in troubles.TROUBLES if random.random() < share]
