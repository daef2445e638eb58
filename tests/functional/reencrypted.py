# SPDX-License-Identifier: Apache-2.0
"""The base of tests of re-encryptions."""

import json

from lab.core import process
from lab.keys import volumes
from tests.functional import driver_encrypted as encrypted


class Base(encrypted.DriverTest):

    def setUp(self):
        super().setUp()
        self.volume_id = self.encrypted()
        self.attached = self.instance.attach(self.volume_id, self.n1)
        self.expected = self.mark(self.attached)
        self.whole = self.fill_behind(self.attached)

    # -- the operator

    def reencryption(self, verb, *more, timeout=120):
        """What the command says of the volume."""
        done = self.n1.operator('--json', 'reencryption', verb, self.volume_id,
                                *more, timeout=timeout)
        self.assertEqual(0, done.returncode, done.stderr + done.stdout)
        return json.loads(done.stdout)[0]

    def start(self, *more):
        found = self.reencryption('start', *more)
        self.assertEqual('running', found['Re-encryption'])
        self.wait_done(1)

    def metadata(self, node=None):
        return volumes.header_json(
            node or self.n1, '/dev/mapper/localclone-' + self.volume_id)

    def under_way(self, node=None):
        return 'requirements' in self.metadata(node)['config']

    def done(self, node=None):
        """How many MiB are encrypted anew."""
        header = self.metadata(node)
        final = [segment for segment, each in header['segments'].items()
                 if 'backup-final' in each.get('flags', ())]
        if not final:
            return 1024
        digest, = (each for each in header['digests'].values()
                   if final[0] in each['segments'])
        return sum(int(each['size']) for segment, each in
                   header['segments'].items()
                   if segment in digest['segments'] and segment != final[0]
                   and 'in-reencryption' not in each.get('flags', ())
                   and each['size'] != 'dynamic') >> 20

    def wait_done(self, mib, node=None):
        process.wait_for('%d MiB' % mib, lambda: self.done(node) >= mib, 120,
                         every=0.5)

    def runs(self, node):
        return not node.run('pgrep -f "[c]ryptsetup reencrypt.*%s"'
                            % self.volume_id, check=False).returncode

    def wait_runs(self, node, seconds=90):
        process.wait_for('it to go on', lambda: self.runs(node), seconds,
                         every=0.5)

    def wait_end(self, node, cipher='aes-xts-plain64'):
        """It ends, and what belongs to that is done."""
        process.wait_for('it to end', lambda: not self.under_way(node), 300,
                         every=1)
        process.wait_for('the tag to go', lambda: not [
            tag for tag in self.lv_tags(node, self.volume_id)
            if 'reencrypted' in tag or 'paused' in tag], 60, every=1)
        header = self.metadata(node)
        segment, = header['segments'].values()
        self.assertEqual((cipher, 'dynamic'),
                         (segment['encryption'], segment['size']))
        self.assertEqual(1, len(header['keyslots']))
        token, = header['tokens'].values()
        self.assertEqual(list(header['keyslots']), token['keyslots'])
        self.assertEqual([], node.run(
            'dmsetup ls | grep -e -overlay -e -hotzone', check=False)
            .stdout.split())

    def assert_data(self, attached, *writers):
        self.assertEqual(self.whole, self.checksum(
            attached, encrypted.FILLED))
        for writer in writers:
            self.assertIn(' 0 bad', attached.verify(writer.stdout))
