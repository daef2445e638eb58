# SPDX-License-Identifier: Apache-2.0
"""Cinder's database, as a single value."""

import dataclasses

from cinder_localclone.core.interfaces import records
from cinder_localclone.db import decommission
from cinder_localclone.db import interrupted
from cinder_localclone.db import inventory
from cinder_localclone.db import moves
from cinder_localclone.db import queue
from cinder_localclone.db import secrets
from cinder_localclone.db import services
from cinder_localclone.db import snapshots
from cinder_localclone.db import volumes


@dataclasses.dataclass(frozen=True)
class Database(records.Database):
    """Cinder's database, with the reads of the command and the metrics."""

    inventory: inventory.Inventory


def database() -> Database:
    """Return the database named in ``cinder.conf``."""
    return Database(
        moves.Moves(), volumes.Volumes(), snapshots.Snapshots(),
        secrets.Secrets(), services.Services(), queue.Queue(),
        interrupted.Interrupted(), decommission.Decommission(),
        inventory.Inventory())
