# SPDX-License-Identifier: Apache-2.0
"""Attachments on Cinder's own schema."""

import datetime
from unittest import mock

from cinder import exception
from cinder import objects
from cinder.tests.unit import fake_constants as fake
import ddt
from oslo_utils import timeutils

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Asked
from cinder_localclone.core.state import Event
from cinder_localclone.db import base
from tests.helpers import records_case
from tests.helpers.remote_case import IQN
from tests.helpers.remote_case import PROPERTIES
from tests.helpers.remote_case import V1


@ddt.ddt
class AttachmentsTest(records_case.Base):

    def setUp(self):
        super().setUp()
        self.attach('b', PROPERTIES)
        self.attach('c', dict(PROPERTIES, driver_volume_type='iscsi'))
        self.attach('a', {'driver_volume_type': 'local',
                          'device_path': '/dev/mapper/x'})

    def attach(self, host, properties):
        found = objects.VolumeAttachment(
            self.context, volume_id=self.volume.id,
            instance_uuid=fake.INSTANCE_ID, attach_status='attached')
        found.create()
        found.connector = {'host': host, 'initiator': 'iqn.' + host}
        found.connection_info = properties
        found.save()

    def remote_to(self, host):
        return [each.id for each in self.attachments.remote_to(host)]

    @ddt.data(1, -1)
    def test_new_by_the_clock_of_the_database(self, days):
        ids = [each.id for each in self.reload().volume_attachment]
        wrong = timeutils.utcnow() + datetime.timedelta(days=days)
        with mock.patch.object(timeutils, 'utcnow', lambda *_args: wrong):
            self.assertTrue(self.attachments.any_newer(ids, 60))
            self.assertFalse(self.attachments.any_newer(ids, -60))

    def test_who_passes_it_through(self):
        self.assertEqual([self.volume.id], self.remote_to('b@l'))
        for host in ('a@l', 'c@l', 'd@l'):
            self.assertEqual([], self.remote_to(host))

    def test_ended(self):
        for _again in range(2):
            for host in ('c@l', 'b@l'):
                self.attachments.end_remote_attachments(self.volume.id, host)
            self.check_ended()

    def check_ended(self):
        self.assertEqual([], self.remote_to('b@l'))
        left = {each.connector['host']: each.connection_info
                for each in self.reload().volume_attachment}
        self.assertEqual({
            'driver_volume_type': 'local', 'discard': 'True',
            'device_path': names.handle_path(V1)}, left['b'])
        self.assertIn('auth_password', left['c'])

    def test_at_another_address(self):
        before = {each.id: dict(each.connection_info)
                  for each in self.reload().volume_attachment}
        iqn, = {told['target_iqn'] for told in before.values()
                if 'target_iqn' in told}
        self.attachments.readdress(self.volume.id, iqn + 'x', 'new:3260')
        self.attachments.readdress(self.volume.id, iqn, 'new:3260')
        for each in self.reload().volume_attachment:
            told = before[each.id]
            self.assertEqual(
                dict(told, target_portal='new:3260')
                if 'target_iqn' in told else told, each.connection_info)

    def test_changed_before_it_is_locked(self):
        """Cinder has changed an attachment: it belongs to another now."""
        iqn, changed = PROPERTIES['target_iqn'], {
            'b': dict(PROPERTIES, target_iqn='iqn.other'), 'c': {}}
        manager = type(base.main_context_manager.writer)
        using, begun = manager.using, []

        def change(self_, context):
            begun.append(self_)
            if len(begun) == 2:  # it has read; it is about to lock
                for each in self.reload().volume_attachment:
                    if each.connector['host'] in changed:
                        each.connection_info = changed[each.connector['host']]
                        each.save()
            return using(self_, context)
        before = {each.id: dict(each.connection_info)
                  for each in self.reload().volume_attachment}
        for act in (
                lambda: self.attachments.readdress(
                    self.volume.id, iqn, 'new:3260'),
                lambda: self.attachments.end_remote_attachments(
                    self.volume.id, 'b@l')):
            begun.clear()
            with mock.patch.object(manager, 'using', autospec=True,
                                   side_effect=change):
                act()
            self.assertEqual(2, len(begun))
            told = {each.connector['host']: each.connection_info
                    for each in self.reload().volume_attachment}
            self.assertEqual('iqn.other', told['b']['target_iqn'])
            self.assertEqual(PROPERTIES['target_portal'],
                             told['b']['target_portal'])
            self.assertEqual({}, told['c'])
            for each in self.reload().volume_attachment:
                each.connection_info = before[each.id]
                each.save()

    def told(self):
        """What each row says, also those that are deleted."""
        model = base.models.VolumeAttachment
        manager = base.main_context_manager
        with manager.reader.using(self.context) as session:
            return {row.id: (row.connector, row.connection_info)
                    for row in session.query(model)}

    @ddt.data('destroyed', 'given to another')
    def test_ended_before_it_is_locked(self, how):
        """No row that is another's by now is changed, nor one of the past."""
        writer = type(base.main_context_manager.writer)
        using, begun, before = writer.using, [], {}

        def end(own, context):
            begun.append(own)
            if len(begun) == 2:  # it has read; it is about to lock
                for each in self.reload().volume_attachment:
                    if how == 'destroyed':
                        each.destroy()
                    else:
                        each.connector = {'host': 'z'}
                        each.save()
                before.update(self.told())
            return using(own, context)
        for act in (
                lambda: self.attachments.readdress(
                    self.volume.id, IQN, 'new:3260'),
                lambda: self.attachments.end_remote_attachments(
                    self.volume.id, 'b@l')):
            self.attach('b', PROPERTIES)
            begun.clear()
            before.clear()
            with mock.patch.object(writer, 'using', autospec=True,
                                   side_effect=end):
                act()
            self.assertNotEqual({}, before)
            self.assertEqual(before, self.told())

    def test_of_the_past_or_of_another_volume(self):
        """It has the same name, and is none of these."""
        for each in self.reload().volume_attachment:
            each.destroy()
        before = self.told()
        self.attachments.readdress(self.volume.id, IQN, 'new:3260')
        self.attachments.end_remote_attachments(self.volume.id, 'b@l')
        self.assertEqual(before, self.told())
        self.attach('b', PROPERTIES)
        before = self.told()
        for volume_id in (fake.VOLUME2_ID, fake.VOLUME3_ID):
            self.attachments.readdress(volume_id, IQN, 'new:3260')
            self.attachments.end_remote_attachments(volume_id, 'b@l')
        self.assertEqual(before, self.told())

    def test_reserved(self):
        """Nobody has it yet, so it says nothing."""
        objects.VolumeAttachment(
            self.context, volume_id=self.volume.id,
            instance_uuid=fake.INSTANCE_ID, attach_status='reserved').create()
        before = self.told()
        self.assertIn((None, None), before.values())
        self.attachments.readdress(self.volume.id, 'iqn.other', 'new:3260')
        self.attachments.end_remote_attachments(self.volume.id, 'z@l')
        self.assertEqual(before, self.told())

    def test_dropped(self):
        """Its row stays, as that of any attachment that has ended."""
        found = objects.VolumeAttachment(
            self.context, volume_id=self.volume.id,
            instance_uuid=fake.INSTANCE_ID, attach_status='reserved')
        found.create()
        self.attachments.drop_attachment(self.volume.id, found.id)
        manager = base.main_context_manager
        with manager.reader.using(self.context) as session:
            row, = session.query(base.models.VolumeAttachment).filter_by(
                id=found.id)
            self.assertEqual(('detached', True), (
                row.attach_status, row.deleted))
            self.assertEqual(row.deleted_at.date(), row.detach_time.date())

    def test_of_a_volume_that_is_gone(self):
        with mock.patch.object(
                objects.Volume, 'get_by_id',
                side_effect=exception.VolumeNotFound(volume_id='v')):
            self.assertEqual([], self.remote_to('b@l'))

    def test_who_asks_for_a_move_is_on_record(self):
        volume = self.reload()
        for asked in (Asked.DEFERRED, Asked.ATTACH):
            move = self.moves.begin(
                volume, 'b@l#p', Event.MOVE_BEGUN, records_case.GEOMETRY,
                lambda record: 'portal,1 iqn:%s 0' % record, 'CHAP u s', 'i',
                asked)
            self.assertEqual((asked, asked is Asked.DEFERRED),
                             (move.asked_by, move.is_deferred))
            move = self.moves.get_move(move.move_id)
            self.assertIs(asked, move.asked_by)
            failed = self.moves.advance(move, Event.FAILED)
            self.moves.finish(failed, Event.DESTINATION_REMOVED)

    def test_only_what_is_in_use_is_deferred(self):
        volume = self.reload()
        volume.status = 'available'
        volume.save()
        self.assertRaises(
            exceptions.StaleMove, self.moves.begin, volume, 'b@l#p',
            Event.MOVE_BEGUN, records_case.GEOMETRY, str, 'CHAP u s', 'i',
            Asked.DEFERRED)
