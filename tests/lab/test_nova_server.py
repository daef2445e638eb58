# SPDX-License-Identifier: Apache-2.0
"""The model of a Nova server under test, with an API of its own."""

import json
from unittest import mock

import testtools

from lab.core import api
from lab.core import observe
from lab.core import process
from lab.guest import console
from lab.guest import image
from lab.nova import server as servers

ROOT, DATA = '1' * 8 + '-root-' + '0' * 22, '2' * 8 + '-data-' + '0' * 22


class Cloud:
    """Answers for Nova, Cinder and Glance; the guest writes all the time."""

    def __init__(self):
        self.lab = self
        self.logs = 'logs'
        self.nodes = {'node1': mock.Mock(), 'node2': mock.Mock()}
        for name, node in self.nodes.items():
            node.name = name
        self.asked, self.attached, self.server = [], [], None
        self.host, self.numbers, self.wrong = 'node1', 0, 0
        self.homes = {ROOT: 'node1', DATA: 'node2'}

    def client(self, _service, _user='admin'):
        return self

    def cinder(self, _user='admin'):
        return self

    def get(self, path):
        return self.request('GET', path).raise_for_status()

    def post(self, path, json=None):
        return self.request('POST', path, json)

    def delete(self, path):
        return self.request('DELETE', path)

    def request(self, method, path, body=None, _headers=None):
        if method != 'GET':
            self.asked.append((method, path))
        return api.Response(200, json.dumps(
            self._answer(method, path, body)).encode())

    def _answer(self, method, path, body):
        if path == '/flavors':
            return {'flavors': [{'name': image.NAME, 'id': '1'}]}
        if (method, path) == ('POST', '/servers'):
            self.server = body['server']
            self.attached = [
                self.server['block_device_mapping_v2'][0]['uuid']]
            return {'server': {'id': 'id-7'}}
        if path.startswith('/volumes/'):
            volume = path.rpartition('/')[2]
            return {'volume': {
                'status': 'in-use' if volume in self.attached
                else 'available',
                'os-vol-host-attr:host': self.homes[volume] + '@localclone'}}
        if path.endswith('os-volume_attachments'):
            self.attached.append(body['volumeAttachment']['volumeId'])
        elif method == 'DELETE' and 'os-volume_attachments' in path:
            self.attached.remove(path.rpartition('/')[2])
        elif method == 'DELETE':
            self.server, self.attached = None, []
        elif path.startswith('/servers?'):
            return {'servers': [{'id': 'id-7'}] if self.server else []}
        elif path == '/servers/id-7':
            return {'server': {
                'status': 'ACTIVE', 'OS-EXT-STS:task_state': None,
                'OS-EXT-SRV-ATTR:host': self.host}}
        elif body == {'os-getConsoleOutput': {}}:
            self.numbers += 1
            return {'output': '\n'.join(
                'guest vdb serial=%s seq=%d sweeps=%d bad=%d errors=0 '
                'worst_ms=1' % (console.serial(volume), self.numbers,
                                self.numbers, self.wrong)
                for volume in self.attached)}
        return {}


class ServerTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.patch(process.time, 'sleep', lambda _seconds: None)
        self.cloud = Cloud()

    def boot(self, *volumes):
        return servers.Server.boot(self.cloud, ROOT, 'node1', *volumes)

    def test_boots_with_volumes(self):
        server = self.boot(DATA)
        self.assertEqual('node1', self.cloud.server['host'])
        self.assertEqual([ROOT, DATA], server.volumes)
        self.assertEqual({'in-use'}, server.statuses())
        self.assertEqual({'node1', 'node2'}, server.homes())
        self.assertEqual(['node1', 'node2'],
                         [server.node.name, server.other_node.name])

    def test_scheduler_chooses_the_node(self):
        servers.Server.boot(self.cloud, ROOT, None)
        self.assertNotIn('host', self.cloud.server)

    def test_knows_the_attached_volumes(self):
        server = self.boot()
        server.attach(DATA)
        self.assertEqual({console.serial(ROOT), console.serial(DATA)},
                         set(server.written()))
        server.detach(DATA)
        self.assertEqual([ROOT], server.volumes)
        self.assertEqual({console.serial(ROOT)}, set(server.written()))

    def test_wrong_blocks(self):
        server = self.boot(DATA)
        self.assertTrue(server.wait_verified().check().clean)
        self.cloud.wrong = 1
        self.assertRaises(process.LabError, server.wait_verified().check)

    def test_waits_for_the_homes(self):
        server = self.boot(DATA)
        self.assertRaises(process.LabError, server.wait_homes, 0)
        self.cloud.homes[DATA] = 'node1'
        server.wait_homes(0)

    def test_waits_for_the_moves_of_all_volumes(self):
        server = self.boot(DATA)
        records = [[(ROOT, ''), (DATA, '')], [(DATA, '')], [(DATA, '')], []]
        self.patch(observe, 'move_records', lambda _lab: records.pop(0))
        server.wait_no_move()
        self.assertEqual([], records)

    def test_deletes(self):
        server = self.boot(DATA)
        server.delete()
        self.assertIsNone(self.cloud.server)
        self.assertEqual({'available'}, server.statuses())

    def test_deletes_all(self):
        self.boot()
        servers.delete_all(self.cloud)
        self.assertEqual(('DELETE', '/servers/id-7'), self.cloud.asked[-1])
