# SPDX-License-Identifier: Apache-2.0
"""Volumes that the driver encrypts: created, moved, deleted, given other
keys and ciphers.
"""

import functools

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.scenarios import encrypted_disk
from lab.scenarios import owners
from lab.scenarios.repeated import moves
from lab.scenarios.repeated import operation
from lab.scenarios import requests
from lab.scenarios import snapshot as snapshots


def _is_placed(row):
    """Whether a new volume has a node, or gets none."""
    return row['os-vol-host-attr:host'] or row['status'] == 'error'


class Beside(snapshots.Uncommitted):
    """An encrypted volume that is made on the node of another.

    :param environment: in which only one is placed at a time
    """

    def __init__(self, disk, environment, node):
        super().__init__(disk)
        self.environment = environment
        self.node = node

    def send(self):
        disk = self.disk
        with self.environment.draining:
            observe.take_volumes(disk.lab, self.node.name)
            try:
                made = requests.ask(disk.cinder.post('/volumes', json={
                    'volume': {
                        'size': 1, 'volume_type': encrypted_disk.TYPE,
                        'name': '%s %s' % (owners.BESIDE, disk.volume)}},
                )).json()['volume']['id']
                self.made = encrypted_disk.EncryptedDisk(disk.lab, made)
                process.wait_for('a node for it', lambda: _is_placed(
                    instances.row(disk.lab, made)), requests.ANSWERED)
            finally:
                observe.take_volumes(disk.lab)


class CreateEncrypted(operation.Making):
    """Created beside another, which is touched by nothing of it."""

    name = 'create encrypted'
    faults = operation.ONE_END
    full = False
    alike = 'new volumes'
    one_way = True
    _key = b''

    @functools.cached_property
    def request(self):
        return Beside(self.disk, self.environment, self.source)

    @property
    def keys(self):
        """Of what was created, which is deleted by now."""
        return {self._key} - {b''}

    def settle(self, lost_power):
        self.join()
        self._ensure()
        self._at_goal()
        uncommitted = self.uncommitted
        uncommitted.fill(self.source)
        uncommitted.verify(self.source)
        secrets = uncommitted.way.references(uncommitted.volume)
        if len(secrets) != 1:
            raise process.LabError('it has %d secrets' % len(secrets))
        self._key = uncommitted.key
        self.tidy()
        uncommitted.check_no_secret()


class MoveEncrypted(moves.Move):
    """As a move; the destination opens it before the source is let go."""

    name = 'move encrypted'
    like = moves.Move.name
    encrypted = True


class LiveMoveEncrypted(moves.LiveMove):
    """As a live move; for a while two nodes have it open."""

    name = 'live-move encrypted'
    like = moves.LiveMove.name
    encrypted = True


class DeleteEncrypted(operation.Deletion):
    """Deleted while nobody has it attached: its secret goes, too."""

    name = 'delete encrypted'
    faults = operation.ONE_END
    encrypted = True
    full = False
    keeps_source = False

    def settle(self, lost_power):
        self.join()
        self._wait_deleted()
        self._at_goal()
        requests.until('its secret to go', self.disk.check_no_secret, 60)


class OfKeyInUse(operation.Repeated):
    """What an operator asks on the other node while the guest writes."""

    faults = operation.ONE_END
    encrypted = True
    full = False
    #: In words, for whoever waits for it.
    what = ''

    def prepare(self):
        self._attach(self.source)
        self._begin_writing(self.source)

    def run(self):
        self._ask()

    def _ask(self):
        raise NotImplementedError()

    def _operator(self, *words):
        done = self.destination.operator('encryption', *words, timeout=200)
        if done.returncode:
            raise process.LabError('%s has failed: %s%s' % (
                self.what, done.stdout[-600:], done.stderr[-600:]))

    def forget_failure(self):
        self.join()
        self.error = None

    def settle(self, lost_power):
        self.join(250)
        if self.disk.runs_on is None:
            # However far it is: it opens, and all that was written is there.
            self._run_again(self.source)
        self._ask_in_turn(self.what, self._ask, 300)
        self._at_goal()
        self._check()
        self._prove(self.source)

    def _check(self):
        """:raises LabError: if its goal is not reached"""
        raise NotImplementedError()


class RotateEncrypted(OfKeyInUse):
    """Another key."""

    name = 'rotate encrypted'
    what = 'the rotation'
    _new = b''
    _is_done = False

    @property
    def keys(self):
        """The old one, and the new one."""
        return {self.disk.key, self._new} - {b''}

    def _ask(self):
        """Until it was done once: each rotates anew."""
        if not self._is_done:
            self._operator('rotate', self.disk.volume)
            self._is_done = True

    def _check(self):
        disk, node = self.disk, self.source
        self._new = disk.way.key(disk.volume)
        if not disk.opened_by(node, self._new):
            raise process.LabError('the new key does not open it')
        if self._new == disk.key or disk.opened_by(node, disk.key):
            raise process.LabError('the old key opens it still')


class Reencrypt(OfKeyInUse):
    """Another cipher."""

    name = 're-encrypt'
    what = 'the re-encryption'
    _CIPHER = 'serpent-xts-plain64'

    def _ask(self):
        """Until it has ended, or what does it is no longer there."""
        if self.disk.ciphers(self.source) != [self._CIPHER]:
            # A small volume has more than a few parts of this size.
            self._operator('reencrypt', self.disk.volume, '--cipher',
                           self._CIPHER, '--zone', '4', '--wait')

    def _check(self):
        disk, node = self.disk, self.source
        if not disk.opened_by(node, disk.way.key(disk.volume)):
            raise process.LabError('its key does not open it')
        if disk.ciphers(node) != [self._CIPHER]:
            raise process.LabError('it has not ended: %s' % disk.ciphers(
                node))
