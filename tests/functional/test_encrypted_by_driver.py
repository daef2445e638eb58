# SPDX-License-Identifier: Apache-2.0
"""Volumes encrypted by the driver, on real kernels with real Barbican."""

import signal

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import driver_encrypted as encrypted

GIB = encrypted.GIB


class LifeTest(encrypted.DriverTest):

    def test_life(self):
        volume = self.encrypted()
        self.assertEqual(1, len(self.secret_names(volume)))
        self.assertEqual(GIB + encrypted.HEADER,
                         self.lv_bytes(self.n1, volume))
        self.assertFalse(self.is_open(self.n1, volume))
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual('/dev/mapper/localclone-crypt-' + volume,
                         attached.path)
        self.assertIs(False, attached.data['encrypted'])
        self.assertEqual(GIB, self.bytes_of(attached))
        expected = self.mark(attached)
        self.assertTrue(self.has_mark(self.n1, attached.path))
        self.assert_ciphertext(self.n1)
        attached.detach()
        self.assertFalse(self.is_open(self.n1, volume))
        self.assertNotIn('localclone.opened', self.lv_tags(self.n1, volume))
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(expected, self.checksum(attached, encrypted.MARKED))
        attached.detach()
        self.demo.delete('/volumes/' + volume).raise_for_status()
        observe.wait_deleted(self.lab)
        self.assertEqual([], self.secret_names(volume))
        self.assertEqual([], observe.leftovers(self.n1, volume))


class KeyManagerTest(encrypted.DriverTest):
    """Requests while the key manager does not answer."""

    def test_away_at_length(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        writer = attached.start_writing()
        self.key_manager(False)
        # The open volume goes on; a new attach is refused.
        answer = self.instance.connect_live(
            volume, self.instance.connector(self.n2))
        self.assert_refused(volume, answer.status_code, self.told(volume))
        self.assertTrue(writer.running)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.drop_others(attached)
        attached.detach()
        for node in (self.n2, self.n1):
            text, told = self.refused(volume, node)
            self.assert_refused(volume, 500, told)
            self.assertFalse(self.is_open(node, volume))
        self.key_manager(True)
        self.attach_again(volume, self.n1, expected, writer)
        self.attach_again(volume, self.n2, expected, writer)
        self.wait_moved(volume)

    def test_hangs_at_length(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        attached.detach()
        plain = self.volume()
        self.addCleanup(self.hang, False)
        self.hang()
        for node in (self.n2, self.n1):
            _text, told = self.refused(volume, node)
            self.assert_refused(volume, 500, told)
        # Other volumes do not wait for it.
        self.instance.attach(plain, self.n1).detach()
        self.hang(False)
        self.attach_again(volume, self.n1, expected)

    def hang(self, yes=True):
        self.lab.processes.signal(
            'barbican', signal.SIGSTOP if yes else signal.SIGCONT)

    def attach_again(self, volume, node, expected, writer=None):
        def attach():
            try:
                return self.instance.attach(volume, node)
            except process.LabError:  # it was not asked again yet
                return None
        attached = process.wait_for('the key', attach, 60, every=3)
        self.assertEqual(expected, self.checksum(
            attached, encrypted.MARKED))
        if writer:
            self.assertIn(' 0 bad', attached.verify(writer.stdout))
        attached.detach()

    def assert_refused(self, volume, status, told):
        self.assertGreaterEqual(status, 400)
        self.assertIn('The key manager does not answer', told)
        process.wait_for('the shadow to go',
                         lambda: not observe.move_records(self.lab), 60)
        self.assertEqual('node1', instances.home(self.lab, volume))
        self.assertEqual([], observe.leftovers(self.n1, None))
        self.assertEqual([], observe.leftovers(self.n2, volume))
        self.assertEqual([], observe.volume_lvs(self.n2))

    def drop_others(self, attached):
        for each in self.instance.nova.get('/attachments').json()[
                'attachments']:
            if each['id'] != attached.id:
                self.instance.nova.delete('/attachments/' + each['id'])


class BootTest(encrypted.DriverTest):
    """The power cut of a node with volumes in use."""

    def setUp(self):
        super().setUp()
        self.volume_id = self.encrypted()
        self.attached = self.instance.attach(self.volume_id, self.n1)
        self.expected = self.mark(self.attached)
        self.plain = self.instance.attach(self.volume(), self.n1)
        self.expected_plain = self.fill(self.plain, 16)
        self.idle = self.encrypted()

    def boot(self):
        """Cut the power, boot, and run only restore."""
        self.n1.power_cut()
        self.n1.power_on()
        self.assertEqual(0, self.n1.operator('node', 'restore').returncode)
        self.assertEqual(self.expected_plain, self.checksum(self.plain, 16))
        self.assertFalse(self.is_open(self.n1, self.volume_id))

    def test_unlocked(self):
        self.boot()
        done = self.n1.operator('node', 'unlock')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('opened', done.stdout)
        self.assertIn(self.volume_id, done.stdout)
        self.assertNotIn(self.idle, done.stdout)
        self.assert_all_there()
        self.assertFalse(self.is_open(self.n1, self.idle))
        self.restart(self.n1, 'start')
        self.assert_all_there()
        self.attached.detach()
        self.assertFalse(self.is_open(self.n1, self.volume_id))
        # The next unlock skips a detached volume.
        self.boot()
        done = self.n1.operator('node', 'unlock')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertNotIn(self.volume_id, done.stdout)

    def test_key_manager_is_away_at_length(self):
        self.key_manager(False)
        self.boot()
        done = self.n1.operator('node', 'unlock', '--seconds', '20')
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn(self.volume_id, done.stdout)
        self.assertIn('locked', done.stdout)
        # The service starts, and other volumes are exported.
        self.restart(self.n1, 'start')
        self.lab.wait_for_services()
        other = instances.Instance(self.lab).attach(
            self.volume(node='node1'), self.n1)
        self.fill(other, 1)
        self.assertEqual(self.expected_plain, self.checksum(self.plain, 16))
        self.assertFalse(self.is_open(self.n1, self.volume_id))
        self.key_manager(True)
        process.wait_for('the volume to be opened', lambda: self.is_open(
            self.n1, self.volume_id), 120, every=1)
        self.assert_all_there()

    def test_opened_when_the_operator_says_so_at_length(self):
        self.n1.service('stop')
        self.n1.run('cryptsetup close --disable-locks localclone-crypt-'
                    + self.volume_id)
        for node, code, said in (
                (self.n2, 1, 'no attachment'), (self.n1, 0, 'opened'),
                (self.n1, 0, 'open')):
            done = node.operator('volume', 'unlock', self.volume_id)
            self.assertEqual(code, done.returncode, done.stderr)
            self.assertIn(said, done.stdout)
        self.assert_all_there()
        done = self.n1.operator('volume', 'unlock')
        self.assertNotIn(self.idle, done.stdout)
        self.restart(self.n1, 'start')
        self.lab.wait_for_services()
        self.assert_all_there()

    def assert_all_there(self):
        self.assertEqual(GIB, self.bytes_of(self.attached))
        self.assertEqual(self.expected, self.checksum(
            self.attached, encrypted.MARKED))


class CopiesTest(encrypted.DriverTest):

    def snapshot(self, volume):
        snapshot = instances.create_snapshot(self.demo, volume)
        self.addCleanup(self.drop, snapshot)
        return snapshot

    def drop(self, snapshot):
        self.demo.delete('/snapshots/' + snapshot)
        process.wait_for('the snapshot to go', lambda: self.demo.get(
            '/snapshots').json()['snapshots'] == [], 60, every=0.5)

    def read(self, volume, node, gib=1):
        """Return the checksum of a volume's beginning, as a guest reads it."""
        attached = instances.Instance(self.lab).attach(volume, node)
        self.assertEqual(gib * GIB, self.bytes_of(attached))
        found = self.checksum(attached, encrypted.MARKED)
        attached.detach()
        self.wait_moved(volume)
        return found

    def test_copies_at_length(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        before = self.mark(attached)
        snapshot = self.snapshot(volume)
        self.fill(attached, 16)
        after = self.checksum(attached, encrypted.MARKED)
        made = self.encrypted(snapshot_id=snapshot)
        larger = self.encrypted(2, snapshot_id=snapshot)
        clone = self.encrypted(source_volid=volume)
        attached.detach()
        self.assertEqual('node1', instances.home(self.lab, made))
        self.assert_ciphertext(self.n1, self.n2)
        self.assertEqual(before, self.read(made, self.n1))
        self.assertEqual(before, self.read(larger, self.n2, 2))
        self.assertEqual(after, self.read(clone, self.n1))
        self.assertEqual(before, self.read(made, self.n2))
        self.assertEqual(after, self.read(volume, self.n1))
        self.act(volume, 'revert', self.demo,
                 snapshot_id=snapshot).raise_for_status()
        instances.wait_status(self.demo, volume, 'available')
        self.assertEqual(before, self.read(volume, self.n1))
        self.drop(snapshot)
        # Its copies open after its deletion, too.
        self.demo.delete('/volumes/' + volume).raise_for_status()
        process.wait_for('the volume to go', lambda: volume not in (
            self.demo.get('/volumes').text), 60, every=0.5)
        for each, expected, node, gib in (
                (made, before, self.n1, 1), (clone, after, self.n2, 1),
                (larger, before, self.n1, 2)):
            self.assertEqual(expected, self.read(each, node, gib))
            self.demo.delete('/volumes/' + each).raise_for_status()
        observe.wait_deleted(self.lab)
        for each in (volume, made, clone, larger):
            self.assertEqual([], self.secret_names(each))

    def test_grows_at_length(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        attached.detach()
        self.extend(volume, 2, 'available')
        self.assertEqual(2 * GIB + encrypted.HEADER,
                         self.lv_bytes(self.n1, volume))
        self.assertEqual(expected, self.read(volume, self.n1, 2))
        attached = self.instance.attach(volume, self.n1)
        writer = attached.start_writing()
        self.extend(volume, 3, 'in-use')
        self.assertEqual(3 * GIB, self.bytes_of(attached))
        end = self.write_end(attached, 3)
        self.assertTrue(writer.running)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        attached.detach()
        # During the copy.
        self.addCleanup(self.brake)
        self.brake('12mbit')
        attached = self.instance.attach(volume, self.n2)
        self.extend(volume, 4, 'in-use')
        self.assertEqual(1, len(observe.move_records(self.lab)))
        self.assertEqual(4 * GIB, self.bytes_of(attached))
        last = self.write_end(attached, 4)
        self.assert_moved(volume, attached, expected, encrypted.MARKED)
        self.assertEqual(4 * GIB, self.bytes_of(attached))
        self.assertEqual([end, last], [self.end(attached, gib)
                                       for gib in (3, 4)])
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        attached.detach()
