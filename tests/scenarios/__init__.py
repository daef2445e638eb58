# SPDX-License-Identifier: Apache-2.0
"""Episodes of several modules on the simulated world."""

from tests.helpers import unit

unit.prepare()
