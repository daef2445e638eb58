# SPDX-License-Identifier: Apache-2.0
"""Volumes that are encrypted anew, on real kernels and with real Barbican."""

import time

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.keys import volumes
from tests.functional import base
from tests.functional import driver_encrypted as encrypted
from tests.functional import reencrypted

SERPENT = 'serpent-xts-plain64'
#: Kills what re-encrypts a volume as soon as its old key's slot has gone.
KILL = '''
import json, mmap, os, signal, sys, time

volume, deadline = sys.argv[1], time.monotonic() + 1190
head = os.open('/dev/mapper/localclone-' + volume, os.O_RDONLY | os.O_DIRECT)
data, pid = mmap.mmap(-1, 16384), None
while time.monotonic() < deadline:
    for each in [] if pid else os.listdir('/proc'):
        try:
            words = open('/proc/%s/cmdline' % each).read().split('\\0')
        except OSError:
            continue
        if words[0] == 'cryptsetup' and 'localclone-crypt-' + volume in words:
            pid = int(each)
    time.sleep(0.005)
    os.preadv(head, [data], 0)
    try:
        found = json.loads(data[4096:].split(b'\\0')[0])
    except ValueError:  # it is being written
        continue
    if 'requirements' not in found['config']:
        break
    if pid and len(found['keyslots']) == 2:
        os.kill(pid, signal.SIGKILL)
        break
while pid and time.monotonic() < deadline:
    try:
        if not open('/proc/%d/cmdline' % pid).read():
            break
    except OSError:
        break
    time.sleep(0.1)
'''


class AtHomeTest(reencrypted.Base):

    def test_under_a_guest_that_writes_at_length(self):
        key = self.metadata()['digests']['0']['digest']
        writer = self.attached.start_writing()
        began = time.monotonic()
        found = self.reencryption('start', '--cipher', SERPENT, '--wait',
                                  timeout=400)
        print('  re-encryption of 1 GiB beside a guest: %.0f s'
              % (time.monotonic() - began), flush=True)
        self.assertEqual(('none', SERPENT),
                         (found['Re-encryption'], found['Cipher']))
        self.wait_end(self.n1, SERPENT)
        self.assertTrue(writer.running)
        self.attached.stop_writing(writer)
        self.assert_data(self.attached, writer)
        digest, = self.metadata()['digests'].values()
        self.assertNotEqual(key, digest['digest'])
        self.attached.detach()
        self.assertFalse(self.is_open(self.n1, self.volume_id))
        attached = self.instance.attach(self.volume_id, self.n1)
        self.assert_data(attached, writer)
        attached.detach()

    def test_paused_and_resumed_at_length(self):
        writer = self.attached.start_writing()
        self.start()
        self.assertEqual('paused', self.reencryption('pause')['Re-encryption'])
        self.assertFalse(self.runs(self.n1))
        before = self.done()
        self.n1.service('kill')
        self.restart(self.n1, 'start')
        time.sleep(12)  # two looks
        self.assertEqual(before, self.done())
        self.assertFalse(self.runs(self.n1))
        self.assertEqual('running', self.reencryption(
            'resume')['Re-encryption'])
        self.wait_end(self.n1)
        self.assertTrue(writer.running)
        self.attached.stop_writing(writer)
        self.assert_data(self.attached, writer)
        self.attached.detach()

    def test_service_ends_meanwhile_at_length(self):
        for action in ('kill', 'restart'):
            if not self.under_way():
                self.start()
            before = self.done()
            self.restart(self.n1, action)
            self.assertTrue(self.runs(self.n1) or not self.under_way())
            self.assertGreater(self.done(), before)
        self.wait_end(self.n1)
        self.assert_data(self.attached)
        self.attached.detach()

    def test_at_home(self):
        key = self.metadata()['digests']['0']['digest']
        self.start()
        self.wait_end(self.n1)
        self.assert_data(self.attached)
        digest, = self.metadata()['digests'].values()
        self.assertNotEqual(key, digest['digest'])
        self.attached.detach()

    def test_power_cut_in_the_middle_at_length(self):
        self.reencryption('start')
        self.wait_done(300)
        self.n1.power_cut()
        self.n1.power_on()
        self.assertEqual(0, self.n1.operator('node', 'restore').returncode)
        self.assertTrue(self.under_way(), 'it had ended before')
        done = self.n1.operator('node', 'unlock')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assert_data(self.attached)
        self.restart(self.n1, 'start')
        self.wait_end(self.n1)
        self.assert_data(self.attached)
        self.attached.detach()

    def test_killed_in_its_very_end_at_length(self):
        """cryptsetup would not open such a volume any more."""
        self.kill_in_the_end()
        self.n1.power_cut()
        self.n1.power_on()
        self.assertEqual(0, self.n1.operator('node', 'restore').returncode)
        done = self.n1.operator('node', 'unlock')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertTrue(self.opens())
        self.assert_data(self.attached)
        self.restart(self.n1, 'start')
        self.wait_end(self.n1)
        self.attached.detach()
        attached = self.instance.attach(self.volume_id, self.n1)
        self.assert_data(attached)
        attached.detach()

    def test_killed_in_its_very_end_under_a_guest_at_length(self):
        """The service ends it; the guest does not notice."""
        writer = self.attached.start_writing()
        self.kill_in_the_end()
        self.restart(self.n1, 'start')
        self.wait_end(self.n1)
        self.assertTrue(writer.running)
        self.attached.stop_writing(writer)
        self.assert_data(self.attached, writer)
        self.attached.detach()
        attached = self.instance.attach(self.volume_id, self.n1)
        self.assert_data(attached, writer)
        attached.detach()

    def kill_in_the_end(self):
        """When the old key's slot has gone, and it is not over."""
        for _time in range(3):
            self.reencryption('start')
            self.n1.service('kill')
            self.n1.run(['python3', '-c', KILL, self.volume_id],
                        timeout=1200)
            if self.under_way():
                break
            self.restart(self.n1, 'start')  # that was too late
            self.wait_end(self.n1)
        self.assertFalse(self.runs(self.n1))
        self.assertTrue(self.under_way())
        self.assertFalse(self.opens())

    def opens(self):
        key = volumes.ByDriver(self.lab, 'demo').key(self.volume_id)
        return volumes.opens(
            self.n1, '/dev/mapper/localclone-' + self.volume_id, key)

    def test_made_of_it_meanwhile_at_length(self):
        """What is made of it is as long as it says, or is not made."""
        self.start()
        self.reencryption('pause')
        copy = self.encrypted(source_volid=self.volume_id)
        answer = self.demo.post('/volumes', json={'volume': {
            'size': 2, 'source_volid': self.volume_id}}).raise_for_status()
        larger = answer.json()['volume']['id']
        instances.wait_status(self.demo, larger, 'error', 60)
        self.assertIn('re-encrypted', ' '.join(
            text for _, text in base.messages(self.lab, larger)))
        attached = self.instance.attach(copy, self.n1)
        self.assertEqual(encrypted.GIB, self.bytes_of(attached))
        self.assert_data(attached)
        attached.detach()
        for volume in copy, larger:
            self.demo.delete('/volumes/' + volume).raise_for_status()
        process.wait_for('both to go', lambda: not {copy, larger} & {
            each['id'] for each in self.demo.get('/volumes').json()[
                'volumes']}, 90)
        self.assertEqual('running', self.reencryption(
            'resume')['Re-encryption'])
        self.wait_end(self.n1)
        self.assert_data(self.attached)
        self.attached.detach()

    def test_detached_and_deleted_at_length(self):
        self.start()
        self.attached.detach()
        self.assertFalse(self.runs(self.n1))
        self.wait_runs(self.n1)
        before = self.done()
        self.wait_done(before + 50)
        self.demo.delete('/volumes/' + self.volume_id).raise_for_status()
        observe.wait_deleted(self.lab)
        self.assertFalse(self.runs(self.n1))
        self.assertEqual([], self.secret_names(self.volume_id))
        self.assertEqual([], observe.leftovers(self.n1, self.volume_id))


class MoveTest(reencrypted.Base):

    def test_cold_at_length(self):
        """It is paused, and goes on at the new home once all is copied."""
        self.start()
        self.attached.detach()
        self.wait_runs(self.n1)
        self.addCleanup(self.brake)
        self.brake(base.BRAKE)
        attached = self.instance.attach(self.volume_id, self.n2)
        self.assertEqual('node2', instances.home(self.lab, self.volume_id))
        self.assertFalse(self.runs(self.n1))
        before = self.done(self.n2)
        self.assertGreater(before, 0)
        self.assertEqual(self.expected, self.checksum(
            attached, encrypted.MARKED))
        time.sleep(12)
        self.assertFalse(self.runs(self.n2))
        self.assertEqual(before, self.done(self.n2))
        self.brake()
        observe.wait_moved(self.lab, self.volume_id)
        self.wait_runs(self.n2)
        self.wait_end(self.n2)
        self.assert_data(attached)
        attached.detach()
        self.assertFalse(self.is_open(self.n2, self.volume_id))

    def test_live_at_length(self):
        writer = self.attached.start_writing()
        self.start('--cipher', SERPENT)
        destination = self.instance.attach(self.volume_id, self.n2, live=True)
        self.assertFalse(self.runs(self.n1))
        before = self.done()
        self.assertTrue(writer.running)
        self.wait_two_checks()
        time.sleep(6)
        self.assertEqual(0, observe.clone_progress(self.n2)[0])
        self.assertFalse(self.runs(self.n1) or self.runs(self.n2))
        self.attached.stop_writing(writer)
        self.assertIn(' 0 bad', destination.verify(writer.stdout))
        resumed = destination.start_writing(first_mib=400)
        self.attached.detach('in-use')
        observe.wait_moved(self.lab, self.volume_id)
        self.assertGreaterEqual(self.done(self.n2), before)
        self.wait_runs(self.n2)
        self.wait_end(self.n2, SERPENT)
        self.assertTrue(resumed.running)
        destination.stop_writing(resumed)
        self.assert_data(destination, writer, resumed)
        destination.detach()

    def test_live_and_back_at_length(self):
        writer = self.attached.start_writing()
        self.start()
        destination = self.instance.attach(self.volume_id, self.n2, live=True)
        self.wait_two_checks()
        destination.detach('in-use')
        process.wait_for('the shadow to go',
                         lambda: not observe.move_records(self.lab), 60)
        self.assertEqual('node1', instances.home(self.lab, self.volume_id))
        self.wait_runs(self.n1)
        self.wait_end(self.n1)
        self.assertTrue(writer.running)
        self.attached.stop_writing(writer)
        self.assert_data(self.attached, writer)
        self.attached.detach()
