# SPDX-License-Identifier: Apache-2.0
"""What pass-through and follow must not do, whatever stops or fails."""

import fnmatch
import pathlib
import re
from unittest import mock

import ddt
import fixtures
from oslo_concurrency import processutils

from cinder_localclone.core import boot_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core import iscsi as iscsi_names
from cinder_localclone.core import names
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import remote_attachment
from cinder_localclone.volumes import operations
from tests.helpers import deferred_case
from tests.helpers import remote_case
from tests.helpers import remote_guest_case
from tests.helpers.remote_guest_case import A
from tests.helpers.remote_guest_case import B
from tests.helpers.remote_guest_case import Case
from tests.helpers import sessions_case
from tests.helpers import storage_case
from tests import world as worlds
from tests.world import iscsi
from tests.world import nodes
from tests.world import stack

GIB = 1 << 30


class OpenedWithoutSourceTest(Case):

    def test_a_boot_gives_out_what_was_written_since(self):
        """Not the source's disk, which is older by then."""
        self.commit()
        self.there.stop(power=True)
        self.there.dead = False
        self.home.stop(power=True)
        self.home.gone = True
        operations.open_without_source(self.there.reconciler, self.guest.id)
        # Whoever has the handle now writes to the clone.
        self.assertIn(self.guest.id, [
            local.volume_id for local in boot_plan.plan(survey.Survey(
                stack.SimLvm(self.there).lvs(), {}))])


class CopiedFromHereTest(deferred_case.Case):
    """Passed through by the node that it is being copied from."""

    def setUp(self):
        super().setUp()
        self.guest = deferred_case.Guest()
        self.guest.detach(B)
        self.guest.attach(A)
        self.here = self.guest.nodes[A]
        self.assertEqual({self.guest.id: B}, self.here.remotes)
        self.move_id, = self.guest.world.move_records
        self.here.stop(power=True)
        self.here.dead = False
        self.assertEqual({}, self.here.exports)

    def test_exported_again_before_it_is_passed_through(self):
        """Else what is read of it, by the kernel for one, waits for that."""
        begin = remote_attachment.begin

        def checked(*args):
            self.assertEqual({self.move_id: self.guest.id},
                             self.here.exports)
            begin(*args)
        with mock.patch.object(remote_attachment, 'begin', checked):
            self.assertTrue(remote_attachment.sweep(self.here.node))

    def test_passed_through_although_the_target_is_in_trouble(self):
        """What is not copied may not be needed."""
        with mock.patch.object(iscsi.SimExports, 'export_source', side_effect=(
                exceptions.TargetTimeout(seconds=20))), (
                    mock.patch.object(remote_attachment, 'begin')) as begin:
            self.assertTrue(remote_attachment.sweep(self.here.node))
        begin.assert_called_once()

    def test_passed_through_although_its_old_lv_is_lost(self):
        move = self.here.node.moves.move_of(self.guest.id)
        self.here.disk.remove(move.source_lv)
        with mock.patch.object(remote_attachment, 'begin') as begin:
            self.assertTrue(remote_attachment.sweep(self.here.node))
        begin.assert_called_once()


class LongerTest(Case):

    def test_nothing_grows_if_the_node_of_the_guest_does_not_answer(self):
        """The volume can follow its instance as before."""
        self.there.dead = True
        self.assertRaises(
            exceptions.LocalCloneError, worlds.extend, self.home,
            self.volume, 2)
        self.there.dead = False
        self.assertEqual(1, self.volume.size)
        self.world.reconcile()
        for node in (self.home, self.there):
            self.assertNotIn('regions', self.handle(node))
        self.volume.group_id = None  # and its status is in-use again
        self.guest.live_on()
        self.guest.read()


class ExtendedWhileItCompletesTest(Case):

    def test_its_handle_is_longer_as_well(self):
        self.swap()
        self.there.reconciler.reconcile(self.guest.id)
        self.there.hydrate()
        worlds.extend(self.there, self.volume, 2)
        self.assertEqual(8, self.handle(self.there).get('regions'))


@ddt.ddt
class FlushedTest(Case):

    @ddt.data('closed', 'rebooted')
    def test_what_was_written_before_outlives_the_source(self, how):
        """A guest that flushes after the swap reaches only its own node.

        As for any other move: its home's cache has what was written before,
        which a process that was killed did not flush.
        """
        self.there.write(self.guest.id, 2, 'not flushed', flushed=False)
        self.there.opened.clear()
        if how == 'closed':
            self.swap()
        else:
            self.commit()
            self.there.stop(power=True)
            self.there.dead = False
            self.there.reconciler.reconcile(self.guest.id)
        self.there.opened.add(self.guest.handle)
        self.assertEqual('not flushed', self.there.read(self.guest.id, 2))
        self.there.flush(self.guest.id)
        self.home.stop(power=True)
        self.home.dead = False
        self.home.reconciler.reconcile(self.guest.id)
        self.assertEqual('not flushed', self.there.read(self.guest.id, 2))


class TwoBackendsTest(Case):
    """Another backend of this driver has its service on the guest's node."""

    def sweep(self):
        other = nodes.SimNode(self.world, 'c@m')
        for kernel in ('devices', 'exports', 'remote', 'sessions', 'remotes',
                       'opened'):
            setattr(other, kernel, getattr(self.there, kernel))
        remote_attachment.sweep(other.node)

    def test_it_leaves_what_has_just_been_swapped(self):
        """Its service was killed before the attachment said so."""
        self.commit()
        self.there.opened.clear()  # its guest is shut off

        def killed(*_args):
            raise OSError('killed')
        with fixtures.MockPatchObject(
                cleanup, 'end_after_swap', killed):
            self.assertRaises(OSError, self.there.reconciler.reconcile,
                              self.guest.id)
        swapped = dict(self.handle(self.there))
        self.assertIn('localclone-clone', swapped['below'])
        self.sweep()
        self.assertEqual(swapped, self.handle(self.there))

    def test_it_leaves_the_handle_above_an_lv_of_the_first(self):
        self.swap()
        self.guest.live_on()
        self.there.opened.clear()
        self.there.remotes[self.guest.id] = B  # could not be ended in time
        self.sweep()
        self.assertEqual({'below': self.volume.name},
                         self.handle(self.there))


class ServedMeanwhileTest(Case):

    def test_who_asks_gets_it_from_its_home(self):
        """What is done before an answer may move the volume away."""
        self.volume.group_id = None
        properties = self.home.connect(
            self.volume, {'host': 'x', 'initiator': 'iqn.x'})
        self.assertEqual('iscsi', properties['driver_volume_type'])
        self.assertEqual(
            self.world.home(self.volume).node.exports.portal,
            properties['data']['target_portal'])

    def test_back_at_once(self):
        """A live migration back to where it has just come from."""
        self.swap()
        self.volume.volume_attachment.append(self.guest.attachment())
        properties = self.there.connect(
            self.volume, {'host': 'b', 'initiator': 'iqn.b'})
        self.assertEqual('local', properties['driver_volume_type'])


@ddt.ddt
class FenceTest(Case):

    def test_the_second_look_is_at_the_attachments_as_they_are(self):
        prepare = self.home.node.peers.prepare

        def meanwhile(*args):
            prepare(*args)
            self.volume.volume_attachment.append(self.guest.attachment())
        self.home.node.peers.prepare = meanwhile
        self.stays()

    def stays(self):
        self.volume.group_id = None
        self.home.reconciler.reconcile(self.guest.id)
        self.assertIs(self.home, self.world.home(self.volume))
        self.assertEqual({}, self.world.move_records)

    def test_a_host_that_no_attachment_names_yet(self):
        """It has been given an export, and opens the volume any moment."""
        self.home.remote.add((self.guest.id, 'iqn.x'))
        self.home.exported.add((self.guest.id, 'iqn.x'))
        self.stays()

    @ddt.data('portal', 'status')
    def test_attachment_that_is_not_by_its_home_and_complete(self, lack):
        """Another node serves it, or Cinder is in the midst of it."""
        attachment, = self.volume.volume_attachment
        if lack == 'portal':
            attachment.connection_info['target_portal'] = (
                self.guest.nodes[A].node.exports.portal)
        else:
            attachment.attach_status = 'attaching'
        self.stays()


class StartTest(Case):

    def test_a_service_that_starts_waits_for_no_peer(self):
        """As for moves: what is not served yet can't be asked back."""
        self.volume.group_id = None
        self.home.stop(power=True)
        self.home.dead = False
        self.home.reconciler.reconcile_node(moves=False)
        self.assertEqual({}, self.world.move_records)

    def test_a_guest_does_not_wait_for_the_export_of_its_clones_source(self):
        """What it writes to meanwhile is served by an export of its own."""
        self.commit()
        self.home.stop(power=True)
        self.home.dead = False

        def hangs(_move):
            raise exceptions.TargetTimeout(seconds=20)
        self.home.node.exports._inner.export_source = hangs
        self.home.reconciler.reconcile(self.guest.id)
        self.assertEqual({(self.guest.id, 'iqn.c')}, self.home.remote)


class AwayTest(Case):

    def test_nobody_waits_again_and_again_for_a_disk_that_is_away(self):
        """Each try leaves a sync behind that can't be killed."""
        self.commit()
        self.home.dead = self.home.gone = True
        tried = []

        def hangs(*_args):
            tried.append(1)
            raise exceptions.CommandTimeout(command='sync', seconds=30)
        self.there.sim_handles._inner.switch_to_clone = hangs
        for _look in range(5):
            self.there.reconciler.reconcile_node()
        self.assertLess(len(tried), 2)


class ExportedTest(remote_case.Passed):

    def test_a_handle_whose_session_has_ended_by_itself(self):
        """As if the initiator's service was stopped; then it was detached."""
        self.b.remotes.clear()
        self.b.opened.clear()
        self.volume.volume_attachment = []
        self.volume.status = 'available'
        self.world.settle()
        self.assertEqual({}, self.b.devices)


class SweepTest(Case):

    def test_whatever_fails_stops_neither_the_others_nor_the_service(self):
        """sysfs and the database may raise errors of other kinds."""
        def fails(*_args):
            raise processutils.ProcessExecutionError('iscsiadm')
        self.there.node.sessions._inner.attach_remote = fails
        self.there.reconciler.reconcile_node(moves=False)  # as at its start


class SessionsTest(sessions_case.Case):

    def test_not_mixed_up_with_what_another_home_exports(self):
        """A session with the last one may still be there: its end was lost."""
        other = iscsi_names.attachment_iqn('iqn.x:', remote_case.V1, 'iqn.b',
                                           'c@l')
        for disks, records in (({other: ['/dev/sdb']}, []), ({}, [other])):
            self.called.iscsiadm.end_session.reset_mock()
            self.disks({remote_case.IQN: ['/dev/sda'], **disks})
            self.called.iscsiadm.recorded.return_value = [
                remote_case.IQN, *records]
            self.sessions.end_other_remotes(
                remote_case.V1, remote_case.IQN)
            self.called.iscsiadm.end_session.assert_called_once_with(other, 30)


class StackTest(storage_case.Case):

    def test_no_handle_is_longer_than_its_disk(self):
        """One that is not open and on what was left here: none has seen it.

        The kernel refuses the table: nobody could attach the volume.
        """
        handle = names.handle(remote_case.V1)
        self.ran.block.number.return_value = '8:16'
        self.ran.block.size.return_value = GIB
        self.devices(storage_case.device(
            handle, '253:7', '0 4194304 linear 253:5 0'))
        self.handles.ensure_handle_on_disk(remote_case.V1, '/dev/sdb')
        tables = [argument for call in self.ran.mock_calls
                  for argument in call.args
                  if str(argument).endswith('linear 8:16 0')]
        self.assertEqual(['0 2097152 linear 8:16 0'], tables)


class UdevTest(storage_case.Case):

    def test_nothing_probes_what_is_passed_through(self):
        """LVM, md and multipath would take the guest's disk.

        While it follows, that and the source have one serial number.
        """
        rules = pathlib.Path('etc/udev/rules.d/11-localclone.rules')
        patterns = '|'.join(re.findall(
            r'targetname}!="([^"]*)"', rules.read_text())).split('|')
        for iqn in (iscsi_names.move_iqn('iqn.x:', remote_case.V1),
                    remote_case.IQN):
            self.assertTrue(any(fnmatch.fnmatch(iqn, pattern)
                                for pattern in patterns), iqn)


class ProofTest(remote_guest_case.Case):

    def test_a_clone_that_cannot_be_read_gets_no_guest(self):
        """A guest whose disk works gets one that gives errors.

        1. A volume is passed through to a guest on C, which reads and
           writes it.
        2. The export of the move's source, another target, gives errors
           (as may the disk, or the pool, of C).
        3. Any other move reads the head of the new handle before it is
           committed (:class:`.destination.Handle`), and fails. Of a
           volume that follows the handle is not on the clone then, so
           nothing is read: it is committed, and swapped under the guest.

        By design: :func:`.destination.prepare` reads the head of the
        clone itself, of which that makes nothing local; and the swap looks
        whether the clone is in mode "rw" first, as for any other
        (:meth:`.Clones.ensure_clone` lets it be, because the handle,
        which is not on it yet, is open).
        """
        self.home.unreadable = True
        self.volume.group_id = None
        self.world.reconcile()
        self.world.reconcile()
        self.assertEqual(
            'written %d' % self.guest.count, self.there.read(
                self.guest.id, self.guest.count % worlds.REGIONS))
        self.assertEqual({}, self.world.move_records)


class FenceWithoutExportTest(remote_guest_case.Case):

    def test_somebody_else_at_the_home_while_the_export_is_missing(self):
        """What is written at the old home is lost, or mixed in.

        1. A volume at rest at B is passed through to a guest on C.
        2. Something on B has the handle open as well: a guest that was
           detached by force and still runs, an operator's dd.
        3. The export to C is missing: the service was killed while it
           replaced it, or B's target refuses changes. That is logged, and
           stops nothing else at rest (``_trouble_with_exports``), so the
           volume is looked at for a follow next.
        4. :class:`.remote_attachment.CheckRemoteOnly` takes one who has the
           handle open for the export, and counts nobody.

        The move is committed, and C copies an LV that is written to. With a
        handle that nobody has open it counts "-1" users.

        By design: only an export that is there counts as the one that has
        the handle open.
        """
        self.home.opened.add(self.guest.handle)
        self.home.remote.clear()

        def refuses(*_args):
            raise exceptions.TargetTimeout(seconds=20)
        self.home.node.exports._inner.export_again = refuses
        self.volume.group_id = None
        self.home.reconciler.reconcile_node()
        self.assertEqual((remote_guest_case.B + '#p', {}), (
            self.volume.host, self.world.move_records))


class DetachedBeforeSwapTest(remote_guest_case.Case):

    def is_away(self, move):
        """As the kernel: a session whose target is gone is down as well."""
        gone = {volume_id for volume_id, host in self.there.remotes.items()
                if self.world.nodes[host].dead or volume_id not in {
                    each for each, _who in self.world.nodes[host].remote}}
        return move.volume_id in gone or self.world.nodes[move.source].dead

    def test_it_can_be_attached_again(self):
        """Nobody can attach it, until someone logs out by hand.

        1. A volume follows its guest to C; the move is committed. C's
           service is away for a moment, so the handle is on B's disk still.
        2. The guest is shut down, the volume detached. That is asked of C,
           its home by now; nothing tells B to end what it serves.
        3. B's look finds an export that no attachment names, and withdraws
           it at once. The session of C, which is logged in, is down from
           then on.
        4. C's service is back. It would swap the handle, which nobody has
           open, but waits for that session
           (:func:`.destination._put_on_clone`, SourceUnreachable).
           Nothing ever ends it: :func:`.remote_attachment.sweep` waits for the
           swap.

        Each attach fails, on whichever node; nothing is copied. The same if
        B is rebooted between 2 and 4: it does not export it again.

        By design: a handle that nobody has open has nothing in flight.
        Then C ends the session that is down, and swaps the handle; what was
        written is flushed by the source's own disk.
        """
        self.there.node.sessions._inner.is_down = self.is_away
        self.commit()
        self.there.opened.clear()
        self.guest.node = None
        self.there.disconnect(
            self.volume, {'host': 'c', 'initiator': 'iqn.c'})
        self.volume.volume_attachment = []
        self.volume.status = 'available'
        self.home.reconciler.reconcile_node()  # before C's
        self.assertEqual(set(), self.home.remote)
        for _look in range(3):
            self.world.reconcile()
        self.volume.volume_attachment = [self.guest.attachment()]
        self.volume.status = 'reserved'
        properties = self.there.connect(
            self.volume, {'host': 'c', 'initiator': 'iqn.c'})
        self.assertEqual('local', properties['driver_volume_type'])
        self.there.opened.add(self.guest.handle)
        self.there.write(self.guest.id, 1, 'again')
        self.world.settle()
        self.assertEqual('again', self.there.read(self.guest.id, 1))
        self.assertEqual([{}, {}],
                         [self.there.remotes, self.world.move_records])
