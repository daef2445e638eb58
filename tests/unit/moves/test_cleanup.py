# SPDX-License-Identifier: Apache-2.0
"""What moves leave behind, and who meets it."""

import types
from unittest import mock
import uuid

import ddt
import testtools

from cinder_localclone.core import boot_plan
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.moves import cleanup
from cinder_localclone.storage import clones
from cinder_localclone.storage import handles
from cinder_localclone.storage import logical_volumes
from tests.helpers import callers
from tests.helpers import commands
from tests.helpers import ended_move_case
from tests.helpers import specs
from tests.helpers.storage_case import SHADOW

A, B, C = ended_move_case.A, ended_move_case.B, ended_move_case.C


class RemoveCloneTest(testtools.TestCase):
    """Clones over the privileged daemon's own code, which may refuse."""

    def setUp(self):
        super().setUp()
        self.commands = self.useFixture(commands.Commands())
        lvm = logical_volumes.Lvm('g', None, 'g', 30, 'h')
        self.clones = clones.Clones(lvm, handles.Handles(lvm))

    def test_remove_clone(self):
        self.clones.remove_clone(SHADOW)

    def test_absent_is_own(self):
        self.assertTrue(names.is_device(names.absent_source(SHADOW)))


@ddt.ddt
class UnreadableTagTest(testtools.TestCase):
    """A thick LV whose tags do not say whether anybody has seen it."""

    @ddt.data('shown=x', 'given=x')
    def test_it_is_overwritten(self, tag):
        lv = lvm_reports.LogicalVolume(
            'g', 'v', 5 << 30, '', frozenset({'localclone.' + tag}))
        node = specs.node(host='a@l')
        node.lvm.lvs.return_value = {'v': lv}
        cleanup.remove_volume_lv(node, 'v')
        node.clear.assert_called_once_with('v', 5 << 30)
        node.lvm.remove_lv.assert_called_once_with('v')
        node.lvm.remove_lv.reset_mock()
        # Nor does a move's end remove it as it is.
        cleanup.discard_lv(node, 'v')
        node.lvm.disown.assert_called_once_with('v', mock.ANY)
        node.lvm.remove_lv.assert_not_called()


class DeletionTest(ended_move_case.Base):

    def test_export_of_a_failed_move_that_has_ended(self):
        """the cast that tells the source so is lost, or is late."""
        world, volume, _expected = self.begin()
        self.fail_to_prepare(world, volume)
        world.nodes[B].gone = world.nodes[B].dead = False
        world.nodes[B].reconciler.reconcile(volume.id)
        self.assertEqual({}, world.move_records)
        volume.status = 'deleting'
        callers.delete(world.nodes[A].node, volume)
        self.assertEqual({}, world.nodes[A].lvs)

    def test_after_cinders_migration_beside_leftovers(self):
        """the remains are those of the other row; B is gone for good."""
        world, volume, _expected = self.begin()
        self.fail_to_prepare(world, volume)
        other = types.SimpleNamespace(**vars(volume))
        other.id = str(uuid.uuid4())
        other.name, other.name_id = volume.name, volume.name_id
        other.status = 'deleting'
        world.volumes[other.id] = other
        # What Cinder's migration leaves: the rows have changed places.
        volume.host, volume.name = 'x@lvm#p', 'volume-' + other.id
        volume.name_id = other.id
        callers.delete(world.nodes[A].node, other)
        self.assertEqual({}, world.nodes[A].lvs)

    def test_back_beside_an_export_of_a_failed_move(self):
        """the same export holds the handle of a source to be removed."""
        world, volume, expected = self.begin()
        self.fail_to_prepare(world, volume)
        world.nodes[B].gone = world.nodes[B].dead = False
        world.nodes[B].reconciler.reconcile(volume.id)
        world.nodes[A].move(volume, C)
        world.nodes[C].reconciler.reconcile(volume.id)
        world.nodes[C].hydrate()
        world.nodes[C].reconciler.reconcile(volume.id)
        world.nodes[C].move(volume, A)
        self.verify(world, volume, expected)


class TearDownTest(ended_move_case.Base):

    def test_cut_within_a_tear_down(self):
        """What is not hydrated is never given out by itself."""
        world, volume, _expected = self.begin()
        self.fail_to_prepare(world, volume)
        b = world.nodes[B]
        b.gone = b.dead = False
        lvm, failed = b.node.lvm._inner, self.pending(world, volume)[0]
        remove_lv, given = lvm.remove_lv, []

        def removes(name):
            remove_lv(name)
            # The power goes here: what does a boot give out?
            present = survey.Survey({
                lv: lvm_reports.LogicalVolume(
                    'g', lv, 1 << 30, '', frozenset(names.tags(
                        volume=volume.id))) for lv in b.lvs}, {})
            given.extend(local.lv for local in boot_plan.plan(present)
                         if not local.reason and local.move is None)
        lvm.remove_lv = removes
        with b.lock(volume.id):
            cleanup.take_down(b.node, failed)
        self.assertEqual([], given)
