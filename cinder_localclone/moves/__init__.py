# SPDX-License-Identifier: Apache-2.0
"""A volume moves to another node.

Other packages may import five modules:

- ``source``: begin a move, roll it back, let hydration begin.
- ``destination``: build the clone, complete the move, or roll it back.
- ``copying``: the copies to this node, their queue, pace and comparison.
- ``remote_attachment``: use a volume over iSCSI; begin its deferred move.
- ``cleanup``: remove the rest of a finished move, or of a volume.

Private: ``checks``, ``flow``, ``holes``, ``hydration``, ``pace``, ``refill``.
"""
