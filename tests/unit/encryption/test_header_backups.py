# SPDX-License-Identifier: Apache-2.0
"""Backups of headers follow their volumes, and none goes too early."""

import contextlib
import dataclasses
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import header_backups
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import operator
from tests.helpers import own_key_case
from tests.helpers import revert_case
from tests.helpers import specs
from tests.world import crypt
from tests.world import images
from tests.world import records

A, B = 'a@l', 'b@l'
HERE, MOVED, OTHER = 'here', 'moved', 'other'


def row(volume_id, host, status='available', **more):
    return images.volume(volume_id, host, **{
        'status': status, 'provider_id': crypt.recorded('k'), **more})


@ddt.ddt
class SweepTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.rows = {HERE: row(HERE, A), MOVED: row(MOVED, B)}
        self.moves, self.locked = {}, []
        self.node = node = specs.node(host=A)

        @contextlib.contextmanager
        def lock(volume_id):
            self.locked.append(volume_id)
            try:
                yield
            finally:
                self.locked.remove(volume_id)
        node.try_lock = lock
        node.volumes.volume.side_effect = self.rows.get
        node.moves.move_of.side_effect = self.moves.get
        node.volumes.volumes_of.side_effect = lambda host: [
            each for each in self.rows.values()
            if each.host.partition('#')[0] == host]
        node.crypt.backed_up_volumes.return_value = []
        node.peers.has_header_backup.return_value = True
        node.exports.remote.return_value = {}
        node.lvm.lvs.return_value = {}
        node.crypt.backup_space.return_value = 8, 2
        node.crypt.header.return_value = mock.Mock(
            reencryption=None, becoming=None, odd='', pin=crypt.PIN,
            slot_ciphers=frozenset(), foreign_requirements=())
        self.wrong = self.useFixture(fixtures.MockPatchObject(
            headers, 'backup_problems', return_value=[])).mock
        self.backups = header_backups.Sweep(node)
        self.useFixture(fixtures.MockPatchObject(
            activate, 'key_of', autospec=True, return_value=b'key'))
        for change in (node.crypt.back_up, node.crypt.drop_backups,
                       node.crypt.renew_backup):
            change.side_effect = lambda volume_id, *_how: self.assertEqual(
                [volume_id], self.locked)

    def sweep(self):
        """What was made, and what was dropped."""
        self.node.crypt.back_up.reset_mock()
        self.node.crypt.drop_backups.reset_mock()
        self.backups.sweep()
        return ([call.args[0] for call in self.node.crypt.back_up.mock_calls],
                [call.args[0]
                 for call in self.node.crypt.drop_backups.mock_calls])

    def test_made_at_the_home(self):
        self.rows['plain'] = row('plain', A, provider_id=None)
        self.assertEqual(([HERE], []), self.sweep())
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.assertEqual(([], []), self.sweep())

    def test_not_made_of_what_is_re_encrypted(self):
        """It could not be restored; its writer is not disturbed."""
        self.node.crypt.header.return_value.reencryption = mock.Mock()
        self.assertEqual(([], []), self.sweep())

    @ddt.data('creating', 'downloading', 'deleting', 'error_deleting', 'error',
              'managing', 'error_managing', 'error_managing_deleting',
              'reverting')
    def test_not_made_of_a_volume_without_a_header(self, status):
        self.rows[HERE].status = status
        self.assertEqual(([], []), self.sweep())

    @ddt.data('unmanaging', 'error_unmanaging')
    def test_made_though_an_unmanage_is_refused(self, status):
        self.rows[HERE].status = status
        self.assertEqual(([HERE], []), self.sweep())

    def test_not_made_of_what_moves_or_has_no_handle(self):
        self.moves[HERE] = mock.Mock()
        self.assertEqual(([], []), self.sweep())
        self.moves.clear()
        self.node.handles.survey.return_value.handle.return_value = None
        self.assertEqual(([], []), self.sweep())

    def test_dropped_when_the_new_home_has_one(self):
        self.node.crypt.backed_up_volumes.return_value = [HERE, MOVED]
        self.assertEqual(([], [MOVED]), self.sweep())
        self.node.peers.has_header_backup.assert_called_once_with(B, MOVED)

    def test_kept_while_the_row_names_a_former_home(self):
        """This has an older backup, and this node has the volume's LV."""
        self.node.crypt.backed_up_volumes.return_value = [HERE, MOVED]
        self.rows[MOVED].name_id = 'record'
        self.rows[MOVED].name = 'volume-record'
        self.node.volumes.service_of.return_value = A
        self.node.lvm.lvs.return_value = {
            'volume-record': lvm_reports.LogicalVolume(
                'g', 'volume-record', 1 << 30, '9:9',
                frozenset(names.tags(volume=MOVED)))}
        self.assertEqual(([], []), self.sweep())

    def test_kept_while_the_new_home_has_none(self):
        self.node.crypt.backed_up_volumes.return_value = [HERE, MOVED]
        self.node.peers.has_header_backup.return_value = False
        self.assertEqual(([], []), self.sweep())

    def test_kept_while_it_moves(self):
        self.node.crypt.backed_up_volumes.return_value = [HERE, MOVED]
        self.moves[MOVED] = mock.Mock()
        self.assertEqual(([], []), self.sweep())

    def test_what_has_no_row_is_not_decided_here(self):
        self.node.crypt.backed_up_volumes.return_value = [HERE, OTHER]
        self.assertEqual(([], []), self.sweep())
        self.node.peers.has_header_backup.assert_not_called()

    def test_one_that_fails_stops_no_other(self):
        self.node.crypt.backed_up_volumes.return_value = ['gone', MOVED]
        self.rows['gone'] = row('gone', 'c@l')
        self.node.peers.has_header_backup.side_effect = lambda host, _id: (
            True if host == B else self.fail_())
        self.assertEqual(([HERE], [MOVED]), self.sweep())

    @staticmethod
    def fail_():
        raise exceptions.SourceUnreachable(portal='c', reason='down')

    def test_none_are_kept(self):
        self.node.crypt.keeps_backups.return_value = False
        self.assertEqual(([], []), self.sweep())
        self.node.volumes.volumes_of.assert_not_called()

    def test_rows_that_are_not_understood(self):
        self.rows['odd'] = row('odd', A, provider_id='lc9:what')
        self.node.crypt.backed_up_volumes.return_value = ['odd', MOVED]
        self.assertEqual(([HERE], [MOVED]), self.sweep())
        self.node.crypt.backed_up_volumes.return_value = [MOVED]
        self.assertEqual(([HERE], [MOVED]), self.sweep())

    def compared(self):
        self.wrong.reset_mock()
        self.sweep()
        return [call.args[1] for call in self.wrong.mock_calls]

    def test_each_lv_is_compared_once(self):
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.assertEqual([HERE], self.compared())
        self.assertEqual([], self.compared())
        self.rows[HERE].name = 'volume-other'
        self.assertEqual([HERE], self.compared())
        self.node.crypt.renew_backup.assert_not_called()

    def test_compared_once_whatever_else_its_lv_says(self):
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.node.lvm.lvs.return_value = {'volume-' + HERE: mock.Mock(tags={
            names.OPENED, names.FRESH, names.REENCRYPTED, names.PAUSED})}
        self.assertEqual([HERE], self.compared())
        self.assertEqual([], self.compared())
        self.node.crypt.renew_backup.assert_not_called()

    def test_not_compared_while_others_may_have_the_header(self):
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.moves[HERE] = mock.Mock()
        self.assertEqual([], self.compared())
        self.moves.clear()
        self.node.exports.remote.return_value = {HERE: {'iqn'}}
        self.assertEqual([], self.compared())
        self.node.exports.remote.return_value = {}
        self.node.crypt.header.return_value.reencryption = mock.Mock()
        self.assertEqual([], self.compared())
        self.node.crypt.header.return_value.reencryption = None
        self.assertEqual([HERE], self.compared())

    def test_compared_again_until_it_is_right(self):
        """As when the disk for backups is full."""
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.wrong.return_value = ['other key slots']
        self.node.crypt.header.return_value.tokens_with_role.return_value = [
            mock.Mock(key='k')]
        self.node.crypt.renew_backup.side_effect = OSError
        for _look in range(2):
            self.assertEqual([HERE], self.compared())
        self.node.crypt.renew_backup.side_effect = None
        self.assertEqual([HERE], self.compared())
        self.assertEqual([], self.compared())

    def test_compared_again_until_the_header_is_its_own(self):
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.wrong.return_value = ['other data']
        self.node.crypt.header.return_value.tokens_with_role.return_value = []
        for _look in range(2):
            self.assertEqual([HERE], self.compared())
        self.node.crypt.renew_backup.assert_not_called()

    def test_marked_while_it_is_re_encrypted(self):
        """No backup of such a header takes the place of others."""
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.rows[HERE].name = 'volume-other'
        self.node.lvm.lvs.return_value = {
            'volume-other': mock.Mock(tags={names.OUTDATED})}
        header = self.node.crypt.header.return_value
        header.tokens_with_role.return_value = [mock.Mock(key='k')]
        header.reencryption = mock.Mock()
        self.sweep()
        self.node.crypt.renew_backup.assert_not_called()
        header.reencryption = None
        self.sweep()
        self.node.crypt.renew_backup.assert_called_once_with(
            HERE, header, b'key')

    def test_compared_again_when_it_was_away(self):
        """Its disk comes back as it was, perhaps of before a change."""
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.assertEqual([HERE], self.compared())
        self.node.crypt.backed_up_volumes.return_value = []
        self.assertEqual([], self.compared())
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.assertEqual([HERE], self.compared())

    def test_compared_again_when_its_key_is_another(self):
        """Its disk may have been away only while that was replaced."""
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.assertEqual([HERE], self.compared())
        self.assertEqual([], self.compared())
        self.rows[HERE].provider_id = str(
            dataclasses.replace(volume_types.Recorded.parse(
                self.rows[HERE].provider_id), key='k2'))
        self.assertEqual([HERE], self.compared())

    def test_volume_without_a_home_stops_no_other(self):
        """It could not be created, and no node was found for it."""
        self.rows['a'] = row('a', '', status='error')
        self.rows['a'].host = None
        self.node.volumes.volumes_of.side_effect = lambda host: [
            self.rows[HERE]]
        self.node.crypt.backed_up_volumes.return_value = ['a', HERE, MOVED]
        self.assertEqual(([], [MOVED]), self.sweep())

    def test_deleted_ones_keep_no_other_from_its_turn(self):
        self.node.crypt.backed_up_volumes.return_value = [
            *('deleted%02d' % number
              for number in range(header_backups.ASKED)), HERE, MOVED]
        self.assertEqual([[], [MOVED]], [self.sweep()[1] for _n in range(2)])

    def test_compared_while_others_have_another_volume(self):
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.node.exports.remote.return_value = {OTHER: {'iqn'}}
        self.assertEqual([HERE], self.compared())

    @ddt.data(None, {'host': B}, {'status': 'deleting'},
              {'migration_status': 'target:' + OTHER})
    def test_row_that_is_another_by_now(self, change):
        """Time goes by between the list and each of the volumes."""
        self.node.volumes.volume.side_effect = lambda volume_id: (
            change and row(HERE, **dict({'host': A}, **change)))
        self.assertEqual(([], []), self.sweep())
        self.node.crypt.backed_up_volumes.return_value = [HERE]
        self.assertEqual([], self.compared())
        self.node.crypt.header.assert_not_called()

    def test_one_that_is_busy_stops_no_other(self):
        self.rows.update({each: row(each, A) for each in ('a', 'z')})
        lock = self.node.try_lock

        def busy(volume_id):
            if volume_id == HERE:
                raise exceptions.Busy(what='v', host='h', seconds=1)
            return lock(volume_id)
        self.node.try_lock = busy
        self.assertEqual((['a', 'z'], []), self.sweep())

    def test_a_few_at_a_time(self):
        del self.rows[HERE]
        ids = ['v%d' % number for number in range(5)]
        self.rows.update({each: row(each, A) for each in ids})
        self.rows['v0'].status = 'error'
        self.node.crypt.backed_up_volumes.return_value = ids
        self.moves['v1'] = mock.Mock()
        with mock.patch.object(header_backups, 'COMPARED', 2):
            self.assertEqual([['v2'], ['v3', 'v4'], []],
                             [self.compared() for _look in range(3)])
            self.moves.clear()
            self.assertEqual(['v1'], self.compared())


@ddt.ddt
class HeaderTest(own_key_case.Case):
    """What is there is of the header that the volume has."""

    def wrong(self):
        return {each['what']: each['problem'] for each in headers.verify(
            self.a.node, self.volume.id) if each['problem']}

    def test_reverted(self):
        """Its header is of the time of the snapshot again. Were that lost,
        there would be no backup of it.
        """
        snapshot_id = self.snapshot()
        self.rotate()
        self.rotate()  # in the same slot as at first
        self.volume.status = 'reverting'
        revert_case.Base.revert(self.world, self.volume, snapshot_id, A)
        self.volume.status = 'available'
        self.assertIn('secrets', self.wrong()['backup of the header'])
        self.backups.sweep()
        self.assertEqual({}, self.wrong())
        self.world.set_snapshot(snapshot_id, deleted=True)
        self.rotate()
        self.assertFalse(self.is_marked())  # by the name that its LV has now
        self.world.headers[self.volume.id] = None
        operator.restore_header(self.a.node, self.volume.id)
        self.assert_opens()

    def test_reverted_and_a_key_was_removed(self):
        """Its LV is another one then; the backup has that key yet."""
        snapshot_id = self.snapshot()
        added = operator.add_recovery_key(self.a.node, self.volume.id, False)
        full = exceptions.CommandFailed(command='c', code=1, stderr='full')
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=full):
            self.assertRaises(encryption_exceptions.StaleBackup,
                              operator.remove_recovery_key, self.a.node,
                              self.volume.id, added.slot)
        revert_case.Base.revert(self.world, self.volume, snapshot_id, A)
        self.assertTrue(self.is_marked())
        self.world.headers[self.volume.id] = None
        operator.restore_header(self.a.node, self.volume.id)
        self.assert_opens()
        self.assertNotIn(added.key.encode(), self.header.slots.values())

    def test_moved(self):
        """Its new home may have backups of when it was there before: with a
        key that was removed since, which no restore brings back.
        """
        node_b, seen = self.world.nodes[own_key_case.B], []
        commit = records.SimMoves.commit

        def committing(own, *args, **more):
            seen.extend(lv for lv, tags in node_b.disk.tags.items()
                        if names.OUTDATED in tags)
            return commit(own, *args, **more)
        with mock.patch.object(records.SimMoves, 'commit', committing):
            self.a.move(self.volume, own_key_case.B)
        self.assertEqual([self.volume.name], seen)
        plain = self.world.create_volume(A)
        del seen[:]
        with mock.patch.object(records.SimMoves, 'commit', committing):
            self.a.move(plain, own_key_case.B)
        self.assertEqual([self.volume.name], seen)

    def test_come_back(self):
        """It was re-encrypted on another node, which keeps no backups; with
        the backup of before all of it would be noise.
        """
        self.header.digest = 'of other data'
        crypt.pin_again(self.world, self.volume)
        self.assertIn('other data', self.wrong()['backup of the header'])
        self.backups.sweep()
        self.assertEqual({}, self.wrong())

    def test_backup_that_is_damaged(self):
        damaged = encryption_exceptions.HeaderDamaged(
            path='p', reason='damaged')
        with mock.patch.object(crypt.SimCrypt, 'backed_up',
                               side_effect=damaged):
            self.backups.sweep()
        self.assertEqual(['2'], self.world.backups[self.volume.id])
        self.assertEqual({}, self.wrong())

    def test_header_that_asks_for_what_is_not_known(self):
        """Nor is a backup of it restored: cryptsetup refuses to change it."""
        self.a.disk.tags[self.volume.name] |= {names.OUTDATED}
        found = crypt.SimCrypt.header
        with mock.patch.object(
                crypt.SimCrypt, 'header', lambda *args, **more:
                dataclasses.replace(found(*args, **more),
                                    requirements=('foo',))), \
                mock.patch.object(crypt.SimCrypt, 'renew_backup') as renewed:
            self.backups.sweep()
        renewed.assert_not_called()

    @ddt.data(False, True)
    def test_header_that_is_not_the_volumes_own(self, marked):
        """Whoever has written that, the backup is what the volume needs."""
        kept = dict(self.world.copies)
        if marked:
            self.a.disk.tags[self.volume.name] |= {names.OUTDATED}
        self.world.headers[self.volume.id] = crypt.SimHeader({'0': b'?'})
        self.backups.sweep()
        self.world.headers[self.volume.id] = None
        self.backups.sweep()
        self.assertEqual(kept, self.world.copies)

    def setUp(self):
        super().setUp()
        self.backups = header_backups.Sweep(self.a.node)
