# SPDX-License-Identifier: Apache-2.0
"""Flows and retries that run fast, for tests that run tens of thousands."""

import contextlib
import time
import typing
from unittest import mock

from taskflow import task
import tenacity


@contextlib.contextmanager
def plain():
    """Run flows without TaskFlow's engine, and retry without Tenacity's.

    Ten times as fast; other tests run the engines.
    """
    with (mock.patch('cinder_localclone.moves.flow.run', plain_run),
          mock.patch('taskflow.patterns.linear_flow.Flow', Flow),
          mock.patch.object(task.Task, '__init__',
                            _remembered(task.Task.__init__)),
          mock.patch.object(tenacity.Retrying, '__call__', _retry)):
        yield


def _remembered(init):
    """Make a step as one of the same class and name was made before.

    TaskFlow looks at the signatures of its methods for each, which takes
    most of the time of a flow.
    """
    made = {}

    def __init__(self, name=None):
        kind = type(self)
        key = kind, kind.execute, kind.revert, name
        if key not in made:
            before = set(vars(self))
            init(self, name)
            made[key] = {each: value for each, value in vars(self).items()
                         if each not in before}
        vars(self).update(made[key])
    return __init__


class Flow:
    """What :func:`plain_run` needs of a linear flow."""

    def __init__(self, name):
        self.name = name
        self.steps = []

    def add(self, *steps):
        self.steps += steps
        return self


def plain_run(flow, **store):
    """What ``flow.run`` does, without TaskFlow's engine."""
    done = []
    try:
        for step in flow.steps:
            result = step.execute(**{
                argument: store[name]
                for argument, name in step.rebind.items()})
            done.append((step, result))
            store.update(
                (name, result if index is None else result[index])
                for name, index in step.save_as.items())
    except Exception:
        for step, result in reversed(done):
            step.revert(result=result, **store)
        raise
    return store


class _Attempts:
    """What Tenacity's conditions look at: a call that is made, and its end.

    :ivar error: what it has raised last; None: it has returned a value
    """

    value: typing.Any = None
    error: typing.Any = None
    seconds_since_start = 0.0
    attempt_number = 0
    failed = property(lambda self: self.error is not None)
    outcome = property(lambda self: self)

    def exception(self):
        return self.error

    def result(self):
        if self.error is not None:
            raise self.error
        return self.value


def _retry(retrying, act, *args, **kwargs):
    """What a ``tenacity.Retrying`` does that is called."""
    began, made = time.monotonic(), _Attempts()
    while True:
        made.attempt_number += 1
        try:
            made.value, made.error = act(*args, **kwargs), None
        except BaseException as exc:
            made.value, made.error = None, exc
        if not retrying.retry(made):
            return made.result()
        made.seconds_since_start = time.monotonic() - began
        seconds = retrying.wait(made)
        if retrying.stop(made):
            if retrying.retry_error_callback:
                return retrying.retry_error_callback(made)
            if retrying.reraise:
                return made.result()
            raise tenacity.RetryError(made)
        retrying.sleep(seconds)
