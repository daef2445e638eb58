# SPDX-License-Identifier: Apache-2.0
"""The contracts of this node's iSCSI target and initiator.

As in :mod:`.interfaces.storage`: the real and the simulated classes subclass
them, an effect may be repeated, and each method may raise CommandFailed or
CommandTimeout. Sizes are bytes.
"""

from collections.abc import Callable
from collections.abc import Mapping
import typing

from cinder_localclone.core import objects
from cinder_localclone.core import state


class Exports(typing.Protocol):
    """Devices that this node exports, each to one initiator with CHAP.

    Handles to hosts of attachments, sources of moves to their destinations.
    Other reads than :meth:`is_source_exported_as_recorded` don't ask the
    kernel's target. An effect may raise ExportFailed, or TargetTimeout if the
    target hangs.
    """

    #: Where hosts without the backend find exports: address and port.
    portal: str

    # -- where

    def source_location(self, move_id: str) -> str:
        """Return where the source of a move is exported: a provider_location.
        """

    def portal_for(self, portal: str) -> str:
        """Return the portal of exports that were announced at another.

        :param portal: which an initiator was told. It stays as long as this
            node has its address; otherwise it is this node's own
        """

    def has_portal(self, portal: str) -> bool:
        """Return whether this node can export at a portal."""

    def location_for(self, move: state.Move) -> str:
        """Return where this node exports the source of a move.

        :returns: a provider_location: that of its record, unless this node
            does not have the address any more
        """

    # -- sources of moves

    def export_source(self, move: state.Move) -> bool:
        """Export a move's source, read-only, to its destination.

        Under the name and the portal that its record has. The record has the
        initiator and the CHAP secret, too: so the same export is there again
        after this node was down, and the destination's initiator reconnects.

        :returns: whether it was not exported like that
        :raises ExportFailed: if the record lacks initiator or secret
        """

    def is_source_exported_as_recorded(self, move: state.Move) -> bool:
        """Return whether a move's source is exported like that already.

        It compares the CHAP secret, too, so it asks the kernel's target.

        :raises TargetTimeout: if the target hangs
        """

    def withdraw_source(self, move_id: str) -> bool:
        """Remove the export of a move's source."""

    def is_source_exported(self, move_id: str) -> bool:
        """Return whether the source of a move is exported."""

    def withdraw_strays(self, wanted: Callable[[str], bool]) -> list[str]:
        """Remove the exports of moves that are over.

        And leftovers of a process that was killed while it made or removed an
        export: backstores without a target, seen twice, because another
        service may be making one just now. A failure is logged, and stops
        neither the others nor the caller.

        :param wanted: ``wanted(move_id)``: whether it is still a move
        :returns: the shadow ids that were exported in vain
        """

    # -- volumes and snapshots

    def export_volume(self, volume_id: str, initiator: str, auth: str,
                      readonly: bool = False, remote: bool = False,
                      device: str = '') -> dict[str, typing.Any]:
        """Export a volume, or a snapshot, to another host.

        :param initiator: that host's iSCSI name
        :param auth: a provider_auth
        :param readonly: whether it can only be read
        :param passed: whether that host is a node that attaches it remotely
        :param device: path of the device to export; '' for the handle
        :returns: connection properties for that host
        """

    def note_exported(self, snapshot_id: str) -> None:
        """Remember for a while that a snapshot is about to be exported."""

    def was_exported(self, snapshot_id: str) -> bool:
        """Return whether that was a moment ago: it may not be open yet."""

    def export_again(self, volume_id: str, initiator: str,
                     properties: Mapping[str, typing.Any], device: str = ''
                     ) -> bool:
        """Export a volume as before: a reboot forgets all exports.

        Under the name and the portal that the properties have. Not if the
        connection was ended here: Cinder deletes its attachment only
        afterwards.

        :param properties: as :meth:`export_volume` returned them
        :param device: as of :meth:`export_volume`
        :returns: whether the export was missing, and was made
        :raises NotPossible: if the name is not that of the volume's export
            to this initiator
        """

    def withdraw_volume(self, volume_id: str, initiator: str | None) -> bool:
        """Remove the export of a volume to one initiator, or (None) to all.

        :returns: whether it was exported
        """

    def withdraw_unnamed(self, volume_id: str, unnamed: set[str],
                         at_once: bool = False) -> bool:
        """Remove exports of a volume whose names no attachment has.

        Not those that were made a moment ago: an attachment gets its
        connector only after the host was told where the export is.

        :param unnamed: iSCSI names
        :param at_once: remove even those
        """

    def is_exported(self, volume_id: str) -> bool:
        """Return whether a volume is exported to any host."""

    def is_last(self, volume_id: str, initiator: str | None) -> bool:
        """Return whether no other initiator has an export of a volume.

        :param initiator: whose export is about to be removed; None: all
        """

    def remote(self) -> dict[str, set[str]]:
        """Return what is exported to other hosts.

        :returns: iSCSI names of targets by volume id
        """

    # -- the state of the target

    def unfinished(self) -> set[str]:
        """Return the iSCSI names of targets whose creation was interrupted.

        They export nothing to anybody.
        """

    def opens_in_vain(self, volume_id: str) -> bool:
        """Return whether the target has a handle open, but exports it to none.

        A process was killed while it made or removed an export.
        """

    def problem(self) -> str:
        """Return why this node's target can't be changed; '' if it can."""


class Sessions(typing.Protocol):
    """iSCSI sessions with peers: sources of moves, and remote attachments."""

    def initiator(self) -> str:
        """Return this node's iSCSI initiator name; '' if it has none."""

    # -- sources of moves

    def attach(self, move: state.Move) -> str:
        """Log in to a move's source; verify that it is that source.

        A session that exists is used, but verified as well. One that is down,
        with a portal that the source has left, is ended first: I/O that waits
        for it fails.

        :returns: path of the disk
        :raises WrongSource: if its size or serial number differs; what this
            call has logged in to is logged out again
        :raises SourceUnreachable: if its portal does not answer
        :raises LoginFailed: if no disk appears, or it does not say yet what
            it is
        """

    def detach(self, move: state.Move) -> None:
        """Log out, whatever still uses the disk; nothing on it is dirty."""

    def end_if_down(self, move: state.Move) -> bool:
        """Log out of a source that does not answer: waiting I/O fails.

        The next :meth:`attach` that reaches it logs in again.

        :returns: whether it did not answer
        """

    def disk(self, move: state.Move) -> str | None:
        """Return the path of a move's source disk if a session has it."""

    def is_away(self, move: state.Move) -> bool:
        """Return whether a source, or a remote attachment, is unreachable.

        What has to wait for it is not begun then.
        """

    # -- remote attachments

    def attach_remote(self, volume_id: str, size_bytes: int,
                      properties: objects.Properties, in_use: bool) -> str:
        """Log in to a volume's home, for a remote attachment.

        A session that exists is used: iscsid comes back by itself. One that
        can't come back is logged out first, unless it is in use; then only
        if the home has left the portal that it is with, and is at another.

        :param size_bytes: the length that the volume has at least
        :param properties: as the home's :meth:`Exports.export_volume` has
            returned them
        :param in_use: whether something has the handle open
        :returns: path of the disk
        :raises WrongSource: if it is another disk
        :raises SourceUnreachable: if the home's portal does not answer
        :raises LoginFailed: if no disk appears
        """

    def remotes(self) -> dict[str, str]:
        """Return the disks of volumes that this node attaches remotely.

        :returns: paths by volume id; '' for a session without a disk
        """

    def recorded_remotes(self) -> dict[str, str]:
        """Return the remote attachments in this node's own iSCSI records.

        :returns: iSCSI names by volume id
        """

    def may_be_attached_by(self, volume_id: str, user: str) -> bool:
        """Return whether a CHAP user may attach a volume remotely.

        A service that has started since then does not know: it may.
        """

    def has_begun(self, volume_id: str) -> bool:
        """Return whether a volume was attached remotely a moment ago.

        Its attachment may not say so yet.
        """

    def end_remote(self, volume_id: str) -> bool:
        """Log out of a volume's home, whatever still uses the disk.

        :returns: whether there was a session, or a record of one
        """

    def end_remote_if_down(self, volume_id: str) -> bool:
        """Log out of a volume's home that does not answer: waiting I/O fails.

        :returns: whether it did not answer
        """

    def end_other_remotes(self, volume_id: str, iqn: str) -> None:
        """Log out of the homes that a volume had before.

        :param iqn: iSCSI name of what its home exports now
        """
