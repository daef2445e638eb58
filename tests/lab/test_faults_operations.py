# SPDX-License-Identifier: Apache-2.0
"""The fault matrix: which cells its operations have, and their steps."""

import ast
import dataclasses
import importlib
import inspect
import itertools
import json
import pathlib
import sys
import tempfile
import types
from unittest import mock

from cinder.tests.unit import utils
from cinder.volume import volume_utils
import ddt
import fixtures
import testtools

from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core import names
from cinder_localclone.core import pins
from cinder_localclone.core.state import Event
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from lab.core import process
from lab.faults import cells
from lab.faults import plan
from lab.faults import scaling
from lab.faults import stepping
from lab.scenarios import checks
from lab.scenarios import owners
from lab.scenarios.repeated import OPERATIONS
from lab.scenarios import requests
from lab.scenarios import snapshot as snapshots
from tests.helpers import records_case
from tests.world import images

ROOT = pathlib.Path(__file__).parents[2]
V, SNAPSHOT, UNCOMMITTED, SHADOW = ['%s%s' % (letter * 8, '-0000' * 3 + '-'
                                              + '0' * 12) for letter in 'abcd']
#: Of the privileged functions, those that only look.
READERS = {
    'block': {'head_is_zero', 'identity', 'size', 'completed_reads',
              'written_sectors', 'number', 'lv_number', 'logical_block'},
    'lio_configfs': {'exports', 'hanging', 'targets', 'unfinished',
                     'unused_backstores'},
    'dmsetup': {'survey', 'status', 'targets', 'clone_statuses',
                'send'},  # a copy that goes on is none of the driver's
    'iscsiadm': {'disks', 'initiator_name', 'is_down', 'known_portal',
                 'recorded'},
    'lvm': {'volumes', 'transactions', 'free', 'group_tags',
            'extent_size', 'free_of_disks', 'physical_volumes',
            'archive_space'},
    'lio': {'is_exported'},
    'thin_pool': {'block_size', 'check_metadata_writable'},
    'refill': {'forget_read', 'local_regions'},
    'links': {'targets'}, 'network': {'ipsec_policies'},
    'cryptsetup_keys': {'test', 'test_backup', 'test_ended'},
    'reencrypt_process': {'is_running', 'obstacle', 'running',
                          'progress_output',
                          'stop_sessions'}, 'sealed_keys': {'volumes'},
    'cryptsetup': {'damaged_copies', 'dump', 'luks_uuid', 'payload_sectors',
                   'version'},
    'header_backups': {'dump', 'listed', 'volumes'}}


def privileged():
    """(module, name) of all that runs as root."""
    for path in sorted(
            (ROOT / 'cinder_localclone/storage/privsep').glob('*.py')):
        for each in ast.parse(path.read_text()).body:
            if isinstance(each, ast.FunctionDef) and any(
                    ast.unparse(decorator).endswith('entrypoint')
                    for decorator in each.decorator_list):
                yield path.stem, each.name


class EffectsTest(testtools.TestCase):

    def test_all_that_changes_something_is_a_step(self):
        steps = {(module.rpartition('.')[2], name)
                 for module, names in stepping.EFFECTS.items()
                 for name in names}
        readers = {(module, name) for module, names in READERS.items()
                   for name in names}
        self.assertEqual(set(privileged()), steps | readers)
        self.assertEqual(set(), steps & readers)

    def test_each_sweep_and_reader_exists(self):
        for module, wrapped in (
                *stepping.LOOKS.items(),
                *((module, [name])
                  for module, name in stepping.SWEEPS.items())):
            found = importlib.import_module('cinder_localclone.' + module)
            self.assertEqual([], [name for name in wrapped
                                  if not callable(getattr(found, name, ''))])

    def test_methods_say_first_which_volume_they_are_called_for(self):
        for where, called in stepping.METHODS.items():
            module, _dot, kind = where.rpartition('.')
            found = vars(getattr(importlib.import_module(
                'cinder_localclone.' + module), kind))
            self.assertEqual([], [
                name for name in called
                if list(inspect.signature(found[name]).parameters)[1] not in (
                    'move', 'volume', 'volume_id', 'snapshot_id')])


@ddt.ddt
class LabelTest(testtools.TestCase):

    @ddt.data(
        ('create_snapshot', ('g', 'volume-' + V, '_snapshot-' + SNAPSHOT),
         'create_snapshot volume'),
        ('create_snapshot', ('g', '_snapshot-' + SNAPSHOT, 'volume-' + V),
         'create_snapshot snapshot'),
        ('remove', ('cinder-volumes', '_snapshot-' + SNAPSHOT, 30),
         'remove snapshot'),
        ('retag', ('g', 'localclone-meta-' + SHADOW, ['x'], []),
         'retag metadata'),
        ('end_session', ('iqn.2026-11.org.example:remote-%s-1-2-3' % V, 30),
         'end_session remote'),
        ('end_session', ('iqn.2026-11.org.example:localclone-' + SHADOW, 30),
         'end_session export'),
        ('swap_flushed', ('localclone-' + V, '0 8 linear 8:0 0', '/dev/sda'),
         'swap_flushed handle'))
    @ddt.unpack
    def test_label(self, name, args, label):
        self.assertEqual(label, stepping.label_of(name, args, False))

    def test_record(self):
        self.assertEqual('set_home', stepping.label_of(
            'set_home', (UNCOMMITTED, 'node1', 'node2'), True))


class OwnersTest(testtools.TestCase):
    """Whose the work on an id is."""

    def setUp(self):
        super().setUp()
        self.rows = {V: V, SNAPSHOT: V, UNCOMMITTED: SNAPSHOT}
        self.steps = stepping.Steps(
            pathlib.Path('/none'), 'node1', lambda key: self.rows.get(key))

    def test_of_what_is_made_of_it(self):
        for args in (('g', 'volume-' + V), (UNCOMMITTED, 'node1', 'node2'),
                     ('g', '_snapshot-' + SNAPSHOT),
                     (types.SimpleNamespace(volume_id=V),),
                     (Volume.of(images.volume(UNCOMMITTED, 'a@l')),)):
            self.assertEqual(V, self.steps.volume(args))
        self.assertIsNone(self.steps.volume(('cinder-volumes', 30)))

    def test_what_is_being_made_has_no_row_yet(self):
        self.steps.volume(('g', '_snapshot-' + SNAPSHOT, 'volume-' + SHADOW))
        self.assertEqual(V, self.steps.volume(('g', 'volume-' + SHADOW)))

    def test_what_nobody_knows_is_asked_again(self):
        self.assertEqual(SHADOW, self.steps.volume(('volume-' + SHADOW,)))
        self.rows[SHADOW] = V
        self.assertEqual(V, self.steps.volume(('volume-' + SHADOW,)))

    def test_database_is_away(self):
        find = mock.Mock(side_effect=OSError('away'))
        known = owners.Owners(find)
        self.assertIsNone(known.of(UNCOMMITTED))
        find.side_effect = self.rows.get
        self.assertEqual(V, known.of(UNCOMMITTED))

    def test_record(self):
        for status, volume in (('target:' + V, V), ('deleting', None),
                               (None, None)):
            self.assertEqual(volume, owners.moving_volume(
                types.SimpleNamespace(migration_status=status)))


class OwnersInDatabaseTest(records_case.Base):

    def owner(self, key):
        return owners.Owners(owners.in_database).of(key)

    def test_of_a_move(self):
        for moved in (self.begin, self.begin):
            move = self.moves.commit(moved())
            for each in (move.move_id, self.volume.id, move.source_lv[-36:],
                         move.destination_lv[-36:]):
                self.assertEqual(self.volume.id, self.owner(each))
            self.moves.finish(self.drain(move), Event.SOURCE_REMOVED)
            # Its LV is named after the shadow, which is gone.
            self.assertEqual(self.volume.id, self.owner(move.move_id))
            self.volume = self.reload()
            self.volume.host = records_case.A + '#p'
            self.volume.save()

    def test_of_images(self):
        snapshot = utils.create_snapshot(self.context, self.volume.id)
        made = [utils.create_volume(
            self.context, volume_type_id=None, **image) for image in (
                {'snapshot_id': snapshot.id}, {'source_volid': self.volume.id},
                {'display_name': 'beside ' + self.volume.id},
                {'display_name': 'besides'}, {})]
        self.assertEqual(
            [self.volume.id] * 4 + [made[3].id, made[4].id],
            [self.owner(each.id) for each in (snapshot, *made)])
        self.assertIsNone(self.owner(UNCOMMITTED))


class StillTest(testtools.TestCase):

    def test_copy_that_is_held_back(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        steps = stepping.Steps(pathlib.Path(directory.name), 'node1',
                               {SHADOW: V, V: V}.get)
        asked = []
        set_hydration = stepping.unless_still(
            steps, lambda _stack, record, enabled: asked.append(enabled))
        still = pathlib.Path(directory.name, V + '.still')
        for change in (lambda: None, still.touch, still.unlink):
            change()
            set_hydration(None, SHADOW, True)
        set_hydration(None, SHADOW, False)
        self.assertEqual([True, False, True, False], asked)


class AsideTest(testtools.TestCase):

    def test_look_that_stays_holds_nobody_up(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        steps = stepping.Steps(pathlib.Path(directory.name), 'node1')
        stays, seen = mock.Mock(), []
        observe = stepping.aside(steps, lambda node: (
            seen.append(node), stays(), 'seen')[-1])
        self.assertEqual('seen', observe('a'))
        stop = pathlib.Path(directory.name, V + '.stop')
        stop.touch()
        waits = importlib.import_module('threading').Event()
        self.addCleanup(waits.set)
        stays.side_effect = lambda: waits.wait(10)
        self.assertTrue(observe('b'))
        process.wait_for('the look', lambda: seen == ['a', 'b'], 5, every=.01)
        self.assertTrue(observe('c'))
        self.assertEqual(['a', 'b'], seen)


class ScalingTest(testtools.TestCase):
    """What goes out comes back as it was asked for."""

    def setUp(self):
        super().setUp()
        self.out, self.replaced = [], set()
        for name in ('create', 'swap_table', 'swap_flushed',
                     'replace_suspended', 'discard_beneath', 'survey'):
            self.real('storage.privsep.dmsetup', name, ())
        for name in ('create_thick', 'create_thin', 'extend', 'volumes',
                     'zero', 'zero_decrypted'):
            self.real('storage.privsep.lvm', name)
        self.real('storage.privsep.thin_pool', 'largest_holes')
        self.real('storage.privsep.thin_pool', 'all_holes')
        self.real('core.formats.lvm_reports', 'bytes_to_write', 1600)
        cleared = self.useFixture(fixtures.MockPatch(
            'cinder.volume.volume_utils.clear_volume')).mock
        self.cleared = cleared.mock_calls
        self.real('storage.privsep.block', 'identity', (100, 'serial'))
        self.real('storage.privsep.block', 'size', 100)
        self.real('storage.privsep.cryptsetup', 'payload_sectors', 4096)
        self.real('storage.privsep.cryptsetup_keys', 'format_luks2')
        self.real('core.pinning', 'pin')
        self.real('core.pinning', '_why_not_allowed')
        self.patch(volume_types, 'HEADER_BYTES',
                   volume_types.HEADER_BYTES)
        before = self.functions()
        scaling.shrink(16)
        # What else it changes would stay for all that comes after.
        self.assertEqual(set(), {
            name for name, function in self.functions().items()
            if function is not before[name]} - self.replaced)

    @staticmethod
    def functions():
        return {(module, name): value
                for module, loaded in list(sys.modules.items())
                if module.startswith('cinder_localclone.')
                for name, value in vars(loaded).items() if callable(value)}

    def real(self, module, name, result=None):
        found = importlib.import_module('cinder_localclone.' + module)

        def called(*args, **kwargs):
            self.out.append(args)
            return result
        self.patch(found, name, called)
        self.replaced.add((found.__name__, name))
        setattr(self, name, lambda *args, **kwargs: getattr(found, name)(
            *args, **kwargs))

    def test_tables(self):
        whole = '0 1600 linear 253:1 0\n1600 1600 linear 253:2 1600'
        part = '0 100 linear 253:1 0\n100 100 linear 253:2 100'
        self.create('localclone-' + V, 'uuid', whole, 30, readonly=True)
        self.swap_table('localclone-' + V, whole, 30)
        self.swap_flushed('localclone-' + V, whole, '/dev/sda', 30)
        self.replace_suspended('clone', '0 1600 clone a b c 128 1 x', 30)
        self.discard_beneath(
            'handle', 'clone', '0 1600 clone a b c 128 1 x', [(0, 9)], 9, 9,
            30)
        self.assertEqual([part, part, part, '0 100 clone a b c 128 1 x',
                          '0 100 clone a b c 128 1 x'], [
            next(arg for arg in args if str(arg).startswith('0 '))
            for args in self.out])

    def test_listed(self):
        part = '0 100 linear 253:1 0\n100 10 linear 253:1 100'
        devices = [['localclone-x', 'u', '253:7', 1, False, part],
                   ['localclone-y', 'u', '253:8', 0, True, ''],
                   ['luks-z', 'u', '253:9', 0, False, part]]
        self.assertEqual([
            ('localclone-x', 'u', '253:7', 1, False, '0 1600 linear 253:1 0\n'
             '1600 160 linear 253:1 1600'),
            ('localclone-y', 'u', '253:8', 0, True, ''),
            ('luks-z', 'u', '253:9', 0, False, part)],
            scaling.as_listed(devices, lambda sectors: sectors * 16))

    def test_half_encrypted_anew(self):
        """The driver is to find the sectors where its header says."""
        (_name, table), = scaling.as_listed([(
            names.crypt(V), '0 100 crypt aes-xts-plain64 k 0 253:1 32768 1 d\n'
            '100 10 crypt aes-xts-plain64 k 100 253:1 32868 1 d')],
            lambda sectors: sectors * 16)
        self.assertEqual(
            '0 1600 crypt aes-xts-plain64 k 0 253:1 32768 1 d\n'
            '1600 160 crypt aes-xts-plain64 k 1600 253:1 34368 1 d', table)

    def test_reported(self):
        rows = [{'lv_name': name, 'lv_size': '100'} for name in (
            'volume-x', '_snapshot-x', 'localclone-meta-x', 'pool')]
        found = json.loads(scaling.reported(json.dumps(
            {'report': [{'lv': rows}]}), lambda size: size * 16))
        self.assertEqual(['1600', '1600', '100', '100'], [
            row['lv_size'] for row in found['report'][0]['lv']])

    def test_sizes(self):
        self.create_thin('g', 'pool', 'volume-x', 1600, [], 30)
        self.extend('g', 'volume-x', 1600, 30)
        self.largest_holes('g', 'volume-x', 1600, 64, 30)
        self.zero_decrypted('g', 'volume-x', names.crypt(V), 1600, 3200, 30)
        self.assertEqual([('g', 'pool', 'volume-x', 100, [], 30),
                          ('g', 'volume-x', 100, 30),
                          ('g', 'volume-x', 100, 64, 30),
                          ('g', 'volume-x', names.crypt(V), 100, 200, 30)],
                         self.out)
        self.assertEqual(100, self.bytes_to_write({}))
        self.assertEqual((1600, 'serial'), self.identity('/dev/sda'))
        self.assertEqual(1600, self.size('/dev/sda'))
        self.assertEqual(1600, self.size(names.crypt_path(V)))
        self.assertEqual(100, self.size('/dev/g/localclone-meta-x'))

    def test_sizes_of_thick_ones(self):
        self.create_thick('g', 'volume-x', 1600, [], 30)
        self.create_thick('g', 'localclone-meta-x', 1600, [], 30)
        self.zero('g', 'volume-x', 1600, 3200, 30)
        self.assertEqual([('g', 'volume-x', 100, [], 30),
                          ('g', 'localclone-meta-x', 1600, [], 30),
                          ('g', 'volume-x', 100, 200, 30)], self.out)
        volume_utils.clear_volume(1024, '/dev/x', volume_clear='zero')
        self.assertEqual([mock.call(64, '/dev/x', volume_clear='zero')],
                         self.cleared)

    def test_headers_are_as_long_as_elsewhere(self):
        self.assertEqual(256 << 20, volume_types.HEADER_BYTES)
        self.format_luks2('/dev/mapper/localclone-' + V,
                          cryptsetup_cli.new_header(
                              volume_types.Encryption(), V), b'key', 30)
        self.assertEqual(16 << 20, self.out[0][1].offset)
        self.assertEqual(4096 * 16, self.payload_sectors('/dev/x', 30))

    def test_pin(self):
        encryption = volume_types.Encryption()
        self.pin(encryption, 256 << 20, 'digest')
        self.assertEqual([(encryption, 16 << 20, 'digest')], self.out)
        found = pins.Pin('aes-xts-plain64', 512, 512, '', 16 << 20, 'digest')
        self._why_not_allowed(found)
        self.assertEqual(
            (dataclasses.replace(found, data_offset=256 << 20),),
            self.out[-1])


#: As undisturbed runs have them.
MOVING = ['source before flush handle', 'source begin',
          'destination create_thin volume', 'source commit',
          'destination enable_hydration', 'source finish: source removed']
STEPS = {
    'snapshot': ['source before flush handle', 'source locate',
                 'source create_snapshot volume'],
    'delete a snapshot elsewhere': ['source before remove snapshot',
                                    'source remove snapshot'],
    'volume from a snapshot elsewhere': [
        'destination before place', 'destination place',
        'source create_snapshot snapshot', 'source extend volume',
        'source create handle', 'source remove_tag volume'],
    'clone': ['source before flush handle', 'source create_snapshot volume'],
    'revert across nodes': ['source create_snapshot snapshot',
                            'destination add_tag volume',
                            'destination replace_backing'],
    'extend during hydration': ['destination before retag volume',
                                'destination extend volume',
                                'destination swap_table handle'],
    'completion of what was extended': ['destination flush handle',
                                        'destination swap_table handle'],
    'migrate': MOVING, 'drain': MOVING,
    're-encrypt': ['source before add_tag volume', 'source add_tag volume'],
    'deferred move': ['source before begin', 'destination create_thin volume',
                      'source commit', 'destination swap_flushed handle',
                      'destination end_session remote']}

#: As the last run of all cells had them.
FOUND = json.loads((
    pathlib.Path(__file__).parents[2] / 'doc' / 'source' / 'contribute'
    / 'fault_matrix.json').read_text())['steps']


@ddt.ddt
class PlanTest(testtools.TestCase):

    def cells(self, name):
        return [cell for cell in plan.all_cells(STEPS)
                if cell.operation == name]

    @ddt.data(('snapshot', 9), ('delete a snapshot elsewhere', 10),
              ('volume from a snapshot elsewhere', 30), ('clone', 6),
              ('revert across nodes', 15), ('extend during hydration', 15),
              ('completion of what was extended', 10),
              # What comes after is as in a move.
              ('migrate', 25), ('drain', 25), ('deferred move', 25))
    @ddt.unpack
    def test_every_step_meets_each_fault(self, name, count):
        found = [cell for cell in self.cells(name) if cell.step != 'whole']
        self.assertEqual(count, len(found))
        faults = {cell.fault for cell in found}
        self.assertEqual(set(OPERATIONS[name].faults), faults)
        self.assertLessEqual(faults, set(cells.FAULTS))
        for fault in faults:
            taken = [cell.step for cell in found if cell.fault == fault]
            self.assertEqual(STEPS[name][:len(taken)], taken)

    def batches(self, steps=STEPS, width=16):
        return [batch for batch in plan.batches(plan.all_cells(steps), width)
                if batch[0].step != 'whole']

    @ddt.data(*itertools.product((STEPS, FOUND), (8, 16, 64)))
    @ddt.unpack
    def test_what_one_node_can_have_at_once(self, steps, width):
        environment = types.SimpleNamespace(
            nodes={'node1': 'one', 'node2': 'two'})
        for each in self.batches(steps, width):
            batch = cells.Batch(environment, each, {})
            for way in (('one', 'two'), ('two', 'one')):
                sorts = [cells.sort_of(cell) for cell, its in zip(
                    each, batch.ways) if its == way]
                self.assertLessEqual(len(sorts) - sorts.count('others'),
                                     plan.ASKING)
            # One at a time can hold the lock of a node's room.
            locked = [way[not cell.step.startswith('source ')]
                      for cell, way in zip(each, batch.ways)
                      if cells.sort_of(cell) == 'alone']
            self.assertEqual(len(set(locked)), len(locked), each)
            self.assertLessEqual(len(each), width)

    def test_each_is_run_once(self):
        every = [cell for cell in plan.all_cells(STEPS)
                 if cell.step != 'whole']
        self.assertEqual(sorted(map(str, every)), sorted(
            str(cell) for batch in self.batches() for cell in batch))

    def test_drains_go_one_way(self):
        environment = types.SimpleNamespace(
            nodes={'node1': 'one', 'node2': 'two'})
        drains = [batch for batch in self.batches()
                  if any(cell.operation == 'drain' for cell in batch)]
        for each in drains:
            self.assertEqual({'drain'}, {cell.operation for cell in each})
            self.assertEqual(1, len(set(cells.Batch(
                environment, each, {}).ways)))

    def test_what_slows_a_link_is_among_its_like(self):
        """And among few, or they keep each other waiting."""
        most = [len(batch) for batch in self.batches(FOUND) if all(
            cell.operation == 'delete during hydration' for cell in batch)]
        self.assertEqual({OPERATIONS['delete during hydration'].most, 4},
                         {max(most)})
        for batch in self.batches() + self.batches(FOUND):
            self.assertEqual(1, len({OPERATIONS[cell.operation].alike
                                     for cell in batch}))


@ddt.ddt
class SortTest(testtools.TestCase):
    """Who waits for an answer, or holds others up, comes to its step last."""

    @ddt.data(('extend during hydration', 'destination extend volume',
               'alone'),
              ('extend during hydration', 'destination before retag volume',
               'alone'),
              ('deferred move', 'destination create_thin volume', 'alone'),
              ('migrate', 'source commit', 'asking'),
              ('revert across nodes', 'source create_snapshot snapshot',
               'asking'),
              ('revert across nodes', 'destination replace_backing', 'others'),
              ('snapshot', 'source create_snapshot volume', 'others'))
    @ddt.unpack
    def test_sort(self, operation, step, sort):
        self.assertEqual(sort, cells.sort_of(
            cells.Cell(operation, step, 'kill source')))


class BatchTest(testtools.TestCase):

    def test_volumes_begin_where_they_are_to(self):
        environment = types.SimpleNamespace(
            nodes={'node1': 'one', 'node2': 'two'})
        batch = cells.Batch(environment, [
            cells.Cell('deferred move', 'source begin', 'kill source'),
            cells.Cell('migrate', 'source begin', 'kill source'),
            cells.Cell('move back', 'source begin', 'kill source')], {})
        self.assertEqual(['two', 'one', 'two'], [
            batch._begin(index, batch.kinds[index].moved)
            for index in range(3)])


class Answers:
    """A Cinder API for one thing: what it shows, asked again and again."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.asked = []

    def request(self, _method, path):
        status = (self.statuses.pop(0) if len(self.statuses) > 1
                  else self.statuses[0])
        kind = path.split('/')[1][:-1]
        return types.SimpleNamespace(
            status_code=200 if status else 404,
            raise_for_status=lambda: types.SimpleNamespace(json=lambda: {
                kind: {'id': SNAPSHOT, 'status': status}}))

    def get(self, _path):
        return types.SimpleNamespace(json=lambda: {'messages': [
            {'resource_uuid': SNAPSHOT, 'user_message': 'told why'}]})

    def _act(self, path, json=None):
        self.asked.append(path)
        return types.SimpleNamespace(
            status_code=202, raise_for_status=lambda: None,
            json=lambda: {'snapshot': {'id': SNAPSHOT}})

    post = delete = _act


class SnapshotTest(testtools.TestCase):
    """A user who asks until there is a snapshot, and until there is none."""

    def setUp(self):
        super().setUp()
        self.patch(requests.time, 'sleep', lambda seconds: None)
        self.patch(snapshots, 'DELETING', -1)

    def snapshot(self, *statuses, asked=True):
        self.api = Answers(*statuses)
        disk = mock.Mock(volume=V, cinder=self.api)
        disk.lab.cinder.return_value = self.api
        found = snapshots.Snapshot(disk)
        found.id = SNAPSHOT if asked else None
        return found

    def test_first_time(self):
        self.snapshot('creating', 'available', asked=False).ensure()
        self.assertEqual(['/snapshots'], self.api.asked)

    def test_it_is_there(self):
        self.snapshot('available').ensure()
        self.assertEqual([], self.api.asked)

    def test_it_may_yet_be_there(self):
        self.assertRaises(process.LabError, self.snapshot('creating').ensure)

    def test_one_in_error_is_deleted_first(self):
        self.snapshot('error', 'error', None, 'available').ensure()
        self.assertEqual(['/snapshots/' + SNAPSHOT, '/snapshots'],
                         self.api.asked)

    def test_refusal_says_why(self):
        found = self.snapshot('error', asked=False)
        error = self.assertRaises(process.LabError, lambda: (
            found.send(), found.wait()))
        self.assertIn('told why', str(error))

    def test_delete_that_nobody_ends(self):
        self.snapshot('deleting', 'deleting', None).delete()
        self.assertEqual(['/snapshots/%s/action' % SNAPSHOT,
                          '/snapshots/' + SNAPSHOT], self.api.asked)

    def test_change_is_seen(self):
        found = self.snapshot('available')
        found.disk.verify_lv.side_effect = [
            {'digest': each} for each in ('a', 'a', 'b')]
        found.verify(mock.Mock())
        found.verify(mock.Mock())
        self.assertRaises(process.LabError, found.verify, mock.Mock())


class BlameTest(testtools.TestCase):

    def test_whose_a_problem_is(self):
        self.patch(checks.observe, 'sql', lambda _lab, statement: [
            ['move of ' + V]] if SHADOW in statement else [])
        for problem, ids in (
                ('device localclone-clone-%s is left' % SHADOW, {SHADOW, V}),
                ('handle localclone-%s is not on x' % V, {V}),
                ('the service of node1 has ended', set())):
            self.assertEqual(ids, checks.blamed(None, problem))


class ChecksTest(testtools.TestCase):
    """What is left on a node, or lacks, is named."""

    text = (
        '== lvs\n  cinder-volumes-pool|253|0|\n'
        '  volume-{v}|253|5|localclone.volume={v}\n'
        '== devices\nlocalclone-{v}|Active\ncinder--volumes-x|Active\n'
        '== tables\nlocalclone-{v}: 0 131072 linear 253:5 0\n'
        '== pools\np: 0 100 thin-pool 5 1/9 2/9 - rw x\n'
        '== sessions\n== records\n== exports\n== backstores\n').format(v=V)
    row = {'id': V, 'backing': V, 'host': 'node1', 'status': 'available',
           'migration': '', 'size': '1', 'recorded': '',
           'attached': 'detached'}

    def problems(self, *changes, **row):
        text = self.text
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        node = mock.Mock()
        node.name = 'node1'
        node.lab.settings = {'stepping': 16}
        node.run.return_value.stdout = text
        return list(checks.node_problems(node, [dict(self.row, **row)]))

    def test_nothing(self):
        self.assertEqual([], self.problems())

    def test_snapshot_is_left(self):
        self.assertEqual(['LV _snapshot-x is left'], self.problems(
            ('== devices', '_snapshot-x|-1|-1|a=b\n== devices')))

    def test_mark_is_left(self):
        found, = self.problems(
            ('localclone.volume=', 'localclone.uncommitted,x'))
        self.assertIn('is still tagged localclone.uncommitted', found)

    def test_lv_is_suspended(self):
        found, = self.problems(('x|Active', 'x|Suspended'))
        self.assertIn('cinder--volumes-x is suspended', found)

    def test_map_is_left(self):
        found, = self.problems((' - rw', ' 77 rw'))
        self.assertIn('not released', found)

    def test_handle_in_two_parts(self):
        name = 'localclone-' + V
        found, = self.problems((
            name + ': 0 131072', name + ': 0 65536 linear 253:5 0\n'
            + name + ': 65536 65536'))
        self.assertIn('is not on', found)

    def test_encrypted(self):
        longer = '131072', '163840'
        crypt = '== tables', 'localclone-crypt-%s|Active\n== tables' % V
        recorded = {'recorded': 'lc2:luks2:%d:live:::key' % (256 << 20)}
        self.assertEqual([], self.problems(longer, **recorded))
        self.assertEqual([], self.problems(
            longer, crypt, attached='attached', **recorded))
        self.assertEqual(
            ['device localclone-crypt-%s is left' % V],
            self.problems(longer, crypt, **recorded))
        self.assertEqual(
            ['device localclone-crypt-%s is missing' % V],
            self.problems(longer, attached='attached', **recorded))
        found, = self.problems(**recorded)
        self.assertIn('is not on', found)

    def test_handle_of_another_length(self):
        found, = self.problems(('131072', '262144'))
        self.assertIn('is not on', found)
