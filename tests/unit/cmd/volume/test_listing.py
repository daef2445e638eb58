# SPDX-License-Identifier: Apache-2.0
"""What is listed of nodes and volumes; names; packages; real fields."""

from unittest import mock

from cinder_localclone.cmd import main
from cinder_localclone.cmd.volume import listing as volumes
from cinder_localclone.core import errors
from cinder_localclone.core.state import Phase
from cinder_localclone.core import volume_types
from cinder_localclone.db import inventory
from cinder_localclone.service import operator as backends
from tests.helpers.command_case import A
from tests.helpers.command_case import B
from tests.helpers.command_case import ListingCase
from tests.helpers.command_case import V1
from tests.helpers.command_case import V2
from tests.helpers.command_case import V3
from tests.helpers import inventory_rows


class VolumesTest(ListingCase):

    def test_all(self):
        first, second = self.listed('volume', 'list')
        self.assertEqual(
            [V1, 'one', A, 'available', 2, 'a, ?', '', ''],
            list(first.values())[:-1])
        self.assertEqual(
            [V2, '', B, 'available', 2, '', 'Nova', 'migrating, from ' + A],
            list(second.values())[:-1])
        self.assertEqual((2 << 30, ['a', ''], None), tuple(
            first['Fields'][key] for key in (
                'size_bytes', 'attached_on', 'move')))
        self.assertEqual(
            {'source': A, 'destination': B, 'phase': 'migrating',
             'committed': True}, second['Fields']['move'])

    def test_a_name_makes_no_rows(self):
        """Its owner gives it, and may not tell an operator anything else."""
        name = 'a\n| %s | b\x1b[2J\u202e' % V3
        self.inventory.all_volumes.return_value = [
            inventory_rows.row(V1, A, display_name=name)]
        _code, out, _err = self.run_command('volume', 'list')
        self.assertEqual(5, len(out.splitlines()), out)
        self.assertIn('a | %s | b?[2J? ' % V3, out)
        row, = self.listed('volume', 'list')
        self.assertEqual(name, row['Name'])

    def test_of_a_node(self):
        for name in ('b', B):
            row, = self.listed('volume', 'list', '--node', name)
            self.assertEqual(V2, row['Volume'])
        _code, _out, err = self.run_command('volume', 'list', '--node', 'x')
        self.assertIn('x is not a node of the backend. Its nodes: a@l, b@l',
                      err)

    def test_what_is_over_is_no_move(self):
        self.inventory.all_moves.return_value = [inventory.Under(
            inventory_rows.moving(V2, Phase.RELEASING), 0.0)], 0
        self.assertEqual(['', ''], [
            row['Move'] for row in self.listed('volume', 'list')])

    def test_who_encrypts(self):
        for provider, who in (
                (None, ''), ('lc1:odd', 'unknown'),
                (str(volume_types.Recorded(1 << 24, 'k')),
                 'driver')):
            self.assertEqual(who, volumes.encrypted_by(
                inventory_rows.row(V1, provider_id=provider)))


class NamesTest(ListingCase):

    def found(self, *ids, name='data'):
        backend = mock.Mock(spec=backends.Backend)
        backend.name = 'l'
        backend.db.inventory.ids_named.return_value = list(ids)
        return backends.Backend.find(backend, name)

    def test_one(self):
        self.assertEqual(V1, self.found(V1))

    def test_none(self):
        error = self.assertRaises(errors.CommandError, self.found)
        self.assertIn('There is no volume data', str(error))

    def test_more_than_one_lists_the_ids(self):
        error = self.assertRaises(errors.CommandError, self.found, V1, V2)
        self.assertIn('%s, %s' % (V1, V2), str(error))

    def test_nothing_is_no_name(self):
        """Of a variable that is not set: neither all, nor one unnamed."""
        self.assertRaises(errors.CommandError, self.found, V1, name='')
        for words in (['volume', 'repair', ''], ['volume', 'unlock', '']):
            with mock.patch.object(main.LocalClone, 'volume_id',
                                   side_effect=errors.CommandError('none')):
                code, _out, err = self.run_command(*words)
            self.assertEqual((1, 'none\n'), (code, err), words)

    def test_every_command_that_takes_a_volume_takes_a_name(self):
        """But for those that ask no database."""
        for name, where in {**main.COMMANDS, **main.HIDDEN}.items():
            module, _colon, kind = where.partition(':')
            command = getattr(__import__(
                'cinder_localclone.cmd.' + module, fromlist=[kind]), kind)
            parser = command(main.LocalClone(), None).get_parser(name)
            if 'VOLUME' in parser.format_help():
                self.assertEqual(
                    command.takes_names, 'or name' in parser.format_help(),
                    name)
                self.assertEqual(
                    name in ('node unlock', 'reencryption run'),
                    not command.takes_names, name)

    def test_the_command_gets_the_id(self):
        self.backend.find.side_effect = {'data': V1}.__getitem__
        self.backend.volume.return_value = None, inventory_rows.moving()
        row, = self.listed('move', 'abort', 'data')
        self.assertEqual(V1, row['Volume'])
        self.backend.call.assert_called_once_with(B, 'abort', V1)

    def test_an_id_needs_no_look(self):
        self.assertEqual(V1, main.LocalClone.volume_id(None, V1))
