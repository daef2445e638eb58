# SPDX-License-Identifier: Apache-2.0
"""What a node reports of a volume; roles that differ in nothing else."""

import types

import ddt
import testtools

from cinder_localclone.cmd.volume import show
from cinder_localclone.core import copies
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import inspection
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.volumes import inspect
from tests.helpers import inventory_rows
from tests.helpers import specs

V1, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
OLD, NEW, META = 'volume-' + V1, 'volume-' + SHADOW, names.metadata_lv(SHADOW)
A, B = 'a@l', 'b@l'
STATUS = dm_tables.CloneStatus(128, 6, 1024, 7, 16384, 1, True, 'rw')
PROGRESS = copies.Progress(25.0, None, None)


def move(phase=Phase.MIGRATING, committed=True):
    return state.Move(
        V1, SHADOW, state.Token(phase, 'n', state.Geometry(128, 32, 8)),
        committed, A, B, OLD, NEW, 1)


def lv(name, number, *tags):
    return lvm_reports.LogicalVolume(
        'g', name, 1 << 30, number, frozenset(tags), uuid='uuid of ' + name)


def device(name, number, table, **more):
    return dm_tables.Device(name, names.device_uuid(name), number, **dict(
        {'opened': 1, 'suspended': False, 'table': table}, **more))


class ShownTest(testtools.TestCase):

    def test_what_is_above_a_handle(self):
        answer = {'lvs': [], 'handle': None, 'clone': None, 'session': None,
                  'progress': None, 'exported': False, 'source': None}
        upper_devices = [{'name': names.crypt(V1), 'opened': 2},
                         {'name': names.guard(V1), 'opened': 0}]
        self.assertEqual(
            [('crypt device', names.crypt(V1) + ', open count 2',
              upper_devices[0]),
             ('header guard', names.guard(V1) + ', open count 0',
              upper_devices[1])],
            list(show._on_node(dict(answer, upper_devices=upper_devices))))


class InspectTest(testtools.TestCase):

    def inspect(self, moving, lvs=(), devices=(), volume=True,
                progress=PROGRESS, pending=()):
        self.node = specs.node(host=B)
        self.node.crypt.backed_up_volumes.return_value = []
        self.node.moves.move_of.return_value = moving
        self.node.moves.pending_cleanups.return_value = list(pending)
        self.node.volumes.volume.return_value = (
            inventory_rows.row(V1, name=NEW) if volume else None)
        self.node.handles.survey.return_value = survey.Survey(
            {each.name: each for each in lvs},
            {each.name: each for each in devices})
        self.node.clones.clone_status.return_value = STATUS
        self.node.sessions.disk.return_value = '/dev/sda'
        self.node.sessions.remotes.return_value = {V1: '/dev/sdb'}
        self.node.exports.is_exported.return_value = False
        self.node.exports.is_source_exported.side_effect = {SHADOW: True}.get
        return inspect.inspect(types.SimpleNamespace(
            node=self.node, progress={SHADOW: progress}.get), V1)

    def test_passed_through(self):
        for on, expected in (('8:16', True), ('253:5', False)):
            found = self.inspect(None, [lv(NEW, '253:5')], [device(
                names.handle(V1), '253:7', '0 1 linear %s 0' % on)])
            self.assertIs(expected, found['remote'], on)

    def test_copying(self):
        found = self.inspect(move(), [
            lv(NEW, '253:5', 'b', 'a'), lv(META, '253:4'), lv('x', '253:1')],
            [device(names.handle(V1), '253:7', '0 1 linear 253:6 0'),
             device(names.clone(SHADOW), '253:6',
                    '0 1 clone 253:4 253:5 8:0')])
        self.assertEqual({
            'host': B, 'exported': False, 'session': '/dev/sda',
            'source': None, 'remote': False, 'upper_devices': [],
            'header_backup': False,
            'handle': {'number': '253:7', 'opened': 1, 'suspended': False,
                       'on': ['clone ' + names.clone(SHADOW)]},
            'lvs': [{'name': META, 'uuid': 'uuid of ' + META, 'size': 1 << 30,
                     'active': True, 'tags': []},
                    {'name': NEW, 'uuid': 'uuid of ' + NEW, 'size': 1 << 30,
                     'active': True, 'tags': ['a', 'b']}],
            'clone': {'region_sectors': 128, 'metadata_used': 6,
                      'metadata_total': 1024, 'hydrated': 7,
                      'regions': 16384, 'hydrating': 1, 'enabled': True,
                      'mode': 'rw'},
            'progress': {'percent': 25.0, 'rate': None,
                         'seconds_left': None, 'pause': 0.0, 'position': 0,
                         'pace': ''}},
            found)
        self.assertEqual([], inspection.differences(found, move(), B, NEW))

    def test_nothing_measured_yet(self):
        found = self.inspect(move(), devices=[
            device(names.clone(SHADOW), '253:6', '0 1 clone a b c')],
            progress=None)
        self.assertIsNone(found['progress'])
        self.assertEqual('rw', found['clone']['mode'])

    def test_at_rest(self):
        found = self.inspect(None, [lv(NEW, '253:5'), lv(OLD, '')], [
            device(names.handle(V1), '253:7', '0 1 linear 253:5 0')])
        self.assertEqual(['LV ' + NEW], found['handle']['on'])
        self.assertEqual([NEW], [each['name'] for each in found['lvs']])
        self.assertIsNone(found['clone'])
        self.node.clones.clone_status.assert_not_called()
        self.node.sessions.disk.assert_not_called()

    def test_source_is_reported_too(self):
        found = self.inspect(move(), [lv(OLD, '')])
        self.assertEqual([(OLD, False)], [
            (each['name'], each['active']) for each in found['lvs']])

    def test_source_device(self):
        found = self.inspect(move(), [lv(OLD, '253:5')], [
            device(names.source(SHADOW), '253:7', '0 1 linear 253:5 0')])
        self.assertEqual({'opened': 1, 'exported': True}, found['source'])
        self.assertEqual([], inspection.differences(
            dict(found, host=A), move(), B, NEW))
        self.assertIsNone(self.inspect(None, [lv(OLD, '253:5')], [
            device(names.source(SHADOW), '253:7', '0 1 linear 253:5 0')])[
                'source'])

    def test_what_is_to_be_removed_here(self):
        there = [lv(OLD, '253:5'), lv(NEW, '253:6'), lv(META, '')]
        for committed, left in ((True, []), (False, [META, NEW])):
            over = move(Phase.RELEASING if committed
                        else Phase.ROLLING_BACK, committed)
            found = self.inspect(None, there, volume=False, pending=[over])
            self.assertEqual(left, [each['name'] for each in found['lvs']])
            wrong = inspection.differences(found, None, A, OLD, [over])
            self.assertEqual(bool(left), bool(wrong))
            for each in wrong:
                self.assertIn(
                    'an ended move has left: %s, %s' % (META, NEW), each)

    def test_nothing(self):
        found = self.inspect(None, volume=False)
        self.assertEqual((None, [], None, None), (
            found['handle'], found['lvs'], found['clone'], found['session']))

    def test_handle_on_what_is_not_known(self):
        found = self.inspect(None, [lv(NEW, '253:5')], [
            device(names.handle(V1), '253:7', '0 1 linear 8:16 0')])
        self.assertEqual(['8:16'], found['handle']['on'])
        wrong, = inspection.differences(found, None, B, NEW)
        self.assertIn('still attached remotely', wrong)

    def test_handle_on_nothing(self):
        found = self.inspect(None, [lv(NEW, '253:5')], [
            device(names.handle(V1), '253:7', '0 1 error ')])
        wrong, = inspection.differences(found, None, B, NEW)
        self.assertIn('on nothing', wrong)


@ddt.ddt
class RoleTest(testtools.TestCase):
    """Which role a node has, told by what it lacks."""

    def wrong(self, host, moving, home, lv='x'):
        over = [moving] if moving and moving.is_over else []
        if over:
            lv = NEW if moving.committed else OLD
        return inspection.differences({
            'host': host, 'handle': None, 'lvs': [], 'clone': None,
            'session': None, 'progress': None, 'exported': False,
            'source': None, 'remote': False, 'upper_devices': [],
            'header_backup': False},
            None if over else moving, home, lv, over)

    COPYING = ['the handle is on nothing, not on the clone',
               'the clone is missing',
               'there is no session with the source',
               'the metadata LV is missing', 'the LV %s is missing' % NEW]
    AT_SOURCE = 'the LV %s is missing' % OLD
    UNSERVED = 'the source is not exported'

    @ddt.data(
        (B, Phase.STARTING, True, COPYING),
        (B, Phase.MIGRATING, True, COPYING),
        (B, Phase.COMPLETING, True, ['the LV %s is missing' % NEW]),
        (B, Phase.RELEASING, True, ['the LV %s is missing' % NEW]),
        (B, Phase.MIGRATING, False, []),
        (B, Phase.ROLLING_BACK, False, []),
        (A, Phase.STARTING, True, [AT_SOURCE, UNSERVED]),
        (A, Phase.MIGRATING, True, [AT_SOURCE, UNSERVED]),
        (A, Phase.COMPLETING, True, [AT_SOURCE, UNSERVED]),
        (A, Phase.RELEASING, True, []),
        (A, Phase.MIGRATING, False, [AT_SOURCE]),
        (A, Phase.ROLLING_BACK, False, [AT_SOURCE]),
        ('c@l', Phase.MIGRATING, True, []))
    @ddt.unpack
    def test_of_a_move(self, host, phase, committed, wrong):
        self.assertEqual(wrong, self.wrong(
            host, move(phase, committed), B if committed else A))

    def test_at_rest(self):
        self.assertEqual(['the LV x is missing'], self.wrong(A, None, A))
        self.assertEqual([], self.wrong(B, None, A))
        self.assertEqual([], self.wrong(A, None, None, None))  # deleted
