# SPDX-License-Identifier: Apache-2.0
"""The driver with real records, on Cinder's own schema."""

import contextlib
from unittest import mock
import warnings

from cinder import context
from cinder.tests.unit import utils
from cinder.volume import configuration

from cinder_localclone.core.formats import survey
from cinder_localclone.core.node import Node
from cinder_localclone.core import state
from cinder_localclone.db import base
from cinder_localclone.db import moves
from cinder_localclone.db import services
from cinder_localclone.db import volumes
from cinder_localclone.driver import driver
from cinder_localclone.service import assembly
from cinder_localclone.volumes import connect
from cinder_localclone.volumes import reconcile
from tests.helpers import database
from tests.helpers import specs

A, B, STOCK = 'a@l', 'b@l', 'n3@lvm'
GEOMETRY = state.Geometry(128, 32, 8)
CINDERS = {'host': 'b', 'initiator': 'iqn.b'}
ELSEWHERE = {'host': STOCK + '#x', 'capabilities': {
    'location_info': 'LVMVolumeDriver:n3:g'}}


class Base(database.TestCase):

    def setUp(self):
        super().setUp()
        # Cinder's own deprecations, which its fixture shows.
        warnings.simplefilter('ignore', DeprecationWarning)
        self.context = context.get_admin_context()
        self.moves, self.volumes = moves.Moves(), volumes.Volumes()
        self.row = utils.create_volume(
            self.context, host=A + '#p', size=1, status='available',
            volume_type_id=None)

    def volume(self):
        return base.cinder_volume(self.row.id)

    def driver(self, host):
        """The driver of a node, on real records and nothing else."""
        storage = mock.Mock()
        for part, more in (('lvm', {'group': 'vg'}), ('handles', {}),
                           ('clones', {})):
            storage.attach_mock(specs.port(part, **more), part)
        node = Node(
            host=host, moves=self.moves, volumes=self.volumes,
            snapshots=specs.port('snapshots'),
            attachments=specs.port('attachments'),
            services=services.Services(), queue=specs.port('queue'),
            interrupted=specs.port('interrupted'),
            lvm=storage.lvm, handles=storage.handles, clones=storage.clones,
            secrets=specs.port('secrets'),
            crypt=specs.port('crypt'), runner=None, keys=specs.port('keys'),
            exports=specs.port('exports'), sessions=specs.port('sessions'),
            peers=specs.port('peers'), geometry=GEOMETRY,
            lock=lambda name: contextlib.nullcontext(),
            try_lock=lambda name: contextlib.nullcontext(),
            is_at=lambda connector, at: at.startswith(connector['host']),
            clear=lambda lv, size: None)
        node.handles.survey.return_value = survey.Survey({}, {})
        node.handles.shown_bytes.return_value = 0
        node.lvm.own_block.return_value = 512
        node.lvm.logical_block.return_value = 512
        reconciler = reconcile.Reconciler(node)
        directory = mock.MagicMock()
        directory.find.side_effect = lambda connector: (
            connector['host'] + '@l')
        found = driver.LocalCloneDriver(
            configuration=configuration.Configuration(
                [], config_group=configuration.SHARED_CONF_GROUP), host=host)
        found.service = assembly.Service(
            backend_name='p', node=node, lvm=node.lvm,
            reconciler=reconciler, connections=connect.Connections(
                reconciler, directory.find), addresses=[])
        found.storage = storage  # see storage_parts.calls
        return found

    def move(self, events):
        move = None
        for event in events:
            if move is None:
                move = self.moves.begin(
                    self.volume(), B + '#p', event, GEOMETRY,
                    lambda record: 'portal,1 iqn:%s 0' % record,
                    'CHAP u s', 'i')
            elif event is None:
                move = self.moves.commit(move)
            else:
                move = self.moves.advance(move, event)
        return move

    def cinder_begins(self, status, migration_status):
        volume = self.volume()
        volume.update({'status': status,
                       'migration_status': migration_status})
        volume.save()

    def home(self):
        return self.driver(self.volume().host.partition('#')[0])

    def copy(self):
        """Cinder connects the volume to itself, to copy it."""
        return self.home().initialize_connection(self.volume(), CINDERS)
