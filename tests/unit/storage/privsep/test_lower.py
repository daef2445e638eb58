# SPDX-License-Identifier: Apache-2.0
"""What devices of the driver may be stacked on."""

import pathlib
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.service import options
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import lower
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import configured

VOLUME = 'bc5cfce0-cd3d-4029-88f4-3c64da986803'
GEOMETRY = state.Geometry(128, 1, 1)
IQN = 'iqn.2026-11.org.example:localclone-' + VOLUME


@ddt.ddt
class LowerTest(testtools.TestCase):
    """A table leads to no disk of the node's own."""

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(
            sysfs, 'ROOT', str(self.root)))
        self.useFixture(configured.Configured(
            {'other': {'volume_driver': 'x', 'volume_group': 'stock'}},
            volume_driver=options.DRIVER, volume_group='my-vg',
            localclone_metadata_volume_group='fast'))
        handle = names.handle(VOLUME)
        for number, name, uuid in (
                ('253:1', 'my--vg-volume', 'LVM-abc'),
                ('253:2', 'fast-meta', 'LVM-abc'),
                ('253:3', handle, names.device_uuid(handle)),
                ('253:4', 'stock-volume', 'LVM-abc'),
                ('253:5', 'my--vg-volume', 'mine'),
                ('253:6', 'fast--er-volume', 'LVM-abc'),
                ('253:7', handle, 'CRYPT-LUKS2-abc'),
                ('253:8', 'crypt-root', 'CRYPT-LUKS2-abc')):
            self.write(name, 'dev', 'block', number, 'dm', 'name')
            self.write(uuid, 'dev', 'block', number, 'dm', 'uuid')
        for number, session, target in (('8:0', 'session1', IQN),
                                        ('8:16', 'session2', 'iqn.san:1')):
            disk = self.root / 'devices' / session / 'target' / 'block' / 'x'
            disk.mkdir(parents=True)
            (self.root / 'dev' / 'block' / number).symlink_to(disk)
            self.write(target, 'class', 'iscsi_session', session,
                       'targetname')
        (self.root / 'dev' / 'block' / '8:32').mkdir()  # a disk of its own

    def write(self, text, *entry):
        path = self.root.joinpath(*entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + '\n')

    @ddt.data('253:1', '253:2', '253:3', '8:0')
    def test_own(self, number):
        lower.require(dm_tables.linear(8, number))
        lower.require(str(dm_tables.Guard(number, 4, 8)))

    def test_own_tables(self):
        lower.require(dm_tables.error(8))
        lower.require(dm_tables.on_clone(8, '253:3', 16, '253:1'))
        lower.require(dm_tables.clone(8, '253:2', '253:1', '8:0', GEOMETRY))

    @ddt.data('253:4', '253:5', '253:6', '253:7', '253:8', '8:16', '8:32',
              '9:9', '/dev/null', '/nonexistent', '../x')
    def test_others(self, device):
        for table in (dm_tables.linear(8, device),
                      str(dm_tables.Guard(device, 4, 8)),
                      dm_tables.on_clone(8, '253:3', 16, device),
                      dm_tables.clone(8, device, '253:1', '8:0', GEOMETRY),
                      dm_tables.clone(8, '253:2', device, '8:0', GEOMETRY),
                      dm_tables.clone(8, '253:2', '253:1', device, GEOMETRY)):
            self.assertRaises(exceptions.Foreign, lower.require, table)

    @ddt.data('', '0 8', '0 8 linear', '0 8 crypt cipher key 0 253:1 0',
              '0 8 snapshot 253:1 253:2 P 8', '0 8 error\n\n')
    def test_other_tables(self, table):
        self.assertRaises(exceptions.Foreign, lower.require, table)

    def test_groups(self):
        self.assertEqual({'my-vg', 'fast'}, configuration.groups())
        configuration.require_groups('my-vg', 'fast')
        for group in ('stock', 'my', ''):
            self.assertRaises(exceptions.ForeignGroup,
                              configuration.require_groups, group)
        self.useFixture(configured.Configured(
            {'backend_defaults': {'volume_driver': options.DRIVER}}))
        self.assertEqual({'cinder-volumes'}, configuration.groups())

    def test_groups_are_found_once(self):
        """A look at a node asks for them a hundred times."""
        self.assertEqual({'my-vg', 'fast'}, configuration.groups())
        with mock.patch.object(configuration, '_value', autospec=True) as read:
            self.assertEqual({'my-vg', 'fast'}, configuration.groups())
        read.assert_not_called()

    def test_configuration_of_a_command(self):
        self.useFixture(fixtures.MockPatchObject(
            configuration, '_read', configuration._read))
        other = self.useFixture(configured.Configured(
            volume_driver=options.DRIVER, volume_group='other'))
        configuration.use([other.path])
        self.assertEqual([other.path], configuration.files())
        self.assertEqual({'other'}, configuration.groups())
