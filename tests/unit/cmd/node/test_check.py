# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone node check`` and ``node show``."""

import time

from tests.helpers.command_case import A
from tests.helpers.command_case import B
from tests.helpers.command_case import ListingCase
from tests.helpers.command_case import V1
from tests.helpers import inventory_rows

READY = {'problems': [], 'to_wipe': 3 << 20, 'block': 4096,
         'initiator': 'iqn.x', 'free_space': {
             'volumes': 5 << 30, 'metadata': 7 << 20, 'shared': False}}


class Case(ListingCase):

    def setUp(self):
        super().setUp()
        self.answers = {'describe': dict(READY), 'troubles': []}
        self.asked = []
        self.backend.ask.side_effect = self.ask
        volume = inventory_rows.row(V1, A)
        self.db.volumes.volumes_of.side_effect = lambda host: (
            [volume] if host == A else [])
        self.backend.volume.return_value = volume, None
        self.db.moves.pending_cleanups.return_value = []
        self.db.snapshots.snapshots_of.return_value = []
        lv = 'volume-' + V1
        self.answers['inspect'] = {
            'host': A, 'clone': None, 'session': None, 'progress': None,
            'exported': False, 'source': None, 'remote': False,
            'upper_devices': [],
            'lvs': [{'name': lv, 'size': 1, 'active': True, 'tags': []}],
            'handle': {'number': '253:7', 'opened': 0, 'suspended': False,
                       'on': ['LV ' + lv]}}

    def ask(self, host, name, *arguments):
        self.asked.append((host, name, *arguments))
        answer = self.answers[name]
        if isinstance(answer, Exception):
            return None, str(answer)
        return (dict(answer, time=time.time()) if name == 'describe'
                else answer), ''


class CheckTest(Case):

    def check(self, *words, code=0):
        return [(row['Check'], row['Verdict'], row['Details'])
                for row in self.listed('node', 'check', *words, code=code)]

    def test_all_nodes(self):
        rows = self.check()
        self.assertEqual(
            [(A, 'OK', 'ready'),
             ('clock of ' + A, 'OK', 'differs by 0.0 s'),
             ('volumes of ' + A, 'OK', '1, as in the records')], rows[:3])
        self.assertEqual((B, 'OK', 'ready'), rows[3])
        self.assertEqual(('volumes of ' + B, 'OK', '0, as in the records'),
                         rows[-1])

    def test_one_by_its_host_name(self):
        self.check(A.partition('@')[0])
        self.assertEqual({A}, {host for host, *_what in self.asked})
        _code, _out, err = self.run_command('node', 'check', 'none')
        self.assertIn('none is not a node of the backend', err)

    def test_difference(self):
        self.answers['inspect']['lvs'] = []
        found = self.check(A, code=1)[-1]
        self.assertEqual(('volume ' + V1, 'FAIL'), found[:2])
        self.assertIn('is missing', found[2])
        row = self.listed('node', 'check', A, code=1)[-1]
        self.assertEqual('cinder-localclone volume repair ' + V1, row['Fix'])

    def test_volume_that_is_not_told_of(self):
        self.answers['inspect'] = RuntimeError('did not answer')
        self.assertEqual(('volume ' + V1, 'FAIL', 'did not answer'),
                         self.check(A, code=1)[-1])

    def test_node_that_is_down(self):
        self.backend.nodes.return_value = {A: False}
        self.assertEqual([(A, 'FAIL', 'the service is down')],
                         self.check(code=1))
        self.assertEqual([], self.asked)

    def test_node_that_does_not_answer(self):
        self.answers['describe'] = RuntimeError('did not answer')
        self.assertEqual([(A, 'FAIL', 'did not answer')],
                         self.check(A, code=1))

    def test_troubles(self):
        self.answers['troubles'] = ['LVM hangs']
        self.assertIn(('troubles of ' + A, 'FAIL', 'LVM hangs'),
                      self.check(A, code=1))


class ShowTest(Case):

    def show(self, *words, code=0):
        return {row['Field']: row['Value']
                for row in self.listed('node', 'show', *words, code=code)}

    def test_show(self):
        found = self.show(A)
        self.assertEqual(
            (A, 'up', 5, 7, 3, 4096, 'iqn.x', V1 + ': available'),
            tuple(found[name] for name in (
                'Node', 'Service', 'Free GiB', 'Free metadata MiB',
                'To be wiped MiB', 'Sector bytes', 'iSCSI initiator',
                'Volume')))
        self.assertEqual([(A, 'describe')], self.asked)
        self.assertNotIn('Volume', self.show(B.partition('@')[0]))

    def test_node_that_is_down(self):
        self.backend.nodes.return_value = {A: False}
        found = self.show(A, code=1)
        self.assertEqual(('down', 'its service is down'),
                         (found['Service'], found['Remark']))
        self.assertNotIn('iSCSI initiator', found)
        self.assertEqual([], self.asked)
