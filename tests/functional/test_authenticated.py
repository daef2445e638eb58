# SPDX-License-Identifier: Apache-2.0
"""Volumes whose sectors are authenticated, on real kernels and Barbican."""

import json
import time

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.keys import types
from tests.functional import base
from tests.functional import driver_encrypted as encrypted

GIB = encrypted.GIB
TYPES = {
    'gcm': {'localclone:cipher': 'aes-gcm-random'},
    'gcm-4096': {'localclone:cipher': 'aes-gcm-random',
                 'localclone:sector_size': '4096'},
    'hmac': {'localclone:integrity': 'hmac-sha256'},
    'hmac-512': {'localclone:integrity': 'hmac-sha512'},
    'chacha': {'localclone:cipher': 'chacha20-random'},
    'aegis': {'localclone:cipher': 'aegis128-random'}}


class AuthenticatedTest(encrypted.DriverTest):

    def setUp(self):
        super().setUp()
        for name, specs in TYPES.items():
            if 'authenticated-' + name not in self.lab.cinder().get(
                    '/types').text:
                types.make(self.lab, 'authenticated-' + name, None, dict(
                    specs, **{'localclone:encryption': 'luks2',
                              'localclone:moves': 'cold'}))

    def authenticated(self, name='gcm', size=1):
        return instances.create_volume(
            self.demo, size, 'authenticated-' + name, 900, 'node1')

    def devices(self, node):
        """What is above handles."""
        return {line.split('\t')[0] for line in node.run(
            'dmsetup ls').stdout.splitlines()
            if line.startswith('localclone-crypt-')}

    def upper_devices(self, volume):
        name = 'localclone-crypt-' + volume
        return {name, name + '_dif'}

    def integrity_uuid(self, node, volume):
        return node.run('dmsetup info -c --noheadings -o uuid localclone-'
                        'crypt-%s_dif' % volume).stdout.strip()

    def read_all(self, attached, gib=1):
        """Nothing is there whose tag is wrong, zeros first of all."""
        return instances.checksum(attached.node, attached.path, 1024 * gib,
                                  timeout=900)

    def test_sizes_at_length(self):
        """The layout is what this kernel and this cryptsetup make of it."""
        for name in TYPES:
            volume = self.authenticated(name)
            attached = self.instance.attach(volume, self.n1)
            self.assertEqual(GIB, self.bytes_of(attached), name)
            self.assertEqual(self.upper_devices(volume), self.devices(self.n1))
            self.assertRegex(self.integrity_uuid(self.n1, volume),
                             '^CRYPT-(INTEGRITY|SUBDEV)-[0-9a-f]{32}-')
            self.assertEqual(instances.checksum_of_zeros(1024),
                             self.read_all(attached), name)
            attached.detach()
            self.assertEqual(set(), self.devices(self.n1))
            self.demo.delete('/volumes/' + volume).raise_for_status()
            observe.wait_deleted(self.lab)

    def test_two_gib_at_length(self):
        """A journal of another length."""
        volume = self.authenticated(size=2)
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(2 * GIB, self.bytes_of(attached))
        attached.detach()

    def test_what_was_changed_is_not_read(self):
        volume = self.authenticated()
        attached = self.instance.attach(volume, self.n1)
        self.mark(attached)
        attached.detach()
        path = '/dev/mapper/localclone-' + volume
        # Some of the data, behind the header and the journal.
        self.n1.run('dd if=/dev/urandom of=%s bs=1M seek=100 count=4 '
                    'oflag=direct conv=notrunc status=none' % path)
        attached = self.instance.attach(volume, self.n1)
        done = self.n1.run('dd if=%s of=/dev/null bs=1M iflag=direct'
                           % attached.path, check=False, timeout=300)
        self.assertNotEqual(0, done.returncode)
        attached.detach()

    def test_header_that_is_lost(self):
        """Its backup knows of the tags, too."""
        volume = self.authenticated()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        attached.detach()
        self.lose_header(self.n1, volume)
        row, = self.encryption(self.n1, 'header restore', volume)
        self.assertEqual(volume + '-1', row['Backup'])
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(expected, self.checksum(attached, encrypted.MARKED))
        self.read_all(attached)
        attached.detach()

    def test_moves_cold_at_length(self):
        """And all of it can be read, there and back, also while copied."""
        volume = self.authenticated('hmac')
        attached = self.instance.attach(volume, self.n1)
        self.mark(attached)
        expected = self.read_all(attached)
        attached.detach()
        self.addCleanup(self.brake)
        self.brake(base.BRAKE)
        attached = self.instance.attach(volume, self.n2)
        self.assertEqual(GIB, self.bytes_of(attached))
        self.assertEqual(set(), self.devices(self.n1))
        self.assertEqual(self.upper_devices(volume), self.devices(self.n2))
        expected_end = self.fill_behind(attached)
        self.brake()
        self.assert_moved(volume, attached, expected_end, encrypted.FILLED)
        self.assertNotEqual(expected, self.read_all(attached))
        attached.detach()
        back = self.instance.attach(volume, self.n1)
        self.assertEqual(expected_end, self.checksum(
            back, encrypted.FILLED))
        self.read_all(back)
        self.wait_moved(volume)
        back.detach()

    def test_power_cut_of_the_destination_at_length(self):
        volume = self.authenticated()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        attached.detach()
        self.addCleanup(self.brake)
        self.brake('20mbit')
        attached = self.instance.attach(volume, self.n2)
        self.n2.power_cut()
        self.n2.power_on()
        self.assertEqual(0, self.n2.operator('node', 'restore').returncode)
        self.assertEqual(0, self.n2.operator('node', 'unlock').returncode)
        self.brake()
        self.restart(self.n2, 'start')
        self.lab.wait_for_services()
        self.assert_moved(volume, attached, expected, encrypted.MARKED)
        self.read_all(attached)
        attached.detach()

    def test_power_cut_while_it_is_written_at_length(self):
        """The journal has it: no sector is left without its tag."""
        volume = self.authenticated('hmac')
        attached = self.instance.attach(volume, self.n1)
        writer = attached.start_writing()
        time.sleep(10)
        self.n1.power_cut()
        self.n1.power_on()
        self.assertEqual(0, self.n1.operator('node', 'restore').returncode)
        self.assertEqual(0, self.n1.operator('node', 'unlock').returncode)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.read_all(attached)
        self.restart(self.n1, 'start')
        self.lab.wait_for_services()
        attached.detach()

    def test_half_of_it_at_length(self):
        """What a kill has left of an open is no obstacle to the next."""
        volume = self.authenticated()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        name = 'localclone-crypt-' + volume
        self.n1.run('dmsetup remove ' + name)
        self.assertEqual({name + '_dif'}, self.devices(self.n1))
        done = self.n1.operator('volume', 'unlock', volume)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual(expected, self.checksum(
            attached, encrypted.MARKED))
        self.n1.run('dmsetup remove ' + name)
        attached.detach()
        self.assertEqual(set(), self.devices(self.n1))

    def test_refused_at_length(self):
        volume = self.authenticated()
        attached = self.instance.attach(volume, self.n1)
        answer = self.instance.connect_live(
            volume, self.instance.connector(self.n2))
        self.assertGreaterEqual(answer.status_code, 400, answer.text)
        self.assertIn('only while it is detached', self.told(volume))
        self.act(volume, 'os-extend', self.demo, new_size=2)
        instances.wait_status(self.demo, volume, 'error_extending')
        self.assertEqual(GIB, self.bytes_of(attached))
        self.act(volume, 'os-reset_status', self.lab.cinder(),
                 status='in-use')
        done = self.n1.operator('reencryption', 'start', volume,
                                '--format', 'json')
        self.assertEqual(1, done.returncode)
        self.assertIn('authenticated', done.stdout + done.stderr)
        attached.detach()

    def test_made_of_one_at_length(self):
        volume = self.authenticated()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        # In use: as a power cut would leave it.
        clone = self.encrypted(source_volid=volume)
        attached.detach()
        reader = instances.Instance(self.lab).attach(clone, self.n1)
        self.assertEqual(expected, self.checksum(reader, encrypted.MARKED))
        self.read_all(reader)
        reader.detach()
        # The node's look makes the backup of its header.
        process.wait_for('a header that is sound', lambda: not (
            self.n2.operator('encryption', 'check', clone).returncode), 60)
        done = self.n2.operator(
            'encryption', 'key', 'rotate', clone, '--format', 'json')
        self.assertEqual('has a new key', json.loads(
            done.stdout)[0]['Result'])
        reader = instances.Instance(self.lab).attach(clone, self.n2)
        self.assertEqual(expected, self.checksum(reader, encrypted.MARKED))
        reader.detach()
