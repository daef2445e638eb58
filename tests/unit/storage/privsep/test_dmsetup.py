# SPDX-License-Identifier: Apache-2.0
"""What is asked of device-mapper, and in which order."""

import errno
import sys
import threading
from unittest import mock

import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core import names
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import while_suspended
from tests.helpers import commands
from tests.world import dm_kernel

TABLE = '0 8 linear 253:4 0'
H = 'localclone-00000001-0000-4000-8000-000000000000'
C = 'localclone-clone-00000002-0000-4000-8000-000000000000'


class SurveyTest(commands.Case):

    def setUp(self):
        super().setUp()
        self.kernel = self.useFixture(dm_kernel.Kernel())

    def test_strangers_are_not_shown(self):
        crypt = 'CRYPT-LUKS2-%s-luks' % (32 * 'a')
        self.kernel.add(H, '253:7', TABLE, opened=2)
        self.kernel.add('luks', '253:8', '0 8 crypt x :1 0 253:7 0',
                        uuid=crypt, suspended=True)
        for number, uuid in enumerate(('LVM-6ahSeYfolA67', 'mpath-x', '')):
            self.kernel.add('x%d' % number, uuid=uuid)
        self.assertEqual([
            (H, 'LOCALCLONE-' + H, '253:7', 2, False, TABLE),
            ('luks', crypt, '253:8', 0, True, '0 8 crypt x :1 0 253:7 0')],
            dmsetup.survey(30))
        self.assertRan()

    def test_some(self):
        for name in (H, C):
            self.kernel.add(name, table=TABLE)
        self.kernel.add('g-root', uuid='LVM-6ahSeYfolA67')
        self.assertEqual([H], [each[0] for each in dmsetup.survey(
            30, [H, 'g-root', 'x'])])
        self.assertNotIn('table ' + C, self.kernel.asked)

    def test_clones(self):
        self.kernel.add(C, status='0 8 clone Fail')
        self.kernel.add(C[:-1] + '9')  # it has no table yet
        self.kernel.add(H, status='0 8 linear')
        self.assertEqual({C: '0 8 clone Fail'},
                         dmsetup.clone_statuses(30))

    def test_clone(self):
        self.commands.answer('ioctl status', '0 8 clone Fail')
        self.assertEqual('0 8 clone Fail', dmsetup.status(C, 30))
        self.assertRan('ioctl status ' + C)


class SwapTableTest(commands.Case):
    """A handle under a guest is never left suspended."""

    def swap(self):
        dmsetup.swap_table(H, TABLE, 30)

    def test_load_and_resume(self):
        self.swap()
        self.assertRan("dmsetup load %s --table '%s'" % (H, TABLE),
                       'dmsetup resume ' + H)

    def test_a_table_that_is_refused_changes_nothing(self):
        self.commands.answer('dmsetup load', code=1, err='too small')
        self.assertRaises(exceptions.CommandFailed, self.swap)
        self.assertRan("dmsetup load %s --table '%s'" % (H, TABLE))

    def undone(self):
        self.assertRan(
            "dmsetup load %s --table '%s'" % (H, TABLE), 'dmsetup resume ' + H,
            'dmsetup clear ' + H, 'dmsetup resume ' + H)

    def test_back_on_the_old_table(self):
        self.commands.answer('dmsetup resume', code=1, err='new', times=1)
        error = self.assertRaises(exceptions.CommandFailed, self.swap)
        self.assertIn('new', str(error))
        self.undone()

    def test_back_although_the_new_one_hangs(self):
        self.commands.hang('dmsetup resume')
        self.assertRaises(exceptions.CommandTimeout, self.swap)
        self.undone()

    def test_the_first_failure_is_the_one_to_hear(self):
        self.commands.answer('dmsetup load')
        self.commands.answer('dmsetup resume', code=1, err='new', times=1)
        self.commands.answer('dmsetup', code=1, err='old')
        error = self.assertRaises(exceptions.CommandFailed, self.swap)
        self.assertIn('new', str(error))
        self.undone()


class DiskTest(commands.Case):
    """The number in a table is compared once the kernel holds the disk."""

    DISK = '8:16', 'the volume'

    def setUp(self):
        super().setUp()
        self.serial = self.useFixture(fixtures.MockPatchObject(
            dmsetup.block, 'serial', autospec=True,
            side_effect=self.look)).mock
        self.found = 'the volume'

    def look(self, number):
        self.commands.ran.append('look at ' + number)
        return self.found

    def acts(self):
        loaded = "dmsetup load %s --table '%s'"
        return (
            (lambda: dmsetup.create(
                H, 'LOCALCLONE-' + H, TABLE, 30, False, self.DISK),
             ["dmsetup create %s --uuid LOCALCLONE-%s --table '%s'" % (
                 H, H, TABLE)], [], ['dmsetup remove --retry ' + H]),
            (lambda: dmsetup.swap_table(H, TABLE, 30, self.DISK),
             [loaded % (H, TABLE)], ['dmsetup resume ' + H],
             ['dmsetup clear ' + H]),
            (lambda: dmsetup.replace_suspended(
                C, TABLE, 30, False, self.DISK),
             ['dmsetup clear ' + C, 'dmsetup suspend ' + C,
              loaded % (C, TABLE)], ['dmsetup resume ' + C],
             ['dmsetup clear ' + C, 'dmsetup resume ' + C]))

    def test_it_is_the_one(self):
        for act, loaded, used, _dropped in self.acts():
            del self.commands.ran[:]
            act()
            self.assertEqual([*loaded, 'look at 8:16', *used],
                             self.commands.ran)

    def test_it_is_another_by_now(self):
        """Nothing is read of it, and nothing written."""
        for self.found in ('another', ''):
            for act, loaded, _used, dropped in self.acts():
                del self.commands.ran[:]
                self.assertRaises(exceptions.WrongDevice, act)
                self.assertEqual([*loaded, 'look at 8:16', *dropped],
                                 self.commands.ran)


class ReplaceSuspendedTest(commands.Case):
    """The kernel copies a clone's bitmap at load: a live one goes stale."""

    LINES = ('dmsetup clear ' + C, 'dmsetup suspend ' + C,
             "dmsetup load %s --table '%s'" % (C, TABLE),
             'dmsetup resume ' + C)

    def replace(self):
        dmsetup.replace_suspended(C, TABLE, 30)

    def test_suspended_while_loaded(self):
        self.replace()
        self.assertRan(*self.LINES)

    def test_in_use(self):
        """What it could not record would vanish under a guest, unsaid."""
        look = 'ioctl status ' + C
        for status, lines in (
                ('0 8 clone 8 1/9 128 0/9 0 0 0 rw', self.LINES[2:]),
                ('0 8 clone 8 1/9 128 0/9 0 0 0 ro', self.LINES[3:]),
                ('0 8 clone Fail', self.LINES[3:]),
                ('0 8 clone Error', self.LINES[3:])):
            del self.commands.ran[:]
            self.commands.answer(look, status + '\n', times=1)
            dmsetup.replace_suspended(C, TABLE, 30, True)
            self.assertEqual([*self.LINES[:2], look, *lines],
                             self.commands.ran)

    def test_resumed_whatever_fails(self):
        self.commands.answer('dmsetup load', code=1, err='why')
        error = self.assertRaises(exceptions.CommandFailed, self.replace)
        self.assertIn('why', str(error))
        self.assertRan(*self.LINES)

    def test_resumed_whatever_hangs(self):
        self.commands.hang('dmsetup load')
        self.assertRaises(exceptions.CommandTimeout, self.replace)
        self.assertRan(*self.LINES)

    def test_not_loaded_if_it_cannot_be_suspended(self):
        self.commands.answer('dmsetup suspend', code=1)
        self.assertRaises(exceptions.CommandFailed, self.replace)
        self.assertRan(*self.LINES[:2])

    def test_not_suspended_if_it_cannot_be_cleared(self):
        self.commands.answer('dmsetup clear', code=1)
        self.assertRaises(exceptions.CommandFailed, self.replace)
        self.assertRan(self.LINES[0])


class PathTest(commands.Case):
    """The path of a handle leads to the handle, whoever has turned it."""

    def setUp(self):
        super().setUp()
        self.mapped = self.useFixture(fixtures.MockPatchObject(
            dmsetup.sysfs, 'mapped_name')).mock
        self.device = self.useFixture(fixtures.MockPatchObject(
            dmsetup.sysfs, 'mapped_device', return_value='dm-7')).mock
        self.os = self.useFixture(fixtures.MockPatchObject(
            dmsetup, 'os')).mock

    def test_right(self):
        self.mapped.return_value = H
        self.assertFalse(dmsetup.ensure_devnode(H))
        self.mapped.assert_called_once_with('/dev/mapper/' + H)
        self.assertEqual([], self.os.mock_calls)

    def test_turned_elsewhere_or_dangling(self):
        for found in ('crypt-x', ''):
            self.mapped.return_value = found
            self.os.reset_mock()
            self.assertTrue(dmsetup.ensure_devnode(H))
            new = '/dev/mapper/.%s.new' % H
            self.assertEqual([
                mock.call.unlink(new), mock.call.symlink('../dm-7', new),
                mock.call.rename(new, '/dev/mapper/' + H)],
                self.os.mock_calls)
            self.os.unlink.side_effect = FileNotFoundError

    def test_no_such_device(self):
        self.mapped.return_value = self.device.return_value = ''
        self.assertRaises(exceptions.WrongDevice, dmsetup.ensure_devnode, H)
        self.assertEqual([], self.os.mock_calls)


class CommandsTest(commands.Case):

    def test_create(self):
        dmsetup.create(H, 'LOCALCLONE-' + H, TABLE, 30)
        self.assertRan(
            "dmsetup create %s --uuid LOCALCLONE-%s --table '%s'" % (
                H, H, TABLE))

    def test_remove(self):
        self.assertTrue(dmsetup.remove(H, 30))
        self.assertRan('dmsetup remove --retry ' + H)

    def test_what_is_gone_is_removed(self):
        self.commands.answer('dmsetup remove', code=1,
                             err='Device h not found: No such device')
        self.assertFalse(dmsetup.remove(H, 30))

    def test_what_is_in_use_is_not_removed(self):
        self.commands.answer('dmsetup remove', code=1,
                             err='Device or resource busy')
        self.assertRaises(exceptions.CommandFailed, dmsetup.remove,
                          H, 30)

    def test_message(self):
        dmsetup.message(C, 'hydration_threshold 32', 30)
        self.assertRan('dmsetup message %s 0 hydration_threshold 32' % C)

    def test_targets_without_modules(self):
        # They may be built in.
        self.commands.answer('modprobe', code=1, times=1)
        self.commands.answer('dmsetup targets', 'clone v1.0.0')
        self.assertEqual('clone v1.0.0', dmsetup.targets(30))
        self.assertRan('modprobe -q dm-clone', 'modprobe -q dm-thin-pool',
                       'modprobe -q dm-crypt', 'modprobe -q dm-flakey',
                       'dmsetup targets')


class SwapFlushedTest(commands.Case):
    """What a guest has flushed stays so when its body is another."""

    SWAP = '%s -I -S %s swap %s /dev/sdb 5' % (
        sys.executable, while_suspended.__file__, H)
    LOOK = 'dmsetup info -c --noheadings -o attr ' + H

    def swap(self, disk='/dev/sdb'):
        dmsetup.swap_flushed(H, TABLE, disk, 30)

    def test_one_process_while_a_guest_waits(self):
        self.swap()
        self.assertEqual(['sync /dev/sdb', self.SWAP], self.commands.ran)
        self.assertEqual([30, 10], self.commands.limits)
        self.assertEqual([None, TABLE.encode()], self.commands.inputs)

    def test_without_a_disk_to_flush(self):
        self.swap('')
        self.assertEqual([self.SWAP.replace('/dev/sdb', "''")],
                         self.commands.ran)

    def test_a_disk_that_does_not_answer_suspends_nothing(self):
        self.commands.answer('sync', code=1, err='I/O error')
        self.assertRaises(exceptions.CommandFailed, self.swap)
        self.assertEqual(['sync /dev/sdb'], self.commands.ran)

    def test_what_has_ended_has_resumed_it(self):
        self.commands.answer(sys.executable, code=1, err='OSError')
        self.commands.answer('dmsetup info', 'L--w\n')
        self.assertRaises(exceptions.CommandFailed, self.swap)
        self.assertEqual(['sync /dev/sdb', self.SWAP, self.LOOK],
                         self.commands.ran)

    def test_what_was_killed_has_not(self):
        """Its table was loaded or not: the old one is as right."""
        self.commands.hang(sys.executable)
        self.commands.answer('dmsetup info', 'L-sw\n')
        self.assertRaises(exceptions.CommandTimeout, self.swap)
        self.assertEqual(
            ['sync /dev/sdb', self.SWAP, self.LOOK, 'dmsetup clear ' + H,
             'dmsetup resume ' + H], self.commands.ran)


class ForeignTest(commands.Case):

    def test_nothing_but_the_drivers_own(self):
        """LVM's devices, and others', are nobody's business here."""
        for name in ('g-root', 'localclone-x', H + 'x', 'x' + H, '', H + '\n'):
            for act, more in ((dmsetup.create,
                               ('LOCALCLONE-' + name, TABLE)),
                              (dmsetup.swap_table, (TABLE,)),
                              (dmsetup.replace_suspended, (TABLE,)),
                              (dmsetup.swap_flushed, (TABLE, '')),
                              (dmsetup.message, ('x',)),
                              (dmsetup.remove, ())):
                self.assertRaises(exceptions.Foreign, act, name, *more, 30)
            self.assertRaises(exceptions.Foreign, dmsetup.ensure_devnode,
                              name)
        self.assertRaises(exceptions.Foreign, dmsetup.create, H, 'x',
                          TABLE, 30)
        self.assertEqual([], self.commands.ran)

    def test_all_of_the_drivers_own(self):
        for name in (names.handle, names.clone, names.absent_source):
            own = name('00000001-0000-4000-8000-000000000000')
            dmsetup.create(own, names.device_uuid(own), TABLE, 30)
        self.assertEqual(3, len(self.commands.ran))


class SendTest(commands.Case):

    def test_messages_without_a_process(self):
        open_ = self.useFixture(fixtures.MockPatch(
            'builtins.open', mock.mock_open())).mock
        sent = []

        def ioctl(control, request, data):
            self.assertIs(open_.return_value, control)
            sent.append((request, bytes(data)))
            if C.encode() in data:
                raise OSError(errno.ENXIO, 'No such device or address')
        self.useFixture(fixtures.MockPatchObject(
            dmsetup.fcntl, 'ioctl', ioctl))
        self.assertEqual([C], dmsetup.send(
            [(C, 'x 1'), (H, 'x 2')], 30))
        open_.assert_called_once_with('/dev/mapper/control', 'r+b',
                                      buffering=0)
        self.assertEqual([
            (dm_ioctl.TARGET_MSG, dm_ioctl.message(C, 'x 1')),
            (dm_ioctl.TARGET_MSG, dm_ioctl.message(H, 'x 2'))], sent)
        open_.return_value.__exit__.assert_called_once()
        self.assertEqual([], self.commands.ran)
        del sent[:]
        self.assertRaises(exceptions.Foreign, dmsetup.send,
                          [(H, 'x 1'), ('g-root', 'x 1')], 30)
        self.assertEqual([], sent)

    def test_a_kernel_that_does_not_answer(self):
        """The loop that paces all copies of the node would end with it."""
        hangs = threading.Event()
        self.addCleanup(hangs.set)
        self.useFixture(fixtures.MockPatch('builtins.open', mock.mock_open()))
        self.useFixture(fixtures.MockPatchObject(
            dmsetup.fcntl, 'ioctl', lambda *_all: hangs.wait(60)))
        error = self.assertRaises(exceptions.CommandTimeout,
                                  dmsetup.send, [(C, 'x 1')], 0.1)
        self.assertIn('0.1 s', str(error))


class LateTableTest(commands.Case):

    def setUp(self):
        super().setUp()
        #: What is loaded for the next resume; what resumes have taken.
        self.loaded, self.taken = ['late'], []
        answer = self.commands._answer

        def kernel(line):
            found = answer(line)
            what = line.split()[1]
            if what in ('clear', 'resume'):
                self.taken += self.loaded if what == 'resume' else []
                self.loaded = []
            elif what == 'load' and not found[1]:
                self.loaded = ['new']
            return found
        self.commands._answer = kernel

    def test_a_clone_that_has_failed(self):
        """What its guest has written vanishes, and nobody is told.

        1. A clone's source has come back under another number; the disk of
           its metadata hangs. "dmsetup load" is given up at its time limit,
           the clone resumed on its old table, and written.
        2. The disk answers again: what was asked for goes on in the kernel,
           and the table stays loaded beside the one in use. It knows what
           was local when it was loaded, not what is by now.
        3. The disk fails for good, and the clone with it. The next look
           suspends it, sees that, loads nothing and resumes it: that takes
           the table of 1, which works, and shows the source's bytes where
           the guest has written since.

        By design: what is loaded is cleared before the clone is suspended.
        """
        for status in '0 8 clone Fail', '0 8 clone 8 1/9 128 0/9 0 0 0 ro':
            self.loaded = ['late']
            self.commands.answer('ioctl status', status, times=1)
            dmsetup.replace_suspended(C, TABLE, 30, True)
            self.assertEqual([], self.taken)

    def test_a_new_table_that_is_refused(self):
        """The same with 3: the new table can't be loaded."""
        self.commands.answer('dmsetup load', code=1, err='no such device')
        self.assertRaises(
            exceptions.CommandFailed, dmsetup.replace_suspended, C,
            TABLE, 30)
        self.assertEqual([], self.taken)

    def test_the_new_one_is_taken(self):
        dmsetup.replace_suspended(C, TABLE, 30)
        self.assertEqual(['new'], self.taken)


class ResumeRefusedTest(commands.Case):

    def test_back_on_the_old_table(self):
        """A guest hangs for good.

        1. A clone's source has come back under another number: suspended,
           loaded, resumed.
        2. The kernel takes the table at load, but not at resume: it reaches
           beyond the end of what it is on, or the limits of the devices
           below do not fit. It then drops that table, and leaves the device
           suspended (measured: facts on extending, EINVAL).

        Each later look does the same again, so all I/O of the guest waits
        for ever, though the old table is there and works.

        By design: as :func:`.dmsetup.swap_table` has it: what is
        loaded is cleared, and the device resumed on its old table. What was
        written is flushed by then, so that is as right as the new one.
        """
        self.commands.answer('dmsetup resume', code=1, err='EINVAL', times=1)
        error = self.assertRaises(
            exceptions.CommandFailed, dmsetup.replace_suspended, C,
            TABLE, 30)
        self.assertIn('EINVAL', str(error))
        self.assertEqual(
            ['dmsetup resume ' + C, 'dmsetup clear ' + C,
             'dmsetup resume ' + C], self.commands.ran[-3:])
