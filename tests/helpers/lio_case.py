# SPDX-License-Identifier: Apache-2.0
"""Exports of the kernel's iSCSI target, which is simulated."""

import os
import pathlib
import sys
from unittest import mock

import fixtures
import tenacity
import testtools

from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import lio
from cinder_localclone.storage.privsep import lio_configfs
from cinder_localclone.storage.privsep import sysfs
from tests.world import fake_lio

V1, V2 = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
IQN = 'iqn.x:localclone-' + V2
OTHER_IQN, THIRD = ('iqn.x:volume-%s-%08d' % (V1, n) for n in (2, 3))
STORE, ANOTHER = ('localclone-' + each for each in (V1, V2))
HOST = 'iqn.2026-11.org.example:host'
DEVICE = '/dev/mapper/' + STORE
ASKED = {'iqn': IQN, 'name': STORE, 'device': DEVICE,
         'serial': 'serial', 'readonly': True, 'address': '192.0.2.11',
         'port': 3260, 'initiator': HOST, 'user': 'user',
         'password': 'secret'}


def export(**changes):
    return lio.export(**dict(ASKED, **changes))


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            privsep.default, 'client_mode', False))
        self.useFixture(fixtures.MockPatchObject(
            lio, '_changes', lio.Changes()))
        self.wait = self.useFixture(fixtures.MockPatchObject(
            lio.tenacity, 'wait_fixed',
            return_value=tenacity.wait_none())).mock
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(
            sysfs, 'ROOT', str(self.root)))
        self.useFixture(fixtures.MockPatchObject(
            lio_configfs, 'ROOT', str(self.root / 'target')))
        self.useFixture(fixtures.MockPatchObject(
            sysfs, 'mapped_name', os.path.basename))
        for device in (STORE, ANOTHER):
            self.discards(1 << 24, device)
        self.lio = fake_lio.Lio()
        patch = mock.patch.dict(sys.modules, rtslib_fb=self.lio.rtslib)
        patch.start()
        self.addCleanup(patch.stop)

    def discards(self, most, device=STORE):
        """What a device takes: bytes."""
        queue = self.root / 'block' / device / 'queue'
        queue.mkdir(parents=True, exist_ok=True)
        (queue / 'discard_max_bytes').write_text('%d\n' % most)
