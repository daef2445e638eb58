# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone move show``."""

from tests.helpers.command_case import A
from tests.helpers.command_case import B
from tests.helpers.command_case import ListingCase
from tests.helpers.command_case import V1
from tests.helpers.command_case import V2
from tests.helpers import inventory_rows


class ShowTest(ListingCase):

    def setUp(self):
        super().setUp()
        self.db.moves.readable_moves.return_value = [
            inventory_rows.moving(V1), inventory_rows.moving(V2)]
        self.backend.ask.return_value = None, 'did not answer'

    def test_show(self):
        found = {row['Field']: row['Value']
                 for row in self.listed('move', 'show', V2)}
        move = inventory_rows.moving(V2)
        self.assertEqual(
            (V2, A, B, True, move.source_lv, move.destination_lv,
             move.move_id, 'did not answer'),
            tuple(found[name] for name in (
                'Volume', 'From', 'To', 'Committed', 'Source LV',
                'Destination LV', 'Record', 'Remark')))
        self.assertEqual(2 * found['Region KiB'],
                         move.token.geometry.region_sectors)
        # Only its own destination is asked.
        self.backend.ask.assert_called_once_with(B, 'inspect', V2)

    def test_volume_that_does_not_move(self):
        self.db.moves.readable_moves.return_value = [inventory_rows.moving(V2)]
        code, out, err = self.run_command('move', 'show', V1)
        self.assertEqual((1, '', 'Volume %s is not moving.\n' % V1),
                         (code, out, err))
