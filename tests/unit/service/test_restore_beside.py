# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone restore``, run by hand beside the volume service."""

from unittest import mock

from cinder_localclone.core import boot_plan
from cinder_localclone.service import restore
from tests.helpers import attach_case
from tests.world import iscsi


class RestoreTest(attach_case.Base):

    def test_guest_comes_back_meanwhile(self):
        """What has left is not put beneath a guest that is passed through.

        1. The volume has moved to B, its copy is under way: A has its LV, and
           no handle.
        2. "restore" lists what A has.
        3. The guest is attached to A again: it is passed through to B.
        4. "restore" comes to this volume.
        """
        self.serve(attach_case.ON_B)
        self.assertIs(self.b, self.world.home(self.volume))
        self.a.reconciler.converge_node()
        self.assertNotIn(self.handle, self.a.devices)
        self.attach('reserved', None)
        plan = boot_plan.plan

        def then_attached(present):
            planned = plan(present)
            self.serve(dict(attach_case.ON_A, initiator='iqn.x'), self.b)
            self.assertEqual({'below': 'disk of ' + self.volume.id},
                             self.a.devices[self.handle])
            # The command takes no lock; the simulated stack asks for one.
            lock = self.a.lock(self.volume.id)
            lock.__enter__()
            self.addCleanup(lock.__exit__, None, None, None)
            return planned
        with mock.patch.object(boot_plan, 'plan', then_attached):
            (local, problem), = restore.restore(
                self.a.sim_stack, iscsi.SimSessions(self.a))
        self.assertEqual(self.volume.id, local.volume_id)
        self.assertTrue(problem)
        self.assertEqual({'below': 'disk of ' + self.volume.id},
                         self.a.devices[self.handle])
