# SPDX-License-Identifier: Apache-2.0
"""Tests of the lab, the documentation and the installers."""

from tests.helpers import unit

unit.prepare()
