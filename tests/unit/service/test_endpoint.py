# SPDX-License-Identifier: Apache-2.0
"""Answers to other nodes' calls."""

import types
from unittest import mock

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core import rpc
from cinder_localclone.core.state import Event
from cinder_localclone.core.volume import Volume
from cinder_localclone.moves import remote_attachment
from cinder_localclone.volumes import operations
from tests.helpers.attach_case import B
from tests.helpers.attach_case import Base
from tests.helpers.attach_case import ELSEWHERE
from tests.helpers.attach_case import ON_B
from tests.helpers import callers
from tests import world as worlds


class HandlersTest(Base):

    def setUp(self):
        super().setUp()
        self.service = types.SimpleNamespace(
            node=self.b.node, backend_name='p', addresses=['192.0.2.2'],
            block=4096,
            initiator='iqn.b',
            readiness=lambda: (lvm_reports.FreeSpace(4, 2, True), ['none'], 7),
            reconciler=self.b.reconciler, connections=self.b.connections)
        self.handlers = callers.Answers(self.service)

    def test_describe(self):
        described = self.handlers.describe()
        self.assertLess(1 << 30, described.pop('time'))
        self.assertEqual({
            'host': 'b@l#p', 'addresses': ['192.0.2.2'],
            'initiator': 'iqn.b', 'problems': ['none'],
            'free_space': {'volumes': 4, 'metadata': 2, 'shared': True},
            'to_wipe': 7, 'sparse': False, 'block': 4096}, described)
        self.world.pool = 'pool'
        self.assertTrue(self.handlers.describe()['sparse'])

    def test_copies_give_way_to_a_pass_through(self):
        waker = self.b.reconciler.copying.waker
        with mock.patch.object(waker, 'give_way') as gave, \
                mock.patch.object(
                    remote_attachment, 'begin',
                    side_effect=lambda *_: self.assertEqual(
                        [mock.call(), mock.call().__enter__()],
                        gave.mock_calls)) as begun:
            self.handlers.begin_remote(self.volume.id, {}, {})
        begun.assert_called_once_with(
            self.b.node, self.volume.id, {}, {})
        gave().__exit__.assert_called_once()

    def test_end_of_a_pass_through(self):
        """Of the one that is meant, under the volume's lock."""
        held = []
        with mock.patch.object(
                remote_attachment, 'end',
                side_effect=lambda *_: held.append({*self.b.held})) as ended:
            with mock.patch.object(
                    self.b.node.sessions._inner, 'may_be_attached_by',
                    lambda volume_id, user: user == 'user'):
                for user in ('user', 'another'):
                    self.handlers.end_remote_attachments(self.volume.id, user)
        ended.assert_called_once_with(self.b.node, self.volume.id)
        self.assertEqual([{self.volume.id}], held)

    def prepared(self):
        self.a.node.moves.begin(
            self.volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')
        self.a.node.handles._inner.ensure_source(self.move())
        self.a.node.exports._inner.export_source(self.move())
        return lambda: self.handlers.prepare(self.move().move_id, 'n')

    def test_prepare(self):
        prepare = self.prepared()
        with self.b.lock(self.volume.id):
            self.assertRaises(exceptions.Busy, prepare)
        prepare()
        self.assertIn(self.handle, self.b.devices)

    def test_prepare_what_nobody_knows(self):
        self.assertRaises(exceptions.StaleMove, self.handlers.prepare,
                          'unknown', 'n')

    def test_reconcile_and_inspect(self):
        self.connect(ON_B)
        del self.b.devices[self.handle]
        self.handlers.reconcile(self.volume.id)
        report = self.handlers.inspect(self.volume.id)
        self.assertEqual(
            ['clone ' + names.clone(self.move().move_id)],
            report['handle']['on'])

    def test_repair(self):
        self.connect(ON_B)
        del self.b.devices[self.handle]
        self.assertEqual(
            ['handle of %s now on its clone' % self.volume.id],
            self.handlers.repair(self.volume.id)[:1])

    def test_connections(self):
        self.connect(ON_B)
        attachments = volume_attachments.as_sent(self.volume)
        self.is_local(self.handlers.initialize_connection(
            self.volume.id, ON_B, attachments))
        self.handlers.initialize_connection(
            self.volume.id, ELSEWHERE, attachments)
        self.assertEqual(1, len(self.b.remote))
        self.handlers.terminate_connection(
            self.volume.id, ELSEWHERE, attachments)
        self.assertEqual(set(), self.b.remote)

    def test_delete(self):
        delete = self.handlers.delete
        self.assertRaises(exceptions.StaleMove, delete, self.volume.id)
        self.assertIn(self.volume.name, self.a.lvs)
        self.volume.host, self.volume.status = B + '#p', 'deleting'
        self.b.lvs[self.volume.name] = self.a.lvs.pop(self.volume.name)
        delete(self.volume.id)
        self.assertEqual({}, self.b.lvs)

    def test_abort_and_resume(self):
        for method in (self.handlers.abort, self.handlers.resume):
            self.assertRaises(exceptions.NotPossible, method, self.volume.id)
        self.assertEqual(
            [operations.abort, operations.go_forward,
             operations.open_without_source],
            [rpc.METHODS[name].function for name in (
                'abort', 'resume', 'open_without_source')])

    def test_what_ends_is_handed_on(self):
        """Without a connector all connections would end."""
        with mock.patch.object(volume_attachments, 'is_late_to_detach',
                               return_value=True) as late:
            self.handlers.terminate_connection(
                self.volume.id, ELSEWHERE, {'one': {}})
        late.assert_called_once_with(
            Volume.of(self.volume), ELSEWHERE, {'one': {}})

    def test_late_request_to_connect(self):
        self.connect(ON_B)
        self.assertRaises(
            exceptions.Refused, self.handlers.initialize_connection,
            self.volume.id, ELSEWHERE, {'an earlier one': None})
        self.assertEqual(set(), self.b.remote)

    def test_begin_of_a_pass_through(self):
        """With what the home has told, under the volume's lock."""
        held = []
        with mock.patch.object(
                remote_attachment, 'begin',
                side_effect=lambda *_: held.append({*self.b.held})) as begun:
            self.handlers.begin_remote(self.volume.id, {}, {'one': None})
        begun.assert_called_once_with(
            self.b.node, self.volume.id, {}, {'one': None})
        self.assertEqual([{self.volume.id}], held)
