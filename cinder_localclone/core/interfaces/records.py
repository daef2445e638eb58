# SPDX-License-Identifier: Apache-2.0
"""Typed interfaces of the records, as the work on a volume uses them.

As :mod:`.storage`, which has the others.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Mapping
import datetime
import typing

from cinder_localclone.core import copies
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core import volume_types


class Services(typing.Protocol):
    """Which volume services there are."""

    def services(self) -> dict[str, bool]:
        """All volume services: host and whether it is alive."""


class Queue(Services, typing.Protocol):
    """The queue of copies, as Cinder's database tells it."""

    def copies(self, host: str) -> list[copies.Entry]:
        """All copies between nodes of the backend of a service host."""

    def note_stalled(self, move: state.Move, stalled: bool) -> None:
        """Record that a copy makes no progress, or that it does."""


class Records(Queue, typing.Protocol):
    """Volumes and moves, as Cinder's database has them.

    What changes a move compares first and raises StaleMove if another
    service was first; see :class:`cinder_localclone.db.moves.Records`.
    """

    def volume(self, volume_id: str) -> objects.Volume | None:
        """A volume with its attachments; None if it is gone."""

    def volumes_of(self, host: str) -> list[objects.Volume]:
        """All visible volumes whose home is a service host."""

    def move_of(self, volume_id: str) -> state.Move | None:
        """The move of a volume that is not over, if it has one."""

    def remains_of(self, volume_id: str) -> list[state.Move]:
        """The moves of a volume that are over but for a clean-up."""

    def get_move(self, shadow_id: str) -> state.Move | None:
        """The move with this shadow."""

    def is_move(self, shadow_id: str) -> bool:
        """Whether there is such a move, readable or not."""

    def moves_of(self, host: str) -> list[state.Move]:
        """All moves from or to a service host, remains among them.

        Remains are those to be cleaned up there, and those of volumes that
        are there now.
        """

    def begin(self, volume: objects.Volume, host: str, event: state.Event,
              geometry: state.Geometry, locate: Callable[[str], str],
              auth: str, initiator: str,
              asked_by: state.Asked = state.Asked.ATTACH) -> state.Move:
        """Record the intent to move a volume."""

    def advance(self, move: state.Move, event: state.Event) -> state.Move:
        """Enter the phase that follows an event."""

    def relocate(self, move: state.Move, location: str) -> None:
        """Record where the source of a move is exported by now."""

    def commit(self, move: state.Move) -> state.Move:
        """Swap the identities of volume and shadow."""

    def roll_back(self, move: state.Move) -> state.Move:
        """Swap the identities back and enter ``rolling-back``."""

    def finish(self, move: state.Move, event: state.Event) -> None:
        """Forget a move."""

    def drop_attachment(self, volume_id: str, attachment_id: str) -> None:
        """Remove an attachment whose connection was refused."""


class AttachmentRecords(typing.Protocol):
    """Which volumes are passed through, as attachments in Cinder say."""

    def passed_to(self, host: str) -> list[objects.Volume]:
        """The volumes that a node passes through."""

    def any_newer(self, ids: Collection[str], seconds: float) -> bool:
        """Return whether an attachment was made or changed recently."""

    def end_passing(self, volume_id: str, host: str) -> None:
        """A node does not pass a volume through any more."""

    def readdress(self, volume_id: str, iqn: str, portal: str) -> None:
        """Record where a volume is served by now under an iSCSI name."""


class StatusRecords(typing.Protocol):
    """What Cinder has begun with volumes, and has not ended."""

    def now(self) -> datetime.datetime:
        ...

    def older(self, host: str, moment: datetime.datetime,
              of: Collection[str]) -> list[str]:
        ...

    def end_dead(self, volume_id: str, host: str, sizes: Mapping[str, int]
                 ) -> str | None:
        ...

    def lost_deletes(self, host: str, seconds: float) -> list[objects.Volume]:
        ...


class SnapshotRecords(typing.Protocol):
    """Snapshots and newborn volumes, as Cinder's database has them."""

    def snapshot(self, snapshot_id: str) -> rows.Snapshot | None:
        """A snapshot, also one that was deleted; None if it has no row."""

    def snapshots(self, ids: Iterable[str]) -> dict[str, rows.Snapshot]:
        """Those of some snapshots that have a row, by id."""

    def snapshots_of(self, volume_id: str) -> list[rows.Snapshot]:
        """The snapshots of a volume that are not deleted."""

    def locate(self, snapshot_id: str, host: str,
               encryption: volume_types.Recorded | None = None) -> None:
        """Record which node is about to make a snapshot, and of what."""

    def relocate_snapshot(self, snapshot_id: str, before: str, host: str
                          ) -> None:
        """Record that the node that has a snapshot has another host."""

    def is_being_read(self, snapshot_id: str) -> bool:
        """Whether a backup is being made of a snapshot."""

    def place(self, volume_id: str, old: str, new: str) -> None:
        """Give a volume that is being created another home."""

    def wanted_encryption(self, volume: objects.Volume, new: bool = False
                          ) -> volume_types.Encryption | None:
        """How a volume is to be encrypted by this driver."""

    def set_encryption(self, volume: objects.Volume,
                       encryption: volume_types.Recorded | None
                       ) -> objects.Volume:
        """Record how a volume that is being created is encrypted."""

    def lv_name(self, name_id: str) -> str:
        """The name of an LV of a volume."""

    def replace_body(self, volume: objects.Volume, new: str, host: str,
                     encryption: volume_types.Recorded | None = None
                     ) -> objects.Volume:
        """A volume that is being reverted gets another LV, and home."""

    def keep(self, volume_id: str, name_id: str) -> None:
        """A volume that was not reverted is available again."""

    def newborn(self, volume_id: str) -> rows.Newborn | None:
        """What has become of a newborn volume; None if it has no row."""

    def zone_of(self, host: str) -> str | None:
        """The availability zone of a service host."""

    def misplaced(self, host: str) -> list[str]:
        """Return the volumes of a service whose rows name another host."""

    def correct_home(self, volume: objects.Volume, host: str) -> bool:
        """Have a volume's row name the host of the service that it names."""

    def service_of(self, volume_id: str) -> str | None:
        """Return the service host of the service that a volume's row names."""

    def correct_services(self, host: str, lvs: Container[str]) -> None:
        """The volumes of a service host say that they are that service's."""


class OperatorRecords(Records, SnapshotRecords, typing.Protocol):
    """What forgetting a node changes besides."""

    def snapshots_on(self, host: str) -> dict[str, str]:
        """The snapshots on a node; for each the volume that it is of."""

    def give_up_snapshot(self, snapshot_id: str, host: str) -> None:
        """A snapshot that is lost with its node, to be deleted."""

    def give_up(self, volume: objects.Volume, heir: str) -> None:
        """A volume whose data is lost gets another home, to be deleted."""

    def forget_service(self, host: str) -> bool:
        """A volume service is not expected any more."""
