# SPDX-License-Identifier: Apache-2.0
"""Keys and headers of encrypted volumes, on real kernels and Barbican."""

from testtools import matchers

from lab.core import instance as instances
from lab.core import node as nodes
from lab.core import observe
from lab.core import process
from tests.functional import driver_encrypted as encrypted


class KeysTest(encrypted.DriverTest):

    def declined(self, node, *words):
        return self.encryption(node, *words, code=1)

    def key(self, volume):
        """What opens a volume: its reference, and its digits."""
        reference, = self.secret_names(volume)
        status, secret = self.secrets.read(reference)
        self.assertEqual(200, status)
        return reference, secret.hex()

    def opens(self, node, volume, key):
        done = node.run(
            'printf %%s %s | cryptsetup open --test-passphrase --key-file - '
            '--disable-locks /dev/mapper/localclone-%s' % (key, volume),
            check=False)
        self.assertIn(done.returncode, (0, 2), done.stderr)
        return not done.returncode

    def backups(self, node, volume):
        return node.run('ls %s/%s' % (nodes.HEADERS, volume)).stdout.split()

    def assert_sound(self, volume):
        rows = self.encryption(self.n2, 'check', volume)
        self.assertEqual({'ok'}, {row['Result'] for row in rows})

    def read(self, volume, node):
        attached = instances.Instance(self.lab).attach(volume, node)
        found = self.checksum(attached, encrypted.MARKED)
        attached.detach()
        self.wait_moved(volume)
        return found

    def test_another_key(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        reference, old = self.key(volume)
        row, = self.encryption(self.n2, 'key rotate', volume)
        self.assertThat(row['Result'], matchers.StartsWith(
            'has a new key'))
        after, new = self.key(volume)
        self.assertNotEqual((reference, old), (after, new))
        self.assertTrue(self.opens(self.n1, volume, new))
        self.assertFalse(self.opens(self.n1, volume, old))
        self.assertEqual(404, self.secrets.read(reference)[0])
        self.assert_sound(volume)
        self.assertEqual(expected, self.checksum(attached, encrypted.MARKED))
        attached.detach()

    def test_another_key_while_its_guest_writes_at_length(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        writer = attached.start_writing()
        reference, old = self.key(volume)
        self.assertTrue(self.opens(self.n1, volume, old))
        self.assertEqual([volume + '-1'], self.backups(self.n1, volume))
        for number in (3, 5):
            row, = self.encryption(self.n2, 'key rotate', volume)
            self.assertEqual('has a new key', row['Result'])
            after, new = self.key(volume)
            self.assertNotEqual((reference, old), (after, new))
            self.assertTrue(self.opens(self.n1, volume, new))
            self.assertFalse(self.opens(self.n1, volume, old))
            self.assertEqual(404, self.secrets.read(reference)[0])
            self.assertEqual(['%s-%d' % (volume, number)],
                             self.backups(self.n1, volume))
            self.assert_sound(volume)
            reference, old = after, new
        row = self.shown(self.n2, volume)
        self.assertEqual(('driver', 512, 'no', 'open'), (
            row['Encrypted by'], row['Key bits'], row['Recovery key'],
            row['Remarks']))
        self.assertTrue(writer.running)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        attached.detach()
        self.assertEqual(expected, self.read(volume, self.n2))
        # Where it is now.
        self.encryption(self.n1, 'key rotate', volume)
        self.assert_sound(volume)
        self.assertEqual(expected, self.read(volume, self.n1))
        self.demo.delete('/volumes/' + volume).raise_for_status()
        observe.wait_deleted(self.lab)
        self.assertEqual([], self.secret_names(volume))

    def test_not_while_it_moves_at_length(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        attached.detach()
        _reference, old = self.key(volume)
        self.addCleanup(self.brake)
        self.brake('2mbit')
        attached = self.instance.attach(volume, self.n2)
        row, = self.declined(self.n1, 'key rotate', volume)
        self.assertIn('while it moves', row['Result'])
        self.assertTrue(self.opens(self.n2, volume, old))
        self.brake()
        self.wait_moved(volume)
        self.encryption(self.n1, 'key rotate', volume)
        self.assertFalse(self.opens(self.n2, volume, old))
        self.assertEqual(expected, self.checksum(
            attached, encrypted.MARKED))
        attached.detach()

    def test_recovery_key_at_length(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        self.assertIn('run the command there', self.declined(
            self.n2, 'recovery key add', volume))
        row, = self.encryption(self.n1, 'recovery key add', volume)
        key = row['Recovery key']
        self.assertTrue(self.opens(self.n1, volume, key))
        self.encryption(self.n1, 'key rotate', volume)
        self.assertTrue(self.opens(self.n1, volume, key))
        self.assert_sound(volume)
        shown = self.shown(self.n1, volume)
        self.assertEqual('slot ' + row['Key slot'], shown['Recovery key'])
        stored, = self.encryption(
            self.n1, 'recovery key add', '--store', volume)
        self.assertEqual(2, len(self.secret_names(volume)))
        for slot in (row['Key slot'], stored['Key slot']):
            self.encryption(
                self.n1, 'recovery key remove', '--slot', slot, volume)
        self.assertFalse(self.opens(self.n1, volume, key))
        self.assertEqual(1, len(self.secret_names(volume)))
        self.assert_sound(volume)
        attached.detach()
        for path in self.lab.logs.rglob('*'):
            if path.is_file():
                self.assertNotIn(key.encode(), path.read_bytes(), path)

    def test_secret_that_is_lost_at_length(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        row, = self.encryption(self.n1, 'recovery key add', volume)
        key = row['Recovery key']
        reference, old = self.key(volume)
        writer = attached.start_writing()
        self.secrets.delete(reference)
        declined, = self.declined(self.n1, 'key rotate', volume)
        self.assertIn('of the key manager can\'t be used', declined['Result'])
        self.n1.run('(umask 077; echo %s > /run/recovery-key)' % key)
        self.encryption(self.n1, 'key rotate', volume, '--recovery-key-file',
                        '/run/recovery-key')
        after, new = self.key(volume)
        self.assertNotEqual(reference, after)
        for each, opens in ((new, True), (key, True), (old, False)):
            self.assertEqual(opens, self.opens(self.n1, volume, each))
        self.assert_sound(volume)
        self.assertTrue(writer.running)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        attached.detach()
        self.assertEqual(expected, self.read(volume, self.n2))
        # By one that the key manager has.
        self.encryption(self.n2, 'recovery key add', '--store', volume)
        self.secrets.delete(after)
        self.encryption(self.n2, 'key rotate', volume, '--stored-recovery-key')
        self.assertEqual(expected, self.read(volume, self.n1))
        for path in self.lab.logs.rglob('*'):
            if path.is_file():
                self.assertNotIn(key.encode(), path.read_bytes(), path)

    def test_header_that_is_lost_at_length(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        self.encryption(self.n2, 'key rotate', volume)
        self.assertIn('attached', self.declined(
            self.n1, 'header restore', volume))
        attached.detach()
        row, = self.encryption(self.n2, 'header save', volume)
        self.assertIn(volume + '-4', row['Result'])
        before = self.header(self.n1, volume)
        # One copy, and then all of it.
        for count, wrong in ((4, {'copies of the header'}), (16384, {
                'header', 'copies of the header', 'tags of the LV'})):
            self.lose_header(self.n1, volume, count)
            rows = self.encryption(self.n2, 'check', volume, code=1)
            self.assertEqual(wrong, {
                row['What'] for row in rows if row['Result'] != 'ok'})
        _text, told = self.refused(volume, self.n1)
        self.assertIn('header', told)
        row, = self.encryption(self.n1, 'header restore', volume)
        self.assertEqual(volume + '-4', row['Backup'])
        self.assertEqual(before, self.header(self.n1, volume))
        self.assertIn(volume + '-before-restore-1',
                      self.backups(self.n1, volume))
        self.assert_sound(volume)
        self.assertEqual(expected, self.read(volume, self.n1))

    def test_what_is_made_of_it_at_length(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        row, = self.encryption(self.n1, 'recovery key add', volume)
        clone = self.encrypted(source_volid=volume)
        attached.detach()
        _reference, old = self.key(volume)
        _reference, own = self.key(clone)
        for key, ours, its in ((old, True, False), (own, False, True),
                               (row['Recovery key'], True, False)):
            self.assertEqual(ours, self.opens(self.n1, volume, key))
            self.assertEqual(its, self.opens(self.n1, clone, key))
        self.assertEqual([volume, clone], [
            self.n1.run('cryptsetup luksUUID --disable-locks '
                        '/dev/mapper/localclone-' + each).stdout.strip()
            for each in (volume, clone)])
        self.assert_sound(clone)
        self.demo.delete('/volumes/' + volume).raise_for_status()
        self.assertEqual(expected, self.read(clone, self.n2))
        # The backup follows it.
        process.wait_for('a backup of its header', lambda: not self.n2.run(
            'test -e %s/%s/%s-1' % (nodes.HEADERS, clone, clone),
            check=False).returncode, 90, every=1)
        self.assert_sound(clone)
        process.wait_for('that of before to go', lambda: self.n1.run(
            'test -e %s/%s' % (nodes.HEADERS, clone),
            check=False).returncode, 90, every=1)
