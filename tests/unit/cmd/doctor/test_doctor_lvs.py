# SPDX-License-Identifier: Apache-2.0
"""LVs with a name in a row, on a node without this volume."""

from unittest import mock

import testtools

from cinder_localclone.cmd.doctor import doctor
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from tests.world import images

B = 'b@l'


class UnknownTest(testtools.TestCase):

    def check(self, volume):
        backend = mock.Mock(host=B)
        backend.lvm().lvs.return_value = {
            volume.name: lvm_reports.LogicalVolume(
                'g', volume.name, 1 << 30, '9:9',
                frozenset(names.tags(volume=volume.id)))}
        backend.db.volumes.volumes_of.return_value = []
        backend.db.volumes.volumes_with_wrong_host.return_value = []
        backend.db.volumes.service_of.return_value = volume.host[:3]
        backend.db.moves.moves_of.return_value = []
        backend.db.volumes.volume.side_effect = {volume.id: volume}.get
        self.assertEqual([volume.name], [*doctor._unknown_lvs(backend)])

    def test_node_that_was_forgotten_and_is_back(self):
        """Its volume was given up; the row names its LV, at another node."""
        self.check(images.volume('v', 'c@l', status='error'))

    def test_copied_disk(self):
        """The volume is at home elsewhere, also by its service."""
        self.check(images.volume('v', 'c@l', status='available'))
