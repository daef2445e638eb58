# SPDX-License-Identifier: Apache-2.0
"""What a node's storage, database, peers and keys can do.

Packages below ``storage`` and ``db`` act on a node through these protocols
alone. :class:`.node.Node` hands them over. Each contract is documented here.
"""
