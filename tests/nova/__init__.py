# SPDX-License-Identifier: Apache-2.0
"""Tests of the package nova, in a process without Cinder."""
