# SPDX-License-Identifier: Apache-2.0
"""Cinder's database, as the work on a volume uses it.

One class a subject, side by side. ``cinder_localclone.db`` has the real ones,
``tests.world.records`` those of the simulated world; ``tests/contracts`` holds
both to what is written here. A writer is one transaction: it compares the rows
with what its caller read, and changes nothing if they differ.
"""

import abc
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import datetime

from cinder_localclone.core import copies
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types


class Moves(abc.ABC):
    """Move records: hidden volume rows, see :mod:`.move_record`.

    Until the commit a record's row is the copy that is built on the
    destination, afterwards the source that is drained: the commit swaps names
    and hosts of the two rows in one transaction. The swap leaves the token
    alone; only compare-and-swap changes it.
    """

    @abc.abstractmethod
    def move_of(self, volume_id: str) -> state.Move | None:
        """Return the move of a volume that is not over: there is one at most.

        :raises InvalidToken: if a record of the volume cannot be read
        """

    @abc.abstractmethod
    def pending_cleanups(self, volume_id: str) -> list[state.Move]:
        """Return the moves of a volume that are over but for a clean-up.

        The volume may be at rest, moving again, or deleted.

        :raises InvalidToken: if a record of the volume cannot be read
        """

    @abc.abstractmethod
    def get_move(self, move_id: str) -> state.Move | None:
        """Return the move with this record.

        :raises InvalidToken: if the record cannot be read
        """

    @abc.abstractmethod
    def is_move(self, move_id: str) -> bool:
        """Return whether there is such a record, readable or not."""

    @abc.abstractmethod
    def readable(self) -> list[state.Move]:
        """Return all moves whose records can be read; log the others."""

    @abc.abstractmethod
    def moves_of(self, host: str) -> list[state.Move]:
        """Return all moves from or to a service host, also those of clean-ups.

        A clean-up counts at the node that does it, and at the one where its
        volume is now. Records that can't be read are logged.
        """

    @abc.abstractmethod
    def begin(self, volume: objects.Volume, host: str, event: state.Event,
              geometry: state.Geometry, locate: Callable[[str], str],
              auth: str, initiator: str,
              asked_by: state.Asked = state.Asked.ATTACH) -> state.Move:
        """Record the intent to move a volume: create its move record.

        :param volume: as it was read
        :param host: the destination with its pool
        :param event: which kind of move begins
        :param locate: gives the export's provider_location for a record's id
        :param auth: the export's one-time credentials (provider_auth)
        :param initiator: the one that may log in to the export
        :param asked_by: unless by an attach, the move holds the row
        :raises InvalidTransition: if no move begins with this event
        :raises StaleMove: if the volume is not at the home it was read
            with any more, has a move that is not over, or
            :func:`.rows.may_move` says no
        :raises InvalidToken: if a record of the volume cannot be read
        """

    @abc.abstractmethod
    def advance(self, move: state.Move, event: state.Event) -> state.Move:
        """Enter the phase that follows an event, by compare-and-swap.

        :raises InvalidTransition: if there is none
        :raises StaleMove: if another service was first
        """

    @abc.abstractmethod
    def relocate(self, move: state.Move, location: str) -> None:
        """Record where the source of a move is exported by now.

        :param location: a provider_location
        :raises StaleMove: if another service was first
        """

    @abc.abstractmethod
    def commit(self, move: state.Move) -> state.Move:
        """Swap the identities of volume and record in one transaction.

        :returns: the committed move
        :raises StaleMove: if either row is not as the move says
        """

    @abc.abstractmethod
    def roll_back(self, move: state.Move) -> state.Move:
        """Swap the identities back and enter ``rolling-back``, in one.

        :raises InvalidTransition: if the move's phase allows no way back
        :raises StaleMove: if either row is not as the move says
        """

    @abc.abstractmethod
    def finish(self, move: state.Move, event: state.Event) -> None:
        """Forget a move: delete its record.

        In the same transaction the volume's migration status becomes
        ``success``, unless the move was rolled back, or Cinder itself
        migrates the volume by now.

        :raises InvalidTransition: if the move does not end with this event
        :raises StaleMove: if another service was first
        """


class Volumes(abc.ABC):
    """Rows of volumes: home, LV and encryption."""

    @abc.abstractmethod
    def volume(self, volume_id: str) -> objects.Volume | None:
        """Return a volume with its attachments; None if it is gone."""

    @abc.abstractmethod
    def volumes_of(self, host: str) -> list[objects.Volume]:
        """Return all visible volumes whose home is a service host."""

    @abc.abstractmethod
    def last_known(self, volume_id: str) -> rows.Uncommitted | None:
        """Return what a volume's row says, deleted or not; None: no row."""

    @abc.abstractmethod
    def lv_name(self, name_id: str) -> str:
        """Return the name of an LV of a volume (``volume_name_template``).

        :param name_id: the volume's id, or another that its row names
        """

    @abc.abstractmethod
    def set_home(self, volume_id: str, old: str, new: str) -> None:
        """Give another home to a volume that is being created.

        :param old: the home with its pool that it must still have
        :param new: the one that it gets
        :raises TooLate: if it is not being created (any more), moves, or is
            not there
        :raises InvalidToken: if a record of the volume cannot be read
        """

    @abc.abstractmethod
    def wanted_encryption(self, volume: objects.Volume, new: bool = False
                          ) -> volume_types.Encryption | None:
        """Return how this driver has to encrypt a volume, by its type.

        :param new: see :func:`.volume_types.parse`
        :returns: None: not at all
        :raises InvalidType: if the type asks for what can't be
        """

    @abc.abstractmethod
    def set_encryption(self, volume: objects.Volume,
                       encryption: volume_types.Recorded | None
                       ) -> objects.Volume:
        """Record how a volume that is being created is encrypted.

        :param volume: as it was read
        :returns: the volume as it is then
        :raises TooLate: if it is not being created (any more); or if another
            node is to create it by now, or has recorded it meanwhile
        """

    @abc.abstractmethod
    def replace_backing(self, volume: objects.Volume, new: str, host: str,
                        encryption: volume_types.Recorded | None = None
                        ) -> objects.Volume:
        """Give another LV, and home, to a volume that is being reverted.

        :param volume: as it was read
        :param new: the id in the LV's name
        :param host: service host of the node that has the LV
        :param encryption: of the data in the LV
        :returns: the volume as it is then
        :raises StaleMove: if the row is not as it was read, or moves
        :raises InvalidToken: if a record of the volume cannot be read
        """

    @abc.abstractmethod
    def keep(self, volume_id: str, name_id: str) -> None:
        """Make a volume that was not reverted available again.

        :param name_id: of its LV; the row is left alone if it names another
        """

    @abc.abstractmethod
    def misplaced(self, host: str) -> list[str]:
        """Return the volumes of a service whose rows name another host.

        Volumes that are being created are left out: Cinder's manager notes
        the service that was asked, wherever the volume is then.

        :param host: its service host
        :returns: ids
        """

    @abc.abstractmethod
    def correct_home(self, volume: objects.Volume, host: str) -> bool:
        """Have a volume's row name the host of the service that it names.

        :param volume: as it was read
        :param host: service host of that service
        :returns: whether the row was as it was read; else nothing is changed
        """

    @abc.abstractmethod
    def service_of(self, volume_id: str) -> str | None:
        """Return the service host of the service that a volume's row names.

        :returns: None if there is no such service, or the volume is gone
        """

    @abc.abstractmethod
    def correct_services(self, host: str, lvs: Container[str]) -> None:
        """Have the volumes of a service host name that host's service.

        Cinder's manager notes the service that was asked to create one,
        wherever it is then.

        :param lvs: names of the LVs there; a volume without its LV is left
            alone, since the service that its row names may have it
        """


class Snapshots(abc.ABC):
    """Rows of snapshots.

    The node that has a snapshot is in its row's ``provider_location``, and
    nowhere else: its volume may be at another home by then.
    """

    @abc.abstractmethod
    def snapshot(self, snapshot_id: str) -> rows.Snapshot | None:
        """Return a snapshot, deleted or not; None if it has no row."""

    @abc.abstractmethod
    def snapshots(self, ids: Iterable[str]) -> dict[str, rows.Snapshot]:
        """Return the snapshots with these ids that have a row, by id."""

    @abc.abstractmethod
    def snapshots_of(self, volume_id: str) -> list[rows.Snapshot]:
        """Return the snapshots of a volume that are not deleted."""

    @abc.abstractmethod
    def locate(self, snapshot_id: str, host: str,
               encryption: volume_types.Recorded | None = None) -> None:
        """Record which node is about to make a snapshot, and of what.

        :param host: its service host
        :param encryption: of the volume at this moment
        :raises TooLate: if it is not being created (any more)
        """

    @abc.abstractmethod
    def relocate_snapshot(self, snapshot_id: str, before: str, host: str
                          ) -> None:
        """Record that the node that has a snapshot has another host.

        :param before: the service host that its row names, else nothing is
            done
        """

    @abc.abstractmethod
    def is_being_read(self, snapshot_id: str) -> bool:
        """Return whether a backup is being made of a snapshot.

        Cinder knows of no other connections of snapshots.
        """


class Attachments(abc.ABC):
    """Attachments, and the connections that are recorded with them."""

    @abc.abstractmethod
    def remote_to(self, host: str) -> list[objects.Volume]:
        """Return the volumes that are attached remotely at a node.

        :param host: its service host
        """

    @abc.abstractmethod
    def any_newer(self, ids: Collection[str], seconds: float) -> bool:
        """Return whether an attachment was made or changed recently.

        By the clock of the database: a node's own may be wrong. The host of
        Cinder's API has stamped when it was made, its home when it was
        changed: one of the two clocks may be behind.

        :param ids: of the attachments; one that is gone does not count
        :param seconds: for less than that
        """

    @abc.abstractmethod
    def end_remote_attachments(self, volume_id: str, host: str) -> None:
        """Record that a node ends its remote attachment of a volume."""

    @abc.abstractmethod
    def readdress(self, volume_id: str, iqn: str, portal: str) -> None:
        """Record where a volume is exported by now under an iSCSI name.

        :param portal: address and port
        """

    @abc.abstractmethod
    def drop_attachment(self, volume_id: str, attachment_id: str) -> None:
        """Remove an attachment whose connection was refused.

        Nova asks for that of a live migration in one call with the connector.
        When that fails, Nova never learns the attachment's id, and Cinder
        would keep it (api/v3/attachments.py), reserved for good: the volume
        could not become available any more. An attachment that has gone on
        since stays. As in Cinder (``_get_statuses_from_attachments`` in
        cinder/db/api.py), attachments that have failed do not keep a volume
        reserved.
        """


class Secrets(abc.ABC):
    """Which rows name a secret of the key manager.

    A secret that a row names is in use: it is the key of that volume, or of
    a snapshot, whose header is of its own time.
    """

    @abc.abstractmethod
    def secrets_in_use(self, without: Iterable[str] = (), host: str = ''
                       ) -> set[str]:
        """Return the references of all secrets that a row names.

        Rows of all backends count: Cinder's own migration copies the column,
        so a row that is about to go may name the secret of a volume
        elsewhere.

        :param without: ids of volumes that are about to go. The move record
            of a volume names nothing by itself, and may outlive it
        :param host: a service host of the only backend that counts
        """

    @abc.abstractmethod
    def record(self, volume_id: str, recorded: volume_types.Recorded,
               before: volume_types.Recorded | None = None) -> None:
        """Record by which secret a volume is encrypted from now on.

        :param before: what its row has said
        :raises TooLate: if that is gone, or says something else: another
            node makes the volume, with a secret of its own
        """


class SecretOwners(abc.ABC):
    """Who may own a secret that is about to be deleted."""

    @abc.abstractmethod
    def secrets_of_all(self) -> set[str]:
        """Return the references that any row names, of whatever backend.

        A secret that is about to be deleted must be nobody's, also if a
        volume was migrated to another backend, or its node was renamed.
        """

    @abc.abstractmethod
    def volumes_known(self, volume_ids: Collection[str]
                      ) -> tuple[set[str], set[str]]:
        """Return which of some volumes are there, and which were deleted.

        A row stays, as a deleted one, until an operator purges the database.
        """


class Services(abc.ABC):
    """Volume services."""

    @abc.abstractmethod
    def by_host(self) -> dict[str, bool]:
        """Return all volume services: service host, and whether it is alive.
        """

    @abc.abstractmethod
    def zone_of(self, host: str) -> str | None:
        """Return the availability zone of a service host.

        :param host: with or without pool
        :returns: None if there is no such service
        """


class Queue(abc.ABC):
    """The queue of copies."""

    @abc.abstractmethod
    def copies(self, host: str) -> list[copies.Entry]:
        """Return all copies between nodes of the backend of a service host.

        The number of queries does not depend on that of the copies.
        """

    @abc.abstractmethod
    def note_stalled(self, move: state.Move, stalled: bool) -> None:
        """Record since when a copy makes no progress; or that it does.

        :raises StaleMove: if the record is not as the move says
        """


class Interrupted(abc.ABC):
    """Work of Cinder's volume manager that its service did not end."""

    @abc.abstractmethod
    def end_interrupted(self, host: str) -> dict[str, str]:
        """End the migrations that a service was at work on when it died.

        One whose move is committed has succeeded. Any other has failed: the
        volume is where it was. An attached volume is left alone: Nova copies
        it, and reports to whichever service runs then.

        :param host: service host; it exports nothing yet, or never again
        :returns: how each of these has ended, by volume id
        """

    @abc.abstractmethod
    def now(self) -> datetime.datetime:
        """Return the time (UTC) by the clock of the database."""

    @abc.abstractmethod
    def older(self, host: str, moment: datetime.datetime,
              of: Collection[str] = statuses.LOST_WITH_SERVICE) -> list[str]:
        """Return the volumes at a service host that have old statuses of work.

        :param moment: since before then
        :param of: the statuses of that work
        :returns: ids
        """

    @abc.abstractmethod
    def end_dead(self, volume_id: str, host: str, sizes: Mapping[str, int]
                 ) -> str | None:
        """End what a service was at work on when it died.

        Only where the volume's LV, and which it is, shows how that ended.

        :param host: service host of its home
        :param sizes: how much may be seen of each of its LVs (bytes)
        :returns: the volume's status now; None if it is as it was
        :raises NotPossible: if the row can't be understood
        """

    @abc.abstractmethod
    def lost_deletes(self, host: str, seconds: float) -> list[objects.Volume]:
        """Return the volumes of a service host that no service will delete.

        Cinder notes which service is at work on one: another one than its
        home's has refused it, or does not come to it.

        :param seconds: for how long, at least
        """


class Decommission(abc.ABC):
    """What a node leaves behind that is drained, or lost.

    For the operator's command.
    """

    @abc.abstractmethod
    def snapshots_on(self, host: str) -> dict[str, str]:
        """Return the snapshots on a node, wherever their volumes are.

        :returns: for each snapshot the volume that it is of
        """

    @abc.abstractmethod
    def give_up_snapshot(self, snapshot_id: str, host: str) -> None:
        """Set a snapshot that is lost with its node to ``error``.

        Its owner can delete it, unless that has begun.
        """

    @abc.abstractmethod
    def give_up(self, volume: objects.Volume, new_home: str) -> None:
        """Give another home to a volume whose data is lost with its node.

        Its status is ``error`` from then on; its owner can delete it there.
        Attachments are left to Nova.

        :param new_home: with its pool
        :raises StaleMove: if the volume is not where it was read any more, or
            moves away from there
        :raises InvalidToken: if a record of the volume cannot be read
        """

    @abc.abstractmethod
    def forget_service(self, host: str) -> bool:
        """Remove a volume service, until it starts again.

        As ``cinder-manage service remove`` does.

        :returns: whether there was one
        """


@dataclasses.dataclass(frozen=True)
class Database:
    """Cinder's database: one value of each subject.

    Attachments are not here: they need to know the nodes' addresses.
    """

    moves: Moves
    volumes: Volumes
    snapshots: Snapshots
    secrets: Secrets
    services: Services
    queue: Queue
    interrupted: Interrupted
    decommission: Decommission
