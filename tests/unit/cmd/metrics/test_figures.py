# SPDX-License-Identifier: Apache-2.0
"""Figures of a node for Prometheus."""

import dataclasses

import ddt
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.metrics import figures
from cinder_localclone.cmd.metrics import sources
from cinder_localclone.core import copies
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.db import inventory
from tests.helpers.inventory_rows import A
from tests.helpers.inventory_rows import answers
from tests.helpers.inventory_rows import B
from tests.helpers.inventory_rows import C
from tests.helpers.inventory_rows import database
from tests.helpers.inventory_rows import GIB
from tests.helpers.inventory_rows import lv
from tests.helpers.inventory_rows import MIB
from tests.helpers.inventory_rows import moving
from tests.helpers.inventory_rows import row
from tests.helpers.inventory_rows import SHADOW
from tests.helpers.inventory_rows import V1
from tests.helpers.inventory_rows import V2
from tests.helpers.inventory_rows import V3


def storage(*lvs, clones=None, devices=None, pool=None, **more):
    return sources.Storage(
        survey.Survey({each.name: each for each in lvs}, devices or {}),
        lvm_reports.FreeSpace(5 * GIB, GIB, False),
        lvm_reports.Capacity(10 * GIB, 5 * GIB, 3 * GIB, 2), 'g', pool,
        clones or {}, **more)


def collected(host=B, **values):
    """All values: {(name, label values...): value}."""
    families = figures.Figures(host, 1060.0).collect(
        answers(**values), '1.2')
    return {(sample.name.removeprefix('localclone_'),
             *sample.labels.values()): sample.value
            for family in families for sample in family.samples}


@ddt.ddt
class FiguresTest(testtools.TestCase):

    def test_each_source_by_itself(self):
        self.assertEqual(
            {('info', '1.2'): 1, **{
                ('collector_' + what, name): value
                for name in ('storage', 'database', 'service', 'doctor')
                for what, value in (('success', 0), ('seconds', 0.5))}},
            collected())
        for name, value, shows in (
                ('storage', storage(), ('capacity_bytes',)),
                ('database', database(), ('volumes',)),
                ('service', {'events': {'stalled': 2}, 'refusals': {},
                             'copies': {}}, ('events_total', 'stalled')),
                ('doctor', [], ('doctor_checks', 'OK'))):
            found = collected(**{name: value})
            self.assertEqual(1, found['collector_success', name])
            self.assertIn(shows, found)

    def test_what_is_odd_in_one_hides_none_of_the_others(self):
        found = collected(
            storage=storage(), service={'events': None},
            database=database(volumes=[dataclasses.replace(
                row(V1), status=None, migration_status=7)]),
            doctor=[checks.Finding('a', 'odd')])
        self.assertEqual(
            {'storage': 1, 'database': 1, 'comparison': 0, 'service': 0,
             'doctor': 0},
            {key[1]: value for key, value in found.items()
             if key[0] == 'collector_success'})
        self.assertEqual(1, found['volumes',])

    @ddt.data((Phase.MIGRATING, True, B, 'migrating'),
              (Phase.MIGRATING, False, B, 'preparing'),
              (Phase.STARTING, True, B, 'starting'),
              (Phase.RELEASING, True, A, 'releasing'),
              (Phase.ROLLING_BACK, False, B, 'rolling-back'))
    @ddt.unpack
    def test_one_node_tells_of_a_move(self, phase, committed, host, shown):
        said = database([moving(phase=phase, committed=committed)])
        found = {each: collected(each, database=said) for each in (A, B, C)}
        self.assertEqual({host}, {
            each for each, values in found.items()
            if sum(values['moves', phase] for phase in figures.PHASES)})
        self.assertEqual(1, found[host]['moves', shown])
        self.assertEqual(60, found[host][
            'move_age_seconds', V1, A, B, shown])
        copied = phase not in state.OVER
        self.assertEqual(GIB if copied else None, found[host].get(
            ('move_bytes', V1, A, B)))

    def test_no_value_is_told_twice(self):
        """What moves of one volume have left has the labels of the next one.

        Who scrapes takes nothing at all then.
        """
        for phase, committed, host in (
                (Phase.ROLLING_BACK, False, B), (Phase.RELEASING, True, A)):
            found = figures.Figures(host, 1060.0).collect(answers(
                database=database([moving(), *(
                    moving(phase=phase, committed=committed, record=record)
                    for record in 'st')])), '1.2')
            for family in found:
                told = [tuple(sample.labels.values())
                        for sample in family.samples]
                self.assertEqual(sorted(set(told)), sorted(told),
                                 family.name)

    def test_the_oldest_of_what_is_left_is_told(self):
        left = [inventory.Under(moving(
            phase=Phase.RELEASING, record=record), began)
            for record, began in (('s', 1020.0), ('t', 1000.0),
                                  ('u', 1010.0))]
        found = collected(A, database=dataclasses.replace(
            database(), moves=left))
        self.assertEqual(
            60, found['move_age_seconds', V1, A, B, 'releasing'])
        self.assertEqual(3, found['moves', 'releasing'])

    def test_copies(self):
        positions = {record: copies.Position(copies.Entry(
            record, V1, A, destination, stalled=stalled), position)
            for record, destination, position, stalled in (
                (SHADOW, B, 0, 7.0), ('t', B, 1, 0), ('u', C, 0, 0))}
        found = collected(database=database([moving()], positions=positions))
        self.assertEqual([1, 1, 1], [found['copies', name] for name in (
            'running', 'waiting', 'stalled')])
        self.assertEqual(1, found['move_stalled', V1, A, B])

    def test_services_and_volumes(self):
        found = collected(database=database(
            volumes=[row(V1), row(V2), row(V3, A)]))
        self.assertEqual(
            (1, 0, 2, 4 * GIB), (
                found['service_up', A], found['service_up', B],
                found['volumes',], found['volumes_bytes',]))

    def test_what_nobody_ends(self):
        found = collected(database=database(unended=[inventory.Unended(
            'snapshot', 's', 'restoring', B, 9999)]))
        self.assertEqual((1, 0), (found['unended', 'snapshot'],
                                  found['unended', 'move']))

    def test_pool(self):
        found = collected(storage=storage(lv(
            'pool', size=10 * GIB, allocated=4 * GIB, metadata_size=8 * MIB,
            metadata_used=MIB), pool='pool'))
        self.assertEqual(
            (4 * GIB, 10 * GIB, 0.95, MIB, 8 * MIB, 0.75), tuple(
                found['pool_' + name, what] for what in ('data', 'metadata')
                for name in ('used_bytes', 'size_bytes', 'limit_ratio')))
        self.assertEqual((5 * GIB, GIB), (found['free_bytes', 'volumes'],
                                          found['free_bytes', 'metadata']))
        self.assertNotIn(('pool_used_bytes', 'data'),
                         collected(storage=storage()))

    def metadata(self):
        return lv(names.metadata_lv(SHADOW), *names.tags(volume=V1))

    def test_what_is_copied(self):
        status = dm_tables.CloneStatus(128, 1, 9, 16, 20, 0, True, 'rw')
        said = storage(self.metadata(), clones={SHADOW: status})
        found = collected(storage=said, service={
            'events': {}, 'refusals': {'source_busy': 3},
            'copies': {SHADOW: {'rate': 2.5}, 'of another': {'rate': 1}}})
        self.assertEqual(
            (16 * 128 * 512, 0, 2.5, 3), (
                found['copied_bytes', V1], found['clone_failed', V1],
                found['copy_rate_bytes', V1],
                found['refusals_total', 'source_busy']))
        self.assertNotIn(('copy_pace', V1, 'full'), found)  # older ones
        found = collected(storage=said, service={
            'events': {}, 'refusals': {},
            'copies': {SHADOW: {'rate': None, 'pace': 'floor'}}})
        self.assertEqual([0, 0, 1, 0], [found['copy_pace', V1, pace] for pace
                         in ('full', 'yielding', 'floor', 'limited')])
        failed = dataclasses.replace(status, mode='Fail')
        self.assertEqual(1, collected(storage=storage(
            self.metadata(), clones={SHADOW: failed}))['clone_failed', V1])

    def test_suspended(self):
        device = dm_tables.Device(
            'localclone-' + V1, 'u', '253:9', 0, True, '')
        self.assertEqual(2, collected(storage=storage(
            lv('x', suspended=True), devices={device.name: device}))[
                'suspended_devices',])

    def test_locked(self):
        opened = lv('volume-' + V1, names.OPENED, *names.tags(volume=V1))
        self.assertEqual(1, collected(storage=storage(opened))[
            'locked_volumes',])
        crypt = dm_tables.Device(names.crypt(V1), 'u', '253:9', 0, False, '')
        self.assertEqual(0, collected(storage=storage(
            opened, devices={crypt.name: crypt}))['locked_volumes',])

    def test_reencryption(self):
        found = collected(storage=storage(*(
            lv('volume-' + volume, *names.tags(volume=volume),
               names.REENCRYPTED, *more)
            for volume, more in ((V1, ()), (V2, (names.PAUSED,)), (V3, ()))),
            reencrypting=frozenset([V1]),
            how_far={V1: cryptsetup_cli.Progress(5, 9, 2, 2.0),
                     V2: cryptsetup_cli.Progress(1, 9, 2, 4.0)}))
        self.assertEqual([1, 1, 1], [found['reencryptions', name] for name in
                                     ('running', 'paused', 'waiting')])
        self.assertEqual((5, 9, 2), tuple(
            found['reencrypt' + name, V1] for name in (
                'ed_bytes', 'ion_bytes', 'ion_rate_bytes')))
        self.assertNotIn(('reencrypted_bytes', V2), found)

    def test_node_without_dm_clone(self):
        """The check by which the installation guide names this state."""
        found = collected(doctor=checks.targets('thin-pool v1\n'))
        self.assertEqual(2, found['doctor_check', 'kernel: dm-clone'])
        self.assertEqual(0, found['doctor_check', 'kernel: dm-thin-pool'])
        self.assertEqual(1, found['doctor_checks', checks.FAIL])

    def test_doctor(self):
        found = collected(doctor=[
            checks.Finding('pool', checks.OK),
            checks.Finding('pool', checks.FAIL),
            checks.Finding('clock', checks.WARN)])
        self.assertEqual((1, 1, 1, 2, 1), (
            *(found['doctor_checks', each] for each in figures.VERDICTS),
            found['doctor_check', 'pool'], found['doctor_check', 'clock']))

    def test_differences(self):
        handle = dm_tables.Device(
            names.handle(V1), names.device_uuid(names.handle(V1)), '253:7',
            0, False, '0 %d linear 253:1 0' % (2 * GIB // 512))
        here = dict(volumes=[row(V1), row(V2), row(V3, A)])
        right = storage(
            lv('volume-' + V1, *names.tags(volume=V1)),
            lv('volume-' + SHADOW, *names.tags(volume=V3), number='253:2'),
            devices={handle.name: handle})
        found = collected(storage=right, database=database(**here))
        self.assertEqual((1, 1), (found['differing_volumes',],
                                  found['unknown_lvs',]))
        found = collected(storage=right, database=database(volumes=[row(V1)]))
        self.assertEqual(0, found['differing_volumes',])

    def test_all_have_a_name_a_help_and_a_unit_of_their_own(self):
        for name, metric in figures.METRICS.items():
            self.assertRegex(name, '^localclone_[a-z_]+$')
            self.assertEqual(metric.kind == 'counter',
                             name.endswith('_total'))
            self.assertTrue(metric.help)
            self.assertFalse(set(metric.labels) & {'backend', 'host'})

    def test_labels_are_those_of_the_metric(self):
        made = figures.Figures(B, 0.0)
        for labels in ({}, {'label': 'x'}, {'version': '1', 'more': 'x'}):
            self.assertRaises(ValueError, made._add, 'info', 1, **labels)
