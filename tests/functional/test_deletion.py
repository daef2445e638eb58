# SPDX-License-Identifier: Apache-2.0
"""What can't be deleted now is not lost, and can be deleted later."""

from lab.core import observe
from lab.core import process
from tests.functional import base


class GroupTest(base.LabTest):

    def group(self, *volumes):
        """A group of these volumes; its id."""
        admin = self.lab.cinder()
        kind = admin.post('/group_types', json={'group_type': {
            'name': 'of-one-test'}}).json()['group_type']['id']
        self.addCleanup(admin.delete, '/group_types/' + kind)
        row = self.row(volumes[0])
        group = self.demo.post('/groups', json={'group': {
            'group_type': kind, 'volume_types': [row['volume_type']]}}).json()[
                'group']['id']
        self.wait_group(group, 'available')
        observe.sql(self.lab, "UPDATE `groups` SET host = '%s' WHERE id = '%s'"
                    % (row['os-vol-host-attr:host'], group))
        self.demo.put('/groups/' + group, json={'group': {
            'add_volumes': ','.join(volumes)}}).raise_for_status()
        self.wait_group(group, 'available')
        return group

    def wait_group(self, group, status):
        """Wait for its status; None: until it is gone."""
        process.wait_for('group %s: %s' % (group, status), lambda: self.demo
                         .request('GET', '/groups/' + group).json().get(
                             'group', {}).get('status') == status, 90)

    def delete(self, group):
        self.demo.post('/groups/%s/action' % group, json={'delete': {
            'delete-volumes': True}}).raise_for_status()

    def test_one_of_its_volumes_is_in_use(self):
        """Cinder would remove the row of that one, too."""
        used, other = self.volume(), self.volume()
        group = self.group(used, other)
        path = '/dev/mapper/localclone-' + used
        holder = self.n1.popen('exec 9<%s; sleep 300' % path)
        process.wait_for('the holder', lambda: self.open_count(path), 30)
        self.delete(group)
        self.wait_group(group, 'error')
        self.assertEqual('available', self.row(used)['status'])
        self.assertIn('None of its data was removed', self.told(used))
        self.assertIn('volume-' + used, observe.volume_lvs(self.n1))
        holder.kill()
        process.wait_for('the holder to end',
                         lambda: not self.open_count(path), 60)
        self.delete(group)
        self.wait_group(group, None)
        observe.wait_deleted(self.lab, 60)
        self.assertEqual([], observe.volume_lvs(self.n1))

    def open_count(self, path):
        return int(self.n1.run('dmsetup info -c --noheadings -o open ' + path
                               ).stdout)
