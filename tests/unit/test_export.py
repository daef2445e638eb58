# SPDX-License-Identifier: Apache-2.0
"""What is served to hosts without the backend, and again after a reboot."""

import json
import types
from unittest import mock

import fixtures
import testtools

from cinder_localclone import export
from cinder_localclone import iscsi_target
from cinder_localclone import names
from cinder_localclone import reconcile

VOLUME = '6f0a3ef4-5b4f-4fd0-9a3e-2f1f0d8f7a11'
INITIATOR = 'iqn.2026-11.org.example:node1'
HOST = 'n2@l'


class ServedAgainTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.lio = self.useFixture(
            fixtures.MockPatchObject(export, 'lio')).mock
        self.lio.exports.return_value = '[]'
        self.lio.export.return_value = True
        self.exports = export.Exports('iqn.x:', '192.0.2.12', 3260)

    def connect(self):
        return self.exports.offer_volume(
            VOLUME, INITIATOR, iscsi_target.new_credentials())

    def rebooted(self):
        self.lio.export.reset_mock()
        self.exports = export.Exports('iqn.x:', '192.0.2.12', 3260)

    def test_as_before(self):
        properties = self.connect()
        before = self.lio.export.call_args
        self.rebooted()
        self.assertTrue(self.exports.offer_again(
            VOLUME, INITIATOR, properties))
        self.assertEqual(before, self.lio.export.call_args)

    def test_not_to_another_initiator(self):
        properties = self.connect()
        self.rebooted()
        self.assertFalse(self.exports.offer_again(
            VOLUME, 'iqn.of:another', properties))
        self.lio.export.assert_not_called()

    def test_not_what_was_ended(self):
        for ended in (INITIATOR, None):
            properties = self.connect()
            self.assertTrue(self.exports.offer_again(
                VOLUME, INITIATOR, properties))
            self.exports.withdraw_volume(VOLUME, ended)
            self.assertFalse(self.exports.offer_again(
                VOLUME, INITIATOR, properties))

    def test_what_was_ended_is_forgotten_in_time(self):
        properties = self.connect()
        self.exports.withdraw_volume(VOLUME, INITIATOR)
        later = export.time.monotonic() + export.ENDING + 1
        with mock.patch.object(export.time, 'monotonic', lambda: later):
            self.assertTrue(self.exports.offer_again(
                VOLUME, INITIATOR, properties))
            self.exports.withdraw_volume('another', INITIATOR)
            self.assertEqual([('another', INITIATOR)],
                             list(self.exports._ended))

    def reconciler(self):
        self.node = mock.MagicMock(host=HOST, exports=self.exports)
        self.node.records.moves_of.return_value = []
        self.node.records.move_of.return_value = None
        survey = self.node.stack.survey.return_value
        survey.handle_is_on_lv.return_value = True
        survey.metadata.return_value = None
        survey.devices = {}
        return reconcile.Reconciler(self.node, None)

    def volume(self, connection_info, connector):
        found = types.SimpleNamespace(
            id=VOLUME, name='volume-' + VOLUME, name_id=VOLUME, size=1,
            host=HOST + '#p', status='in-use', volume_attachment=[
                types.SimpleNamespace(connection_info=connection_info,
                                      connector=connector)])
        self.node.records.volumes_of.return_value = [found]
        self.node.records.volume.return_value = found

    def test_by_the_look_at_a_node(self):
        properties = dict(self.connect(), driver_volume_type='iscsi')
        self.rebooted()
        reconciler = self.reconciler()
        self.volume(properties, {'host': 'n1', 'initiator': INITIATOR})
        reconciler.converge_node()
        self.assertEqual(
            names.remote_iqn('iqn.x:', VOLUME, INITIATOR),
            self.lio.export.call_args.args[0])
        self.lio.exports.return_value = json.dumps([
            {'iqn': properties['target_iqn'], 'devices': []}])
        self.lio.export.reset_mock()
        reconciler.converge_node()
        self.lio.export.assert_not_called()

    def test_local_connections_need_none(self):
        reconciler = self.reconciler()
        for info in (None, {'driver_volume_type': 'local'}):
            self.volume(info, {'host': 'n2', 'initiator': INITIATOR})
            reconciler.converge_node()
        self.lio.export.assert_not_called()
