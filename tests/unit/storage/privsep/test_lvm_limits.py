# SPDX-License-Identifier: Apache-2.0
"""What keeps a node from taking a volume: its disks' sectors, and LVM."""

import dataclasses
import os
import types
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.move import listing as moves
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import node as nodes
from cinder_localclone.core.state import Phase
from cinder_localclone.nova import block_storage
from cinder_localclone.nova import placement
from cinder_localclone.service import assembly
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import lvm
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import commands
from tests.helpers import deferred_case
from tests.helpers import specs
from tests import world as worlds

A, B = deferred_case.A, deferred_case.B


@ddt.ddt
class BlockSizeTest(testtools.TestCase):
    """A volume keeps its logical block size wherever it goes."""

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.a, self.b = (self.world.nodes[host] for host in (A, B))
        self.volume = self.world.create_volume(A)

    @ddt.data((512, 4096, False), (512, 4096, True), (4096, 512, False))
    @ddt.unpack
    def test_a_node_with_others_is_no_destination(self, here, there, live):
        self.a.block, self.b.block = here, there
        start = len(self.world.done)
        error = self.assertRaises(exceptions.NotReady, self.a.move,
                                  self.volume, B, live)
        self.assertIn('its disks have sectors of %d bytes, the volume has '
                      'sectors of %d bytes' % (there, here), str(error))
        self.assertEqual([], self.world.effects(B, start))
        self.assertIsNone(self.a.node.moves.move_of(self.volume.id))

    def test_the_destination_looks_at_the_disk_itself(self):
        """Its group has got other disks since its service described it."""
        self.b.block = 4096
        describe = self.a.node.peers.describe
        self.useFixture(fixtures.MockPatchObject(
            self.a.node.peers, 'describe',
            lambda *what: dict(describe(*what), block=512)))
        self.assertRaises(exceptions.NotReady, self.a.move, self.volume, B)
        self.assertIsNone(self.a.node.moves.move_of(self.volume.id))

    def test_of_the_same_size_it_moves(self):
        self.a.block = self.b.block = 4096
        self.assertTrue(self.a.move(self.volume, B).committed)

    def test_doctor_compares_the_nodes(self):
        self.assertEqual([], checks.sectors({A: 512, B: 512}))
        finding, = checks.sectors({A: 512, B: 4096, 'c@l': 512})
        self.assertEqual(
            (checks.FAIL, '512 bytes: a@l, c@l; 4096 bytes: b@l; no volume '
             'can move between them'), (finding.verdict, finding.details))

    def test_nova_is_told(self):
        """Cinder's scheduler says what each node has."""
        pools = [{'name': host + '@l#p', 'capabilities': dict(
            localclone_destination=True, free_capacity_gb=9, **more)}
            for host, more in (('a', {'localclone_sector_size': 512}),
                               ('b', {'localclone_sector_size': 4096}),
                               ('c', {'localclone_sector_size': 512}),
                               ('d', {}))]
        backends = block_storage.backends(pools, [
            {'host': host + '@l', 'state': 'up'} for host in 'abcd'])
        outlook = placement.Outlook(
            (placement.Volume('v', 1, 'a', 'l'),), backends)
        self.assertEqual(
            'its disks have sectors of 4096 bytes, the volume\'s home has '
            'sectors of 512 bytes', outlook.refusal('b'))
        for host in 'acd':
            self.assertEqual('', outlook.refusal(host))
        stays = placement.Outlook((dataclasses.replace(
            outlook.volumes[0], stays=True),), backends)
        self.assertEqual('', stays.refusal('b'))


class DeferredTest(deferred_case.Case):

    def test_a_deferred_move_is_left_undone(self):
        """The guest goes on over iSCSI, in blocks of 512."""
        guest = deferred_case.Guest((), ('cut',))
        guest.detach(B)
        guest.attach(A)
        guest.nodes[A].block = 4096
        with mock.patch.object(events, 'say') as said:
            guest.live_on()
        errors = [str(call.kwargs['error']) for call in said.mock_calls
                  if call.args[0] == events.DEFERRED_MOVE_FAILED]
        self.assertTrue(errors)
        for error in errors:
            self.assertIn('sectors of 4096 bytes', error)
        self.assertIs(guest.nodes[B], guest.world.home(guest.volume))
        guest.read()


class SysfsTest(testtools.TestCase):

    def test_of_a_disk_and_of_a_partition(self):
        root = self.useFixture(fixtures.TempDir()).path
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.storage.privsep.sysfs.ROOT', root))
        disk = os.path.join(root, 'devices', 'vda')
        os.makedirs(os.path.join(disk, 'queue'))
        os.makedirs(os.path.join(disk, 'vda1'))
        os.makedirs(os.path.join(root, 'dev', 'block'))
        with open(os.path.join(disk, 'queue', 'logical_block_size'),
                  'w') as file:
            file.write('4096\n')
        for number, place in (('8:0', disk), ('8:1', disk + '/vda1')):
            os.symlink(place, os.path.join(root, 'dev', 'block', number))
            self.assertEqual(4096, sysfs.logical_block(number))
        self.assertEqual(0, sysfs.logical_block('8:2'))
        self.assertEqual(0, sysfs.logical_block(''))


@ddt.ddt
class OwnBlockTest(commands.Case):

    def disks(self, **sizes):
        self.commands.answer('vgs', ''.join(
            '  %s\n' % path for path in sizes))
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.storage.logical_volumes.block.logical_block',
            sizes.__getitem__))
        return logical_volumes.Lvm('g', 'pool', 'g', 30, 'a@l')

    def test_of_its_disks(self):
        """Those of one that is missing are not known."""
        lvm = self.disks(vdb=512, **{'[unknown]': 0})
        self.assertEqual([512] * 2, [lvm.own_block(), lvm.own_block()])
        self.assertEqual(1, len(self.commands.ran))

    def test_not_known(self):
        lvm = self.disks(**{'[unknown]': 0})
        self.assertRaises(exceptions.OddDisks, lvm.own_block)


@ddt.ddt
class ChangesTest(commands.Case):
    """LVM refuses every change: the node takes no volume, and says so."""

    def setUp(self):
        super().setUp()
        self.room = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.storage.logical_volumes.lvm.archive_space',
            autospec=True, return_value=('/etc/lvm/archive', 1 << 30))).mock
        self.lvm = logical_volumes.Lvm('g', 'pool', 'meta', 30, 'a@l')

    def lvs(self, lacks=0, group='meta'):
        return {name: lvm_reports.LogicalVolume(
            name, name, 9, '', frozenset(), group_size=9,
            group_lacks=lacks * (name == group)) for name in ('g', 'meta')}

    def test_all_is_well(self):
        self.lvm.check_groups(self.lvs())
        self.room.return_value = '', 0  # it archives nothing
        self.lvm.check_groups(self.lvs())

    @ddt.data('g', 'meta')
    def test_a_disk_is_missing(self, group):
        error = self.assertRaises(
            exceptions.DiskMissing, self.lvm.check_groups,
            self.lvs(2, group))
        self.assertIn('Volume group %s on a@l lacks 2 of its disks' % group,
                      str(error))

    def test_an_empty_group_is_asked(self):
        self.commands.answer('vgs', '''{"report": [{"vg": [
{"vg_name":"g","vg_size":"9","vg_free":"9","vg_missing_pv_count":"0"},
{"vg_name":"meta","vg_size":"9","vg_free":"9","vg_missing_pv_count":"1"}
]}]}''')
        self.assertRaises(exceptions.DiskMissing, self.lvm.check_groups, {})

    def test_no_room_for_the_archive(self):
        self.room.return_value = '/etc/lvm/archive', (1 << 20) - 1
        error = self.assertRaises(
            exceptions.NoArchive, self.lvm.check_groups, self.lvs())
        self.assertIn('/etc/lvm/archive has 1023 KiB', str(error))

    def test_doctor_names_the_remedy(self):
        def check():
            self.lvm.check_groups(self.lvs(1, 'g'))
        finding, = checks.changes('g', check)
        self.assertEqual(checks.FAIL, finding.verdict)
        self.assertIn('vgreduce --removemissing g', finding.fix)
        self.assertEqual([], checks.changes('g', lambda: None))
        self.room.return_value = '/etc/lvm/archive', 0
        finding, = checks.changes(
            'g', lambda: self.lvm.check_groups(self.lvs()))
        self.assertEqual(checks.FAIL, finding.verdict)
        self.assertIn('/etc/lvm/archive has 0 KiB', finding.details)

    def service(self, lvs):
        self.lvm.lvs = lambda: lvs
        self.lvm.space = lambda _lvs: (lvm_reports.FreeSpace(5, 5, False),
                                       lvm_reports.Capacity(9, 5, 0, 0))
        node = specs.node(listing=mock.create_autospec(
            nodes.Listing, instance=True))
        node.listing.ask.return_value = lvs
        lvs['pool'] = dataclasses.replace(lvs['g'], zeroes=True)
        return assembly.Service(
            'b', node, self.lvm, mock.Mock(), mock.Mock(), [])

    def test_the_node_takes_no_volume(self):
        """Neither one that moves here nor a new one."""
        service = self.service(self.lvs(1, 'g'))
        self.assertIn('lacks 1 of its disks', service.condition().outage)
        _room, (problem,), _to_wipe = service.readiness()
        self.assertEqual(service.condition().outage, problem)
        self.assertEqual(9, service.condition().capacity.total)

    def test_it_takes_volumes_again(self):
        self.assertEqual('', self.service(self.lvs()).condition().outage)

    @ddt.data((Phase.COMPLETING, B), (Phase.RELEASING, A))
    @ddt.unpack
    def test_the_remark_of_a_move_says_it(self, phase, waiting):
        move = types.SimpleNamespace(
            volume_id='v', source=A, destination=B, display_phase=phase,
            size_gib=1, is_over=False, committed=True, phase=phase)
        asked = mock.Mock()
        asked.db.moves.readable_moves.return_value = [move]
        asked.ask.return_value = {'problems': ['LVM is full']}, ''
        row, = moves.progress(asked)
        self.assertEqual('LVM is full', row['Remark'])
        asked.ask.assert_called_once_with(waiting, 'describe')
        asked.ask.return_value = {'problems': []}, ''
        self.assertEqual('', moves.progress(asked)[0]['Remark'])
        asked.ask.return_value = None, 'no answer'
        self.assertEqual(
            'no answer', moves.progress(asked)[0]['Remark'])


@ddt.ddt
class ArchiveTest(commands.Case):

    def answer(self, directory, archives=1):
        self.commands.answer(
            'lvmconfig', 'archive=%d\narchive_dir="%s"\n' % (
                archives, directory))

    def test_where_it_will_be(self):
        """LVM creates the directory when it needs it."""
        root = self.useFixture(fixtures.TempDir()).path
        self.answer(root + '/not/yet')
        directory, room = lvm.archive_space(30)
        self.assertEqual(root + '/not/yet', directory)
        self.assertLess(0, room)

    @ddt.data('archive', '')
    def test_no_absolute_path(self, directory):
        """The search for what is there comes to an end."""
        self.answer(directory)
        self.assertEqual(directory, lvm.archive_space(30)[0])

    def test_none(self):
        self.answer('/nowhere', archives=0)
        self.assertEqual(('', 0), lvm.archive_space(30))

    @ddt.data(dict(f_bfree=3), dict(f_bfree=0), dict(f_ffree=0),
              dict(f_flag=os.ST_RDONLY))
    def test_full(self, found):
        self.answer('/etc')
        known = dict(dict(f_bfree=3, f_frsize=4096, f_files=9, f_ffree=9,
                          f_flag=0), **found)
        with mock.patch.object(lvm.os, 'statvfs', autospec=True,
                               return_value=types.SimpleNamespace(**known)):
            _directory, room = lvm.archive_space(30)
        self.assertEqual(3 * 4096 * (found == {'f_bfree': 3}), room)
