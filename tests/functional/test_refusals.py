# SPDX-License-Identifier: Apache-2.0
"""Every refusal is clear, tells the owner, and leaves nothing behind."""

import time

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.faults import injectors
from tests.functional import base


class RefusalTest(base.LabTest):

    def test_destination_without_room(self):
        volume = self.volume(size=45)  # thin: more than node2 has
        text, told = self.refused(volume)
        self.assertIn('MiB needed', text)
        self.assertIn('does not have enough free storage', told)
        self.assert_untouched(volume)

    def test_peer_that_does_not_answer(self):
        volume = self.volume()
        self.n2.service('kill')
        text, told = self.refused(volume)
        self.assertIn('node2@localclone did not answer', text)
        self.assertIn('does not answer', told)
        self.restart(self.n2, 'start')
        self.assert_untouched(volume)

    def test_source_still_open(self):
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        holder = self.n1.popen('exec 9<%s; sleep 300' % attached.path)
        attached.detach()
        text, told = self.refused(volume)
        self.assertIn('is still open on node1', text)
        self.assertIn('still in use', told)
        holder.kill()
        process.wait_for('the holder to end', lambda: self.n1.run(
            'dmsetup info -c --noheadings -o open localclone-' + volume
        ).stdout.strip() == '0', 60)
        self.assert_untouched(volume, expected)

    def test_kernel_without_clone_at_length(self):
        volume = self.volume()
        self.n2.run('rmmod dm_clone; echo "install dm-clone /bin/false" '
                    '>/etc/modprobe.d/no-clone.conf')
        try:
            self.restart(self.n2)
            text, told = self.refused(volume)
        finally:
            self.n2.run('rm /etc/modprobe.d/no-clone.conf; '
                        'modprobe dm-clone')
            self.restart(self.n2)
        self.assertIn('no dm-clone', text)
        self.assertIn('cannot take it at present', told)
        self.assert_untouched(volume)

    def test_no_volume_group_at_length(self):
        volume = self.volume()
        options = self.lab.settings['options']
        self.lab.settings['options'] = dict(options, volume_group='nowhere')
        self.lab.write_service_config(self.n2)
        try:
            seen = len(self.n2.service_log())
            self.n2.service('restart')
            process.wait_for('the error', lambda: 'There is no volume group '
                             '"nowhere"' in self.n2.service_log()[seen:], 60)
            text, told = self.refused(volume)
            # Cinder does not ask it any more; what it is asked before waits.
            process.wait_for('the scheduler to know', lambda: [
                each['state'] for each in self.lab.cinder().get(
                    '/os-services').json()['services']
                if each['host'] == 'node2@localclone'] == ['down'], 60)
            created = self.created_in_vain('node2')
        finally:
            self.lab.settings['options'] = options
            self.lab.write_service_config(self.n2)
            self.restart(self.n2)
        self.assertIn('node2@localclone did not answer', text)
        self.assertIn('does not answer', told)
        self.assertNotEqual('', self.told(created))
        self.demo.delete('/volumes/' + created).raise_for_status()
        self.assert_untouched(volume)
        self.instance.attach(volume, self.n2).detach()
        observe.wait_moved(self.lab, volume)

    def test_host_without_backend_and_initiator(self):
        volume = self.volume()
        text, told = self.refused(volume, connector={'host': 'elsewhere'})
        self.assertIn('names no iSCSI initiator', text)
        self.assertIn('cannot be connected', told)
        self.assert_untouched(volume)

    def test_encrypted_type(self):
        admin = self.lab.cinder()
        kind = admin.post('/types', json={'volume_type': {
            'name': 'secret', 'extra_specs': {
                'volume_backend_name': 'localclone'}}},
        ).raise_for_status().json()['volume_type']['id']
        self.addCleanup(admin.delete, '/types/' + kind)
        admin.post('/types/%s/encryption' % kind, json={'encryption': {
            'provider': 'luks2', 'cipher': 'aes-xts-plain64',
            'key_size': 256, 'control_location': 'front-end'}},
        ).raise_for_status()
        volume = self.demo.post('/volumes', json={'volume': {
            'size': 1, 'volume_type': kind}},
        ).raise_for_status().json()['volume']['id']
        instances.wait_status(self.demo, volume, 'error')
        # Cinder itself adds that its create has failed.
        self.assertTrue([text for _, text in base.messages(self.lab, volume)
                         if 'does not support the encryption' in text])
        for node in (self.n1, self.n2):
            self.assertEqual([], observe.volume_lvs(node))
            self.assertEqual([], observe.leftovers(node, volume))
        self.demo.delete('/volumes/' + volume).raise_for_status()
        observe.wait_deleted(self.lab)

    def test_wrong_source_after_a_power_cut_at_length(self):
        volume, attached, expected = self.moving_volume()
        self.n2.power_cut()
        self.n1.service('stop')
        # Another disk of the same size under the export's name.
        injectors.make_stranger(self.n1, 1024)
        injectors.export_stranger(self.n1, 'new')
        self.n2.power_on()
        seen = len(self.n2.service_log())
        self.restart(self.n2, 'start')
        process.wait_for('the refusal', lambda: 'is not the expected disk' in
                         self.n2.service_log()[seen:], 60)
        self.assertTrue(self.n2.run('test -b ' + attached.path,
                                    check=False).returncode)
        self.restart(self.n1, 'start')  # mends the export
        injectors.remove_stranger(self.n1)
        process.wait_for('the handle', lambda: not self.n2.run(
            'test -b ' + attached.path, check=False).returncode, 60)
        time.sleep(1)
        self.assert_moved(volume, attached, expected)
