# SPDX-License-Identifier: Apache-2.0
"""What volumes are born of, and newborn volumes, as values. Pure."""

import dataclasses

from cinder_localclone import names
from cinder_localclone import rows
from cinder_localclone import state

_VERSION = 'lc1'


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A snapshot as the database tells it.

    It stays on the node where it was taken, wherever its volume goes.

    :param size_gib: the volume's size when it was taken
    :param node: service host of the node that has it; '' before anything of
        it was made, or if it is none of this driver's
    :param deleted: whether its row is only kept for the books
    :param provider_id: what its row says of the volume's encryption then
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
        """How long the volume's body was then, in bytes.

        :raises NotPossible: as :func:`.rows.recorded`
        """
        return state.body_bytes(self.size_gib, rows.extra_bytes(self))

    @property
    def is_doomed(self) -> bool:
        """Whether nobody wants it any more, beyond doubt."""
        return self.deleted or self.status == 'deleting'


@dataclasses.dataclass(frozen=True)
class Newborn:
    """What the database says of a volume whose LV nobody was given yet.

    :param home: its service host
    :param lv: the name of its LV there
    :param deleted: whether its row is only kept for the books
    """

    status: str
    home: str
    lv: str
    deleted: bool = False


def location(host: str) -> str:
    """How a snapshot's row says which node has it (provider_location)."""
    return '%s:%s' % (_VERSION, host)


def node_of(location: str | None) -> str:
    """The node in a provider_location; '' if there is none."""
    version, _colon, host = (location or '').partition(':')
    return host if version == _VERSION else ''
