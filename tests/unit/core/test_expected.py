# SPDX-License-Identifier: Apache-2.0
"""What a node must have of a volume: the whole table, and how it compares."""

import ddt
import testtools

from cinder_localclone.core import expected
from cinder_localclone.core.expected import On
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.state import Asked
from cinder_localclone.core.state import Phase

V1, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
OLD, NEW = 'volume-' + V1, 'volume-' + SHADOW
A, B, C = 'a@l', 'b@l', 'c@l'
LV, CLONE, REMOTE, NOTHING = {On.LV}, {On.CLONE}, On.REMOTE, On.NOTHING
UNUSED = {NOTHING, REMOTE}
GIB = 1 << 30


def move(phase=Phase.MIGRATING, committed=True, asked_by=Asked.ATTACH):
    return state.Move(
        V1, SHADOW, state.Token(phase, 'n', state.Geometry(128, 32, 8)),
        committed, A, B, OLD, NEW, 1, asked_by=asked_by)


@ddt.ddt
class ExpectedTest(testtools.TestCase):

    def wanted(self, host, moving, home=None):
        home = home or (B if moving and moving.committed else A)
        return expected.expected(
            host, home, NEW if home == B else OLD, moving)

    @ddt.data((A, LV, OLD), (B, UNUSED, ''))
    @ddt.unpack
    def test_at_rest(self, host, handle, lv):
        found = self.wanted(host, None)
        self.assertEqual((handle, lv, None, None, False), (
            found.handle, found.lv, found.clone, found.exported,
            found.hydrates))

    def test_deleted(self):
        self.assertEqual(UNUSED, expected.expected(A, None, None, None).handle)

    @ddt.data(
        # At the destination.
        (B, Phase.MIGRATING, False, {NOTHING, On.CLONE, REMOTE}, '', False),
        (B, Phase.STARTING, False, {NOTHING, On.CLONE, REMOTE}, '', False),
        (B, Phase.STARTING, True, CLONE, NEW, False),
        (B, Phase.MIGRATING, True, CLONE, NEW, True),
        (B, Phase.COMPLETING, True, LV, NEW, False),
        # At the source: the handle stays until the guest has left it.
        (A, Phase.MIGRATING, False, LV, OLD, False),
        (A, Phase.STARTING, False, LV, OLD, False),
        (A, Phase.STARTING, True, LV, OLD, False),
        (A, Phase.MIGRATING, True, UNUSED, OLD, False),
        (A, Phase.COMPLETING, True, UNUSED, OLD, False),
        (C, Phase.MIGRATING, True, UNUSED, '', False))
    @ddt.unpack
    def test_of_a_move(self, host, phase, committed, handle, lv, hydrates):
        moving = move(phase, committed)
        found = self.wanted(host, moving)
        self.assertEqual((handle, lv, hydrates), (
            found.handle, found.lv, found.hydrates))
        self.assertEqual(moving if host == B and On.CLONE in handle else None,
                         found.clone)
        self.assertEqual(host == B and committed and handle == CLONE,
                         found.is_on_clone)
        self.assertEqual(moving if host == A and committed else None,
                         found.exported)

    @ddt.data((Phase.MIGRATING, True, {On.LV} | UNUSED),
              (Phase.MIGRATING, False, LV))
    @ddt.unpack
    def test_source_of_a_deferred_move(self, phase, committed, handle):
        """The instance uses the volume from there until its handle swaps."""
        moving = move(phase, committed, Asked.DEFERRED)
        self.assertEqual(handle, self.wanted(A, moving).handle)
        self.assertEqual(CLONE if committed else {
            NOTHING, On.CLONE, REMOTE}, self.wanted(B, moving).handle)


@ddt.ddt
class MapsToTest(testtools.TestCase):

    def present(self, table, *others, suspended=False):
        handle = names.handle(V1)
        devices = {handle: dm_tables.Device(
            handle, '', '252:1', 1, suspended, table)} if table else {}
        devices.update({each.name: each for each in others})
        return survey.Survey({NEW: lvm_reports.LogicalVolume(
            'g', NEW, GIB, '252:7', frozenset())}, devices)

    @ddt.data(('', On.NOTHING), ('0 2097152 linear 252:7 0', On.LV),
              ('0 2097144 linear 252:7 0', None),
              ('0 2097152 linear 252:9 0', On.CLONE),
              ('0 2097152 linear 8:16 0', On.REMOTE),
              ('0 2097152 error ', None))
    @ddt.unpack
    def test_it(self, table, on):
        name = names.clone(SHADOW)
        present = self.present(table, dm_tables.Device(
            name, '', '252:9', 1, False, '0 2097152 clone 252:8 252:7 8:16'))
        self.assertIs(on, expected.maps_to(present, V1, NEW, move(), GIB))
        for wanted in (LV, CLONE, UNUSED):
            self.assertEqual(on in wanted, expected.is_as(
                expected.Expected(frozenset(wanted), NEW, move()), present,
                V1, GIB))

    def test_suspended(self):
        present = self.present('0 2097152 linear 252:7 0', suspended=True)
        self.assertIsNone(expected.maps_to(present, V1, NEW))

    def test_clone_of_another_move(self):
        present = self.present('0 2097152 linear 252:9 0')
        self.assertIsNone(expected.maps_to(present, V1, NEW, move()))
