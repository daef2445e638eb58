# SPDX-License-Identifier: Apache-2.0
"""Snapshots, and volumes with an uncommitted LV, by their rows. Pure.

See :mod:`.core.volume` for all other volumes.
"""

import dataclasses

from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.volume import Encrypted

_VERSION = 'lc1'


@dataclasses.dataclass(frozen=True)
class Snapshot(Encrypted):
    """A snapshot, by its row.

    It stays on the node where it was taken, wherever its volume moves.

    :param size_gib: the volume's size when it was taken
    :param node: service host of its node; '' before its creation has begun,
        and for a snapshot of another driver
    :param deleted: whether its row is soft-deleted
    :param provider_id: the encryption of the volume when it was taken
    """

    id: str
    volume_id: str
    size_gib: int
    status: str
    node: str
    deleted: bool = False
    provider_id: str | None = None

    @property
    def lv(self) -> str:
        """The name of its LV."""
        return names.snapshot_lv(self.id)

    @property
    def size_bytes(self) -> int:
        """The length of the volume's backing device at that time, in bytes.

        :raises NotPossible: as :attr:`encryption`
        """
        return state.backing_bytes(self.size_gib, self.extra_bytes)

    @property
    def is_to_wipe(self) -> bool:
        """Whether its LV is certainly no longer needed."""
        return self.deleted or self.status == 'deleting'


@dataclasses.dataclass(frozen=True)
class Uncommitted:
    """The row of a volume with an uncommitted LV.

    :param home: its service host
    :param lv: the name of its LV there
    :param deleted: whether its row is soft-deleted
    :param provider_id: the text of its encryption
    """

    id: str
    status: str
    home: str
    lv: str
    deleted: bool = False
    provider_id: str | None = None
    volume_type_id: str | None = None


def location(host: str) -> str:
    """Return the provider_location of a snapshot on a node."""
    return '%s:%s' % (_VERSION, host)


def node_of(location: str | None) -> str:
    """Return the node in a provider_location; '' if there is none."""
    version, _colon, host = (location or '').partition(':')
    return host if version == _VERSION else ''
