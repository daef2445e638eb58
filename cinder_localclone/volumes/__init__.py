# SPDX-License-Identifier: Apache-2.0
"""Cinder's operations on a volume, one module each; reconcile.

``connect``, ``create``, ``clone``, ``snapshots``, ``revert``, ``extend``,
``delete``, ``manage``, ``manage_snapshots`` and ``migrate`` are called by the
driver, at the volume's home by way of :mod:`.service.rpc`. ``reconcile``
makes a node as its records say. ``quick_check`` and ``inspect`` only look.
Private to this package: ``exports``, ``uncommitted``.
"""
