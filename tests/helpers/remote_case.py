# SPDX-License-Identifier: Apache-2.0
"""A volume that is attached remotely."""

from cinder_localclone.core import iscsi as iscsi_names
from cinder_localclone.core import names
from tests.helpers import attach_case
from tests.helpers import sessions_case

A = 'a@l'
V1, GIB = sessions_case.V1, sessions_case.GIB
IQN = iscsi_names.attachment_iqn('iqn.x:', V1, 'iqn.b', A)
#: As Cinder's database has them.
PROPERTIES = {
    'driver_volume_type': 'local', 'device_path': names.handle_path(V1),
    'target_iqn': IQN, 'target_portal': sessions_case.PORTAL,
    'target_lun': '0', 'target_discovered': 'False', 'auth_method': 'CHAP',
    'auth_username': 'user', 'auth_password': 'secret', 'discard': 'True'}


class Passed(attach_case.Base):
    """The volume stays at A, in a group, and is passed through on B."""

    def setUp(self):
        super().setUp()
        self.volume.group_id = 'g'
        self.connector = {'host': 'b', 'initiator': 'iqn.b'}
        properties = self.connect(self.connector)
        self.attach('in-use', 'b')
        self.attached, = self.volume.volume_attachment
        self.attached.connector = self.connector
        self.attached.connection_info = dict(
            properties['data'], driver_volume_type='local')
        self.b.opened.add(self.handle)
