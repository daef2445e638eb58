# SPDX-License-Identifier: Apache-2.0
"""Names of LVs, devices and tags."""

import testtools

from cinder_localclone.core import iscsi
from cinder_localclone.core import names

VOLUME = 'bc5cfce0-cd3d-4029-88f4-3c64da986803'
SHADOW = '51e30e7e-5c89-49f1-ab06-345647e00115'


class NamesTest(testtools.TestCase):

    def test_there_and_back(self):
        self.assertEqual(VOLUME, names.volume_of_handle(
            names.handle(VOLUME)))
        self.assertIsNone(names.volume_of_handle(names.clone(SHADOW)))
        self.assertEqual(SHADOW, names.move_of_clone(names.clone(SHADOW)))
        source = names.source(SHADOW)
        self.assertEqual(SHADOW, names.move_of_source(source))
        self.assertEqual('/dev/mapper/' + source, names.source_path(SHADOW))
        self.assertIsNone(names.move_of_source(names.clone(SHADOW)))
        self.assertIsNone(names.volume_of_handle(source))
        self.assertEqual(SHADOW, names.move_of_metadata(
            names.metadata_lv(SHADOW)))
        iqn = iscsi.move_iqn('iqn.x:', SHADOW)
        self.assertEqual(SHADOW, iscsi.move_of_iqn(iqn))
        remote = iscsi.remote_iqn('iqn.x:', VOLUME, 'iqn.host')
        self.assertEqual(VOLUME, iscsi.volume_of_remote_iqn(
            remote))
        self.assertIsNone(iscsi.move_of_iqn(remote))
        self.assertNotEqual(remote, iscsi.remote_iqn(
            'iqn.x:', VOLUME, 'iqn.other'))

    def test_what_is_the_drivers_own(self):
        every = (names.handle(VOLUME), names.source(SHADOW),
                 names.clone(SHADOW), names.absent_source(SHADOW),
                 names.export_device(VOLUME), names.guard(VOLUME))
        strange = ('localclone-source-x', 'localclone-other-' + SHADOW,
                   'x' + names.source(SHADOW), names.source(SHADOW) + 'x')
        self.assertEqual([True] * 6 + [False] * 4, [
            names.is_device(each) for each in every + strange])
        self.assertEqual([True] * 2 + [False] * 8, [
            names.is_backstore(each) for each in every + strange])

    def test_locks_of_two_nodes_differ(self):
        self.assertNotEqual(names.lock('a', VOLUME), names.lock('b', VOLUME))
