# SPDX-License-Identifier: Apache-2.0
"""Cinder's database. No other package reads or writes it.

``moves`` has the move records, ``volumes`` the volumes and snapshots. The
other modules each serve one part of the driver: ``queue``, ``secrets``,
``attachments``, ``backups``, ``interrupted``, and ``inventory`` for the
operator's command and the metrics. ``clock`` tells the age of rows.

The packages below use it through :mod:`.core.interfaces.records`.
"""
