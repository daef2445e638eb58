# SPDX-License-Identifier: Apache-2.0
"""Headers and recovery keys of a volume."""

import contextlib
from unittest import mock

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import names
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import operator
from tests.helpers import rotate_case
from tests.world import crypt


class Case(rotate_case.Case):

    def setUp(self):
        super().setUp()
        self.of(self.world)
        self.volume.status = 'available'

    def add(self, store=False):
        return operator.add_recovery_key(self.a.node, self.volume.id, store)

    def remove(self, slot=''):
        return operator.remove_recovery_key(self.a.node, self.volume.id, slot)

    def opens(self, key):
        with contextlib.suppress(encryption_exceptions.WrongKey):
            self.a.node.crypt.test(self.volume.id, key.encode())
            return True
        return False

    def status(self):
        return headers.status(self.a.node, self.volume.id)

    def wrong(self):
        """What is wrong, by what was looked at."""
        return {each['what']: each['problem'] for each in headers.verify(
            self.a.node, self.volume.id) if each['problem']}

    def boot(self):
        """The service, or the node, is there again."""
        self.a.dead = False
        if names.handle(self.volume.id) not in self.a.devices:
            self.a.reconciler.reconcile_node()

    def away(self, name):
        """The key manager answers until a step of cryptsetup is taken."""
        inner = getattr(crypt.SimCrypt, name)

        def act(*args, **more):
            result = inner(*args, **more)
            self.world.secrets.state = crypt.AWAY
            return result
        return mock.patch.object(crypt.SimCrypt, name, act)
