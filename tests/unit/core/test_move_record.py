# SPDX-License-Identifier: Apache-2.0
"""The columns of a move record: one module writes and reads them."""

import ast
import pathlib
import re
import types

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import state
from cinder_localclone.core.state import Asked
from cinder_localclone.core.state import Phase
from cinder_localclone.core import statuses

ROOT = pathlib.Path(move_record.__file__).parents[1]
TOKEN = state.Token(Phase.MIGRATING, 'n', state.Geometry(128, 32, 8))
#: Cinder's other uses of "previous_status" and "migration_status" are not of
#: move records; "provider_location" is also that of a snapshot.
COLUMNS = re.compile('replication_driver_data|replication_extended_status|'
                     'display_description|provider_auth|target:.*')


def row(**values):
    return types.SimpleNamespace(**{
        'migration_status': None, 'replication_driver_data': None,
        'replication_extended_status': None, 'previous_status': None,
        'status': 'available', **values})


def record(committed=False, **values):
    return row(**{
        'id': 's', 'name_id': 'v' if committed else 's',
        'name': 'volume-' + ('v' if committed else 's'), 'host': 'b@l#p',
        'size': 3, **move_record.encode(
            'v', TOKEN, 'p,1 iqn 0', 'CHAP u s', 'i', None, 'a@l'), **values})


def named(path):
    """The columns that a module's code, not its docstrings, names."""
    for node in ast.walk(ast.parse(path.read_text())):
        text = (node.attr if isinstance(node, ast.Attribute) else
                node.arg if isinstance(node, ast.keyword) else
                node.value if isinstance(node, ast.Constant) else None)
        if isinstance(text, str) and COLUMNS.fullmatch(text):
            yield '%s:%d %s' % (path.relative_to(ROOT), node.lineno, text)


@ddt.ddt
class MoveRecordTest(testtools.TestCase):

    def test_no_other_module_knows_its_columns(self):
        self.assertEqual([], [
            each for path in sorted(ROOT.rglob('*.py'))
            if path != pathlib.Path(move_record.__file__)
            for each in named(path)])

    @ddt.data(False, True)
    def test_what_is_written_is_read_back(self, committed):
        volume = row(host='a@l#p', name='volume-v', size=5)
        found = move_record.decode(
            record(committed), volume, 'volume-s')
        ends = ('b@l', 'a@l') if committed else ('a@l', 'b@l')
        self.assertEqual(state.Move(
            'v', 's', TOKEN, committed, *ends, 'volume-v', 'volume-s', 3,
            'p,1 iqn 0', 'CHAP u s', 'i', 5), found)

    def test_volume_that_is_gone(self):
        found = move_record.decode(record(), None, 'volume-s')
        self.assertEqual(('a@l', 'b@l', '', 'volume-s', 0), (
            found.source, found.destination, found.source_lv,
            found.destination_lv, found.volume_gib))

    @ddt.data({'replication_driver_data': 'lc1:hovering:n:1:2:3'},
              {'replication_driver_data': None},
              {'provider_id': 'lc9:what'})
    def test_record_that_is_not_understood(self, values):
        self.assertRaises(exceptions.InvalidToken, move_record.decode,
                          record(**values), None, 'volume-s')

    @ddt.data((None, Asked.ATTACH), ('', Asked.ATTACH),
              ('whatever', Asked.ATTACH), ('deferred', Asked.DEFERRED),
              ('migration; stalled since 7', Asked.MIGRATION))
    @ddt.unpack
    def test_who_asked(self, text, asked):
        self.assertIs(asked, move_record.asked_by(
            row(replication_extended_status=text)))

    def test_stalled(self):
        found = record()
        self.assertEqual(0, move_record.stalled_since(found))
        move_record.hold(row(), found, Asked.DEFERRED)
        for since, read in ((7, 7.0), (9, 9.0), (None, 0)):
            move_record.note_stalled(found, since)
            self.assertEqual((read, Asked.DEFERRED), (
                move_record.stalled_since(found),
                move_record.asked_by(found)))

    def test_as_told(self):
        move = move_record.decode(record(), None, 'volume-s')
        other = record()
        move_record.enter(other, move.token.after(
            state.Event.FAILED, committed=False))
        self.assertEqual([True, False, False], [
            move_record.is_unchanged(each, move)
            for each in (record(), other, record(committed=True))])

    def test_what_was_given_back_is_held_no_more(self):
        """Whoever holds the volume next keeps it."""
        volume, found = row(), record()
        move_record.hold(volume, found, Asked.DRAIN)
        for before, after, holds in ((statuses.HELD, statuses.FREE, True),
                                     (statuses.HELD, statuses.HELD, False)):
            volume.status = before
            self.assertEqual(holds, move_record.holds(found))
            move_record.give_back(volume, found)
            self.assertEqual(after, volume.status)

    def test_phase_as_it_is_written(self):
        for phase in Phase:
            found = record()
            move_record.enter(found, state.Token(
                phase, 'n', TOKEN.geometry))
            self.assertEqual(phase.value, move_record.phase_word(found))

    def test_a_forgotten_move_has_no_credentials(self):
        self.assertTrue(move_record.is_move_record(record()))
        found = record(**move_record.ended())
        self.assertIsNone(found.provider_auth)
        self.assertFalse(move_record.is_move_record(found))
