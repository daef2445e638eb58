# SPDX-License-Identifier: Apache-2.0
"""Contracts of a node's storage, database, peers and keys.

Packages below ``storage`` and ``db`` act on a node only through these
protocols; :class:`.node.Node` holds an object of each. The contract of an
operation is documented here and nowhere else.
"""
