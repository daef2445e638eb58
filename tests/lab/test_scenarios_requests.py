# SPDX-License-Identifier: Apache-2.0
"""Requests of the lab: sent once, or until they are done."""

from unittest import mock

import ddt
import testtools

from lab.core import process
from lab.scenarios import once
from lab.scenarios.once import operation as once_operation
from lab.scenarios import repeated
from lab.scenarios.repeated import operation
from lab.scenarios.repeated import third_party
from lab.scenarios import requests
from lab.scenarios import snapshot as snapshots

HOST = 'node2@localclone#localclone'


def disk(*rows, exists=(True,)):
    """A volume of which the API shows these rows, the last for ever."""
    rows, left = list(rows), list(exists)
    made = mock.Mock(volume='v')
    made.row.side_effect = lambda: rows.pop(0) if len(rows) > 1 else rows[0]
    made.exists.side_effect = lambda: (
        left.pop(0) if len(left) > 1 else left[0])
    made.cinder.get.return_value.json.return_value = {'messages': [
        {'resource_uuid': 'v', 'user_message': 'told why'}]}
    made.cinder.delete.return_value.status_code = 202
    return made


class WaitTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.patch(requests.time, 'sleep', lambda seconds: None)

    def test_what_is_never_done_takes_too_long(self):
        self.assertRaises(requests.TakesTooLong, requests.wait, 'it',
                          lambda: False, -1)

    def test_what_is_refused_is_asked_again(self):
        call = mock.Mock(side_effect=[requests.Refused('no'), OSError(), 7])
        self.assertEqual(7, requests.until('it', call))
        self.assertIn('no', str(self.assertRaises(
            process.LabError, requests.until, 'it',
            mock.Mock(side_effect=requests.Refused('no')), -1)))

    def test_an_answer_that_refuses(self):
        self.assertRaises(requests.Refused, requests.ask, mock.Mock(
            status_code=400, text='no'))


def extended(status, size):
    return {'status': status, 'size': size}


class ExtensionTest(testtools.TestCase):

    def request(self, *rows):
        return requests.Extension(disk(*rows), 2)

    def test_is_done_when_it_is_larger(self):
        found = self.request(extended('in-use', 1), extended('extending', 1),
                             extended('in-use', 2))
        found.send()
        found.disk.act.assert_called_once_with('os-extend', new_size=2)
        self.assertEqual([False, True], [found.is_done(), found.is_done()])

    def test_refused(self):
        for row in (extended('error_extending', 1), extended('available', 1)):
            self.assertIn('told why', str(self.assertRaises(
                requests.Refused, self.request(row).is_done)))

    def test_is_not_sent_again_while_it_is_under_way(self):
        found = self.request(extended('extending', 1))
        self.assertRaises(process.LabError, found.ensure)
        found.disk.act.assert_not_called()

    def test_is_sent_again_after_a_failure(self):
        found = self.request(extended('error_extending', 1),
                             extended('available', 1),
                             extended('available', 2))
        found.ensure()
        found.disk.admin.assert_called_once_with(
            'os-reset_status', status='available')
        found.disk.act.assert_called_once_with('os-extend', new_size=2)

    def test_what_is_done_is_not_sent_again(self):
        found = self.request(extended('error_extending', 2))
        found.ensure()
        found.disk.admin.assert_called_once_with(
            'os-reset_status', status='available')
        found.disk.act.assert_not_called()


def migrated(host, migration, status='available'):
    return {'os-vol-host-attr:host': host, 'migration_status': migration,
            'status': status}


@ddt.ddt
class MigrationTest(testtools.TestCase):

    there = migrated(HOST, 'success')
    here = migrated('node1@localclone#localclone', None)

    def request(self, *rows):
        return requests.Migration(disk(*rows), HOST)

    def test_is_done_when_it_is_there(self):
        found = self.request(self.here)
        found.send()
        found.disk.admin.assert_called_once_with(
            'os-migrate_volume', host=HOST, force_host_copy=False)
        self.assertTrue(self.request(self.there).is_done())
        self.assertFalse(self.request(
            migrated(HOST, 'completing')).is_done())

    @ddt.data(here, migrated(HOST, 'error'))
    def test_refused(self, row):
        self.assertRaises(requests.Refused, self.request(row).is_done)

    def test_what_has_ended_there_is_not_sent_again(self):
        for row in (self.there, migrated(HOST, 'error')):
            found = self.request(row)
            found.ensure()
            found.disk.admin.assert_not_called()

    def test_is_sent_again_if_it_has_ended_elsewhere(self):
        found = self.request(*[self.here] * 3, self.there)
        found.ensure()
        found.disk.admin.assert_called_once()

    def test_is_not_sent_again_while_it_is_under_way(self):
        found = self.request(migrated('node1@localclone', 'migrating'))
        self.assertRaises(process.LabError, found.ensure)
        found.disk.admin.assert_not_called()


class DeletionTest(testtools.TestCase):

    def test_is_sent_until_the_volume_is_gone(self):
        found = requests.Deletion(disk(
            {'status': 'available'}, {'status': 'deleting'},
            exists=(True, True, False)))
        for _time in range(2):
            self.assertRaises(process.LabError, found.ensure)
        found.ensure()
        found.disk.cinder.delete.assert_called_once_with('/volumes/v')
        self.assertTrue(found.is_done())

    def test_it_has_just_gone(self):
        found = requests.Deletion(disk({'status': 'deleting'}))
        found.disk.cinder.delete.return_value.status_code = 404
        found.send()
        found.disk.cinder.delete.return_value = mock.Mock(
            status_code=409, text='no')
        self.assertRaises(requests.Refused, found.send)


class UncommittedTest(testtools.TestCase):
    """A volume that is made of a snapshot, or of another volume."""

    content = {'mib': 1024, 'fills': [[0, 2, 'a']], 'areas': [],
               'acknowledged': {}}

    def request(self, snapshot):
        volume = mock.MagicMock(volume='v')
        volume.content.return_value = self.content
        volume.cinder.post.return_value.status_code = 202
        volume.cinder.post.return_value.json.return_value = {
            'volume': {'id': 'made'}}
        disks = mock.Mock()
        self.patch(snapshots, 'disks', disks)
        found = snapshots.Uncommitted(volume, 2, snapshot)
        return found, disks.Disk.return_value

    def test_has_what_its_image_had(self):
        snapshot = mock.Mock(id='s', content=dict(self.content, fills=[]))
        for of, image, content in (
                (None, {'source_volid': 'v'}, self.content),
                (snapshot, {'snapshot_id': 's'}, snapshot.content)):
            found, made = self.request(of)
            found.send()
            found.disk.cinder.post.assert_called_once_with(
                '/volumes', json={'volume': dict(image, size=2)})
            made.become.assert_called_once_with(content)

    def test_is_removed_once(self):
        found, made = self.request(None)
        found.remove()
        found.send()
        found.remove()
        found.remove()
        made.remove.assert_called_once_with()


@ddt.ddt
class OperationTest(testtools.TestCase):
    """Operations of both kinds, of a plain volume that nobody has yet."""

    def disk(self):
        made = mock.MagicMock(volume='v', key=b'')
        made.row.return_value = extended('available', 1)
        return made

    @ddt.data(*repeated.OPERATIONS, *third_party.OPERATIONS)
    def test_repeated(self, name):
        kind = dict(repeated.OPERATIONS, **third_party.OPERATIONS)[name]
        volume = self.disk()
        made = kind(mock.MagicMock(), volume, *[
            mock.Mock(service_host=name + '@localclone')
            for name in ('node1', 'node2')])
        self.assertEqual({'v'}, set(made.ids))
        self.assertEqual(set(), made.keys)
        self.assertTrue(made.answered)
        made.tidy()
        self.assertEqual([], volume.method_calls)
        if isinstance(made, operation.Requested):
            self.assertIs(made.request, made.request)
            self.assertIsInstance(made.request, requests.Request)

    @ddt.data(*once.OPERATIONS)
    def test_once(self, name):
        volume = self.disk()
        place = mock.MagicMock(disk=volume)
        made = once.OPERATIONS[name](place, mock.Mock(word='waits'))
        self.assertEqual(once_operation.WAITING, made.seconds)
        if type(made).prove is not once_operation.Once.prove:
            self.assertIs(made.request, made.request)
            with mock.patch.object(type(made.request), 'do') as do, (
                    mock.patch.object(type(made), 'prove')) as prove:
                self.assertEqual(
                    'works', once_operation.Once.ask(made))
            do.assert_called_once_with(once_operation.WAITING)
            prove.assert_called_once_with()
