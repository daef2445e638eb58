# SPDX-License-Identifier: Apache-2.0
"""The contracts of this node's iSCSI target and initiator.

As in :mod:`.interfaces.storage`: the real and the simulated classes subclass
these, an effect can be repeated, and each method may raise CommandFailed or
CommandTimeout. Sizes are in bytes.
"""

from collections.abc import Callable
from collections.abc import Mapping
import typing

from cinder_localclone.core import objects
from cinder_localclone.core import state


class Exports(typing.Protocol):
    """Devices exported by this node, each to one initiator with CHAP.

    Handles are exported to the hosts of attachments, sources of moves to their
    destinations. Methods without an effect do not call the kernel's target. An
    effect calls it only if something has to change; it may then raise
    ExportFailed, or TargetTimeout if the target hangs.
    """

    #: The portal (address and port) for hosts without this backend.
    portal: str

    # -- where

    def source_location(self, move_id: str) -> str:
        """Return the provider_location for the source of a new move."""

    def portal_for(self, portal: str) -> str:
        """Return the present portal of an export.

        :param portal: the portal in the record of the export
        :returns: the same portal if this node still has its address, otherwise
            this node's own portal
        """

    def has_portal(self, portal: str) -> bool:
        """Return whether this node can export at a portal."""

    def location_for(self, move: state.Move) -> str:
        """Return the present provider_location of a move's source.

        :returns: the location in the move record, with this node's own portal
            if the node no longer has the recorded address
        """

    # -- sources of moves

    def export_source(self, move: state.Move) -> bool:
        """Export a move's source, read-only, to its destination.

        Name, portal, initiator and CHAP secret come from the move record. So
        the same export exists again after this node was down, and the
        destination's initiator reconnects.

        :returns: whether anything was changed
        :raises ExportFailed: if the record lacks the initiator or the secret
        """

    def is_source_exported_as_recorded(self, move: state.Move) -> bool:
        """Return whether a move's source is exported exactly as recorded.

        :raises TargetTimeout: if the target hangs
                """

    def withdraw_source(self, move_id: str) -> bool:
        """Remove the export of a move's source.

        :returns: whether anything was removed
        """

    def is_source_exported(self, move_id: str) -> bool:
        """Return whether the source of a move is exported."""

    def withdraw_strays(self, wanted: Callable[[str], bool]) -> list[str]:
        """Remove the exports of sources whose moves are over.

        Also remove backstores without a target, left by a process killed while
        it changed an export. They are removed at the second sighting: another
        service may be creating an export at this moment. A failure is logged
        and does not stop the other removals.

        :param wanted: ``wanted(move_id)`` returns whether the move still needs
            its export
        :returns: the move ids of the removed exports
        """

    # -- volumes and snapshots

    def export_volume(self, volume_id: str, initiator: str, auth: str,
                      readonly: bool = False, remote: bool = False,
                      device: str = '') -> dict[str, typing.Any]:
        """Export a volume, or a snapshot, to another host.

        :param initiator: the iSCSI name of the host
        :param auth: a provider_auth (method, user, secret)
        :param readonly: reject writes
        :param remote: the host is a node of this backend, with a remote
            attachment
        :param device: path of the device to export; '' for the handle
        :returns: connection properties for the host
        """

    def note_exported(self, snapshot_id: str) -> None:
        """Remember for a while that the export of a snapshot begins."""

    def was_exported(self, snapshot_id: str) -> bool:
        """Return whether the export of a snapshot began a moment ago.

        The reader may not have opened the snapshot yet.
        """

    def export_again(self, volume_id: str, initiator: str,
                     properties: Mapping[str, typing.Any], device: str = ''
                     ) -> bool:
        """Export a volume again as before; a reboot removes all exports.

        Name and portal come from the properties. Nothing is done if the
        connection was ended here: Cinder deletes the attachment only
        afterwards.

        :param initiator: the iSCSI name of the host
        :param properties: as :meth:`export_volume` returned them
        :param device: as in :meth:`export_volume`
        :returns: whether the export was missing and is there now
        :raises NotPossible: if the name is not the volume's export to this
            initiator
        """

    def withdraw_volume(self, volume_id: str, initiator: str | None) -> bool:
        """Remove the export of a volume to an initiator.

        :param initiator: its iSCSI name; None: remove the exports to all hosts
        :returns: whether anything was removed
        """

    def withdraw_unnamed(self, volume_id: str, unnamed: set[str],
                         at_once: bool = False) -> bool:
        """Remove exports of a volume that no attachment names.

        Recent exports stay: Cinder stores the connector of an attachment only
        after the host has received the export's address.

        :param unnamed: the iSCSI names of the exports
        :param at_once: remove recent exports as well
        :returns: whether anything was removed
        """

    def is_exported(self, volume_id: str) -> bool:
        """Return whether a volume is exported to any host."""

    def is_last(self, volume_id: str, initiator: str | None) -> bool:
        """Return whether a volume is exported, and to no other initiator.

        :param initiator: the iSCSI name of the host that disconnects; None:
            all hosts disconnect
        """

    def remote(self) -> dict[str, set[str]]:
        """Return the exports of volumes and snapshots to other hosts.

        :returns: iSCSI names of the targets by volume id
        """

    # -- the state of the target

    def unfinished(self) -> set[str]:
        """Return the iSCSI names of targets whose creation was interrupted.

        They export nothing.
        """

    def has_open_unexported(self, volume_id: str) -> bool:
        """Return whether the target holds a handle open without exporting it.

        A process was killed while it added or removed an export.
        """

    def problem(self) -> str:
        """Return the reason why this node's target can't be changed, or ''."""


class Sessions(typing.Protocol):
    """iSCSI sessions with peers: sources of moves, remote attachments."""

    def initiator(self) -> str:
        """Return this node's iSCSI initiator name; '' if it has none."""

    # -- sources of moves

    def attach(self, move: state.Move) -> str:
        """Log in to a move's source, and verify its disk.

        An existing session is used; its disk is verified too. A session that
        is down is ended first if the source has another portal by now; waiting
        I/O then fails.

        :returns: path of the disk
        :raises WrongSource: if size or serial number differs; a session
            created by this call is ended again
        :raises SourceUnreachable: if the portal of the source does not answer
        :raises LoginFailed: if no disk appears, or the disk does not report
            its identity yet
        """

    def detach(self, move: state.Move) -> None:
        """Log out of a move's source, even if its disk is in use.

        The disk is read-only, so no written data is lost.
        """

    def end_if_down(self, move: state.Move) -> bool:
        """Log out of a source that does not answer; waiting I/O then fails.

        The next :meth:`attach` logs in again once the source answers.

        :returns: whether the session was down
        """

    def disk(self, move: state.Move) -> str | None:
        """Return the path of a move's source disk; None without a session."""

    def is_down(self, move: state.Move) -> bool:
        """Return whether the session of a move's source is down.

        A session of a remote attachment of the same volume counts as well. The
        caller then does not begin work that needs the source.
        """

    # -- remote attachments

    def attach_remote(self, volume_id: str, size_bytes: int,
                      properties: objects.Properties, in_use: bool) -> str:
        """Log in to a volume's home, for a remote attachment.

        An existing session is used: iscsid reconnects by itself. If it can't
        come back, it is ended first, unless it is in use. A session in use is
        ended only if it is down and the home has another portal by now.

        :param size_bytes: the least length of the volume
        :param properties: as :meth:`Exports.export_volume` of the home
            returned them
        :param in_use: whether a process has the handle open
        :returns: path of the disk
        :raises WrongSource: if the disk is another volume, or shorter
        :raises SourceUnreachable: if the home's portal does not answer
        :raises LoginFailed: if no disk appears
        """

    def remotes(self) -> dict[str, str]:
        """Return the disks of this node's remote attachments.

        :returns: paths by volume id; '' for a session without a disk
        """

    def recorded_remotes(self) -> dict[str, str]:
        """Return the remote attachments in this node's iSCSI records.

        :returns: iSCSI names by volume id
        """

    def may_be_attached_by(self, volume_id: str, user: str) -> bool:
        """Return whether a CHAP user may have attached a volume remotely.

        :returns: True also if this service has attached no such volume since
            its start
        """

    def was_just_attached(self, volume_id: str) -> bool:
        """Return whether a volume was attached remotely a moment ago.

        Its attachment in the database may not show this yet.
        """

    def end_remote(self, volume_id: str) -> bool:
        """Log out of a volume's home, even if its disk is in use.

        :returns: whether there was a session, or a record of a session
        """

    def end_remote_if_down(self, volume_id: str) -> bool:
        """Log out of a volume's home that does not answer; waiting I/O fails.

        :returns: whether the session was down
        """

    def end_other_remotes(self, volume_id: str, iqn: str) -> None:
        """Log out of the former homes of a volume.

        :param iqn: the iSCSI name of the export at its present home
        """
