# SPDX-License-Identifier: Apache-2.0
"""Tests on real kernels and services, in a lab."""

from tests.helpers import running

running.install()
