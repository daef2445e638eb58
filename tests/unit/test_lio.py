# SPDX-License-Identifier: Apache-2.0
"""What the kernel's target serves, and what is withdrawn from it."""

import sys
from unittest import mock

import fixtures
import futurist
import testtools

from cinder_localclone import privileged
from cinder_localclone.privileged import lio


class UnexportTest(testtools.TestCase):
    """Two targets of one device share its backstore."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            privileged.default, 'client_mode', False))
        self.useFixture(fixtures.MockPatchObject(
            lio, '_worker', futurist.SynchronousExecutor()))
        self.targets, self.stores = [], [mock.Mock(attached_luns=[])]
        self.stores[0].name = 'handle'
        self.stores[0].delete.side_effect = self.stores.clear
        for iqn in ('iqn.first', 'iqn.second'):
            self._serve(iqn)
        rtslib = mock.Mock()
        rtslib.RTSLibError = ValueError
        self.remembered = rtslib.tcm.bs_cache
        rtslib.FabricModule.return_value.targets = self.targets
        rtslib.RTSRoot.return_value.storage_objects = self.stores
        patch = mock.patch.dict(sys.modules, rtslib_fb=rtslib)
        patch.start()
        self.addCleanup(patch.stop)

    def _serve(self, iqn):
        target, luns = mock.Mock(wwn=iqn, tpgs=[]), self.stores[
            0].attached_luns

        def delete():
            self.targets.remove(target)
            luns.remove(iqn)
        target.delete.side_effect = delete
        luns.append(iqn)
        self.targets.append(target)

    def test_what_another_target_serves_stays(self):
        self.assertTrue(lio.unexport('iqn.first', 'handle'))
        self.assertEqual(1, len(self.stores))
        self.assertTrue(lio.unexport('iqn.second', 'handle'))
        self.assertEqual([], self.stores)

    def test_what_others_removed_is_not_remembered(self):
        # Else rtslib says that what is gone exists, as long as it runs.
        lio.unexport('iqn.first', 'handle')
        self.remembered.clear.assert_called_with()

    def test_nothing_to_withdraw(self):
        self.assertFalse(lio.unexport('iqn.third', 'handle'))
        self.assertEqual(2, len(self.targets))
        self.assertFalse(lio.unexport('iqn.third', 'other'))

    def test_an_unused_backstore_goes(self):
        del self.targets[:], self.stores[0].attached_luns[:]
        self.assertTrue(lio.unexport('iqn.third', 'handle'))
        self.assertEqual([], self.stores)
