# SPDX-License-Identifier: Apache-2.0
"""How a thin pool is asked for a map: released whatever happens."""

import fcntl
import os
import pathlib
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs
from cinder_localclone.storage.privsep import thin_pool
from tests.helpers import commands
from tests.helpers import thin_dump

GIB = 1 << 30
POOL = 'g--v-pool-tpool'
META = 'g--v-pool_tmeta'
STATUS = ('0 41943040 thin-pool 1 137/5120 32769/327680 %s rw '
          'discard_passdown queue_if_no_space - 1024 \n')
RESERVE, RELEASE = ('dmsetup message %s 0 %s_metadata_snap' % (POOL, what)
                    for what in ('reserve', 'release'))
LOOK = 'ioctl status ' + POOL
THIN = 'ioctl table 253:5'
OF_POOL = 'ioctl table 253:4'


class Base(commands.Case):

    #: Seconds: somebody waits for the volume.
    limit = 0.3

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(
            sysfs, 'ROOT', str(self.root)))
        for number, name in (('253:4', POOL), ('253:2', META),
                             ('253:5', 'g--v-volume--1')):
            directory = self.root / 'dev' / 'block' / number / 'dm'
            directory.mkdir(parents=True)
            (directory / 'name').write_text(name + '\n')
        self.numbers = {'/dev/g-v/volume-1': '253:5',
                        '/dev/mapper/' + POOL: '253:4',
                        '/dev/mapper/' + META: '253:2'}
        self.useFixture(fixtures.MockPatchObject(
            sysfs, 'number', lambda path: self.numbers.get(path, '')))
        self.useFixture(fixtures.MockPatchObject(process, 'stream',
                                                 self.stream))
        self.useFixture(fixtures.MockPatchObject(thin_pool, 'LIMIT', 0.3))
        self.sleep = self.useFixture(fixtures.MockPatchObject(
            process.time, 'sleep')).mock
        self.opened = []
        opens = os.open

        def fake_open(path, flags):
            self.opened.append(path)
            return opens(str(self.root / 'metadata'), flags)
        (self.root / 'metadata').touch()
        self.useFixture(fixtures.MockPatchObject(
            process.os, 'open', fake_open))
        self.printed = thin_dump.text((0, 16))
        self.commands.answer(THIN, '0 2097152 thin 253:4 7\n')
        self.commands.answer(
            OF_POOL, '0 41943040 thin-pool 253:2 253:3 128 0 0 \n')

    def stream(self, take, *argv, timeout):
        self.assertEqual(self.limit, timeout)
        take(process.run(*argv, timeout=timeout).encode())

    def status(self, *held):
        """What holds the pool's metadata, look by look."""
        for each in held[:-1]:
            self.commands.answer(LOOK, STATUS % each, times=1)
        self.commands.answer(LOOK, STATUS % held[-1])

    def dump(self, printed=None, **how):
        self.commands.answer('thin_dump', thin_dump.text(
            (0, 16)) if printed is None else printed, **how)

    def holes(self, lv='volume-1'):
        return thin_pool.largest_holes('g-v', lv, GIB, 1 << 16, self.limit)

    def ran(self, *lines):
        self.assertEqual(list(lines), self.commands.ran)

    def locked(self):
        """Whether another process could not map volumes of the pool now."""
        with open(self.root / 'metadata') as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


@ddt.ddt
class WriteTest(Base):
    """Whoever has suspended a handle takes a snapshot himself."""

    def write(self, blocks=64):
        with thin_pool.locked_for_writing('g-v', 'volume-1', blocks,
                                          0.3) as thin:
            self.assertTrue(self.locked())
            self.commands.ran.append('write')
        return thin

    def test_where_it_is(self):
        self.status('-')
        self.assertEqual((POOL, '/dev/mapper/' + META, 7), self.write())
        self.ran(THIN, OF_POOL, LOOK, 'write', LOOK, RELEASE)
        self.assertFalse(self.locked())

    def test_what_a_killed_process_has_left(self):
        """It is as old as that."""
        self.status('4000')
        self.write()
        self.ran(THIN, OF_POOL, LOOK, RELEASE, 'write', LOOK, RELEASE)

    @ddt.data(KeyError, SystemExit)
    def test_released_whatever_ends_it(self, error):
        self.status('-')

        def ended():
            with thin_pool.locked_for_writing('g-v', 'volume-1', 1, 0.3):
                raise error
        self.assertRaises(error, ended)
        self.ran(THIN, OF_POOL, LOOK, RELEASE)
        self.assertFalse(self.locked())

    def test_nobody_looks_meanwhile(self):
        self.status('-')
        with open(self.root / 'metadata') as other:
            fcntl.flock(other, fcntl.LOCK_SH)
            self.assertRaises(exceptions.Busy, thin_pool.locked_for_writing(
                'g-v', 'volume-1', 1, 0.3).__enter__)

    def test_status_of_another_device(self):
        for parse in (dm_tables.parse_pool_space, dm_tables.parse_pool_mode,
                      dm_tables.parse_metadata_snapshot):
            self.assertRaises(ValueError, parse, (STATUS % '-').replace(
                'thin-pool', 'thin'))

    def test_pool_that_fails_meanwhile(self):
        """It says so to nobody: what was written may be lost."""
        self.commands.answer(LOOK, STATUS % '-', times=1)
        self.commands.answer(LOOK, (STATUS % '-').replace(' rw ', ' ro '))
        self.assertRaises(exceptions.PoolFails, self.write)
        self.ran(THIN, OF_POOL, LOOK, 'write', LOOK, RELEASE)

    def test_pool_that_is_full_by_then(self):
        self.commands.answer(LOOK, STATUS % '-', times=1)
        self.commands.answer(LOOK, (STATUS % '-').replace(
            ' rw ', ' out_of_data_space '))
        self.write()

    @ddt.data('hang', 'answer')
    def test_release_that_fails(self, how):
        """The next one does it; what was written is known."""
        self.status('-')
        getattr(self.commands, how)(RELEASE, **(
            {'code': 1} if how == 'answer' else {}))
        self.write()
        self.assertFalse(self.locked())

    @ddt.data((' rw ', ' out_of_data_space ', 'PoolOutOfSpace'),
              (' rw ', ' ro ', 'PoolFails'),
              # The mode changes only with a write that finds no room.
              ('32769/', '327553/', 'PoolOutOfSpace'),
              ('32769/', '327680/', 'PoolOutOfSpace'))
    @ddt.unpack
    def test_where_nothing_can_be_written(self, old, new, error):
        """Nobody suspends anything for that."""
        self.commands.answer(LOOK, (STATUS % '-').replace(old, new))
        self.assertRaises(getattr(exceptions, error), self.write)
        self.ran(THIN, OF_POOL, LOOK)
        self.assertFalse(self.locked())

    def test_room_for_just_as_many(self):
        self.commands.answer(LOOK, (STATUS % '-').replace(
            '32769/', '327552/'))
        self.write()

    def test_one_that_is_not_thin(self):
        self.commands._answers.clear()
        self.commands.answer(THIN, '0 2097152 linear 8:0 0\n')
        self.assertRaises(thin_map.OddMap, self.write)
        self.ran(THIN)


DUMP = 'thin_dump --metadata-snap --dev-id 7 /dev/mapper/' + META
WHOLE = (THIN, OF_POOL, LOOK, RESERVE, LOOK, DUMP, LOOK, RELEASE)


@ddt.ddt
class HolesTest(Base):

    def test_map(self):
        self.status('-', '4711', '4711')
        self.dump()
        self.assertEqual([[16, 16368]], self.holes())
        self.ran(*WHOLE)
        self.assertEqual({0.3}, set(self.commands.limits))
        self.sleep.assert_not_called()
        self.assertEqual(['/dev/mapper/' + META], self.opened)
        self.assertFalse(self.locked())

    @ddt.data((False, 0.3), (True, 30))
    @ddt.unpack
    def test_who_waits_for_the_volume_waits_not_long(self, patient, limit):
        lvm = logical_volumes.Lvm('g', 'g-pool', 'fast', 30, host='b@l')
        with mock.patch.object(thin_pool, 'largest_holes') as looked:
            lvm.holes('v', GIB, state.Geometry(128, 32, 8),
                      patient=patient)
        looked.assert_called_once_with('g', 'v', GIB, 1 << 16, limit)

    def test_pool_without_room_for_data(self):
        """It writes its metadata: its map is that of any other."""
        self.commands.answer(LOOK, (STATUS % '-').replace(
            ' rw ', ' out_of_data_space '), times=1)
        self.status('4711', '4711')
        self.dump()
        self.assertEqual([[16, 16368]], self.holes())

    def test_what_a_pool_maps_at_once(self):
        self.assertEqual(1 << 16, thin_pool.block_size('g-v', 'volume-1', 30))
        self.ran(THIN, OF_POOL)
        self.assertEqual([30, 30], self.commands.limits)
        self.numbers['/dev/g-v/volume-1'] = '253:4'
        self.assertRaises(exceptions.WrongDevice, thin_pool.block_size, 'g-v',
                          'volume-1', 30)
        self.commands._answers.clear()
        self.commands.answer(THIN, '0 2097152 linear 253:3 2048')
        self.numbers['/dev/g-v/volume-1'] = '253:5'
        self.assertEqual(0, thin_pool.block_size('g-v', 'volume-1', 30))

    @ddt.data('0 2097152 linear 253:3 2048',
              # What is not mapped there reads as another device.
              '0 2097152 thin 253:4 7 253:9', '')
    def test_other_kinds_of_lv(self, table):
        self.commands._answers.clear()
        self.commands.answer(THIN, table)
        self.assertEqual([], self.holes())
        self.ran(THIN)

    def test_lv_that_is_not_active(self):
        """What it has is not known: not that it has everything."""
        self.assertRaises(thin_map.OddMap, self.holes, 'volume-2')
        self.ran()

    @ddt.data('ro', 'Fail')
    def test_pool_that_fails(self, mode):
        """What it has mapped may not be there any more."""
        status = '0 1 thin-pool Fail\n' if mode == 'Fail' else (
            STATUS % '-').replace(' rw ', ' %s ' % mode)
        self.commands.answer(LOOK, status)
        error = self.assertRaises(exceptions.PoolFails, self.holes)
        self.assertIn('in mode "%s"' % mode, str(error))
        self.ran(THIN, OF_POOL, LOOK)

    def test_all_of_it(self):
        """None is left out: it may be what is looked for."""
        self.status('-', '4711', '4711', '-', '4711', '4711')
        self.dump(thin_dump.text((0, 16), (20, 1), (23, 1)))
        self.useFixture(fixtures.MockPatchObject(thin_map, 'MOST', 2))
        self.limit = 30
        self.assertEqual([[16, 4], [21, 2], [24, 16360]], thin_pool.all_holes(
            'g-v', 'volume-1', GIB, 1 << 16, 30))
        self.assertEqual(2, len(self.holes()))

    def test_all_of_it_takes_its_time(self):
        self.limit = 30
        self.status('-', '4711', '4711')
        self.dump()
        self.assertEqual([[16, 16368]], thin_pool.all_holes(
            'g-v', 'volume-1', GIB, 1 << 16, 30))
        self.ran(*WHOLE)

    def test_none_of_one_that_is_not_thin(self):
        self.commands._answers.clear()
        self.commands.answer(THIN, '0 2097152 linear 8:0 0\n')
        self.assertEqual([], thin_pool.all_holes(
            'g-v', 'volume-1', GIB, 1 << 16, 30))

    @ddt.data('rw', 'ro', 'out_of_data_space', 'Fail')
    def test_whether_it_fails(self, mode):
        """One that has no room for data notes what it maps."""
        self.commands.answer(
            LOOK, '0 1 thin-pool Fail\n' if mode == 'Fail' else (
                STATUS % '-').replace(' rw ', ' %s ' % mode))
        if mode in ('rw', 'out_of_data_space'):
            thin_pool.check_metadata_writable('g-v', 'volume-1', 30)
        else:
            error = self.assertRaises(
                exceptions.PoolFails, thin_pool.check_metadata_writable, 'g-v',
                'volume-1',
                30)
            self.assertIn('pool %s of ' % POOL, str(error))
            self.assertIn('in mode "%s"' % mode, str(error))
        self.ran(THIN, LOOK)

    def test_one_that_is_not_thin_does_not_fail(self):
        self.commands._answers.clear()
        self.commands.answer(THIN, '0 2097152 linear 8:0 0\n')
        thin_pool.check_metadata_writable('g-v', 'volume-1', 30)
        self.ran(THIN)

    def test_paths_that_lead_elsewhere(self):
        """The holes of another LV, or of one in another pool, are others."""
        for path, number in (('/dev/g-v/volume-1', '253:4'),
                             ('/dev/g-v/volume-1', '8:0'),
                             ('/dev/mapper/' + META, '253:4'),
                             ('/dev/mapper/' + META, '')):
            right, self.numbers[path] = self.numbers[path], number
            error = self.assertRaises(exceptions.WrongDevice, self.holes)
            self.assertIn(path, str(error))
            self.numbers[path] = right
        self.assertNotIn(RESERVE, self.commands.ran)

    def test_what_a_killed_process_has_left(self):
        self.status('4000', '4711', '4711')
        self.dump()
        self.assertEqual([[16, 16368]], self.holes())
        self.ran(*WHOLE[:3], RELEASE, *WHOLE[3:])

    def test_reserved_by_another_program(self):
        """What is not one's own is not released."""
        self.status('-')
        self.commands.answer(RESERVE, code=1, err='Device or resource busy')
        self.assertRaises(exceptions.CommandFailed, self.holes)
        self.ran(*WHOLE[:4])
        self.assertFalse(self.locked())

    @ddt.data({'code': 1, 'err': 'checksum'}, {'printed': 'odd'},
              {'printed': ''}, {'printed': thin_dump.text(mapped=1)})
    def test_dump_that_fails(self, how):
        self.status('-', '4711', '4711')
        self.dump(**how)
        self.assertRaises(
            (exceptions.CommandFailed, thin_map.OddMap), self.holes)
        self.assertEqual(RELEASE, self.commands.ran[-1])
        self.assertEqual(1, self.commands.ran.count(RELEASE))
        self.assertFalse(self.locked())

    @ddt.data(DUMP, RESERVE)
    def test_one_that_hangs(self, command):
        self.status('-', '4711', '4711')
        self.commands.hang(command)
        self.assertRaises(exceptions.CommandTimeout, self.holes)
        self.assertEqual(RELEASE, self.commands.ran[-1])
        self.assertFalse(self.locked())

    def test_without_thin_provisioning_tools(self):
        self.status('-', '4711')

        def missing(take, *argv, timeout):
            raise FileNotFoundError(2, 'No such file', argv[0])
        process.stream = missing
        self.assertRaises(FileNotFoundError, self.holes)
        self.assertEqual(RELEASE, self.commands.ran[-1])

    @ddt.data(('4711', '-'), ('4711', '5000'), ('-', '-'))
    @ddt.unpack
    def test_released_by_another_program(self, before, after):
        """What was read then may be of another moment, or of nothing."""
        self.status('-', before, after)
        self.dump()
        self.assertRaises(thin_map.OddMap, self.holes)
        self.assertEqual(RELEASE, self.commands.ran[-1])

    def test_release_that_is_done_already(self):
        self.status('-', '4711', '4711')
        self.commands.answer(RELEASE, code=1, err='Invalid argument')
        self.dump()
        self.assertEqual([[16, 16368]], self.holes())

    def test_release_that_fails(self):
        self.status('-', '4711', '4711')
        self.commands.answer(RELEASE, code=1, err='Input/output error')
        self.dump()
        self.assertRaises(exceptions.CommandFailed, self.holes)

    def test_one_at_a_time(self):
        self.status('-', '4711')
        with open(self.root / 'metadata') as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.assertRaises(exceptions.Busy, self.holes)
        self.ran(THIN, OF_POOL)
        self.dump()
        process.stream = lambda take, *argv, timeout: (
            self.assertTrue(self.locked()),
            self.stream(take, *argv, timeout=timeout))
        self.holes()

    def test_it_waits_for_others(self):
        self.limit = 30
        self.status('-', '4711', '4711')
        self.dump()
        other = open(self.root / 'metadata')
        fcntl.flock(other, fcntl.LOCK_EX)
        self.sleep.side_effect = lambda seconds: other.close()
        self.assertEqual([[16, 16368]], self.holes())
        self.sleep.assert_called_once()


class ReleaseTest(Base):

    def release(self):
        return thin_pool.release_metadata_snapshot('g-v', 'pool', 30)

    def test_what_was_left(self):
        self.status('4711')
        self.assertTrue(self.release())
        self.ran(OF_POOL, LOOK, RELEASE)

    def test_nothing(self):
        self.status('-')
        self.assertFalse(self.release())
        self.ran(OF_POOL, LOOK)

    def test_nothing_while_another_service_looks(self):
        with open(self.root / 'metadata') as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.assertRaises(exceptions.Busy, self.release)
        self.ran(OF_POOL)

    def test_metadata_of_another_pool(self):
        self.numbers['/dev/mapper/' + META] = '253:5'
        self.assertRaises(exceptions.WrongDevice, self.release)
        self.ran(OF_POOL)

    def test_pool_that_is_not_active(self):
        self.numbers.clear()
        self.assertFalse(self.release())
        self.ran()


class FormatsTest(commands.Case):

    def test_name_of_a_pool(self):
        self.assertEqual(
            'cinder--volumes-cinder--volumes--pool-tpool',
            names.mapped_name('cinder-volumes', 'cinder-volumes-pool',
                              'tpool'))

    def test_other_devices(self):
        for line in ('', '0 8 linear 253:1 0', '0 8 thin 5 7'):
            self.assertRaises(ValueError, dm_tables.parse_pool_metadata, line)
            self.assertRaises(ValueError, dm_tables.parse_metadata_snapshot,
                              line)
        # A pool that has failed.
        self.assertRaises(ValueError, dm_tables.parse_metadata_snapshot,
                          '0 8 thin-pool Fail')
