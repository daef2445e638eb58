# SPDX-License-Identifier: Apache-2.0
"""Copies that can't go on at their destination hold nobody up."""

import errno

import fixtures

from cinder_localclone.core import copies
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.moves import copying
from cinder_localclone.moves import hydration
from cinder_localclone.volumes import exports
from tests.unit.moves import test_queue
from tests import world as worlds

A, B, C = test_queue.A, test_queue.B, test_queue.C


class DeadEndTest(test_queue.Base):

    def setUp(self):
        super().setUp()
        self.begin((A, B, C), copies.Limits(1, 1))
        self.now = self.useFixture(fixtures.MockPatchObject(
            copying.timeutils, 'now', return_value=0)).mock

    def looks(self):
        """For some minutes; the kernels copy."""
        for self.now.return_value in range(0, 5 * hydration.STALLED, 20):
            self.look(self.a, self.b)
            self.b.hydrate()

    def is_moved(self, volume):
        self.assertNotIn(volume.id, [
            move.volume_id for move in self.world.shadows.values()])

    def test_metadata_that_are_lost(self):
        """All other copies to a node, and from the source, wait for ever.

        1. Of a copy to B the metadata LV, or the LV, is gone (a disk was
           replaced), or blank (MetadataLost), or its source is another disk
           (WrongSource). Each look says so, and an operator has to decide.
        2. It keeps its turn: only a source that can't be reached, and a copy
           that stands still, are noted as stalled
           (:meth:`.reconcile.Reconciler._as_destination`). With the default
           limits two such copies are enough.

        Volumes that move to B, or from A, are never copied, nor snapshots
        taken of them.

        By design: whatever keeps a destination from building its stack keeps
        its copy from making progress, and is noted the same way.
        """
        lost, = self.moving(1)
        self.look()
        self.b.stop(power=True)
        self.b.dead = False
        for lv in (lost.name, names.metadata_lv(lost.name_id)):
            self.b.disk.remove(lv)
        other, = self.moving(1)
        self.looks()
        self.is_moved(other)

    def test_an_error_that_nobody_foresaw(self):
        """The same with an error that is none of the driver's own.

        What its stack needs is not in sysfs, or under /dev (FileNotFoundError
        of :func:`.block.size`, say, when udev has made no link), look after
        look: whatever was not raised as LocalCloneError was not noted.
        """
        lost, = self.moving(1)
        self.look()
        self.failing(lost, FileNotFoundError('/sys/block/x/size'))
        other, = self.moving(1)
        self.looks()
        self.is_moved(other)

    def failing(self, lost, error):
        """The source of one volume can't be attached."""
        attach = worlds.SimSessions.attach

        def attaching(sessions, move):
            if move.volume_id == lost.id:
                raise error
            return attach(sessions, move)
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimSessions, 'attach', attaching))

    def test_metadata_that_are_lost_while_the_source_is_away(self):
        """The same if a copy could not end without its source either.

        Whether it could was asked where the first error was dealt with: what
        failed then was never noted.
        """
        lost, = self.moving(1)
        self.look()
        self.failing(lost, exceptions.SourceUnreachable(
            portal='p', reason='r'))
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimStack, 'ensure_clone_alone',
            side_effect=exceptions.MetadataLost(device='d', volume=lost.id)))
        other, = self.moving(1)
        self.looks()
        self.is_moved(other)

    def test_a_copy_that_can_not_be_ended(self):
        """The same when all is local.

        1. All of a volume is copied. That can't be made stable, look after
           look: a disk refuses to flush, or the path of what decrypts the
           volume is gone.
        2. It is in the queue until that is on record, and keeps its turn:
           of what is all copied no stall was ever noted.
        """
        lost, = self.moving(1)
        flush = worlds.SimStack.flush_handle

        def flushing(stack, volume_id):
            if volume_id == lost.id:
                raise exceptions.CommandFailed(
                    command='sync', code=1, stderr='Input/output error')
            flush(stack, volume_id)
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimStack, 'flush_handle', flushing))
        other, = self.moving(1)
        self.looks()
        self.is_moved(other)

    def test_trouble_with_the_target(self):
        """It stops no copy, whoever says so.

        1. A volume arrives that a host has over iSCSI, and what is exported
           has to be changed.
        2. rtslib is missing, or what it writes to configfs is refused
           (OSError): all but LocalCloneError ended the look at the volume
           before its copy was begun, or could be completed.
        """
        self.useFixture(fixtures.MockPatchObject(
            exports.Serving, 'settle',
            side_effect=OSError(errno.EINVAL, 'configfs')))
        volume, = self.moving(1)
        self.looks()
        self.is_moved(volume)

    def test_volume_that_was_given_up(self):
        """The node that inherits what is lost takes no copies any more.

        1. A volume is copied from A to C, and C is lost: an operator has C
           forgotten on B. The volume is in error, with B for its home; the
           record of its move stays, until its owner deletes it.
        2. B has nothing of it, and its look returns at once
           (:meth:`.reconcile.Reconciler._as_destination`), but in the queue
           it is a copy from A to B whose turn it is: two of them are enough.

        Until the owners delete all of them, no volume is copied to B, nor
        from A, the node to which users come for what they have left.

        By design: as above, it is noted as stalled.
        """
        lost, = self.moving(1, destination=C)
        self.world.nodes[C].stop(power=True)
        self.world.nodes[C].gone = True
        self.b.node.records._inner.give_up(lost, B + '#p')
        other, = self.moving(1)
        self.looks()
        self.is_moved(other)
