# SPDX-License-Identifier: Apache-2.0
"""The contract of a node's storage, on the simulated one."""

import contextlib
import dataclasses
import uuid

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import node
from cinder_localclone.core import state
from tests.contracts import headers
from tests.contracts import storage
from tests.contracts import thick
from tests.helpers import complaints
from tests import world as worlds
from tests.world import crypt
from tests.world import iscsi
from tests.world import stack

HOST = 'a@l'


class Crypt(crypt.SimCrypt):

    def format(self, volume_id, *how):
        """Only of a volume that is being created."""
        row = self.world.volumes[volume_id]
        row.status = 'creating'
        super().format(volume_id, *how)
        row.status = 'deleting'


class Bench:
    """A node of the simulated world, without its moments."""

    def __init__(self, pool='pool'):
        self.world = worlds.World(hosts=(HOST,))
        self.world.pool = pool
        self.node, self.host = self.world.nodes[HOST], HOST
        self.lvm = stack.SimLvm(self.node)
        self.handles = stack.SimHandles(self.node, self.lvm)
        self.clones = stack.SimClones(self.node, self.lvm, self.handles)
        self.exports = iscsi.SimExports(self.node)
        self.node.sim_exports = self.exports
        self.sessions = iscsi.SimSessions(self.node)
        self.crypt = Crypt(self.node)

    def volume(self, encrypted=False):
        row = self.world.row(HOST, status='deleting')
        if encrypted:
            row.provider_id = crypt.recorded('secret')
        return row.id

    def move(self, volume_id, **values):
        move_id = str(uuid.uuid4())
        move = self.world.move_records[move_id] = dataclasses.replace(
            state.Move(
                volume_id, move_id, state.Token(
                    state.Phase.MIGRATING, 'n', storage.GEOMETRY), False,
                HOST, HOST, storage.lv_of(volume_id),
                storage.lv_of(move_id), 1,
                self.exports.source_location(move_id), storage.AUTH,
                self.sessions.initiator(), 1), **values)
        return move

    def foreign(self, name):
        self.world.foreign(HOST, name)

    @contextlib.contextmanager
    def locked(self, *what):
        held = {*what, node.FREE_SPACE}
        self.node.held |= held
        yield
        self.node.held -= held

    def write(self, device, region, value):
        volume_id = (names.volume_of_handle(device)
                     or names.volume_of_crypt_name(device))
        if volume_id:
            self.node.write(volume_id, region, value)
        else:
            self.node.disk.write(device, region, value)
            self.node.disk.flush(device)

    def read(self, device, region):
        volume_id = names.volume_of_crypt_name(device)
        if volume_id:
            found = self.node.read(volume_id, region)
        elif device in self.node.devices:
            found = self.node._through(device, region)
        else:
            found = self.node.lvs[device][region]
        return '' if found in (worlds.EMPTY, worlds.ZERO) else found

    @contextlib.contextmanager
    def opened(self, device):
        self.node.opened.add(device)
        yield
        self.node.opened.discard(device)

    def copied(self, _move):
        self.node.hydrate(flushed=True)

    @contextlib.contextmanager
    def impossible(self):
        """The world insists on more than the kernel does."""
        try:
            yield
        except (AssertionError, exceptions.LocalCloneError):
            self.world.wrongs.clear()
            complaints.take()
            return
        raise AssertionError('nothing was refused')


@ddt.ddt
class SimulatedTest(testtools.TestCase):

    @ddt.data(*storage.SCENARIOS)
    def test_storage(self, name):
        self.run_scenario(storage.SCENARIOS[name])

    @ddt.data(*headers.SCENARIOS)
    def test_headers(self, name):
        self.run_scenario(headers.SCENARIOS[name])

    @ddt.data(*thick.SCENARIOS)
    def test_thick(self, name):
        self.run_scenario(thick.SCENARIOS[name], pool='')

    def test_a_pool_that_does_not_zero_gives_no_volume(self):
        bench = Bench()
        volume, lv = storage.created(bench)
        other = bench.volume()
        bench.node.zeroes = False
        for act in (
                lambda: bench.lvm.create_lv(
                    storage.lv_of(other), storage.GIB, other),
                lambda: bench.lvm.create_copy(
                    storage.lv_of(other), lv, storage.GIB, storage.GIB,
                    other),
                lambda: bench.lvm.adopt(lv, storage.lv_of(other), [])):
            self.assertRaises(exceptions.PoolDoesNotZero, act)

    def run_scenario(self, scenario, **how):
        bench = Bench(**how)
        scenario(bench)
        self.assertEqual([], bench.world.wrongs)
