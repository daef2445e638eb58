# SPDX-License-Identifier: Apache-2.0
"""Reports of LVM, captured from real nodes."""

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names

SHADOW = '51e30e7e-5c89-49f1-ab06-345647e00115'
LVS = '''{"report": [{"lv": [
{"vg_name":"cinder-volumes", "lv_name":"cinder-volumes-pool", \
"lv_size":"5368709120", "lv_attr":"twi-a-tz--", "lv_tags":"", \
"data_percent":"2.63", "lv_kernel_major":"253", "lv_kernel_minor":"2", \
"metadata_percent":"12.50", "zero":"zero", "lv_uuid":"Abc1-2", \
"pool_lv":"", "origin":"", "lv_metadata_size":"8388608", \
"vg_size":"10737418240", "vg_free":"4194304", "vg_seqno":"7", \
"vg_missing_pv_count":"0"},
{"vg_name":"cinder-volumes", "lv_name":"localclone-meta-%s", \
"lv_size":"4194304", "lv_attr":"-wi-------", \
"lv_tags":"localclone,localclone.deferred", "data_percent":"", \
"lv_kernel_major":"-1", "lv_kernel_minor":"-1", "zero":"", \
"lv_uuid":"Def3-4", "pool_lv":"", "origin":"", \
"metadata_percent":"", "lv_metadata_size":"", \
"vg_size":"10737418240", "vg_free":"4194304", "vg_seqno":"7", \
"vg_missing_pv_count":"0"},
{"vg_name":"cinder-volumes", "lv_name":"volume-%s", \
"lv_size":"1073741824", "lv_attr":"Vwi-aotz--", "lv_tags":"localclone", \
"data_percent":"50.00", "lv_kernel_major":"253", "lv_kernel_minor":"5", \
"zero":"zero", "lv_uuid":"Ghi5-6", "pool_lv":"cinder-volumes-pool", \
"origin":"base", "metadata_percent":"", "lv_metadata_size":"", \
"vg_size":"10737418240", "vg_free":"4194304", "vg_seqno":"7", \
"vg_missing_pv_count":"0"}]}]}''' % (
    SHADOW, SHADOW)


@ddt.ddt
class ReportTest(testtools.TestCase):

    def test_volumes(self):
        found = lvm_reports.parse_volumes(LVS)
        volume = found['volume-' + SHADOW]
        self.assertEqual(('253:5', True, 1 << 29), (
            volume.number, volume.thin, volume.allocated))
        self.assertEqual(
            ('Ghi5-6', 'cinder-volumes-pool', 'base', False, False, True), (
                volume.uuid, volume.pool, volume.origin, volume.plain,
                volume.readonly, volume.opened))
        metadata = found[names.metadata_lv(SHADOW)]
        self.assertEqual(('', True, False), (
            metadata.pool, metadata.plain, metadata.opened))
        for attr, readonly in (('Vri-a-tz--', True), ('VRi-a-tz--', True),
                               ('Vwi-a-tz--', False)):
            self.assertEqual(readonly, lvm_reports.parse_volumes(LVS.replace(
                'Vwi-aotz--', attr))['volume-' + SHADOW].readonly)
        self.assertEqual('', metadata.number)
        self.assertIn('localclone.deferred', metadata.tags)
        self.assertTrue(found['cinder-volumes-pool'].zeroes)
        self.assertFalse(found['cinder-volumes-pool'].thin)
        self.assertEqual((8 << 20, 1 << 20), (
            found['cinder-volumes-pool'].metadata_size,
            found['cinder-volumes-pool'].metadata_used))
        self.assertEqual((0, 0), (volume.metadata_size, volume.metadata_used))
        self.assertFalse(metadata.zeroes)
        self.assertFalse(lvm_reports.parse_volumes(LVS.replace(
            '"zero":"zero"', '"zero":""'))['cinder-volumes-pool'].zeroes)

    @ddt.data(['shown=x'], ['shown='], ['shown=-1'], ['shown=1.5'],
              ['shown=1', 'shown=2'], ['shown=\u0663'], ['shown=1_0'])
    def test_tag_that_is_no_number(self, found):
        """It is never taken for a length: neither is another beside it."""
        for fact, of in (('shown', 'zeroed'), ('given', 'given'),
                         ('extra', 'extra'), ('given', 'shown')):
            lv = lvm_reports.LogicalVolume('g', 'v', 5, '', frozenset(
                'localclone.' + tag.replace('shown', fact) for tag in found))
            error = self.assertRaises(exceptions.UnreadableTag,
                                      getattr, lv, of)
            self.assertIn('LV v ', str(error))

    def test_nothing_beyond_an_lv_is_shown(self):
        for facts in ({'shown': 6}, {'given': 6}, {'shown': 6, 'given': 7}):
            self.assertEqual(5, lvm_reports.LogicalVolume(
                'g', 'v', 5, '', frozenset(names.tags(**facts))).shown)

    def test_tag_of_another_name(self):
        lv = lvm_reports.LogicalVolume('g', 'v', 5, '', frozenset(
            {'localclone.given2=x', 'localclone.given=4'}))
        self.assertEqual(4, lv.given)

    @ddt.data('copied=x', 'extra=x', 'copied=9')
    def test_tag_that_is_no_number_and_free_space(self, tag):
        """Then, or if it says more, the copy may fill all of its LV."""
        move = names.metadata_lv(SHADOW)
        lvs = {name: lvm_reports.LogicalVolume(
            'g', name, 5 << 30, '', frozenset(tags), thin=thin)
            for name, tags, thin in (
                ('volume-' + SHADOW, (), True),
                (move, {'localclone.copied=1', 'localclone.' + tag}
                 if tag.startswith('extra') else {'localclone.' + tag},
                 False))}
        self.assertEqual(5 << 30, lvm_reports.bytes_to_write(lvs))

    def test_groups_of_volumes(self):
        self.assertEqual(
            {'cinder-volumes': lvm_reports.Group(10 << 30, 4 << 20)},
            lvm_reports.groups(lvm_reports.parse_volumes(LVS).values()))

    def test_usage(self):
        found = lvm_reports.parse_volumes(LVS)
        self.assertEqual(lvm_reports.Usage(2.63, 12.5, 75.0),
                         lvm_reports.pool_usage(found, 'cinder-volumes-pool'))
        for none in ('another', None, ''):
            usage = lvm_reports.pool_usage(found, none)
            self.assertEqual(lvm_reports.Usage(), usage)
            self.assertFalse(usage.is_full)

    @ddt.data((94.99, 0, False), (95, 0, True), (0, 79.99, False),
              (0, 80, True), (100, 100, True), (0, 0, False))
    @ddt.unpack
    def test_full(self, data, metadata, full):
        usage = lvm_reports.Usage(data, metadata, 80.0)
        self.assertEqual(full, usage.is_full)
        self.assertIn('%.0f %% of its data' % data, str(usage))
        self.assertIn('full at 95 and 80 %', str(usage))

    @ddt.data((0, 75), (2, 75), (4, 75), (16, 75), (20, 80), (32, 87.5),
              (40, 90), (64, 90), (16384, 90))
    @ddt.unpack
    def test_metadata_limit(self, mib, percent):
        self.assertEqual(percent, lvm_reports.metadata_limit(mib << 20))

    def test_free(self):
        self.assertEqual(
            {'g': lvm_reports.Group(size=85895159808, free=37559992320,
                                    lacks=1)},
            lvm_reports.parse_groups(
                '{"report": [{"vg": [{"vg_name":"g", '
                '"vg_size":"85895159808", "vg_free":"37559992320", '
                '"vg_missing_pv_count":"1"}]}]}'))

    def test_free_for_stripes(self):
        for free, stripes, expected in (
                ([], 2, 0), ([5], 2, 0), ([5], 1, 5), ([5, 3], 1, 8),
                ([5, 5], 2, 10), ([9, 2], 2, 4), ([9, 2, 2], 2, 8),
                ([9, 9, 2], 2, 20), ([9, 9, 2], 3, 6), ([3, 3, 3], 2, 8),
                ([0, 7, 7], 3, 0), ([8, 8, 8, 8], 3, 30)):
            self.assertEqual(expected, lvm_reports.free_for_stripes(
                free, stripes), (free, stripes))

    def test_free_space(self):
        free = lvm_reports.FreeSpace(volumes=100, metadata=10, shared=False)
        self.assertEqual('', free.why_too_small(100, 10))
        self.assertIn('volumes', free.why_too_small(101, 10))
        self.assertIn('metadata', free.why_too_small(100, 11))
        shared = lvm_reports.FreeSpace(volumes=100, metadata=100, shared=True)
        self.assertEqual('', shared.why_too_small(90, 10))
        self.assertIn('volumes and metadata', shared.why_too_small(95, 10))
