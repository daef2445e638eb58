# SPDX-License-Identifier: Apache-2.0
"""Typed interfaces of what one node asks of another.

As :mod:`.storage`, which has the others.
"""

from collections.abc import Mapping
import typing

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import objects

Context: typing.TypeAlias = objects.Context
Connector: typing.TypeAlias = objects.Connector
Attachments: typing.TypeAlias = objects.Attachments
Properties: typing.TypeAlias = objects.Properties


class Peers(typing.Protocol):
    """What one node asks of another: the service ``host``.

    :mod:`.rpc` sends these, by the names of the arguments,
    and :class:`cinder_localclone.service.handlers.Handlers` answers. All raise
    PeerUnreachable if nobody answers in time.
    """

    def describe(self, context: Context, host: str) -> dict[str, typing.Any]:
        """What a node is and can take."""

    def prepare(self, context: Context, host: str, shadow_id: str,
                nonce: str) -> None:
        """Build the destination's stack of a move before its commit."""

    def prepare_sparse(self, context: Context, host: str, shadow_id: str,
                       nonce: str, holes: thin_map.Holes) -> None:
        """The same, of a source that has holes."""

    def holes(self, context: Context, host: str, shadow_id: str, nonce: str
              ) -> thin_map.Holes:
        """What was never written of the source of a move that was left.

        :raises StaleMove: if it is not that
        :raises OddMap: if the pool does not say it clearly
        """

    def converge(self, context: Context, host: str, volume_id: str) -> None:
        """Have a node take its next steps for a volume; wait a moment.

        It goes on by itself if it needs longer.
        """

    def converge_soon(self, context: Context, host: str,
                      volume_id: str) -> None:
        """The same without waiting; may be lost, raises nothing."""

    def initialize_connection(self, context: Context, host: str,
                              volume_id: str, connector: Connector,
                              attachments: Attachments
                              ) -> dict[str, typing.Any]:
        """Have the volume's home serve it.

        The home may have to wait for a peer itself.

        :param attachments: those that the volume had when Cinder asked
        """

    def terminate_connection(self, context: Context, host: str,
                             volume_id: str, connector: Connector | None,
                             attachments: Attachments) -> None:
        """Have the node that has to act end a connection.

        :param attachments: those that the volume had when Cinder asked
        """

    def begin_passing(self, context: Context, host: str, volume_id: str,
                      properties: Properties, attachments: Attachments
                      ) -> None:
        """Have a node pass a volume through to its home.

        :param attachments: those that the volume has now
        """

    def end_passing(self, context: Context, host: str, volume_id: str,
                    user: str) -> None:
        """Have it end that.

        :param user: the CHAP user in the properties that it began with
        :raises SourceBusy: if something uses the volume there
        """

    def delete(self, context: Context, host: str, volume_id: str) -> None:
        """Have the volume's home delete it, which may take its time.

        :raises CannotDelete: if something uses it there
        """

    def unmanage(self, context: Context, host: str, volume_id: str) -> None:
        """Have the volume's home leave its LV to whoever wants it.

        :raises CannotUnmanage: if it can't be left now
        """

    def manageable_snapshot(self, context: Context, host: str,
                            snapshot_id: str, reference: Mapping[str, str]
                            ) -> int | None:
        """The size, in GiB, of an LV of a node that a snapshot is to be.

        :returns: None if there is no such LV
        :raises CannotManage: if it can't be
        """

    def manage_snapshot(self, context: Context, host: str, snapshot_id: str,
                        reference: Mapping[str, str]) -> str:
        """Have a node make a snapshot of an LV that it has.

        :returns: what its row is to say of where it is
        :raises CannotManage: if the LV can't become one
        """

    def unmanage_snapshot(self, context: Context, host: str, snapshot_id: str
                          ) -> None:
        """Have the node that has a snapshot leave its LV in this way.

        :raises SnapshotInUse: if it is being read
        """

    def create_snapshot(self, context: Context, host: str, snapshot_id: str
                        ) -> None:
        """Have the volume's home take a snapshot of it.

        :raises BeingCopied: if the volume is not all there yet
        """

    def delete_snapshot(self, context: Context, host: str, snapshot_id: str
                        ) -> None:
        """Have the node that has a snapshot remove it."""

    def serve_snapshot(self, context: Context, host: str, snapshot_id: str,
                       connector: Connector) -> dict[str, typing.Any]:
        """Have the node that has a snapshot serve it, to be read."""

    def unserve_snapshot(self, context: Context, host: str, snapshot_id: str,
                         connector: Connector | None) -> None:
        """Have it end that."""

    def create_from_snapshot(self, context: Context, host: str,
                             volume_id: str, snapshot_id: str,
                             destination: str) -> None:
        """Have the node that has a snapshot make a volume of it.

        :param destination: where the volume moves then; '': nowhere
        """

    def revert(self, context: Context, host: str, volume_id: str,
               snapshot_id: str) -> None:
        """Have the volume's home revert it to a snapshot."""

    def create_body(self, context: Context, host: str, volume_id: str,
                    snapshot_id: str, new: str) -> None:
        """Have the node of a snapshot make an LV that a volume reverts to.

        :param new: the id in the LV's name
        """

    def create_from_volume(self, context: Context, host: str,
                           volume_id: str, source_id: str, destination: str
                           ) -> None:
        """Have a volume's home make another of it, in the same way.

        :raises BeingCopied: if the volume is not all there yet
        """

    def extend(self, context: Context, host: str, volume_id: str,
               size_gib: int) -> bool:
        """Have the volume's home extend it; see extending.extend_part."""

    def inspect(self, context: Context, host: str, volume_id: str
                ) -> dict[str, typing.Any]:
        """What a node has of a volume; see inspection.inspect."""


class OperatorPeers(Peers, typing.Protocol):
    """What the operator's command asks besides."""

    def troubles(self, context: Context, host: str) -> list[str]:
        """What an operator has to see to on a node, in words."""

    def figures(self, context: Context, host: str
                ) -> dict[str, dict[str, typing.Any]]:
        """What a service has counted and measured since it began."""

    def repair(self, context: Context, host: str, volume_id: str
               ) -> list[str]:
        """Converge, and say what was done."""

    def abort(self, context: Context, host: str, volume_id: str) -> None:
        """Roll a move back, as far as that loses nothing."""

    def resume(self, context: Context, host: str, volume_id: str) -> None:
        """Let a move go on that an attachment holds back."""

    def encryption_progress(self, context: Context, host: str,
                            volume_id: str) -> dict[str, typing.Any]:
        """How far a re-encryption is; see reencryption.State.

        This, and the next three, are for the volume's home.
        """

    def encryption_reencrypt(self, context: Context, host: str,
                             volume_id: str, cipher: str, key_bits: int,
                             resilience: str, drops_keys: bool, zone: int
                             ) -> dict[str, typing.Any]:
        """Have a volume encrypted anew; see reencryption_plan.Wish."""

    def encryption_pause(self, context: Context, host: str, volume_id: str
                         ) -> dict[str, typing.Any]:
        """Have that wait until an operator says otherwise."""

    def encryption_resume(self, context: Context, host: str, volume_id: str
                          ) -> dict[str, typing.Any]:
        """Say so."""

    def depart(self, context: Context, host: str, volume_id: str,
               destination: str) -> None:
        """Have a volume's home move it to a node, without an attach.

        :raises LocalCloneError: if it could not be moved; it is there still
        """

    def encryption_status(self, context: Context, host: str, volume_id: str
                          ) -> dict[str, typing.Any]:
        """What the header of a volume says; see header_care.status."""

    def encryption_rotate(self, context: Context, host: str, volume_id: str
                          ) -> list[str]:
        """Have a volume's home give it another key.

        :returns: what the old one still opens, in words
        :raises KeyNotChanged: if that can't be
        :raises NotAtRest: if anybody else may have its header open
        """

    def encryption_header_backup(self, context: Context, host: str,
                                 volume_id: str) -> str:
        """Have a volume's home keep a copy of its header; the file's name."""

    def encryption_verify(self, context: Context, host: str, volume_id: str
                          ) -> list[dict[str, str]]:
        """Whether a volume can be opened; see header_care.verify."""

    def open_without_source(self, context: Context, host: str,
                            volume_id: str) -> None:
        """Give out what is local of a copy whose source is lost."""


class PeerTooOld(exceptions.LocalCloneError):
    """The service of a node does not know yet what it was asked."""
