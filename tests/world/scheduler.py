# SPDX-License-Identifier: Apache-2.0
"""Who acts next in the simulated world, by a seed.

Each request, sweep, peer's call and guest is an actor: a greenlet that gives
the baton away before and after its effects. One generator of random numbers
makes all choices. A choice other than the plain one (go on, nothing fails) is
recorded under the name of the actor that met it and a number, so that a
schedule stays the same where events, or other choices, are taken out of it.

Time is simulated: it stands still while anybody can act.
"""

import collections
import contextlib
import datetime
import random
import time
import typing
from unittest import mock
import uuid

import greenlet

from cinder_localclone.core import exceptions


#: When a run begins, in seconds since the epoch.
EPOCH = 1e9


def moment(seconds):
    """Return a moment as the database has it."""
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).replace(tzinfo=None)


#: Errors of the code itself, or of a call to it: never an answer to a fault.
MISTAKES = AttributeError, NameError, NotImplementedError, TypeError


class Gone(greenlet.GreenletExit):
    """The process of an actor is gone.

    Unlike :class:`.effects.Stopped` no handler of the driver catches it: a
    process that is gone runs no handler.
    """


class Endless(Exception):
    """The actors have not come to an end within their steps."""


class Choices:
    """Chooses by a seed, and records what is not the plain choice.

    :param how: see :meth:`draw`
    """

    def __init__(self, seed, how):
        self._random = random.Random('choices %s' % seed)
        self.how = how
        self.taken = {}
        self._troubles = frozenset(how['troubles'])
        #: What may fail of some faults: by what those are.
        self._possible = {}
        #: How often a moment that counts was met, by its name.
        self._met: collections.Counter[str] = collections.Counter()
        #: The numbers of the moments at which something fails: of all, and
        #: of those that count; how many there were.
        self._at = {self._random.randrange(how['within'])
                    for _each in range(how['faults'])}
        self._hot_at = {self._random.randrange(how['within'] // 4)
                        for _each in range(how['hot_faults'])}
        self._seen = self._hot_seen = 0
        #: How many moments are left of those at which nothing fails.
        self._calm = how['calm']

    @staticmethod
    def draw(random, troubles=()):
        """Return how choices are made: few preemptions or many, and so on.

        Faults are spread over the moments evenly, so that late ones are met
        as often as early ones; some of them over those that count: before
        and after what is recorded or flushed. And of those that count the
        first of each kind fails more often than the next. Many schedules
        are calm at first, so that there is something to disturb.

        :param troubles: the names of all that may fail
        """
        return {
            'troubles': troubles,
            'preempt': random.choice((0, .01, .03, .1, .3, .7)),
            'hot_preempt': random.choice((0, 0, .1, .4)),
            'slow': random.choice((0, 0, .003, .015)),
            'hot_slow': random.choice((0, 0, .03, .1)),
            'first': random.choice((0, 0, .03, .1)),
            'calm': random.choice((0, 0, 40, 100, 200)),
            'pct': random.random() < .4,
            'faults': random.choice((0, 0, 0, 1, 2)),
            'hot_faults': random.choice((0, 0, 0, 1, 2)),
            'within': random.choice((40, 120, 250, 500)),
            'message_rate': random.choice((0, 0, .03, .15)),
            'jump': random.choice((0, 0, .02, .1))}

    def priority(self, _key):
        return self._random.random()

    def next(self, key, current, others, hot=False):
        """Return which actor goes on.

        :param current: the one that acts; None if it can't go on
        :param others: a function that gives the others that can
        :param hot: whether this is a moment that counts
        """
        rate = self.how['preempt'] if current else 1
        drop = rate / 4
        if hot:
            rate, drop = (max(each, self.how['hot_preempt'])
                          for each in (rate, drop))
        if not (self.how['pct'] or self._random.random() < rate):
            return current
        others = others()
        if not others:
            return current
        if self.how['pct']:
            best = max(others, key=lambda each: each.priority)
            if current and self._random.random() < drop:
                current.priority = -self._random.random()
            if current and current.priority >= best.priority:
                return current
            found = best
        else:
            found = self._random.choice(others)
        if current or found is not others[0]:
            self.taken[key + ('next',)] = found.name
        return found

    def jumps(self, key):
        found = self._random.random() < self.how['jump']
        if found:
            self.taken[key + ('jump',)] = True
        return found

    def slow(self, key, hot):
        """Return for how many seconds whoever acts does nothing; or None.

        :param hot: whether this is a moment that counts
        """
        rate = self.how['hot_slow' if hot else 'slow']
        if not rate or self._random.random() > rate:
            return None
        found = self._random.choice((1, 2, 5, 10, 25))
        self.taken[key + ('slow',)] = found
        return found

    def fault(self, key, faults, hot='', weight=1):
        """Return one of some faults, with its details, or None.

        :param faults: functions of a generator, by name
        :param hot: the name of a moment that counts; '': it does not
        :param weight: how much more than others
        """
        possible = self._possible.get(id(faults))
        if possible is None:
            possible = self._possible[id(faults)] = sorted(
                self._troubles.intersection(faults))
        if not possible:
            return None
        self._calm -= 1
        if self._calm >= 0:
            return None
        now = self._seen in self._at
        self._seen += 1
        if hot:
            now = now or self._hot_seen in self._hot_at
            self._hot_seen += 1
            self._met[hot] += 1
            now = now or (self._random.random() * self._met[hot]
                          < self.how['first'] * weight)
        if not now:
            return None
        name = self._random.choice(possible)
        self.taken[key + ('fault',)] = name, *faults[name](self._random)
        return self.taken[key + ('fault',)]

    def fate(self, key, fates, often=()):
        """Return what becomes of a message; None: it arrives, once.

        :param fates: as the faults of :meth:`fault`
        :param often: which of them come more often
        """
        if self._random.random() > self.how['message_rate']:
            return None
        name = self._random.choice([*sorted(fates), *often])
        self.taken[key + ('fate',)] = name, *fates[name](self._random)
        return self.taken[key + ('fate',)]


class Recorded:
    """The choices of a schedule that was recorded."""

    def __init__(self, taken):
        self.taken = taken

    def priority(self, _key):
        return 0

    def next(self, key, current, others, hot=False):
        name = self.taken.get(key + ('next',))
        if name is None and current:
            return current
        others = others()
        return next((each for each in others if each.name == name),
                    current or (others[0] if others else None))

    def jumps(self, key):
        return self.taken.get(key + ('jump',), False)

    def slow(self, key, hot):
        return self.taken.get(key + ('slow',))

    def fault(self, key, faults, hot='', weight=1):
        found = self.taken.get(key + ('fault',))
        return found if found and found[0] in faults else None

    def fate(self, key, fates, _often=()):
        found = self.taken.get(key + ('fate',))
        return found if found and found[0] in fates else None


class Actor:
    """One line of work, which waits for the baton.

    :param alive: whether its process is; None: it is nobody's
    """

    def __init__(self, scheduler, name, act, alive, at):
        self.scheduler = scheduler
        self.name = name
        self.act = act
        self.alive = alive
        self.count = 0
        #: When it can go on, or whatever is said by this.
        self.until = at
        self.ready = None
        self.begun = self.ended = False
        #: Whether it waits for what others may never do.
        self.parked = False
        self.result = self.error = None
        #: The locks that it holds: (node, name). Whether it is a look.
        self.held = []
        self.looks = False
        self.priority = scheduler.choices.priority((name, 'priority'))
        self.greenlet: typing.Any = None

    def go_on(self):
        """Hand it the baton; return what it gives the baton away with."""
        if self.begun:
            return self.greenlet.switch()
        self.begun = True
        self.greenlet = _idle.pop() if _idle else greenlet.greenlet(_export)
        self.greenlet.parent = self.scheduler.hub
        return self.greenlet.switch(self)

    def run(self):
        try:
            self.result = self.act()
        except Gone as exc:
            self.error = exc
        except Exception as exc:
            self.error = exc
        self.ended = True

    @property
    def is_gone(self):
        return self.alive is not None and not self.alive()

    def key(self):
        self.count += 1
        return self.name, self.count


#: Greenlets without an actor. To begin one takes longer than most actors do.
_idle: list[greenlet.greenlet] = []


def _export(actor):
    """Be the greenlet of one actor after the other."""
    while True:
        actor.run()
        hub = actor.scheduler.hub
        actor = None  # nor what it knew of
        _idle.append(greenlet.getcurrent())
        actor = hub.switch(None)


class Process:
    """Says whether what began as a part of a node's service can go on."""

    def __init__(self, node):
        self.node = node
        self._life = node.life

    def __call__(self):
        return self.node.life is self._life


class Scheduler:
    """Hands the baton from actor to actor.

    :param choices: :class:`Choices` or :class:`Recorded`
    :param check: is called after each step, says what is wrong
    """

    STEPS = 30000

    def __init__(self, choices, check=lambda: ''):
        self.choices = choices
        self.check = check
        self.now = 0.0
        self.steps = 0
        self.actors = []
        self.current: typing.Any = None
        #: Who holds a lock: (node, name).
        self.locks = {}
        self.trace = []
        #: Nobody interrupts, nothing fails.
        self.quiet = False
        self._names: collections.Counter[str] = collections.Counter()
        self.hub = greenlet.getcurrent()

    def spawn(self, name, act, alive=None, after=0, steps=None):
        """Return a new actor, which begins some seconds from now.

        :param steps: or after so many of others, if that comes first
        """
        self._names[name] += 1
        if self._names[name] > 1:
            name = '%s.%d' % (name, self._names[name])
        actor = Actor(self, name, act, alive, self.now + after)
        if steps is not None:
            until = self.steps + steps
            actor.ready = lambda: self.steps >= until
        self.actors.append(actor)
        return actor

    def say(self, what):
        """Note an event."""
        self.trace.append((self.now, self.current.name if self.current
                           else '', what))

    def fail(self, exc):
        """End the run with an error that no actor can catch."""
        self.hub.throw(exc)

    # -- of actors

    def _can(self, actor):
        return (actor.until is not None and actor.until <= self.now
                or actor.ready is not None and actor.ready()
                or actor.alive is not None and not actor.alive())

    def _others(self):
        current = self.current
        return [each for each in self.actors
                if each is not current and self._can(each)]

    def dawdle(self, hot=False):
        """A moment at which whoever acts may be slow: at a command, say.

        :param hot: whether this is a moment that counts
        """
        if self.current is None or self.quiet:
            return
        seconds = self.choices.slow(self.current.key(), hot)
        if seconds:
            self.say('is slow: %d s' % seconds)
            self.wait(seconds)

    def turn(self, what='', hot=False):
        """A moment at which others may act; the actor may be gone then.

        :param hot: whether this is a moment that counts
        """
        current = self.current
        if current is None:
            return
        self.steps += 1
        if what:
            self.say(what)
        if self.steps > self.STEPS:
            self.fail(Endless('no end after %d steps' % self.steps))
        wrong = self.check()
        if wrong:
            self.fail(AssertionError(wrong))
        if not self.quiet:
            key = current.key()
            if self.choices.jumps(key):
                self._jump()
            found = self.choices.next(key, current, self._others, hot)
            if found is not current:
                current.until = self.now
                self._switch(found)
        if current.is_gone:
            raise Gone()

    def _jump(self):
        later = [each.until for each in self.actors if each.until is not None
                 and each.until > self.now]
        if later:
            self.now = min(later)
            self.say('the clock jumps')

    def wait(self, seconds=None, ready=None, parked=False):
        """Let others act for some seconds, or until something is ready.

        :param parked: a run ends though this waits still
        """
        current = self.current
        if current is None:
            raise AssertionError('nobody acts, and waits')
        if current.is_gone:
            raise Gone()
        current.until = None if seconds is None else self.now + seconds
        current.ready = ready
        current.parked = parked
        self.current = None
        self.hub.switch(current)
        current.ready, current.parked = None, False
        if current.is_gone:
            raise Gone()

    def _switch(self, actor):
        """Have another one go on, by way of the hub."""
        waiting, self.current = self.current, None
        self.hub.switch((waiting, actor))

    def run(self):
        """Run until all actors have ended, or are parked."""
        self.hub = greenlet.getcurrent()
        actor = None
        while self.actors:
            self._reap()
            if actor is None or actor.ended:
                actor = self._pick(actor)
            if actor is None:
                break
            self.current = actor
            actor.until = None
            if not actor.begun:
                actor.ready = None
            found = actor.go_on()
            self.current = None
            if actor.ended:
                self._end(actor)
            if isinstance(found, tuple):
                actor = found[1]
            elif isinstance(found, Actor):  # it waits
                actor = self._pick(found)
            wrong = self.check()
            if wrong:
                raise AssertionError(wrong)

    def _pick(self, before):
        ready = [each for each in self.actors if self._can(each)]
        if not ready:
            later = [each.until for each in self.actors
                     if each.until is not None]
            if not later and all(each.parked for each in self.actors):
                return None
            if not later:
                raise Endless('all wait for ever: %s' % [
                    each.name for each in self.actors])
            self.now = min(later)
            ready = [each for each in self.actors if self._can(each)]
        if self.quiet or len(ready) == 1 or before is None:
            return ready[0]
        return self.choices.next(before.key(), None, lambda: ready)

    def _end(self, actor):
        if actor in self.actors:
            self.actors.remove(actor)
        if actor.held and not isinstance(actor.error, Gone):
            raise AssertionError('%s ends and holds %s' % (
                actor.name, actor.held))
        for error in (actor.error, getattr(actor.error, '__cause__', None)):
            if isinstance(error, (AssertionError, *MISTAKES)):
                raise error

    def _reap(self):
        """End whatever is gone; it does nothing any more."""
        for actor in [each for each in self.actors
                      if each.alive is not None and not each.alive()]:
            if actor.begun:
                self.current = actor
                actor.greenlet.throw(Gone())
                self.current = None
            actor.ended = True
            actor.error = Gone()
            if actor in self.actors:
                self.actors.remove(actor)

    def close(self):
        """Nobody goes on: of a run that has failed."""
        for actor in self.actors:
            actor.alive = lambda: False
        self.check = lambda: ''
        for actor in self.actors[:]:
            if actor.begun and not actor.ended:
                self.current = actor
                with contextlib.suppress(BaseException):
                    actor.greenlet.throw(Gone())
        self.actors.clear()
        self.current = None

    # -- locks and time

    @contextlib.contextmanager
    def lock(self, host, name, seconds):
        """Hold a lock of a node; wait for it if need be.

        :raises Busy: if others hold it for too long
        """
        key, actor = (host, name), self.current
        if key in self.locks and seconds > 0:
            self.wait(seconds, lambda: key not in self.locks)
        if key in self.locks:
            raise exceptions.Busy(what=name, host=host, seconds=seconds)
        self.locks[key] = actor
        if actor:
            actor.held.append(key)
        try:
            yield
        finally:
            # A process that is gone holds none.
            if self.locks.get(key) is actor:
                del self.locks[key]
            if actor and key in actor.held:
                actor.held.remove(key)

    def drop_locks(self, host):
        """The process that holds them is gone."""
        for key, actor in list(self.locks.items()):
            if key[0] == host:
                del self.locks[key]

    def skew(self):
        """By how many seconds the clock of whoever acts is wrong."""
        alive = self.current.alive if self.current else None
        return alive.node.skew if isinstance(alive, Process) else 0

    def sleep(self, seconds):
        if self.current is None:
            self.now += seconds
            return
        self.say('sleeps %g s' % seconds)
        self.wait(seconds)


class Later:
    """A scheduler that is not there yet."""

    scheduler: typing.Any = None
    now = property(lambda self: self.scheduler.now if self.scheduler else 0.0)

    def wall(self):
        """What the clock of whoever acts says, in seconds since the epoch."""
        return EPOCH + self.now + (
            self.scheduler.skew() if self.scheduler else 0)

    def sleep(self, seconds):
        if self.scheduler:
            self.scheduler.sleep(seconds)


@contextlib.contextmanager
def patched(scheduler, seed):
    """Time and ids are the scheduler's; each node has a clock of its own."""
    ids = random.Random('ids %s' % seed)

    def new_id():
        return uuid.UUID(int=ids.getrandbits(128), version=4)
    with (mock.patch.object(time, 'monotonic', lambda: scheduler.now),
          mock.patch.object(time, 'time', scheduler.wall),
          mock.patch('oslo_utils.timeutils.utcnow', lambda *_args: moment(
              scheduler.wall())),
          mock.patch.object(time, 'sleep', scheduler.sleep),
          mock.patch.object(uuid, 'uuid4', new_id),
          mock.patch('oslo_utils.timeutils.now', lambda: scheduler.now)):
        yield
