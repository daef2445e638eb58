# SPDX-License-Identifier: Apache-2.0
"""Operations on volumes encrypted by the driver, with faults."""

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
    """Return whether a new volume has a node, or will not get a node."""
    return row['os-vol-host-attr:host'] or row['status'] == 'error'


class Beside(snapshots.Uncommitted):
    """The creation of an encrypted volume on the node of another volume.

    :param environment: places one volume at a time
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
    """Create a volume beside another one, which must not change."""

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
        """The key of the created volume, which is deleted by now."""
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
    """Move; the destination opens the volume before the source is gone."""

    name = 'move encrypted'
    like = moves.Move.name
    encrypted = True


class LiveMoveEncrypted(moves.LiveMove):
    """Live move; for a while two nodes have the volume open."""

    name = 'live-move encrypted'
    like = moves.LiveMove.name
    encrypted = True


class DeleteEncrypted(operation.Deletion):
    """Delete a detached volume: its secret goes, too."""

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
    """An operator's request on the other node while the guest writes."""

    faults = operation.ONE_END
    encrypted = True
    full = False
    #: The name of the request, for errors.
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
            # The volume opens at any point, with all its data.
            self._run_again(self.source)
        self._ask_in_turn(self.what, self._ask, 300)
        self._at_goal()
        self._check()
        self._prove(self.source)

    def _check(self):
        """Check the result.

        :raises LabError: if it is wrong
        """
        raise NotImplementedError()


class RotateEncrypted(OfKeyInUse):
    """Rotate the key."""

    name = 'rotate encrypted'
    what = 'the rotation'
    _new = b''
    _is_done = False

    @property
    def keys(self):
        """The old and the new key."""
        return {self.disk.key, self._new} - {b''}

    def _ask(self):
        """Rotate once: a repeated request would rotate again."""
        if not self._is_done:
            self._operator('rotate', self.disk.volume)
            self._is_done = True

    def _check(self):
        disk, node = self.disk, self.source
        self._new = disk.way.key(disk.volume)
        if not disk.tokens_with_role(node, self._new):
            raise process.LabError('the new key does not open it')
        if self._new == disk.key or disk.tokens_with_role(node, disk.key):
            raise process.LabError('the old key opens it still')


class Reencrypt(OfKeyInUse):
    """Re-encrypt with another cipher."""

    name = 're-encrypt'
    what = 'the re-encryption'
    _CIPHER = 'serpent-xts-plain64'

    def _ask(self):
        """Re-encrypt, unless it is done already."""
        if self.disk.ciphers(self.source) != [self._CIPHER]:
            # Small zones: a small volume has several.
            self._operator('reencrypt', self.disk.volume, '--cipher',
                           self._CIPHER, '--zone', '4', '--wait')

    def _check(self):
        disk, node = self.disk, self.source
        if not disk.tokens_with_role(node, disk.way.key(disk.volume)):
            raise process.LabError('its key does not open it')
        if disk.ciphers(node) != [self._CIPHER]:
            raise process.LabError('it has not ended: %s' % disk.ciphers(
                node))
