# SPDX-License-Identifier: Apache-2.0
"""LVs that are made by hand, and LVs of volumes that are managed no more."""

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import base

GROUP, POOL = 'cinder-volumes', 'cinder-volumes-pool'
MIB = 32


class ManageTest(base.LabTest):

    def setUp(self):
        super().setUp()
        self.admin = self.lab.cinder()
        self.addCleanup(self.remove_leftovers)

    def remove_leftovers(self):
        """What nobody manages, of a test that failed; then snapshots."""
        for node in (self.n1, self.n2):
            node.run('dmsetup remove hold 2>/dev/null', check=False)
            for line in node.run('lvs --noheadings -o lv_name,lv_tags '
                                 + GROUP).stdout.splitlines():
                name, *tags = line.split()
                if not tags and name != POOL:
                    node.run('lvremove -f %s/%s' % (GROUP, name))
        for kind in ('snapshots', 'volumes'):
            for each in self.admin.get('/' + kind).json()[kind]:
                self.admin.delete('/%s/%s' % (kind, each['id']))
                self.wait_gone('/%s/%s' % (kind, each['id']))

    def lvs(self, node):
        """What LVM has, but for what is in use at the moment."""
        return node.run('lvs --noheadings --units b -o lv_name,lv_size,'
                        'lv_permissions,lv_tags ' + GROUP).stdout

    def listed(self, node, kind='volumes'):
        """What Cinder lists of a node, by name."""
        return {entry['reference']['source-name']: entry for entry in
                self.admin.get('/manageable_%s/detail?host=%s@localclone' % (
                    kind, node.name)).raise_for_status().json()[
                        'manageable-' + kind]}

    def manage(self, node, reference, status='available'):
        """Ask for a volume of an LV; its id."""
        volume = self.admin.post('/manageable_volumes', json={'volume': {
            'host': '%s@localclone' % node.name,
            'ref': reference, 'volume_type': 'localclone'}}
        ).raise_for_status().json()['volume']['id']
        instances.wait_status(self.admin, volume, status)
        return volume

    def wait_gone(self, path):
        process.wait_for('%s to go' % path, lambda: self.admin.request(
            'GET', path).status_code == 404, 60, every=0.5)

    def give(self, volume):
        """The operator gives a volume to a tenant."""
        transfer = self.admin.post('/volume-transfers', json={'transfer': {
            'volume_id': volume}}).raise_for_status().json()['transfer']
        self.demo.post('/volume-transfers/%s/accept' % transfer['id'], json={
            'accept': {'auth_key': transfer['auth_key']}}).raise_for_status()

    def unmanage(self, volume):
        self.act(volume, 'os-unmanage').raise_for_status()
        self.wait_gone('/volumes/' + volume)

    def bytes_of(self, node, lv):
        path = '/dev/%s/%s' % (GROUP, lv)
        node.run('lvchange -ay -K ' + path)
        return instances.checksum(node, path, MIB)

    def wait_snapshot(self, snapshot):
        def ready():
            status = self.admin.get('/snapshots/' + snapshot).json()[
                'snapshot']['status']
            if status.startswith('error'):
                raise process.LabError('the snapshot is in ' + status)
            return status == 'available'
        process.wait_for('the snapshot', ready, 60, every=0.5)

    def manage_snapshot(self, volume, reference):
        """Ask for a snapshot of a volume; its id."""
        snapshot = self.admin.post('/manageable_snapshots', json={'snapshot': {
            'volume_id': volume, 'ref': reference}}
        ).raise_for_status().json()['snapshot']['id']
        self.wait_snapshot(snapshot)
        return snapshot

    def unmanage_snapshot(self, snapshot):
        self.admin.post('/snapshots/%s/action' % snapshot, json={
            'os-unmanage': {}}).raise_for_status()
        self.wait_gone('/snapshots/' + snapshot)

    def test_life_of_an_lv(self):
        self.n1.run('lvcreate -qq -V 900m -T %s/%s -n by_hand' % (GROUP, POOL))
        instances.occupy(self.n1, '/dev/%s/by_hand' % GROUP, base.OCCUPIED)
        self.n1.run('dd if=/dev/urandom of=/dev/%s/by_hand bs=1M count=%d '
                    'oflag=direct status=none' % (GROUP, MIB))
        expected, before = self.bytes_of(self.n1, 'by_hand'), self.lvs(self.n1)
        # It is open.
        self.n1.run('dmsetup create hold --table "0 8 linear /dev/%s/by_hand '
                    '0"' % GROUP)
        found = self.listed(self.n1)['by_hand']
        self.assertEqual((1, False, 'it is open'), (
            found['size'], found['safe_to_manage'],
            found['reason_not_safe']))
        volume = self.manage(self.n1, {'source-name': 'by_hand'}, 'error')
        self.assertIn('cannot manage the named logical', str(
            self.admin.get('/messages').json()))
        self.admin.delete('/volumes/' + volume).raise_for_status()
        self.wait_gone('/volumes/' + volume)
        self.n1.run('dmsetup remove hold')
        self.assertEqual(before, self.lvs(self.n1))
        found = self.listed(self.n1)
        self.assertTrue(found['by_hand']['safe_to_manage'])
        self.assertNotIn(POOL, found)

        volume = self.manage(self.n1, {'source-name': 'by_hand'})
        row = self.row(volume)
        self.assertEqual((1, 'node1@localclone#localclone'), (
            row['size'], row['os-vol-host-attr:host']))
        self.assertRegex(self.lvs(self.n1), r'volume-%s +1073741824B' % volume)
        self.assertNotRegex(self.lvs(self.n1), r'(?m)^ *by_hand ')
        found = self.listed(self.n1)['volume-' + volume]
        self.assertEqual((volume, False), (found['cinder_id'],
                                           found['safe_to_manage']))
        self.give(volume)
        # It moves as any other; it can't be left meanwhile.
        self.brake(base.BRAKE)
        attached = self.instance.attach(volume, self.n2)
        self.assertEqual(expected, self.checksum(attached, MIB))
        attached.detach()
        lv, = observe.volume_lvs(self.n2)
        for node in (self.n1, self.n2):
            for entry in self.listed(node).values():
                self.assertFalse(entry['safe_to_manage'])
        self.act(volume, 'os-unmanage').raise_for_status()
        instances.wait_status(self.admin, volume, 'available')
        self.assertIn('in use, being moved', str(
            self.admin.get('/messages').json()))
        self.brake()
        observe.wait_moved(self.lab, volume)

        self.unmanage(volume)
        self.assertEqual([], observe.leftovers(self.n2, volume))
        self.assertRegex(self.lvs(self.n2),
                         r'(?m)%s +1073741824B +writeable *$' % lv)
        self.wait_two_checks()
        self.assertEqual(expected, self.bytes_of(self.n2, lv))
        found = self.listed(self.n2)[lv]
        self.assertEqual((True, None), (found['safe_to_manage'],
                                        found['cinder_id']))
        again = self.manage(self.n2, found['extra_info'])
        self.assertEqual(expected, self.bytes_of(self.n2, 'volume-' + again))
        self.snapshots(again, expected)

    def snapshots(self, volume, expected):
        """The same for its snapshots, on node2."""
        snapshot = self.admin.post('/snapshots', json={'snapshot': {
            'volume_id': volume}}).raise_for_status().json()['snapshot']['id']
        self.wait_snapshot(snapshot)
        lv = '_snapshot-' + snapshot
        self.assertEqual(snapshot, self.listed(self.n2, 'snapshots')[lv][
            'cinder_id'])
        self.unmanage_snapshot(snapshot)
        self.assertRegex(self.lvs(self.n2),
                         r'(?m)%s +1073741824B +read-only *$' % lv)
        found = self.listed(self.n2, 'snapshots')[lv]
        self.assertTrue(found['safe_to_manage'], found)
        again = self.manage_snapshot(volume, found['reference'])
        self.assertIn('_snapshot-%s ' % again, self.lvs(self.n2))
        uncommitted = self.admin.post('/volumes', json={'volume': {
            'size': 1, 'snapshot_id': again}}).raise_for_status().json()[
                'volume']['id']
        instances.wait_status(self.admin, uncommitted, 'available')
        self.assertEqual(expected,
                         self.bytes_of(self.n2, 'volume-' + uncommitted))
        # It stays when its volume leaves, and so does its LV.
        instances.Instance(self.lab, user='admin').attach(
            volume, self.n1).detach()
        observe.wait_moved(self.lab, volume)
        self.unmanage_snapshot(again)
        last = self.manage_snapshot(volume, {
            'source-name': '_snapshot-' + again})
        self.assertEqual(expected,
                         self.bytes_of(self.n2, '_snapshot-' + last))
        self.n2.run('lvchange -an %s/_snapshot-%s' % (GROUP, last))
