# SPDX-License-Identifier: Apache-2.0
"""The contract of the records: volumes and their moves.

The simulated world is only worth as much as it does what the real records do.
So a method of an interface that has no test in
``tests/contracts/records_of_*.py`` is an error, and so is a test that never
calls the method that it is named after.
"""

import inspect

import ddt
import testtools

from cinder_localclone.core.interfaces import records as interfaces
from cinder_localclone.db import attachments
from cinder_localclone.db import database as real
from tests.contracts.records_of_moves import Contract
from tests.contracts import records_of_volumes
from tests.helpers import database
from tests.helpers import records_bench
from tests.world import records as simulated
from tests.world import seeded

#: What the simulated world can't tell: it has no table of workers, and nothing
#: in it asks for the clock. Each says so.
NOT_SIMULATED = frozenset(('lost_deletes', 'now'))
SUBJECTS = ('moves', 'volumes', 'snapshots', 'attachments', 'secrets',
            'services', 'queue', 'interrupted', 'decommission')


def public(cls):
    """The names of what a class offers."""
    return {name for name, found in inspect.getmembers(cls, callable)
            if not name.startswith('_')}


class RealTest(Contract, database.TestCase):

    make_rows = records_bench.Real


class SimulatedTest(Contract, testtools.TestCase):

    make_rows = records_bench.Simulated


class ScheduledTest(Contract, testtools.TestCase):

    make_rows = records_bench.Scheduled


@ddt.ddt
class WholeTest(testtools.TestCase):
    """Nothing that the world simulates is without a test."""

    TESTED = {name[5:].partition('__')[0]
              for contract in (Contract, records_of_volumes.Contract)
              for name in dir(contract) if name.startswith('test_')}

    @staticmethod
    def classes(subject):
        """The interface, the real class, and the simulated ones."""
        module = attachments if subject == 'attachments' else (
            getattr(real, subject))
        name = subject.capitalize()
        yield getattr(interfaces, name)
        yield getattr(module, name)
        yield getattr(simulated, 'Sim' + name)
        if subject == 'services':
            yield seeded.Services

    def test_each_method_is_tested(self):
        exported = [name for subject in SUBJECTS
                    for name in public(next(self.classes(subject)))]
        self.assertEqual(sorted(exported), sorted(
            self.TESTED | NOT_SIMULATED))
        self.assertEqual(set(), self.TESTED & NOT_SIMULATED)

    @ddt.data(*SUBJECTS)
    def test_as_they_are_called(self, subject):
        """None has another method; parameters have the same names and order.
        """
        interface, *others = self.classes(subject)
        for each in others:
            self.assertTrue(issubclass(each, interface))
            self.assertEqual(public(interface), public(each))
            for name in public(interface):
                self.assertEqual(*(list(inspect.signature(
                    getattr(cls, name)).parameters)
                    for cls in (interface, each)), name)

    @ddt.data(*SUBJECTS)
    def test_no_subject_has_another(self, subject):
        """They stand side by side: none inherits what another offers."""
        for each in self.classes(subject):
            self.assertEqual([], [
                base for base in each.__mro__ for other in SUBJECTS
                if other != subject and base in self.classes(other)])

    def test_what_is_not_simulated_says_so(self):
        world = records_bench.Simulated.make()
        found = simulated.SimInterrupted(world.nodes[records_bench.A])
        for name in NOT_SIMULATED:
            method = getattr(found, name)
            self.assertRaises(NotImplementedError, method, *[
                None for _each in inspect.signature(method).parameters])
