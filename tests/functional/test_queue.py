# SPDX-License-Identifier: Apache-2.0
"""Several volumes that move at once: one is copied after the other."""

import json
import re
import time

from lab.core import observe
from lab.core import process
from tests.functional import base

#: What each volume has, and what is read of it while it waits.
DATA, MIB = 64, 1


class QueueTest(base.LabTest):

    def setUp(self):
        super().setUp()
        self.addCleanup(self.drop_snapshots)
        self.set_options(localclone_max_copies_in=1)

    def copied(self):
        """The shadows of those that node2's kernel copies at this moment."""
        found = re.findall(
            r'(?m)^localclone-clone-(\S+): (\d+ \d+ clone .*)$', self.n2.run(
                'dmsetup status --noflush', check=False).stdout)
        return [record for record, status in found
                if 'no_hydration' not in status]

    def remarks(self):
        """What an operator reads of each volume's copy."""
        done = self.n1.operator('move', 'list', '--json')
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return {row['Volume']: row['Remark']
                for row in json.loads(done.stdout)}

    def test_one_after_the_other_at_length(self):
        expected, head = {}, {}
        for _each in range(3):
            volume = self.volume()
            attached = self.instance.attach(volume, self.n1)
            expected[volume] = self.fill(attached, DATA)
            head[volume] = self.checksum(attached, MIB)
            attached.detach()
        self.brake('4mbit')
        at = {volume: self.instance.attach(volume, self.n2)
              for volume in expected}
        move_records = dict(observe.sql(
            self.lab, "SELECT id, REPLACE(migration_status, 'target:', '') "
            "FROM volumes WHERE deleted = 0 AND migration_status LIKE "
            "'target:%'"))
        self.assertEqual(set(expected), set(move_records.values()))
        self.wait_two_checks()
        first, second, third = expected
        self.assertEqual([first],
                         [move_records[each] for each in self.copied()])
        remarks = self.remarks()
        self.assertEqual(
            ['waiting in the queue (1st)', 'waiting in the queue (2nd)'],
            [remarks[second], remarks[third]])
        # All of them can be read and written meanwhile.
        for volume, attached in at.items():
            self.assertEqual(head[volume], self.checksum(attached, MIB))
            self.n2.run('dd if=/dev/urandom of=%s bs=1M seek=512 count=1 '
                        'oflag=direct conv=notrunc,fsync status=none'
                        % attached.path)
        # What a snapshot waits for comes next.
        self.demo.post('/snapshots', json={'snapshot': {
            'volume_id': third, 'force': True}}).raise_for_status()
        process.wait_for(
            'the one that a snapshot waits for to be copied',
            lambda: [move_records[each] for each in self.copied()] == [third],
            60)
        self.brake()
        order = self.order(move_records)
        self.assertEqual([third, first, second], order)
        for volume, attached in at.items():
            observe.wait_moved(self.lab, volume)
            self.assertEqual(expected[volume], self.checksum(attached, DATA))
            attached.detach()
        self.assertEqual([], observe.leftovers(self.n1, None))
        self.assertEqual([], observe.leftovers(self.n2, None))

    def order(self, move_records):
        """In which order they are copied from now on; never two at once."""
        order = []
        deadline = time.monotonic() + 400
        while observe.move_records(self.lab):
            self.assertLess(time.monotonic(), deadline, order)
            copied = [move_records[each] for each in self.copied()]
            self.assertLessEqual(len(copied), 1, copied)
            order += [each for each in copied if each not in order]
            time.sleep(0.3)
        return order

    def drop_snapshots(self):
        def dropped():
            found = self.demo.get('/snapshots').json()['snapshots']
            for snapshot in found:
                self.demo.delete('/snapshots/' + snapshot['id'])
            return not found
        process.wait_for('the snapshots to go', dropped, 60, every=1)
