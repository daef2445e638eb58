# SPDX-License-Identifier: Apache-2.0
"""What the operator's command finds and says; the plan of a restore."""

import dataclasses
from unittest import mock

import ddt
import testtools

from cinder_localclone.cmd import main
from cinder_localclone.cmd import moves as moves_command
from cinder_localclone.cmd import repair as settle
from cinder_localclone.cmd import show
from cinder_localclone.core import copies
from cinder_localclone.core.state import Phase
from tests.helpers.node_rows import A
from tests.helpers.node_rows import B
from tests.helpers.node_rows import moving
from tests.helpers.node_rows import standing

CLONE = {'mode': 'rw', 'enabled': True}
MIGRATING = moving(Phase.MIGRATING)


@ddt.ddt
class MovesTest(testtools.TestCase):

    def row(self, move, found, problem=''):
        backend = mock.MagicMock()
        backend.db.moves.readable_moves.return_value = [move]
        backend.ask.return_value = found, problem
        row, = moves_command.progress(backend)
        return row

    def test_copying(self):
        progress = dataclasses.asdict(copies.Progress(25.0, 1 << 21, 7))
        row = self.row(MIGRATING, standing(
            B, clone=dict(CLONE, hydrated=1, regions=4), progress=progress))
        self.assertEqual((25.0, 2.0, 7, ''), tuple(
            row[key] for key in ('Percent', 'MiB/s', 'Seconds left',
                                 'Remark')))

    @ddt.data(('yielding', 'yielding to the guest'), ('full', 'full speed'),
              ('floor', 'at the floor'), ('limited', 'limited'),
              ('of a newer service', 'of a newer service'), ('', None))
    @ddt.unpack
    def test_pace(self, pace, words):
        progress = dataclasses.asdict(
            copies.Progress(25.0, None, None, pace=pace))
        found = standing(B, clone=dict(CLONE, hydrated=1, regions=4),
                         progress=progress)
        self.assertEqual(words, self.row(MIGRATING, found)['Pace'])

    @ddt.data((MIGRATING, {A: True, B: False}),
              (dataclasses.replace(MIGRATING, token=dataclasses.replace(
                  MIGRATING.token, phase=Phase.COMPLETING)),
               {A: True, B: False}))
    @ddt.unpack
    def test_node_that_is_down_is_not_asked(self, move, alive):
        """It would take as long as a call may, for each of its copies."""
        backend = mock.MagicMock()
        backend.nodes.return_value = alive
        backend.db.moves.readable_moves.return_value = [move, move]
        for row in moves_command.progress(backend):
            self.assertIn('service is down', row['Remark'])
        backend.ask.assert_not_called()

    def test_who_is_asked(self):
        """Also a node of which it is not known whether its service is up."""
        over = dataclasses.replace(MIGRATING, token=dataclasses.replace(
            MIGRATING.token, phase=Phase.COMPLETING))
        for move, calls in (
                (MIGRATING,
                 [mock.call(B, 'inspect', MIGRATING.volume_id)] * 2),
                (over, [mock.call(B, 'describe')])):
            backend = mock.MagicMock()
            backend.nodes.return_value = {}
            backend.db.moves.readable_moves.return_value = [move, move]
            backend.ask.return_value = None, 'it is silent'
            for row in moves_command.progress(backend):
                self.assertIn('it is silent', row['Remark'])
            self.assertEqual(calls, backend.ask.mock_calls)

    def test_copy_that_fails(self):
        progress = dataclasses.asdict(
            copies.Progress(25.0, None, None, 5.0))
        row = self.row(MIGRATING, standing(
            B, clone=dict(CLONE, hydrated=1, regions=4), progress=progress))
        self.assertIn('copying fails', row['Remark'])

    def test_copy_that_waits_for_its_turn(self):
        progress = dataclasses.asdict(
            copies.Progress(25.0, None, None, position=3))
        row = self.row(MIGRATING, standing(
            B, clone=dict(CLONE, hydrated=1, regions=4), progress=progress))
        self.assertEqual((25.0, 'waiting in the queue (3rd)'),
                         (row['Percent'], row['Remark']))

    def test_show_says_that_a_copy_waits(self):
        for position, shown in ((2, ['waiting in the queue (2nd)']), (0, [])):
            found = show._on_node(standing(
                B, clone=dict(CLONE, hydrated=1, regions=4),
                progress={'position': position}))
            self.assertEqual(
                [(text, {'position': position}) for text in shown],
                [(value, fields) for what, value, fields in found
                 if what == 'copy'])

    def test_node_that_does_not_answer(self):
        row = self.row(MIGRATING, None, 'it did not answer')
        self.assertEqual('it did not answer', row['Remark'])
        self.assertIsNone(row['Percent'])

    def test_waiting(self):
        row = self.row(moving(Phase.STARTING), standing(
            B, clone=dict(CLONE, hydrated=0, regions=4)))
        self.assertIn('waits', row['Remark'])

    def test_being_removed(self):
        row = self.row(moving(Phase.RELEASING), None)
        self.assertEqual((100.0, 'cleaning up on ' + A),
                         (row['Percent'], row['Remark']))

    def test_node_is_asked_once_what_keeps_it_from_cleaning_up(self):
        """One that is down lets each who asks wait, and has many volumes."""
        backend = mock.MagicMock()
        backend.db.moves.readable_moves.return_value = [
            moving(Phase.RELEASING), moving(Phase.RELEASING)]
        backend.ask.return_value = None, 'it did not answer'
        rows = moves_command.progress(backend)
        self.assertEqual(['cleaning up on %s; it did not answer' % A] * 2,
                         [row['Remark'] for row in rows])
        backend.ask.assert_called_once_with(A, 'describe')

    def test_watch_does_not_wait_for_a_clean_up(self):
        backend = mock.MagicMock()
        backend.db.moves.readable_moves.return_value = [
            moving(Phase.RELEASING)]
        self.assertEqual([], moves_command.progress(backend, over=False))

    def test_preparing(self):
        for phase in (Phase.STARTING, Phase.MIGRATING):
            row = self.row(moving(phase, committed=False), None)
            self.assertEqual(('preparing', ''), (row['Phase'], row['Remark']))
        row = self.row(moving(Phase.ROLLING_BACK, committed=False), None)
        self.assertEqual(('rolling-back', 'cleaning up on ' + B),
                         (row['Phase'], row['Remark']))

    def test_which_node_abort_and_resume_ask(self):
        starting, early = moving(Phase.STARTING), moving(
            Phase.MIGRATING, committed=False)
        self.assertEqual((B, A), (
            settle.Abort.deciding_host(starting),
            settle.Abort.deciding_host(early)))
        self.assertEqual((A, B), (
            settle.Resume.deciding_host(starting),
            settle.Resume.deciding_host(MIGRATING)))


class MainTest(testtools.TestCase):

    def test_every_command_explains_itself(self):
        for name, entry in main.LocalClone().command_manager:
            self.assertTrue(entry.load().__doc__, name)
