# SPDX-License-Identifier: Apache-2.0
"""Opening what is in use on a node, and is not open."""

import io
import sys
from unittest import mock

import fixtures

from cinder_localclone.cmd.node import boot
from cinder_localclone.cmd.volume import unlock
from cinder_localclone.core import boot_plan
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.encryption import upkeep
from cinder_localclone.service import operator as backends
from tests.helpers import attach_case
from tests.helpers import encrypted_attach_case
from tests.world import crypt

ON_A, ON_B = attach_case.ON_A, attach_case.ON_B


class OpeningTest(encrypted_attach_case.Case):

    def used(self):
        """It is in use here, and something has closed it."""
        self.connect(ON_A)
        self.attach('in-use', 'a')
        del self.a.devices[self.crypt]

    def open(self, *only, node=None):
        return {each.volume_id: (each.state, each.problem) for each
                in upkeep.open_wanted((node or self.a).node, only)}

    def test_opened(self):
        self.used()
        self.a.disk.tags[self.volume.name] -= {names.OPENED}
        self.assertEqual({self.volume.id: ('opened', '')}, self.open())
        self.assertIn(self.crypt, self.a.devices)
        self.assertEqual({self.volume.id: ('open', '')}, self.open())
        # A boot opens it again: by its LV, since its home is here.
        self.assertIn(names.OPENED, self.a.disk.tags[self.volume.name])
        self.assertEqual({}, self.a.disk.remotes)

    def test_what_is_not_used_here(self):
        """Nor what is being detached, or is used on another node."""
        self.connect(ON_A)
        del self.a.devices[self.crypt]
        for state, hosts in (('available', ()), ('in-use', 'b')):
            self.attach(state, *hosts)
            self.assertEqual({}, self.open())
            (state, problem), = self.open(self.volume.id).values()
            self.assertEqual('locked', state)
            self.assertIn('no attachment', problem)
        self.assertNotIn(self.crypt, self.a.devices)

    def test_what_has_moved_away(self):
        self.connect(ON_B)
        self.attach('in-use', 'b')
        self.world.settle()
        self.assertEqual({}, self.open())
        self.assertEqual('locked', self.open(self.volume.id)[
            self.volume.id][0])
        self.assertEqual({self.volume.id: ('open', '')},
                         self.open(node=self.b))

    def test_what_is_elsewhere_and_not_connected_to_here(self):
        """Its attachment names this node, whatever that has come to."""
        self.connect(ON_B)
        self.world.settle()
        self.attach('in-use', 'a')
        (_state, problem), = self.open(self.volume.id).values()
        self.assertIn('no attachment', problem)

    def test_passed_through(self):
        self.volume.group_id = 'g'
        self.connect(dict(ON_B, initiator='iqn.x'))
        del self.b.devices[self.crypt]
        # A made-up one that the world knows no further attachment of.
        with mock.patch.object(self.b.node.attachments, 'remote_to',
                               return_value=[self.volume]), \
                mock.patch.object(nodes, 'connection_to',
                                  return_value='c'), \
                mock.patch.object(upkeep.devices, 'is_wanted',
                                  return_value=True):
            outcome, = upkeep.open_wanted(self.b.node, ())
        # It has no LV here, whatever one that is called so may be.
        self.assertEqual(('opened', ''), (outcome.state, outcome.lv))
        self.assertIn(self.crypt, self.b.devices)

    def test_others(self):
        plain = self.world.create_volume('a@l')
        for each in (plain.id, 'gone'):
            (state, problem), = self.open(each).values()
            self.assertEqual('locked', state)
            self.assertIn('does not encrypt', problem)

    def test_one_that_fails_stops_no_other(self):
        self.used()
        second = self.world.create_volume(
            'a@l', provider_id=crypt.recorded('l'))
        crypt.encrypt(self.world, second)
        second.status = 'in-use'
        second.volume_attachment = [attach_case.attachment('a')]
        third = self.world.create_volume(
            'a@l', provider_id=crypt.recorded('l'))
        crypt.encrypt(self.world, third)
        third.status = 'in-use'
        third.volume_attachment = [attach_case.attachment('a')]
        self.world.headers[self.volume.id] = None
        del self.a.devices[names.handle(second.id)]
        found = self.open()
        self.assertIn('header', found[self.volume.id][1])
        self.assertIn('no handle', found[second.id][1])
        self.assertEqual(('opened', ''), found[third.id])

    def test_row_that_is_not_understood_stops_no_other(self):
        self.used()
        odd = self.world.create_volume('a@l')
        odd.provider_id = 'lc2:luks3:?'
        found = self.open()
        self.assertEqual(('opened', ''), found[self.volume.id])
        self.assertIn('is unknown to the driver', found[odd.id][1])

    def test_without_a_key_manager(self):
        self.used()
        self.world.secrets.state = crypt.AWAY
        self.assertIn('key manager', self.open()[self.volume.id][1])
        with mock.patch.object(crypt.SimKeys, '_ask',
                               side_effect=ZeroDivisionError):
            self.assertIn('ZeroDivision', self.open()[self.volume.id][1])


class CommandTest(fixtures.TestWithFixtures):

    def run_command(self, outcome, *words):
        self.useFixture(fixtures.MockPatchObject(sys, 'stderr', io.StringIO()))
        self.useFixture(fixtures.MockPatchObject(backends, 'act_as_root'))
        self.useFixture(fixtures.MockPatchObject(
            backends, 'node', lambda backend: ('node of', backend)))
        app = mock.Mock(exit_code=None)
        command = unlock.Unlock(app, None)
        with mock.patch.object(upkeep, 'open_wanted',
                               return_value=outcome) as called:
            columns, found = command.take_action(
                command.get_parser('x').parse_args(words))
        self.assertEqual(boot.COLUMNS, columns)
        self.assertEqual((('node of', app.backend()), list(words)),
                         called.call_args.args)
        return found, app.exit_code

    def test_exit_code(self):
        opened = boot_plan.Outcome('v', 'l', 'opened')
        locked = boot_plan.Outcome('w', '', 'locked', 'no key')
        self.assertEqual(([('v', 'l', 'opened', '')], 0),
                         self.run_command([opened], 'v'))
        self.assertEqual(1, self.run_command([opened, locked])[1])
        self.assertEqual(([], 0), self.run_command([]))
