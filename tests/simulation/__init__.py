# SPDX-License-Identifier: Apache-2.0
"""Schedules of the simulated world by the thousand: ``make simulate``."""
