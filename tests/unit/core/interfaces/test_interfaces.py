# SPDX-License-Identifier: Apache-2.0
"""Each contract has a real and a simulated class, and neither lacks any of it.

A method of a contract that a class of its own does not define would do
nothing, and say so to nobody: a flush, or a check, that is lost.
"""

import inspect

import ddt
import testtools

from cinder_localclone.core.interfaces import crypt
from cinder_localclone.core.interfaces import iscsi
from cinder_localclone.core.interfaces import storage
from cinder_localclone.core import node
from cinder_localclone.core import rpc
from cinder_localclone.service import key_manager
from cinder_localclone.service import rpc as client
from cinder_localclone.storage import clones
from cinder_localclone.storage import cryptsetup
from cinder_localclone.storage import handles
from cinder_localclone.storage import iscsi_initiator
from cinder_localclone.storage import iscsi_target
from cinder_localclone.storage import logical_volumes
from tests.world import crypt as sim_crypt
from tests.world import effects
from tests.world import iscsi as sim_iscsi
from tests.world import peers
from tests.world import records
from tests.world import reencryption
from tests.world import stack

IMPLEMENTED = (
    (storage.Lvm, logical_volumes.Lvm, stack.SimLvm),
    (storage.Handles, handles.Handles, stack.SimHandles),
    (storage.Clones, clones.Clones, stack.SimClones),
    (iscsi.Exports, iscsi_target.Exports, sim_iscsi.SimExports),
    (iscsi.Sessions, iscsi_initiator.Sessions, sim_iscsi.SimSessions),
    (crypt.Keys, key_manager.Keys, sim_crypt.SimKeys),
    (crypt.Crypt, cryptsetup.Cryptsetup, sim_crypt.SimCrypt),
    (crypt.Runner, cryptsetup.Runner, reencryption.SimRunner),
    (rpc.Calls, client.Client, peers.SimPeers))


def promised(contract):
    return {name for name, each in vars(contract).items()
            if inspect.isfunction(each) and not name.startswith('_')}


@ddt.ddt
class ImplementedTest(testtools.TestCase):

    @ddt.idata((contract, each) for contract, *classes in IMPLEMENTED
               for each in classes)
    @ddt.unpack
    def test_all_that_is_promised(self, contract, implementation):
        self.assertIn(contract, implementation.__mro__)
        self.assertEqual(set(), {
            name for name in promised(contract)
            if getattr(implementation, name) is getattr(contract, name)})

    def test_all_contracts_are_here(self):
        found = {each for module in (crypt, iscsi, storage)
                 for each in vars(module).values()
                 if inspect.isclass(each) and each.__module__ ==
                 module.__name__ and promised(each)}
        self.assertEqual(found, {
            contract for contract, *_classes in IMPLEMENTED
            if contract is not rpc.Calls})

    def test_effects_of_the_simulated_world_have_their_names(self):
        """One that was renamed would be looked at for no lock any more."""
        rooms = [contract for contract, *_classes in IMPLEMENTED]
        rooms += [each for each in vars(records).values()
                  if inspect.isclass(each) and each.__name__.startswith('Sim')]
        known = {name for room in rooms for name in dir(room)}
        known |= {*node.Node.__dataclass_fields__}
        for names in (effects.UNNOTED, effects.LOCKED, effects.OF_A_MOVE,
                      effects.BY, effects.ALLOCATING):
            self.assertEqual(set(), set(names) - known)
