# SPDX-License-Identifier: Apache-2.0
"""Reconcile: compare the records with the node, and take the safe steps.

The same code runs at start-up, periodically, after each call of a peer and for
an operator's repair. Nothing here depends on the progress of an earlier run.
The goal is :mod:`.core.expected`, which states it as a value for checks; this
module reaches it step by step. Change both together.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools

from cinder_localclone.core import copies
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey as surveys
from cinder_localclone.core.interfaces import peers
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import upkeep
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import copying
from cinder_localclone.moves import destination
from cinder_localclone.moves import remote_attachment
from cinder_localclone.moves import source
from cinder_localclone.volumes import clone
from cinder_localclone.volumes import exports
from cinder_localclone.volumes import homes
from cinder_localclone.volumes import migrate
from cinder_localclone.volumes import quick_check
from cinder_localclone.volumes import repair
from cinder_localclone.volumes import uncommitted


class Reconciler:
    """Reconciles the volumes of a node.

    :param service: the service's own reconciler, if this is another
    """

    def __init__(self, node: Node, service: 'Reconciler | None' = None):
        self.node = node
        self.copying: copying.Copies = copying.Copies(
            node, service.copying if service else None)
        self.comparison = self.copying.comparison
        self.exporting = exports.Exporting(node)
        self._deferred_moves = remote_attachment.DeferredMoves(node)
        self.encrypted = upkeep.Sweeps(node)
        self._is_remote = True
        self.seen: surveys.Survey | None = None  # of the last full sweep

    @rpc.method('repair')
    def repair(self, volume_id: str) -> list[str]:
        """Take all steps for a volume, and return a journal of the changes.

        The last entry names an obstacle, if there is any.
        """
        return repair.repair(
            self.node, lambda node: Reconciler(node, self), volume_id)

    def progress(self, move_id: str) -> copies.Progress | None:
        """Return the progress of a copy to this node at its last check."""
        return self.copying.progress(move_id)

    # -- a volume

    @rpc.implements(peers.reconcile)
    def reconcile(self, volume_id: str) -> None:
        """Take all of this node's steps for a volume.

        :raises Busy: if other work holds its lock for too long
        :raises LocalCloneError: if a step failed; the next run tries again
        """
        self.comparison.ask_ahead(volume_id)
        with self.node.lock(volume_id):
            self.reconcile_locked(volume_id)
            self._begin_deferred_move(volume_id)

    def _begin_deferred_move(self, volume_id: str) -> None:
        """Begin a deferred move; never in a call: it changes the home."""
        if self.node.moves.move_of(volume_id):
            return  # the usual case in a sweep of moves
        volume = self.node.volumes.volume(volume_id)
        if volume is not None and volume.home == self.node.host:
            self._deferred_moves.begin(volume)

    def reconcile_locked(self, volume_id: str) -> None:
        """Reconcile a volume for a caller that holds its lock.

        :raises LocalCloneError: if a step failed; the next run tries again
        """
        left = self.node.moves.pending_cleanups(volume_id)
        failure = self._clean_up(left)
        # Only now, because the cleanup may have taken minutes.
        volume = self.node.volumes.volume(volume_id)
        try:
            self._reconcile_present(volume_id, volume)
        finally:  # the message bus may take a while
            if volume is not None and volume.home == self.node.host:
                self._prompt_clean_up(left)
        if failure:
            raise failure

    def reconcile_present(self, volume_id: str) -> None:
        """Reconcile a volume without its pending cleanups.

        Their errors must not keep a caller from using the volume.

        :raises StaleMove: if its row is gone: a delete has ended meanwhile
        :raises NotPossible: if it is being deleted
        :raises LocalCloneError: if a step failed; the next run tries again
        """
        volume = self.node.volumes.volume(volume_id)
        if volume is not None and quick_check.is_being_deleted(
                volume, self.node.handles.survey):
            raise exceptions.NotPossible(
                volume=volume_id, reason='it is being deleted.')
        self._reconcile_present(volume_id, volume)
        if volume is None:
            raise exceptions.StaleMove(volume=volume_id)

    def _reconcile_present(self, volume_id: str, volume: Volume | None
                           ) -> None:
        if volume is not None and (volume.home != self.node.host
                                   or volume.is_misplaced):
            volume = homes.correct(self.node, volume)
        move = self.node.moves.move_of(volume_id)
        if move is None:
            if volume is not None and volume.home != self.node.host:
                # Its move from here may have been rolled back meanwhile.
                volume = self.node.volumes.volume(volume_id)
            self._at_rest(volume_id, volume)
        elif self.node.host == move.destination:
            # After the commit, the volume's row names this node as its home.
            if self._as_destination(move, volume):
                # A waiting caller need not wait for the next sweep.
                self._at_rest(volume_id, self.node.volumes.volume(volume_id))
        elif self.node.host == move.source:
            self._as_source(move, volume)

    def _clean_up(self, left: Iterable[state.Move]) -> Exception | None:
        """Remove everything that finished moves have left here.

        :returns: the first error; it must not stop the other steps
        """
        failure: Exception | None = None
        for move in left:
            if move.cleanup_node == self.node.host:
                try:
                    cleanup.take_down(self.node, move)
                except Exception as exc:
                    failure = failure or exc
                else:
                    self._tell_of_end(move)
        return failure

    def _prompt_clean_up(self, left: Iterable[state.Move]) -> None:
        """Have other nodes do their pending cleanups, and don't wait."""
        for move in left:
            if move.cleanup_node != self.node.host:
                rpc.cast(move.cleanup_node, peers.reconcile, self.node,
                         move.volume_id)

    def _tell_of_end(self, move: state.Move) -> None:
        if move.committed:
            events.say(events.SOURCE_REMOVED, volume=move.volume_id)
            return
        events.say(events.DESTINATION_REMOVED, volume=move.volume_id)
        # It may still export the source.
        rpc.cast(move.source, peers.reconcile, self.node, move.volume_id)

    def _at_rest(self, volume_id: str, volume: Volume | None) -> None:
        if volume is None or volume.home != self.node.host:
            self._remove_stray_handle(volume_id)
            return
        if volume.status in statuses.BEING_DELETED | statuses.CHANGING_OWNER:
            return  # delete_volume removes it
        present = self.node.handles.survey()
        if volume.visible_id:
            exports.check_no_lost_record(self.node, volume, present)
            migrate.reconcile_copy(self.node, volume)
            self.exporting.try_to_reconcile(volume, None)
        else:
            exports.ensure_handle_at_rest(self.node, volume, present)
            self.exporting.try_to_reconcile(volume, None)
            devices.reconcile(self.node, volume, volume.name)
        uncommitted.accept(self.node, volume, present)
        with events.failure_logged(
                events.EXPORTS_DIFFER, volume=volume_id):
            cleanup.withdraw_strays(self.node, present)

    def _remove_stray_handle(self, volume_id: str) -> None:
        """Remove an unused handle of a volume whose home is not this node."""
        survey = self.node.handles.survey()
        handle = survey.handle(volume_id)
        if (handle and not survey.users(volume_id) and volume_id in
                survey.volumes_above(self.node.lvm.group)):
            self.node.handles.remove_handle(volume_id)

    # -- a move to this node

    def _as_destination(self, move: state.Move, volume: Volume | None) -> bool:
        """Take the destination's steps of a move.

        :returns: whether the move has ended
        """
        if volume is None and move.committed:
            self.copying.note_failed_check(move)  # it must not block the queue
        if volume is None or not move.committed:
            return False  # the source decides
        if quick_check.is_being_deleted(volume, self.node.handles.survey):
            self.copying.note_failed_check(move)  # a delete removes it
            return False
        try:
            if (move.phase in (Phase.STARTING, Phase.MIGRATING)
                    and not self._is_copied(move, volume)):
                return False
            if move.phase is Phase.COMPLETING:
                exports.ensure_handle_on_all(self.node, move)
                self.exporting.try_to_reconcile(volume, move)
            if (move.phase is Phase.MIGRATING
                    and not self.copying.ensure_whole(move)):
                return False
            destination.complete(self.node, move)
        except Exception:  # other copies may run, whatever the error
            self.copying.note_failed_check(move)
            if move.phase is Phase.COMPLETING:  # all of it is here
                devices.reconcile(self.node, volume, volume.name)
            raise
        self.copying.ended(move.move_id)
        self.node.tell(state.Milestone.COMPLETED, move)
        rpc.cast(move.source, peers.reconcile, self.node, move.volume_id)
        return True

    def _is_copied(self, move: state.Move, volume: Volume) -> bool:
        """Go on with a copy, and return whether it is complete."""
        try:
            disk = destination.rebuild(self.node, move)
        except Exception:
            self._give_out_alone(move)
            raise
        # Read again, because the rebuild may have taken a while.
        found = self.node.volumes.volume(move.volume_id)
        if found is None:
            self.copying.note_failed_check(move)  # it must not block the queue
            return False
        self.exporting.try_to_reconcile(found, move)
        devices.reconcile(self.node, found, found.name)
        if not disk:
            return True
        if move.phase is Phase.STARTING:
            self.node.clones.set_hydration(move.move_id, False)
            destination.roll_back_if_dropped(
                self.node, move, found)
            return False
        return self.copying.drive(move, disk)

    def _give_out_alone(self, move: state.Move) -> None:
        """Export the local part of a volume while its source is unreachable.

        An operator may have opened the volume without its source. No export is
        withdrawn, because the target would wait for unfinished reads of its
        initiator.
        """
        # Read again, because the wait for the source may have been long.
        volume = self.node.volumes.volume(move.volume_id)
        present = self.node.handles.survey()
        if volume is not None and present.handle(move.volume_id):
            if present.is_handle_on_clone(move):
                self.exporting.try_to_export(volume, move)
            devices.reconcile(self.node, volume, volume.name)

    # -- a move from this node

    def _as_source(self, move: state.Move, volume: Volume | None) -> None:
        if volume is None and not move.committed:
            source.abandon(self.node, move)  # with no LV to export
            return
        stays = self.exporting.make_for_source(move, volume)
        if volume is not None:
            self.exporting.try_to_withdraw(volume, move)
        if move.keeps_handle and volume is not None:
            devices.reconcile(self.node, volume, move.source_lv)
        if not move.committed:
            # Only this service moves its volumes, under the lock held here: an
            # earlier run of the service was interrupted during this move.
            source.abandon(self.node, move)
            return
        if move.keeps_handle and volume is not None:
            source.release_if_detached(
                self.node, move, volume)
        elif not stays:
            source.drop_handle(self.node, move)

    # -- the node

    def reconcile_moves(self) -> None:
        """Take the next step of every move from or to this node."""
        self.exporting.try_again()  # guests wait for it
        self._reconcile_moves(self.node.moves.moves_of(self.node.host),
                              all_of_them=False)
        if not self._is_remote:
            self._is_remote = remote_attachment.sweep(self.node)

    def _reconcile_moves(self, moves: list[state.Move],
                         all_of_them: bool = True) -> None:
        """Take the next step of these moves.

        :param all_of_them: also of moves that need nothing by a quick check
        """
        with self.copying.round(moves):
            looked_at = {
                move.volume_id for move in moves
                if all_of_them or not self.copying.only_waits(move)
            }.difference(() if all_of_them else quick_check.exported_on(
                self.node, moves))
            # Local work first; the other moves may have to wait for a peer.
            sources = {move.volume_id for move in moves if move.committed
                       and move.source == self.node.host}
            self._attempt_all(looked_at & sources)
            self._attempt_all(looked_at - sources)
            for entry in self.copying.take_next():
                if entry.destination == self.node.host:
                    self._attempt(entry.volume_id)
                else:
                    rpc.cast(entry.destination, peers.reconcile, self.node,
                             entry.volume_id)

    def reconcile_node(self, moves: bool = True) -> None:
        """Reconcile everything on this node.

        :param moves: whether to include moves, which may wait for peers
        """
        self.seen, self._is_remote = None, False  # this may fail
        recorded = self.node.moves.moves_of(self.node.host)
        # Finished moves need nothing from a volume at rest.
        moving = {move.volume_id for move in recorded if not move.is_over}
        waiting = {move.volume_id for move in recorded}
        home = {volume.id: volume for volume in
                self.node.volumes.volumes_of(self.node.host)}
        failed_exports = self._export(moving, home)
        self.exporting.forget_all_but({*moving, *home})
        survey = self.seen = self.node.handles.survey()
        remote = functools.cache(self.node.exports.remote)  # asked once
        unfinished = functools.cache(self.node.exports.unfinished)
        links = self.node.handles.links()
        # Each difference is checked again under the volume's lock.
        asking_once = dataclasses.replace(
            self.node, is_at=nodes.cached_is_at(self.node.is_at))
        for volume_id, volume in home.items():
            if volume_id in moving or quick_check.is_left_alone(
                    volume, lambda: survey):
                continue
            if (
                    volume.visible_id
                    or quick_check.lacks_handle(survey, volume)
                    or self.exporting.differ(
                        volume, remote().get(volume_id, set()), unfinished,
                        survey, volume_id in failed_exports)
                    or devices.differs(asking_once, volume, survey, links)
                    or moves and self._deferred_moves.are_due(volume)):
                self._attempt(volume_id, moves)
        self.comparison.expect(recorded)
        # This may hang. It is first because an export keeps a stray LV in use.
        move_records = {move.move_id for move in recorded}
        cleanup.withdraw_strays(self.node, survey, move_records)
        cleanup.remove_stray_metadata(self.node, survey, move_records)
        group = self.node.lvm.group
        known = {volume.handle_id for volume in home.values()}
        misplaced = self.node.volumes.volumes_with_wrong_host(self.node.host)
        self._attempt_all({*survey.volumes_above(group), *misplaced} - known
                          - (waiting - {*misplaced})
                          - set(survey.snapshots(group)))
        devices.sweep(self.node, survey, links)
        self.encrypted.resume_reencryptions(home.values(), survey)
        clone.sweep_images(self.node, survey)
        self._is_remote = remote_attachment.sweep(self.node, survey)
        if moves:
            self._reconcile_moves(recorded)
        upkeep.sweep_sealed_keys(self.node)

    def _export(self, moving: Iterable[str],
                home: Mapping[str, Volume]) -> set[str]:
        """Make the exports for guests on other nodes, before any other work.

        :returns: as :meth:`.exports.Exporting.sweep`
        """
        failed = self.exporting.sweep(sorted(moving))
        remote = functools.cache(self.node.exports.remote)
        unfinished = functools.cache(self.node.exports.unfinished)
        return failed | self.exporting.sweep([
            volume_id for volume_id, volume in home.items()
            if volume_id not in moving and self.exporting.needs_work(
                volume, remote().get(volume_id, set()), unfinished)])

    def _attempt_all(self, volume_ids: Iterable[str]) -> None:
        for volume_id in sorted(volume_ids):
            self._attempt(volume_id)

    def _attempt(self, volume_id: str, is_deferred: bool = True) -> None:
        """Reconcile a volume; log an error, and don't raise it.

        So the other volumes are still reconciled.

        :param is_deferred: whether its deferred move may begin afterwards
        """
        def tell(exc: Exception) -> None:
            events.failed(events.NOT_RECONCILED, exc, volume=volume_id)

        def act() -> None:
            self.reconcile_locked(volume_id)
            if is_deferred:
                self._begin_deferred_move(volume_id)
        try:
            self.comparison.ask_ahead(volume_id)
        except Exception as exc:  # the message bus raises other types
            tell(exc)
        else:
            nodes.attempt(self.node, volume_id, act, tell)
