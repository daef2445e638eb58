# SPDX-License-Identifier: Apache-2.0
"""Refills go on after a stop."""

import contextlib
import dataclasses
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_clone_metadata
from cinder_localclone.core import names
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import refill as refilling
from cinder_localclone.volumes import reconcile
from tests.helpers.refill_case import A
from tests.helpers.refill_case import B
from tests.helpers.refill_case import Begun
from tests.helpers.refill_case import cut_short
from tests.helpers.refill_case import HOLE
from tests.helpers.refill_case import unread
from tests.helpers import storage_parts
from tests import world as worlds

TIMEOUT = exceptions.CommandTimeout(command='lvchange', seconds=30)
AWAY = exceptions.PeerUnreachable(
    host=A, method='holes', seconds=30, reason='')


@ddt.ddt
class ResumedTest(Begun):
    """The copy goes on, in a service that was started just now."""

    def setUp(self):
        super().setUp()
        # All but one region.
        self.a.unreadable = True
        self.b.hydrate()
        body, record = self.b.lvs[self.volume.name], self.phase_of()
        for region in (0, 1):
            body[region] = self.expected[region]
            self.b.disk.make_local(names.metadata_lv(record), region)
        self.b.disk.flush(self.volume.name, names.metadata_lv(record))
        self.a.unreadable = False
        self.b.devices[names.clone(record)]['hydrating'] = False  # as at boot
        self.lose(1)
        self.restart()

    def phase_of(self):
        move_id, = self.world.move_records
        return move_id

    def read(self):
        return [self.b.read(self.volume.id, region)
                for region in range(worlds.REGIONS)]

    def sweep(self):
        self.b.reconciler.reconcile_moves()

    def test_at_the_first_look(self):
        """Not when it starts: its peer may start as well."""
        self.assertNotEqual(self.expected, self.read())
        self.sweep()
        self.assertEqual(self.expected, self.read())
        self.assertIn('lost 64 KiB', self.log.output)
        self.assertEqual({0, 1, HOLE}, self.b.lvs[names.metadata_lv(
            self.phase_of())]['local'])

    def test_once(self):
        self.sweep()
        with mock.patch.object(worlds.SimClones, 'unmapped_blocks') as looked:
            self.sweep()
        looked.assert_not_called()

    def test_not_of_copies_that_this_service_has_begun(self):
        self.b.reconciler.comparison.memory.interrupted = set()
        with mock.patch.object(worlds.SimClones, 'recorded_as_local') as asked:
            self.sweep()
        asked.assert_not_called()

    def test_not_of_copies_that_begin_later(self):
        self.sweep()
        self.lose(0)
        self.b.reconciler.reconcile_node()
        self.assertNotEqual(self.expected, self.read())

    def test_source_that_starts_as_well(self):
        """What is copied beside it would hide what was lost."""
        comparison = self.b.reconciler.comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=60)
        with mock.patch.object(self.b.node.peers, 'holes', side_effect=(
                exceptions.PeerUnreachable(
                    host=A, method='holes', seconds=30, reason=''))), \
                mock.patch.object(self.b.reconciler.copying,
                                  'note_failed_check') as hindered:
            self.sweep()
            hindered.assert_called_once()  # others need not wait for it
            self.assertNotEqual(self.expected, self.read())
            self.assertFalse(self.b.devices[names.clone(
                self.phase_of())]['hydrating'])
        self.sweep()
        self.assertEqual(self.expected, self.read())
        self.assertTrue(self.b.devices[names.clone(
            self.phase_of())]['hydrating'])

    def test_source_that_does_not_start(self):
        with self.failing('peers', 'holes', AWAY) as asked:
            for _look in range(2):
                self.sweep()
        self.assertTrue(self.b.devices[names.clone(
            self.phase_of())]['hydrating'])
        asked.assert_called_once()  # until all is copied

    @ddt.data(dm_clone_metadata.OddMetadata('odd'),
              exceptions.CommandTimeout(command='dd', seconds=30),
              FileNotFoundError('thin_dump'),
              exceptions.Busy(what='the pool', host=B, seconds=30))
    def test_what_it_does_not_understand(self, error):
        """It waits as well; then it is looked for at the end."""
        comparison = self.b.reconciler.comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=60)
        clock = self.useFixture(fixtures.MockPatchObject(
            refilling.time, 'monotonic')).mock
        self.b.devices[names.clone(self.phase_of())]['hydrating'] = True
        with mock.patch.object(worlds.SimClones, 'recorded_as_local',
                               side_effect=error):
            for clock.return_value, goes_on in ((5, False), (65, True)):
                self.sweep()
                self.assertEqual(goes_on, self.b.devices[names.clone(
                    self.phase_of())]['hydrating'])
        self.assertNotEqual(self.expected, self.read())
        self.b.hydrate(flushed=True)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def not_refilled(self):
        return mock.patch.object(
            worlds.SimClones, 'refill', side_effect=unread('bad sector'))

    def test_what_cannot_be_copied_now(self):
        comparison = self.b.reconciler.comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=60)
        with self.not_refilled():
            for _look in range(3):
                self.sweep()
                self.assertFalse(self.b.devices[names.clone(
                    self.phase_of())]['hydrating'])
        self.sweep()
        self.assertEqual(self.expected, self.read())
        self.assertNotIn(names.LACKING, self.b.disk.tags.get(
            self.volume.name, ()))

    def copied_and_not_seen(self):
        with self.not_seen_again(TIMEOUT):
            self.sweep()
        self.assertEqual({self.phase_of(): [[1, 1]]},
                         self.b.reconciler.comparison.memory.copied)

    def end(self):
        self.b.hydrate(flushed=True)
        self.lacking()

    def test_suspected_after_it_was_copied(self):
        """It was seen to be missing, whoever hides it then."""
        self.interrupted()
        self.copied_and_not_seen()
        self.lose(1)  # the pool is broken still
        with self.failing('peers', 'holes', AWAY):
            self.sweep()
        self.hide(1)
        self.sweep()
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.end()

    def test_suspected_and_its_source_stays_away(self):
        """It was known to be lost before."""
        clock = self.clock()
        self.copied_and_not_seen()
        self.lose(1)
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (10, 80):
                self.sweep()
            self.hide(1)
            self.b.hydrate(flushed=True)
            for clock.return_value in (90, 160, 230):
                with contextlib.suppress(exceptions.Lacking):
                    self.reconcile()
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_hidden_between_two_looks(self):
        self.interrupted()
        self.copied_and_not_seen()
        self.lose(1)
        inner = worlds.SimClones.unmapped_blocks

        def then(stack, *args):
            found = inner(stack, *args)
            self.hide(1)
            return found
        with mock.patch.object(worlds.SimClones, 'unmapped_blocks', then):
            self.sweep()
        self.end()

    def test_local_before_it_looks(self):
        """What a guest has written, and the pool lost, meanwhile."""
        self.interrupted()
        inner = worlds.SimClones.recorded_as_local

        def then(stack, move):
            found = inner(stack, move)
            self.lose(0)
            return found
        with mock.patch.object(worlds.SimClones, 'recorded_as_local', then):
            self.sweep()
        self.assertEqual(self.expected, self.read())

    def test_pool_that_fails_for_long(self):
        """What is copied then would hide what was lost, and is lost itself."""
        clock = self.clock()
        self.b.pool_fails = True
        for clock.return_value in (5, 70, 1e6):
            self.sweep()
            self.assertFalse(self.hydrates())
        self.assertIn('reboot the node', self.log.output)
        self.healed()

    def healed(self):
        """An operator has extended the pool's metadata LV."""
        self.b.pool_fails = False
        self.sweep()
        self.assertEqual(self.expected, self.read())
        self.assertTrue(self.hydrates())
        self.assertNotIn(names.LACKING, self.b.disk.tags.get(
            self.volume.name, ()))

    @ddt.data(('recorded_as_local', ValueError('odd')),
              ('recorded_as_local', TIMEOUT), ('set_hydration', TIMEOUT),
              ('unmapped_blocks', exceptions.CommandFailed(
                  command='dmsetup', code=1, stderr='')),
              ('mark', TIMEOUT), ('refill', TIMEOUT))
    @ddt.unpack
    def test_pool_that_fails_and_something_else(self, name, error):
        """Whatever is the first thing to fail: that is no wait."""
        clock = self.clock()
        inner = worlds.SimClones.unmapped_blocks

        def mapped(stack, *args):
            found = inner(stack, *args)
            self.b.pool_fails = True  # from now on
            return found
        self.b.pool_fails = name not in ('mark', 'refill')
        for clock.return_value in (5, 70, 1e6):
            with self.failing(storage_parts.part(name), name, error), (
                    contextlib.nullcontext() if self.b.pool_fails else
                    mock.patch.object(worlds.SimClones, 'unmapped_blocks',
                                      mapped)):
                self.sweep()
            self.assertFalse(self.hydrates())
            if name in ('mark', 'refill'):
                self.b.pool_fails = False
        self.healed()

    def test_pool_that_fails_when_its_source_is_back(self):
        """A wait for something else that is over does not count."""
        clock = self.clock()
        with self.failing('peers', 'holes', AWAY):
            self.sweep()  # at 5
        clock.return_value = 70

        def fails(stack, *args):
            self.b.pool_fails = True
            raise exceptions.PoolFails(pool='p', mode='ro', host=B)
            yield
        with mock.patch.object(worlds.SimClones, 'refill', fails):
            self.sweep()
        self.assertFalse(self.hydrates())
        self.healed()

    @ddt.data(TIMEOUT, exceptions.WrongDevice(path='p', found='8:0'),
              OSError(5, 'error'))
    def test_pool_that_does_not_say_whether_it_fails(self, error):
        """That is a wait as any other."""
        clock = self.clock()
        with self.failing('clones', 'check_pool', error), \
                self.failing('peers', 'holes', AWAY):
            for clock.return_value, goes_on in ((5, False), (70, True)):
                self.sweep()
                self.assertEqual(goes_on, self.hydrates())

    def test_pool_of_its_source_that_fails_for_long(self):
        """That is as if it were away."""
        clock = self.clock()
        with self.failing('peers', 'holes', exceptions.PoolFails(
                pool='p', host=A, mode='ro')):
            for clock.return_value, goes_on in ((5, False), (70, True)):
                self.sweep()
                self.assertEqual(goes_on, self.hydrates())

    def test_pool_that_fails_after_its_source_was_away(self):
        """What is waited for begins anew."""
        clock = self.clock()
        with self.failing('peers', 'holes', AWAY):
            self.sweep()  # at 5
        clock.return_value = 60
        self.b.pool_fails = True
        self.sweep()
        self.b.pool_fails = False
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value, goes_on in ((70, False), (140, True)):
                self.sweep()
                self.assertEqual(goes_on, self.hydrates())

    def test_never_seen(self):
        """What goes on without a look could hide it."""
        clock = self.clock()
        self.copied_and_not_seen()
        self.lose(1)
        with self.not_seen_again(TIMEOUT, sweeps=0):
            for clock.return_value in (10, 80):
                self.sweep()
        self.assertTrue(self.hydrates())
        self.hide(1)
        self.end()

    def test_what_goes_on_after_a_wait(self):
        """It is waited for; nothing is copied beside it."""
        clock = self.clock()
        self.lose(0)
        with self.failing('peers', 'holes', AWAY):
            self.sweep()  # at 5
        clock.return_value = 65
        with cut_short():
            self.sweep()
        self.assertFalse(self.hydrates())
        self.sweep()
        self.assertEqual(self.expected, self.read())

    def test_what_is_hidden_is_not_copied_again(self):
        self.interrupted()
        with self.failing('peers', 'holes', AWAY):
            self.sweep()
        self.b.lvs[self.volume.name][1] = 'hidden'
        with mock.patch.object(worlds.SimClones, 'refill') as again:
            self.sweep()
        again.assert_not_called()
        self.assertNotIn('[localclone-205]', self.log.output)

    def test_what_takes_long(self):
        """As long as it goes on it is waited for."""
        comparison = self.b.reconciler.comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=40)
        clock = self.useFixture(fixtures.MockPatchObject(
            refilling.time, 'monotonic')).mock
        self.lose(0)
        with cut_short():
            for clock.return_value in (5, 50):
                self.sweep()
                self.assertFalse(self.b.devices[names.clone(
                    self.phase_of())]['hydrating'])
        self.sweep()
        self.assertEqual(self.expected, self.read())

    def test_what_was_written_since(self):
        """It holds up no copy; but then the source stays."""
        with mock.patch.object(worlds.SimClones, 'refill',
                               return_value=[()]), mock.patch.object(
                worlds.SimClones, 'recorded_as_local',
                return_value=[[1, 1]]), mock.patch.object(
                worlds.SimClones, 'unmapped_blocks',
                side_effect=([[1, 1]], [])):
            self.sweep()
        self.assertTrue(self.b.devices[names.clone(
            self.phase_of())]['hydrating'])
        self.assertNotIn('[localclone-206]', self.log.output)
        self.b.hydrate(flushed=True)
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.assertRaises(exceptions.Lacking,
                          self.b.reconciler.reconcile, self.volume.id)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_what_an_earlier_service_has_marked(self):
        """All that is missing is copied; something may be hidden."""
        self.tag(names.LACKING)
        self.sweep()
        self.assertEqual(self.expected, self.read())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.b.hydrate(flushed=True)
        self.assertRaises(exceptions.Lacking,
                          self.b.reconciler.reconcile, self.volume.id)

    def interrupted(self):
        self.b.reconciler.comparison._node = dataclasses.replace(
            self.b.node, compare_wait=60)

    def hydrates(self):
        return self.b.devices[names.clone(self.phase_of())]['hydrating']

    def clock(self):
        self.interrupted()
        return self.useFixture(fixtures.MockPatchObject(
            refilling.time, 'monotonic', return_value=5)).mock

    def test_what_lacks_something_is_not_looked_at_again(self):
        """Until all is copied."""
        self.tag(names.LACKING)
        self.sweep()
        with mock.patch.object(worlds.SimClones, 'unmapped_blocks') as looked:
            self.sweep()
        looked.assert_not_called()

    def test_wait_that_is_over_with_nothing_lost(self):
        self.interrupted()
        with self.failing('peers', 'holes', AWAY):
            self.sweep()
        self.b.lvs[self.volume.name][1] = self.expected[1]
        self.sweep()
        self.assertEqual({}, self.b.reconciler.comparison.memory.unseen)

    def test_what_was_copied_again_is_known_no_more(self):
        """It does not keep the source of what is whole."""
        clock = self.clock()
        self.sweep()
        self.b.hydrate(flushed=True)
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (10, 80):
                self.b.reconciler.reconcile(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())

    def test_what_cannot_be_copied_does_not_wait_for_ever(self):
        clock = self.clock()
        with self.not_refilled():
            for clock.return_value, goes_on in ((5, False), (65, True)):
                self.sweep()
                self.assertEqual(goes_on, self.hydrates())

    def test_lost_again(self):
        """Nothing goes on that would hide it."""
        self.clock()
        with mock.patch.object(worlds.SimClones, 'refill',
                               return_value=[[[1, 1]]]):
            self.sweep()
        self.assertFalse(self.hydrates())
        self.sweep()
        self.assertEqual(self.expected, self.read())

    def test_repair_lets_nothing_go_on(self):
        self.interrupted()
        with self.failing('peers', 'holes', AWAY):
            self.sweep()
            self.assertFalse(self.hydrates())
            reconcile.Reconciler.repair(mock.Mock(
                node=self.b.reconciler.comparison._node,
                copying=self.b.reconciler.copying), self.volume.id)
        self.assertFalse(self.hydrates())

    def test_mark_that_cannot_be_taken_off_yet(self):
        """It does not outlive what it is for."""
        self.interrupted()
        with self.failing('lvm', 'unmark', TIMEOUT):
            self.sweep()
        self.assertEqual(self.expected, self.read())
        self.sweep()
        self.assertNotIn(names.LACKING, self.b.disk.tags[self.volume.name])

    def test_what_could_not_be_asked_for(self):
        """It is asked for in the end, though it is hidden by then."""
        with self.failing('peers', 'holes', AWAY):
            self.sweep()  # it waits for no time at all
        self.b.hydrate(flushed=True)
        self.b.lvs[self.volume.name][1] = 'hidden'
        for _look in range(2):
            self.assertRaises(exceptions.Lacking,
                              self.b.reconciler.reconcile, self.volume.id)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_what_was_hidden_before_it_could_be_asked_for(self):
        self.interrupted()
        with self.failing('peers', 'holes', AWAY):
            self.sweep()
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.sweep()
        self.assertTrue(self.hydrates())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.b.hydrate(flushed=True)
        self.assertRaises(exceptions.Lacking,
                          self.b.reconciler.reconcile, self.volume.id)

    def test_what_was_copied_is_suspected_no_more(self):
        """One half when the copy goes on, the other in the end."""
        self.lose(0)
        with cut_short():
            self.sweep()
        self.b.hydrate(flushed=True)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_tags_that_cannot_be_read(self):
        """What is suspected until then is not forgotten."""
        self.interrupted()
        with mock.patch.object(refilling.Comparison, '_tags',
                               side_effect=TIMEOUT):
            self.sweep()
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.sweep()
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])

    def test_what_was_not_lost(self):
        """A hole of the source is no loss, whoever writes to it."""
        self.b.lvs[self.volume.name][1] = self.expected[1]
        with self.failing('peers', 'holes', AWAY):
            self.sweep()
        self.b.hydrate(flushed=True)
        self.b.write(self.volume.id, HOLE, 'new')
        self.expected[HOLE] = 'new'
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_nothing_is_copied_while_it_looks(self):
        self.b.devices[names.clone(self.phase_of())]['hydrating'] = True
        seen, inner = [], worlds.SimClones.unmapped_blocks

        def looked(stack, *args):
            seen.append(self.hydrates())
            return inner(stack, *args)
        with mock.patch.object(worlds.SimClones, 'unmapped_blocks', looked):
            self.sweep()
        self.assertEqual({False}, set(seen))
        self.assertTrue(self.hydrates())

    def test_mark_that_failed_is_tried_again(self):
        self.interrupted()
        with self.failing('lvm', 'mark', TIMEOUT):
            self.sweep()
        self.b.lvs[self.volume.name][1] = 'a part'
        self.sweep()
        self.assertTrue(self.hydrates())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])

    def test_mark_that_fails(self):
        """Nothing goes on that would hide what was lost."""
        error = exceptions.CommandTimeout(command='lvchange', seconds=30)
        with self.failing('lvm', 'mark', error):
            for _look in range(2):
                self.sweep()
                self.assertFalse(self.b.devices[names.clone(
                    self.phase_of())]['hydrating'])
        self.sweep()
        self.assertEqual(self.expected, self.read())

    def test_what_cannot_be_copied_for_too_long(self):
        """All the rest is; and then the source stays."""
        with self.not_refilled():
            self.sweep()
        self.assertTrue(self.b.devices[names.clone(
            self.phase_of())]['hydrating'])
        self.b.hydrate(flushed=True)
        self.b.lvs[self.volume.name][1] = 'hidden'
        for _look in range(2):
            error = self.assertRaises(
                exceptions.Lacking, self.b.reconciler.reconcile,
                self.volume.id)
        self.assertIn('lvchange --addtag localclone.accepted', str(error))
        self.assertIs(Phase.MIGRATING, self.phase())
        # Its operator accepts it.
        self.tag(names.ACCEPTED)
        self.b.reconciler.reconcile(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())

    def test_what_could_not_be_copied_until_the_end(self):
        """Nothing has hidden it."""
        with self.not_refilled():
            self.sweep()
        self.b.hydrate(flushed=True)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)
        self.assertNotIn(names.LACKING, self.b.disk.tags[self.volume.name])

    def test_wait_that_is_over(self):
        """The next one has its own time."""
        comparison = self.b.reconciler.comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=60)
        with mock.patch.object(self.b.node.peers, 'holes', side_effect=(
                exceptions.PeerUnreachable(
                    host=A, method='holes', seconds=30, reason=''))):
            self.sweep()
        self.assertEqual([self.phase_of()], list(comparison.memory.unseen))
        self.sweep()
        self.assertEqual({}, comparison.memory.unseen)
