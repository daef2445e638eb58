# SPDX-License-Identifier: Apache-2.0
"""A request acts on its volume as the row is once the lock is held.

While a request waits for the lock of a volume, another request may give the
volume another home, or another LV. A value of the volume from before the wait
would then name a node that is not its home, or an LV of other data.
"""

import contextlib
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import attachments
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Asked
from cinder_localclone.volumes import delete
from cinder_localclone.volumes import extend
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import migrate
from cinder_localclone.volumes import snapshots
from tests import world as worlds

A, B = 'a@l', 'b@l'
ON_A, ON_B = {'host': 'a'}, {'host': 'b'}

#: Requests at the home of a volume, each with the status of the volume.
REQUESTS = {
    'attach': ('reserved', lambda case: case.connect(ON_A)),
    'attach elsewhere': ('reserved', lambda case: case.connect(ON_B)),
    'delete': ('deleting', lambda case: delete.delete(
        case.a.node, case.volume.id)),
    'extend': ('extending', lambda case: extend.extend_part(
        case.a.reconciler, case.volume.id, 2)),
    'move away': ('available', lambda case: migrate.move_away(
        case.a.node, case.volume.id, B, Asked.DRAIN)),
    'retype': ('retyping', lambda case: migrate.retype(
        case.a.node, case.volume.id, {})),
    'take a snapshot': ('available', lambda case: snapshots.take(
        case.a.reconciler, case.snapshot)),
    'unmanage': ('unmanaging', lambda case: manage.unmanage(
        case.a.node, case.volume.id)),
}


class Base(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.world.pool = 'pool'
        self.a = self.world.nodes[A]
        self.volume = self.world.create_volume(A)
        self.other = self.world.create_volume(A)
        self.snapshot = self.world.snapshot_row(self.volume)

    def connect(self, connector):
        return self.a.connections.connect(
            self.volume.id, connector, attachments.as_sent(self.volume))

    @contextlib.contextmanager
    def meanwhile(self, change):
        """Let the row change while a request waits for the lock."""
        lock, waits = worlds.SimNode.lock, []

        def waited(node, name):
            if name == self.volume.id and not waits:
                waits.append(name)
                change()
            return lock(node, name)
        with mock.patch.object(worlds.SimNode, 'lock', waited):
            yield
        self.assertEqual([self.volume.id], waits)


@ddt.ddt
class OtherHomeTest(Base):

    def gets_another_home(self):
        self.volume.host = B + '#p'

    @ddt.data(*REQUESTS)
    def test_nothing_is_done_at_the_former_home(self, name):
        self.volume.status, request = REQUESTS[name]
        before = repr(self.world.snapshot())
        with self.meanwhile(self.gets_another_home):
            self.assertRaises(exceptions.StaleMove, request, self)
        self.assertEqual(before, repr(self.world.snapshot()))
        self.assertEqual([], self.world.wrongs)


class OtherLvTest(Base):
    """A revert gives the volume another LV."""

    def setUp(self):
        super().setUp()
        self.former = self.volume.name
        for volume in (self.volume, self.other):
            with self.a.lock(volume.id):
                self.a.node.handles.remove_handle(volume.id)

    def gets_another_lv(self):
        del self.world.volumes[self.other.id]
        self.volume.name_id, self.volume.name = (
            self.other.name_id, self.other.name)

    def request(self, name):
        self.volume.status, request = REQUESTS[name]
        with self.meanwhile(self.gets_another_lv):
            request(self)

    def test_snapshot_is_of_the_present_lv(self):
        expected = list(self.a.lvs[self.other.name])
        self.assertNotEqual(expected, self.a.lvs[self.former])
        self.request('take a snapshot')
        self.assertEqual(
            expected, self.a.lvs[names.snapshot_lv(self.snapshot)])

    def test_present_lv_grows(self):
        before = len(self.a.lvs[self.former])
        self.request('extend')
        self.assertLess(before, len(self.a.lvs[self.other.name]))
        self.assertEqual(before, len(self.a.lvs[self.former]))

    def test_present_lv_is_removed(self):
        self.request('delete')
        self.assertEqual([self.former], list(self.a.lvs))
