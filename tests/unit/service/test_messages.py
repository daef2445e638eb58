# SPDX-License-Identifier: Apache-2.0
"""What operators read of each error; and members, of peers."""

from unittest import mock

import ddt
import oslo_messaging
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import outcomes
from cinder_localclone.core.outcomes import Outcome
from cinder_localclone.core import rpc as core_rpc
from cinder_localclone.core.user_messages import Action
from cinder_localclone.service import endpoint  # noqa: F401, the methods
from cinder_localclone.service import messages
from cinder_localclone.service import rpc


def kinds():
    """The classes of errors that peers may send."""
    for module in (exceptions, encryption_exceptions):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(
                    kind, exceptions.LocalCloneError):
                yield kind


def reads(error):
    """The only message of an error, by its key."""
    message, = error.member_reads
    return message.key


class MessagesTest(testtools.TestCase):

    def test_what_keeps_an_owner_from_being_told_hides_nothing(self):
        """A context that was built without a request has no project."""
        for context in (None, object()):
            messages.tell_member(context, 'v', exceptions.Refused('no'),
                                 Action.ATTACH)


@ddt.ddt
class ErrorsTest(testtools.TestCase):

    @ddt.data(
        (exceptions.InvalidToken, dict(token='t', reason='r'),
         'move record of volume v can', 'move record can'),
        (exceptions.InvalidTransition,
         dict(phase='p', event='e', committed='not committed'),
         'The move of volume v is in', 'The move is in'),
        (exceptions.WrongSource, dict(iqn='i', device='d', reason='r'),
         'the expected disk of volume v:', 'the expected disk:'))
    @ddt.unpack
    def test_volume_is_named_where_it_is_known(
            self, kind, more, named, unnamed):
        self.assertIn(named, str(kind(volume='v', **more)))
        self.assertIn(unnamed, str(kind(**more)))

    def test_an_outcome_is_data_and_no_text_alone(self):
        """So what says it in a text has it as its class's outcome, too."""
        for kind in kinds():
            for outcome in outcomes.Outcome:
                words = str(outcome.value).rstrip('.')
                self.assertFalse(words and (
                    words in kind.problem or words in kind.remedy), kind)
            self.assertIn(kind.outcome.value.rstrip('.'), kind.message)

    @ddt.data(
        (exceptions.PoolFull, Outcome.UNCHANGED, 'Extend the pool'),
        (exceptions.NoFreeSpace, Outcome.NOT_CREATED, ''),
        (exceptions.CannotDelete, Outcome.NOT_REMOVED, 'Delete the volume'),
        (exceptions.HalfDeleted, Outcome.HALF_REMOVED, 'Delete it again'),
        (exceptions.Busy, Outcome.NOT_COMPLETED, 'try again'),
        (exceptions.MoveUnderWay, Outcome.UNCHANGED, ''),  # as Refused
        (exceptions.SourceWritten, Outcome.UNCHANGED, 'Close the volume'),
        (exceptions.TargetHangs, Outcome.UNKNOWN, 'See the kernel log'),
        (encryption_exceptions.ForeignHeader, Outcome.NOT_WRITTEN,
         'Find out'))
    @ddt.unpack
    def test_outcome_and_remedy(self, kind, outcome, remedy):
        self.assertIs(outcome, kind.outcome)
        self.assertTrue(kind.remedy.startswith(remedy) if remedy
                        else not kind.remedy, kind.remedy)

    def test_a_class_with_a_problem_inherits_no_remedy(self):
        self.assertTrue(encryption_exceptions.HeaderDamaged.remedy)

        class Other(encryption_exceptions.HeaderDamaged, of_peers=False):
            problem = 'other'

        self.assertEqual(('other', '', Outcome.UNKNOWN), (
            Other.message, Other.remedy, Other.outcome))

    def test_a_class_has_no_text_beside_these(self):
        self.assertRaises(TypeError, type, 'Other', (
            exceptions.LocalCloneError,), {'message': 'other'})

    @ddt.data(('no', Outcome.UNCHANGED, 'Go.', 'no Nothing was changed. Go.'),
              ('no.', Outcome.UNCHANGED, 'go.',
               'no. Nothing was changed; go.'),
              ('no.', Outcome.UNCHANGED, '', 'no. Nothing was changed.'),
              ('no.', Outcome.UNKNOWN, 'Go.', 'no. Go.'),
              ('no.', Outcome.UNKNOWN, '', 'no.'))
    @ddt.unpack
    def test_text(self, problem, outcome, remedy, text):
        self.assertEqual(text, outcomes.in_words(problem, outcome, remedy))

    @ddt.data('it fails', 'it fails.')
    def test_a_reason_ends_once(self, reason):
        """It may be the text of another error, a sentence or not."""
        for kind, text in (
                (exceptions.CannotDelete, 'now: it fails. None of its'),
                (exceptions.HalfDeleted, ': it fails. Its data may'),
                (exceptions.CannotUnmanage, ': it fails. Nothing was'),
                (encryption_exceptions.NotSealed, 'used: it fails.')):
            told = str(kind(volume='v', path='p', reason=reason))
            self.assertIn(text, told)
            self.assertNotIn('..', told)
        for kind in (exceptions.NotReverted, exceptions.LocalCloneError):
            self.assertTrue(str(kind(volume='v', reason=reason)).endswith(
                reason))

    def test_each_error_is_known_by_its_name(self):
        for kind in kinds():
            self.assertIs(kind, exceptions.class_named(kind.__name__))
        for name in ('', 'str', 'PeerTooOld', 'VolumeIsBusy'):
            self.assertIs(exceptions.LocalCloneError,
                          exceptions.class_named(name))

    def test_base_says_the_reason(self):
        self.assertEqual('oh', str(exceptions.LocalCloneError(reason='oh')))
        self.assertEqual('oh', str(exceptions.LocalCloneError('oh')))

    def test_peer_that_is_down_was_not_asked(self):
        error = exceptions.PeerDown(host='n1@l')
        self.assertIn('n1@l is down', str(error))
        self.assertNotIn('did not answer', str(error))

    @ddt.data(('prepare', 'PEER_UNREACHABLE'),
              ('describe', 'PEER_UNREACHABLE'),
              ('begin_remote', 'USER_UNREACHABLE'),
              ('manage_snapshot', 'SNAPSHOT_UNREACHABLE'),
              ('delete', 'HOME_UNREACHABLE'),
              ('initialize_connection', 'HOME_UNREACHABLE'),
              ('create_snapshot', 'HOME_UNREACHABLE'),
              ('create_from_volume', 'HOME_UNREACHABLE'),
              ('create_from_snapshot', 'SNAPSHOT_UNREACHABLE'),
              ('create_backing', 'SNAPSHOT_UNREACHABLE'),
              ('connect_snapshot', 'SNAPSHOT_UNREACHABLE'),
              ('extend', 'HOME_UNREACHABLE'),
              ('revert', 'HOME_UNREACHABLE'),
              ('unmanage', 'HOME_UNREACHABLE'),
              ('unmanage_snapshot', 'SNAPSHOT_UNREACHABLE'),
              ('terminate_connection', 'HOME_UNREACHABLE'))
    @ddt.unpack
    def test_owner_reads_which_host_does_not_answer(self, method, key):
        client = rpc.Client(1)
        client._client = mock.Mock()
        client._client.prepare().call.side_effect = (
            oslo_messaging.MessagingTimeout)
        error = self.assertRaises(
            exceptions.PeerUnreachable, client.call, 'h',
            core_rpc.METHODS[method], {})
        self.assertEqual(key, reads(error))
        # A node that is asked by another one tells that one.
        forwarded = rpc._as_own(oslo_messaging.RemoteError(
            type(error).__name__, str(error)), 'n2@l')
        self.assertEqual(key, reads(forwarded))

    def test_lock(self):
        self.assertIn('Volume v is still locked by another request on h', str(
            exceptions.Busy(what='Volume v', host='h', seconds=1)))

    @ddt.data('PeerUnreachable', 'Busy', 'InvalidToken', 'Refused')
    def test_text_of_a_peers_error_is_kept(self, name):
        error = rpc._as_own(
            oslo_messaging.RemoteError(name, 'as it was'), 'n2@l')
        self.assertEqual((name, 'On n2@l: as it was'),
                         (type(error).__name__, str(error)))
