# SPDX-License-Identifier: Apache-2.0
"""Tops, paths and what is above them, when things come in an odd order."""

from unittest import mock

from cinder.volume import volume_types
import ddt
import fixtures
import testtools

from cinder_localclone.cmd import checks
from cinder_localclone.cmd import doctor
from cinder_localclone import cryptsetup
from cinder_localclone.dm import tables
from cinder_localclone import encryption_errors
from cinder_localclone import exceptions
from cinder_localclone import front_end
from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone.privileged import crypt
from cinder_localclone.privileged import process
from cinder_localclone.privileged import secrets
from cinder_localclone import restore
from cinder_localclone import survey
from cinder_localclone import tops
from cinder_localclone import unlocking
from tests.unit import commands
from tests.unit import test_front_end
from tests.unit import test_remains
from tests.unit import test_stack
from tests.unit import world as worlds

ON_A = {'host': 'a', 'initiator': 'i'}
VOLUME = '%08d-0000-4000-8000-%012d' % (1, 0)


class Case(test_front_end.Case):
    """A volume that Nova encrypts, at rest at A."""

    def setUp(self):
        super().setUp()
        self.volume = self.row()
        self.create(self.volume)
        self.guard = names.guard(self.volume.id)
        self.handle = names.handle(self.volume.id)
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.connections.CLOSING', -1))

    def attach(self, status, *hosts):
        self.volume.status = status
        self.volume.volume_attachment = [
            test_remains.attachment(each) for each in hosts]

    def serve(self, connector=None):
        return self.a.connections.serve(
            None, self.volume.id, connector or ON_A)

    def unserve(self):
        self.a.connections.unserve(None, self.volume.id, ON_A)


@ddt.ddt
class CinderTest(Case):

    @ddt.data('downloading', 'restoring-backup')
    def test_who_writes_the_header_is_led_past_an_idle_guard(self, status):
        """A guard that is left makes nothing of what Cinder writes.

        Attached at home; the detach closes the guard; the service is started
        anew before Cinder has deleted the attachment, and its look makes the
        guard again; now an encrypted image, or a backup, is written to the
        volume. Its header would go nowhere, with success: new data behind
        the old key.
        """
        self.attach('in-use', 'a')
        self.serve()
        self.attach('detaching', 'a')
        self.unserve()
        self.a.node.detached.clear()
        self.world.reconcile()
        self.assertIn(self.guard, self.a.devices)
        self.attach(status)
        self.serve()
        self.assertEqual({self.volume.id: self.handle}, self.a.links)
        worlds.Nova(self.a, self.volume.id).write(0, 'header of the image')
        self.assertEqual('header of the image',
                         self.a.lvs[self.volume.name][0])

    def test_who_writes_the_header_waits_for_a_late_close(self):
        """The same with a guard that is open still: refused, not lost."""
        self.attach('in-use', 'a')
        self.serve()
        self.a.opened.add(self.guard)
        self.attach('restoring-backup')
        self.assertRaises(exceptions.SourceBusy, self.serve)

    def test_what_cinder_is_served_keeps_no_guest_from_it(self):
        """A backup is made on another host; its detach is lost, and an
        instance attaches the volume at home: the kernel gives the handle to
        the iSCSI target or to the guard, not to both.
        """
        self.attach('backing-up')
        self.serve({'host': 'x', 'initiator': 'iqn.x'})
        self.attach('attaching')
        self.serve()
        self.assertIn(self.guard, self.a.devices)
        self.assertEqual([], self.world.wrongs)

    def test_the_look_leaves_cinder_its_path_while_it_migrates(self):
        """Cinder's own migration reads an available volume.

        The volume is available all the time (nobody asked to lock it), and
        has no attachment: a look between the answer to Cinder and its open
        would take the path away.
        """
        self.attach('available')
        self.volume.migration_status = 'migrating'
        self.serve()
        self.world.reconcile()
        self.assertEqual({self.volume.id: self.handle}, self.a.links)

    def test_the_look_leaves_a_guest_its_path_that_has_no_attachment_yet(
            self):
        """reserve, initialize_connection, look, open, attach.

        Whoever does not use Cinder's attachments (Ironic, os-brick's client)
        has none until it has opened the volume.
        """
        self.attach('attaching')
        self.serve()
        self.world.reconcile()
        self.assertEqual({self.volume.id: self.guard}, self.a.links)
        self.assertIn(self.guard, self.a.devices)

    def test_what_a_dead_service_had_decrypted_is_closed(self):
        """It was killed while it wrote an image to a new volume.

        When it starts again, Cinder says "error". Nothing closed the device
        that shows what the volume has in plain text, until somebody deletes
        the volume.
        """
        crypt_device = names.crypt(self.volume.id)
        self.attach('downloading')
        self.a.devices[crypt_device] = {'below': self.handle}
        self.world.reconcile()
        self.assertIn(crypt_device, self.a.devices)
        self.a.stop(power=False)
        self.attach('error')
        self.a.opened.add(crypt_device)  # by what the service had started
        self.world.reconcile()
        self.assertIn(crypt_device, self.a.devices)
        self.a.opened.clear()
        self.world.reconcile()
        self.assertEqual([self.handle], list(self.a.devices))


class MoveTest(Case):

    def test_trouble_with_the_path_does_not_stop_the_copy(self):
        """Attached at B, where /dev/localclone can't be written any more.

        The volume is copied, and its source goes, nevertheless.
        """
        self.attach('reserved', None)
        self.serve({'host': 'b', 'initiator': 'i'})
        self.attach('in-use', 'b')
        self.b.links.clear()
        self.b.sim_stack._inner.ensure_link = mock.Mock(
            side_effect=OSError(30, 'Read-only file system'))
        self.world.settle()
        self.assertEqual({}, self.world.shadows)
        self.assertEqual({}, self.a.lvs)


class PlainTest(testtools.TestCase):
    """A node of which nobody asks encryption: updated, without cryptsetup."""

    NONE = FileNotFoundError(2, 'No such file or directory', 'cryptsetup')

    def test_doctor_misses_no_cryptsetup(self):
        """It is said, but "doctor" does not end with 1 on each such node."""
        for name, value in (
                ('process.run', mock.Mock(side_effect=self.run_)),
                ('devicemapper.targets', mock.Mock(
                    return_value='clone v1\nthin-pool v1\n')),
                ('configfs.hanging', mock.Mock(return_value=[]))):
            self.useFixture(fixtures.MonkeyPatch(
                'cinder_localclone.privileged.' + name, value))
        self.useFixture(fixtures.MockPatchObject(
            doctor.shutil, 'which', side_effect=lambda name: (
                None if name == 'cryptsetup' else '/sbin/' + name)))
        found = {each.check: each.verdict for each in doctor.node_checks(None)}
        self.assertEqual([checks.OK, checks.WARN],
                         [found['commands'], found['cryptsetup']])

    def run_(self, *argv, **_limit):
        if argv[0] == 'cryptsetup':
            raise self.NONE
        return 'use_devicesfile=1'

    def passed(self, header_sectors):
        """What a boot makes of a plain volume that is passed through."""
        stack, sessions = mock.Mock(), mock.Mock()
        stack.survey.return_value = survey.Survey({}, {})
        stack.header_sectors.side_effect = header_sectors
        sessions.recorded_passes.return_value = {VOLUME: 'iqn.x:pass'}
        (_local, problem), = restore.restore(stack, sessions)
        return stack, problem

    def test_boot_without_cryptsetup(self):
        """The handle is made; "restore" ended with 1, its unit failed."""
        _stack, problem = self.passed(self.NONE)
        self.assertEqual('', problem)

    def unlock(self):
        stack = mock.Mock()
        stack.survey.return_value = survey.Survey({}, {
            names.handle(VOLUME): mock.Mock()})
        crypt_ = cryptsetup.Cryptsetup('g', 1)
        return unlocking.unlock(
            stack, unlocking.noted_of(crypt_, [VOLUME]), crypt_, mock.Mock(),
            5)

    def test_unlock_without_cryptsetup(self):
        """A traceback for each plain volume that is passed through."""
        self.useFixture(commands.Commands())
        self.useFixture(fixtures.MockPatchObject(
            process, 'run', side_effect=self.run_))
        self.assertEqual([], self.unlock())

    def test_unlock_what_begins_with_a_header_of_luks1(self):
        """Nova's, or that of a guest which encrypts a plain volume.

        It was called locked, and so "unlock" ended with 1.
        """
        self.useFixture(commands.Commands()).answer(
            'cryptsetup luksDump', code=1, err='Dump operation is not '
            'supported for this device type.')
        self.assertEqual([], self.unlock())


class HeaderTest(testtools.TestCase):

    def test_nothing_that_names_an_open_device_writes_its_header(self):
        """A live move is rolled back: the destination closes the volume.

        cryptsetup mends a damaged copy of the header it finds by the
        device's name, so a region of the clone is written; the roll-back
        is refused then, and the volume is stuck between two nodes.
        """
        found = self.useFixture(commands.Commands())
        name = names.crypt(VOLUME)
        crypt.close(name, 1)
        secrets.resize(name, b'k', 1)
        secrets.refresh(name, b'k', 1)
        self.assertEqual(3, len(found.ran))
        for line in found.ran:
            self.assertIn('--disable-locks', line)


class DetachedTest(Case):

    def test_a_look_before_cinder_has_deleted_the_attachment(self):
        """The top was opened again, and stayed until the next look.

        Cinder asks the driver to end a connection, and then deletes its
        attachment: a look in between found it.
        """
        self.attach('in-use', 'a')
        self.serve()
        self.volume.status = 'detaching'
        self.unserve()
        self.a.reconciler.converge(self.volume.id)
        self.assertNotIn(self.guard, self.a.devices)
        # One that has come since is another.
        self.attach('in-use', 'a')
        self.a.reconciler.converge(self.volume.id)
        self.assertIn(self.guard, self.a.devices)

    def test_an_attachment_that_was_not_deleted_counts_again(self):
        clock = self.useFixture(fixtures.MockPatchObject(
            tops.time, 'monotonic', return_value=1000)).mock
        self.attach('in-use', 'a')
        self.unserve()
        for later, found in ((59, False), (60, True)):
            clock.return_value = 1000 + later
            self.a.reconciler.converge(self.volume.id)
            self.assertEqual(found, self.guard in self.a.devices)
        tops.note_detached(self.a.node, self.volume)
        self.attach('in-use', 'a')
        clock.return_value = 1200
        tops.note_detached(self.a.node, self.volume)
        self.assertEqual([1200], list(self.a.node.detached.values()))


class RestoreTest(testtools.TestCase):

    def test_a_restore_that_was_cut_short_is_brought_to_its_end(self):
        """Killed (by systemd's limit) after the handle, before the guard.

        Whoever ran it again heard that all was well, and the guest had no
        path.
        """
        lv = reports.LogicalVolume(
            'g', 'volume-' + VOLUME, 1 << 30, '253:1',
            frozenset(names.tags(volume=VOLUME, guarded=4096)))
        stack, sessions = mock.Mock(), mock.Mock()
        sessions.recorded_passes.return_value = {}
        stack.survey.return_value = survey.Survey({lv.name: lv}, {
            names.handle(VOLUME): tables.Device(
                names.handle(VOLUME), 'u', '253:2', 0, False,
                '0 2097152 linear 253:1 0')})
        (_local, problem), = restore.restore(stack, sessions)
        self.assertEqual('', problem)
        stack.ensure_handle_on_lv.assert_not_called()
        stack.ensure_guard.assert_called_once_with(VOLUME, 4096)
        stack.ensure_link.assert_called_once_with(VOLUME, names.guard(VOLUME))


@ddt.ddt
class StackTest(test_stack.Case):

    @ddt.data(0, 1 << 31)
    def test_no_guard_by_what_a_guest_has_written(self, sectors):
        """A plain volume that is passed through, with a header on its disk.

        The guest's own, which says that its data begin far beyond its end:
        a boot tried to make a guard above that, "restore" said that the
        volume was left, and ended with 1.
        """
        self.ran.crypt.payload_sectors.return_value = sectors
        self.assertRaises(encryption_errors.HeaderDamaged,
                          self.stack.header_sectors, VOLUME)


@ddt.ddt
class RetypeTest(Case):

    @ddt.data((True, True), (False, False), (None, False))
    @ddt.unpack
    def test_cinder_copies_nothing_through_encryptors(self, changed, refused):
        """Retyped from one encrypted type to another one.

        Cinder would read the volume through os-brick's encryptor, by the
        path that leads past the guard; and that formats what it can't read
        just then: the volume itself, of which there was no copy yet.

        :param changed: None: of the same type, by a migration
        """
        copy = self.row(status='creating')
        for row, kind in ((self.volume, 'one'), (copy, 'another')):
            row.volume_type_id = 'one' if changed is None else kind
        asked = self.useFixture(fixtures.MockPatchObject(
            volume_types, 'volume_types_encryption_changed',
            return_value=bool(changed))).mock
        self.useFixture(fixtures.MockPatchObject(
            volume_types, 'is_encrypted', return_value=True))
        if refused:
            self.assertRaises(
                encryption_errors.EncryptionChange, front_end.check_copy,
                self.a.node, copy, self.volume.id)
        else:
            front_end.check_copy(self.a.node, copy, self.volume.id)
        self.assertEqual((self.volume.volume_type_id, copy.volume_type_id),
                         asked.call_args.args[1:])
