# SPDX-License-Identifier: Apache-2.0
"""Volumes that the driver encrypts, on their way to where they are used."""

import base64
import io
import re
import tarfile

from lab.core import config
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.keys import leaks
from lab.keys import volumes
from tests.functional import base
from tests.functional import driver_encrypted as encrypted

GIB = encrypted.GIB
#: A password in a configuration file, in quotation marks, and in a log.
PLANTED = 'Planted"Secret/1'
#: The parts of a report, and those that need systemd on the node.
PARTS = {
    'versions.txt', 'cinder.conf', 'node-list.json', 'volume-list.json',
    'move-list.json', 'doctor.json', 'lvm/pvs.txt', 'lvm/vgs.txt',
    'lvm/lvs.txt', 'device-mapper/table.txt', 'device-mapper/status.txt',
    'device-mapper/tree.txt', 'device-mapper/info.txt', 'iscsi-sessions.txt',
    'block-devices.txt', 'log/report-volume.log'}
OF_SYSTEMD = {'log/journal.txt', 'log/kernel.txt'}


class Base(encrypted.DriverTest):

    def moved_from(self):
        """One with data, detached, whose copy is held back."""
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        marked = self.mark(attached)
        expected = self.fill_behind(attached)
        attached.detach()
        self.assert_ciphertext(self.n1)
        self.addCleanup(self.brake)
        self.brake(base.BRAKE)
        return volume, marked, expected


class MoveTest(Base):

    def test_follows_its_instance(self):
        volume, marked, expected = self.moved_from()
        with self.tap(self.n1) as tap:
            attached = self.instance.attach(volume, self.n2)
            self.assertEqual(1, len(observe.move_records(self.lab)))
            self.assertEqual(GIB, self.bytes_of(attached))
            self.assertFalse(self.is_open(self.n1, volume))
            self.assertEqual(marked, self.checksum(
                attached, encrypted.MARKED))
            self.assert_moved(volume, attached, expected, encrypted.FILLED)
        self.assertGreater(tap.seen, encrypted.FILLED << 20)
        self.assertEqual(0, tap.found)
        self.assertTrue(self.has_mark(self.n2, attached.path))
        self.assert_ciphertext(self.n2)
        self.assertEqual(GIB + encrypted.HEADER,
                         self.lv_bytes(self.n2, volume))
        attached.detach()
        self.assertFalse(self.is_open(self.n2, volume))

    def exports_secrets(self, node):
        """Return the CHAP passwords of a node's exports."""
        return set(node.run(
            'cat /sys/kernel/config/target/iscsi/*/tpgt_1/acls/*/auth/'
            'password').stdout.split()) - {'NULL'}

    def report(self, node, *secrets):
        """Write a report on a node; return its members, by their names.

        The log has each secret in three forms.
        """
        node.run('rm -f /run/report*; cat >/run/report.conf', stdin=(
            "[DEFAULT]\nlog_file = /run/report-volume.log\n"
            "[planted]\npassword = '%s'\n" % PLANTED).encode())
        node.run('while read -r line; do '
                 'echo "$(date "+%F %T").123 1 ERROR $line"; '
                 'done >/run/report-volume.log', stdin=''.join(
                     "%s and {'auth_password': '%s'}\n" % (form, each)
                     for each in secrets
                     for form in ('CHAP u ' + each, 'password=' + each)
                 ).encode() + (
                     'as %s\nas %s\n%s\n' % (
                         PLANTED, config.PASSWORD, config.BUS)).encode())
        done = node.operator('--config-file', '/run/report.conf', 'report',
                             '--output', '/run/report.tar.gz', '--json')
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual('600 0', node.run(
            'stat -c "%a %u" /run/report.tar.gz').stdout.strip())
        # A second report does not replace it.
        again = node.operator('report', '--output', '/run/report.tar.gz')
        self.assertEqual(1, again.returncode)
        self.assertIn('File exists', again.stderr)
        content = base64.b64decode(node.run(
            'base64 /run/report.tar.gz', timeout=120).stdout)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = archive.getmembers()
            self.assertEqual({0o600}, {each.mode for each in members})
            self.assertTrue(all(each.isfile() for each in members))
            return {each.name.partition('/')[2]: archive.extractfile(
                each).read() for each in members}

    def test_report_while_it_is_copied_at_length(self):
        """It has all parts, and no secret of the node."""
        volume, _marked, _expected = self.moved_from()
        attached = self.instance.attach(volume, self.n2)
        chap = self.exports_secrets(self.n1)
        self.assertTrue(chap)
        key = volumes.ByDriver(self.lab, 'demo').key(volume)
        found = self.report(self.n2, *chap, key.decode())
        manifest = found['MANIFEST'].decode()
        self.assertEqual(PARTS | OF_SYSTEMD, set(re.findall(
            r'^(\S+), \d+ bytes: ', manifest, re.MULTILINE)))
        self.assertEqual(PARTS | {'MANIFEST'}, set(found) - OF_SYSTEMD,
                         manifest)
        # Without these the rest would prove nothing.
        self.assertIn(volume.encode(), found['move-list.json'])
        self.assertIn(b'migrating', found['move-list.json'])
        self.assertIn(volume.encode(), found['device-mapper/table.txt'])
        self.assertIn(b'crypt', found['device-mapper/table.txt'])
        self.assertIn(b'[localclone]', found['cinder.conf'])
        self.assertIn(b'as ***', found['log/report-volume.log'])
        password = re.compile(rb'(?<!\w)%s(?!\w)' % config.PASSWORD.encode())
        for name, content in found.items():
            for secret in (*chap, PLANTED, 'guest:guest'):
                self.assertNotIn(secret.encode(), content, name)
            self.assertIsNone(password.search(content), name)
            self.assertFalse(leaks.is_in(content, [key]), name)
        self.brake()
        self.wait_moved(volume)
        attached.detach()

    def test_boot_while_it_is_copied_at_length(self):
        volume, marked, expected = self.moved_from()
        attached = self.instance.attach(volume, self.n2)
        writer = attached.start_writing()
        process.wait_for('writes', lambda: len(writer.stdout) > 400, 60)
        self.n2.power_cut()
        self.n2.power_on()
        self.assertEqual(0, self.n2.operator('node', 'restore').returncode)
        self.assertEqual(0, self.n2.operator('node', 'unlock').returncode)
        self.assertTrue(self.is_open(self.n2, volume))
        self.assertIsNotNone(observe.clone_progress(self.n2))
        self.assertEqual(marked, self.checksum(attached, encrypted.MARKED))
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.restart(self.n2, 'start')
        self.assert_moved(volume, attached, expected, encrypted.FILLED)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        attached.detach()
        self.assertFalse(self.is_open(self.n2, volume))

    def test_the_tap_can_tell(self):
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        self.mark(attached)
        attached.detach()
        with self.tap(self.n1) as tap:
            attached = self.instance.attach(volume, self.n2)
            self.wait_moved(volume)
        self.assertGreater(tap.found, 0)
        self.assertTrue(self.has_mark(
            self.n2, '/dev/cinder-volumes/' + self.backing(volume)))
        attached.detach()


class LiveMoveTest(encrypted.DriverTest):

    def migrating(self, damage=False):
        """One in use on node1, and attached on node2 as well."""
        volume = self.encrypted()
        source = self.instance.attach(volume, self.n1)
        expected = self.mark(source)
        if damage:
            self.n1.run('dd if=/dev/zero of=/dev/mapper/localclone-%s bs=4096 '
                        'count=1 oflag=direct conv=notrunc,fsync status=none'
                        % volume)
        writer = source.start_writing()
        destination = self.instance.attach(volume, self.n2, live=True)
        self.assertEqual('node2', instances.home(self.lab, volume))
        self.assertTrue(writer.running)
        self.assertEqual(source.path, destination.path)
        for each in (source, destination):
            self.assertEqual(GIB, self.bytes_of(each))
        return volume, source, destination, writer, expected

    def hydrated(self):
        return observe.clone_progress(self.n2)[0]

    def test_forward_at_length(self):
        with self.tap(self.n1) as tap:
            volume, source, destination, writer, expected = self.migrating()
            self.wait_two_checks()
            self.assertEqual(0, self.hydrated())
            source.stop_writing(writer)
            self.assertIn(' 0 bad', destination.verify(writer.stdout))
            resumed = destination.start_writing(first_mib=300)
            source.detach('in-use')
            self.assertFalse(self.is_open(self.n1, volume))
            self.assert_moved(volume, destination, expected,
                              encrypted.MARKED)
        self.assertEqual(0, tap.found)
        self.assertGreater(tap.seen, encrypted.MARKED << 20)
        self.assertTrue(resumed.running)
        destination.stop_writing(resumed)
        for each in (writer, resumed):
            self.assertIn(' 0 bad', destination.verify(each.stdout))
        self.assert_ciphertext(self.n2)
        destination.detach()

    def test_rolled_back_at_length(self):
        for damage in (True, False):
            volume, source, destination, writer, expected = self.migrating(
                damage)
            header = self.header(self.n1, volume)
            self.wait_two_checks()
            self.assertEqual(0, self.hydrated())
            destination.detach('in-use')
            self.assert_at_source(volume)
            self.assertTrue(writer.running)
            source.stop_writing(writer)
            self.assertIn(' 0 bad', source.verify(writer.stdout))
            self.assertEqual(expected, self.checksum(
                source, encrypted.MARKED))
            self.assertEqual(header, self.header(self.n1, volume))
            # Both copies can be read.
            self.n1.run('for o in 0 16384; do dd if=/dev/mapper/localclone-%s '
                        'iflag=direct,skip_bytes bs=4096 skip=$o count=1 '
                        'status=none | grep -aq "^\\(LUKS\\|SKUL\\)" || '
                        'exit 1; done' % volume)
            source.detach()

    def test_both_lose_power_before_the_guest_has_left_at_length(self):
        volume, source, destination, writer, expected = self.migrating()
        for node in (self.n1, self.n2):
            node.power_cut()
        for node in (self.n2, self.n1):  # that has no source yet
            node.power_on()
            self.restart(node, 'start')
        for node in (self.n1, self.n2):
            process.wait_for('the volume to be decrypted', lambda n=node:
                             self.is_open(n, volume), 120, every=1)
        self.assertIn(' 0 bad', source.verify(writer.stdout))
        self.assertEqual(0, self.hydrated())
        self.force_detach(source)
        self.assert_moved(volume, destination, expected, encrypted.MARKED)
        self.assertIn(' 0 bad', destination.verify(writer.stdout))
        destination.detach()

    def assert_at_source(self, volume):
        process.wait_for('the shadow to go',
                         lambda: not observe.move_records(self.lab), 60)
        self.assertEqual('node1', instances.home(self.lab, volume))
        self.assertTrue(self.is_open(self.n1, volume))
        process.wait_for('the export to go', lambda: not observe.leftovers(
            self.n1, None), 90)
        self.assertFalse(self.is_open(self.n2, volume))
        self.assertEqual([], observe.leftovers(self.n2, volume))
        self.assertEqual([], observe.volume_lvs(self.n2))


class DeferredMoveTest(Base):
    """Wanted on node1 while it is copied to node2."""

    def test_attached_where_it_came_from_at_length(self):
        volume, marked, expected = self.moved_from()
        with self.tap(self.n1) as tap:
            self.instance.attach(volume, self.n2).detach()
            self.assertFalse(self.is_open(self.n2, volume))
            back = self.instance.attach(volume, self.n1)
            self.assert_remote(volume, back, marked)
            writer = back.start_writing()
            self.is_deferred(volume, back, expected, writer)
        self.assertEqual(0, tap.found)
        self.assertGreater(tap.seen, encrypted.MARKED << 20)
        back.detach()
        self.assertFalse(self.is_open(self.n1, volume))

    def test_live_migrated_back_at_length(self):
        volume, marked, expected = self.moved_from()
        there = self.instance.attach(volume, self.n2)
        before = there.start_writing(first_mib=300)
        back = self.instance.attach(volume, self.n1, live=True)
        self.assertTrue(before.running)
        there.stop_writing(before)
        self.assert_remote(volume, back, marked)
        self.assertIn(' 0 bad', back.verify(before.stdout))
        writer = back.start_writing()
        there.detach('in-use')
        self.assertFalse(self.is_open(self.n2, volume))
        self.is_deferred(volume, back, expected, before, writer)
        back.detach()

    def test_both_nodes_lose_power_at_length(self):
        volume, marked, expected = self.moved_from()
        self.instance.attach(volume, self.n2).detach()
        back = self.instance.attach(volume, self.n1)
        writer = back.start_writing()
        process.wait_for('writes', lambda: len(writer.stdout) > 400, 60)
        for node in (self.n1, self.n2):
            node.power_cut()
        for node in (self.n2, self.n1):
            node.power_on()
            self.restart(node, 'start')
        process.wait_for('the volume to be decrypted', lambda: self.is_open(
            self.n1, volume), 120, every=1)
        self.assertIn(' 0 bad', back.verify(writer.stdout))
        self.is_deferred(volume, back, expected, writer)
        back.detach()

    def assert_remote(self, volume, back, marked):
        self.assertEqual('node2', instances.home(self.lab, volume))
        self.assertIsNotNone(observe.clone_progress(self.n2))
        self.assertTrue(self.is_open(self.n1, volume))
        self.assertEqual(GIB, self.bytes_of(back))
        self.assertEqual(marked, self.checksum(back, encrypted.MARKED))

    def is_deferred(self, volume, back, expected, *writers):
        """It does, under whoever writes, and nothing is lost or left."""
        self.brake()
        process.wait_for(
            'the volume to follow', lambda: instances.home(
                self.lab, volume) == back.node.name, 180)
        observe.wait_moved(self.lab, volume)
        for writer in writers:
            if writer.running:
                back.stop_writing(writer)
            self.assertIn(' 0 bad', back.verify(writer.stdout))
        self.assertEqual(expected, self.checksum(back, encrypted.FILLED))
        self.assertFalse(self.is_open(self.n2, volume))
        self.assertEqual([], observe.leftovers(self.n1, None))
        self.assertEqual([], observe.leftovers(self.n2, volume))
        self.assertEqual([], observe.volume_lvs(self.n2))
        self.assert_ciphertext(self.n1)
