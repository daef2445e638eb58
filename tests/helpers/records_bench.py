# SPDX-License-Identifier: Apache-2.0
"""One contract of the records: Cinder's schema on SQLite, and simulated.

``tests/contracts/records_of_*.py`` have the tests: each public method of the
records has some that are named after it, ``test_METHOD__CASE``.
"""

import types
import uuid

from cinder import context
from cinder import objects
from cinder.tests.unit import utils
from cinder.volume import volume_types
from oslo_utils import timeutils

from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core.state import Asked
from cinder_localclone.core.state import Event
from cinder_localclone.core import volume_types as encryption_types
from cinder_localclone.db import attachments
from cinder_localclone.db import base
from cinder_localclone.db import database
from tests import world as worlds
from tests.world import images
from tests.world import records
from tests.world import scheduler
from tests.world import seeded

A, B, C = 'a@l', 'b@l', 'c@l'
ZONES = {A: 'here', B: 'there', C: 'there'}
GEOMETRY = state.Geometry(128, 32, 8)
GIB = 1 << 30
NEW, NONE = ('%08d-0000-4000-8000-000000000000' % each for each in (8, 9))
ONE, OTHER = ('%08d-0000-4000-8000-00000000000b' % each for each in (1, 2))
KEY, KEY2 = (encryption_types.Recorded(16 << 20, each)
             for each in ('key', 'key2'))
LUKS = {'localclone:encryption': 'luks2'}
PASSED = {'driver_volume_type': 'local', 'device_path': '/dev/mapper/x',
          'target_iqn': 'iqn.p', 'target_portal': '192.0.2.1:3260',
          'auth_method': 'CHAP', 'auth_username': 'u', 'auth_password': 's'}
COLUMNS = ('id', 'host', 'name', 'name_id', 'size', 'status', 'provider_id',
           'migration_status', 'attach_status', 'availability_zone',
           'service_uuid')


class Told:
    """One class of the records, and what it was asked."""

    def __init__(self, inner, asked):
        self._inner, self._asked = inner, asked

    def __getattr__(self, name):
        self._asked.add(name)
        return getattr(self._inner, name)


class Real:
    """Rows of Cinder's own schema."""

    SERVICE = 'cinder-volume'

    def __init__(self):
        self.context = context.get_admin_context()
        self.services = {
            host: utils.create_service(self.context, {
                'host': host, 'binary': self.SERVICE, 'topic': self.SERVICE,
                'availability_zone': zone,
                'uuid': str(uuid.uuid4())}).uuid
            for host, zone in ZONES.items()}

    def records(self):
        return dict(
            vars(database.database()), attachments=attachments.Attachments(
                lambda connector, host: host.startswith(
                    connector['host'] + '@')))

    def volume(self, host, specs, **values):
        type_id = specs and volume_types.create(
            self.context, str(uuid.uuid4()), specs)['id']
        return utils.create_volume(self.context, **dict(
            dict(host=host, size=1, volume_type_id=type_id,
                 availability_zone=ZONES[A],
                 service_uuid=self.services[A]), **values)).id

    def row(self, volume_id):
        return base.cinder_volume(volume_id)

    def put(self, volume_id, **values):
        volume = objects.Volume.get_by_id(self.context, volume_id)
        volume.update(values)
        volume.save()

    def destroy(self, volume_id):
        objects.Volume.get_by_id(self.context, volume_id).destroy()

    def snapshot(self, volume_id, status, node, provider_id):
        return utils.create_snapshot(
            self.context, volume_id, status=status, volume_size=1,
            provider_location=node and rows.location(node),
            provider_id=provider_id).id

    def destroy_snapshot(self, snapshot_id):
        objects.Snapshot.get_by_id(self.context, snapshot_id).destroy()

    def back_up(self, snapshot_id):
        utils.create_backup(self.context, snapshot_id=snapshot_id,
                            status='creating')

    def attach(self, volume_id, host, instance, told):
        found = objects.VolumeAttachment(
            self.context, volume_id=volume_id, instance_uuid=instance,
            attached_host=host,
            attach_status='attached' if host else 'reserved')
        found.create()
        if host:
            found.connector = {'host': host, 'initiator': 'iqn.' + host}
            found.connection_info = told
            found.save()
        return found.id

    def change_attachment(self, attachment_id, **values):
        with base.main_context_manager.writer.using(
                self.context) as session:
            session.query(base.models.VolumeAttachment).filter_by(
                id=attachment_id).update(values)

    now = attachments_now = staticmethod(timeutils.utcnow)


class Simulated:
    """Rows of the simulated world."""

    def __init__(self):
        self.world = self.make()
        self.world.zones = ZONES
        self.services = {host: self.world.service_of(host) for host in ZONES}

    @staticmethod
    def make():
        return worlds.World(hosts=tuple(ZONES))

    def records(self):
        node = self.world.nodes[A]
        return dict(vars(node.make_database()),
                    attachments=records.SimAttachments(node))

    def volume(self, host, specs, **values):
        return self.world.row(host.partition('#')[0], **dict(
            dict(extra_specs=specs or {}, availability_zone=ZONES[A],
                 service_uuid=self.services[A]), **values)).id

    def row(self, volume_id):
        return self.world.volumes.get(volume_id)

    def put(self, volume_id, **values):
        if 'name_id' in values:
            values['name'] = 'volume-' + values['name_id']
        for name, value in values.items():
            setattr(self.world.volumes[volume_id], name, value)

    def destroy(self, volume_id):
        self.world.destroy(self.world.volumes[volume_id])

    def snapshot(self, volume_id, status, node, provider_id):
        found = self.world.snapshot_row(self.world.volumes[volume_id])
        self.world.set_snapshot(found, status=status, node=node or '',
                                provider_id=provider_id)
        return found

    def destroy_snapshot(self, snapshot_id):
        self.world.set_snapshot(snapshot_id, status='deleted', deleted=True)

    def back_up(self, snapshot_id):
        self.world.read.add(snapshot_id)

    def attach(self, volume_id, host, instance, told):
        found = images.attachment(
            id=str(uuid.uuid4()), instance_uuid=instance, mountpoint=None,
            connector=host and {'host': host, 'initiator': 'iqn.' + host},
            connection_info=told if host else None,
            attach_status='attached' if host else 'reserved',
            created_at=self.world.database_time(), updated_at=None)
        self.world.volumes[volume_id].volume_attachment.append(found)
        return found.id

    def change_attachment(self, attachment_id, **values):
        found, = (each for row in self.world.volumes.values()
                  for each in row.volume_attachment
                  if each.id == attachment_id)
        vars(found).update(values)

    def attachments_now(self):
        return self.world.database_time()

    now = staticmethod(images.now)


class Scheduled(Simulated):
    """Those of the world under the scheduler."""

    @staticmethod
    def make():
        return seeded.World(scheduler.Recorded({}), tuple(ZONES), None)


class Contract:
    """What the records do, whichever they are.

    :ivar rows: what Cinder and its users do to rows
    :ivar asked: the names of the methods that a test has called
    """

    def setUp(self):
        super().setUp()
        self.rows = self.make_rows()
        self.ids, self.snapshot_ids = [], [NONE]
        self.plain = self.rows.records()
        self.asked = set()
        for name, each in self.plain.items():
            setattr(self, name, Told(each, self.asked))
        self.volume = self.create(status='in-use')
        self.addCleanup(self._asked)

    def _asked(self):
        """A test named after a method has called it."""
        method = self._testMethodName[5:].partition('__')[0]
        self.assertIn(method, self.asked)

    def create(self, host=A, specs=None, **values):
        self.ids.append(self.rows.volume(
            host + '#p', specs, **dict(dict(status='available'), **values)))
        return self.ids[-1]

    def put(self, **values):
        self.rows.put(self.volume, **values)

    def snapshot(self, volume=None, status='available', node=A,
                 provider_id=None):
        self.snapshot_ids.append(self.rows.snapshot(
            volume or self.volume, status, node, provider_id))
        return self.snapshot_ids[-1]

    def row(self, volume=None):
        return self.volumes.volume(volume or self.volume)

    def begin(self, host=B, event=Event.MOVE_BEGUN, asked_by=Asked.ATTACH,
              volume=None):
        return self.moves.begin(
            volume or self.row(), host + '#p', event, GEOMETRY,
            lambda record: 'portal,1 iqn:%s 0' % record, 'CHAP u s', 'i',
            asked_by)

    def hold(self):
        """A move that holds its volume."""
        self.put(status='available', attach_status='detached')
        return self.begin(asked_by=Asked.DRAIN)

    def live(self):
        return self.moves.commit(self.begin(event=Event.LIVE_MOVE_BEGUN))

    def end(self, move, *events):
        for event in events or (Event.HYDRATED, Event.DRAINED):
            move = self.moves.advance(move, event)
        return move

    # -- what there is

    def seen(self):
        """All that the records tell."""
        db = types.SimpleNamespace(**self.plain)
        volumes = [self.rows.row(each) for each in self.ids]
        return ([each and self._columns(each) for each in volumes],
                sorted(db.moves.readable_moves(),
                       key=lambda each: each.move_id),
                db.snapshots.snapshots(self.snapshot_ids),
                [(each.volume_id, bool(each.stalled))
                 for each in db.queue.copies(A)],
                sorted(db.services.alive_by_host()))

    @staticmethod
    def _columns(volume):
        return [getattr(volume, name) for name in COLUMNS], sorted(
            (each.id, each.connector, each.connection_info)
            for each in volume.volume_attachment)

    def refused(self, error, method, *args):
        """What is refused leaves all as it was."""
        before = self.seen()
        self.assertRaises(error, method, *args)
        self.assertEqual(before, self.seen())

    def nothing(self, method, *args):
        """Nothing is to be done: returns what the method does."""
        before = self.seen()
        found = method(*args)
        self.assertEqual(before, self.seen())
        return found

    def told(self, *names, volume=None):
        found = self.rows.row(volume or self.volume)
        values = tuple(getattr(found, name) for name in names)
        return values if len(names) > 1 else values[0]

    def columns(self):
        """The columns of the volume's row."""
        return dict(zip(COLUMNS, self.told(*COLUMNS)))
