# SPDX-License-Identifier: Apache-2.0
"""What owners and operators read: frozen ids, and a text for each error."""

import hashlib
from unittest import mock

import ddt
import oslo_messaging
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import outcomes
from cinder_localclone.core.outcomes import Outcome
from cinder_localclone.core import rpc as core_rpc
from cinder_localclone.service import endpoint  # noqa: F401, the methods
from cinder_localclone.service import messages
from cinder_localclone.service import rpc

#: Ids are stored in Cinder's database, and so is their meaning: a text may
#: be corrected (and its digest here), but never say something else.
FROZEN = {
    'LC00': ('FAILED', '862ce1'),
    'LC01': ('REFUSED', '762bb2'),
    'LC02': ('PEER_UNREACHABLE', 'e42e64'),
    'LC03': ('NO_FREE_SPACE', '763ef1'),
    'LC04': ('NOT_READY', '1db9de'),
    'LC05': ('SOURCE_BUSY', 'ef5a01'),
    'LC06': ('WRONG_SOURCE', 'e61de9'),
    'LC07': ('MOVE_BUSY', '9cfd15'),
    'LC08': ('DATA_MISSING', '96a639'),
    'LC09': ('TIMEOUT', 'bb4dac'),
    'LC10': ('ATTACHED_ELSEWHERE', 'b52ef1'),
    'LC11': ('HOME_UNREACHABLE', '9b5fa3'),
    'LC12': ('SOURCE_UNREACHABLE', 'a93387'),
    'LC13': ('METADATA_TOO_SMALL', '276e7d'),
    'LC14': ('METADATA_LOST', '581d2c'),
    'LC15': ('CLONE_FAILED', '337cbb'),
    'LC16': ('DESTINATION_WRITTEN', '194ffa'),
    'LC17': ('ENCRYPTED', '25be98'),
    'LC18': ('NO_SPACE_TO_EXTEND', '7d2631'),
    'LC19': ('NOT_EXTENDED', 'ab301f'),
    'LC20': ('CREATE_FAILED', '49e559'),
    'LC21': ('BEING_COPIED', 'e64a85'),
    'LC22': ('NEEDS_THIN', 'c42b93'),
    'LC23': ('POOL_FULL', 'f1f139'),
    'LC24': ('FOREIGN_IMAGE', 'ddbedb'),
    'LC25': ('SNAPSHOT_UNREACHABLE', 'd01e44'),
    'LC26': ('NOT_MOVED', '58e107'),
    'LC27': ('NOT_MOVABLE', '67ae06'),
    'LC28': ('FOLLOWS_INSTANCE', 'b9e275'),
    'LC29': ('NOT_REVERTED', 'a1842c'),
    'LC30': ('NOT_MANAGED', 'a4d877'),
    'LC31': ('NOT_UNMANAGED', '782767'),
    'LC32': ('ENCRYPTION_TYPE', '4b2713'),
    'LC33': ('KEY_UNREADABLE', '92488c'),
    'LC34': ('ENCRYPTION_CHANGE', '64082f'),
    'LC35': ('ENCRYPTED_REMOTE', '7fa9e5'),
    'LC36': ('KEY_UNAVAILABLE', '232f17'),
    'LC37': ('HEADER_DAMAGED', '557eb8'),
    'LC38': ('MOVES_COLD', '0ddca1'),
    'LC39': ('NOT_AT_REST', '6833b7'),
    'LC40': ('FRESH_ENCRYPTED', 'e7a010'),
    'LC41': ('REENCRYPTING', '286764'),
    'LC42': ('KEEPS_SIZE', '8da87a'),
    'LC43': ('PACE_TYPE', '7d0106'),
    'LC44': ('NOT_DELETED', '19e68b'),
    'LC45': ('HALF_DELETED', '7ee73e'),
    'LC46': ('DELETE_FAILED', '4ee36b'),
    'LC47': ('EXTEND_AGAIN', '954faa'),
    'LC48': ('USER_UNREACHABLE', '10d751'),
}
#: What the errors tell the owner, where it is not that the volume could not
#: be connected.
TOLD = {
    'BeingCopied': 'LC21', 'NotCreated': 'LC20',
    'CloneFailed': 'LC15', 'Busy': 'LC07', 'CommandTimeout': 'LC09',
    'DestinationWritten': 'LC16', 'EncryptionUnsupported': 'LC17',
    'ForeignImage': 'LC24', 'NeedsThin': 'LC22', 'PoolFull': 'LC23',
    'TooLate': 'LC00',
    'IsDeferred': 'LC28', 'NotMovable': 'LC27',
    'InvalidTransition': 'LC07',
    'LoginFailed': 'LC12', 'MetadataLost': 'LC14',
    'MetadataTooSmall': 'LC13', 'MissingData': 'LC08',
    'NoFreeSpace': 'LC03', 'NoSpaceToExtend': 'LC18',
    'NotReady': 'LC04', 'NotReverted': 'LC29', 'PeerUnreachable': 'LC02',
    'HomeUnreachable': 'LC11', 'SnapshotUnreachable': 'LC25',
    'UserUnreachable': 'LC48', 'PeerDown': 'LC02',
    'Refused': 'LC01', 'SourceBusy': 'LC05', 'SourceUnreachable': 'LC12',
    'StaleMove': 'LC07', 'VolumeIsMoving': 'LC07', 'WrongSource': 'LC06',
}
#: The same of what has to do with encryption.
OF_ENCRYPTION = {
    'CannotReencrypt': 'LC00', 'OtherKeys': 'LC00',
    'NoSpaceToReencrypt': 'LC00', 'Reencrypting': 'LC41',
    'StillReencrypting': 'LC05', 'Interrupted': 'LC05',
    'InvalidEncryptionType': 'LC32', 'KeyUnreadable': 'LC33',
    'EncryptionChange': 'LC34', 'NotThere': 'LC35', 'KeyUnavailable': 'LC36',
    'HeaderDamaged': 'LC37', 'ForeignHeader': 'LC37',
    'OpenedOtherwise': 'LC37',
    'NotRecovered': 'LC41', 'NotEnded': 'LC37', 'HeaderInUse': 'LC41',
    'MovesCold': 'LC38',
    'NotAtRest': 'LC39', 'KeepsSize': 'LC42',
    'InvalidPaceType': 'LC43',
    'WouldReadNoise': 'LC40', 'NotBlank': 'LC20',
    # Nothing that an owner could do anything about.
    'KeyRefused': 'LC00', 'WrongKey': 'LC00', 'NotSealed': 'LC00',
    'LastKey': 'LC00', 'KeyNotChanged': 'LC00', 'OddSize': 'LC00',
    'NoBackup': 'LC00', 'StaleBackup': 'LC00',
}


def kinds():
    """The classes of errors that peers may send."""
    for module in (exceptions, encryption_exceptions):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(
                    kind, exceptions.LocalCloneError):
                yield kind


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:6]


class MessagesTest(testtools.TestCase):

    def test_ids_keep_their_meaning(self):
        self.assertEqual(FROZEN, {
            each.id: (each.key, digest(each.text))
            for each in outcomes.USER_MESSAGES.values()})

    def test_what_each_error_tells_the_owner(self):
        for name, kind in vars(exceptions).items():
            if name in TOLD:
                self.assertEqual(
                    TOLD[name], kind.user_message.id, name)
        self.assertTrue(set(TOLD) <= set(vars(exceptions)))

    def test_what_each_error_of_encryption_tells_the_owner(self):
        self.assertEqual(OF_ENCRYPTION, {
            name: kind.user_message.id
            for name, kind in vars(encryption_exceptions).items()
            if isinstance(kind, type) and issubclass(
                kind, exceptions.LocalCloneError)})

    def test_what_keeps_an_owner_from_being_told_hides_nothing(self):
        """A context that was built without a request has no project."""
        for context in (None, object()):
            messages.tell_owner(context, 'v', exceptions.Refused('no'))


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
        self.assertIs(encryption_exceptions.HeaderDamaged.user_message,
                      Other.user_message)

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
                (exceptions.HalfDeleted, ': it fails. The volume can\'t'),
                (exceptions.CannotUnmanage, ': it fails. Nothing was'),
                (encryption_exceptions.NotSealed, 'used: it fails.')):
            told = str(kind(volume='v', path='p', reason=reason))
            self.assertIn(text, told)
            self.assertNotIn('..', told)
        for kind in (exceptions.NotReverted, exceptions.LocalCloneError):
            self.assertTrue(str(kind(volume='v', reason=reason)).endswith(
                reason))

    def test_what_is_taken_is_not_registered_again(self):
        before = dict(outcomes.USER_MESSAGES)
        for key, number in (('FAILED', 'LC99'), ('OTHER', 'LC00')):
            self.assertRaises(ValueError, outcomes.register_message, key,
                              number,
                              'text')
        self.assertEqual(before, outcomes.USER_MESSAGES)

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
        self.assertEqual(key, error.user_message.key)
        # A node that is asked by another one tells that one.
        forwarded = rpc._as_own(oslo_messaging.RemoteError(
            type(error).__name__, str(error)), 'n2@l')
        self.assertEqual(key, forwarded.user_message.key)

    def test_lock(self):
        self.assertIn('Volume v is still locked by another request on h', str(
            exceptions.Busy(what='Volume v', host='h', seconds=1)))

    @ddt.data('PeerUnreachable', 'Busy', 'InvalidToken', 'Refused')
    def test_text_of_a_peers_error_is_kept(self, name):
        error = rpc._as_own(
            oslo_messaging.RemoteError(name, 'as it was'), 'n2@l')
        self.assertEqual((name, 'On n2@l: as it was'),
                         (type(error).__name__, str(error)))
