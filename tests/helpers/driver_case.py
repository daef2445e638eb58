# SPDX-License-Identifier: Apache-2.0
"""The driver above mocks of its service."""

import types
from unittest import mock

from cinder.volume import configuration
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import node
from cinder_localclone.core.volume import Volume
from cinder_localclone.driver import driver
from cinder_localclone.service import assembly
from cinder_localclone.volumes import connect
from tests.helpers import specs

HOST = 'n1@l'


def volume(**more):
    values = dict(id='v', name='volume-v', name_id='v', size=1,
                  host=HOST + '#p', status='reserved', group_id=None,
                  migration_status=None, replication_driver_data=None,
                  volume_attachment=[], _context='context',
                  encryption_key_id=None, volume_type_id=None,
                  provider_id=None, attach_status='detached',
                  source_volid=None, use_quota=True, availability_zone=None,
                  updated_at=None, project_id=None, user_id=None,
                  display_name=None)
    values.update(more)
    return types.SimpleNamespace(**values)


def recorded(**more):
    """The volume as its row says now."""
    return Volume.of(volume(**more))


class Case(testtools.TestCase):
    """The driver above rooms that are mocks."""

    def setUp(self):
        super().setUp()
        self.driver = driver.LocalCloneDriver(
            configuration=configuration.Configuration(
                [], config_group=configuration.SHARED_CONF_GROUP), host=HOST)
        self.node = mock.MagicMock(host=HOST, peers=specs.port('peers'))
        self.node.node = self.node
        self.node.moves.move_of.return_value = None
        self.node.lvm.pool = 'pool'
        self.node.volumes.wanted_encryption.return_value = None
        self.node.listing = node.Listing(
            lambda: self.node.lvm.lvs())
        self.node.lvm.lvs.return_value = {'pool': lvm_reports.LogicalVolume(
            'g', 'pool', 1 << 30, '', frozenset(), zeroes=True)}
        self.node.lvm.space.return_value = None, lvm_reports.Capacity(
            1 << 30, 1 << 30, 0, 0)
        self.directory = mock.MagicMock()
        self.reconciler = mock.MagicMock(node=self.node)
        self.driver.service = assembly.Service(
            backend_name='p', node=self.node, lvm=self.node.lvm,
            reconciler=self.reconciler,
            connections=connect.Connections(
                self.reconciler, self.directory.find), addresses=['192.0.2.1'])

    def reserved(self, attachment, home=HOST):
        return recorded(host=home + '#p', status='in-use', volume_attachment=[
            mock.Mock(id=attachment, connector=None)])

    @staticmethod
    def asked():
        """A volume as Cinder's API has seen it: with an attachment."""
        return volume(volume_attachment=[
            mock.Mock(id='one', connector=None, connection_info=None)])


FULL = exceptions.PoolFull(pool='g/p', host='h', usage='96 %')


def snapshot(**more):
    return volume(id='s', volume_id='v', **more)
