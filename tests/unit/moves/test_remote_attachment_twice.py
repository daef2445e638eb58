# SPDX-License-Identifier: Apache-2.0
"""A host with two attachments keeps the volume when one is deleted."""

import copy

import ddt

from tests.helpers import attach_case
from tests.helpers import remote_case


@ddt.ddt
class TwoAttachmentsTest(remote_case.Passed):

    def check_kept(self, initiator):
        self.assertEqual({(self.volume.id, initiator)}, self.a.remote)

    def test_the_guest_keeps_what_is_passed_through(self):
        """Its disk is gone for ten minutes, and longer than its time limits.

        One instance may have several attachments of one host:

        - a live migration to B fails so that Nova leaves the attachment of B
          (the compute service died), and the next one succeeds; in the end
          an operator deletes the one that is not used;
        - ``nova-manage volume_attachment refresh`` of an instance that is
          shut off makes a new one, and then deletes the first.

        Cinder calls terminate_connection with the host's connector, before
        it deletes the attachment. The home then withdraws the export under
        the guest, has B end its side (which B refuses if the guest runs), and
        offers it to nobody for the next ten minutes
        (:meth:`.iscsi_target.Exports.offer_again`), though an attachment names
        it.

        By design: as other drivers do, nothing is ended for a host that
        another attachment has connected.
        """
        other = copy.copy(self.attached)
        self.volume.volume_attachment.append(other)
        self.unserve(self.a, self.connector)
        self.check_kept('iqn.b')
        self.b.write(self.volume.id, 1, 'new')
        self.assertEqual('new', self.a.read(self.volume.id, 1))

    def test_shut_off(self):
        """As above: its instance can't be started afterwards."""
        self.b.opened.clear()
        self.volume.volume_attachment.append(copy.copy(self.attached))
        self.unserve(self.a, self.connector)
        self.assertIn(self.handle, self.b.devices)
        self.check_kept('iqn.b')

    def test_another_node_with_the_same_iscsi_name(self):
        """It keeps the export: its guest uses it. B is another node."""
        self.b.opened.clear()
        other = copy.copy(self.attached)
        other.connector = dict(self.connector, host='c')
        self.volume.volume_attachment.append(other)
        self.unserve(self.a, self.connector)
        self.check_kept('iqn.b')
        self.assertEqual([{}, {}], [self.b.passed, self.b.devices])

    def test_a_node_with_another_iscsi_name_since(self):
        """It is the node that it was, and has the volume still."""
        self.b.opened.clear()
        other = copy.copy(self.attached)
        other.connector = dict(self.connector, initiator='iqn.new')
        self.volume.volume_attachment.append(other)
        self.unserve(self.a, other.connector)
        self.assertIn(self.handle, self.b.devices)
        self.assertIn(self.volume.id, self.b.passed)

    def attach_elsewhere(self):
        """A host without the backend has it, and nobody else."""
        self.volume.volume_attachment = [
            attach_case.attachment(None)]
        self.b.opened.clear()
        self.unserve(self.a, self.connector)
        properties = self.serve(attach_case.ELSEWHERE)
        attached, = self.volume.volume_attachment
        attached.connector = attach_case.ELSEWHERE
        attached.connection_info = dict(
            properties['data'], driver_volume_type='iscsi')
        return properties

    def test_on_a_host_without_the_backend(self):
        """The same over plain iSCSI."""
        self.attach_elsewhere()
        attached, = self.volume.volume_attachment
        self.volume.volume_attachment.append(copy.copy(attached))
        self.unserve(self.a, attach_case.ELSEWHERE)
        self.check_kept('iqn.x')

    def test_one_export_has_one_secret(self):
        """Else each look serves it by the one, then by the other.

        The guest's session ends each time, and comes back only if the last
        one is its own.
        """
        first = self.attach_elsewhere()
        self.volume.volume_attachment.append(
            attach_case.attachment(None))
        self.assertEqual(first, self.serve(attach_case.ELSEWHERE))
        other = dict(attach_case.ELSEWHERE, initiator='iqn.y')
        self.assertNotEqual(first['data']['auth_password'],
                            self.serve(other)['data']['auth_password'])

    def test_the_last_one_ends_it(self):
        self.b.opened.clear()
        self.volume.volume_attachment.append(copy.copy(self.attached))
        self.unserve(self.a, self.connector)
        self.volume.volume_attachment.pop()
        self.unserve(self.a, self.connector)
        self.assertEqual([set(), {}, {}], [
            self.a.remote, self.b.passed, self.b.devices])
