# SPDX-License-Identifier: Apache-2.0
"""``make bench``: figures side by side, from one run in one lab.

Never a test: the machine is noisy, so what counts is the ratio of two
figures of the same run.
"""
