# SPDX-License-Identifier: Apache-2.0
"""What is run for guards, and in which order."""

from unittest import mock

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.storage import handles
from tests.helpers import storage_case

V1, device = storage_case.V1, storage_case.device
GUARD, HANDLE = names.guard(V1), names.handle(V1)
TABLE = str(dm_tables.Guard('253:7', 4096, 2097152))


class GuardTest(storage_case.Case):

    def present(self, *more, sectors=2097152, number='253:7'):
        self.devices(device(HANDLE, number, '0 %d linear 253:5 0' % sectors,
                            1), *more)

    def test_created(self):
        self.present()
        self.assertTrue(self.handles.ensure_guard(V1, 4096))
        self.assertRan(mock.call.dmsetup.create(
            GUARD, 'LOCALCLONE-' + GUARD, TABLE, 30))

    def test_left_alone(self):
        self.present(device(GUARD, '253:9', TABLE, 1))
        self.assertFalse(self.handles.ensure_guard(V1, 4096))
        self.assertRan()
        self.ran.dmsetup.ensure_devnode.assert_called_once_with(GUARD)

    def test_given_another_table_while_in_use(self):
        longer = str(dm_tables.Guard('253:7', 4096, 2 * 2097152))
        for table, suspended in (
                (TABLE, False), (longer, True), ('', False),
                (longer.replace('drop_writes', 'error_writes'), False),
                (longer.replace('253:7', '253:8'), False)):
            self.ran.reset_mock()
            self.present(device(GUARD, '253:9', table, 1, suspended),
                         sectors=2 * 2097152)
            self.assertTrue(self.handles.ensure_guard(V1, 4096))
            self.assertRan(mock.call.dmsetup.swap_table(
                GUARD, longer, 30))

    def test_never_above_nothing(self):
        self.devices()
        self.assertRaises(exceptions.MissingData, self.handles.ensure_guard,
                          V1, 4096)
        self.assertRan()

    def test_header_is_read_by_a_path_that_leads_to_the_handle(self):
        self.ran.cryptsetup.payload_sectors.return_value = 4096
        self.assertEqual(4096, self.handles.header_sectors(V1))
        self.assertEqual([
            mock.call.dmsetup.ensure_devnode(HANDLE),
            mock.call.cryptsetup.payload_sectors('/dev/mapper/' + HANDLE, 30)],
            self.ran.mock_calls)

    def test_header_that_no_guard_can_keep(self):
        most = 32 << 20 >> 9
        for found in (1, most):
            self.ran.cryptsetup.payload_sectors.return_value = found
            self.assertEqual(found, self.handles.header_sectors(V1))
        for found in (0, most + 1):
            self.ran.cryptsetup.payload_sectors.return_value = found
            self.assertRaises(encryption_exceptions.HeaderDamaged,
                              self.handles.header_sectors, V1)

    def test_all_of_the_header_is_read(self):
        self.handles.read_guarded(V1, 4096)
        self.assertRan(mock.call.block.read_head(
            '/dev/mapper/' + GUARD, 2 << 20, 30))

    def test_closed_before_its_path_goes(self):
        self.present(device(GUARD, '253:9', TABLE))
        self.assertTrue(self.handles.close_upper(V1))
        self.assertRan(mock.call.dmsetup.remove(GUARD, 30),
                       mock.call.links.remove(V1))

    def test_one_in_use_keeps_its_path(self):
        self.present(device(GUARD, '253:9', TABLE, 1))
        self.ran.dmsetup.remove.side_effect = storage_case.FAILED
        self.assertRaises(exceptions.CommandFailed, self.handles.remove_handle,
                          V1)
        self.assertRan(mock.call.dmsetup.remove(GUARD, 30))

    def test_what_decrypts_goes_by_cryptsetup(self):
        self.present(device(names.crypt(V1), '253:9', ''))
        self.handles.close_upper(V1)
        self.assertRan(mock.call.cryptsetup.close(names.crypt(V1), 30),
                       mock.call.links.remove(V1))

    def test_tags_of_an_authenticated_volume_go_last(self):
        integrity = device(names.integrity(V1), '253:8', '')
        for crypt, closed in (
                ([], []), ([device(names.crypt(V1), '253:9', '')], [
                    mock.call.cryptsetup.close(names.crypt(V1), 30)])):
            self.ran.reset_mock()
            self.present(integrity, *crypt)
            self.assertTrue(self.handles.close_upper(V1))
            self.assertRan(
                *closed, mock.call.cryptsetup.remove_integrity(
                    names.integrity(V1), 30), mock.call.links.remove(V1))

    def test_what_is_above_a_handle_has_read_it_too(self):
        self.present(device(GUARD, '253:9', TABLE))
        with mock.patch.object(handles.refill, 'forget_read') as forget:
            self.handles.forget_read(V1)
        forget.assert_called_once_with([HANDLE, GUARD], 30)

    def test_tags(self):
        self.lvm.mark('v', names.guard_tag(4096))
        self.lvm.unmark('v', names.guard_tag(4096))
        self.assertRan(
            mock.call.lvm.add_tag('g', 'v', 'localclone.guarded=4096', 30),
            mock.call.lvm.remove_tag('g', 'v', 'localclone.guarded=4096', 30))

    def test_whether_the_kernel_has_it(self):
        for text, expected in (('flakey           v1.5.0\n', True),
                               ('clone v1.0.0\n', False), ('', False)):
            self.ran.dmsetup.targets.return_value = text
            self.assertIs(expected, self.handles.can_guard())


class UsersTest(storage_case.Case):
    """Who uses a volume whose handle has something above it."""

    def users(self, opened, *upper_devices):
        self.lvs()
        self.devices(device(HANDLE, '253:7', '0 2097152 linear 253:5 0',
                            opened), *upper_devices)
        return self.handles.survey().users(V1)

    def test_users(self):
        crypt = names.crypt(V1)
        below = '0 2064384 crypt c :64:logon:x 0 253:7 32768'
        for expected, opened, upper_devices in (
                (0, 0, ()), (2, 2, ()),
                (0, 1, (device(GUARD, '253:9', TABLE, 0),)),
                (1, 1, (device(GUARD, '253:9', TABLE, 1),)),
                (1, 2, (device(GUARD, '253:9', TABLE, 0),)),
                (3, 2, (device(GUARD, '253:9', TABLE, 2),)),
                (0, 1, (device(crypt, '253:9', below, 0),)),
                (2, 2, (device(crypt, '253:9', below, 1),))):
            self.assertEqual(expected, self.users(opened, *upper_devices))
        self.devices()
        self.assertEqual(0, self.handles.survey().users(V1))

    def test_what_re_encrypts_is_no_user_but_its_process_is(self):
        """As it was seen on a node; see :func:`.devices.recover`."""
        crypt, luks = names.crypt(V1), 'CRYPT-%s-' + '0' * 32 + '-%s'
        top = device(crypt, '253:9', '0 2064384 linear 253:11 0', 0)
        overlay, hot = crypt + '-overlay', crypt + '-hotzone-forward'
        helpers = (
            device(overlay, '253:11', '\n'.join((
                '0 8192 crypt c :64:logon:x 0 253:7 32768',
                '8192 8192 crypt c :64:logon:x 8192 253:12 0',
                '16384 2048000 crypt c :64:logon:y 16384 253:7 49152')), 1),
            device(hot, '253:12', '0 8192 linear 253:7 40960', 1))
        for each in helpers:
            self.assertEqual(V1, dm_tables.volume_of_helper(
                each.name, luks % ('SUBDEV', each.name)))
            self.assertIsNone(dm_tables.volume_of_helper(
                each.name, luks % ('LUKS2', each.name)))
        # Two of these opens are the process's own.
        self.assertEqual(2, self.users(4, top, *helpers))
        self.assertEqual(0, self.users(2, top, *helpers))  # it was killed
        paused = device(crypt, '253:9', '\n'.join((
            '0 8192 crypt c :64:logon:x 0 253:7 32768',
            '8192 2056192 crypt c :64:logon:y 8192 253:7 40960')), 0)
        self.assertEqual(0, self.users(1, paused))


class FlushTest(storage_case.Case):

    def test_what_is_above_a_handle_has_a_page_cache_of_its_own(self):
        for name, table in (
                (names.crypt(V1),
                 '0 2064384 crypt c :64:logon:x 0 253:7 32768'),
                (GUARD, TABLE)):
            self.ran.reset_mock()
            self.devices(
                device(HANDLE, '253:7', '0 2097152 linear 253:5 0', 1),
                device(name, '253:9', table, 1))
            self.handles.flush_handle(V1)
            self.assertEqual(
                ['/dev/mapper/' + each for each in (name, HANDLE)],
                [call.args[0] for call in self.ran.block.flush.mock_calls])


class ExportedTest(storage_case.Case):
    """What other nodes are served: above the handle, beside its top."""

    SERVED = names.export_device(V1)
    TABLE = '0 2097152 linear 253:7 0'

    def present(self, *more, sectors=2097152, opened=1):
        self.devices(device(HANDLE, '253:7', '0 %d linear 253:5 0' % sectors,
                            opened), *more)

    def test_created(self):
        self.present()
        self.assertTrue(self.handles.ensure_export_device(V1))
        self.assertRan(mock.call.dmsetup.create(
            self.SERVED, 'LOCALCLONE-' + self.SERVED, self.TABLE, 30))
        self.ran.dmsetup.ensure_devnode.assert_called_once_with(self.SERVED)

    def test_left_alone(self):
        self.present(device(self.SERVED, '253:9', self.TABLE, 1))
        self.assertFalse(self.handles.ensure_export_device(V1))
        self.assertRan()
        self.ran.dmsetup.ensure_devnode.assert_called_once_with(self.SERVED)

    def test_given_another_table_while_in_use(self):
        longer = self.TABLE.replace('2097152', '4194304')
        for table, suspended in (
                (self.TABLE, False), (longer, True), ('', False),
                (longer.replace('253:7', '253:8'), False)):
            self.ran.reset_mock()
            self.present(device(self.SERVED, '253:9', table, 1, suspended),
                         sectors=4194304)
            self.assertTrue(self.handles.ensure_export_device(V1))
            self.assertRan(mock.call.dmsetup.swap_table(
                self.SERVED, longer, 30))

    def test_never_above_nothing(self):
        self.devices()
        self.assertRaises(exceptions.MissingData,
                          self.handles.ensure_export_device,
                          V1)
        self.assertRan()

    def test_removed_when_nothing_exports_it(self):
        self.ran.block.number.return_value = '253:9'
        for opened in (1, 0):
            self.ran.reset_mock()
            self.present(device(self.SERVED, '253:9', self.TABLE, opened))
            self.assertEqual(not opened,
                             bool(self.handles.remove_export_device(V1)))
            self.assertEqual(
                [] if opened else [mock.call.remove(self.SERVED, 30)],
                [each for each in self.ran.dmsetup.mock_calls
                 if each[0] == 'remove'])

    def test_not_looked_for_where_there_is_none(self):
        self.ran.block.number.return_value = ''
        self.assertFalse(self.handles.remove_export_device(V1))
        self.ran.dmsetup.survey.assert_not_called()

    def test_goes_before_the_handle(self):
        self.ran.block.number.return_value = '253:9'
        self.present(device(self.SERVED, '253:9', self.TABLE))
        self.handles.remove_handle(V1)
        self.assertEqual(
            [mock.call.remove(self.SERVED, 30), mock.call.remove(HANDLE, 30)],
            [each for each in self.ran.dmsetup.mock_calls
             if each[0] == 'remove'])

    def test_whoever_has_it_uses_the_volume(self):
        for opened in (0, 1):
            self.present(device(self.SERVED, '253:9', self.TABLE, opened),
                         device(GUARD, '253:8', TABLE), opened=2)
            present = survey.Survey({}, self.handles.devices())
            self.assertEqual(opened, present.users(V1))

    def test_as_long_as_its_handle_has_become(self):
        self.devices(device(HANDLE, '253:7', '0 2097152 linear 253:5 0', 1),
                     device(self.SERVED, '253:9', self.TABLE, 1))
        grown = device(HANDLE, '253:7', '0 4194304 linear 253:5 0', 1)

        def swapped(name, *_args):
            self.devices(grown, device(self.SERVED, '253:9', self.TABLE, 1))
        self.ran.dmsetup.swap_table.side_effect = swapped
        self.ran.block.number.return_value = '8:16'
        self.ran.block.size.return_value = 2 << 30
        self.handles.ensure_handle_on_disk(V1, '/dev/sdb')
        self.assertEqual(
            [mock.call(HANDLE, '0 4194304 linear 8:16 0', 30, ('8:16', V1)),
             mock.call(self.SERVED, '0 4194304 linear 253:7 0', 30)],
            self.ran.dmsetup.swap_table.mock_calls)
