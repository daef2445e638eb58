# SPDX-License-Identifier: Apache-2.0
"""Which ranges are refilled: blocks of the pool."""

from unittest import mock

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.moves import refill as refilling
from tests.helpers import move_steps_case
from tests.helpers import specs
from tests.helpers import storage_parts


class BlocksTest(move_steps_case.Base):
    """Regions that are larger than what the pool maps."""

    def test_part_of_a_region(self):
        move = mock.Mock(move_id='s', **{
            'geometry.region_sectors': 512, 'token.nonce': 'n'})
        node = specs.node()
        node.lvm.lvs.return_value = {move.destination_lv: mock.Mock(
            tags=frozenset())}
        node.clones.unmapped_blocks.side_effect = ([[1, 2], [9, 3], [16, 3]],
                                                   [])
        node.peers.holes.return_value = [[2, 2]]
        node.clones.refill.return_value = iter([[[1, 2]]])
        node.clones.recorded_as_local.return_value = [[0, 1], [2, 1]]
        comparison = refilling.Comparison(node)
        comparison.expect([move])
        self.assertTrue(comparison.resume(move))
        node.clones.recorded_as_local.assert_called_once_with(move)
        # Regions 2 and 3 are holes of the source.
        node.clones.refill.assert_called_once_with(
            move, node.sessions.attach.return_value, [[1, 2]], 4)
        node.clones.unmapped_blocks.assert_called_with(move, 4)
        node.clones.set_hydration.assert_called_once_with(
            move.move_id, False)
        # What it maps meanwhile would hide what was lost.
        done = [call[0] for call in storage_parts.calls(node)]
        self.assertEqual(
            ['set_hydration', 'recorded_as_local', 'unmapped_blocks'],
            [name for name in done if name in (
                'set_hydration', 'recorded_as_local', 'unmapped_blocks')][:3])

    def test_mark_is_of_all_blocks(self):
        move = mock.Mock(destination_lv='v', move_id='s', **{
            'token.nonce': 'n',
            'geometry.region_sectors': 512,
            'geometry.regions.return_value': 2})
        node = specs.node()
        node.lvm.lvs.return_value = {'v': mock.Mock(tags={names.LACKING})}
        node.lvm.group = 'g'
        node.services.alive_by_host.return_value = {move.source: True}
        node.clones.unmapped_blocks.side_effect = ([[0, 2]], [])
        node.peers.holes.return_value = []
        node.clones.refill.return_value = iter([[[0, 2]]])
        self.assertRaises(exceptions.Lacking,
                          refilling.Comparison(node).ensure_whole, move)

    def test_what_is_told(self):
        for sectors, kib in ((8, 8), (512, 128)):
            self.assertEqual(kib, refilling._kib([[3, 2]], mock.Mock(
                **{'geometry.region_sectors': sectors})))

    def test_regions_that_are_smaller(self):
        move = mock.Mock(move_id='s', **{
            'geometry.region_sectors': 8, 'token.nonce': 'n'})
        node = specs.node()
        node.lvm.lvs.return_value = {move.destination_lv: mock.Mock(
            tags=frozenset())}
        node.clones.unmapped_blocks.side_effect = ([[1, 2]], [])
        node.peers.holes.return_value = [[2, 2]]
        node.clones.refill.return_value = iter([[[1, 1]]])
        self.assertTrue(
            refilling.Comparison(node).ensure_whole(move))
        node.clones.refill.assert_called_once_with(
            move, node.sessions.attach.return_value, [[1, 1]], 1)
