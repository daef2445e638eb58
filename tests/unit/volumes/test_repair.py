# SPDX-License-Identifier: Apache-2.0
"""The journal of an operator's repair."""

import dataclasses
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import inspection
from cinder_localclone.core.interfaces import iscsi
from cinder_localclone.core.interfaces import storage
from cinder_localclone.core import state
from cinder_localclone.volumes import repair

V1, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
MOVE = state.Move(
    V1, SHADOW, state.Token(state.Phase.MIGRATING, 'n',
                            state.Geometry(128, 32, 8)), True, 'a@l', 'b@l',
    'volume-' + V1, 'volume-' + SHADOW, 1)


@dataclasses.dataclass(frozen=True)
class Node:
    lvm: object
    handles: object
    clones: object
    exports: object
    moves: object
    sessions: object


@ddt.ddt
class RepairTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.node = Node(*(mock.Mock() for _field in range(6)))

    def repair(self, *steps):
        """What the journal says of steps: functions of the node."""
        def reconciler(node):
            def reconcile(volume_id):
                self.assertEqual(V1, volume_id)
                for step in steps:
                    step(node)
            return mock.Mock(reconcile=reconcile)
        return repair.repair(self.node, reconciler, V1)

    def test_what_was_done_in_order(self):
        self.node.moves.finish.return_value = None
        self.node.exports.export_source.return_value = True
        self.assertEqual([
            'handle of v now on LV lv',
            'background copy of move s enabled: True',
            'exported the source of ' + V1,
            'move of %s: all regions local and flushed' % V1,
            'move of %s has ended' % V1],
            self.repair(
                lambda node: node.handles.ensure_handle_on_lv('v', 'lv', 1),
                lambda node: node.clones.set_hydration('s', True),
                lambda node: node.exports.export_source(MOVE),
                lambda node: node.moves.advance(
                    MOVE, state.Event.HYDRATED),
                lambda node: node.moves.finish(
                    MOVE, state.Event.SOURCE_REMOVED)))

    def test_what_was_right_already_is_not_told(self):
        self.node.lvm.create_lv.return_value = False
        self.node.exports.withdraw_strays.return_value = []
        self.assertEqual([], self.repair(
            lambda node: node.lvm.create_lv('lv', 1, 'v'),
            lambda node: node.handles.survey(),
            lambda node: node.exports.withdraw_strays(None),
            lambda node: node.sessions.attach(MOVE)))
        self.node.sessions.attach.assert_called_once_with(MOVE)

    def test_effects_answer_as_ever(self):
        self.node.moves.advance.return_value = 'after'

        def step(node):
            self.assertEqual('after', node.moves.advance(
                MOVE, state.Event.HYDRATED))
        self.repair(step)

    @ddt.data(
        ('lvm.create_lv', ['lv', 1, 'v'], 'created LV lv'),
        ('lvm.remove_lv', ['lv'], 'removed LV lv'),
        ('lvm.activate', ['lv'], 'activated LV lv'),
        ('clones.ensure_clone', [MOVE, 'disk'],
         'built the clone of ' + V1),
        ('clones.remove_clone', [SHADOW],
         'removed the clone of move ' + SHADOW),
        ('clones.set_hydration', [SHADOW, False],
         'background copy of move %s enabled: False' % SHADOW),
        ('handles.ensure_handle_on_lv', [V1, 'lv', 1],
         'handle of %s now on LV lv' % V1),
        ('handles.ensure_handle_on_clone', [MOVE],
         'handle of %s now on its clone' % V1),
        ('handles.remove_handle', [V1], 'removed the handle of ' + V1),
        ('exports.export_source', [MOVE], 'exported the source of ' + V1),
        ('exports.withdraw_source', [SHADOW],
         'withdrew the export of move ' + SHADOW),
        ('handles.ensure_source', [MOVE], 'made the source device of ' + V1),
        ('handles.remove_source', [SHADOW],
         'removed the source device of move ' + SHADOW),
        ('exports.withdraw_volume', [V1, None],
         'withdrew unused exports of ' + V1),
        ('exports.withdraw_unnamed', [V1, ['iqn']],
         'withdrew exports of %s without an attachment' % V1),
        ('exports.withdraw_strays', [None],
         'withdrew exports of finished moves'),
        ('moves.advance', [MOVE, state.Event.DRAINED],
         'move of %s: destination uses nothing of the source' % V1),
        ('moves.roll_back', [MOVE],
         'rolled the move of %s back to its source' % V1),
        ('moves.finish', [MOVE, state.Event.SOURCE_REMOVED],
         'move of %s has ended' % V1))
    @ddt.unpack
    def test_what_is_told_of_an_effect(self, effect, arguments, told):
        room, name = effect.split('.')
        self.assertEqual([told], self.repair(
            lambda node: getattr(getattr(node, room), name)(*arguments)))

    def test_every_description_fits_its_effect(self):
        for name, text in repair.DESCRIPTIONS.items():
            self.assertTrue(text.format(MOVE, state.Event.HYDRATED), name)

    def fail(self, error):
        def step(_node):
            raise error
        return self.repair(lambda node: node.lvm.remove_lv('lv'), step)

    def test_what_is_in_the_way(self):
        done, blocked = self.fail(exceptions.PeerUnreachable(
            host='a@l', method='m', seconds=1))
        self.assertEqual('removed LV lv', done)
        self.assertTrue(blocked.startswith(inspection.IN_THE_WAY))
        self.assertIn('a@l', blocked)

    def test_other_errors_are_the_callers(self):
        self.assertRaises(KeyError, self.fail, KeyError('x'))


class RecorderTest(testtools.TestCase):

    def test_effects_are_noted_only_if_they_did_something(self):
        inner = mock.MagicMock()
        inner.create_lv.return_value = True
        inner.remove_lv.return_value = False
        journal = []
        recorder = repair.Recorder(inner, journal)
        recorder.create_lv('a', 1, 'v')
        recorder.remove_lv('b')
        recorder.lvs()
        self.assertEqual(['created LV a'], journal)

    def test_every_effect_that_is_named_exists(self):
        from cinder_localclone.db import moves
        for name in repair.DESCRIPTIONS:
            self.assertTrue(any(
                hasattr(kind, name) for kind in (
                    storage.Lvm, storage.Handles, storage.Clones,
                    iscsi.Exports, moves.Moves)), name)
