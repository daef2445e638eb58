# SPDX-License-Identifier: Apache-2.0
"""A re-encryption that is killed in its very end, by the real cryptsetup."""

from concurrent import futures
import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import threading
from unittest import mock
import uuid

import ddt
import fixtures
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_binary
from cinder_localclone.core.formats import luks_ending
from cinder_localclone.core.formats import luks_header
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import header_lock
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import reencrypt_process
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import cryptsetup_case
from tests.helpers.cryptsetup_case import KEY
from tests.helpers.cryptsetup_case import NEW_KEY
from tests.helpers import luks_headers
from tests.helpers import needs

CHECK_OPENED = sysfs.check_opened
#: Writes of cryptsetup from when it removes the old key's slot.
LAST = 16


class FilesTest(cryptsetup_case.CaseOfFiles):
    """It is killed at each of its last writes; then it is ended."""

    def setUp(self):
        super().setUp()
        needs.programs(self, 'strace')
        needs.root(self, 'cryptsetup locks a re-encryption in /run')
        self.format(self.path)
        # cryptsetup re-encrypts one of a UUID at a time.
        own = str(uuid.uuid4())
        cryptsetup.set_uuid(self.path, own, 60)
        self.addCleanup(pathlib.Path(
            header_lock.DIRECTORY, 'LN_LUKS2-reencryption-' + own).unlink,
            missing_ok=True)
        self.add_token('0', '0')
        self.assertEqual(0, self.cryptsetup(
            '--init-only', '--key-slot', '0', '--cipher', 'aes-xts-plain64',
            '--key-size', '256', '--pbkdf', 'pbkdf2',
            '--pbkdf-force-iterations', '1000'))
        self.begun = self.bytes()
        log = self.directory / 'log'
        self.assertEqual(0, self.go_on('-o', str(log)))
        self.writes = log.read_text().count('write(')
        self.done = self.metadata()

    def cryptsetup(self, *words, before=()):
        return subprocess.run(
            [*before, 'cryptsetup', 'reencrypt', '--batch-mode',
             '--key-file', '-', *words, '--resilience', 'checksum',
             '--force-offline-reencrypt', self.path], input=KEY,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=60).returncode

    def go_on(self, *words):
        return self.cryptsetup('--resume-only', before=(
            'strace', '-f', '-e', 'trace=write', *words))

    def kill(self, write):
        """At a write, which is not done."""
        pathlib.Path(self.path).write_bytes(self.begun)
        self.assertNotEqual(0, self.go_on(
            '-o', '/dev/null', '-e',
            'inject=write:signal=KILL:when=%d' % write))
        self.sequence = luks_binary.newest(self.bytes())[2]

    def bytes(self):
        return pathlib.Path(self.path).read_bytes()

    def metadata(self):
        return json.loads(cryptsetup.dump(self.path, 60))

    def end(self, key=KEY):
        with self.through_the_cache():
            cryptsetup_keys.end_reencryption(self.path, key, 60)

    def would_end(self, key=KEY):
        with self.through_the_cache():
            cryptsetup_keys.test_ended(self.path, key, 60)

    def opens(self, key=KEY):
        try:
            cryptsetup_keys.test(self.path, key, 60)
        except encryption_exceptions.WrongKey:
            return False
        return True

    def assertOver(self):
        self.assertTrue(self.opens())
        self.assertFalse(self.opens(NEW_KEY))
        self.assertEqual(self.done, self.metadata())  # as cryptsetup's own
        self.assertEqual([], luks_binary.problems(self.bytes()))

    def test_killed_at_each_write(self):
        seen = {}
        for write in range(self.writes - LAST + 1, self.writes + 1):
            self.kill(write)
            before = self.bytes()
            found = self.header().reencryption
            if found is None:
                self.end()  # it is over; the other copy says so then
                self.assertOver()
                continue
            if not found.complete:
                for end in self.end, self.would_end:
                    error = self.assertRaises(
                        encryption_exceptions.NotEnded, end)
                    self.assertIn('not all is encrypted anew', str(error))
                self.assertTrue(self.opens(), write)
                self.assertEqual(before, self.bytes())
                continue
            seen.setdefault(self.opens(), []).append(write)
            self.assertEqual(found.key_bits, self.header().key_bits)
            for end in self.end, self.would_end:
                self.assertRaises(encryption_exceptions.WrongKey, end, NEW_KEY)
            self.would_end()
            self.assertEqual(before, self.bytes())
            self.end()
            self.assertOver()
            # Its data is as it was: another run would have come to the same.
            self.assertEqual(before[16 << 20:], self.bytes()[16 << 20:])
        # It can tell: without that most of them are not opened any more.
        self.assertGreater(len(seen[False]), 5, seen)

    def test_killed_again(self):
        """One copy of the header is whole at every moment."""
        self.kill(self.writes - 6)
        whole, run = self.bytes(), process.run
        for count in (1, 2):
            for torn in (False, True):
                pathlib.Path(self.path).write_bytes(whole)
                self.end_cut_short(run, count, torn)
                self.assertEqual(count == 2 or torn, bool(
                    luks_binary.problems(self.bytes())))
                self.assertTrue(self.header())
                if self.header().reencryption:
                    self.end()
                else:
                    # who may write mends it
                    cryptsetup.dump(self.path, 60, True)
                self.assertOver()

    def test_second_copy_could_not_be_written(self):
        """Who was to end it as well writes that."""
        self.kill(self.writes - 6)
        self.end_cut_short(process.run, 2, False)
        self.assertTrue(luks_binary.problems(self.bytes()))
        self.assertRaises(encryption_exceptions.WrongKey, self.end, NEW_KEY)
        self.end()
        self.assertOver()

    def end_cut_short(self, run, count, torn):
        written = []

        def some(*words, **kwargs):
            if words[0] != 'dd':
                return run(*words, **kwargs)
            written.append(words)
            if len(written) < count:
                return run(*words, **kwargs)
            if torn:
                run(*words, **dict(kwargs, stdin=(
                    kwargs['stdin'][:4096] + bytes(12288))))
            raise exceptions.CommandTimeout(command='dd', seconds=60)
        with mock.patch.object(process, 'run', some):
            self.assertRaises(exceptions.CommandTimeout, self.end)
        self.assertEqual(count, len(written))

    def test_one_copy_was_torn_as_well(self):
        """The other one counts, and is written last."""
        self.kill(self.writes - 6)
        whole = self.bytes()
        for begin in (0, 16 << 10):
            torn = bytearray(whole)
            torn[begin + 200] ^= 255  # of its UUID
            pathlib.Path(self.path).write_bytes(torn)
            order, run = [], process.run

            def noting(*words, order=order, run=run, **kwargs):
                order.extend(int(word[5:]) for word in words
                             if word.startswith('seek='))
                return run(*words, **kwargs)
            with mock.patch.object(process, 'run', noting):
                self.end()
            self.assertEqual([0, 1] if begin == 0 else [1, 0], order)
            self.assertOver()

    def test_by_two_at_once(self):
        """A boot and the volume service: it is the same to both."""
        self.kill(self.writes - 6)
        with self.through_the_cache(), futures.ThreadPoolExecutor() as pool:
            for done in [pool.submit(cryptsetup_keys.end_reencryption,
                                     self.path, KEY, 60) for _one in range(3)]:
                self.assertIsNone(done.result())
        self.assertEqual(1 + self.sequence,
                         luks_binary.newest(self.bytes())[2])
        self.assertOver()

    def test_while_others_write_to_it(self):
        self.kill(self.writes - 6)
        before = self.bytes()
        with open(self.path) as other:
            fcntl.flock(other, fcntl.LOCK_SH)
            self.assertRaises(
                encryption_exceptions.HeaderInUse,
                cryptsetup_keys.end_reencryption, self.path, KEY, 0.2)
        with mock.patch.object(reencrypt_process, 'processes',
                               return_value=['1']):
            self.assertRaises(encryption_exceptions.HeaderInUse, self.end)
        self.assertEqual(before, self.bytes())

    def test_path_that_is_turned_elsewhere_meanwhile(self):
        """What is read and written is what was locked."""
        real, other = self.path + '.real', self.path + '.other'
        pathlib.Path(other).write_bytes(self.begun)
        for module, name in (reencrypt_process, 'processes'), (
                cryptsetup_keys, '_prove'):
            self.kill(self.writes - 6)
            act = getattr(module, name)

            def turn(*which, act=act):
                os.rename(self.path, real)
                os.symlink(other, self.path)
                return act(*which)
            with mock.patch.object(module, name, turn):
                self.end()
            self.assertTrue(self.begun == pathlib.Path(other).read_bytes())
            os.replace(real, self.path)
            self.assertOver()

    def test_header_in_memory_is_for_one_command_alone(self):
        """Other commands that the daemon runs just then don't inherit it."""
        self.kill(self.writes - 6)
        run, seen = cryptsetup_keys._run, []

        def noting(*args, pass_fds=(), **more):
            seen.extend(os.get_inheritable(each) for each in pass_fds)
            return run(*args, pass_fds=pass_fds, **more)
        with mock.patch.object(cryptsetup_keys, '_run', noting):
            self.end()
        self.assertEqual([False], seen)

    def test_path_that_leads_elsewhere(self):
        self.kill(self.writes - 6)
        before = self.bytes()
        with mock.patch.object(sysfs, 'check_opened', CHECK_OPENED):
            self.assertRaises(exceptions.WrongDevice, self.end)
        self.assertEqual(before, self.bytes())

    def test_header_that_cryptsetup_does_not_read_just_then(self):
        """Nobody is told to restore a backup of before."""
        self.kill(self.writes - 6)
        failed = exceptions.CommandFailed(
            command='cryptsetup', code=1,
            stderr='Device x is not a valid LUKS device.')
        run = process.run

        def fails(*words, **kwargs):
            if words[0] == 'cryptsetup':
                raise failed
            return run(*words, **kwargs)
        with mock.patch.object(process, 'run', fails):
            error = self.assertRaises(encryption_exceptions.NotEnded, self.end)
        self.assertTrue(str(error).startswith('Do not restore'))

    def test_it_is_over_already(self):
        before = self.bytes()
        self.end()
        self.assertEqual(before, self.bytes())

    def test_nobody_writes_meanwhile(self):
        self.kill(self.writes - 6)
        run = process.run

        def locked(*words, **kwargs):
            if words[0] == 'dd' or '--test-passphrase' in words:
                with open(self.path) as other:
                    self.assertRaises(BlockingIOError, fcntl.flock, other,
                                      fcntl.LOCK_SH | fcntl.LOCK_NB)
            return run(*words, **kwargs)
        with mock.patch.object(process, 'run', locked):
            self.end()
        self.assertOver()


class LockTest(testtools.TestCase):
    """That of cryptsetup, for a device."""

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path, 'locks')
        self.useFixture(fixtures.MockPatchObject(
            header_lock, 'DIRECTORY', str(self.directory)))
        self.file, fstat = self.directory / 'L_253:7', os.fstat
        self.path = str(self.directory.parent / 'x')
        pathlib.Path(self.path).touch()
        self.device = os.stat(self.path)

        def seen(descriptor):
            found = fstat(descriptor)
            if os.path.samestat(found, self.device):
                return mock.Mock(st_mode=0o60600, st_rdev=os.makedev(253, 7))
            return found
        self.useFixture(fixtures.MockPatchObject(
            header_lock.os, 'fstat', seen))

    def held(self, seconds=0.2):
        return header_lock.held(self.path, seconds)

    def opened(self):
        """How often what is locked is open here."""
        found = []
        for each in pathlib.Path('/proc/self/fd').iterdir():
            with contextlib.suppress(OSError):
                found.append(os.path.samestat(each.stat(), self.device))
        return sum(found)

    def try_it(self):
        with open(self.file) as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_file(self):
        with self.held():
            self.assertRaises(BlockingIOError, self.try_it)
            self.assertEqual(1, self.opened())  # it can't be removed
            self.assertEqual(0o600, self.file.stat().st_mode & 0o777)
        self.assertEqual(0, self.opened())
        self.try_it()
        self.assertEqual(0o40700, self.directory.stat().st_mode)

    def test_opened_for_reading(self):
        """Whoever closes what he could write to has udev look at it anew."""
        with self.held() as (device, _lock):
            self.assertEqual(os.O_RDONLY, os.O_ACCMODE & fcntl.fcntl(
                device, fcntl.F_GETFL))

    def test_error_inside(self):
        def fail():
            with self.held():
                raise KeyError
        self.assertRaises(KeyError, fail)
        self.try_it()
        self.assertEqual(0, self.opened())

    def test_device_that_hangs(self):
        """It is closed when it answers: nobody uses it any more."""
        opening, closing = os.open, os.close
        answers, closed = threading.Event(), threading.Event()

        def hang(path, *more):
            if path == self.path:
                answers.wait(60)
            return opening(path, *more)

        def close(device):
            closing(device)
            closed.set()
        with mock.patch.object(header_lock.os, 'open', hang):
            with mock.patch.object(header_lock.os, 'close', close):
                self.assertRaises(exceptions.CommandTimeout,
                                  self.held(0.1).__enter__)
            self.assertFalse(closed.is_set())
            answers.set()
            self.assertTrue(closed.wait(9))

    def test_device_that_hangs_when_it_is_closed(self):
        """All is done by then: neither lock nor caller waits for that."""
        hangs, closed = threading.Event(), threading.Event()
        close, held = os.close, self.held(0.2)
        device, _lock = held.__enter__()

        def late(descriptor):
            if descriptor == device:
                hangs.wait(20)
                closed.set()
            close(descriptor)
        self.addCleanup(hangs.set)
        with mock.patch.object(header_lock.os, 'close', late):
            held.__exit__(None, None, None)
            self.assertFalse(closed.is_set())
            self.try_it()

    def test_device_by_its_name(self):
        root = self.useFixture(fixtures.TempDir()).path
        self.useFixture(fixtures.MockPatchObject(sysfs, 'ROOT', root))
        name = pathlib.Path(root, 'dev', 'block', '253:7', 'dm', 'name')
        name.parent.mkdir(parents=True)
        name.write_text('x\n')
        with self.held() as (device, _lock):
            sysfs.check_opened(device, self.path)
            for path in '/dev/mapper/y', '/dev/mapper/xx':
                self.assertRaises(exceptions.WrongDevice,
                                  sysfs.check_opened, device, path)
            with mock.patch.object(sysfs.os, 'fstat', lambda _device: (
                    mock.Mock(st_mode=0o20600, st_rdev=os.makedev(253, 7)))):
                self.assertRaises(exceptions.WrongDevice, sysfs.check_opened,
                                  device, self.path)  # of another kind
            name.unlink()
            self.assertRaises(exceptions.WrongDevice, sysfs.check_opened,
                              device, self.path)

    def test_file_that_was_removed_meanwhile(self):
        """Whoever leaves removes it: then it is no lock."""
        flock, times = fcntl.flock, []

        def late(descriptor, how):
            times.append(how)
            flock(descriptor, how)
            if len(times) == 1:
                self.file.unlink()
        with mock.patch.object(header_lock.fcntl, 'flock', late):
            with self.held(5):
                self.assertEqual(2, len(times))
                self.assertTrue(self.file.exists())


@ddt.ddt
class EndingTest(testtools.TestCase):

    SALTS = [b'1' * luks_ending.SALT, b'2' * luks_ending.SALT]

    def setUp(self):
        super().setUp()
        self.metadata = luks_headers.complete()
        segments = self.metadata['segments']
        data, = (number for number, each in segments.items()
                 if 'flags' not in each)
        self.parts = dict(segments=segments, data=data)

    def end(self):
        return luks_ending.end(luks_headers.head(self.metadata), self.SALTS)

    def refused(self):
        self.assertRaises(ValueError, self.end)

    def test_it_is_over(self):
        self.assertTrue(luks_ending.lacks_only_last_step(self.metadata))
        self.assertTrue(luks_header.parse(
            json.dumps(self.metadata)).reencryption.complete)
        (second, its), (first, copy) = self.end()
        self.assertEqual((0, 16 << 10), (first, second))
        self.assertEqual([], luks_binary.problems(copy + its))
        self.assertEqual((0, 16 << 10, 8), luks_binary.newest(copy + its))
        self.assertEqual(self.SALTS, [copy[104:168], its[104:168]])
        self.assertEqual([0, 16 << 10], [
            int.from_bytes(each[256:264], 'big') for each in (copy, its)])

    def test_what_it_says_then(self):
        """The new cipher, as of all data; also without the old slots."""
        segments = self.metadata['segments']
        old, = (number for number, each in segments.items()
                if each.get('flags') == ['backup-previous'])
        segments[old]['encryption'] = 'serpent-xts-plain64'
        for gone in False, True:
            found = luks_header.parse(json.dumps(self.metadata))
            self.assertEqual('aes-xts-plain64', found.cipher)
            self.assertEqual(found.reencryption.key_bits, found.key_bits)
            self.assertEqual(2 - gone, len(found.keyslots))
            digest, = (each for each in self.metadata['digests'].values()
                       if old in each['segments'])
            for slot in digest['keyslots']:
                del self.metadata['keyslots'][slot]
            digest['keyslots'] = []

    def test_one_that_has_only_begun(self):
        self.metadata = json.loads(luks_headers.STARTED)
        self.refused()

    def test_one_that_is_over(self):
        """It is only written if a copy says something else."""
        head = luks_headers.head(self.metadata)
        (begin, copy), _other = luks_ending.end(head, self.SALTS)
        late = head[:begin] + copy + head[begin + len(copy):]
        self.assertEqual(1, len(luks_binary.problems(late)))
        found = luks_ending.end(late, self.SALTS)
        self.assertEqual([0, 16 << 10], [at for at, _what in found])
        _first, (_begin, second) = sorted(found)
        self.assertEqual(json.loads(luks_ending.text(late)),
                         json.loads(luks_ending.text(found[0][1] + second)))
        self.assertEqual([], luks_ending.end(found[0][1] + second, self.SALTS))
        self.metadata = json.loads(luks_headers.PLAIN)
        self.assertEqual([], self.end())

    def test_one_that_is_over_but_asks_for_something(self):
        """Whether its copies say the same or not, nobody knows for what."""
        self.metadata = json.loads(luks_headers.PLAIN)
        self.metadata['config']['requirements'] = {
            'mandatory': ['online-reencrypt-v2']}
        self.refused()
        head = bytearray(luks_headers.head(self.metadata))
        head[200] ^= 255
        self.assertRaises(ValueError, luks_ending.end, bytes(head), self.SALTS)

    def test_one_copy_is_torn(self):
        """All is made of the other: a header has its UUID in each."""
        whole = luks_headers.head(self.metadata)
        for begin in (0, 16 << 10):
            torn = bytearray(whole)
            torn[begin + 168] ^= 255
            for at, copy in luks_ending.end(bytes(torn), self.SALTS):
                self.assertEqual(whole[168:208], copy[168:208], (begin, at))

    @ddt.data(luks_headers.KILLED, luks_headers.PAUSED)
    def test_what_is_not_complete(self, text):
        self.metadata = json.loads(text)
        self.assertFalse(luks_ending.lacks_only_last_step(self.metadata))
        self.refused()

    @ddt.data({'encryption': 'null'}, {'offset': '8388608'},
              {'size': '1048576'}, {'iv_tweak': '8'}, {'sector_size': 4096},
              {'flags': ['in-reencryption']}, {'integrity': {}})
    def test_data_that_is_something_else(self, change):
        self.parts['segments'][self.parts['data']].update(change)
        self.refused()

    def test_a_part_that_is_something_else(self):
        self.parts['segments']['9'] = dict(
            self.parts['segments'][self.parts['data']], flags=['backup-moved'])
        self.refused()

    def test_data_of_the_old_key(self):
        for each in self.metadata['digests'].values():
            if self.parts['data'] in each['segments']:
                each['segments'].remove(self.parts['data'])
            elif each['segments']:
                each['segments'].append(self.parts['data'])
        self.refused()

    @ddt.data([], ['online-reencrypt-v2', 'x'], ['offline-reencrypt'])
    def test_what_it_asks_for(self, mandatory):
        self.metadata['config']['requirements']['mandatory'] = mandatory
        self.refused()

    @ddt.data('encrypt', 'decrypt')
    def test_another_mode(self, mode):
        slot, = (each for each in self.metadata['keyslots'].values()
                 if each['type'] == 'reencrypt')
        slot['mode'] = mode
        self.refused()

    def test_a_slot_of_nothing_stays(self):
        """cryptsetup leaves what opens neither alone."""
        slot = next(each for each in self.metadata['keyslots'].values()
                    if each['type'] == 'luks2')
        self.metadata['keyslots']['7'] = slot
        self.metadata['digests']['7'] = {
            'type': 'pbkdf2', 'keyslots': ['7'], 'segments': []}
        _second, (_begin, copy) = self.end()
        found = json.loads(copy[4096:].split(b'\0')[0])
        final, = (each['keyslots'] for each in found['digests'].values()
                  if each['segments'])
        self.assertEqual({*final, '7'}, set(found['keyslots']))
        self.assertEqual(1, len(final))
        self.assertIn('7', found['digests'])

    def test_no_room(self):
        self.metadata['tokens']['9'] = {
            'type': 'x', 'keyslots': [], 'text': ''}
        free = 12288 - len(json.dumps(self.metadata))
        self.metadata['tokens']['9']['text'] = 'x' * (free - 1)
        self.end()
        room = 12288 - len('{"more":""}')
        for more, goes in ((room - 1, True), (room, False)):
            def end(metadata, more=more):
                metadata.clear()
                metadata['more'] = 'x' * more
            with mock.patch.object(luks_ending, '_end', end):
                if goes:
                    self.end()
                else:  # there would be no end of the text
                    self.refused()

    @ddt.data({'flags': ['backup-moved-segment']},
              {'flags': ['backup-previous', 'x']})
    def test_what_was_before_is_something_else(self, change):
        old, = (each for each in self.parts['segments'].values()
                if each.get('flags') == ['backup-previous'])
        old.update(change)
        self.assertFalse(luks_ending.lacks_only_last_step(self.metadata))
        self.refused()

    def test_what_comes_is_something_else(self):
        final, = (each for each in self.parts['segments'].values()
                  if each.get('flags') == ['backup-final'])
        final['flags'].append('x')
        self.refused()

    def test_one_key_before_and_after(self):
        """Then its slots stay."""
        digests = self.metadata['digests']
        segments = sorted(self.parts['segments'])
        for each in digests.values():
            each['segments'] = segments if each['segments'] else []
            segments = [] if each['segments'] else segments
        self.refused()

    def test_data_of_both_keys(self):
        for each in self.metadata['digests'].values():
            if each['segments'] and self.parts['data'] not in each['segments']:
                each['segments'].append(self.parts['data'])
        self.refused()

    @ddt.data(0, 2)
    def test_how_is_not_said_once(self, times):
        slots = self.metadata['keyslots']
        number, = (number for number, each in slots.items()
                   if each['type'] == 'reencrypt')
        how = slots.pop(number)
        slots.update({str(9 + each): how for each in range(times)})
        self.refused()

    @ddt.data({'keyslots': []}, {'segments': None}, {'digests': []},
              {'config': {'requirements': {'mandatory': [1]}}},
              {'config': []}, {'tokens': None})
    def test_what_is_no_header(self, change):
        self.metadata.update(change)
        self.refused()

    def test_a_larger_header(self):
        for size in (32 << 10, 256 << 10):
            data = luks_headers.head(self.metadata, size=size)
            (second, its), (first, copy) = luks_ending.end(data, self.SALTS)
            self.assertEqual((0, size), (first, second))
            self.assertEqual([size, size], [len(copy), len(its)])
            self.assertEqual([], luks_binary.problems(copy + its))

    def test_one_salt(self):
        self.assertRaises(ValueError, luks_ending.end,
                          luks_headers.head(self.metadata), self.SALTS[:1])

    def test_other_letters(self):
        """They take no more room than before."""
        self.metadata['tokens']['9'] = {
            'type': 'x', 'keyslots': [], 'text': '\xe9' * 4000}
        data = luks_headers.head(self.metadata)
        _second, (_begin, copy) = luks_ending.end(data, self.SALTS)
        self.assertIn('\xe9'.encode() * 4000, copy)

    def test_no_copy(self):
        self.assertRaises(
            ValueError, luks_ending.end, bytes(32 << 10), self.SALTS)
        self.assertRaises(ValueError, luks_ending.end, b'', self.SALTS)
