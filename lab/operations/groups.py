# SPDX-License-Identifier: Apache-2.0
"""Groups of one volume each, and their snapshots."""

from lab.core import look
from lab.core import process
from lab.operations import environment as environments
from lab.operations import operation
from lab.operations import stale
from lab.operations import subject as subjects

#: Seconds for what Cinder does with rows alone.
SHORT = 60


class Group:
    """A group with a volume, at that one's home.

    :param subject: the volume
    """

    def __init__(self, environment, subject):
        self.subject = subject
        self.cinder = subject.cinder
        kind, = [each['id'] for each in self.cinder.get(
            '/group_types').json()['group_types']
            if each['name'] == environments.GROUP_TYPE]
        row = subject.row()
        self.id = subjects.ask(self.cinder.post('/groups', json={'group': {
            'group_type': kind, 'volume_types': [row['volume_type']]}})
        ).json()['group']['id']
        self.wait()
        # The scheduler chooses any node; volumes are made in groups, mostly.
        look.sql(environment.lab, "UPDATE `groups` SET host = '%s' WHERE "
                 "id = '%s'" % (row['os-vol-host-attr:host'], self.id))
        if stale.is_on(environment.lab):
            # That would go to the former home, too, where Cinder's manager
            # leaves the group in status "updating".
            look.sql(environment.lab, "UPDATE volumes SET group_id = '%s' "
                     "WHERE id = '%s'" % (self.id, subject.volume))
        else:
            self.update(add_volumes=subject.volume)

    def wait(self):
        """Wait until it can be used."""
        def ready():
            status = self.cinder.get('/groups/' + self.id).json()['group'][
                'status']
            if status == 'error':
                raise process.LabError('group %s: %s' % (self.id, status))
            return status == 'available'
        subjects.wait('group %s' % self.id, ready, SHORT)

    def update(self, **how):
        """Change which volumes it has."""
        subjects.ask(self.cinder.put('/groups/' + self.id,
                                     json={'group': how}))
        self.wait()

    def remove(self):
        """Delete it; its volume stays."""
        if self.subject.row()['group_id']:
            self.update(remove_volumes=self.subject.volume)
        subjects.ask(self.cinder.post(
            '/groups/%s/action' % self.id,
            json={'delete': {'delete-volumes': False}}))
        subjects.wait('group %s to go' % self.id, lambda: self.cinder.request(
            'GET', '/groups/' + self.id).status_code == 404, SHORT)
        self.subject.pinned = False


class GroupSnapshot(operation.Operation):
    name = 'group snapshot'
    alone = True
    group = taken = None

    def ask(self):
        self.group = Group(self.environment, self.subject)
        self.image = self.subject.content()
        self.taken = self.post('/group_snapshots', {'group_snapshot': {
            'group_id': self.group.id}})['group_snapshot']['id']
        self._wait(self.seconds)
        self._prove()
        return 'works'

    def finish(self):
        self._wait(operation.AFTERWARDS)
        self._prove()

    def _wait(self, seconds):
        def taken():
            status = self.subject.cinder.get(
                '/group_snapshots/' + self.taken).json()['group_snapshot'][
                    'status']
            if status == 'error':
                raise subjects.Refused('group snapshot: error')
            return status == 'available'
        subjects.wait('the group snapshot', taken, seconds)

    def _prove(self):
        snapshot, = [each['id'] for each in self.subject.cinder.get(
            '/snapshots?volume_id=' + self.subject.volume).json()[
                'snapshots'] if each['id'] != self.subject.snapshot]
        self.subject.verify_snapshot(
            self.node(self.subject.home()), snapshot, self.image)

    def clean(self):
        if self.taken:
            subjects.ask(self.subject.cinder.delete(
                '/group_snapshots/' + self.taken))
            self.wait_gone('/group_snapshots/' + self.taken, SHORT)
        if self.group:
            self.group.remove()


OPERATIONS = (GroupSnapshot,)
