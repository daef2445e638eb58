# SPDX-License-Identifier: Apache-2.0
"""The contract of the records: volumes and their moves.

The simulated world is only worth as much as it does what the real records do.
So a method that the world has, and that has no test in
``tests/contracts/records_of_*.py``, is an error, and so is a test that never
calls the method that it is named after.
"""

import inspect

import testtools

from cinder_localclone.db import attachments
from cinder_localclone.db import inventory
from tests.contracts.records_of_moves import Contract
from tests.contracts import records_of_volumes
from tests.helpers import database
from tests.helpers import records_bench
from tests.world import records as sim_records
from tests.world import seeded

#: What the records have that nothing in the simulated world asks for: what is
#: measured, shown or searched by the operator's command alone; and what
#: Cinder's own tables of workers and types say.
NOT_SIMULATED = frozenset((
    'all_moves', 'all_volumes', 'available_snapshots', 'ids_named', 'service',
    'encrypted_by_nova', 'type_id', 'unended', 'lost_deletes', 'now',
    'secrets_of_all', 'is_encryption_offered', 'volumes_known',
    'record_snapshot'))


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


class WholeTest(testtools.TestCase):
    """Nothing that the world simulates is without a test."""

    REAL = public(inventory.OperatorRecords) | public(
        attachments.AttachmentRecords)
    TESTED = {name[5:].partition('__')[0]
              for contract in (Contract, records_of_volumes.Contract)
              for name in dir(contract) if name.startswith('test_')}

    def test_each_method_is_tested(self):
        self.assertEqual(self.REAL, self.TESTED | NOT_SIMULATED)
        self.assertEqual(set(), self.TESTED & NOT_SIMULATED)

    def test_the_world_has_no_other(self):
        self.assertEqual(self.TESTED, public(sim_records.SimRecords))
        self.assertLessEqual(public(seeded.Rows), self.TESTED)

    def test_as_they_are_called(self):
        """The parameters have the same names, in the same order."""
        for name in self.TESTED:
            real = getattr(inventory.OperatorRecords, name, None) or (
                getattr(attachments.AttachmentRecords, name))
            self.assertEqual(
                list(inspect.signature(real).parameters),
                list(inspect.signature(getattr(
                    sim_records.SimRecords, name)).parameters), name)
