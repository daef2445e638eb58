# SPDX-License-Identifier: Apache-2.0
"""Converge: compare the records with what is there, take the safe steps.

The same code runs at start-up, periodically, after each call of a peer and
for an operator's repair. Nothing here depends on how far an earlier run got.
"""

import contextlib
import functools

from cinder import exception
from cinder.volume import volume_utils
from oslo_log import log as logging
from oslo_utils import timeutils

from cinder_localclone import decision
from cinder_localclone import exceptions
from cinder_localclone import hydration
from cinder_localclone import moves
from cinder_localclone import records
from cinder_localclone.state import Event
from cinder_localclone.state import Phase
from cinder_localclone.state import READS_SOURCE

LOG = logging.getLogger(__name__)


class Reconciler:
    """Converges the volumes of one node.

    :param node: a :class:`cinder_localclone.moves.Node`
    :param context: the admin context in which peers are called
    """

    def __init__(self, node: moves.Node, context):
        self.node = node
        self.context = context
        self._copies: dict[str, hydration.Copy] = {}
        self.waker = hydration.Waker(node.stack.wake_hydration)

    def progress(self, shadow_id: str) -> hydration.Progress | None:
        """How far a copy to this node was at the last look."""
        copy = self._copies.get(shadow_id)
        return copy and copy.progress

    # -- one volume

    def converge(self, volume_id: str) -> None:
        """Take all steps that are this node's for one volume."""
        with self.node.lock(volume_id):
            self.converge_locked(volume_id)

    def converge_locked(self, volume_id: str) -> None:
        """The same for a caller that holds the volume's lock.

        :raises LocalCloneError: if a step failed; the next look tries again
        """
        volume = self.node.records.volume(volume_id)
        move = self.node.records.move_of(volume_id)
        if move is None:
            self._at_rest(volume_id, volume)
        elif self.node.host == move.destination:
            self._as_destination(move, volume)
        elif self.node.host == move.source:
            self._as_source(move, volume)

    def _at_rest(self, volume_id, volume):
        if volume is None or not self._is_home(volume):
            self._forget(volume_id)
            return
        self.node.exports.withdraw_strays(self.node.records.is_move)
        if _is_idle(volume) and (
                volume_id in self.node.exports.served_to_others()):
            self.node.exports.withdraw_volume(volume_id, None)
        found = self.node.stack.survey()
        if found.metadata(volume.name_id):
            # Its regions may still be at a source that nothing names.
            raise exceptions.MissingData(
                what='The move record', volume=volume_id,
                host=self.node.host)
        self.node.stack.ensure_handle_on_lv(
            volume_id, volume.name, volume.size << 30)
        self._serve_again(volume)

    def _serve_again(self, volume):
        """To hosts that have the volume over iSCSI; after a reboot, anew."""
        for initiator, properties in _remote_connections(volume):
            if self.node.exports.offer_again(volume.id, initiator,
                                             properties):
                LOG.info('Volume %(volume)s is served to %(initiator)s '
                         'again.', {'volume': volume.id,
                                    'initiator': initiator})

    def _is_home(self, volume):
        return volume_utils.extract_host(volume.host) == self.node.host

    def _forget(self, volume_id):
        """A handle of a volume that does not live here (any more)."""
        found = self.node.stack.survey()
        handle = found.handle(volume_id)
        if (volume_id in found.volumes_above(self.node.stack.group)
                and not handle.opened):
            self.node.stack.remove_handle(volume_id)

    def _as_destination(self, move, volume):
        if move.phase is Phase.ROLLING_BACK:
            moves.undo(self.node, move)
            LOG.info('Took down the failed move of volume %s.',
                     move.volume_id)
            if move.source:
                self.node.peers.converge_soon(
                    self.context, move.source, move.volume_id)
            return
        if not move.committed:
            return  # the source decides
        if volume.status == 'deleting':
            return  # delete_volume takes it down
        if move.phase in (Phase.STARTING, Phase.MIGRATING):
            disk = moves.build(self.node, move, create=False)
            self._serve_again(volume)
            if move.phase is Phase.STARTING:
                self.node.stack.set_hydration(move.shadow_id, False)
                self._settle_back(move, volume)
                return
            if not self._copied(move, disk):
                return
        if move.phase is not Phase.RELEASING:
            move = moves.complete(self.node, move)
            self._copies.pop(move.shadow_id, None)
            LOG.info('Volume %s is complete on this node.',
                     move.volume_id)
        self.node.stack.ensure_handle_on_lv(
            move.volume_id, move.destination_lv, move.size_bytes)
        self.node.peers.converge_soon(
            self.context, move.source, move.volume_id)

    def _copied(self, move, disk):
        """Let the kernel copy, unless it does so in vain; whether it is done.

        :param disk: path of the source's disk
        """
        status = self.node.stack.clone_status(move.shadow_id)
        progress = self._copies.setdefault(
            move.shadow_id, hydration.Copy()).look(
                status, self.node.stack.completed_reads(disk),
                timeutils.now())
        LOG.info('Volume %(volume)s moves from %(source)s: %(progress)s.',
                 {'volume': move.volume_id, 'source': move.source,
                  'progress': progress})
        if status.mode != 'rw':
            LOG.error('The clone of volume %(volume)s is in mode "%(mode)s": '
                      'its metadata or its disk failed. The source is kept. '
                      'Mend the disk and stop what uses the volume: it is '
                      'then tried again.',
                      {'volume': move.volume_id, 'mode': status.mode})
        if self.node.stack.set_hydration(
                move.shadow_id, not progress.pause) and progress.pause:
            LOG.error('The copy of volume %(volume)s fails: the source was '
                      'read, and nothing became local. The kernel\'s log '
                      'names the disk. The source is kept; the copy is tried '
                      'again in %(seconds).0f s.',
                      {'volume': move.volume_id,
                       'seconds': progress.pause})
        self.waker.watch(move.shadow_id, move.geometry.threshold,
                         not (status.finished or progress.pause))
        return status.finished

    def _as_source(self, move, volume):
        if move.phase is Phase.RELEASING:
            moves.release(self.node, move)
            LOG.info('The move of volume %(volume)s to %(host)s has ended.',
                     {'volume': move.volume_id,
                      'host': move.destination})
            return
        self.node.stack.ensure_handle_on_lv(
            move.volume_id, move.source_lv, move.size_bytes)
        if move.committed:
            self.node.exports.offer_source(move)
            if move.phase is Phase.STARTING and volume is not None:
                self._settle_forward(move, volume)
        elif move.phase in READS_SOURCE:
            # Only this service moves its volumes, under the lock that is
            # held here: whoever began this move did not live to end it.
            moves.abandon(self.node, self.context, move)
        else:
            self.node.peers.converge_soon(
                self.context, move.destination, move.volume_id)

    def abandon_interrupted(self, volume_id: str) -> None:
        """Settle a move that this service began and did not live to end.

        For a caller that holds the volume's lock.
        """
        found = self.node.records.move_of(volume_id)
        if (found and not found.committed and found.source == self.node.host
                and found.phase is not Phase.ROLLING_BACK):
            moves.abandon(self.node, self.context, found)

    def delete(self, volume) -> None:
        """Remove all of a volume at its home; its source, if any, follows.

        What is gone already is done.

        :raises VolumeIsBusy: if something uses it, or it is between two
            nodes; its owner may try again
        """
        with self.node.lock(volume.id):
            self.abandon_interrupted(volume.id)
            move = self.node.records.move_of(volume.id)
            if move and move.phase is Phase.STARTING:
                raise exception.VolumeIsBusy(volume_name=volume.name)
            # After Cinder's own migration the LV bears another volume's
            # name, and that one's handle.
            handles = {volume.id} | self.node.stack.survey().volumes_above(
                self.node.stack.group, volume.name)
            for each in sorted(handles):
                self.node.exports.withdraw_volume(each, None)
                if moves.users(self.node, each):
                    raise exception.VolumeIsBusy(volume_name=volume.name)
            if move is None or not move.committed:
                if move:
                    self.node.exports.withdraw_source(move)
                for each in sorted(handles):
                    self.node.stack.remove_handle(each)
                moves.remove_volume_lv(self.node, volume.name, volume.size)
                return
            moves.tear_down(self.node, move)
            if move.phase is not Phase.RELEASING:
                move = self.node.records.advance(
                    move, Event.VOLUME_DELETED)
        self.node.peers.converge_soon(
            self.context, move.source, volume.id)

    # -- signals that never come

    def _holders(self, move, volume):
        connectors = [attachment.connector
                      for attachment in volume.volume_attachment]
        at = [self.node.is_at(connector, move.destination)
              for connector in connectors if connector]
        return decision.Holders(
            source=not all(at), destination=any(at),
            pending=not all(connectors))

    def _settle_forward(self, move, volume):
        """At the source: it was detached, and no call has said so."""
        users = moves.users(self.node, move.volume_id)
        if decision.may_go_forward(self._holders(move, volume), users):
            LOG.info('Volume %s is not attached to this node any more: '
                     'hydration may begin.', move.volume_id)
            moves.source_released(self.node, self.context, move)

    def _settle_back(self, move, volume):
        """At the destination: the migration was dropped without a call."""
        users = moves.users(self.node, move.volume_id)
        written = moves.written_regions(self.node, move)
        if decision.may_go_back(self._holders(move, volume), users,
                                bool(written)):
            LOG.info('The live migration of volume %s to this node was '
                     'dropped: rolling back.', move.volume_id)
            moves.roll_back_live(self.node, self.context, move)

    def abort(self, volume_id: str) -> None:
        """Roll a move back, as far as that loses nothing.

        For the source if it is not committed, else for the destination.

        :raises NotPossible: if there is no way back
        :raises SourceBusy: if the volume is open at the destination
        :raises DestinationWritten: if it was written there
        """
        with self.node.lock(volume_id):
            move = self.node.records.move_of(volume_id)
            if move is None:
                raise self._not_possible(volume_id, 'it has no move.')
            if move.phase is Phase.ROLLING_BACK:
                self.converge_locked(volume_id)
            elif not move.committed:
                self._check_here(move, move.source)
                moves.abandon(self.node, self.context, move)
            elif move.phase is Phase.STARTING:
                self._check_here(move, move.destination)
                moves.roll_back_live(self.node, self.context, move)
            else:
                raise self._not_possible(
                    volume_id, 'the volume is at %s already, with all that '
                    'was written since; it only goes forward (%s).' % (
                        move.destination, move.phase.value))

    def go_forward(self, volume_id: str) -> None:
        """Take the next step, though an attachment may speak against it.

        A live move whose source attachment was never removed goes forward
        if the kernel of the source (where this must be called) shows that
        nothing has the volume open.

        :raises NotPossible: if there is no move
        :raises SourceBusy: if the source is still in use
        """
        with self.node.lock(volume_id):
            move = self.node.records.move_of(volume_id)
            if move is None:
                raise self._not_possible(volume_id, 'it has no move.')
            if move.committed and move.phase is Phase.STARTING:
                self._check_here(move, move.source)
                moves.source_released(self.node, self.context, move)
            else:
                self.converge_locked(volume_id)

    def _check_here(self, move, host):
        if host != self.node.host:
            raise self._not_possible(
                move.volume_id, 'this has to be done on %s.' % host)

    @staticmethod
    def _not_possible(volume_id, reason):
        return exceptions.NotPossible(volume=volume_id, reason=reason)

    # -- the node

    def converge_moves(self) -> None:
        """Take the next step of every move from or to this node."""
        for move in self.node.records.moves_of(self.node.host):
            self._attempt(move.volume_id)

    def converge_node(self, moves: bool = True) -> None:
        """Converge everything on this node.

        :param moves: whether to look at volumes that are moving, which
            may have to wait for peers
        """
        moving = {t.volume_id: t for t in
                  self.node.records.moves_of(self.node.host)}
        home = {v.id: v for v in
                self.node.records.volumes_of(self.node.host)}
        found = self.node.stack.survey()
        # Asked for once, if at all.
        served = functools.cache(self.node.exports.offered)
        to_others = functools.cache(self.node.exports.served_to_others)
        for volume_id, volume in home.items():
            if volume_id in moving or volume.status in (
                    'creating', 'deleting', 'error_deleting'):
                continue
            if (not found.handle_is_on_lv(volume_id, volume.name)
                    or _lacks_export(volume, served)
                    or _is_idle(volume) and volume_id in to_others()):
                self._attempt(volume_id)
        handles = found.volumes_above(self.node.stack.group)
        for stray in handles - set(home) - set(moving):
            self._attempt(stray)
        self._withdraw_strays(moving.values())
        if moves:
            for volume_id in moving:
                self._attempt(volume_id)

    def _withdraw_strays(self, moves):
        wanted = {t.shadow_id for t in moves
                  if t.source == self.node.host and t.phase in READS_SOURCE}
        self.node.exports.withdraw_strays(
            lambda shadow_id: shadow_id in wanted
            or self.node.records.is_move(shadow_id))

    def _attempt(self, volume_id):
        """One volume that fails never stops the others."""
        with contextlib.suppress(exceptions.Busy):
            try:
                self.converge(volume_id)
            except exceptions.Busy:
                raise
            except Exception as exc:
                LOG.error('Volume %(volume)s needs another look: %(error)s',
                          {'volume': volume_id, 'error': exc},
                          exc_info=not isinstance(
                              exc, exceptions.LocalCloneError))


def _remote_connections(volume):
    """Who has a volume over iSCSI: (initiator, connection properties)."""
    for attachment in volume.volume_attachment:
        properties = attachment.connection_info or {}
        initiator = (attachment.connector or {}).get('initiator')
        if initiator and properties.get('driver_volume_type') == 'iscsi':
            yield initiator, properties


def _is_idle(volume):
    """Nothing is attached and nothing is about to be: served in vain.

    What attaches a volume changes its status first; Cinder's own migration
    says so elsewhere.
    """
    return (volume.status == 'available' and not volume.volume_attachment
            and not records.is_migrated_by_cinder(volume))


def _lacks_export(volume, served):
    return volume.status == 'in-use' and any(
        properties['target_iqn'] not in served()
        for _initiator, properties in _remote_connections(volume))
