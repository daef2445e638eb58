# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone move``: the moves of volumes between nodes.

``listing`` also has the progress of moves, for the packages of other nouns.
"""
