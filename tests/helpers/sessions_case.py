# SPDX-License-Identifier: Apache-2.0
"""Sessions with the sources of moves, above mocks."""

import json
from unittest import mock

import fixtures
import tenacity
import testtools

from cinder_localclone.core import state
from cinder_localclone.storage import iscsi_initiator
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import iscsiadm
from tests.helpers import specs

V1, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
IQN = 'iqn.2026-11.org.example:localclone-' + SHADOW
PORTAL = '192.0.2.11:3260'
GIB = 1 << 30
MOVE = state.Move(
    V1, SHADOW, state.Token(state.Phase.MIGRATING, 'n',
                            state.Geometry(128, 32, 8)), False, 'a@l', 'b@l',
    'volume-' + V1, 'volume-' + SHADOW, 1,
    location='%s,1 %s 0' % (PORTAL, IQN), auth='CHAP user secret')
SET_TIMEOUT = mock.call.iscsiadm.set_recovery_timeout('/dev/sda', 86400)


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.called = mock.Mock()
        for what, room in (('iscsiadm', iscsiadm), ('block', block)):
            self.called.attach_mock(specs.Room(original=room), what)
            self.useFixture(fixtures.MockPatchObject(
                iscsi_initiator, what, getattr(self.called, what)))
        self.useFixture(fixtures.MockPatchObject(
            iscsi_initiator.socket, 'create_connection', self.called.connect))
        self.called.iscsiadm.login.side_effect = lambda iqn, _limit: (
            self.disks(*[{iqn: ['/dev/sda']}] * 9))
        self.wait = self.useFixture(fixtures.MockPatchObject(
            iscsi_initiator.tenacity, 'wait_fixed',
            return_value=tenacity.wait_none())).mock
        self.useFixture(fixtures.MockPatchObject(
            iscsi_initiator._RETRYING, 'sleep', lambda _seconds: None))
        self.called.block.identity.return_value = GIB, V1
        self.called.iscsiadm.known_portal.return_value = PORTAL
        self.useFixture(fixtures.MockPatchObject(
            iscsi_initiator, 'IDENTITY_TIMEOUT', 0))
        self.disks()
        self.sessions = iscsi_initiator.Sessions(30, 86400, 'b@l')

    def disks(self, *answers):
        """What sessions have, each time it is asked for; then no more."""
        answers = iter(answers)
        self.called.iscsiadm.disks.side_effect = lambda *_iqn: json.dumps(
            next(answers, {}))

    #: Whether to name what looks up where a target is.
    looks_up = False

    def names(self):
        """What was called to any effect, in order."""
        return [name.rpartition('.')[2] for name, _args, _kwargs
                in self.called.mock_calls if name not
                in ('iscsiadm.disks', 'connect().close', 'connector') and not (
                    name == 'iscsiadm.known_portal' and not self.looks_up)]

    def portal_is_silent(self):
        self.called.connect.side_effect = TimeoutError('timed out')

    WRONG = ((GIB, SHADOW), (GIB - 512, V1), (GIB + 512, V1))
    UNKNOWN = ((GIB, ''), (0, V1), (0, ''))
