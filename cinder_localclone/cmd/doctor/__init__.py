# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone doctor``: what is wrong on a node.

``doctor`` is the command. ``checks``, ``stuck`` and ``encryption`` judge what
it has read; ``packages`` knows where a command comes from.
"""
