# SPDX-License-Identifier: Apache-2.0
"""Demonstrations, each with steps, checks and a table."""
