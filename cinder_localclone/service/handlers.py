# SPDX-License-Identifier: Apache-2.0
"""What peers, and the operator's command, may ask of this node.

What each method means for those who ask is in
:class:`cinder_localclone.peer_ports.OperatorPeers`; how it gets here in
:mod:`cinder_localclone.peer`. The names of methods and arguments are those
on the message bus.
"""

import dataclasses
import time
import typing

from cinder_localclone import assembly
from cinder_localclone import births
from cinder_localclone import deletion
from cinder_localclone import events
from cinder_localclone import exceptions
from cinder_localclone import extending
from cinder_localclone import header_care
from cinder_localclone import inspection
from cinder_localclone import key_change
from cinder_localclone import managing
from cinder_localclone import managing_snapshots
from cinder_localclone import messages
from cinder_localclone import migration
from cinder_localclone.moves import checks
from cinder_localclone.moves import destination
from cinder_localclone.moves import holes
from cinder_localclone import operations
from cinder_localclone import passing
from cinder_localclone import ports
from cinder_localclone import reconcile
from cinder_localclone import reencryption
from cinder_localclone import reencryption_plan
from cinder_localclone import repair
from cinder_localclone import reverting
from cinder_localclone import snapshots
from cinder_localclone import state
from cinder_localclone import thin_map


class Handlers:
    """Answers for one service.

    :param service: the rooms of this backend on this node
    """

    def __init__(self, service: assembly.Service):
        self._service = service

    def describe(self, context: ports.Context) -> dict[str, typing.Any]:
        """What this node is and can take.

        :returns: host (with pool), addresses, iSCSI initiator name, room
            (fields of reports.FreeSpace, bytes), problems (texts; none:
            ready), doomed (bytes of what is no volume's any more, and has
            yet to be overwritten; None: not known), time (seconds since the
            epoch, by this node's clock), sparse (whether it can leave out
            holes), block (bytes of a sector of its
            disks), encryption (whether it knows what a volume that is
            encrypted needs), authenticated (whether it knows what one that is
            authenticated needs)
        """
        service = self._service
        room, problems, doomed = service.readiness()
        return {
            'host': '%s#%s' % (service.node.host, service.backend_name),
            'addresses': service.addresses,
            'initiator': service.initiator,
            'room': dataclasses.asdict(room),
            'problems': problems,
            'doomed': doomed,
            'block': service.block,
            'time': time.time(),
            'sparse': service.node.stack.pool is not None,
            'encryption': True,
            'authenticated': True,
        }

    def troubles(self, context: ports.Context) -> list[str]:
        """See :meth:`cinder_localclone.assembly.Service.troubles`."""
        return self._service.troubles()

    def figures(self, context: ports.Context
                ) -> dict[str, dict[str, typing.Any]]:
        """What this service has counted and measured since it began.

        :returns: events and refusals, see :func:`.events.counts`; copies:
            fields of :class:`.hydration.Progress`, by the shadows' ids
        """
        counts = events.counts()
        for key in messages.DETAILS:
            counts['refusals'].setdefault(key.lower(), 0)
        return {**counts, 'copies': {
            shadow_id: dataclasses.asdict(progress) for shadow_id, progress
            in self._service.reconciler.copying.all_progress().items()}}

    def prepare(self, context: ports.Context, shadow_id: str,
                nonce: str) -> None:
        """See :func:`cinder_localclone.moves.destination.prepare`."""
        self.prepare_sparse(context, shadow_id, nonce, ())

    def prepare_sparse(self, context: ports.Context, shadow_id: str,
                       nonce: str, holes: thin_map.Holes) -> None:
        """See :func:`cinder_localclone.moves.destination.prepare`."""
        node = self._service.node
        move = node.records.get_move(shadow_id)
        with (self._service.reconciler.copying.waker.give_way(),
              node.lock(move.volume_id if move else shadow_id)):
            destination.prepare(node, shadow_id, nonce, holes)

    def holes(self, context: ports.Context, shadow_id: str, nonce: str
              ) -> thin_map.Holes:
        """See :func:`cinder_localclone.moves.holes.of_source`."""
        return holes.of_source(self._service.node, shadow_id, nonce)

    def converge(self, context: ports.Context, volume_id: str) -> None:
        """See :meth:`cinder_localclone.reconcile.Reconciler.converge`."""
        self._service.reconciler.converge(volume_id)

    def initialize_connection(self, context: ports.Context, volume_id: str,
                              connector: ports.Connector,
                              attachments: ports.Attachments
                              ) -> dict[str, typing.Any]:
        """See :meth:`cinder_localclone.connections.Connections.serve`."""
        return self._service.connections.serve(
            context, volume_id, connector, attachments)

    def terminate_connection(self, context: ports.Context, volume_id: str,
                             connector: ports.Connector | None,
                             attachments: ports.Attachments) -> None:
        """See :meth:`cinder_localclone.connections.Connections.unserve`."""
        self._service.connections.unserve(
            context, volume_id, connector, attachments)

    def begin_passing(self, context: ports.Context, volume_id: str,
                      properties: ports.Properties,
                      attachments: ports.Attachments) -> None:
        """See :func:`cinder_localclone.passing.begin`."""
        node = self._service.node
        with (self._service.reconciler.copying.waker.give_way(),
              node.lock(volume_id)):
            passing.begin(node, volume_id, properties, attachments)

    def end_passing(self, context: ports.Context, volume_id: str, user: str
                    ) -> None:
        """See :func:`cinder_localclone.passing.end_one`."""
        node = self._service.node
        with node.lock(volume_id):
            passing.end_one(node, volume_id, user)

    def delete(self, context: ports.Context, volume_id: str) -> None:
        """See :func:`cinder_localclone.deletion.delete_here`."""
        node = self._service.node
        # The caller waits for an answer, not until all is overwritten.
        if deletion.delete_here(node, self._service.reconciler.context,
                                volume_id, overwrites=False) != node.host:
            raise exceptions.StaleMove(volume=volume_id)

    def unmanage(self, context: ports.Context, volume_id: str) -> None:
        """See :func:`cinder_localclone.managing.unmanage_here`."""
        node = self._service.node
        if managing.unmanage_here(node, self._service.reconciler.context,
                                  volume_id) != node.host:
            raise exceptions.StaleMove(volume=volume_id)

    def manageable_snapshot(self, context: ports.Context, snapshot_id: str,
                            reference: managing.Reference) -> int | None:
        """See :func:`cinder_localclone.managing_snapshots.size_here`."""
        return managing_snapshots.size_here(
            self._service.node, snapshot_id, reference)

    def manage_snapshot(self, context: ports.Context, snapshot_id: str,
                        reference: managing.Reference) -> str:
        """See :func:`cinder_localclone.managing_snapshots.manage_here`."""
        return managing_snapshots.manage_here(
            self._service.node, snapshot_id, reference)

    def unmanage_snapshot(self, context: ports.Context, snapshot_id: str
                          ) -> None:
        """See :func:`cinder_localclone.managing_snapshots.unmanage_here`."""
        managing_snapshots.unmanage_here(self._service.node, snapshot_id)

    def create_snapshot(self, context: ports.Context, snapshot_id: str
                        ) -> None:
        """See :func:`cinder_localclone.snapshots.create_here`."""
        reconciler = self._service.reconciler
        snapshots.create_here(self._service.node, reconciler.context,
                              snapshot_id, reconciler.progress)

    def delete_snapshot(self, context: ports.Context, snapshot_id: str
                        ) -> None:
        """See :func:`cinder_localclone.snapshots.delete_here`."""
        snapshots.delete_here(self._service.node, snapshot_id)

    def serve_snapshot(self, context: ports.Context, snapshot_id: str,
                       connector: ports.Connector) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.snapshots.serve_here`."""
        return snapshots.serve_here(self._service.node, snapshot_id,
                                    connector)

    def unserve_snapshot(self, context: ports.Context, snapshot_id: str,
                         connector: ports.Connector | None) -> None:
        """See :func:`cinder_localclone.snapshots.unserve_here`."""
        snapshots.unserve_here(self._service.node, snapshot_id, connector)

    def create_from_snapshot(self, context: ports.Context, volume_id: str,
                             snapshot_id: str, destination: str) -> None:
        """See :func:`cinder_localclone.births.from_snapshot_here`."""
        births.from_snapshot_here(
            self._service.node, self._service.reconciler.context, volume_id,
            snapshot_id, destination)

    def create_from_volume(self, context: ports.Context, volume_id: str,
                           source_id: str, destination: str) -> None:
        """See :func:`cinder_localclone.births.from_volume_here`."""
        reconciler = self._service.reconciler
        births.from_volume_here(
            self._service.node, reconciler.context, volume_id, source_id,
            destination, reconciler.progress)

    def extend(self, context: ports.Context, volume_id: str, size_gib: int
               ) -> bool:
        """See :func:`cinder_localclone.extending.extend_part`."""
        return extending.extend_part(
            self._service.reconciler, volume_id, size_gib)

    def depart(self, context: ports.Context, volume_id: str,
               destination: str) -> None:
        """See :func:`cinder_localclone.migration.depart`."""
        migration.depart(self._service.node, self._service.reconciler.context,
                         volume_id, destination, state.Asked.DRAIN)

    def revert(self, context: ports.Context, volume_id: str,
               snapshot_id: str) -> None:
        """See :func:`cinder_localclone.reverting.revert_here`."""
        reverting.revert_here(self._service.reconciler, volume_id,
                              snapshot_id)

    def create_body(self, context: ports.Context, volume_id: str,
                    snapshot_id: str, new: str) -> None:
        """See :func:`cinder_localclone.reverting.create_body`."""
        reverting.create_body(self._service.node, volume_id, snapshot_id,
                              new)

    def encryption_progress(self, context: ports.Context, volume_id: str
                            ) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.reencryption.state`."""
        node = self._service.node
        return reencryption.as_dict(reencryption.state(
            node, checks.volume_at_home(node, volume_id)))

    def encryption_reencrypt(self, context: ports.Context, volume_id: str,
                             cipher: str, key_bits: int, resilience: str,
                             drops_keys: bool) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.reencryption.start`."""
        return reencryption.as_dict(reencryption.start(
            self._service.node, volume_id, reencryption_plan.Wish(
                cipher, key_bits, resilience, drops_keys)))

    def encryption_pause(self, context: ports.Context, volume_id: str
                         ) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.reencryption.pause`."""
        return reencryption.as_dict(reencryption.pause(
            self._service.node, volume_id))

    def encryption_resume(self, context: ports.Context, volume_id: str
                          ) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.reencryption.resume`."""
        return reencryption.as_dict(reencryption.resume(
            self._service.node, volume_id))

    def inspect(self, context: ports.Context, volume_id: str
                ) -> inspection.Report:
        """See :func:`cinder_localclone.inspection.inspect`."""
        return inspection.inspect(self._service.node, volume_id,
                                  self._service.reconciler.progress)

    def repair(self, context: ports.Context, volume_id: str) -> list[str]:
        """See :func:`cinder_localclone.repair.repair`."""
        return repair.repair(
            self._service.node, lambda node: reconcile.Reconciler(
                node, self._service.reconciler.context,
                self._service.reconciler.comparison.memory), volume_id)

    def abort(self, context: ports.Context, volume_id: str) -> None:
        """See :func:`cinder_localclone.operations.abort`."""
        operations.abort(self._service.reconciler, volume_id)

    def resume(self, context: ports.Context, volume_id: str) -> None:
        """See :func:`cinder_localclone.operations.go_forward`."""
        operations.go_forward(self._service.reconciler, volume_id)

    def encryption_status(self, context: ports.Context, volume_id: str
                          ) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.header_care.status`.

        And, as ``reencryption``, :func:`cinder_localclone.reencryption.state`.
        """
        return dict(header_care.status(self._service.node, volume_id),
                    reencryption=self.encryption_progress(
                        context, volume_id))

    def encryption_rotate(self, context: ports.Context, volume_id: str
                          ) -> list[str]:
        """See :func:`cinder_localclone.key_change.rotate`."""
        return key_change.rotate(self._service.node, volume_id)

    def encryption_header_backup(self, context: ports.Context,
                                 volume_id: str) -> str:
        """See :func:`cinder_localclone.header_care.back_up`."""
        return header_care.back_up(self._service.node, volume_id)

    def encryption_verify(self, context: ports.Context, volume_id: str
                          ) -> list[header_care.Finding]:
        """See :func:`cinder_localclone.header_care.verify`."""
        return header_care.verify(self._service.node, volume_id)

    def open_without_source(self, context: ports.Context, volume_id: str
                            ) -> None:
        """See :func:`cinder_localclone.operations.open_without_source`."""
        operations.open_without_source(self._service.reconciler, volume_id)
