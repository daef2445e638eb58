# SPDX-License-Identifier: Apache-2.0
"""Users of a volume: block I/O on a node, the disk of a real guest."""
