# SPDX-License-Identifier: Apache-2.0
"""Converging what is at rest, and an operator's operations."""

import types
from unittest import mock

import ddt
import testtools

from cinder_localclone import exceptions
from cinder_localclone import names
from cinder_localclone import operations
from cinder_localclone import reconcile
from cinder_localclone.state import Event
from cinder_localclone.state import Phase
from tests.unit import world as worlds

A, B = 'a@l', 'b@l'


class Base(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.volume = self.world.create_volume(A)
        self.volume_id = self.volume.id
        self.handle = names.handle(self.volume_id)

    def converge(self, node=None):
        (node or self.a).reconciler.converge_node()

    def move(self):
        return self.a.node.records.move_of(self.volume_id)


class AtRestTest(Base):

    def served(self, status, initiator='iqn.x', **more):
        """Cinder has a volume attached to a host over iSCSI."""
        self.volume.status = status
        self.volume.volume_attachment = [types.SimpleNamespace(
            connector={'host': 'x', 'initiator': initiator},
            connection_info=dict({
                'driver_volume_type': 'iscsi', 'target_iqn': initiator,
                'target_portal': 'portal of ' + A},
                **more))]

    def test_a_handle_that_is_lost(self):
        self.a.devices.clear()
        self.converge()
        self.assertIn(self.handle, self.a.devices)

    def test_an_export_that_is_lost(self):
        self.served('in-use')
        self.converge()
        self.assertEqual({(self.volume_id, 'iqn.x')}, self.a.remote)

    def test_local_connections_are_not_exported(self):
        self.served('in-use', driver_volume_type='local')
        self.converge()
        self.served('in-use', initiator=None)
        self.converge()
        self.assertEqual(set(), self.a.remote)

    def test_what_nothing_uses_is_exported_no_longer(self):
        self.a.node.exports.offer_volume(self.volume_id, 'iqn.x', 'auth')
        for status, exported in (('in-use', 1), ('reserved', 1),
                                 ('available', 0)):
            self.volume.status = status
            self.converge()
            self.assertEqual(exported, len(self.a.remote), status)

    def test_what_cinder_migrates_stays_exported(self):
        self.a.node.exports.offer_volume(self.volume_id, 'iqn.x', 'auth')
        self.volume.migration_status = 'migrating'
        self.converge()
        self.assertEqual(1, len(self.a.remote))

    def test_a_stray_handle_goes_unless_it_is_open(self):
        self.volume.host = B + '#p'
        self.a.opened.add(self.handle)
        with mock.patch.object(reconcile, 'LOG') as log:
            self.converge()
        self.assertEqual([], log.mock_calls)
        self.assertIn(self.handle, self.a.devices)
        self.a.opened.clear()
        self.converge()
        self.assertEqual({}, self.a.devices)
        self.assertIn(self.volume.name, self.a.lvs)

    def test_what_is_being_created_or_deleted_is_left_alone(self):
        self.a.devices.clear()
        for self.volume.status in ('creating', 'deleting', 'error_deleting'):
            self.converge()
            self.assertEqual({}, self.a.devices)

    def test_one_that_fails_does_not_stop_the_others(self):
        other = self.world.create_volume(A)
        self.a.devices.clear()
        del self.a.lvs[self.volume.name]
        with mock.patch.object(reconcile, 'LOG') as log:
            self.converge()
        self.assertEqual([names.handle(other.id)], list(self.a.devices))
        told = log.error.call_args
        self.assertEqual(self.volume_id, told.args[1]['volume'])
        self.assertFalse(told.kwargs['exc_info'])  # it says it all

    def test_what_nobody_expected_has_its_traceback(self):
        self.a.devices.clear()
        with mock.patch.object(reconcile, 'LOG') as log, mock.patch.object(
                self.a.reconciler, 'converge', side_effect=KeyError('x')):
            self.converge()
        self.assertTrue(log.error.call_args.kwargs['exc_info'])

    def test_what_is_at_work_is_left_to_that(self):
        self.a.devices.clear()
        with self.a.lock(self.volume_id), mock.patch.object(
                reconcile, 'LOG') as log:
            self.converge()
        self.assertEqual([], log.mock_calls)

    def test_moves_alone(self):
        self.a.devices.clear()
        self.a.reconciler.converge_moves()
        self.assertEqual({}, self.a.devices)
        self.converge()
        self.a.move(self.volume, B)
        self.b.devices.clear()
        self.b.reconciler.converge_moves()
        self.assertIn(self.handle, self.b.devices)


@ddt.ddt
class OperationsTest(Base):

    def begin(self):
        return self.a.node.records.begin(
            self.volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda shadow: shadow, 'CHAP u s', 'i')

    def test_abort_before_the_commit(self):
        self.begin()
        self.assertRaises(exceptions.NotPossible, operations.abort,
                          self.b.reconciler, self.volume_id)
        operations.abort(self.a.reconciler, self.volume_id)
        self.assertIsNone(self.move())
        self.assertIs(self.a, self.world.home(self.volume))

    def test_abort_what_is_rolling_back(self):
        self.a.node.records.advance(self.begin(), Event.FAILED)
        operations.abort(self.b.reconciler, self.volume_id)
        self.assertIsNone(self.move())

    def test_abort_says_why_there_is_no_way_back(self):
        self.a.move(self.volume, B)
        error = self.assertRaises(
            exceptions.NotPossible, operations.abort, self.b.reconciler,
            self.volume_id)
        self.assertIn('at b@l already', str(error))
        self.assertIs(Phase.MIGRATING, self.move().phase)

    def test_resume_takes_the_next_step(self):
        self.a.move(self.volume, B)
        self.b.devices.clear()
        operations.go_forward(self.b.reconciler, self.volume_id)
        self.assertIn(self.handle, self.b.devices)

    @ddt.data(operations.abort, operations.go_forward)
    def test_without_a_move(self, operation):
        self.assertRaises(exceptions.NotPossible, operation,
                          self.a.reconciler, self.volume_id)
