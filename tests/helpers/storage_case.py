# SPDX-License-Identifier: Apache-2.0
"""A node's LVs, handles and clones, above mocks of privileged functions."""

from unittest import mock

import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage import clones
from cinder_localclone.storage import devices
from cinder_localclone.storage import handles
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import links
from cinder_localclone.storage.privsep import lvm
from tests.helpers import specs

GIB = 1 << 30
V1, SHADOW, SNAPSHOT = (
    '%08d-0000-4000-8000-000000000000' % n for n in (1, 2, 3))
MOVE = state.Move(
    V1, SHADOW, state.Token(state.Phase.MIGRATING, 'n',
                            state.Geometry(128, 32, 8)), False, 'a@l', 'b@l',
    'volume-' + V1, 'volume-' + SHADOW, 1,
    location='192.0.2.1:3260,1 iqn.2026-11.org.example:x 0')
META = names.metadata_lv(SHADOW)
FAILED = exceptions.CommandFailed(command='c', code=1, stderr='s')


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.ran = mock.Mock()
        for room in (block, cryptsetup, dmsetup, links, lvm):
            self.ran.attach_mock(specs.Room(original=room),
                                 room.__name__.rpartition('.')[2])
        for module, room in (
                *[(logical_volumes, room) for room in ('block', 'lvm')],
                *[(devices, room) for room in ('block', 'dmsetup')],
                *[(handles, room) for room in (
                    'block', 'cryptsetup', 'dmsetup', 'links')],
                *[(clones, room) for room in ('block', 'dmsetup', 'lvm')]):
            patched = mock.patch.object(module, room, getattr(self.ran, room))
            patched.start()
            self.addCleanup(patched.stop)
        self.make('g-pool')
        self.lvm._extent = 4 << 20
        self.ran.lvm.extent_size.return_value = 4 << 20
        self.ran.dmsetup.ensure_devnode.return_value = False
        self.ran.block.number.return_value = ''
        self.ran.block.lv_number.return_value = ''

    def make(self, pool, stripes=1):
        """Make the node's objects."""
        self.lvm = logical_volumes.Lvm(
            'g', pool, 'fast', 30, 'b@l', stripes)
        self.handles = handles.Handles(self.lvm)
        self.clones = clones.Clones(self.lvm, self.handles)

    def lvs(self, *present):
        self.lvm.lvs = lambda: {each.name: each for each in present}

    def called(self):
        return [name for name in (
            call[0].partition('.')[2] for call in self.ran.mock_calls)
            if name not in ('ensure_devnode', 'lv_number')]

    def assertRan(self, *calls):
        """These, besides looks at the handle's path and at LVs."""
        self.assertEqual(list(calls), [
            call for call in self.ran.mock_calls
            if call[0] not in ('dmsetup.ensure_devnode', 'block.lv_number')])

    def without_lvm(self, lv, number):
        """The kernel has an LV, and LVM is not to be asked."""
        self.ran.block.lv_number.side_effect = lambda group, name: (
            number if (group, name) == ('g', lv) else '')
        self.lvm.lvs = lambda: self.fail('LVM is asked')

    def devices(self, *present):
        self.handles.devices = lambda only=None: {
            each.name: each for each in present
            if only is None or each.name in only}


def device(name, number, table, opened=0, suspended=False):
    return dm_tables.Device(name, names.device_uuid(name), number, opened,
                            suspended, table)


def lv(name, number='', group='g', size=GIB, tags=(), **more):
    return lvm_reports.LogicalVolume(
        group, name, size, number, frozenset(tags), **more)
