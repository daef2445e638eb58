# SPDX-License-Identifier: Apache-2.0
"""Attachments that Cinder's API sends with a request, and what it leaves out.

Cinder's API and its serializer are real; its volume service is not there.
"""

import datetime
import types
from unittest import mock

from cinder import objects
from cinder.objects import base as objects_base
from cinder.tests.unit import fake_constants as fake
from cinder.volume import api
from cinder.volume import configuration
import fixtures

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import exceptions
from cinder_localclone.driver import driver
from cinder_localclone.service import messages
from cinder_localclone.volumes import connect
from tests.helpers import records_case
from tests.helpers import specs

#: As Nova sends it with an attachment.
CONNECTOR = {'host': 'n2', 'initiator': 'iqn.n2', 'mountpoint': '/dev/vdb'}


class ConnectTest(records_case.Base):
    """An instance on n1 has the volume; it is asked for on n2, too."""

    def setUp(self):
        super().setUp()
        objects.register_all()
        self.driver = driver.LocalCloneDriver(
            configuration=configuration.Configuration(
                [], config_group=configuration.SHARED_CONF_GROUP),
            host=records_case.A)
        self.connections = mock.MagicMock()
        node = specs.node(host=records_case.A)
        vars(node).update(moves=self.moves, volumes=self.volumes,
                          attachments=self.attachments)
        self.connections.node = node
        self.driver.service = types.SimpleNamespace(
            node=node, connections=self.connections)
        self.connect = self.useFixture(fixtures.MockPatchObject(
            connect.Connections, 'connect', autospec=True)).mock
        self.meanwhile = lambda: None
        self.source = self.attach('n1').id
        self.cinder = api.API()
        for owner, name, act in (
                (self.cinder.volume_rpcapi, 'attachment_update', self.update),
                (messages, 'tell_member', mock.Mock())):
            self.useFixture(fixtures.MockPatchObject(owner, name, act))

    def attach(self, host=None):
        found = objects.VolumeAttachment(
            self.context, volume_id=self.volume.id,
            instance_uuid=fake.INSTANCE_ID,
            attach_status='attached' if host else 'reserved')
        found.create()
        if host:
            found.connector = {'host': host, 'initiator': 'iqn.' + host}
            found.connection_info = {'driver_volume_type': 'local'}
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
        return self.connect.call_args.args[-1]

    def refuse(self):
        self.connect.side_effect = exceptions.Refused(
            volume='v', host='n2', reason='r')

    def connect_in_time(self):
        def connect(_connections, _id, connector, attachments):
            volume_attachments.check_in_time(
                self.reload(), connector['host'], connector, attachments)
            return {}
        self.connect.side_effect = connect

    def test_own_attachment_of_a_live_migration(self):
        self.connect_in_time()
        own = self.live()
        self.assertEqual(self.ids(), set(self.told()))
        self.assertIsNone(self.told()[own.id])

    def refused(self):
        """:returns: what is left beside what there was before"""
        before = self.ids()
        self.refuse()
        self.assertRaises(exceptions.Refused, self.live)
        self.assertLessEqual(before - {self.source}, self.ids())
        return self.ids() - before

    def test_own_attachment_of_a_refused_live_migration_goes(self):
        """Nova never learns of it."""
        self.assertEqual(set(), self.refused())

    def test_what_is_newer_stays(self):
        newer = []

        def attach():
            found = self.attach()
            found.created_at += datetime.timedelta(seconds=1)
            found.save()
            newer.append(found.id)
        self.meanwhile = attach
        left = self.refused()
        self.assertEqual(set(newer), left)

    def test_what_an_earlier_request_has_left_stays(self):
        """It may be served yet; and one that is at the destination."""
        self.attach()
        self.attach('n2')
        self.assertEqual(set(), self.refused())

    def test_both_nodes_have_one_iscsi_name(self):
        with mock.patch.dict(CONNECTOR, initiator='iqn.n1'):
            self.assertEqual(set(), self.refused())

    def test_instance_is_deleted_meanwhile(self):
        self.meanwhile = lambda: self.reload().finish_detach(self.source)
        self.assertEqual(set(), self.refused())
        self.assertEqual('available', self.reload().status)

    def test_request_without_an_attachment(self):
        """It leaves those of others alone."""
        others = []
        self.meanwhile = lambda: others.append(self.attach().id)
        self.refuse()
        with mock.patch.object(
                self.cinder.volume_rpcapi, 'initialize_connection',
                lambda context, volume, connector: self.update(
                    context, volume, connector, None)):
            self.assertRaises(
                exceptions.Refused, self.cinder.initialize_connection,
                self.context, self.reload(),
                {'host': 'n3', 'initiator': 'iqn.n3'})
        self.assertLess(set(others), self.ids())

    def test_earlier_request_is_refused_meanwhile(self):
        self.meanwhile = self.attach().destroy
        self.connect_in_time()
        self.live()

    def test_earlier_attachment_at_the_destination_is_deleted_meanwhile(self):
        self.meanwhile = self.attach('n2').destroy
        self.connect_in_time()
        self.live()

    def test_made_after_the_request(self):
        """An attachment that Cinder's API was asked to update it sends."""
        self.reload().volume_attachment[0].destroy()
        own, newer = self.attach(), []
        self.meanwhile = lambda: newer.append(self.attach().id)
        self.connect.return_value = {}
        self.update(self.context, self.reload(), CONNECTOR, own.id)
        self.assertEqual({own.id}, set(self.told()))
        self.refuse()
        self.assertRaises(exceptions.Refused, self.update, self.context,
                          self.reload(), CONNECTOR, own.id)
        self.assertLess({own.id, *newer[:1]}, self.ids())
