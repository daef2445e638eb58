# SPDX-License-Identifier: Apache-2.0
"""Attachments that Cinder's API sends with a request, and what it leaves out.

Cinder's API and its serializer are real; its volume service is not there.
"""

import types
from unittest import mock

from cinder import objects
from cinder.objects import base as objects_base
from cinder.tests.unit import fake_constants as fake
from cinder.volume import api
from cinder.volume import configuration
import ddt

from cinder_localclone import driver
from cinder_localclone import exceptions
from cinder_localclone import messages
from tests.unit import test_records

CONNECTOR = {'host': 'n2', 'initiator': 'iqn.n2'}


@ddt.ddt
class ConnectTest(test_records.Base):
    """An instance on n1 has the volume; it is asked for on n2, too."""

    def setUp(self):
        super().setUp()
        objects.register_all()
        self.driver = driver.LocalCloneDriver(
            configuration=configuration.Configuration(
                [], config_group=configuration.SHARED_CONF_GROUP),
            host=test_records.A)
        self.connections = mock.MagicMock()
        node = mock.MagicMock(host=test_records.A)
        node.records = self.records
        self.driver.service = types.SimpleNamespace(
            node=node, connections=self.connections)
        self.meanwhile = lambda: None
        self.attach('n1')
        self.cinder = api.API()
        for owner, name, act in (
                (self.cinder.volume_rpcapi, 'attachment_update', self.update),
                (messages, 'tell_owner', mock.Mock())):
            patch = mock.patch.object(owner, name, act)
            patch.start()
            self.addCleanup(patch.stop)

    def attach(self, host=None):
        found = objects.VolumeAttachment(
            self.context, volume_id=self.volume.id,
            instance_uuid=fake.INSTANCE_ID,
            attach_status='attached' if host else 'reserved')
        found.create()
        if host:
            found.connector = {'host': host, 'initiator': 'iqn.' + host}
            found.save()
        return found

    def update(self, _context, volume, connector, _id):
        """What the volume service gets, after a while."""
        wire = objects_base.CinderObjectSerializer()
        sent = wire.deserialize_entity(
            self.context, wire.serialize_entity(self.context, volume))
        self.meanwhile()
        return self.driver.initialize_connection(sent, connector)

    def live(self):
        """As Nova's pre_live_migration asks: with the connector."""
        return self.cinder.attachment_create(
            self.context, objects.Volume.get_by_id(
                self.context, self.volume.id),
            fake.INSTANCE_ID, CONNECTOR)

    def ids(self):
        return {each.id for each in self.reload().volume_attachment}

    def told(self):
        return self.connections.serve.call_args.args[-1]

    def test_own_attachment_of_a_live_migration(self):
        self.connections.serve.return_value = {}
        own = self.live()
        self.assertEqual(self.ids(), set(self.told()))
        self.assertIsNone(self.told()[own.id])

    @ddt.data(True, False)
    def test_own_attachment_of_a_refused_live_migration_goes(self, newer):
        """Nova never learns of it; another's stays."""
        if newer:
            self.meanwhile = self.attach
        before = self.ids()
        self.connections.serve.side_effect = exceptions.Refused(
            volume='v', host='n2', reason='r')
        self.assertRaises(exceptions.Refused, self.live)
        self.assertEqual(newer, len(self.ids() - before) == 1)
        self.assertEqual(set(), self.ids() & {
            each for each, host in self.told().items() if host is None})

    def test_made_after_the_request(self):
        """What Cinder's API was asked to attach it sends."""
        own = self.attach()
        self.meanwhile = self.attach
        self.connections.serve.return_value = {}
        volume = objects.Volume.get_by_id(self.context, self.volume.id)
        self.update(self.context, volume, CONNECTOR, own.id)
        self.assertIn(own.id, self.told())
        self.assertEqual(1, len(self.ids() - set(self.told())))
