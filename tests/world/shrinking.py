# SPDX-License-Identifier: Apache-2.0
"""Shortening a schedule that fails, and telling it to a person."""

import dataclasses
import itertools
import json
import re

from tests.world import drawing
from tests.world import schedules

#: How often a schedule is run again, at most.
RUNS = 600
#: What tells two failures of one kind apart.
_DETAILS = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}|volume [0-9a-f]{4}|"
                      r"'[^']*'|\[.*\]|\b[abc]@l|\bw\d+|\d+")


def kind(error):
    """Return what has failed, without whose."""
    return _DETAILS.sub('_', str(error))[:60]


class Shrinker:
    """Takes out of a schedule what its failure does not need.

    :param schedule: one that fails, run already
    :param error: what it fails with
    """

    def __init__(self, schedule, error, runs=RUNS):
        self.schedule = schedule
        self.error = error
        self._kind = kind(error)
        self._left = runs

    def shrink(self):
        """:returns: the shortest schedule found, what it fails with"""
        before = None
        while before != _size(self.schedule) and self._left > 0:
            before = _size(self.schedule)
            self._without('events', list(self.schedule.events))
            self._without('taken', list(self.schedule.taken.items()))
            self._simpler()
        return self.schedule, self.error

    def _try(self, **changes):
        if self._left <= 0:
            return False
        self._left -= 1
        found = dataclasses.replace(self.schedule, **changes)
        found.taken = dict(found.taken)
        try:
            schedules.run(found)
        except schedules.Broken as exc:
            if kind(exc) == self._kind:
                self.schedule, self.error = found, exc
                return True
        return False

    def _without(self, what, items):
        """Take out as many as possible, in chunks that get smaller."""
        size = len(items)
        while size:
            start = 0
            while start < len(items):
                rest = items[:start] + items[start + size:]
                if self._try(**{what: rest if what == 'events'
                                else dict(rest)}):
                    items = rest
                else:
                    start += size
            size //= 2

    def _simpler(self):
        """Fewer nodes and volumes; a power cut that loses all; no waits."""
        for what in ('hosts', 'volumes'):
            least = 2 if what == 'hosts' else 1
            if getattr(self.schedule, what) > least:
                self._try(**{what: least})
        for key, value in list(self.schedule.taken.items()):
            if key[-1] == 'fault' and len(value) == 3 and value[2]:
                self._try(taken={**self.schedule.taken,
                                 key: (*value[:2], 0)})
        for which, event in enumerate(self.schedule.events):
            earlier = self.schedule.events[which - 1].at if which else 0
            for at in (0, earlier):
                if at < event.at and self._try(events=[
                        dataclasses.replace(each, at=at)
                        if each is event else each
                        for each in self.schedule.events]):
                    break


def _size(schedule):
    return (len(schedule.events), len(schedule.taken), schedule.hosts,
            schedule.volumes, sum(each.at for each in schedule.events),
            sum(bool(value[2]) for key, value in schedule.taken.items()
                if key[-1] == 'fault' and len(value) == 3))


def told(trace):
    """Return what has happened, a line for what an actor does in a row."""
    lines = []
    for (_now, actor), found in itertools.groupby(
            trace, key=lambda each: (round(each[0], 1), each[1])):
        lines.append('%7.1f s  %s: %s' % (
            _now, actor or 'the clock', ', '.join(
                what for _at, _who, what in found)))
    return lines


def dump(schedule):
    """Return a schedule as text; :func:`load` reads it."""
    found = dataclasses.asdict(schedule)
    found['events'] = [dataclasses.astuple(each) for each in schedule.events]
    found['taken'] = [[list(key), value] for key, value
                      in schedule.taken.items()]
    return json.dumps(found)


def load(text):
    """:raises ValueError: if it is none"""
    found = json.loads(text)
    found['events'] = [drawing.Event(*each) for each in found['events']]
    found['taken'] = {tuple(key): tuple(value) if isinstance(value, list)
                      else value for key, value in found['taken']}
    return drawing.Schedule(**found)
