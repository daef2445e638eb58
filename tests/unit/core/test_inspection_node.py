# SPDX-License-Identifier: Apache-2.0
"""A whole node is compared by the same rules as one volume."""

import dataclasses

import ddt
import testtools

from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import survey
from cinder_localclone.core import inspection
from cinder_localclone.core import names
from cinder_localclone.core import rows as volume_rows
from cinder_localclone.core.state import Phase
from tests.helpers import inventory_rows
from tests import world as worlds

A, B, C = 'a@l', 'b@l', 'c@l'
GIB = 1 << 30
V1, V2, SHADOW = inventory_rows.V1, inventory_rows.V2, inventory_rows.SHADOW
STATUS = dm_tables.CloneStatus(128, 1, 9, 4, 16384, 1, True, 'rw')


def device(name, number, table, suspended=False):
    return dm_tables.Device(
        name, names.device_uuid(name), number, 0, suspended, table)


def handle(volume, below, **more):
    return device(names.handle(volume), '253:70',
                  '0 %d linear %s 0' % (GIB // 512, below), **more)


def present(lvs=(), devices=()):
    return survey.Survey({each.name: each for each in lvs},
                         {each.name: each for each in devices})


def volume_lv(volume=V1, owner=None, number='253:1'):
    return inventory_rows.lv('volume-' + volume, *names.tags(
        volume=owner or volume), number=number)


def metadata():
    return inventory_rows.lv(names.metadata_lv(SHADOW), *names.tags(
        volume=V1), number='253:3')


CLONE = device(names.clone(SHADOW), '253:9',
               '0 %d clone 253:3 253:2 8:16 128' % (GIB // 512))


@ddt.ddt
class DifferingTest(testtools.TestCase):

    def differing(self, found, host=A, clones=None, **record):
        return inspection.differing(
            inspection.Record(host, **record), found, clones or {})

    def row(self, host=A, **more):
        return inventory_rows.row(V1, host, **more)

    def test_at_rest(self):
        right = present([volume_lv()], [handle(V1, '253:1')])
        self.assertEqual({}, self.differing(right, volumes=[self.row()]))
        self.assertEqual(
            {V1: ['the handle is on nothing, not on the LV']},
            self.differing(present([volume_lv()]), volumes=[self.row()]))
        self.assertEqual(
            {V1: ['the LV volume-%s is missing' % V1]},
            self.differing(present(), volumes=[self.row()]))

    def test_a_handle_that_is_suspended(self):
        found = present([volume_lv()], [handle(V1, '253:1', suspended=True)])
        self.assertEqual({V1: ['the handle is suspended']},
                         self.differing(found, volumes=[self.row()]))

    @ddt.data('creating', 'deleting', 'error', 'managing',
              'error_managing_deleting')
    def test_volume_that_has_nothing_yet_or_any_more_is_left_out(self, status):
        self.assertEqual({}, self.differing(
            present(), volumes=[self.row(status=status)]))

    def test_what_cinder_copies_is_left_out(self):
        self.assertEqual({}, self.differing(present(), volumes=[
            self.row(migration_status='target:' + V2)]))

    def test_destination(self):
        move = inventory_rows.moving()
        record = dict(moves=[move], volumes=[dataclasses.replace(
            self.row(B), name='volume-' + SHADOW)])
        lvs = [volume_lv(SHADOW, V1, '253:2'), metadata()]
        right = present(lvs, [CLONE, handle(V1, '253:9')])
        self.assertEqual({}, self.differing(
            right, B, {SHADOW: STATUS}, **record))
        waits = dataclasses.replace(STATUS, enabled=False)
        self.assertEqual({V1: ['the clone is not copying']}, self.differing(
            right, B, {SHADOW: waits}, **record))
        self.assertEqual({}, self.differing(
            right, B, {SHADOW: waits}, positions={SHADOW: 2}, **record))
        self.assertEqual({V1: ['the clone is missing']}, self.differing(
            right, B, {}, **record))

    def test_source(self):
        record = dict(moves=[inventory_rows.moving()])
        self.assertEqual({}, self.differing(
            present([volume_lv()]), **record))
        self.assertIn('still on the LV', self.differing(
            present([volume_lv()], [handle(V1, '253:1')]),
            **record)[V1][0])
        self.assertEqual({}, self.differing(present(), C, **record))

    def test_what_a_move_has_left(self):
        move = inventory_rows.moving(phase=Phase.RELEASING)
        self.assertIn('an ended move has left', self.differing(
            present([volume_lv()]), moves=[move])[V1][0])
        self.assertEqual({}, self.differing(present(), moves=[move]))

    def test_snapshots(self):
        snapshot = volume_rows.Snapshot(V2, V1, 1, 'available', A)
        self.assertIn('snapshot %s is missing' % V2, self.differing(
            present(), snapshots=[snapshot])[V1][0])
        self.assertEqual({}, self.differing(present([inventory_rows.lv(
            names.snapshot_lv(V2))]), snapshots=[snapshot]))

    def test_one_that_is_passed_through(self):
        found = present(devices=[handle(V1, '8:32')])
        self.assertEqual({}, self.differing(found, B, volumes=[]))

    def test_unknown_lvs(self):
        found = present([volume_lv(), volume_lv(V2, number='253:2'),
                         inventory_rows.lv('root'), inventory_rows.lv(
                             names.snapshot_lv(SHADOW), *names.tags(
                                 volume=V2, snapshot=SHADOW))])
        self.assertEqual(['volume-' + V2], inspection.unknown_lvs(
            inspection.Record(A, volumes=[self.row()]), found))

    def test_what_is_wiped_is_not_unknown(self):
        """Though its node died before it could take the tags off."""
        found = present([inventory_rows.lv(
            names.to_wipe(A, 12 * 'f'), *names.tags(volume=V2))])
        self.assertEqual([], inspection.unknown_lvs(
            inspection.Record(A), found))


class WorldTest(testtools.TestCase):
    """A node that works differs in nothing, wherever a move is."""

    def compare(self, world):
        for host, node in world.nodes.items():
            rows = node.node.volumes.volumes_of(host)
            moves = node.node.moves.moves_of(host)
            clones = {move.move_id: node.sim_clones.clone_status(
                move.move_id) for move in moves
                if node.sim_handles.survey().clone(move.move_id)}
            record = inspection.Record(host, rows, moves)
            yield host, inspection.differing(
                record, node.sim_handles.survey(), clones)
            yield host, inspection.unknown_lvs(
                record, node.sim_handles.survey())

    def test_a_move(self):
        world = worlds.World()
        volume = world.create_volume(A)
        self.assert_right(world)
        world.nodes[A].move(volume, B)
        world.reconcile()
        move = world.nodes[A].node.moves.move_of(volume.id)
        self.assertIs(Phase.MIGRATING, move.phase)
        self.assert_right(world)
        world.settle()
        self.assertEqual({}, world.move_records)
        self.assert_right(world)
        world.nodes[B].devices.clear()
        self.assertTrue(any(found for _host, found in self.compare(world)))

    def assert_right(self, world):
        for host, found in self.compare(world):
            self.assertFalse(found, host)
