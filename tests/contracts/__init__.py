# SPDX-License-Identifier: Apache-2.0
"""Scenarios for simulated and real nodes, with the same results."""
