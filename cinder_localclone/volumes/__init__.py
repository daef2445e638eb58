# SPDX-License-Identifier: Apache-2.0
"""Cinder's operations on a volume, a module each, and reconcile.

The driver calls ``connect``, ``create``, ``clone``, ``snapshots``, ``revert``,
``extend``, ``delete``, ``manage``, ``manage_snapshots`` and ``migrate``. They
run at the volume's home, reached by :mod:`.service.rpc`. ``reconcile`` makes a
node match its records. ``quick_check`` and ``inspect`` only check. Private to
this package: ``exports``, ``uncommitted``.
"""
