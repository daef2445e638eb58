# SPDX-License-Identifier: Apache-2.0
"""Tests of each module of the package, in the same folders."""

from tests.helpers import unit

unit.prepare()
