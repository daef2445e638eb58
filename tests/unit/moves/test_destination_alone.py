# SPDX-License-Identifier: Apache-2.0
"""A destination whose source, or whose home of before, can't be reached."""

from unittest import mock

import ddt
import testtools

from cinder_localclone.encryption import devices
from cinder_localclone.moves import destination
from cinder_localclone.moves import hydration
from cinder_localclone.moves import remote_attachment
from tests.helpers import specs


@ddt.ddt
class HomeOfBeforeTest(testtools.TestCase):

    def can_do_without(self, users, away):
        self.node = specs.node()
        self.node.sessions.is_away.return_value = away
        with mock.patch.object(devices, 'users', return_value=users):
            return destination._can_do_without_home(
                self.node, mock.Mock(volume_id='v'))

    @ddt.data(True, False)
    def test_nobody_uses_it(self, away):
        """Its session is given up; then nothing may be in flight."""
        self.assertEqual(not away, self.can_do_without(0, away))
        self.node.sessions.end_passed.assert_called_once_with('v')

    @ddt.data(True, False)
    def test_somebody_uses_it(self, away):
        self.assertFalse(self.can_do_without(1, away))
        self.node.sessions.end_passed.assert_not_called()


@ddt.ddt
class CompleteAloneTest(testtools.TestCase):

    def is_complete(self, finished, changed=True):
        self.node, self.move = specs.node(), mock.Mock(volume_id='v')
        self.node.stack.clone_status.return_value = mock.Mock(
            spec=hydration.Progress, finished=finished)
        with mock.patch.object(destination, '_put_on_clone',
                               return_value=changed) as self.put:
            return destination.is_complete_alone(self.node, self.move)

    @ddt.data(True, False)
    def test_all_is_local(self, changed):
        """A body that is new to the handle is proved to be readable."""
        self.assertTrue(self.is_complete(True, changed))
        self.put.assert_called_once_with(self.node, self.move, '')
        self.assertEqual([mock.call('v')] * changed,
                         self.node.stack.read_head.mock_calls)

    def test_not_all_is_local(self):
        """Nobody gets to read the clone."""
        self.assertFalse(self.is_complete(False))
        self.put.assert_not_called()


@ddt.ddt
class SwapTest(testtools.TestCase):

    @ddt.data(True, False)
    def test_nobody_has_used_it_since_a_reboot(self, changed):
        """No handle is on the disk of before; whether there is a new one."""
        node = specs.node()
        node.stack.survey.return_value.is_handle_foreign.return_value = False
        node.stack.ensure_handle_on_clone.return_value = changed
        move = mock.Mock(extra_bytes=0)
        with mock.patch.object(remote_attachment, 'end_after_swap') as ended:
            self.assertEqual(changed, destination._put_on_clone(
                node, move, ''))
        ended.assert_called_once_with(node, move.volume_id)
        node.stack.end_swap.assert_called_once_with(move)
        node.stack.flush_disk.assert_not_called()


class OrderTest(testtools.TestCase):

    def test_session_ends_before_it_is_asked_whether_it_is_away(self):
        node = specs.node()
        with mock.patch.object(destination.devices, 'users', return_value=0):
            destination._can_do_without_home(node, mock.Mock())
        self.assertEqual(['end_passed', 'is_away'], [
            call[0] for call in node.sessions.method_calls])

    def test_clone_is_there_before_it_is_asked_how_far_it_is(self):
        """None is after a reboot."""
        node = specs.node()
        with mock.patch.object(destination, '_put_on_clone'):
            destination.is_complete_alone(node, mock.Mock())
        self.assertEqual(['ensure_clone_alone', 'clone_status'], [
            call[0] for call in node.stack.method_calls[:2]])

    def test_swap_after_a_reboot(self):
        """Flushed, then put there, then logged out, then ended."""
        node, move = specs.node(), mock.Mock(extra_bytes=0)
        node.stack.survey.return_value.is_handle_foreign.return_value = False
        node.sessions.is_away.return_value = False
        with mock.patch.object(remote_attachment, 'end_after_swap') as ended:
            node.stack.attach_mock(ended, 'end_after_swap')
            destination._put_on_clone(node, move, 'disk')
        self.assertEqual(
            ['flush_disk', 'ensure_handle_on_clone', 'end_after_swap',
             'end_swap'],
            [name for name, *_what in node.stack.method_calls if name in (
                'flush_disk', 'ensure_handle_on_clone', 'end_after_swap',
                'end_swap')])
