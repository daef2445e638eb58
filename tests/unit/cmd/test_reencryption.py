# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone reencryption``: start, pause and resume."""

import io
import itertools
import json
import types
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.cmd import main
from cinder_localclone.cmd import reencryption as reencrypt
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import errors as errors_module
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.service import operator as backend
from cinder_localclone.storage.privsep import reencrypt_process
from tests.helpers import inventory_rows
from tests.helpers import luks_headers
from tests.helpers import specs
from tests.helpers import storage_case

VOLUME = 'bc5cfce0-cd3d-4029-88f4-3c64da986803'
LUKS = '5aa22c9c-0e0a-4a5b-8d9c-1f7a0c3be110'
N1, N2 = 'node1@lc', 'node2@lc'
GIB = 1 << 30


def answer(status='running', done=0, rate=0):
    return {'status': status, 'done': done, 'total': GIB, 'key_bits': 512,
            'cipher': 'aes-xts-plain64', 'rate': rate,
            'seconds_left': (GIB - done) / rate if rate else None}


class RateTest(testtools.TestCase):

    def test_of_late(self):
        clock = iter([0, 2, 4, 20, 22, 23])
        rate = reencrypt.Rate(lambda: next(clock))
        self.assertEqual([0, 50, 50, 5, 20 / 2], [
            rate.update(done) for done in (0, 100, 200, 280, 300)])

    def test_another_one(self):
        clock = itertools.count()
        rate = reencrypt.Rate(lambda: next(clock))
        self.assertEqual([0, 100, 0, 10],
                         [rate.update(done) for done in (0, 100, 5, 15)])


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatch('time.sleep'))
        self.host = N1
        self.peers, self.asked = specs.port('peers'), []
        self.answers = iter(())
        self.backend = types.SimpleNamespace(
            name='lc', call=self.call,
            nodes=lambda: {N1: True, N2: True}, ask=self.ask,
            volume=lambda volume_id: (
                inventory_rows.row(VOLUME, self.host), None))
        self.useFixture(fixtures.MockPatchObject(
            main.LocalClone, 'backend', lambda app: self.backend))

    def call(self, host, name, *arguments):
        return getattr(self.peers, name)(host, *arguments)

    def ask(self, host, method, *arguments):
        self.asked.append((host, method, *arguments))
        return next(self.answers)

    def run_command(self, *argv):
        out = self.useFixture(fixtures.StringStream('stdout')).stream
        with mock.patch('sys.stdout', out), mock.patch(
                'sys.stderr', io.StringIO()) as errors:
            self.code = main.main(['--json', 'reencryption', *argv])
        out.seek(0)
        text = out.read()
        self.errors = errors.getvalue()
        return json.loads(text)[0] if text else None


class CommandTest(Case):

    def test_reencrypt(self):
        self.peers.encryption_reencrypt.return_value = answer(
            done=GIB // 2, rate=1 << 20)
        found = self.run_command(
            'start', VOLUME, '--cipher', 'serpent-xts-plain64',
            '--key-size', '256', '--resilience', 'journal', '--zone', '4')
        self.peers.encryption_reencrypt.assert_called_once_with(
            N1, VOLUME, 'serpent-xts-plain64', 256, 'journal', False, 4)
        self.assertEqual({
            'Volume': VOLUME, 'Node': N1, 'Re-encryption': 'running',
            'Percent': 50.0, 'MiB/s': 1.0, 'Seconds left': 512,
            'Cipher': 'aes-xts-plain64', 'Key bits': 512}, found)
        self.assertEqual(0, self.code)

    def test_pause_and_resume(self):
        self.peers.encryption_pause.return_value = answer('paused')
        self.peers.encryption_resume.return_value = answer('none')
        self.assertEqual('paused', self.run_command(
            'pause', VOLUME)['Re-encryption'])
        found = self.run_command('resume', VOLUME)
        self.assertEqual(('none', None), (found['Re-encryption'],
                                          found['Percent']))

    def test_wait_wherever_it_goes(self):
        self.peers.encryption_reencrypt.return_value = answer()

        def come():
            yield answer(done=1 << 20), ''
            self.host = N2
            yield None, 'it does not answer'
            yield answer('interrupted', 2 << 20), ''
            yield answer('waiting', 3 << 20), ''
            yield answer('none'), ''
        self.answers = come()
        found = self.run_command('start', VOLUME, '--wait')
        self.assertEqual((0, 'none', N2), (
            self.code, found['Re-encryption'], found['Node']))
        self.assertEqual([N1] * 2 + [N2] * 3,
                         [host for host, *_what in self.asked])

    def test_wait_for_what_is_paused(self):
        self.peers.encryption_reencrypt.return_value = answer()
        self.answers = iter([(answer('paused'), '')])
        self.run_command('start', VOLUME, '--wait')
        self.assertEqual(1, self.code)

    def test_volume_of_another_backend(self):
        self.host = 'node1@other'
        self.assertIsNone(self.run_command('pause', VOLUME))
        self.assertEqual(1, self.code)
        self.assertIn('not on a node of the backend lc', self.errors)
        self.peers.encryption_pause.assert_not_called()


@ddt.ddt
class RunTest(Case):

    def setUp(self):
        super().setUp()
        self.crypt, self.keys = specs.port('crypt'), specs.port('keys')
        self.backend.settings = None
        self.backend.crypt = lambda: self.crypt
        self.backend.keys = lambda: self.keys
        self.keys.get.return_value = b'key'
        self.crypt.uuid.return_value = LUKS
        self.note('0f1e2d3c-0000-4000-8000-000000000002')
        self.useFixture(fixtures.MockPatchObject(backend, 'act_as_root'))
        self.become = self.useFixture(fixtures.MockPatchObject(
            reencrypt_process, 'become_cryptsetup')).mock

    def note(self, key, **more):
        """What the LV says that the handle is on."""
        body = storage_case.lv('volume-' + VOLUME, '253:5', tags=names.tags(
            volume=VOLUME, luks=LUKS, key=key, **more))
        left = storage_case.lv('volume-left', '253:6', tags=names.tags(
            volume=VOLUME, luks='another', key='another', zone=2))
        handle = storage_case.device(names.handle(VOLUME), '253:7',
                                     '0 8 linear 253:5 0')
        self.backend.handles = lambda: types.SimpleNamespace(
            survey=lambda: survey.Survey(
                {each.name: each for each in (left, body)},
                {handle.name: handle}))

    def run_it(self, header):
        self.crypt.header.return_value = luks_header.parse(header)
        command = reencrypt.Run(types.SimpleNamespace(
            backend=lambda: self.backend), None)
        command.take_action(types.SimpleNamespace(volume=VOLUME))

    def test_it_becomes_cryptsetup(self):
        self.run_it(luks_headers.STARTED)
        self.become.assert_called_once_with(VOLUME, b'key', 'journal', 16)

    @ddt.data((4, 4), (1, 1), (64, 64), (0, 16), (65, 16), ('x', 16))
    @ddt.unpack
    def test_parts_are_as_large_as_is_noted(self, noted, zone):
        """Nonsense on a disk is not believed."""
        self.note('0f1e2d3c-0000-4000-8000-000000000002', zone=noted)
        self.run_it(luks_headers.STARTED)
        self.become.assert_called_once_with(VOLUME, b'key', 'journal', zone)

    def test_only_by_the_secret_that_is_noted(self):
        for key in ('0f1e2d3c-0000-4000-8000-00000000000f', ''):
            self.note(key)
            self.assertRaises(encryption_exceptions.ForeignHeader, self.run_it,
                              luks_headers.STARTED)
        self.become.assert_not_called()

    def test_nothing_to_do(self):
        self.assertRaises(errors_module.CommandError, self.run_it,
                          luks_headers.PLAIN)
        self.become.assert_not_called()

    def test_it_is_not_listed(self):
        self.assertIn('reencryption run', main.HIDDEN)
        self.assertEqual(sorted(main.COMMANDS), sorted(
            name for name, _found in main.Manager()))
