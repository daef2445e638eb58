# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone doctor``: check a node.

``doctor`` is the command. ``checks``, ``stuck``, ``encryption`` and ``link``
judge its measurements. ``packages`` knows the packages of commands.
"""
