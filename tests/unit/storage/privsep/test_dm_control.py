# SPDX-License-Identifier: Apache-2.0
"""Looks at device-mapper by ioctl: what is asked, what answers mean."""

import errno
import fcntl
import os
import pathlib
import struct
import threading

import ddt
import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.storage.privsep import dm_control
from tests.world import dm_kernel

CLONE = ('0 2097152 clone 8 6/1024 128 3800/16384 32 1 no_discard_passdown '
         '4 hydration_threshold 32 hydration_batch_size 8 rw')
TWO = '0 2097152 linear 253:6 0\n2097152 8 linear 253:5 2097152'


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.kernel = self.useFixture(dm_kernel.Kernel())


@ddt.ddt
class LookTest(Case):

    def test_nothing(self):
        self.assertEqual([], dm_control.devices(30))
        self.assertEqual(['list'], self.kernel.asked)

    def test_devices(self):
        self.kernel.add('a', '253:7', TWO, 'x', 'LVM-1', 3)
        self.kernel.add('no-table', '253:300', suspended=True)
        self.kernel.add('error', '4000:1048575', '0 8 error')
        self.assertEqual([
            dm_ioctl.Status('a', 'LVM-1', '253:7', 3, False, TWO),
            dm_ioctl.Status('no-table', 'LOCALCLONE-no-table', '253:300', 0,
                            True, ''),
            dm_ioctl.Status('error', 'LOCALCLONE-error', '4000:1048575', 0,
                            False, '0 8 error')], dm_control.devices(30))

    @ddt.data(True, False)
    def test_nothing_is_asked_of_the_devices_of_others(self, says_uuids):
        """Where the kernel says which they are: thousands, of LVM."""
        self.kernel.says_uuids = says_uuids
        self.kernel.add('own', uuid='LOCALCLONE-\u00e9')
        self.kernel.add('lv', uuid='LVM-1')
        self.kernel.add('none', uuid='')
        self.kernel.add('crypt', uuid='CRYPT-LUKS2-1')
        self.assertEqual(['own', 'crypt'], [
            each.name for each in dm_control.devices(
                30, prefixes=('LOCALCLONE-', 'CRYPT-'))])
        self.assertEqual(['own', 'crypt'] if says_uuids else [
            'own', 'lv', 'none', 'crypt'], [
                each.partition(' ')[2] for each in self.kernel.asked[1:]])
        self.assertEqual(4, len(dm_control.devices(30)))

    def test_names_of_others_by_their_uuids(self):
        """Only what is wanted, also where names are given."""
        self.kernel.add('own')
        self.kernel.add('lv', uuid='LVM-1')
        self.assertEqual(['own'], [
            each.name for each in dm_control.devices(
                30, ['own', 'lv'], ('LOCALCLONE-',))])

    def test_some(self):
        """Nothing is asked of all others, not even their names."""
        for name in 'abcd':
            self.kernel.add(name)
        self.kernel.gone.add('c')
        self.assertEqual(['d', 'a'], [each.name for each in dm_control.devices(
            30, ['d', 'c', 'a', 'x'])])
        self.assertEqual(['table d', 'table a'], self.kernel.asked)
        self.assertEqual([], dm_control.devices(30, []))

    def test_one_that_goes_meanwhile(self):
        for name in 'abc':
            self.kernel.add(name)
        self.kernel.gone.add('b')
        self.assertEqual(['a', 'c'], [
            each.name for each in dm_control.devices(30)])

    def test_names_that_are_no_text(self):
        """Those of others; as long as the kernel lets them be."""
        odd = '\udcff' * 127
        for name in ('a', odd, 'b'):
            self.kernel.add(name)
        self.assertEqual(['a', odd, 'b'], [
            each.name for each in dm_control.devices(30)])

    def test_however_many(self):
        """More than fit into the first answer; so with their segments."""
        for number in range(1000):
            self.kernel.add('localclone-%036d' % number, '253:%d' % number)
        self.kernel.add('long', table='\n'.join(
            '%d 8 linear 8:0 %d' % (8 * n, n) for n in range(2000)))
        found = dm_control.devices(30)
        self.assertEqual(1001, len(found))
        self.assertEqual(2000, len(found[-1].lines.splitlines()))
        self.assertEqual(5, self.kernel.asked.count('list'))

    def test_not_without_end(self):
        with fixtures.MockPatchObject(
                dm_ioctl, 'is_full', lambda answer: True):
            error = self.assertRaises(
                exceptions.CommandFailed, dm_control.devices, 30)
        self.assertIn('bytes', str(error))

    def test_status_and_table(self):
        self.kernel.add('c', '253:300', TWO, CLONE)
        self.assertEqual(CLONE, dm_control.status('c', 30))
        self.assertEqual(TWO, dm_control.table('253:300', 30))
        self.assertEqual(['status c', 'table c'], self.kernel.asked)

    def test_statuses_of_some(self):
        for name in ('c1', 'c2', 'other', 'c-gone'):
            self.kernel.add(name, status=CLONE)
        self.kernel.gone.add('c-gone')
        self.assertEqual([('c1', CLONE), ('c2', CLONE)], [
            (each.name, each.lines) for each in dm_control.statuses(
                lambda name: name.startswith('c'), 30)])

    def test_no_such_device(self):
        error = self.assertRaises(
            exceptions.CommandFailed, dm_control.status, 'x', 30)
        self.assertIn('exit code %d' % errno.ENXIO, str(error))
        self.assertRaises(
            exceptions.CommandFailed, dm_control.table, '1:1', 30)

    def test_other_errors_are_not_taken_for_nothing(self):
        def refuse(number, buffer):
            if number == dm_ioctl.TABLE_STATUS:
                raise OSError(errno.EINVAL, 'no')
            self.kernel.ioctl(number, buffer)
        self.kernel.add('a')
        self.useFixture(fixtures.MockPatchObject(dm_control, '_ioctl', refuse))
        for act in (dm_control.devices, lambda seconds: dm_control.statuses(
                bool, seconds)):
            self.assertRaises(exceptions.CommandFailed, act, 30)

    def test_no_device_mapper(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.storage.privsep.dm_control._ioctl',
            control_without_a_kernel))
        self.assertRaises(exceptions.CommandFailed, dm_control.devices, 30)

    def test_a_kernel_that_hangs_holds_nobody_up(self):
        waits = threading.Event()
        self.addCleanup(waits.set)
        self.useFixture(fixtures.MockPatchObject(
            dm_control, '_ioctl', lambda *what: waits.wait(20)))
        for act in (dm_control.devices,
                    lambda seconds: dm_control.status('x', seconds),
                    lambda seconds: dm_control.table('1:1', seconds)):
            self.assertRaises(exceptions.CommandTimeout, act, 0.05)

    @ddt.data(('0 8 crypt aes-xts-plain64 00ff12 0 8:0 0',
               '0 8 crypt aes-xts-plain64 000000 0 8:0 0'),
              ('0 8 crypt aes-xts-plain64 :64:logon:x 0 8:0 0', None),
              ('0 8 integrity 8:0 0 32 D 3 internal_hash:hmac(sha256):0aff '
               'journal_crypt:ctr(aes):0b block_size:512 '
               'journal_mac:hmac(sha1):0c',
               '0 8 integrity 8:0 0 32 D 3 internal_hash:hmac(sha256):0000 '
               'journal_crypt:ctr(aes):00 block_size:512 '
               'journal_mac:hmac(sha1):00'),
              ('0 8 integrity 8:0 0 4 J 1 internal_hash:crc32c', None),
              ('0 8 flakey 8:0 0 1 0', None), ('0 8 crypt', None))
    @ddt.unpack
    def test_keys_stay_in_the_kernel(self, table, shown):
        self.kernel.add('c', table=table)
        self.assertEqual(shown or table, dm_control.devices(30)[0].lines)


def control_without_a_kernel(number, buffer):
    raise FileNotFoundError(errno.ENOENT, 'no control')


@ddt.ddt
class AnswerTest(testtools.TestCase):
    """What an answer says of its own sizes is believed only within it."""

    def answer(self, data, size=None, count=0, start=312):
        buffer = bytearray(struct.pack(
            dm_kernel.HEADER, 4, 0, 0, 312 + len(data) if size is None
            else size, start, count, 0, 0, 0, 0, 0, b'n' * 128, b'u' * 129)
            + data)
        return buffer

    def test_none(self):
        for data in (b'', bytes(16)):
            self.assertEqual({}, dm_ioctl.parse_names(self.answer(data)))

    @ddt.data((struct.pack('=QI', 1, 0) + b'abc', None),
              (struct.pack('=QI', 1, 9999) + b'abc\0', None),
              (b'123', None), (b'123', 1 << 30))
    @ddt.unpack
    def test_names_that_end_too_early(self, data, size):
        if data[:4] == b'\1\0\0\0' and b'abc\0' in data:
            self.assertEqual({'abc': None},
                             dm_ioctl.parse_names(self.answer(data)))
            return
        self.assertRaises(dm_ioctl.Malformed, dm_ioctl.parse_names,
                          self.answer(data, size))

    @ddt.data((8, 1, b'LVM-1\0', 'LVM-1'), (8, 2, b'', ''), (8, 0, b'', None),
              (8, 2, b'LVM-1\0', ''), (7, 1, b'', None),
              # Flags that a later kernel may have.
              (8, 1 | 4, b'LVM-1\0', 'LVM-1'), (8, 2 | 4, b'', ''),
              (8, 4, b'', None))
    @ddt.unpack
    def test_bytes_after_a_name(self, size, flags, more, uuid):
        is_deferred = struct.pack('=2I', 5, flags)[:size]
        self.assertEqual({'abc': uuid}, dm_ioctl.parse_names(self.answer(
            struct.pack('=QI', 1, 0) + b'abc\0' + is_deferred + more)))

    def test_uuid_that_ends_too_early(self):
        self.assertRaises(dm_ioctl.Malformed, dm_ioctl.parse_names,
                          self.answer(struct.pack('=QI', 1, 0) + b'abc\0'
                                      + struct.pack('=2I', 5, 1) + b'LVM-1'))

    @ddt.data((b'', None, 312), (bytes(39), None, 312),
              (bytes(40) + b'x', None, 312), (bytes(80), 320, 312),
              (bytes(80), None, 1 << 31))
    @ddt.unpack
    def test_targets_that_end_too_early(self, data, size, start):
        self.assertRaises(dm_ioctl.Malformed, dm_ioctl.parse_status,
                          self.answer(data, size, 1, start))

    def test_second_target_beyond_the_end(self):
        data = struct.pack('=QQiI16s', 0, 8, 0, 4096, b'linear') + b'x\0'
        self.assertRaises(dm_ioctl.Malformed, dm_ioctl.parse_status,
                          self.answer(data, count=2))
        self.assertEqual('0 8 linear x', dm_ioctl.parse_status(
            self.answer(data, count=1)).lines)

    def test_names_that_fill_all_there_is(self):
        found = dm_ioctl.parse_status(self.answer(b''))
        self.assertEqual(('n' * 128, 'u' * 129), (found.name, found.uuid))


class RequestTest(testtools.TestCase):

    def test_message(self):
        found = dm_ioctl.message('localclone-x', 'hydration_threshold 16')
        self.assertEqual(0xc138fd0e, dm_ioctl.TARGET_MSG)
        # dm-ioctl.h: data_size, data_start, name, uuid; then the sector.
        self.assertEqual((4, 0, 0, len(found), 312),
                         struct.unpack_from('=5I', found))
        self.assertEqual(b'localclone-x'.ljust(128 + 129 + 7, b'\0'),
                         found[48:312])
        # Targets, flags, device: by its name alone.
        self.assertEqual(bytes(28), found[20:48])
        self.assertEqual(bytes(8) + b'hydration_threshold 16\0', found[312:])

    def test_a_name_is_never_cut(self):
        dm_ioctl.request(0, 'x' * 127)
        self.assertRaises(ValueError, dm_ioctl.request, 0, 'x' * 128)

    def test_numbers(self):
        self.assertEqual((0xc138fd02, 0xc138fd0c), (
            dm_ioctl.LIST_DEVICES, dm_ioctl.TABLE_STATUS))


@ddt.ddt
class NamesTest(testtools.TestCase):
    """Each UUID is that of its own name, wherever that ends."""

    def setUp(self):
        super().setUp()
        self.kernel = self.useFixture(dm_kernel.Kernel())

    def named(self):
        return dm_ioctl.parse_names(dm_control._ask(
            dm_ioctl.LIST_DEVICES, flags=dm_ioctl.UUIDS))

    @ddt.data('n', '\u00e9', '\udcff')
    def test_of_any_length(self, letter):
        """Also by others, who may call a device what they like."""
        wanted = {}
        for length in range(1, 40):
            name = letter * length
            wanted[name] = 'LOCALCLONE-%s' % name if length % 3 else ''
            self.kernel.add(name, uuid=wanted[name])
        self.assertEqual(wanted, self.named())


class ControlTest(testtools.TestCase):
    """The kernel itself is asked, by a file that stays open."""

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path, 'control')
        self.useFixture(fixtures.MockPatchObject(
            dm_control, 'CONTROL', str(self.path)))
        self.asked = []
        self.useFixture(fixtures.MockPatchObject(
            dm_control.fcntl, 'ioctl', self.ioctl))
        dm_control._control.cache_clear()
        self.addCleanup(self.close)

    def close(self):
        for fd in {fd for fd, *_what in self.asked}:
            os.close(fd)
        dm_control._control.cache_clear()

    def ioctl(self, fd, call, buffer):
        self.assertEqual(str(self.path), os.readlink(
            '/proc/self/fd/%d' % fd))
        self.assertEqual(os.O_RDWR, fcntl.fcntl(
            fd, fcntl.F_GETFL) & os.O_ACCMODE)
        self.asked.append((fd, call, buffer))

    def test_asked_where_it_answers(self):
        """In the buffer itself, and by one file however often."""
        self.path.touch()
        buffers = [bytearray(8), bytearray(9)]
        for buffer in buffers:
            dm_control._ioctl(dm_ioctl.LIST_DEVICES, buffer)
        self.assertEqual([dm_ioctl.LIST_DEVICES] * 2,
                         [call for _fd, call, _buffer in self.asked])
        for buffer, (_fd, _call, found) in zip(buffers, self.asked):
            self.assertIs(buffer, found)
        self.assertEqual(1, len({fd for fd, *_what in self.asked}))

    def test_no_control_until_its_module_is_loaded(self):
        """Nothing is put in its place, and it is looked for again."""
        error = self.assertRaises(
            exceptions.CommandFailed, dm_control.table, '1:1', 30)
        self.assertIn('exit code 2', str(error))
        self.assertFalse(self.path.exists())
        self.path.touch()
        dm_control._ioctl(dm_ioctl.LIST_DEVICES, bytearray(8))
        self.assertEqual(1, len(self.asked))
