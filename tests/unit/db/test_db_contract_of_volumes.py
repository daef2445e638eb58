# SPDX-License-Identifier: Apache-2.0
"""The contract of the records: what is not a move."""

import testtools

from tests.contracts.records_of_volumes import Contract
from tests.helpers import database
from tests.helpers import records_bench


class RealTest(Contract, database.TestCase):

    make_rows = records_bench.Real


class SimulatedTest(Contract, testtools.TestCase):

    make_rows = records_bench.Simulated


class ScheduledTest(Contract, testtools.TestCase):

    make_rows = records_bench.Scheduled
