# SPDX-License-Identifier: Apache-2.0
"""What simulated nodes ask of each other."""

import dataclasses
import json

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import rpc
from cinder_localclone.service import endpoint  # noqa: F401, has all methods
from tests.world import effects


class SimPeers(rpc.Calls):
    """Calls reach the other node; one that stops does not answer.

    Each method is an attribute, ``method(host, ...)``, which a test may
    replace. What is cast is lost: periodic reconciliation has to do it.
    """

    def __init__(self, node):
        self.node = node

    def call(self, host, method, arguments):
        """Through the attribute of that name."""
        return getattr(self, method.name)(host, *arguments.values())

    def cast(self, host, method, arguments):
        getattr(self, method.name + '_soon')(host, *arguments.values())

    def reconcile_soon(self, host, volume_id):
        self.node.check_alive()
        world = self.node.world
        world.told.append((self.node.host, host, volume_id))
        world.done.append((self.node.host, 'reconcile_soon', host))

    def send(self, host, name, *args):
        """Have the function of a method answer, in plain JSON."""
        self.node.check_alive()
        other, method = self.node.world.nodes[host], rpc.METHODS[name]
        sent = json.loads(json.dumps(method.bind(*args)))
        try:
            other.check_alive()
            return json.loads(json.dumps(method.answer(other, sent)))
        except effects.Stopped:
            raise exceptions.PeerUnreachable(host=host, method=name,
                                             seconds=1)

    def describe(self, host):
        self.node.check_alive()
        other = self.node.world.nodes[host]
        try:
            other.check_alive()
        except effects.Stopped:
            raise exceptions.PeerUnreachable(host=host, method='describe',
                                             seconds=1)
        return {
            'host': host + '#p', 'initiator': 'i',
            'problems': other.problems,
            'to_wipe': sum(lv.size for lv in other.sim_lvm.lvs().values()
                           if names.is_to_wipe(lv.name)),
            'sparse': bool(other.world.pool),
            'block': other.block,
            'free_space': dataclasses.asdict(other.sim_lvm.free_space())}


def _sending(name):
    def send(self, host, *args):
        return self.send(host, name, *args)
    return send


for _name in rpc.METHODS.keys() - {'describe'}:
    setattr(SimPeers, _name, _sending(_name))
