# SPDX-License-Identifier: Apache-2.0
"""Cinder's database. No other package reads or writes it.

One class a subject, side by side: ``moves``, ``volumes``, ``snapshots``,
``attachments``, ``secrets``, ``services``, ``queue``, ``interrupted`` (work
that a dead service did not end), ``decommission`` (what a node leaves
behind), ``inventory`` (for the operator's command and the metrics). Their
contracts are in :mod:`.core.interfaces.records`. ``base`` has transactions and
rows, ``clock`` the age of rows, ``backups`` the end of a backup; ``database``
gathers the classes for the other packages.
"""
