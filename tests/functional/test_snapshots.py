# SPDX-License-Identifier: Apache-2.0
"""Snapshots, and volumes made of them, wherever their volume goes."""

import json

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import base

#: Reads a snapshot in a node as Cinder's backup service does.
_READER = '''
import hashlib, json, os, sys
from cinder.common import config
from cinder import context
from cinder import objects
from cinder import rpc
from cinder.volume import rpcapi
from cinder.volume import volume_utils
from oslo_config import cfg
path, snapshot, mib = sys.argv[1:]
cfg.CONF([], project='cinder', default_config_files=[path])
objects.register_all()
rpc.init(cfg.CONF)
admin = context.get_admin_context()
snapshot = objects.Snapshot.get_by_id(admin, snapshot)
api = rpcapi.VolumeAPI()
here = volume_utils.brick_get_connector_properties()
found = api.initialize_connection_snapshot(admin, snapshot, here)
brick = volume_utils.brick_get_connector(
    found['driver_volume_type'], conn=found, expect_raw_disk=True)
device = brick.connect_volume(found['data'])
with open(device['path'], 'rb') as data:
    digest = hashlib.sha256(data.read(int(mib) << 20)).hexdigest()
try:
    os.close(os.open(device['path'], os.O_WRONLY))
    written = os.system('dd if=/dev/zero of=%s bs=4096 count=1 oflag=direct '
                        'status=none' % device['path']) == 0
except OSError:
    written = False
brick.disconnect_volume(found['data'], device)
api.terminate_connection_snapshot(admin, snapshot, here, force=True)
api.remove_export_snapshot(admin, snapshot, sync=True)
print(json.dumps([found['driver_volume_type'], digest, written]))
'''
MIB = 32


class SnapshotTest(base.LabTest):

    def setUp(self):
        super().setUp()
        self.addCleanup(self.drop_snapshots)

    def drop_snapshots(self):
        """What a test that failed has left: else its volumes stay, too."""
        for snapshot in self.demo.get('/snapshots').json()['snapshots']:
            self.lab.cinder().post(
                '/snapshots/%s/action' % snapshot['id'],
                json={'os-reset_status': {'status': 'error'}})
            self.demo.delete('/snapshots/' + snapshot['id'])
        self.wait_dropped()

    def wait_dropped(self):
        process.wait_for('the snapshots to go', lambda: not self.demo.get(
            '/snapshots').json()['snapshots'], 60, every=0.5)

    def snapshot(self, volume, wait=True):
        """Ask for a snapshot of a volume; its id."""
        snapshot = self.demo.post('/snapshots', json={'snapshot': {
            'volume_id': volume}}).raise_for_status().json()['snapshot']['id']
        if wait:
            self.wait_snapshot(snapshot)
        return snapshot

    def status(self, snapshot):
        return self.demo.get('/snapshots/' + snapshot).json()['snapshot'][
            'status']

    def wait_snapshot(self, snapshot):
        def taken():
            status = self.status(snapshot)
            if status.startswith('error'):
                raise process.LabError('snapshot: ' + self.told(snapshot))
            return status == 'available'
        process.wait_for('the snapshot', taken, 60, every=0.5)

    def made(self, size=1, **image):
        """A volume that is made of an image; its id."""
        volume = self.demo.post('/volumes', json={'volume': dict({
            'size': size}, **image)}).raise_for_status().json()[
                'volume']['id']
        instances.wait_status(self.demo, volume, 'available')
        return volume

    def snapshot_lvs(self, node):
        return [name for name in node.run(
            'lvs --noheadings -o lv_name cinder-volumes').stdout.split()
            if name.startswith('_snapshot-')]

    def sum_of(self, volume, node, mib):
        """The checksum of what a volume has where nobody attached it."""
        return instances.checksum(
            node, '/dev/mapper/localclone-' + volume, mib)

    def tail(self, attached, skip=1024, mib=64):
        """Whether a volume has zeros from a place on."""
        return attached.node.run(
            'dd if=%s bs=1M skip=%d count=%d iflag=direct status=none '
            '| tr -d "\\0" | wc -c' % (attached.path, skip, mib),
            timeout=120).stdout.strip() == '0'

    def read(self, node, snapshot):
        """Read a snapshot as a backup does: how, its checksum, written?"""
        return json.loads(node.run(
            [self.lab.python, '-W', 'ignore', '-c', _READER,
             node.directory / 'localclone.conf', snapshot, str(MIB)],
            timeout=120).stdout)

    def test_life_of_a_snapshot(self):
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        before = self.fill(attached, MIB)
        snapshot = self.snapshot(volume)
        after = self.fill(attached, MIB)
        self.assertNotEqual(before, after)
        attached.detach()
        attached = self.instance.attach(volume, self.n2)
        # A volume is born beside its snapshot while that one's volume moves.
        uncommitted = self.made(2, snapshot_id=snapshot)
        self.assertEqual('node1', instances.home(self.lab, uncommitted))
        observe.wait_moved(self.lab, volume)
        self.assertEqual(after, self.checksum(attached, MIB))
        self.assertEqual([], observe.leftovers(self.n1, volume))
        self.assertEqual(['_snapshot-' + snapshot],
                         self.snapshot_lvs(self.n1))
        other = instances.Instance(self.lab).attach(uncommitted, self.n2)
        self.assertEqual(before, self.checksum(other, MIB))
        self.assertTrue(self.tail(other))
        other.detach()
        # A clone of a volume in use, at its home.
        clone = self.made(1, source_volid=volume)
        self.assertEqual('node2', instances.home(self.lab, clone))
        self.assertEqual(after, self.sum_of(clone, self.n2, MIB))
        attached.detach()
        self.assertEqual(['iscsi', before.split()[0], False],
                         self.read(self.n2, snapshot))
        observe.wait_moved(self.lab, uncommitted)
        for node in (self.n1, self.n2):
            self.assertEqual([], observe.leftovers(node, snapshot))
        # Reverted, the volume is where the snapshot is, and like it.
        self.act(volume, 'revert', self.demo,
                 snapshot_id=snapshot).raise_for_status()
        instances.wait_status(self.demo, volume, 'available')
        self.assertEqual('node1', instances.home(self.lab, volume))
        process.wait_for('the handle', lambda: not self.n1.run(
            'test -b /dev/mapper/localclone-' + volume,
            check=False).returncode, 90)
        self.assertEqual(before, self.sum_of(volume, self.n1, MIB))
        self.assertEqual([], observe.leftovers(self.n2, volume))
        self.assertEqual(1, len(observe.volume_lvs(self.n1)))
        attached = self.instance.attach(volume, self.n2)
        observe.wait_moved(self.lab, volume)
        self.assertEqual(before, self.checksum(attached, MIB))
        attached.detach()
        # Its node is down: it holds up nobody.
        self.n1.power_cut()
        self.demo.delete('/volumes/%s?cascade=true' % volume
                         ).raise_for_status()
        process.wait_for('the volume to go', lambda: volume not in [
            each['id'] for each in self.demo.get('/volumes').json()[
                'volumes']], 60, every=0.5)
        self.assertEqual([], self.demo.get('/snapshots').json()['snapshots'])
        self.n1.power_on()
        self.restart(self.n1, 'start')
        process.wait_for('its LV to go',
                         lambda: not self.snapshot_lvs(self.n1), 90)
        for each in (uncommitted, clone):
            self.demo.delete('/volumes/' + each).raise_for_status()
        observe.wait_deleted(self.lab)

    def test_volume_that_is_being_copied_at_length(self):
        volume, attached, expected = self.moving_volume()
        snapshot = self.snapshot(volume, wait=False)
        clone = self.demo.post('/volumes', json={'volume': {
            'size': 1, 'source_volid': volume}}).raise_for_status().json()[
                'volume']['id']
        self.wait_two_checks()
        self.assertEqual('creating', self.status(snapshot))
        self.brake()
        self.wait_snapshot(snapshot)
        self.assertEqual([], observe.move_records(self.lab))
        instances.wait_status(self.demo, clone, 'available')
        for each in (clone, self.made(1, snapshot_id=snapshot)):
            self.assertEqual('node2', instances.home(self.lab, each))
            self.assertEqual(expected, self.sum_of(
                each, self.n2, base.CHECKED))
        self.demo.delete('/snapshots/' + snapshot).raise_for_status()
        self.wait_dropped()
        self.assertEqual([], self.snapshot_lvs(self.n2))
