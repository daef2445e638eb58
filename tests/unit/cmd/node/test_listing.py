# SPDX-License-Identifier: Apache-2.0
"""What is listed of nodes."""

from tests.helpers.command_case import A
from tests.helpers.command_case import B
from tests.helpers.command_case import ListingCase


class NodesTest(ListingCase):

    def test_figures_are_numbers(self):
        first, second = self.listed('node', 'list')
        self.assertEqual(
            [A, 'up', 'z', 1, 2, 5, 0, 1, 0, 0, ''],
            list(first.values())[:-1])
        self.assertEqual(
            [B, 'up', 'z', 1, 2, 5, 1, 0, 2, 1, ''],
            list(second.values())[:-1])
        self.assertEqual(
            {'ready': True, 'up': True, 'disabled': False,
             'free_bytes': 5 << 30, 'free_metadata_bytes': 1 << 30},
            first['Fields'])

    def test_one_that_is_down_is_not_asked(self):
        self.backend.nodes.return_value = {A: False}
        row, = self.listed('node', 'list', code=1)
        self.assertEqual(('down', None), (row['Service'], row['Free GiB']))
        self.backend.ask.assert_not_called()

    def test_one_of_two_is_down(self):
        self.backend.nodes.return_value = {A: True, B: False}
        first, second = self.listed('node', 'list', code=1)
        self.assertEqual(('up', 'down'), (first['Service'], second['Service']))

    def test_one_that_cannot_take_volumes(self):
        for self.backend.ask.return_value, words in (
                ((None, 'did not answer'), 'did not answer'),
                (({'free_space': {'volumes': 0, 'metadata': 0},
                   'problems': ['no dm-clone']}, ''), 'no dm-clone')):
            self.inventory.service.return_value.disabled = True
            for row in self.listed('node', 'list', code=1):
                self.assertIn('disabled', row['Remark'])
                self.assertIn(words, row['Remark'])

    def test_a_table_has_no_fields(self):
        self.assertNotIn('Fields', self.run_command('node', 'list')[1])
