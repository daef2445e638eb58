# SPDX-License-Identifier: Apache-2.0
"""Groups of one volume each, and their snapshots."""

from lab.core import observe
from lab.core import process
from lab.scenarios.once import operation
from lab.scenarios import requests
from lab.scenarios import snapshot as snapshots

#: The type of groups.
GROUP_TYPE = 'plain'
#: Seconds for what Cinder does with rows alone.
SHORT = 60


class Group:
    """A group with a volume, at that one's home.

    :param disk: the volume
    """

    def __init__(self, environment, disk):
        self.disk = disk
        self.cinder = disk.cinder
        kind, = [each['id'] for each in self.cinder.get(
            '/group_types').json()['group_types']
            if each['name'] == GROUP_TYPE]
        row = disk.row()
        self.id = requests.ask(self.cinder.post('/groups', json={'group': {
            'group_type': kind, 'volume_types': [row['volume_type']]}})
        ).json()['group']['id']
        self.wait()
        # The scheduler chooses any node; volumes are made in groups, mostly.
        observe.sql(environment.lab, "UPDATE `groups` SET host = '%s' WHERE "
                    "id = '%s'" % (row['os-vol-host-attr:host'], self.id))
        if environment.is_misled:
            # That would go to the former home, too, where Cinder's manager
            # leaves the group in status "updating".
            observe.sql(environment.lab, "UPDATE volumes SET group_id = '%s' "
                        "WHERE id = '%s'" % (self.id, disk.volume))
        else:
            self.update(add_volumes=disk.volume)

    def wait(self):
        """Wait until it can be used."""
        def ready():
            status = self.cinder.get('/groups/' + self.id).json()['group'][
                'status']
            if status == 'error':
                raise process.LabError('group %s: %s' % (self.id, status))
            return status == 'available'
        requests.wait('group %s' % self.id, ready, SHORT)

    def update(self, **how):
        """Change which volumes it has."""
        requests.ask(self.cinder.put('/groups/' + self.id,
                                     json={'group': how}))
        self.wait()

    def remove(self):
        """Delete it; its volume stays."""
        if self.disk.row()['group_id']:
            self.update(remove_volumes=self.disk.volume)
        requests.ask(self.cinder.post(
            '/groups/%s/action' % self.id,
            json={'delete': {'delete-volumes': False}}))
        requests.wait('group %s to go' % self.id, lambda: self.cinder.request(
            'GET', '/groups/' + self.id).status_code == 404, SHORT)
        self.disk.pinned = False


class GroupSnapshot(operation.Once):
    name = 'group snapshot'
    alone = True
    group = taken = None

    def ask(self):
        self.group = Group(self.environment, self.disk)
        self.image = self.disk.content()
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
            status = self.disk.cinder.get(
                '/group_snapshots/' + self.taken).json()['group_snapshot'][
                    'status']
            if status == 'error':
                raise requests.Refused('group snapshot: error')
            return status == 'available'
        requests.wait('the group snapshot', taken, seconds)

    def _prove(self):
        snapshot, = [each['id'] for each in self.disk.cinder.get(
            '/snapshots?volume_id=' + self.disk.volume).json()[
                'snapshots'] if self.place.snapshot is None or (
                    each['id'] != self.place.snapshot.id)]
        snapshots.Snapshot(self.disk, snapshot, self.image).verify(
            self.node(self.disk.home()))

    def clean(self):
        if self.taken:
            requests.ask(self.disk.cinder.delete(
                '/group_snapshots/' + self.taken))
            self.wait_gone('/group_snapshots/' + self.taken, SHORT)
        if self.group:
            self.group.remove()


OPERATIONS = (GroupSnapshot,)
