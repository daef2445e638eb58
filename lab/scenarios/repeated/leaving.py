# SPDX-License-Identifier: Apache-2.0
"""Moves that nobody attaches for: Cinder's migration, and a drain."""

import functools

from lab.core import process
from lab.scenarios.repeated import moves
from lab.scenarios.repeated import operation
from lab.scenarios import requests


class Migrate(operation.Requested):
    """To the other node, asked of Cinder; then it is used there."""

    name = 'migrate'
    like = moves.Move.name
    # As of a move, of which something may have to be rolled back.
    forget_failure = operation.Repeated.forget_failure

    @functools.cached_property
    def request(self):
        return requests.Migration(
            self.disk, self.destination.service_host + '#localclone')

    def _leave(self):
        requests.until('%s to go elsewhere' % self.disk.volume,
                       self._ask_for_it)

    def _ask_for_it(self):
        with self.environment.asking:
            self.request.ensure()

    def settle(self, lost_power):
        self.join()
        self._leave()
        self._attach(self.destination)
        self._begin_writing(self.destination)
        self._wait_moved()
        self._at_goal()
        self._prove(self.destination)


class Drain(Migrate):
    """Each volume's part of a drain; what is left the command itself does.

    One command has volumes moved away one after the other, so none could be
    held at its step beside another: here each is asked for by itself.
    """

    name = 'drain'
    alike = 'drain'
    one_way = True

    @functools.cached_property
    def request(self):
        return Departure(self.disk, self.environment, self.source,
                         self.destination)

    def _leave(self):
        with self.environment.draining:
            requests.until('%s to go elsewhere' % self.disk.volume,
                           self._drain, 400)

    def _drain(self):
        if not (self.request.has_ended() and self.request.is_there()):
            said = self.environment.drain(self.source, self.destination)
            if not self.request.is_there():
                raise process.LabError('drain: ' + said[-600:])


class Departure(requests.Migration):
    """A volume's part of a drain."""

    def __init__(self, disk, environment, source, destination):
        super().__init__(disk, destination.service_host)
        self.environment = environment
        self.source = source
        self.destination = destination

    def send(self):
        self.environment.move_away(self.disk, self.source, self.destination)
