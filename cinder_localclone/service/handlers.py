# SPDX-License-Identifier: Apache-2.0
"""What peers, and the operator's command, may ask of this node.

What each method means for those who ask is in
:class:`.peers.OperatorPeers`; how it gets here in
:mod:`.rpc`. The names of methods and arguments are those
on the message bus.
"""

import dataclasses
import time
import typing

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import node as nodes
from cinder_localclone.core import objects
from cinder_localclone.core import state
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import reencrypt
from cinder_localclone.encryption import rotate
from cinder_localclone.moves import destination
from cinder_localclone.moves import holes
from cinder_localclone.moves import remote_attachment
from cinder_localclone.service import assembly
from cinder_localclone.service import messages
from cinder_localclone.volumes import clone
from cinder_localclone.volumes import delete
from cinder_localclone.volumes import extend
from cinder_localclone.volumes import inspect as inspection
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import manage_snapshots
from cinder_localclone.volumes import migrate
from cinder_localclone.volumes import operations
from cinder_localclone.volumes import reconcile
from cinder_localclone.volumes import repair
from cinder_localclone.volumes import revert
from cinder_localclone.volumes import snapshots


class Handlers:
    """Answers for one service.

    :param service: the rooms of this backend on this node
    """

    def __init__(self, service: assembly.Service):
        self._service = service

    def describe(self, context: objects.Context) -> dict[str, typing.Any]:
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

    def troubles(self, context: objects.Context) -> list[str]:
        """See :meth:`cinder_localclone.service.assembly.Service.troubles`."""
        return self._service.troubles()

    def figures(self, context: objects.Context
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

    def prepare(self, context: objects.Context, shadow_id: str,
                nonce: str) -> None:
        """See :func:`cinder_localclone.moves.destination.prepare`."""
        self.prepare_sparse(context, shadow_id, nonce, ())

    def prepare_sparse(self, context: objects.Context, shadow_id: str,
                       nonce: str, holes: thin_map.Holes) -> None:
        """See :func:`cinder_localclone.moves.destination.prepare`."""
        node = self._service.node
        move = node.records.get_move(shadow_id)
        with (self._service.reconciler.copying.waker.give_way(),
              node.lock(move.volume_id if move else shadow_id)):
            destination.prepare(node, shadow_id, nonce, holes)

    def holes(self, context: objects.Context, shadow_id: str, nonce: str
              ) -> thin_map.Holes:
        """See :func:`cinder_localclone.moves.holes.of_source`."""
        return holes.of_source(self._service.node, shadow_id, nonce)

    def converge(self, context: objects.Context, volume_id: str) -> None:
        """See :meth:`.reconcile.Reconciler.converge`."""
        self._service.reconciler.converge(volume_id)

    def initialize_connection(self, context: objects.Context, volume_id: str,
                              connector: objects.Connector,
                              attachments: objects.Attachments
                              ) -> dict[str, typing.Any]:
        """See :meth:`cinder_localclone.volumes.connect.Connections.serve`."""
        return self._service.connections.serve(
            context, volume_id, connector, attachments)

    def terminate_connection(self, context: objects.Context, volume_id: str,
                             connector: objects.Connector | None,
                             attachments: objects.Attachments) -> None:
        """See :meth:`.connect.Connections.unserve`."""
        self._service.connections.unserve(
            context, volume_id, connector, attachments)

    def begin_passing(self, context: objects.Context, volume_id: str,
                      properties: objects.Properties,
                      attachments: objects.Attachments) -> None:
        """See :func:`cinder_localclone.moves.remote_attachment.begin`."""
        node = self._service.node
        with (self._service.reconciler.copying.waker.give_way(),
              node.lock(volume_id)):
            remote_attachment.begin(node, volume_id, properties, attachments)

    def end_passing(self, context: objects.Context, volume_id: str, user: str
                    ) -> None:
        """See :func:`cinder_localclone.moves.remote_attachment.end_one`."""
        node = self._service.node
        with node.lock(volume_id):
            remote_attachment.end_one(node, volume_id, user)

    def delete(self, context: objects.Context, volume_id: str) -> None:
        """See :func:`cinder_localclone.volumes.delete.delete_here`."""
        node = self._service.node
        # The caller waits for an answer, not until all is overwritten.
        if delete.delete_here(node, self._service.reconciler.context,
                              volume_id, overwrites=False) != node.host:
            raise exceptions.StaleMove(volume=volume_id)

    def unmanage(self, context: objects.Context, volume_id: str) -> None:
        """See :func:`cinder_localclone.volumes.manage.unmanage_here`."""
        node = self._service.node
        if manage.unmanage_here(node, self._service.reconciler.context,
                                volume_id) != node.host:
            raise exceptions.StaleMove(volume=volume_id)

    def manageable_snapshot(self, context: objects.Context, snapshot_id: str,
                            reference: manage.Reference) -> int | None:
        """See :func:`cinder_localclone.volumes.manage_snapshots.size_here`."""
        return manage_snapshots.size_here(
            self._service.node, snapshot_id, reference)

    def manage_snapshot(self, context: objects.Context, snapshot_id: str,
                        reference: manage.Reference) -> str:
        """See :func:`.manage_snapshots.manage_here`."""
        return manage_snapshots.manage_here(
            self._service.node, snapshot_id, reference)

    def unmanage_snapshot(self, context: objects.Context, snapshot_id: str
                          ) -> None:
        """See :func:`.manage_snapshots.unmanage_here`."""
        manage_snapshots.unmanage_here(self._service.node, snapshot_id)

    def create_snapshot(self, context: objects.Context, snapshot_id: str
                        ) -> None:
        """See :func:`cinder_localclone.volumes.snapshots.create_here`."""
        reconciler = self._service.reconciler
        snapshots.create_here(self._service.node, reconciler.context,
                              snapshot_id, reconciler.progress)

    def delete_snapshot(self, context: objects.Context, snapshot_id: str
                        ) -> None:
        """See :func:`cinder_localclone.volumes.snapshots.delete_here`."""
        snapshots.delete_here(self._service.node, snapshot_id)

    def serve_snapshot(self, context: objects.Context, snapshot_id: str,
                       connector: objects.Connector) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.volumes.snapshots.serve_here`."""
        return snapshots.serve_here(self._service.node, snapshot_id,
                                    connector)

    def unserve_snapshot(self, context: objects.Context, snapshot_id: str,
                         connector: objects.Connector | None) -> None:
        """See :func:`cinder_localclone.volumes.snapshots.unserve_here`."""
        snapshots.unserve_here(self._service.node, snapshot_id, connector)

    def create_from_snapshot(self, context: objects.Context, volume_id: str,
                             snapshot_id: str, destination: str) -> None:
        """See :func:`cinder_localclone.volumes.clone.from_snapshot_here`."""
        clone.from_snapshot_here(
            self._service.node, self._service.reconciler.context, volume_id,
            snapshot_id, destination)

    def create_from_volume(self, context: objects.Context, volume_id: str,
                           source_id: str, destination: str) -> None:
        """See :func:`cinder_localclone.volumes.clone.from_volume_here`."""
        reconciler = self._service.reconciler
        clone.from_volume_here(
            self._service.node, reconciler.context, volume_id, source_id,
            destination, reconciler.progress)

    def extend(self, context: objects.Context, volume_id: str, size_gib: int
               ) -> bool:
        """See :func:`cinder_localclone.volumes.extend.extend_part`."""
        return extend.extend_part(
            self._service.reconciler, volume_id, size_gib)

    def depart(self, context: objects.Context, volume_id: str,
               destination: str) -> None:
        """See :func:`cinder_localclone.volumes.migrate.depart`."""
        migrate.depart(self._service.node, self._service.reconciler.context,
                       volume_id, destination, state.Asked.DRAIN)

    def revert(self, context: objects.Context, volume_id: str,
               snapshot_id: str) -> None:
        """See :func:`cinder_localclone.volumes.revert.revert_here`."""
        revert.revert_here(self._service.reconciler, volume_id,
                           snapshot_id)

    def create_body(self, context: objects.Context, volume_id: str,
                    snapshot_id: str, new: str) -> None:
        """See :func:`cinder_localclone.volumes.revert.create_body`."""
        revert.create_body(self._service.node, volume_id, snapshot_id,
                           new)

    def encryption_progress(self, context: objects.Context, volume_id: str
                            ) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.encryption.reencrypt.state`."""
        node = self._service.node
        return reencrypt.as_dict(reencrypt.state(
            node, nodes.volume_at_home(node, volume_id)))

    def encryption_reencrypt(self, context: objects.Context, volume_id: str,
                             cipher: str, key_bits: int, resilience: str,
                             drops_keys: bool, zone: int
                             ) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.encryption.reencrypt.start`."""
        return reencrypt.as_dict(reencrypt.start(
            self._service.node, volume_id, reencrypt.Wish(
                cipher, key_bits, resilience, drops_keys, zone)))

    def encryption_pause(self, context: objects.Context, volume_id: str
                         ) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.encryption.reencrypt.pause`."""
        return reencrypt.as_dict(reencrypt.pause(
            self._service.node, volume_id))

    def encryption_resume(self, context: objects.Context, volume_id: str
                          ) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.encryption.reencrypt.resume`."""
        return reencrypt.as_dict(reencrypt.resume(
            self._service.node, volume_id))

    def inspect(self, context: objects.Context, volume_id: str
                ) -> inspection.Report:
        """See :func:`cinder_localclone.volumes.inspect.inspect`."""
        return inspection.inspect(self._service.node, volume_id,
                                  self._service.reconciler.progress)

    def repair(self, context: objects.Context, volume_id: str) -> list[str]:
        """See :func:`cinder_localclone.volumes.repair.repair`."""
        return repair.repair(
            self._service.node, lambda node: reconcile.Reconciler(
                node, self._service.reconciler.context,
                self._service.reconciler.comparison.memory), volume_id)

    def abort(self, context: objects.Context, volume_id: str) -> None:
        """See :func:`cinder_localclone.volumes.operations.abort`."""
        operations.abort(self._service.reconciler, volume_id)

    def resume(self, context: objects.Context, volume_id: str) -> None:
        """See :func:`cinder_localclone.volumes.operations.go_forward`."""
        operations.go_forward(self._service.reconciler, volume_id)

    def encryption_status(self, context: objects.Context, volume_id: str
                          ) -> dict[str, typing.Any]:
        """See :func:`cinder_localclone.encryption.headers.status`.

        And, as ``reencryption``, :func:`.reencrypt.state`.
        """
        return dict(headers.status(self._service.node, volume_id),
                    reencryption=self.encryption_progress(
                        context, volume_id))

    def encryption_rotate(self, context: objects.Context, volume_id: str
                          ) -> list[str]:
        """See :func:`cinder_localclone.encryption.rotate.rotate`."""
        return rotate.rotate(self._service.node, volume_id)

    def encryption_header_backup(self, context: objects.Context,
                                 volume_id: str) -> str:
        """See :func:`cinder_localclone.encryption.headers.back_up`."""
        return headers.back_up(self._service.node, volume_id)

    def encryption_verify(self, context: objects.Context, volume_id: str
                          ) -> list[headers.Finding]:
        """See :func:`cinder_localclone.encryption.headers.verify`."""
        return headers.verify(self._service.node, volume_id)

    def open_without_source(self, context: objects.Context, volume_id: str
                            ) -> None:
        """See :func:`.operations.open_without_source`."""
        operations.open_without_source(self._service.reconciler, volume_id)
