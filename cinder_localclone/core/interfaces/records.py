# SPDX-License-Identifier: Apache-2.0
"""Contracts of Cinder's database, for the work on volumes.

There is a class for each subject. ``cinder_localclone.db`` has the real
classes, ``tests.world.records`` those of the simulated world;
``tests/contracts`` checks both against these contracts. A writer is a single
transaction: it compares the rows with the values its caller has read, and
changes nothing if they differ.
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
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types


class Moves(abc.ABC):
    """Move records: hidden volume rows, see :mod:`.move_record`.

    Until the commit the row of a move record describes the copy on the
    destination, afterwards the source: the commit swaps names and hosts of the
    two rows in one transaction. The token stays with the record; only a
    compare-and-swap changes it.
    """

    @abc.abstractmethod
    def move_of(self, volume_id: str) -> state.Move | None:
        """Return the move of a volume that is not over; None if there is none.

        A volume has at most one such move.

        :raises InvalidToken: if a move record of the volume can't be read
        """

    @abc.abstractmethod
    def pending_cleanups(self, volume_id: str) -> list[state.Move]:
        """Return the moves of a volume that are over but for their clean-up.

        The volume may be at rest, in another move, or deleted.

        :raises InvalidToken: if a move record of the volume can't be read
        """

    @abc.abstractmethod
    def get_move(self, move_id: str) -> state.Move | None:
        """Return the move with this record; None if there is no record.

        :raises InvalidToken: if the record can't be read
        """

    @abc.abstractmethod
    def is_move(self, move_id: str) -> bool:
        """Return whether a move record with this id exists, readable or not.
        """

    @abc.abstractmethod
    def readable_moves(self) -> list[state.Move]:
        """Return all moves with a readable record; log the other records."""

    @abc.abstractmethod
    def moves_of(self, host: str) -> list[state.Move]:
        """Return all moves from or to a node, with pending cleanups.

        A pending cleanup counts at the node that has to clean up, and at the
        present home of the volume. Records that can't be read are logged.

        :param host: service host of the node
        """

    @abc.abstractmethod
    def begin(self, volume: Volume, host: str, event: state.Event,
              geometry: state.Geometry, locate: Callable[[str], str],
              auth: str, initiator: str,
              asked_by: state.Asked = state.Asked.ATTACH) -> state.Move:
        """Begin a move of a volume: create its move record.

        :param volume: the volume as it was read
        :param host: the destination with its pool
        :param event: the kind of move that begins
        :param geometry: of the clone
        :param locate: ``locate(move_id)`` returns the provider_location of the
            export
        :param auth: one-time credentials of the export (provider_auth)
        :param initiator: the iSCSI name of the initiator that may log in
        :param asked_by: the cause of the move. Except for an attach, the move
            holds the volume's row
        :returns: the move in its first phase
        :raises InvalidTransition: if no move begins with this event
        :raises StaleMove: if the volume's home has changed since it was read,
            it has a move that is not over, or :meth:`.Row.may_move` rejects
            the move
        :raises InvalidToken: if a move record of the volume can't be read
        """

    @abc.abstractmethod
    def advance(self, move: state.Move, event: state.Event) -> state.Move:
        """Enter the next phase after an event, by compare-and-swap.

        :returns: the move in its new phase
        :raises InvalidTransition: if the phase does not allow this event
        :raises StaleMove: if another service has changed the record before
        """

    @abc.abstractmethod
    def relocate(self, move: state.Move, location: str) -> None:
        """Record the present location of the export of a move's source.

        :param location: a provider_location
        :raises StaleMove: if another service has changed the record before
        """

    @abc.abstractmethod
    def commit(self, move: state.Move) -> state.Move:
        """Swap the identities of volume and record in one transaction.

        :returns: the committed move
        :raises StaleMove: if either row differs from the move
        """

    @abc.abstractmethod
    def roll_back(self, move: state.Move) -> state.Move:
        """Swap the identities back and enter ``rolling-back``, in one step.

        :returns: the move in its new phase
        :raises InvalidTransition: if the move's phase does not allow a
            rollback
        :raises StaleMove: if either row differs from the move
        """

    @abc.abstractmethod
    def finish(self, move: state.Move, event: state.Event) -> None:
        """End a move: delete its record.

        In the same transaction the volume's migration status becomes
        ``success``, unless the move was rolled back, the volume was deleted,
        or Cinder itself migrates the volume at the moment.

        :raises InvalidTransition: if the move does not end with this event
        :raises StaleMove: if another service has changed the record before
        """


class Volumes(abc.ABC):
    """Rows of volumes: home, LV and encryption."""

    @abc.abstractmethod
    def volume(self, volume_id: str) -> Volume | None:
        """Return a volume with its attachments; None if it is gone."""

    @abc.abstractmethod
    def volumes_of(self, host: str) -> list[Volume]:
        """Return all visible volumes at home on a service host."""

    @abc.abstractmethod
    def last_known(self, volume_id: str) -> rows.Uncommitted | None:
        """Return the last state of a volume's row, deleted or not.

        :returns: None if there is no row
        """

    @abc.abstractmethod
    def lv_name(self, name_id: str) -> str:
        """Return the name of an LV of a volume (``volume_name_template``).

        :param name_id: the volume's id, or the other id in its row
        """

    @abc.abstractmethod
    def set_home(self, volume_id: str, old: str, new: str) -> None:
        """Give another home to a volume that is being created.

        :param old: the expected present home, with its pool
        :param new: the new home, with its pool
        :raises TooLate: if the volume is not being created (any more), has
            another home, has a move, or is gone
        """

    @abc.abstractmethod
    def wanted_encryption(self, volume: Volume | rows.Uncommitted,
                          new: bool = False) -> volume_types.Encryption | None:
        """Return the encryption by this driver that a volume's type asks for.

        :param new: see :func:`.volume_types.parse`
        :returns: None if the type asks for none
        :raises InvalidType: if the type asks for an impossible encryption
        """

    @abc.abstractmethod
    def set_encryption(self, volume: Volume,
                       encryption: volume_types.Recorded | None
                       ) -> Volume:
        """Record the encryption of a volume that is being created.

        :param volume: the volume as it was read
        :param encryption: None: not encrypted by this driver
        :returns: the volume afterwards
        :raises TooLate: if the volume is not being created (any more), or
            another node has taken over its creation or recorded an encryption
            meanwhile
        """

    @abc.abstractmethod
    def replace_backing(self, volume: Volume, new: str, host: str,
                        encryption: volume_types.Recorded | None = None
                        ) -> Volume:
        """Give another LV, and home, to a volume that is being reverted.

        :param volume: the volume as it was read
        :param new: the id in the name of the new LV
        :param host: service host of the node with the new LV
        :param encryption: of the data in the new LV
        :returns: the volume afterwards
        :raises StaleMove: if the row has changed since it was read, or has a
            move
        """

    @abc.abstractmethod
    def keep(self, volume_id: str, name_id: str) -> None:
        """Make a volume available again after a revert without effect.

        :param name_id: the id in the name of its LV; a row with another LV is
            left alone
        """

    @abc.abstractmethod
    def volumes_with_wrong_host(self, host: str, migrating: bool = False
                                ) -> list[str]:
        """Return the volumes at home on a host whose rows name another.

        The move of a volume tells its home, or else the service in its row.
        Volumes in creation or in migration are left out: Cinder's manager
        writes its own service into the row, wherever the volume is then.

        :param host: its service host
        :param migrating: whether volumes in migration are listed, too
        :returns: ids of the volumes
        """

    @abc.abstractmethod
    def correct_home(self, volume: Volume, host: str) -> bool:
        """Correct the host in a volume's row to its home.

        :param volume: the volume as it was read
        :param host: service host of its home
        :returns: False if the row has another LV by now, or is not one of
            :meth:`volumes_with_wrong_host`; nothing is changed then
        """

    @abc.abstractmethod
    def service_of(self, volume_id: str) -> str | None:
        """Return the service host of the service named in a volume's row.

        :returns: None if the service does not exist, or the volume is gone
        """

    @abc.abstractmethod
    def correct_services(self, host: str, lvs: Container[str]) -> None:
        """Correct the service in the rows of volumes at home on a host.

        Cinder's manager writes its own service into a new volume's row,
        wherever the volume is then; it writes none into a managed volume's.

        :param host: the service host
        :param lvs: names of the LVs on this host. A volume without its LV is
            left alone: the service named in its row may have the LV
        """


class Snapshots(abc.ABC):
    """Rows of snapshots.

    Only the ``provider_location`` of its row names the node that has a
    snapshot: the volume may have another home by then.
    """

    @abc.abstractmethod
    def snapshot(self, snapshot_id: str) -> rows.Snapshot | None:
        """Return a snapshot, deleted or not; None if it has no row."""

    @abc.abstractmethod
    def snapshots(self, ids: Iterable[str]) -> dict[str, rows.Snapshot]:
        """Return the snapshots with these ids, by id.

        Deleted ones are included; an id without a row is left out.
        """

    @abc.abstractmethod
    def snapshots_of(self, volume_id: str) -> list[rows.Snapshot]:
        """Return the snapshots of a volume, without deleted ones."""

    @abc.abstractmethod
    def locate(self, snapshot_id: str, host: str,
               encryption: volume_types.Recorded | None = None) -> None:
        """Record node and encryption of a snapshot about to be created.

        :param host: service host of the node
        :param encryption: of the volume at this moment
        :raises TooLate: if the snapshot is not being created (any more)
        """

    @abc.abstractmethod
    def relocate_snapshot(self, snapshot_id: str, before: str, host: str
                          ) -> None:
        """Record a new service host of the node that has a snapshot.

        :param before: the expected present host; with another one nothing is
            changed
        :param host: the new host
        """

    @abc.abstractmethod
    def is_being_read(self, snapshot_id: str) -> bool:
        """Return whether a backup of a snapshot is in progress.

        Cinder records no other connections of snapshots.
        """


class Attachments(abc.ABC):
    """Attachments of volumes, with their connectors and connections."""

    @abc.abstractmethod
    def remote_to(self, host: str) -> list[Volume]:
        """Return the volumes with a remote attachment at a node.

        :param host: service host of the node
        """

    @abc.abstractmethod
    def any_newer(self, ids: Collection[str], seconds: float) -> bool:
        """Return whether an attachment was created or changed recently.

        The age counts by the clock of the database: a node's own clock may be
        wrong. Cinder's API host stamps the creation, the volume's home each
        change, so either stamp may be off as well.

        :param ids: of the attachments; a missing attachment does not count
        :param seconds: the greatest age
        """

    @abc.abstractmethod
    def end_remote_attachments(self, volume_id: str, host: str) -> None:
        """Record the end of a node's remote attachment of a volume.

        :param host: service host of the node
        """

    @abc.abstractmethod
    def readdress(self, volume_id: str, iqn: str, portal: str) -> None:
        """Record the present portal of a volume's export.

        :param iqn: the iSCSI name of the export
        :param portal: address and port
        """

    @abc.abstractmethod
    def drop_attachment(self, volume_id: str, attachment_id: str) -> None:
        """Remove an attachment after its connection was refused.

        For a live migration Nova creates the attachment together with its
        connector, in one call. If this fails, Nova never learns the
        attachment's id, and Cinder would keep the attachment reserved for good
        (api/v3/attachments.py): the volume could not become available any
        more. An attachment that is connected by now stays. As in Cinder
        (``_get_statuses_from_attachments`` in cinder/db/api.py), failed
        attachments do not keep a volume reserved.
        """


class Secrets(abc.ABC):
    """Secrets of the key manager named by rows.

    A secret named by a row is in use: it is the key of the volume, or of a
    snapshot, whose header is as old as the snapshot.
    """

    @abc.abstractmethod
    def secrets_in_use(self, without: Iterable[str] = (), host: str = ''
                       ) -> set[str]:
        """Return the references of all secrets named by a row.

        Rows of all backends count: Cinder's own migration copies the column,
        so the row of a volume about to be deleted may name the secret of a
        volume on another backend.

        :param without: ids of volumes about to be deleted. Their move records
            name no secret of their own
        :param host: a service host; only rows of its backend count. '': all
        """

    @abc.abstractmethod
    def secrets_of_deleted_snapshots(self, volume_id: str) -> set[str]:
        """Return the references in the rows of a volume's deleted snapshots.

        The volume may have stayed a consumer of these secrets.
        """

    @abc.abstractmethod
    def record(self, volume_id: str, recorded: volume_types.Recorded,
               before: volume_types.Recorded | None = None) -> None:
        """Record another secret as the key of a volume.

        :param recorded: the new encryption, with the reference of the secret
        :param before: the expected present encryption in the row
        :raises TooLate: if the volume is gone, or its row has another
            encryption: another node creates the volume, with a secret of its
            own
        """


class SecretOwners(abc.ABC):
    """Possible owners of a secret about to be deleted."""

    @abc.abstractmethod
    def secrets_of_all(self) -> set[str]:
        """Return the references of the secrets named by any row.

        Rows of all backends count: a secret must not be deleted if its volume
        was migrated to another backend, or its node was renamed.
        """

    @abc.abstractmethod
    def volumes_known(self, volume_ids: Collection[str]
                      ) -> tuple[set[str], set[str]]:
        """Return the existing and the deleted volumes among some ids.

        A deleted row stays in the database until an operator purges it.

        :returns: (ids of existing volumes, ids of deleted volumes)
        """


class Services(abc.ABC):
    """Volume services."""

    @abc.abstractmethod
    def alive_by_host(self) -> dict[str, bool]:
        """Return whether each volume service is alive, by service host."""

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
        """Return all copies between nodes of a backend.

        The number of queries does not depend on the number of copies.

        :param host: a service host of the backend
        """

    @abc.abstractmethod
    def note_stalled(self, move: state.Move, stalled: bool) -> None:
        """Record the time at which a copy stalled, or remove this time.

        :param stalled: whether the copy makes no progress now
        :raises StaleMove: if the record differs from the move
        """


class Interrupted(abc.ABC):
    """Work of Cinder's volume manager interrupted by its service's death."""

    @abc.abstractmethod
    def end_interrupted(self, host: str) -> dict[str, str]:
        """End the migrations interrupted by the death of a service.

        A migration with a committed move has succeeded. Any other has failed:
        the volume is at its old home. An attached volume is left alone: Nova
        copies it, and reports to the service that runs then.

        :param host: service host; its service exports nothing yet, or never
            again
        :returns: migration status of each ended migration, by volume id
        """

    @abc.abstractmethod
    def now(self) -> datetime.datetime:
        """Return the time (UTC) by the clock of the database."""

    @abc.abstractmethod
    def volumes_unchanged_since(self, host: str, moment: datetime.datetime,
                                of: Collection[
                                    str] = statuses.LOST_WITH_SERVICE
                                ) -> list[str]:
        """Return the volumes of a service host with an old status of work.

        :param moment: the row was last changed before this time (UTC)
        :param of: the statuses to search for
        :returns: ids of the volumes
        """

    @abc.abstractmethod
    def end_dead(self, volume_id: str, host: str, sizes: Mapping[str, int]
                 ) -> str | None:
        """End a volume's work interrupted by the death of a service.

        Nothing is changed unless the volume's LV shows how the work has ended.

        :param host: service host of the volume's home
        :param sizes: visible length (bytes) of each LV there, by name
        :returns: the volume's new status; None if it was not changed
        :raises NotPossible: if the row can't be understood
        """

    @abc.abstractmethod
    def lost_deletes(self, host: str, seconds: float) -> list[objects.Volume]:
        """Return Cinder's objects of volumes that no service will delete.

        Cinder records the service at work on a volume. Here it is not the
        service of the volume's home: it has refused the request, or does not
        get to it.

        :param host: service host of their homes
        :param seconds: the least age of the request
        """


class Decommission(abc.ABC):
    """Rows left behind by a node that is drained or lost.

    For the operator's command.
    """

    @abc.abstractmethod
    def snapshots_on(self, host: str) -> dict[str, str]:
        """Return the snapshots on a node, wherever their volumes are.

        :param host: service host of the node
        :returns: volume ids by snapshot id
        """

    @abc.abstractmethod
    def give_up_snapshot(self, snapshot_id: str, host: str) -> None:
        """Set a snapshot lost with its node to ``error``.

        The owner can then delete it. A snapshot in deletion is left alone.

        :param host: service host of the lost node
        """

    @abc.abstractmethod
    def give_up(self, volume: Volume, new_home: str) -> None:
        """Give another home to a volume whose data is lost with its node.

        The volume gets the status ``error``; its owner can delete it at the
        new home. Attachments are left to Nova.

        :param volume: the volume as it was read
        :param new_home: with its pool
        :raises StaleMove: if the row has changed since it was read, or the
            volume has an uncommitted move
        """

    @abc.abstractmethod
    def forget_service(self, host: str) -> bool:
        """Remove a volume service, until it starts again.

        ``cinder-manage service remove`` does the same.

        :returns: whether the service existed
        """


@dataclasses.dataclass(frozen=True)
class Database:
    """Cinder's database: an object of each subject.

    Attachments are not included: they need the addresses of the nodes.
    """

    moves: Moves
    volumes: Volumes
    snapshots: Snapshots
    secrets: Secrets
    services: Services
    queue: Queue
    interrupted: Interrupted
    decommission: Decommission
