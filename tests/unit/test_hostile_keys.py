# SPDX-License-Identifier: Apache-2.0
"""Keys and headers where calls, nodes and the key manager fail midway."""

import pathlib
from unittest import mock

from cinder.tests.unit import utils
import fixtures
import testtools

from cinder_localclone import births
from cinder_localclone.cmd import checks
from cinder_localclone import cryptsetup
from cinder_localclone import deletion
from cinder_localclone import encryption_errors
from cinder_localclone import encryption_types
from cinder_localclone import exceptions
from cinder_localclone import manage_errors
from cinder_localclone import managing_snapshots
from cinder_localclone import names
from cinder_localclone.privileged import secrets
from cinder_localclone import restore
from cinder_localclone import rows
from cinder_localclone import secret_records
from cinder_localclone import survey
from cinder_localclone import unlocking
from tests.unit import commands
from tests.unit import test_connections
from tests.unit import test_encrypted_guests
from tests.unit import test_encrypted_volumes
from tests.unit import test_privileged_crypt
from tests.unit import test_records
from tests.unit import test_unlocking
from tests.unit import world as worlds
from tests.unit.world import crypt

A, B = test_connections.A, test_connections.B
VOLUME = test_privileged_crypt.VOLUME


class BirthTest(test_encrypted_volumes.Case):

    def setUp(self):
        super().setUp()
        self.world.pool = 'pool'
        self.image = self.row()
        self.create(self.image)
        self.image.status = 'available'

    def bear(self, newborn):
        births.from_volume(self.a.node, None, newborn.id, self.image.id, 0,
                           self.a.reconciler.progress)

    def test_key_manager_knows_who_uses_a_secret(self):
        """A volume is cloned; then the one that its secret is named after
        is deleted. Whoever clears away what no volume uses is stopped.
        """
        newborn = self.row()
        self.bear(newborn)
        newborn.status = 'available'
        key = rows.recorded(newborn).key
        self.delete(self.image)
        del self.world.volumes[self.image.id]
        self.assertEqual({(key, 'volumes', newborn.id)},
                         self.world.secrets.consumers)
        self.delete(newborn)
        self.assertEqual({}, self.world.secrets.kept)

    def test_birth_without_a_key_manager(self):
        newborn = self.row()
        self.world.secrets.state = crypt.AWAY
        self.assertRaises(encryption_errors.KeyUnavailable, self.bear,
                          newborn)
        self.world.secrets.state = ''
        self.assertEqual([self.image.name], list(self.a.lvs))
        self.assertEqual([rows.recorded(self.image).key],
                         list(self.world.secrets.kept))
        self.create(newborn)  # Cinder downloads the image
        self.assertWhole(newborn)
        self.assertWhole(self.image)

    def test_birth_that_failed_leaves_no_key(self):
        """A cached image can't be cloned: the pool is full. Cinder has the
        same volume created, to download the image; it gets its own secret.
        """
        newborn = self.row()
        with mock.patch.object(
                worlds.SimStack, 'create_copy', side_effect=(
                    exceptions.CommandFailed(command='lvcreate', code=5,
                                             stderr='full'))):
            self.assertRaises(exceptions.CommandFailed, self.bear, newborn)
        self.world.secrets.consumers.add((
            rows.recorded(self.image).key, 'volumes', newborn.id))
        self.create(newborn)
        self.assertWhole(newborn)
        self.assertEqual(2, len(self.world.secrets.consumers))
        key = rows.recorded(newborn).key
        self.assertNotEqual(rows.recorded(self.image).key, key)
        self.assertEqual(names.secret(newborn.id),
                         self.world.secrets.kept[key][0])


class DeletionTest(test_encrypted_volumes.Case):

    def test_what_cinder_has_migrated_away(self):
        """Cinder copies a volume to another backend, gives its row what it
        has copied, and deletes what was here by the other row.
        """
        volume = self.row()
        self.create(volume)
        header = self.world.headers[volume.id]
        left = self.world.row(
            A, name=volume.name, name_id=volume.id, status='deleting',
            migration_status='deleting', provider_id=volume.provider_id)
        volume.host, volume.name = 'a@other#p', 'volume-' + left.id
        volume.name_id, volume.status = left.id, 'available'
        # Its row names the secret still, of what goes here.
        self.world.going.add(volume.id)
        self.delete(left)
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])
        self.assertEqual([{}, set(), {}, {}], [
            self.world.secrets.kept, self.world.secrets.consumers,
            header.slots, self.world.backups])

    def test_secrets_that_cannot_be_listed(self):
        """The key manager gives and deletes a secret, but no list of all:
        that is not allowed, or takes longer than it may (Vault's does). The
        one that the row names goes nevertheless.
        """
        volume = self.row()
        self.create(volume)
        for error in (encryption_errors.KeyUnavailable(reason='too many'),
                      encryption_errors.KeyRefused(key='', reason='policy')):
            with mock.patch.object(crypt.SimKeys, 'find', side_effect=error):
                self.delete(volume)
            self.assertEqual({}, self.world.secrets.kept)

    def test_where_there_is_no_cryptsetup(self):
        """A volume is drained to a node without it, and deleted there."""
        volume = self.row()
        self.create(volume)
        with mock.patch.object(crypt.SimCrypt, 'erase',
                               side_effect=FileNotFoundError('cryptsetup')):
            self.delete(volume)
        self.assertEqual([{}, {}], [self.a.lvs, self.world.secrets.kept])


class DeletedWithoutItsSourceTest(test_encrypted_guests.Case):

    def test_nothing_waits_for_it(self):
        """A volume is moved, detached, and its source's node dies; it is
        deleted. Whatever reads its header then reads from a source that does
        not answer, for longer than the caller waits, unless its session has
        ended.
        """
        self.serve(test_connections.ON_B)
        self.unserve(self.b, test_connections.ON_B)
        self.attach('available')
        self.a.dead = self.a.gone = True
        waited = []

        def erase(_crypt, _volume_id):
            waited.extend(self.b.sessions)
            raise exceptions.CommandFailed(command='c', code=4, stderr='EIO')
        self.volume.status = 'deleting'
        self.world.going.add(self.volume.id)
        with mock.patch.object(crypt.SimCrypt, 'erase', erase):
            deletion.delete(self.b.node, None, self.volume)
        self.assertEqual([[], {}], [waited, self.b.lvs])


class UnmanagedSnapshotTest(test_encrypted_guests.SnapshotCase):

    def test_what_nobody_could_read(self):
        """The snapshot of an encrypted volume is unmanaged, and the volume
        deleted: its secret goes, which the snapshot's header needs.
        """
        self.assertRaises(
            manage_errors.CannotUnmanage, managing_snapshots.unmanage,
            self.a.node, None, self.snapshot_id)
        self.assertIn(names.snapshot_lv(self.snapshot_id), self.a.lvs)

    def test_what_nobody_has_encrypted(self):
        """An LV is managed as a snapshot of an encrypted volume: a backup of
        it would be of whatever it has, ciphertext for instance.
        """
        self.world.foreign(A)
        snapshot = self.world.snapshot_row(self.volume)
        for act in (managing_snapshots.get_size, managing_snapshots.manage):
            error = self.assertRaises(
                manage_errors.CannotManage, act, self.a.node, snapshot,
                {'source-name': 'data'})
            self.assertIn('encrypted', str(error))


class MoveTest(test_encrypted_guests.Case):

    def test_home_that_has_no_handle_yet(self):
        """The home's node was just started; an instance elsewhere attaches
        the volume before the look has made its handle.
        """
        del self.a.devices[self.handle]
        self.serve(test_connections.ON_B)
        self.assertIn(self.crypt, self.b.devices)
        self.assertEqual([], self.world.wrongs)


class PassedTest(test_encrypted_guests.Case):

    def test_what_was_used_elsewhere_is_not_fresh(self):
        """A new volume of a group is attached on another node, which writes
        to it there; a backup may be restored to it then.
        """
        self.a.disk.tags[self.volume.name] |= {names.FRESH}
        self.volume.group_id = 'g'
        connector = dict(test_connections.ON_B, initiator='iqn.x')
        self.serve(connector)
        self.assertIn(self.crypt, self.b.devices)
        self.unserve(self.a, connector)
        self.attach('restoring-backup')
        self.assertEqual('/dev/mapper/' + self.crypt, self.serve(
            test_connections.ON_A)['data']['device_path'])


class UnlockTest(test_unlocking.Case):

    def test_what_nova_encrypts_is_not_locked(self):
        """A volume that Nova encrypts is passed through here: its header is
        no LUKS2, and cryptsetup says so in its own words.
        """
        volume = self.world.create_volume(A)
        said = encryption_errors.of_cryptsetup(exceptions.CommandFailed(
            command='cryptsetup luksDump', code=1, stderr='Dump operation '
            'is not supported for this device type.'), 'p')
        with mock.patch.object(self.crypt, 'header', side_effect=said):
            self.assertEqual({}, self.states(
                passed=unlocking.noted_of(self.crypt, [volume.id])))

    def test_what_the_service_has_opened_meanwhile(self):
        """The volume service starts while a key is fetched for a volume,
        and opens that, too: whoever comes second finds it open.
        """
        opened = cryptsetup.Cryptsetup('g', 30)
        said = exceptions.CommandFailed(
            command='cryptsetup open', code=5, stderr='Device '
            'localclone-crypt-x already exists.')
        with mock.patch.object(secrets, 'open_device', side_effect=said):
            opened.open('x', b'k')
        said = exceptions.CommandFailed(
            command='cryptsetup open', code=5, stderr='Cannot use device '
            '/dev/mapper/localclone-x which is in use.')
        with mock.patch.object(secrets, 'open_device', side_effect=said):
            self.assertRaises(exceptions.CommandFailed, opened.open, 'x',
                              b'k')


class HeaderTest(commands.Case):

    def test_nothing_is_mended_by_the_way(self):
        """A volume of whose header one copy is damaged grows where it is
        passed through, while its home has the header open: cryptsetup would
        mend it there.
        """
        secrets.resize(test_privileged_crypt.CRYPT, b'k', 30)
        for line in self.commands.ran:
            self.assertIn('--disable-locks', line)


class RestoreTest(testtools.TestCase):

    def test_plain_volume_on_a_node_without_cryptsetup(self):
        """A boot makes the handle of a volume that is passed through; that
        it can't look for a header there is no problem of the volume.
        """
        stack, sessions = mock.Mock(), mock.Mock()
        stack.survey.return_value = survey.Survey({}, {})
        stack.header_sectors.side_effect = FileNotFoundError('cryptsetup')
        sessions.recorded_passes.return_value = {VOLUME: 'iqn.x:y'}
        sessions.pass_from_records.return_value = '/dev/sdb'
        self.assertEqual([''], [problem for _local, problem in (
            restore.restore(stack, sessions))])
        stack.ensure_handle_on_disk.assert_called_once()


class SecretsInUseTest(test_records.Base):

    def test_shadow_that_outlives_its_volume(self):
        """A clone was moved, and deleted while its source was away: its
        shadow stays. Then the volume goes whose secret both have had.
        """
        known = secret_records.SecretRecords()
        recorded = encryption_types.Recorded(16 << 20, 'k')
        clone, volume = (utils.create_volume(self.context, host=A + '#l')
                         for _ in range(2))
        shadow = utils.create_volume(
            self.context, host=B + '#l',
            migration_status='target:' + clone.id)
        for each in (clone, volume, shadow):
            known.record(each.id, recorded)
        clone.destroy()
        self.assertEqual({'k'}, known.secrets_in_use())
        self.assertEqual(set(), known.secrets_in_use([volume.id]))


class RulesTest(testtools.TestCase):

    def test_rules_of_before(self):
        """The driver is upgraded and the rules are not: udev, and what it
        starts, look at what guests have in decrypted volumes.
        """
        rules = pathlib.Path(__file__).parents[2] / 'etc/udev/rules.d'
        text = (rules / checks.RULES).read_text()
        directory = self.useFixture(fixtures.TempDir()).path
        file = pathlib.Path(directory, checks.RULES)
        for kept, verdict in ((text, checks.OK), ('\n'.join(
                line for line in text.splitlines()
                if 'CRYPT' not in line), checks.WARN)):
            file.write_text(kept)
            self.assertEqual([verdict], [
                each.verdict for each in checks.rules([directory])])
