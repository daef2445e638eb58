# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads of real nodes while a volume moves."""

import re

from lab.core import process
from tests.functional import base

PORT = 9837
#: Sources that answer on a node that is well.
SOURCES = ('comparison', 'database', 'doctor', 'service', 'storage')
_LINE = re.compile(r'^(localclone_\w+)\{(.*)\} (\S+)$', re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse(text):
    """The values by name and by labels, but for those that all have."""
    return {(name, *sorted(
        value for label, value in _LABEL.findall(labels)
        if label not in ('backend', 'host'))): float(value)
        for name, labels, value in _LINE.findall(text)}


class MetricsTest(base.LabTest):

    def scrape(self, node, *words):
        done = node.operator('metrics', '--seconds', '60', *words)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return parse(done.stdout)

    def answered(self, found):
        return {name for name in SOURCES
                if found['localclone_collector_success', name]}

    def moves(self, found):
        return {labels[0]: count for (name, *labels), count in found.items()
                if name == 'localclone_moves' and count}

    def test_while_a_volume_moves(self):
        volume, attached, expected = self.moving_volume()
        self.brake('15mbit')

        def copying():
            found = self.scrape(self.n2)
            # The rate needs two samples.
            return found.get(('localclone_copied_bytes', volume)) and (
                'localclone_copy_rate_bytes', volume) in found and found
        found = process.wait_for('the first part to be copied', copying, 90,
                                 every=1)
        self.assertEqual(set(SOURCES), self.answered(found))
        self.assertEqual({'migrating': 1}, self.moves(found))
        ends = 'node1@localclone', 'node2@localclone', volume
        total = found['localclone_move_bytes', *sorted(ends)]
        self.assertEqual(1 << 30, total)
        self.assertLess(found['localclone_copied_bytes', volume], total)
        self.assertEqual(0, found['localclone_clone_failed', volume])
        self.assertEqual(0, found['localclone_move_stalled', *sorted(ends)])
        self.assertEqual(1, found['localclone_copies', 'running'])
        self.assertIn(('localclone_copy_rate_bytes', volume), found)
        for what in ('data', 'metadata'):
            self.assertTrue(
                0 < found['localclone_pool_used_bytes', what]
                <= found['localclone_pool_size_bytes', what])
        self.assertEqual(0, found['localclone_differing_volumes',])
        self.assertEqual(0, found['localclone_doctor_checks', 'FAIL'])
        source = self.scrape(self.n1)
        self.assertEqual({}, self.moves(source))  # the destination tells
        self.assertTrue(source['localclone_events_total', 'move_committed'])
        self.assertIn('[localclone-102] The home of volume ' + volume,
                      self.n1.service_log())
        self.assert_moved(volume, attached, expected)
        found = self.scrape(self.n2)
        self.assertEqual({}, self.moves(found))
        self.assertNotIn(('localclone_copied_bytes', volume), found)
        self.assertTrue(found['localclone_events_total', 'move_completed'])
        self.assertEqual(1, found['localclone_volumes',])

    def test_exported_and_written_at_length(self):
        self.volume()
        path = '/run/localclone.prom'
        done = self.n1.operator(
            'metrics', '--seconds', '60', '--textfile', path)
        self.assertEqual((0, ''), (done.returncode, done.stdout), done.stderr)
        written = parse(self.n1.run(['cat', path]).stdout)
        self.assertEqual(1, written['localclone_volumes',])
        log = self.lab.logs / 'node1.metrics.log'
        pid = self.n1.run(
            'setsid %s -W ignore -m cinder_localclone.cmd.main --config-file '
            '%s metrics --seconds 40 --listen %d >%s 2>&1 </dev/null & '
            'echo $!' % (
                self.lab.python, self.n1.directory / 'localclone.conf', PORT,
                log)).stdout.strip()
        self.addCleanup(self.n1.run, 'kill -- -%s' % pid, check=False)

        def fetched():
            done = self.n1.run([
                self.lab.python, '-c', 'import urllib.request as r; '
                'print(r.urlopen("http://127.0.0.1:%d/metrics", timeout=50)'
                '.read().decode())' % PORT], check=False)
            return not done.returncode and parse(done.stdout)
        served = process.wait_for('the exporter', fetched, 120, log)
        self.assertEqual(set(SOURCES), self.answered(served))
        self.assertEqual(set(written), {
            key for key in served if key in written})

    def test_one_source_that_is_away_hides_no_other_at_length(self):
        self.volume()
        self.n1.service('kill')
        found = self.scrape(self.n1)
        self.assertEqual(set(SOURCES) - {'service'}, self.answered(found))
        self.assertEqual(1, found['localclone_volumes',])
        self.assertTrue(found['localclone_capacity_bytes',])
