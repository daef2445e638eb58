# SPDX-License-Identifier: Apache-2.0
"""The lab's key manager: who may read what is kept, and types that need it."""

import os

from lab.core import instance as instances
from lab.keys import secrets
from lab.keys import types
from tests.functional import base


class AccessTest(base.LabTest):

    lab_name = base.KEYS
    options = base.WITH_KEYS
    parts = {'keys': True}

    def setUp(self):
        super().setUp()
        self.users = {user: secrets.Secrets(self.lab, user)
                      for user in ('demo', 'cinder', 'admin')}

    def test_secrets_are_read_by_whom_they_belong_to_at_length(self):
        for owner in ('demo', 'cinder'):
            payload = os.urandom(64)
            kept = self.users[owner].create('of ' + owner, payload)
            for user, client in self.users.items():
                status, found = client.read(kept)
                self.assertEqual(200 if user == owner else 403, status,
                                 (user, owner))
                self.assertEqual(user == owner, found == payload)
            # Not even deleted by those of another project, but for services
            # and administrators.
            if owner != 'demo':
                self.assertEqual(403, self.users['demo'].delete(kept))
            self.assertIn(kept, self.users[owner].named('of ' + owner))
            self.assertEqual(204, self.users[owner].delete(kept))
            self.assertEqual(404, self.users[owner].read(kept)[0])

    def test_key_of_an_encrypted_volume_is_its_owners_at_length(self):
        made = types.make(self.lab, 'front-end', {})
        self.addCleanup(types.remove, self.lab, made)
        self.addCleanup(self.mend)  # before it: volumes of the type
        before = self.users['demo'].named('')
        volume = self.demo.post('/volumes', json={'volume': {
            'size': 1, 'volume_type': 'front-end'},
        }).raise_for_status().json()['volume']['id']
        # Asked for by the API, whatever comes of the volume.
        key, = set(self.users['demo'].named('')) - set(before)
        self.assertEqual((200, 32), tuple(
            part if isinstance(part, int) else len(part)
            for part in self.users['demo'].read(key)))
        self.assertEqual(403, self.users['cinder'].read(key)[0])
        # Cinder loses a delete that comes while it still creates.
        instances.wait_status(self.demo, volume, 'available')
        self.assertTrue(self.row(volume)['encrypted'])
