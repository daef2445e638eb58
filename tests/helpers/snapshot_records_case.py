# SPDX-License-Identifier: Apache-2.0
"""Snapshots and new volumes on Cinder's own schema."""

from cinder.tests.unit import utils

from cinder_localclone.core import volume_types as encryption_types
from tests.helpers import records_case

A, B, C = 'a@l', 'b@l', 'c@l'
ENCRYPTION = encryption_types.Recorded(16 << 20, 'key')


class Case(records_case.Base):

    def setUp(self):
        super().setUp()
        self.service_rows = {
            host: utils.create_service(self.context, {
                'host': host, 'binary': 'cinder-volume',
                'topic': 'cinder-volume', 'availability_zone': zone,
                'uuid': '%08d-0000-4000-8000-00000000000a' % number})
            for number, (host, zone) in enumerate(
                {A: 'here', B: 'there'}.items())}
