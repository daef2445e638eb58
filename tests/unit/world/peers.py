# SPDX-License-Identifier: Apache-2.0
"""What simulated nodes ask of each other."""

import dataclasses
import json

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.moves import destination
from cinder_localclone.moves import holes
from cinder_localclone.moves import remote_attachment
from cinder_localclone.volumes import delete
from cinder_localclone.volumes import extend
from tests.unit.world import effects
from tests.unit.world import images


class SimPeers(images.SimSnapshotPeers):
    """Calls reach the other node; one that stops does not answer."""

    def __init__(self, node):
        self.node = node

    def _call(self, host, call):
        self.node.check_alive()
        other = self.node.world.nodes[host]
        try:
            other.check_alive()
            return call(other)
        except effects.Stopped:
            raise exceptions.PeerUnreachable(host=host, method='m',
                                             seconds=1)

    def describe(self, context, host):
        return self._call(host, lambda other: {
            'host': host + '#p', 'initiator': 'i',
            'problems': other.problems,
            'doomed': sum(lv.size for lv in other.sim_stack.lvs().values()
                          if names.is_doomed(lv.name)),
            'sparse': bool(other.world.pool),
            'block': other.block,
            'encryption': not other.old,
            'authenticated': not other.old,
            'room': dataclasses.asdict(other.sim_stack.free_space())})

    def prepare(self, context, host, shadow_id, nonce):
        self._prepare(host, shadow_id, nonce)

    def prepare_sparse(self, context, host, shadow_id, nonce, found):
        self._prepare(host, shadow_id, nonce, json.loads(json.dumps(found)))

    def holes(self, context, host, shadow_id, nonce):
        return json.loads(json.dumps(self._call(
            host, lambda other: holes.of_source(
                other.node, shadow_id, nonce))))

    def _prepare(self, host, shadow_id, *what):
        def call(other):
            move = other.node.records.get_move(shadow_id)
            with other.lock(move.volume_id if move else shadow_id):
                destination.prepare(other.node, shadow_id, *what)
        self._call(host, call)

    def converge(self, context, host, volume_id):
        self._call(host, lambda other: other.reconciler.converge(volume_id))

    def converge_soon(self, context, host, volume_id):
        """Lost: periodic reconciliation has to do it."""
        self.node.check_alive()
        world = self.node.world
        world.told.append((self.node.host, host, volume_id))
        world.done.append((self.node.host, 'converge_soon', host))

    def initialize_connection(
            self, context, host, volume_id, connector, attachments):
        return self._call(host, lambda other: other.connections.serve(
            context, volume_id, connector, attachments))

    def begin_passing(
            self, context, host, volume_id, properties, attachments):
        def call(other):
            with other.lock(volume_id):
                remote_attachment.begin(
                    other.node, volume_id, properties, attachments)
        self._call(host, call)

    def end_passing(self, context, host, volume_id, user):
        def call(other):
            with other.lock(volume_id):
                remote_attachment.end_one(other.node, volume_id, user)
        self._call(host, call)

    def extend(self, context, host, volume_id, size_gib):
        return self._call(host, lambda other: extend.extend_part(
            other.reconciler, volume_id, size_gib))

    def inspect(self, context, host, volume_id):
        return self._call(host, lambda other: {
            'header_backup': volume_id in self.node.world.backups,
            'lvs': [{'name': lv.name, 'uuid': lv.uuid,
                     'tags': sorted(lv.tags)}
                    for lv in other.sim_stack.lvs().values()]})

    def delete(self, context, host, volume_id):
        self._call(host, lambda other: delete.delete_here(
            other.node, context, volume_id, overwrites=False))

    def terminate_connection(
            self, context, host, volume_id, connector, attachments):
        self._call(host, lambda other: other.connections.unserve(
            context, volume_id, connector, attachments))
