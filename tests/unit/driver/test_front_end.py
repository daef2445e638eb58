# SPDX-License-Identifier: Apache-2.0
"""Volumes that Nova encrypts: their creation, images, and os-brick."""

import pathlib
import types
from unittest import mock

from cinder import exception
from cinder.volume import driver as cinder_driver
import ddt
import fixtures
from os_brick.encryptors import luks
from oslo_concurrency import processutils
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import volume_types
from cinder_localclone.driver import front_end
from cinder_localclone.driver import snapshots
from cinder_localclone.encryption import devices
from cinder_localclone.volumes import create
from cinder_localclone.volumes import delete
from cinder_localclone.volumes import images
from cinder_localclone.volumes import uncommitted
from tests.helpers import callers
from tests.helpers import ended_move_case
from tests import world as worlds

A, B = 'a@l', 'b@l'
GIB = worlds.GIB
LUKS = {'provider': 'luks', 'control_location': 'front-end',
        'cipher': 'aes-xts-plain64', 'key_size': 256}
ROOT = pathlib.Path(front_end.__file__).parents[1]


@ddt.ddt
class TypeTest(testtools.TestCase):

    @ddt.data({}, {'provider': 'LuksEncryptor'},
              {'provider': 'nova.volume.encryptors.luks.LuksEncryptor'},
              {'provider': 'os_brick.encryptors.luks.LuksEncryptor'},
              {'control_location': 'Front-End'})
    def test_what_qemu_reads(self, changed):
        self.assertEqual('', front_end.why_not(dict(LUKS, **changed)))

    @ddt.data({'provider': 'luks2'}, {'provider': 'plain'},
              {'provider': 'CryptsetupEncryptor'}, {'provider': None},
              {'provider': 'NoOpEncryptor'}, {'provider': 'LUKS'},
              {'provider': 'os_brick.encryptors.nop.NoopEncryptor'},
              {'control_location': 'back-end'}, {'control_location': None},
              {'cipher': None}, {'key_size': None}, {'cipher': ''})
    def test_all_else(self, changed):
        self.assertTrue(front_end.why_not(dict(LUKS, **changed)))

    def test_a_key_without_a_type(self):
        self.assertTrue(front_end.why_not({'encryption_key_id': 'k'}))


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.world.secrets.kept['key'] = ('an owner\'s', b'61626364')

    def row(self, **more):
        row = self.world.row(A, encryption_key_id='key', **more)
        row._context = 'the owner\'s'
        return row

    def create(self, row):
        create.create_for_nova(
            self.a.node, row._context, row,
            volume_types.HeaderForNova('c', 256))

    def left(self):
        return self.a.lvs, self.a.devices


class CreateTest(Case):

    def test_formatted_once(self):
        row = self.row()
        self.create(row)
        self.assertEqual([worlds.HEADER] + [worlds.EMPTY] * 3,
                         self.a.lvs[row.name])
        self.assertEqual(1, self.a.lvs[row.name].count(worlds.HEADER))
        done = self.world.effects(A)
        self.assertLess(done.index('format_luks1'), done.index(
            'flush_handle'))
        self.assertEqual({}, self.a.links)

    def test_without_its_key_nothing_is_created(self):
        del self.world.secrets.kept['key']
        self.assertRaises(exceptions.LocalCloneError, self.create, self.row())
        self.assertEqual(({}, {}), self.left())

    def test_what_was_given_out_is_never_formatted(self):
        """Nor removed: whatever asks twice, or asks late."""
        row = self.row()
        self.create(row)
        self.a.write(row.id, 2, 'data')
        before = list(self.a.lvs[row.name])
        row.status = 'available'
        self.assertRaises(exceptions.TooLate, self.create, row)
        self.world.settle()
        row.status = 'creating'
        self.assertRaises(exceptions.AlreadyThere, self.create, row)
        row.host = B + '#p'
        self.assertRaises(exceptions.TooLate, self.create, row)
        self.assertEqual(before, self.a.lvs[row.name])
        self.assertEqual(1, self.world.effects(A).count('format_luks1'))

    def test_its_key_is_asked_for_as_its_owner(self):
        row = self.row()
        keys = self.a.node.keys._inner
        with mock.patch.object(keys, 'owners_key',
                               wraps=keys.owners_key) as asked:
            self.create(row)
        asked.assert_called_once_with(row._context, 'key')

    def test_no_boot_gives_it_out_before_cinder_has_it(self):
        """From before it has a handle, let alone a header."""
        row = self.row()
        self.create(row)
        self.assertIn(names.UNCOMMITTED, self.a.disk.tags[row.name])
        self.assertNotIn('mark_uncommitted', self.world.effects(A))

    def test_what_can_not_be_removed_does_not_hide_why(self):
        with mock.patch.object(
                worlds.SimHandles, 'flush_handle',
                side_effect=exceptions.CommandFailed(
                    command='dmsetup', code=1, stderr='full')), \
                mock.patch.object(worlds.SimHandles, 'remove_handle',
                                  side_effect=OSError):
            self.assertRaises(exceptions.CommandFailed, self.create,
                              self.row())

    def test_nothing_is_left_whatever_fails(self):
        self.world.pool = 'pool'
        with mock.patch.object(worlds.SimHandles, 'flush_handle',
                               side_effect=OSError):
            self.assertRaises(OSError, self.create, self.row())
        self.assertEqual(({}, {}), self.left())

    def test_a_format_that_fails_leaves_nothing(self):
        self.world.pool = 'pool'
        self.a.node.crypt._inner.format_luks1 = mock.Mock(
            side_effect=exceptions.CommandTimeout(command='c', seconds=1))
        self.assertRaises(exceptions.CommandTimeout, self.create, self.row())
        self.assertEqual(({}, {}), self.left())

    def test_the_only_place(self):
        """Whoever adds another one has to say here why it is none."""
        found = [path.name for path in sorted(ROOT.rglob('*.py'))
                 for _call in range(path.read_text().count('format_luks1('))]
        self.assertEqual(['crypt.py', *['cryptsetup.py'] * 2,
                          'cryptsetup_keys.py', 'create.py'], found)
        self.assertEqual(1, (ROOT / 'volumes/create.py').read_text().count(
            'node.crypt.format_luks1('))
        for path in ROOT.rglob('*.py'):
            if "'luksFormat'" in path.read_text():
                self.assertEqual('cryptsetup_keys.py', path.name)

    def test_deleted_though_its_key_is_gone(self):
        row = self.row()
        self.create(row)
        row.status, self.world.secrets.kept = 'deleting', {}
        with mock.patch.object(delete, 'CLOSING', 0):
            callers.delete(self.a.node, row)
        self.assertEqual(({}, {}), self.left())

    def test_made_of_what_is_encrypted_alike(self):
        """A backup of what is in use is made of a clone that Cinder makes:
        it is of the same type, and has no key.
        """
        self.useFixture(fixtures.MockPatch(
            'cinder_localclone.driver.front_end.volume_types.is_encrypted',
            side_effect=lambda context, type_id: type_id == 'encrypted'))
        key, none, temporary = (
            types.SimpleNamespace(encryption_key_id=key, volume_type_id=of)
            for key, of in (('key', 'encrypted'), (None, 'plain'),
                            (None, 'encrypted')))
        for volume, image in ((key, key), (none, none), (temporary, key)):
            front_end.check_alike(volume, image, 'x')
        for volume, image in ((key, none), (none, key), (temporary, none)):
            self.assertRaises(exceptions.ForeignImage, front_end.check_alike,
                              volume, image, 'x')


class ImageTest(Case):

    def setUp(self):
        super().setUp()
        self.volume = self.row()
        self.create(self.volume)
        self.volume.status = 'downloading'
        crypt = self.a.node.crypt._inner
        crypt.open = self.open  # that of LUKS1

    def open(self, volume_id, key):
        self.assertEqual(b'61626364', key)
        self.a.devices[names.crypt(volume_id)] = {
            'below': names.handle(volume_id)}

    def copy(self, fetch):
        images.copy_image(self.a.reconciler, 'context', self.volume, 'i',
                          fetch)

    def test_above_a_device_of_the_drivers_own(self):
        def fetch(path):
            self.assertEqual(names.crypt_path(self.volume.id), path)
            self.assertIn(names.crypt(self.volume.id), self.a.devices)
            self.world.reconcile()  # nobody takes it away meanwhile
            self.assertIn(names.crypt(self.volume.id), self.a.devices)
        self.copy(fetch)
        self.assertEqual([names.handle(self.volume.id)],
                         list(self.a.devices))
        self.assertEqual('flush_handle', self.world.effects(A)[-1])

    def test_closed_if_it_fails(self):
        for error, raised in (
                (IOError, IOError),
                (processutils.ProcessExecutionError(
                    stderr='output file is smaller than input file'),
                 exception.ImageTooBig),
                (processutils.ProcessExecutionError(stderr='x'),
                 processutils.ProcessExecutionError)):
            self.assertRaises(raised, self.copy,
                              mock.Mock(side_effect=error))
            self.assertNotIn(names.crypt(self.volume.id), self.a.devices)

    def test_never_under_somebody_else(self):
        fetch = mock.Mock()
        self.a.opened.add(names.handle(self.volume.id))
        self.assertRaises(exceptions.SourceBusy, self.copy, fetch)
        fetch.assert_not_called()

    def test_a_new_volume_gets_no_other_key_by_cinder(self):
        class Driver(snapshots.ImageDriver, cinder_driver.VolumeDriver):
            pass
        attach = self.useFixture(fixtures.MockPatchObject(
            cinder_driver.VolumeDriver, '_attach_volume')).mock
        made = Driver.__new__(Driver)
        row = types.SimpleNamespace(status='creating',
                                    encryption_key_id='key')
        self.assertRaises(exception.RekeyNotSupported, made._attach_volume,
                          None, row, {})
        for status, key in (('downloading', 'key'), ('creating', None)):
            row.status, row.encryption_key_id = status, key
            made._attach_volume(None, row, {})
        self.assertEqual(2, attach.call_count)


@ddt.ddt
class PathTest(Case):
    """What is given out, to whom, and who is not served."""

    def setUp(self):
        super().setUp()
        self.volume = self.row(status='available')
        self.volume.status = 'creating'
        self.create(self.volume)
        self.guard = names.guard(self.volume.id)
        self.handle = names.handle(self.volume.id)

    def connect(self, status, host='a', attachments=(None,)):
        self.volume.status = status
        self.volume.volume_attachment = [
            ended_move_case.attachment(each) for each in attachments]
        found = self.a.connect(self.volume, {
            'host': host, 'initiator': 'i'})
        self.assertEqual('/dev/localclone/' + self.volume.id,
                         found['data']['device_path'])

    @ddt.data('reserved', 'attaching', 'in-use')
    def test_nova_gets_the_guard(self, status):
        self.connect(status)
        self.assertEqual({self.volume.id: self.guard}, self.a.links)
        self.assertIn('localclone.guarded=4096',
                      self.a.disk.tags[self.volume.name])
        worlds.Nova(self.a, self.volume.id).connect(unreadable=True)
        self.assertEqual(worlds.HEADER, self.a.lvs[self.volume.name][0])

    @ddt.data('downloading', 'backing-up', 'restoring-backup', 'uploading')
    def test_cinder_gets_the_handle(self, status):
        """It writes the header, too."""
        self.connect(status, attachments=())
        self.assertEqual({self.volume.id: self.handle}, self.a.links)
        self.a.disconnect(self.volume, {'host': 'a'})
        self.assertEqual({}, self.a.links)

    def test_cinder_reads_what_a_guest_uses(self):
        self.connect('in-use')
        self.a.opened.add(self.guard)
        self.connect('uploading', attachments=('a',))
        self.a.disconnect(self.volume, {'host': 'a'})
        self.assertEqual({self.volume.id: self.guard}, self.a.links)

    def test_turned_from_the_one_to_the_other(self):
        self.connect('downloading', attachments=())
        self.connect('reserved')
        self.assertEqual({self.volume.id: self.guard}, self.a.links)

    def test_a_header_that_cannot_be_read_is_not_nova_s_to_find(self):
        for value, error in (('garbage', encryption_exceptions.HeaderDamaged),
                             (IOError, exceptions.CommandFailed)):
            if isinstance(value, str):
                self.a.lvs[self.volume.name][0] = value
            else:
                self.a.read = mock.Mock(side_effect=value)
            self.assertRaises(error, self.connect, 'reserved')
            self.assertEqual({}, self.a.links)
            self.assertNotIn(self.guard, self.a.devices)

    def test_a_host_without_the_backend_is_not_exported(self):
        self.assertRaises(encryption_exceptions.NotThere, self.connect,
                          'reserved', 'x')
        self.assertEqual(set(), self.a.remote)

    def test_cinder_itself_is_exported_there(self):
        self.volume.status, self.volume.volume_attachment = 'backing-up', []
        found = self.a.connect(self.volume, {
            'host': 'x', 'initiator': 'i'})
        self.assertEqual('iscsi', found['driver_volume_type'])

    def test_detached(self):
        self.connect('reserved')
        self.volume.status = 'detaching'
        self.a.disconnect(self.volume, {'host': 'a'})
        self.assertEqual([self.handle], list(self.a.devices))
        self.assertEqual({}, self.a.links)
        self.assertNotIn('localclone.guarded=4096',
                         self.a.disk.tags[self.volume.name])

    def test_a_late_close_keeps_it_for_a_while(self):
        self.connect('reserved')
        self.a.opened.add(self.guard)
        with mock.patch('cinder_localclone.volumes.connect.CLOSING', -1):
            self.a.disconnect(self.volume, {'host': 'a'})
        self.assertIn(self.guard, self.a.devices)
        self.a.opened.clear()
        self.volume.status, self.volume.volume_attachment = 'available', []
        self.world.reconcile()
        self.assertEqual([self.handle], list(self.a.devices))
        self.assertEqual({}, self.a.links)

    def test_mended_by_the_look(self):
        self.connect('reserved', attachments=('a',))
        for broken in (lambda: self.a.links.clear(),
                       lambda: self.a.links.update({
                           self.volume.id: self.handle}),
                       lambda: (self.a.links.clear(), self.a.devices.pop(
                           self.guard))):
            broken()
            self.world.reconcile()
            self.assertEqual({self.volume.id: self.guard}, self.a.links)
            self.assertIn(self.guard, self.a.devices)

    def test_the_path_of_what_is_gone_is_removed(self):
        self.b.links[self.volume.id] = self.guard
        self.world.reconcile()
        self.assertEqual({}, self.b.links)

    def test_extended_under_a_guest(self):
        self.connect('reserved', attachments=('a',))
        self.a.opened.add(self.guard)
        worlds.extend(self.a, self.volume, 2)
        self.assertEqual(
            2 * GIB // 512, self.a.sim_handles.devices()[self.guard].sectors)
        self.volume.size = 2
        self.world.reconcile()
        self.assertTrue(self.a.sim_handles.survey().guarded_sectors(
            self.volume.id))

    def test_a_guest_that_looks_away_holds_nothing_up(self):
        """An idle guard is no user, and goes with the fence."""
        self.connect('reserved', attachments=('a',))
        self.assertEqual(0, devices.users(self.a.node, self.volume.id))
        with self.a.lock(self.volume.id):
            devices.ensure_closed(self.a.node, self.volume.id)
        self.assertEqual([self.handle], list(self.a.devices))
        self.assertEqual({}, self.a.links)
        # The attachment says that it is used here, nevertheless.
        self.world.reconcile()
        self.assertEqual({self.volume.id: self.guard}, self.a.links)

    def test_one_that_is_open_does(self):
        self.connect('reserved', attachments=('a',))
        self.a.opened.add(self.guard)
        self.assertEqual(1, devices.users(self.a.node, self.volume.id))
        with self.a.lock(self.volume.id):
            self.assertRaises(exceptions.SourceBusy, devices.ensure_closed,
                              self.a.node, self.volume.id)
        self.assertIn(self.guard, self.a.devices)
        self.assertEqual({self.volume.id: self.guard}, self.a.links)
        self.a.opened.add(self.handle)
        self.assertEqual(2, devices.users(self.a.node, self.volume.id))

    def test_a_busy_handle_keeps_the_path_of_an_idle_guard(self):
        self.connect('reserved', attachments=('a',))
        self.a.opened.add(self.handle)
        with self.a.lock(self.volume.id):
            self.assertRaises(exceptions.SourceBusy, devices.ensure_closed,
                              self.a.node, self.volume.id)
        self.assertIn(self.guard, self.a.devices)

    def test_clones_remove_nothing_that_is_used(self):
        self.connect('reserved', attachments=('a',))
        self.a.opened.add(self.guard)
        with self.a.lock(self.volume.id):
            uncommitted.remove(self.a.node, self.volume.id, self.volume.name)
        self.assertIn(self.volume.name, self.a.lvs)


class OsBrickTest(testtools.TestCase):
    """The real encryptor, as Nova builds it to detach, and more.

    What it asks of the path that it is given may only ever name what is its
    own: our names are those of devices.
    """

    V1 = '00000001-0000-4000-8000-000000000000'

    def setUp(self):
        super().setUp()
        self.ran = []
        self.mapped = self.useFixture(fixtures.MockPatch(
            'os.path.exists', side_effect=lambda path: path in (
                names.handle_path(self.V1), names.guard_path(self.V1),
                names.crypt_path(self.V1), names.link(self.V1)))).mock

    def execute(self, *argv, **kwargs):
        self.ran.append(argv)
        if 'status' in argv and argv[-1].startswith('localclone-'):
            return '', ''  # a device of device-mapper, whatever it is
        if 'status' in argv:
            raise processutils.ProcessExecutionError(exit_code=4)
        return '', ''

    def encryptor(self, path):
        keys = mock.Mock()
        keys.get.return_value.get_encoded.return_value = b'key'
        return luks.LuksEncryptor(
            'sudo', {'data': {'device_path': path, 'volume_id': self.V1}},
            keys, execute=self.execute, encryption_key_id='key')

    def ours(self):
        return [argv for argv in self.ran for word in argv
                if str(word).rpartition('/')[2] in (
                    names.handle(self.V1), names.guard(self.V1),
                    names.crypt(self.V1))]

    def test_our_devices_are_never_named(self):
        made = self.encryptor(names.link(self.V1))
        made.detach_volume()
        with mock.patch('os.path.realpath', side_effect=lambda path: path):
            made = self.encryptor(names.link(self.V1))
            made.attach_volume(None)
            made.detach_volume()
        self.assertTrue(any('luksClose' in argv for argv in self.ran))
        self.assertEqual([], self.ours())

    def test_they_would_be_by_another_path(self):
        """What this would look like if the path were the handle's."""
        self.encryptor(names.handle_path(self.V1)).detach_volume()
        self.assertTrue(any('luksClose' in argv and argv[-1] == names.handle(
            self.V1) for argv in self.ran))
