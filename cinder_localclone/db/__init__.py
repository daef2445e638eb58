# SPDX-License-Identifier: Apache-2.0
"""Cinder's database. No other package reads or writes it.

There is a module for each subject: ``moves``, ``volumes``, ``snapshots``,
``attachments``, ``secrets``, ``services``, ``queue``, ``interrupted`` (work
interrupted by the death of a service), ``decommission`` (rows of a drained or
lost node), ``inventory`` (reads of the operator's command and the metrics).
Their contracts are in :mod:`.core.interfaces.records`. ``base`` has
transactions and rows, ``clock`` the age of rows, ``backups`` the end of a
backup; ``database`` gathers the classes for the other packages.
"""
