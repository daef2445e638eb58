# SPDX-License-Identifier: Apache-2.0
"""Which LVs may be managed, as whole tables."""

import ddt
import testtools

from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.volumes import manageable

V1, V2, SHADOW, SNAPSHOT = (
    '%08d-0000-4000-8000-000000000000' % n for n in (1, 2, 3, 4))


def lv(name='data', tags=(), **more):
    return lvm_reports.LogicalVolume(**dict(
        dict(group='g', name=name, size=1 << 30, number='', thin=True,
             pool='pool', uuid='uuid-' + name), tags=frozenset(tags), **more))


def thick(name='data', **more):
    return lv(name, thin=False, pool='', plain=True, **more)


def tagged(**facts):
    return names.tags(**facts)


THIN_ONLY = 'it is not a thin volume of the pool pool'
#: What can't become a volume of a thin backend, and what can't be a snapshot.
REFUSED = (
    (lv(), '', ''),
    # Whether it has an origin says nothing: volumes have them.
    (lv(origin='base'), '', ''),
    (lv('volume-' + V1), '', ''),
    (lv(tags=['somebody', 'owner=else']), '', ''),
    (lv(readonly=True), 'it is read-only', ''),
    (lv('_snapshot-' + SNAPSHOT), 'it is a snapshot', ''),
    (lv(opened=True), 'it is open', 'it is open'),
    (lv(suspended=True, opened=True), 'it is suspended', 'it is suspended'),
    (thick(), THIN_ONLY, THIN_ONLY),
    (lv(pool='other'), THIN_ONLY, THIN_ONLY),
    (lv('pool', thin=False, pool=''), THIN_ONLY, THIN_ONLY),
    (lv('cow', thin=False, pool='', origin='data'), THIN_ONLY, THIN_ONLY),
    (lv(tags=tagged(volume=V1)),
     'it has data of volume %s (localclone.volume)' % V1,
     'it has data of volume %s (localclone.volume)' % V1),
    (lv(tags=tagged(snapshot=SNAPSHOT, of=V1)), 'it is a snapshot',
     manageable.MANAGED),
    (lv(names.metadata_lv(SHADOW)), 'it is the metadata of a move',
     'it is the metadata of a move'),
)


@ddt.ddt
class WhyTest(testtools.TestCase):

    @ddt.data(*REFUSED)
    @ddt.unpack
    def test_thin(self, found, volume, snapshot):
        self.assertEqual(volume, manageable.why_no_volume(found, 'pool', {}))
        self.assertEqual(snapshot, manageable.why_no_snapshot(
            found, 'pool', {}, {}))

    @ddt.data((thick(), ''), (thick(opened=True), 'it is open'),
              (lv(), 'it is not an ordinary (linear) LV'),
              (lv('mirror', thin=False, pool=''),
               'it is not an ordinary (linear) LV'))
    @ddt.unpack
    def test_thick(self, found, volume):
        self.assertEqual(volume, manageable.why_no_volume(found, None, {}))
        self.assertEqual('it is not a thin volume of the pool None',
                         manageable.why_no_snapshot(found, None, {}, {}))

    def test_what_cinder_has_already(self):
        for found in (lv(), lv(tags=tagged(volume=V1)), lv(opened=True)):
            self.assertEqual(manageable.MANAGED, manageable.why_no_volume(
                found, 'pool', {'data': V1}))
            self.assertEqual(manageable.MANAGED, manageable.why_no_snapshot(
                found, 'pool', {'data'}, {}))

    def test_a_snapshot_of_another_volume(self):
        found = lv(origin='base')
        for tags, volume, reason in (
                ((), V1, ''), (tagged(volume=V1), V1, ''),
                (tagged(volume=V1), '', ''),
                (tagged(volume=V2), V1, 'it is a snapshot of volume ' + V2)):
            self.assertEqual(reason, manageable.why_no_snapshot(
                found, 'pool', {}, {'base': lv('base', tags)}, volume))
        self.assertEqual('', manageable.why_no_snapshot(
            found, 'pool', {}, {}, V1))

    @ddt.data((1, 1), (1 << 30, 1), ((1 << 30) + 1, 2), (3 << 30, 3))
    @ddt.unpack
    def test_whole_gib(self, size, expected):
        self.assertEqual(expected, manageable.whole_gib(size))

    @ddt.data(('error_managing_deleting', 3, True), ('deleting', 0, True),
              ('deleting', 3, False), ('unmanaging', 1, False))
    @ddt.unpack
    def test_what_was_never_managed(self, status, size, expected):
        self.assertEqual(expected, manageable.was_not_managed(status, size))


class FindTest(testtools.TestCase):

    lvs = {each.name: each for each in (
        lv(), lv('other'), lvm_reports.LogicalVolume(
            'h', 'elsewhere', 1, '', frozenset(), uuid='far'))}

    def test_references(self):
        for reference, expected in (
                ({'source-name': 'data'}, 'data'),
                ({'source-id': 'uuid-other'}, 'other'),
                ({'source-name': 'data', 'source-id': 'uuid-other'}, 'data')):
            self.assertEqual(expected, manageable.find(
                self.lvs, 'g', reference).name)
        for reference in ({'source-name': 'elsewhere'}, {'source-id': 'far'},
                          {'source-name': 'no'}, {'source-id': ''}):
            self.assertIsNone(manageable.find(self.lvs, 'g', reference))
        self.assertRaises(KeyError, manageable.find, self.lvs, 'g', {})

    def test_id(self):
        self.assertEqual(V1, manageable.id_in('volume-' + V1))
        self.assertEqual(V1, manageable.id_in(V1))
        self.assertEqual('', manageable.id_in('data'))
        self.assertEqual(V1, manageable.id_in('volume-%s-x' % V1))


class ListTest(testtools.TestCase):

    def listed(self, how, known, *present, pool='pool'):
        return {entry.pop('reference')['source-name']: entry for entry in how(
            {each.name: each for each in present}, 'g', pool, known)}

    def test_volumes(self):
        found = self.listed(
            manageable.volumes, {'volume-' + V1: V1},
            lv('volume-' + V1, tagged(volume=V1), opened=True),
            lv('volume-' + SHADOW, tagged(volume=V2)), lv(size=1 << 29),
            lv('open', opened=True), thick('root'), lv('_snapshot-x'),
            lv(names.metadata_lv(SHADOW)), lv('far', group='h'),
            lv('s', tagged(snapshot=SNAPSHOT)),
            lv('pool', thin=False, pool=''))
        self.assertEqual({
            'data': {'size': 1, 'safe_to_manage': True,
                     'reason_not_safe': None, 'cinder_id': None,
                     'extra_info': {'source-id': 'uuid-data'}},
            'open': {'size': 1, 'safe_to_manage': False,
                     'reason_not_safe': 'it is open', 'cinder_id': None,
                     'extra_info': {'source-id': 'uuid-open'}},
            'volume-' + V1: {
                'size': 1, 'safe_to_manage': False, 'cinder_id': V1,
                'reason_not_safe': manageable.MANAGED,
                'extra_info': {'source-id': 'uuid-volume-' + V1}},
            'volume-' + SHADOW: {
                'size': 1, 'safe_to_manage': False, 'cinder_id': None,
                'reason_not_safe': 'it has data of volume %s '
                '(localclone.volume)' % V2,
                'extra_info': {'source-id': 'uuid-volume-' + SHADOW}},
        }, found)

    def test_thick_volumes(self):
        self.assertEqual({'data'}, set(self.listed(
            manageable.volumes, {}, thick(), lv('thin'),
            thick(names.metadata_lv(SHADOW)), pool=None)))

    def test_snapshots(self):
        mine = '_snapshot-' + SNAPSHOT
        present = (
            lv(mine, tagged(snapshot=SNAPSHOT), readonly=True, origin='base'),
            lv('_snapshot-x', size=(1 << 30) + 1), lv(),
            lv('copy', origin='data'), lv('far', origin='data', group='h'),
            lv('volume-' + V1, tagged(volume=V1), origin='data'),
            thick('_snapshot-y'), lv('pool', thin=False, pool=''))
        found = self.listed(manageable.snapshots, {mine: SNAPSHOT}, *present)
        self.assertEqual({mine, '_snapshot-x', 'copy'}, set(found))
        self.assertEqual({
            'size': 1, 'safe_to_manage': False, 'cinder_id': SNAPSHOT,
            'reason_not_safe': manageable.MANAGED,
            'source_reference': {'source-name': 'base'},
            'extra_info': {'source-id': 'uuid-' + mine}}, found[mine])
        self.assertEqual({
            'size': 2, 'safe_to_manage': True, 'cinder_id': None,
            'reason_not_safe': None,
            'source_reference': {'source-name': None},
            'extra_info': {'source-id': 'uuid-_snapshot-x'}},
            found['_snapshot-x'])
        self.assertEqual({}, self.listed(
            manageable.snapshots, {}, *present, pool=None))
