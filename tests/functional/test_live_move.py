# SPDX-License-Identifier: Apache-2.0
"""Live migration as Cinder sees it: two attachments of one instance."""

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import base
from tests.functional.live import Base


class LiveMoveTest(Base):

    #: Of 4 KiB: probes read both ends.
    BLOCKS = '0 256 %d' % ((1 << 18) - 1)

    def put(self, attached, text, blocks='256'):
        attached.node.run(
            'for b in %s; do printf %%-4096s %s | dd of=%s bs=4096 seek=$b '
            'conv=notrunc oflag=direct iflag=fullblock status=none || exit; '
            'done' % (blocks, text, attached.path))

    def get(self, attached, flag='direct', blocks='256'):
        """What is in some blocks: a word, if it is the same in all."""
        return ' '.join(sorted(set(attached.node.run(
            'for b in %s; do dd if=%s bs=4096 skip=$b count=1 iflag=%s '
            'status=none || exit; done' % (blocks, attached.path, flag)
        ).stdout.split())))

    def hydrated(self):
        return observe.clone_progress(self.n2)[0]

    def test_forward(self):
        volume, source, destination, writer, _expected = (
            self.migrating_volume())
        self.assert_reads_the_newest(source, destination)
        self.wait_two_checks()
        self.assertEqual(0, self.hydrated())
        source.stop_writing(writer)
        self.assertIn(' 0 bad', destination.verify(writer.stdout))
        expected = self.checksum(destination)
        resumed = destination.start_writing(first_mib=300)
        source.detach('in-use')
        self.assert_moved(volume, destination, expected)
        self.assertTrue(resumed.running)
        destination.stop_writing(resumed)
        for each in (writer, resumed):
            self.assertIn(' 0 bad', destination.verify(each.stdout))

    def assert_reads_the_newest(self, source, destination):
        """Nothing on the way from the source's guest keeps what it read.

        The destination's handle is held open, as QEMU does: what anything
        had read of it through the page cache would stay there.
        """
        holder = self.n2.popen('exec 9<%s; sleep 600' % destination.path)
        process.wait_for('the holder', lambda: self.n2.run(
            'dmsetup info -c --noheadings -o open ' + destination.path
        ).stdout.strip() == '1', 60)
        self.n2.run('udevadm trigger --subsystem-match=block; '
                    'udevadm settle --timeout=20')
        # The imported disk's own cache is not on the way.
        self.n2.run('for d in /sys/class/iscsi_session/*/device/target*/*/'
                    'block/*; do for b in %s; do dd if=/dev/${d##*/} '
                    'bs=4096 skip=$b count=1 of=/dev/null || exit; done; '
                    'done' % self.BLOCKS)
        for text in ('first', 'second', 'third'):
            self.put(source, text, self.BLOCKS)
            self.assertEqual(text, self.get(destination, 'direct',
                                            self.BLOCKS))
        self.assertEqual('third', self.get(destination, 'fullblock',
                                           self.BLOCKS))
        # The check can tell: by that read it is in the cache, to stay.
        self.put(source, 'fourth')
        self.assertEqual('third', self.get(destination, 'fullblock'))
        self.assertEqual('fourth', self.get(destination))
        holder.kill()

    def test_rolled_back(self):
        volume, source, destination, writer, expected = (
            self.migrating_volume())
        destination.detach('in-use')
        self.assert_at_source(volume)
        # Nova never read the answer to its next try, so it knows of nothing
        # to take back; an operator finds that.
        self.instance.connect_live(volume, self.instance.connector(self.n2))
        late, = [each['id'] for each in self.instance.nova.get(
            '/attachments').json()['attachments']
            if each['id'] != source.id]
        self.assertEqual('node2', instances.home(self.lab, volume))
        self.wait_two_checks()
        self.assertEqual(0, self.hydrated())
        self.assertEqual(1, len(observe.move_records(self.lab)))
        self.instance.nova.delete('/attachments/' + late).raise_for_status()
        self.assert_at_source(volume)
        self.assertTrue(writer.running)
        source.stop_writing(writer)
        self.assertIn(' 0 bad', source.verify(writer.stdout))
        self.assertEqual(expected, self.checksum(source))

    def assert_at_source(self, volume):
        process.wait_for('the shadow to go',
                         lambda: not observe.move_records(self.lab), 60)
        self.assertEqual('node1', instances.home(self.lab, volume))
        process.wait_for('the export to go', lambda: not observe.leftovers(
            self.n1, None), 90)
        self.assertEqual([], observe.leftovers(self.n2, volume))
        self.assertEqual([], observe.volume_lvs(self.n2))

    def test_a_dropped_attachment_is_rolled_back_at_length(self):
        """The detach of the destination never reached the driver."""
        volume, source, destination, writer, _expected = (
            self.migrating_volume())
        observe.sql(self.lab, "UPDATE volume_attachment SET deleted = 1 "
                    "WHERE id = '%s'" % destination.id)
        self.assert_at_source(volume)
        destination = self.instance.attach(volume, self.n2, live=True)
        self.force_detach(destination)
        self.assert_at_source(volume)
        self.assertEqual('in-use', self.row(volume)['status'])
        self.assertTrue(writer.running)
        source.stop_writing(writer)
        self.assertIn(' 0 bad', source.verify(writer.stdout))

    def test_no_hydration_while_the_source_is_open(self):
        volume, source, destination, writer, expected = (
            self.migrating_volume())
        source.detach('in-use')  # though the guest still writes there
        self.wait_two_checks()
        self.assertEqual(0, self.hydrated())
        self.assertIn('copying_waits', self.n1.service_log().replace(
            'Volume %s was detached from this node, but its copy' % volume,
            'copying_waits'))
        source.stop_writing(writer)
        self.assert_moved(volume, destination, expected)
        self.assertIn(' 0 bad', destination.verify(writer.stdout))

    def test_both_lose_power_before_the_guest_has_left_at_length(self):
        volume, source, destination, writer, expected = (
            self.migrating_volume())
        self.n1.power_cut()
        self.n2.power_cut()
        for node in (self.n2, self.n1):  # the destination has no source yet
            node.power_on()
            self.restart(node, 'start')
        for node in (self.n1, self.n2):
            process.wait_for('the handle', lambda n=node: not n.run(
                'test -b ' + source.path, check=False).returncode, 90)
        self.assertIn(' 0 bad', source.verify(writer.stdout))
        self.assertEqual(0, self.hydrated())
        self.force_detach(source)
        self.assert_moved(volume, destination, expected)
        self.assertIn(' 0 bad', destination.verify(writer.stdout))

    def test_requests_before_the_guest_has_left_at_length(self):
        """Each is refused, and nothing changes by it; then a lost signal."""
        volume, source, _destination, writer, expected = (
            self.migrating_volume())
        move_records = observe.move_records(self.lab)

        def unchanged():
            row = self.row(volume)
            return (row['status'], row['size'], len(row['attachments']),
                    observe.move_records(self.lab), self.hydrated()) == (
                        'in-use', 1, 2, move_records, 0) and row
        attached = 'must not be migrating, attached'
        for reason, ask in (
                (attached, lambda: self.demo.delete('/volumes/' + volume)),
                (attached, lambda: self.act(volume, 'os-force_delete')),
                (attached, lambda: self.act(volume, 'os-unmanage')),
                ('status must be available', lambda: self.act(
                    volume, 'os-volume_upload_image', self.demo,
                    image_name='wrong', force=True)),
                ('to reserve', lambda: instances.Instance(
                    self.lab).connect_live(
                    volume, self.instance.connector(self.n2)))):
            answer = ask()
            self.assertGreaterEqual(answer.status_code, 400, answer.text)
            self.assertIn(reason, answer.text)
            self.assertTrue(unchanged(), answer.text)
        # A second move.
        answer = self.instance.connect_live(
            volume, self.instance.connector(self.n1))
        self.assertGreaterEqual(answer.status_code, 400, answer.text)
        self.assertIn('is being moved', self.told(volume))
        self.assertTrue(unchanged())
        # What is taken first, and fails then. The lab has no backup service.
        self.demo.post('/backups', json={'backup': {
            'volume_id': volume, 'force': True}}).raise_for_status()
        process.wait_for('the end of the backup', unchanged, 90)
        self.act(volume, 'os-extend', self.demo,
                 new_size=2).raise_for_status()
        # Cinder has no other end for what a driver refuses.
        instances.wait_status(self.demo, volume, 'error_extending', 90)
        self.assertTrue([text for _, text in base.messages(self.lab, volume)
                         if 'is being moved' in text])
        self.act(volume, 'os-reset_status', status='in-use'
                 ).raise_for_status()
        self.assertTrue(unchanged())
        for force in (False, True):
            self.act(volume, 'os-migrate_volume', force_host_copy=force,
                     host='node1@localclone#localclone').raise_for_status()
            process.wait_for(
                'the refusal', lambda: self.row(volume)['migration_status']
                == 'error', 90)
            self.assertTrue(unchanged())
        snapshot = self.demo.post('/snapshots', json={'snapshot': {
            'volume_id': volume}}).raise_for_status().json()['snapshot']
        process.wait_for('the refusal', lambda: self.demo.get(
            '/snapshots/' + snapshot['id']).json()['snapshot']['status']
            == 'error', 90)
        self.assertTrue(unchanged())
        self.demo.delete('/snapshots/' + snapshot['id']).raise_for_status()
        process.wait_for('the snapshot to go', lambda: not self.demo.get(
            '/snapshots').json()['snapshots'], 90)
        # All attachments are dropped, and nothing is told of it. At once:
        # Cinder's os-reset_status drops them one after the other, and a look
        # in between finds a migration that was given up.
        observe.sql(self.lab, "START TRANSACTION; "
                    "UPDATE volume_attachment SET deleted = 1, "
                    "attach_status = 'detached' WHERE volume_id = '%s'; "
                    "UPDATE volumes SET status = 'available', "
                    "attach_status = 'detached' WHERE id = '%s'; COMMIT"
                    % (volume, volume))
        self.demo.delete('/volumes/' + volume).raise_for_status()
        self.wait_two_checks()
        instances.wait_status(self.demo, volume, 'available')
        self.assertEqual(move_records, observe.move_records(self.lab))
        self.assertEqual(0, self.hydrated())
        self.assertTrue(writer.running)
        source.stop_writing(writer)
        observe.wait_moved(self.lab, volume)
        attached = self.instance.attach(volume, self.n2)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.assert_moved(volume, attached, expected)
