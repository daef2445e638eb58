# SPDX-License-Identifier: Apache-2.0
"""The messages that members of projects read: all errors in all requests."""

import hashlib
import re

import ddt
import testtools

from cinder_localclone.core import encryption_exceptions  # noqa: F401
from cinder_localclone.core import exceptions
from cinder_localclone.core import user_messages
from cinder_localclone.core.user_messages import Action
from cinder_localclone.volumes import delete  # noqa: F401, with an error
from tests.helpers import documentation  # noqa: F401, finds the last import
from tests.helpers import driver_case  # noqa: F401, the driver with an error

import messages_table

#: Cinder's database keeps the codes, and so their meaning: a text may be
#: corrected (and its digest here), but never say something else.
FROZEN = {
    'LC00': ('FAILED', '2085af'),
    'LC01': ('REFUSED', '0d8aa5'),
    'LC02': ('PEER_UNREACHABLE', 'bc31f1'),
    'LC03': ('NO_FREE_SPACE', '5b8bf2'),
    'LC04': ('NOT_READY', 'b56111'),
    'LC05': ('SOURCE_BUSY', '9b62f4'),
    'LC06': ('WRONG_SOURCE', 'c2ee3c'),
    'LC07': ('MOVE_BUSY', '546a7d'),
    'LC08': ('DATA_MISSING', 'bc7f5d'),
    'LC09': ('TIMEOUT', '4de365'),
    'LC10': ('ATTACHED_ELSEWHERE', 'd12975'),
    'LC11': ('HOME_UNREACHABLE', '592aad'),
    'LC12': ('SOURCE_UNREACHABLE', '67a148'),
    'LC13': ('METADATA_TOO_SMALL', '0abf11'),
    'LC14': ('METADATA_LOST', '5156c9'),
    'LC15': ('CLONE_FAILED', 'e9abbb'),
    'LC16': ('DESTINATION_WRITTEN', '0633ef'),
    'LC17': ('ENCRYPTED', '6175f7'),
    'LC18': ('NO_SPACE_TO_EXTEND', '9bf6b9'),
    'LC19': ('NOT_EXTENDED', 'd90573'),
    'LC20': ('CREATE_FAILED', '292e43'),
    'LC21': ('BEING_COPIED', '69bd04'),
    'LC22': ('NEEDS_THIN', 'cf4980'),
    'LC23': ('POOL_FULL', '580965'),
    'LC24': ('FOREIGN_IMAGE', 'b5898e'),
    'LC25': ('SNAPSHOT_UNREACHABLE', 'f70d15'),
    'LC26': ('NOT_MOVED', 'a59ef6'),
    'LC27': ('NOT_MOVABLE', '2a2436'),
    'LC28': ('FOLLOWS_INSTANCE', '59239d'),
    'LC29': ('NOT_REVERTED', 'cfe820'),
    'LC30': ('NOT_MANAGED', '61a40a'),
    'LC31': ('NOT_UNMANAGED', '005a83'),
    'LC32': ('ENCRYPTION_TYPE', '2ed02c'),
    'LC33': ('KEY_UNREADABLE', '31ecc2'),
    'LC34': ('ENCRYPTION_CHANGE', '7ac34e'),
    'LC35': ('ENCRYPTED_REMOTE', 'cd654a'),
    'LC36': ('KEY_UNAVAILABLE', '804ef7'),
    'LC37': ('HEADER_DAMAGED', 'cd17a5'),
    'LC38': ('MOVES_COLD', 'd0f78d'),
    'LC40': ('FRESH_ENCRYPTED', '7cd20f'),
    'LC41': ('REENCRYPTING', '8c8ba6'),
    'LC42': ('KEEPS_SIZE', 'e7ca26'),
    'LC43': ('PACE_TYPE', 'd5194a'),
    'LC44': ('NOT_DELETED', '04188b'),
    'LC45': ('HALF_DELETED', '1dc9e7'),
    'LC46': ('DELETE_FAILED', 'a8a15b'),
    'LC47': ('EXTEND_AGAIN', '95eec7'),
    'LC48': ('USER_UNREACHABLE', 'b32c5c'),
    'LC49': ('IMAGE_FAILED', '875949'),
    'LC50': ('NOT_RETYPED', 'c75487'),
    'LC51': ('MANAGE_FAILED', 'ef2e5c'),
    'LC52': ('UNMANAGE_FAILED', 'ac143d'),
    'LC53': ('BUSY', 'd4382c'),
    'LC54': ('CHANGED', '8db251'),
    'LC55': ('UPGRADE', '26c20a'),
    'LC56': ('STORAGE_FULL', 'bd43da'),
    'LC57': ('BACKUP_NEEDS_THIN', 'f403e0'),
    'LC58': ('STORAGE_FAULT', '4d806b'),
    'LC59': ('SNAPSHOT_DIFFERS', '3f7241'),
    'LC60': ('NAME_TAKEN', 'f99bee'),
    'LC61': ('KEY_UNUSABLE', '521205'),
    'LC62': ('ENCRYPTION_CHECK', '059ca6'),
    'LC63': ('REENCRYPTION_STOPPED', '395d29'),
    'LC64': ('EXTEND_FURTHER', 'cd1f9b'),
}
LETTERS = {
    'ATTACH': 'A', 'CREATE': 'C', 'CLONE': 'N', 'IMAGE': 'I', 'DELETE': 'D',
    'EXTEND': 'E', 'MOVE': 'M', 'RETYPE': 'T', 'SNAPSHOT': 'S', 'REVERT': 'R',
    'BACKUP': 'B', 'MANAGE': 'G', 'UNMANAGE': 'U'}
#: The default of each request, by its letter.
DEFAULTS = {
    'A': 'LC00', 'C': 'LC20', 'N': 'LC20', 'I': 'LC49', 'D': 'LC46',
    'E': 'LC19', 'M': 'LC26', 'T': 'LC50', 'S': 'LC20', 'R': 'LC29',
    'B': 'LC20', 'G': 'LC51', 'U': 'LC52'}
#: By error: the code of a message, and the letters of the requests with it. In
#: all other requests the member reads their default.
PAIRS = {
    'InvalidTransition': 'LC07 ANIEMTSRBU',
    'InvalidToken': 'LC58 ACNIEMTSRBGU',
    'StaleMove': 'LC54 ACNIEMTSRBGU',
    'Refused': 'LC01 A',
    'AttachedElsewhere': 'LC10 A',
    'MoveUnderWay': 'LC07 ANIEMTSRBU',
    'NotMovable': 'LC27 M',
    'IsDeferred': 'LC28 M',
    'EncryptionUnsupported': 'LC17 CNM',
    'BeingCopied': 'LC21 NSRB',
    'NeedsThin': 'LC22 NSR, LC57 B',
    'PoolFull': 'LC23 NSRB',
    'ForeignImage': 'LC24 N, LC59 R',
    'TooLate': 'LC54 ACNIEMTSRBGU',
    'UnreadableTag': 'LC58 ACNIEMTSRBGU',
    'OtherVersion': 'LC55 ACNIEMTSRBGU',
    'PeerUnreachable': 'LC02 ANM',
    'HomeUnreachable': 'LC11 ANIEMTSRBU',
    'SnapshotUnreachable': 'LC25 NRB',
    'UserUnreachable': 'LC48 AEM',
    'PeerDown': 'LC02 ANM',
    'VolumeIsMoving': 'LC07 ANIEMTSRBU',
    'LongerThanRecorded': 'LC47 ANMSRB, LC64 E',
    'NoSpaceToExtend': 'LC18 E',
    'NoFreeSpace': 'LC03 ACNM',
    'PoolDoesNotZero': 'LC04 ACNM',
    'NotReady': 'LC04 ACNM',
    'SourceBusy': 'LC05 AIMR',
    'DestinationWritten': 'LC16 AIEMTSRBU',
    'CloneFailed': 'LC15 AIEMTSRBU',
    'WrongSource': 'LC06 ANM',
    'MissingData': 'LC08 ANEMTSRBU',
    'ForeignGroup': 'LC58 ACNIEMTSRBGU',
    'WrongDevice': 'LC58 ACNIEMTSRBGU',
    'MetadataTooSmall': 'LC13 AIEMTSRBU',
    'MetadataLost': 'LC14 AIEMTSRBU',
    'CommandTimeout': 'LC09 ACNIEMTSRBGU',
    'Busy': 'LC53 ACNIEMTSRBGU',
    'LoginFailed': 'LC12 ANM',
    'SourceUnreachable': 'LC12 ANM',
    'TargetTimeout': 'LC09 ACNIEMTSRBGU',
    'TargetHangs': 'LC09 ACNIEMTSRBGU',
    'CannotDelete': 'LC44 D',
    'HalfDeleted': 'LC45 D',
    'CannotManage': 'LC30 G',
    'CannotUnmanage': 'LC31 U',
    'TooFewDisks': 'LC04 ACNM',
    'OddDisks': 'LC04 ACNM',
    'DiskMissing': 'LC58 ACNIEMTSRBGU',
    'NoArchive': 'LC58 ACNIEMTSRBGU',
    'AlreadyThere': 'LC60 CN',
    'SourceWritten': 'LC05 AIMR',
    'PoolFails': 'LC58 ACNIEMTSRBGU',
    'PoolOutOfSpace': 'LC56 ACNIEMTSRBGU',
    'InvalidEncryptionType': 'LC32 CNMTG',
    'InvalidPaceType': 'LC43 CNMTG',
    'KeyUnreadable': 'LC33 CI',
    'EncryptionChange': 'LC34 AMT',
    'NotThere': 'LC35 A',
    'KeyUnavailable': 'LC36 ACNIEMTSRBU',
    'KeyRefused': 'LC61 ACNIEMTSRBU',
    'LoginRefused': 'LC61 ACNIEMTSRBU',
    'NotSealed': 'LC61 ACNIEMTSRBU',
    'WrongKey': 'LC61 ACNIEMTSRBU',
    'HeaderDamaged': 'LC37 ANIEMTSRBU',
    'ForeignHeader': 'LC62 ANIEMTSRBU',
    'OpenedOtherwise': 'LC62 ANIEMTSRBU',
    'NotRecovered': 'LC41 ANIEMTSRBU',
    'NotEnded': 'LC37 ANIEMTSRBU',
    'HeaderInUse': 'LC53 ACNIEMTSRBGU',
    'MovesCold': 'LC38 A',
    'KeepsSize': 'LC42 E',
    'WouldReadNoise': 'LC40 A',
    'Reencrypting': 'LC41 ANIEMTSRBU',
    'StillReencrypting': 'LC41 ANIEMTSRBU',
    'Interrupted': 'LC63 ANIEMTSRBU',
    # A member has no part in these, or can do nothing special about them.
    **dict.fromkeys((
        'NotCreated', 'NotReverted', 'NotPossible', 'Foreign', 'CommandFailed',
        'ExportFailed', 'SnapshotInUse', 'SourceUnread', 'TakesLong',
        'Lacking', 'NotAllCopied', 'NotRefilled', 'Forgotten', 'NotBlank',
        'LastKey', 'KeyNotChanged', 'NoBackup', 'StaleBackup', 'OddSize',
        'NotAtRest', 'CannotReencrypt', 'OtherKeys', 'NoSpaceToReencrypt',
        '_NotFound', '_Gone', '_InUse', 'NotConsistent'), ''),
}
#: Words of a host, a device, a program or another volume.
INTERNAL = re.compile(
    r'[/%{}<>_]|\b(LV|LVs|lv\w+|vg\w+|dm\w*|iqn|iscsi|luks\d?|node\w*|'
    r'tcmu|lio|qemu|cryptsetup|metadata|privsep|daemon|rpc|rabbit\w*|'
    r'cinder-volume|volume-\w*|snapshot-\w*|thin pool|kernel|'
    r'[0-9a-f]{8}-[0-9a-f]{4}\S*|slot|secret|passphrase)\b', re.IGNORECASE)
#: The verbs of an action of a member.
ACTIONS = re.compile(
    r'\b(try again|repeat the request|ask an administrator|detach|attach|'
    r'create|delete|choose|use|migrate|stop|check|extend it again|reset|'
    r'write the image again)\b', re.IGNORECASE)


def errors():
    """The classes of all errors of the driver, as they register themselves."""
    found = {}
    rest = [exceptions.LocalCloneError]
    while rest:
        for each in rest.pop().__subclasses__():
            if each.__module__.startswith('cinder_localclone.'):
                found[each.__name__] = each
                rest.append(each)
    return found


def pairs():
    """All errors, no error of the driver included, with all requests."""
    for name, kind in {**errors(), 'KeyError': KeyError}.items():
        for action in Action:
            yield name, action, user_messages.choose(
                getattr(kind, 'member_reads', ()), action)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:6]


@ddt.ddt
class PairsTest(testtools.TestCase):

    def test_codes_keep_their_meaning(self):
        self.assertEqual(FROZEN, {
            each.code: (each.key, digest(each.problem + each.member))
            for each in user_messages.MESSAGES.values()})

    def test_letters_keep_their_meaning(self):
        self.assertEqual(LETTERS, {
            each.name: each.value.letter for each in Action})

    def test_each_pair(self):
        expected, found = {}, {}
        for name, action, message in pairs():
            letter = action.value.letter
            own = {each: code for code, letters in (
                part.split() for part in filter(None, PAIRS.get(
                    name, '').split(', '))) for each in letters}
            expected[name, action] = own.get(letter, DEFAULTS[letter])
            found[name, action] = message.code
        self.assertEqual(expected, found)

    def test_each_error_is_in_the_table(self):
        self.assertEqual(set(PAIRS), set(errors()))

    def test_each_cause_is_true_of_its_request(self):
        for name, action, message in pairs():
            self.assertIn(action, message.actions, (name, action))

    def test_each_message_can_be_read(self):
        read = {(message.key, action) for _name, action, message in pairs()}
        self.assertEqual(set(), {
            message.key for message in user_messages.MESSAGES.values()
            if not any((message.key, action) in read for action in Action)})

    def test_nothing_internal_leaks(self):
        """A text is static: it has no facts of the error, and no such word."""
        for name, action, message in pairs():
            text = message.text(action)
            self.assertIsNone(INTERNAL.search(text), (name, action, text))
            self.assertIn((message.detail(action)), user_messages.details())

    @ddt.data('Run lvs on node2.', 'In /etc/x.', 'Of volume-1.', '%(again)s',
              'Of 01234567-89ab-4def-8123-456789abcdef.', 'The iqn of it.')
    def test_what_would_leak(self, text):
        self.assertIsNotNone(INTERNAL.search(text))

    def test_each_names_what_the_member_can_do(self):
        for name, action, message in pairs():
            problem, member = message.parts(action)
            for part in (problem, member):
                self.assertRegex(part, r'^[A-Z].*\.$', (name, action))
                self.assertNotIn('..', part)
            self.assertRegex(member, ACTIONS, (name, action))

    def test_no_second_try_is_advised_that_the_status_forbids(self):
        """Cinder leaves the status of an error, or a failed resource."""
        for name, action, message in pairs():
            _problem, member = message.parts(action)
            if action is Action.EXTEND:
                self.assertIn('administrator', member, name)
            if action is Action.DELETE and message.code != 'LC44':
                self.assertIn('administrator', member, name)
            if action in (Action.CREATE, Action.CLONE, Action.SNAPSHOT,
                          Action.BACKUP):  # what has failed can't be used
                self.assertNotRegex(
                    member, r'(?i)\b(try again|repeat)\b', (name, action))

    def test_texts_fit(self):
        """The columns of Cinder's table, and a line of 255 characters."""
        for _name, action, message in pairs():
            number, text = message.detail(action)
            cinder, words = action.value.cinder
            self.assertLessEqual(len(number), 10)
            self.assertLessEqual(len(cinder), 10)
            event = 'VOLUME_%s_%s_%s' % (
                action.value.resource, cinder, number)
            self.assertLessEqual(len(event), 255)
            self.assertLessEqual(len('%s:%s' % (words, text)), 255, number)

    def test_cause_comes_first(self):
        """What was left alone says nothing to whoever knows no cause."""
        for number, text in user_messages.details():
            self.assertNotRegex(text, '^(Nothing|None|No )', number)

    def test_ids_differ(self):
        numbers = [number for number, _text in user_messages.details()]
        self.assertEqual(len(numbers), len(set(numbers)))

    def test_what_is_taken_is_not_registered_again(self):
        before = dict(user_messages.MESSAGES)
        for key, code in (('FAILED', 'LC99'), ('OTHER', 'LC00')):
            self.assertRaises(ValueError, user_messages._message, key, code,
                              [Action.ATTACH], 'p', 'm', 'o')
        self.assertEqual(before, user_messages.MESSAGES)

    def test_no_cause_is_inherited(self):
        class Other(exceptions.SourceBusy, of_peers=False):
            problem = 'another cause'

        class Same(exceptions.SourceBusy, of_peers=False):
            pass

        for kind in (Other, Same):
            self.assertEqual((), kind.member_reads)
            for action in Action:
                self.assertIs(user_messages.DEFAULTS[action],
                              user_messages.choose(kind.member_reads, action))

    def test_the_source_is_named_where_it_is_meant(self):
        said = user_messages.MOVE_BUSY.text
        self.assertIn('The source of the volume is being moved',
                      said(Action.CLONE))
        self.assertIn('The volume is being moved', said(Action.SNAPSHOT))

    def test_all_are_documented(self):
        page = '\n'.join([
            *messages_table.requests(Action, user_messages),
            *messages_table.codes(Action, user_messages)])
        for name, action, message in pairs():
            self.assertIn('``%s`` ' % message.code, page)
            for part in (messages_table.problem(message),
                         message.member % messages_table.ANY,
                         message.operator):
                self.assertIn('- ' + part + '\n', page + '\n', name)
            self.assertIn('``%s``' % action.value.letter, page)
            self.assertIn('- %s\n' % action.value.again, page)
        self.assertNotIn('%(', page)
