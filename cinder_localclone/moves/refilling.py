# SPDX-License-Identifier: Apache-2.0
"""What a thin pool has forgotten of a copy is copied again.

A pool that can't write its metadata drops what it has mapped since it last
could. Who flushes the volume afterwards is told that all is well: the mark
that would tell (``changed``, in the kernel's drivers/md/dm-thin-metadata.c)
is taken off before the commit that fails. So a clone goes on to record as
local what is not there any more, and reads as zeros. (Watched on 7.2 in four
of five trials, with a disk that refuses writes.)

The source has it as long as it is there. So before it goes the maps of both
thin pools are compared. They are read from what the pools have committed:
what is in them then outlives a power cut.
"""

from collections.abc import Iterable
import time

from oslo_log import log as logging

from cinder_localclone import events
from cinder_localclone import exceptions
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import sparse_errors
from cinder_localclone import state
from cinder_localclone import thin_map

LOG = logging.getLogger(__name__)


class Comparison:
    """What this node has of its copies, when their clones say: all.

    :param context: the admin context in which peers are called
    """

    def __init__(self, node: nodes.Node, context: ports.Context) -> None:
        self._node = node
        self._context = context
        #: Since when it can't be seen, by shadow id; monotonic seconds.
        self._unseen: dict[str, float] = {}
        #: Copies that this service has found, by shadow id.
        self._interrupted: set[str] | None = None

    def expect(self, moves: Iterable[state.Move]) -> None:
        """To be called once this service has looked at all for the first time.

        :param moves: from and to this node: what goes on was begun before
        """
        if self._interrupted is None:
            self._interrupted = {move.shadow_id for move in moves}

    def resume(self, move: state.Move) -> None:
        """What was lost before this service runs is copied again at once.

        Later than a service starts, as its peer may start as well. What
        can't be seen for another reason is looked for when all is copied.

        :param move: committed, in phase "migrating", whose clone is there
        """
        if not self._interrupted or move.shadow_id not in self._interrupted:
            return
        try:
            lost = self._missing(move, known=False)
            if lost:
                self._refill(move, lost)
        except exceptions.PeerUnreachable:
            return  # the next look tries again
        except (exceptions.LocalCloneError, OSError, ValueError) as exc:
            LOG.warning('What of volume %(volume)s was lost is looked for '
                        'when all of it is copied: %(error)s', {
                            'volume': move.volume_id, 'error': exc})
        self._interrupted.discard(move.shadow_id)

    def is_whole(self, move: state.Move) -> bool:
        """See that all that the source has is here; the lock is held.

        :param move: committed, in phase "migrating", and fully copied
        :returns: False if that can't be seen now. Not for ever, as the source
            may never come back: then the clone is taken at its word
        :raises NotAllCopied: if what was lost is lost again
        :raises LocalCloneError: if what was lost can't be copied now
        """
        try:
            missing = self._missing(move)
        except (exceptions.LocalCloneError, OSError, ValueError) as exc:
            return self._has_waited(move, exc)
        self._unseen.pop(move.shadow_id, None)
        if missing:
            self._refill(move, missing)
        return True

    def _missing(self, move: state.Move, known: bool = True
                 ) -> thin_map.Holes:
        """What the source has, and the LV here has not.

        :param known: whether all is copied; else only what is on record as
            that is asked for
        :raises PeerUnreachable: if its service is down
        """
        stack = self._node.stack
        here = stack.holes(move.destination_lv, move.size_bytes,
                           move.geometry)
        if here and not known:
            # Then again: what is local by now was mapped before.
            found = stack.recorded_as_local(move, here)
            here = found and thin_map.common(found, stack.holes(
                move.destination_lv, move.size_bytes, move.geometry))
        return here and thin_map.without(here, self._node.peers.holes(
            self._context, move.source, move.shadow_id, move.token.nonce))

    def _refill(self, move: state.Move, missing: thin_map.Holes) -> None:
        events.say(events.COPIED_AGAIN, volume=move.volume_id,
                   source=move.source, regions=_regions(missing))
        self._node.stack.refill(
            move, self._node.sessions.attach(move), missing)
        missing = thin_map.common(missing, self._node.stack.holes(
            move.destination_lv, move.size_bytes, move.geometry))
        if missing:
            raise sparse_errors.NotAllCopied(
                volume=move.volume_id, host=self._node.host,
                regions=_regions(missing))

    def _has_waited(self, move: state.Move, error: Exception) -> bool:
        now = time.monotonic()
        if move.shadow_id not in self._unseen:
            self._unseen[move.shadow_id] = now
            events.say(events.NOT_COMPARED, volume=move.volume_id,
                       error=error, seconds=self._node.compare_wait)
        if now - self._unseen[move.shadow_id] < self._node.compare_wait:
            return False
        del self._unseen[move.shadow_id]
        return True


def _regions(holes: thin_map.Holes) -> int:
    return sum(count for _start, count in holes)
