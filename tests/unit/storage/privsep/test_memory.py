# SPDX-License-Identifier: Apache-2.0
"""Memory that has keys: neither swapped nor dumped."""

import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import fixtures
import testtools

from cinder_localclone.service import operator as backend
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import memory
from cinder_localclone.storage.privsep import reencrypt_process
from tests.helpers import needs

ROOT = pathlib.Path(__file__).resolve().parents[4]
#: In a process of its own: locked memory would be that of all tests.
PROGRAM = '''
from cinder_localclone.storage.privsep import memory
import ctypes, resource
memory.protect()
print(resource.getrlimit(resource.RLIMIT_CORE),
      ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
print(open('/proc/self/status').read())
'''
CAP_IPC_LOCK = 14


class MemoryTest(testtools.TestCase):

    def test_protected(self):
        needs.root(self, 'memory is locked')
        found = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', PROGRAM], cwd=ROOT,
            env=dict(os.environ, PYTHONPATH=str(ROOT)), check=True,
            capture_output=True, text=True, timeout=120)
        said, _line, status = found.stdout.partition('\n')
        self.assertEqual('(0, 0) 0', said)
        effective = int(re.search(r'CapEff:\s*(\w+)', status).group(1), 16)
        if not effective >> CAP_IPC_LOCK & 1:
            self.skipTest('needs CAP_IPC_LOCK: memory is locked')
        locked = int(re.search(r'VmLck:\s*(\d+)', status).group(1))
        self.assertGreater(locked, 1000)

    def test_commands_of_root(self):
        """"node unlock" and whatever else is given a key."""
        with mock.patch.object(memory, 'protect') as protect, \
                mock.patch.object(backend.os, 'geteuid', return_value=0), \
                mock.patch('oslo_privsep.priv_context.PrivContext.'
                           'set_client_mode'):
            backend.act_as_root(None)
        protect.assert_called_once_with()

    def test_daemon_with_keys(self):
        self.useFixture(fixtures.MockPatchObject(
            cryptsetup_keys.context, 'client_mode', False))
        order = []
        with mock.patch.object(memory, 'protect', lambda: order.append(
                'protect')), mock.patch.object(
                    cryptsetup_keys.cryptsetup, 'require_handle',
                    autospec=True,
                    side_effect=lambda _path: order.append('act') or 1 / 0):
            self.assertRaises(
                ZeroDivisionError, cryptsetup_keys.test, '/x', b'K', 30)
        self.assertEqual(['protect', 'act'], order)

    def test_service_that_asks_the_daemon(self):
        """It is not the daemon."""
        self.useFixture(fixtures.MockPatchObject(
            cryptsetup_keys.context, 'client_mode', True))
        with mock.patch.object(
                memory, 'protect') as protect, mock.patch.object(
                    cryptsetup_keys.context, 'start'), mock.patch.object(
                        cryptsetup_keys.context, 'channel') as channel:
            cryptsetup_keys.test('/x', b'K', 30)
        protect.assert_not_called()
        channel.remote_call.assert_called_once()
        self.assertEqual(
            'cinder_localclone.storage.privsep.cryptsetup_keys.test',
            channel.remote_call.call_args.args[0])

    def test_units(self):
        unit = ROOT / 'etc/systemd/cinder-localclone-unlock.service'
        self.assertIn('LimitCORE=0', unit.read_text().splitlines())
        self.assertIn('LimitCORE=0', reencrypt_process.PROPERTIES)
