# SPDX-License-Identifier: Apache-2.0
"""Nodes that get another address: what they exported goes on, or is told."""

from unittest import mock

import fixtures

from cinder_localclone.core import attachments
from cinder_localclone.core import events
from cinder_localclone.core import node as nodes
from cinder_localclone.core.state import Phase
from tests.helpers import attach_case
from tests.helpers import remote_case

A, B = 'a@l', 'b@l'
OLD, NEW = 'portal of ' + A, 'portal of the new address'


def reboot(node, portal=NEW, *others):
    """A node is rebooted, with another ``target_ip_address``.

    :param others: portals at addresses that it has besides
    """
    node.stop(power=True)
    node.dead = False
    exports = node.node.exports._inner
    exports.portal, exports.others = portal, set(others)


class RemotelyAttachedTest(remote_case.Passed):

    def setUp(self):
        super().setUp()
        # In this world exports are called as their initiators.
        self.useFixture(fixtures.MockPatchObject(
            attachments.iscsi, 'is_attached_from', autospec=True,
            side_effect=lambda iqn, home: (iqn, home) == ('iqn.b', A)))

    def sweep(self):
        for _look in range(3):
            self.world.reconcile()

    def told(self):
        return self.attached.connection_info['target_portal']

    def test_it_is_exported_at_the_new_address(self):
        reboot(self.a)
        self.sweep()
        self.assertEqual({(self.volume.id, 'iqn.b')}, self.a.remote)
        self.assertEqual(NEW, self.told())
        self.assertEqual([], self.a.reconciler.exporting.troubles())
        self.b.write(self.volume.id, 1, 'new')
        self.assertEqual('new', self.a.read(self.volume.id, 1))

    def test_it_stays_at_the_old_one_as_long_as_the_node_has_that(self):
        reboot(self.a, NEW, OLD)
        self.sweep()
        self.assertEqual({(self.volume.id, 'iqn.b')}, self.a.remote)
        self.assertEqual(OLD, self.told())

    def test_it_is_extended(self):
        """And where it is used it is as long: the connection is known."""
        reboot(self.a)
        self.sweep()
        found, = nodes.remote_from(
            self.a.node, self.volume)
        self.assertEqual((B, NEW), (found[0], found[1].portal))

    def test_it_follows_its_instance(self):
        reboot(self.a)
        self.sweep()
        self.volume.group_id = None
        self.a.exported.clear()
        for _look in range(20):
            self.world.reconcile()
            self.b.hydrate()
        self.assertIs(self.b, self.world.home(self.volume))

    def test_killed_before_that_is_recorded(self):
        """The next look does it."""
        reboot(self.a)
        with mock.patch.object(
                type(self.a.node.attachments._inner), 'readdress',
                side_effect=OSError('killed')):
            self.sweep()
        self.assertEqual(OLD, self.told())
        self.sweep()
        self.assertEqual(NEW, self.told())


class RemoteTest(attach_case.Base):
    """A host without the backend: only os-brick there knows its sessions."""

    def setUp(self):
        super().setUp()
        found = self.connect(attach_case.ELSEWHERE)
        self.attach('in-use', 'x')
        self.only, = self.volume.volume_attachment
        self.only.connector = attach_case.ELSEWHERE
        self.only.connection_info = dict(
            found['data'], driver_volume_type='iscsi')

    def test_what_cannot_be_exported_is_told(self):
        reboot(self.a)
        with mock.patch.object(events, 'say') as say:
            self.world.reconcile()
        said, = {call.args[0].number: call.kwargs for call in
                 say.mock_calls if call.args[0] is events.EXPORTS_DIFFER
                 }.values()
        self.assertEqual(self.volume.id, said['volume'])
        for word in ('iqn.x', OLD, 'Give the node this address again',
                     'attach it again'):
            self.assertIn(word, str(said['error']))
        trouble, = self.a.reconciler.exporting.troubles()
        self.assertIn(self.volume.id, trouble)
        self.assertEqual(set(), self.a.remote)
        # It has that address again.
        self.a.node.exports._inner.others = {OLD}
        self.world.reconcile()
        self.assertEqual({(self.volume.id, 'iqn.x')}, self.a.remote)
        self.assertEqual([], self.a.reconciler.exporting.troubles())

    def test_what_has_gone_is_told_no_more(self):
        reboot(self.a)
        self.world.reconcile()
        self.attach('available')
        self.volume.host = B + '#p'
        self.world.reconcile()
        self.assertEqual([], self.a.reconciler.exporting.troubles())


class CopyTest(attach_case.Base):

    def setUp(self):
        super().setUp()
        self.connect(attach_case.ON_B)
        self.assertIs(Phase.MIGRATING, self.move().phase)

    def finish(self):
        for _look in range(8):
            self.world.reconcile()
            self.b.hydrate()

    def test_it_goes_on_from_the_new_address(self):
        reboot(self.a)
        self.b.sessions.clear()  # nobody answers at the old one
        self.a.reconciler.reconcile_node()
        self.assertTrue(self.move().location.startswith(NEW))
        self.finish()
        self.assertIsNone(self.move())
        self.assertEqual(4, len(self.b.lvs[self.volume.name]))

    def test_from_the_old_one_as_long_as_the_node_has_that(self):
        reboot(self.a, NEW, OLD)
        self.a.reconciler.reconcile_node()
        self.assertTrue(self.move().location.startswith(OLD))
        self.finish()
        self.assertIsNone(self.move())

    def test_a_look_at_moves_alone_notices(self):
        reboot(self.a)
        self.a.reconciler.reconcile_moves()
        self.assertTrue(self.move().location.startswith(NEW))
