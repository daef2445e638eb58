# SPDX-License-Identifier: Apache-2.0
"""Cinder's database, as one value."""

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
    """The same, with what only the operator's command and the metrics read."""

    inventory: inventory.Inventory


def database() -> Database:
    """Return Cinder's database; ``cinder.conf`` says where that is."""
    return Database(
        moves.Moves(), volumes.Volumes(), snapshots.Snapshots(),
        secrets.Secrets(), services.Services(), queue.Queue(),
        interrupted.Interrupted(), decommission.Decommission(),
        inventory.Inventory())
