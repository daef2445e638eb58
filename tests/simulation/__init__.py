# SPDX-License-Identifier: Apache-2.0
"""Schedules of the simulated world by the thousand: ``make simulate``."""

#: Of the environment: this is the one of the unit tests.
HERE = 'LOCALCLONE_SIMULATION'
