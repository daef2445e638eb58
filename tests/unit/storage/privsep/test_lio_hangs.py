# SPDX-License-Identifier: Apache-2.0
"""Changes of the kernel's target that hang, and what goes on beside them."""

import threading
import time
from unittest import mock

import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.storage.privsep import lio
from tests.helpers import lio_case
from tests.helpers.lio_case import ANOTHER
from tests.helpers.lio_case import export
from tests.helpers.lio_case import IQN
from tests.helpers.lio_case import OTHER_IQN
from tests.helpers.lio_case import STORE
from tests.helpers.lio_case import THIRD
from tests.helpers.lio_case import V1


class TimeLimitTest(lio_case.Case):
    """The kernel may keep a thread for ever; its callers go on."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(lio, 'TIMEOUT', 0.2))
        self.kernel = threading.Event()
        self.addCleanup(self.kernel.set)
        for iqn in (IQN, OTHER_IQN):
            export(iqn=iqn)
        self.stuck = []
        for target in self.lio.targets:
            self.hang(target)
        del self.lio.steps[:]

    def hang(self, target):
        """Its commands wait for a device, so it can't be disabled."""
        inner = target.delete

        def delete():
            self.stuck.append(target.wwn)
            self.kernel.wait(60)
            inner()
        object.__setattr__(target, 'delete', delete)

    def unexport(self, iqn=IQN):
        return lio.unexport(iqn, STORE)

    def test_hangs(self):
        error = self.assertRaises(exceptions.TargetTimeout, self.unexport)
        self.assertIsInstance(error, exceptions.CommandTimeout)
        self.assertIn('within 0.2 s', str(error))

    def test_a_target_that_hangs_is_left_alone(self):
        self.assertRaises(exceptions.TargetTimeout, self.unexport)
        for change in (self.unexport, export):
            # It neither begins anything nor waits.
            with mock.patch.object(lio.process, 'in_thread',
                                   autospec=True) as begun:
                error = self.assertRaises(exceptions.TargetHangs, change)
            begun.assert_not_called()
            self.assertRegex(
                str(error), r'has hung in the kernel since '
                r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d and')
            self.assertIn(IQN, str(error))
        self.assertEqual([IQN], self.stuck)

    def test_others_can_be_changed(self):
        self.assertRaises(exceptions.TargetTimeout, self.unexport)
        self.assertTrue(export(iqn=THIRD))
        self.assertTrue(lio.unexport(THIRD, STORE))

    def test_it_comes_back_by_itself(self):
        self.assertRaises(exceptions.TargetTimeout, self.unexport)
        self.kernel.set()
        for _time in range(100):
            if IQN not in [each.wwn for each in self.lio.targets]:
                break
            time.sleep(0.02)
        time.sleep(0.1)
        self.assertTrue(export())
        self.assertTrue(self.unexport())

    def test_not_without_end(self):
        """A kernel in which each change hangs gets no more of them."""
        for number in range(lio.MOST_HANGING):
            iqn = 'iqn.x:volume-%s-1000000%d' % (V1, number)
            export(iqn=iqn)
            self.hang(self.lio.targets[-1])
        for number in range(lio.MOST_HANGING):
            self.assertRaises(exceptions.TargetTimeout, self.unexport,
                              'iqn.x:volume-%s-1000000%d' % (V1, number))
        del self.lio.steps[:]
        for change in (lambda: export(iqn=THIRD), self.unexport,
                       lambda: export(serial='another')):
            error = self.assertRaises(exceptions.TargetHangs, change)
            self.assertIn('-10000000, iqn', str(error))
            self.assertIn('-10000002 has hung', str(error))
        self.assertFalse(export())  # nothing has to be done
        self.assertEqual([], self.lio.steps)

    def test_a_backstore_alone_that_hangs(self):
        for target in self.lio.targets:
            target.tpgs.clear()
        store, = self.lio.stores
        store.delete = lambda: self.kernel.wait(60)
        self.assertRaises(exceptions.TargetTimeout, lio.unexport, '', STORE)
        error = self.assertRaises(exceptions.TargetHangs, lio.unexport, '',
                                  STORE)
        self.assertIn(STORE, str(error))
        self.assertFalse(lio.unexport('', ANOTHER))

    def test_what_is_known_to_hang_waits_for_no_turn(self):
        self.assertRaises(exceptions.TargetTimeout, self.unexport)
        lio._changes._turn.acquire()
        self.addCleanup(lio._changes._turn.release)
        self.assertRaises(exceptions.TargetHangs, self.unexport)

    def test_a_turn_that_never_comes(self):
        lio._changes._turn.acquire()
        self.addCleanup(lio._changes._turn.release)
        waits = threading.Thread(daemon=True, target=self.assertRaises, args=(
            exceptions.TargetTimeout, export))
        waits.start()
        waits.join(5)
        self.assertFalse(waits.is_alive())

    def test_the_same_twice_hangs_once(self):
        """The second waits for its turn while the first is found to hang."""
        threads = [threading.Thread(target=self.assertRaises, args=(
            exceptions.TargetTimeout, self.unexport)) for _time in range(2)]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        self.assertEqual([IQN], self.stuck)

    def test_what_hangs_does_not_keep_the_daemon_from_ending(self):
        self.assertTrue(lio._changes.make(
            'x', lambda: threading.current_thread().daemon))

    def meanwhile(self, act):
        """A thread acts while another one looks at what hangs.

        :returns: a work that does not end
        """
        other = threading.Thread(target=act, daemon=True)

        def done():
            if not other.ident:
                other.start()
                other.join(1)
            return False
        return mock.Mock(done=done)

    def test_what_is_found_to_hang_while_another_looks_is_not_forgotten(self):
        """Else each request would leave one more thread in the kernel."""
        changes, found = lio.Changes(), []

        def hang():
            try:
                changes.make('b', lambda: self.kernel.wait(60))
            except exceptions.TargetTimeout as exc:
                found.append(exc)
        changes._hanging = {'a': (self.meanwhile(hang), 0.0),
                            'c': (mock.Mock(**{
                                'done.return_value': False}), 0.0)}
        self.assertTrue(changes.make('x', lambda: True))
        self.assertEqual(1, len(found))
        self.assertRaises(exceptions.TargetHangs, changes.make, 'b',
                          lambda: True)

    def test_a_change_that_says_that_something_timed_out_has_ended(self):
        """ETIMEDOUT is a TimeoutError, too."""
        def change():
            raise OSError(110, 'Connection timed out')
        self.useFixture(fixtures.MockPatchObject(lio, 'TIMEOUT', 5))
        self.assertRaises(OSError, lio._changes.make, 'x', change)
        self.assertNotIn('x', lio._changes._hanging)

    def test_what_waits_meanwhile_has_its_turn(self):
        self.useFixture(fixtures.MockPatchObject(lio, 'TIMEOUT', 1))
        first = threading.Thread(target=self.assertRaises, args=(
            exceptions.TargetTimeout, self.unexport))
        first.start()
        for _time in range(100):
            if self.stuck:
                break
            time.sleep(0.01)
        time.sleep(0.3)
        self.assertTrue(export(iqn=THIRD))
        first.join()
