# SPDX-License-Identifier: Apache-2.0
"""A volume goes to another node.

Others may import five modules:

- ``source``: begin a move, give it up, let hydration begin.
- ``destination``: build the clone, complete the move, or go back.
- ``copying``: the copies to this node, their queue, pace and comparison.
- ``remote_attachment``: use a volume over iSCSI; the deferred move that ends
  this.
- ``cleanup``: remove what an ended move, or a volume, has on a node.

Private: ``checks``, ``flow``, ``holes``, ``hydration``, ``pace``, ``refill``.
"""
