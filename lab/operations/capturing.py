# SPDX-License-Identifier: Apache-2.0
"""Snapshots, and volumes that are made of an image."""

from lab.operations import operation
from lab.operations.operation import must
from lab.operations import subject as subjects


class Snapshot(operation.Operation):
    name = 'snapshot'
    taken = None

    def ask(self):
        subject = self.subject
        subject.check_running()
        self.image = subject.content()
        self.taken = self.post('/snapshots', {'snapshot': {
            'volume_id': subject.volume}})['snapshot']['id']
        subject.wait_snapshot(self.taken, self.seconds)
        self._prove()
        return 'works'

    def _prove(self):
        self.subject.check_running()
        self.subject.verify_snapshot(self._where(), self.taken, self.image)

    def _where(self):
        """The node that has it; the volume may have gone on since."""
        return next(node for node in self.lab.nodes.values()
                    if node.is_on and not node.run(
                        'lvs cinder-volumes/_snapshot-%s' % self.taken,
                        check=False).returncode)

    def finish(self):
        self.subject.wait_snapshot(self.taken, operation.AFTERWARDS)
        self._prove()

    def clean(self):
        if self.taken:
            self.subject.drop_snapshot(self.taken)


class SnapshotInUse(Snapshot):
    name = 'snapshot in use'
    in_use = True


class DeleteSnapshot(operation.Operation):
    name = 'delete snapshot'
    snapshot = True
    alone = True

    def ask(self):
        subject = self.subject
        path = '/snapshots/' + subject.snapshot
        subjects.ask(subject.cinder.delete(path))
        self.wait_gone(path)
        node = subject.snapshot_at
        if node.is_on:
            must(node.run('lvs cinder-volumes/_snapshot-' + subject.snapshot,
                          check=False).returncode, 'its LV is there')
        return 'works'


class Birth(operation.Operation):
    """A volume that is made of an image, on the node that has it."""

    size = 1
    born = None

    def source(self):
        """What it is made of, for the API, and what that has."""
        raise NotImplementedError()

    def ask(self):
        image, self.content = self.source()
        self.born = self.post('/volumes', {'volume': dict(
            image, size=self.size)})['volume']['id']
        subjects.wait_volume(self.subject.cinder, self.born, self.seconds)
        self._prove()
        return 'works'

    def _prove(self):
        born = subjects.newborn(self.subject, self.born, self.size,
                                self.content)
        at = self.at()
        must(at is None or born.home() == at.name,
             'it was made on ' + born.home())

    def at(self):
        """The node that has the image; None: it may be any by now."""

    def finish(self):
        subjects.wait_volume(self.subject.cinder, self.born,
                             operation.AFTERWARDS)
        self._prove()

    def clean(self):
        if self.born:
            subjects.Subject(self.lab, self.born).remove()


class FromSnapshot(Birth):
    name = 'volume from snapshot'
    snapshot = True

    def source(self):
        return {'snapshot_id': self.subject.snapshot}, self.subject.image

    def at(self):
        return self.subject.snapshot_at


class LargerFromSnapshot(FromSnapshot):
    name = 'larger volume from snapshot'
    size = 2


class Clone(Birth):
    name = 'clone'

    def source(self):
        self.subject.check_running()
        return ({'source_volid': self.subject.volume},
                self.subject.content())


class Revert(operation.Operation):
    name = 'revert to snapshot'
    snapshot = True
    alone = True

    def ask(self):
        subject = self.subject
        before = self.environment.told()
        subject.act('revert', snapshot_id=subject.snapshot)
        subjects.wait('the end of it', lambda: subject.row()['status']
                      in ('available', 'error'), self.seconds)
        if self.environment.codes(before, subject.volume) or (
                subject.row()['status'] == 'error'):
            raise subjects.Refused('it is not reverted')
        subject.contains(subject.image)
        must(subject.home() == subject.snapshot_at.name,
             'it is at ' + subject.home())
        subject.verify_home()
        return 'works'


OPERATIONS = (Snapshot, SnapshotInUse, DeleteSnapshot, FromSnapshot,
              LargerFromSnapshot, Clone, Revert)
