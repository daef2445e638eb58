# SPDX-License-Identifier: Apache-2.0
"""Copy blocks again that the destination's thin pool has lost.

If a pool can't write its metadata, it drops all mappings since its last
commit. A later flush of the volume succeeds nevertheless: the flag of the
change (``changed``, in the kernel's drivers/md/dm-thin-metadata.c) is cleared
before the commit that fails. So a clone records regions as local, although
they are gone and read as zeros. (Observed on kernel 7.2 in four of five
trials, with a disk that refuses writes.)

The source still has these blocks. So the maps of both thin pools are compared
before the source is removed. Both maps are read from committed pool metadata:
their blocks survive a power cut.
"""

from collections.abc import Iterable
import contextlib
import dataclasses
import time

from oslo_utils import units

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.moves import holes as never_written

#: Smallest block of an LVM thin pool, in bytes.
BLOCK = 64 * units.Ki
#: Seconds after which an earlier failure does not count any more.
AGO = 3600
#: Errors of a comparison or of a copy.
ERRORS = (exceptions.LocalCloneError, OSError, ValueError)


@dataclasses.dataclass
class Memory:
    """Memory of a service about its copies, by move record id."""

    #: First and latest time of a failed comparison; monotonic seconds.
    unseen: dict[str, tuple[float, float]] = dataclasses.field(
        default_factory=dict)
    #: Moves from before the start of this service, until they resume. None
    #: before its first sweep.
    interrupted: set[str] | None = None
    #: Blocks seen unmapped although recorded as local, until the source has
    #: said whether it has them.
    suspected: dict[str, thin_map.Holes] = dataclasses.field(
        default_factory=dict)
    #: Blocks known to be lost, until they are seen mapped after a new copy.
    known: dict[str, thin_map.Holes] = dataclasses.field(default_factory=dict)
    #: Blocks of these with a new copy, until the next check of the map.
    copied: dict[str, thin_map.Holes] = dataclasses.field(default_factory=dict)
    #: Moves whose lost blocks may be cached as zeros by a reader.
    read: set[str] = dataclasses.field(default_factory=set)


class Comparison:
    """Compares copies with their sources, once their clones are complete.

    :param memory: of the service
    """

    def __init__(self, node: Node, memory: Memory | None = None) -> None:
        self._node = node
        self.memory = memory or Memory()
        #: Moves whose source has not answered, by volume id.
        self._silent: dict[str, state.Move] = {}
        #: Later answers of the source, or errors, by move record id.
        self._answers: dict[str, thin_map.Holes | Exception] = {}

    def ask_ahead(self, volume_id: str) -> None:
        """Ask a silent source again, before the next check.

        The caller does not hold the volume's lock. A source takes as long as
        any command, and other callers wait less long for the lock: each check
        would shut them out again. Nothing writes to a source, so its answer
        stays valid.
        """
        move = self._silent.get(volume_id)
        if move is None:
            return
        present = self._node.moves.move_of(volume_id)
        if present is None or present.move_id != move.move_id:
            # It ended during the wait for an answer.
            self._forget(move)
        elif self._node.services.alive_by_host().get(move.source):
            answer: thin_map.Holes | Exception
            try:
                answer = self._ask(move)
            except ERRORS as exc:
                answer = exc
            # The move still waits for it.
            if self._silent.get(volume_id) is move:
                self._answers[move.move_id] = answer

    def _holes(self, move: state.Move) -> thin_map.Holes:
        """Return the holes of the source, by an earlier answer if any."""
        answer = self._answers.pop(move.move_id, None)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            answer = self._ask(move)
        self._silent.pop(move.volume_id, None)
        return answer

    def _ask(self, move: state.Move) -> thin_map.Holes:
        try:
            return rpc.call_at(move.source, never_written.source_holes,
                               self._node,
                               move.move_id, move.token.nonce)
        except ERRORS:
            self._silent[move.volume_id] = move
            raise

    def _forget(self, move: state.Move) -> None:
        """Stop asking the source of a move."""
        self._silent.pop(move.volume_id, None)
        self._answers.pop(move.move_id, None)

    def expect(self, moves: Iterable[state.Move]) -> None:
        """Note the moves to resume, after the first sweep of this service.

        :param moves: from and to this node: their copies began before its
            start
        """
        if self.memory.interrupted is None:
            self.memory.interrupted = {move.move_id for move in moves}

    def resume(self, move: state.Move) -> bool:
        """Copy blocks again that were lost before this service started.

        This runs later than the start, because the peer may be starting, too.

        :param move: committed, in phase "migrating", with its clone
        :returns: whether the copy may go on: a new copy in the same block of
            the pool would hide a loss. After a time limit it goes on without
            the comparison, which is repeated at the end. If blocks can't be
            copied until then, the source stays
        :raises PoolFails: if a comparison or a copy fails, and the pool here
            can't write its metadata; the copy pauses meanwhile
        """
        interrupted = self.memory.interrupted
        if not interrupted or move.move_id not in interrupted:
            return True
        try:
            # Hydration maps blocks all the time. The next drive resumes it.
            self._node.clones.set_hydration(move.move_id, False)
            # Read this before the map: each local region was mapped by then.
            local = self._node.clones.recorded_as_local(move)
            here = self._compare_maps(move)
            lost = self._missing(move, thin_map.intersection(
                thin_map.in_smaller_regions(local, self._factor(move)), here))
            if lost or move.move_id in self.memory.known:
                tags = self._tags(move)
                self._recall(move, tags)
                # From now on the known losses include its suspected blocks.
                del self.memory.suspected[move.move_id]
                self._restore(move, lost, here, tags)
            self.memory.suspected.pop(move.move_id, None)
        except exceptions.Lacking:
            pass  # everything else was copied; its source stays
        except ERRORS as exc:
            self._check_pool(move)
            if not self._has_waited(move, exc):
                return False
            if self._is_known(move):
                self._mark(move)  # if tagging itself has failed
            # If these blocks are lost again, the copy may hide it.
            self.memory.copied.pop(move.move_id, None)
        self.memory.unseen.pop(move.move_id, None)
        interrupted.discard(move.move_id)
        self._forget(move)
        return True

    def ensure_whole(self, move: state.Move) -> bool:
        """Compare both maps, and copy lost blocks again; the lock is held.

        :param move: committed, in phase "migrating", and fully copied
        :returns: False if the comparison is not possible now. After a time
            limit True, because the source may never come back: the clone's
            record is believed, unless a loss is known
        :raises PoolFails: if the pool here can't write its metadata; the
            source stays meanwhile
        :raises NotAllCopied: if copied blocks are lost again
        :raises Lacking: if blocks may be lost for good
        :raises LocalCloneError: if lost blocks can't be copied now. If an
            operator has accepted the loss, this returns True instead: at once
            if all available blocks were copied, otherwise after the time limit
        """
        tags = self._tags(move)
        try:
            whole = self._is_whole(move, tags)
        except exceptions.PoolFails:
            raise
        except ERRORS as exc:
            if names.ACCEPTED not in tags or not (
                    isinstance(exc, exceptions.Lacking)
                    or self._has_waited(move, exc)):
                raise
            if self.memory.known.get(move.move_id, True):
                events.say(events.ACCEPTED, volume=move.volume_id,
                           source=move.source)
            whole = True
        if whole:
            self._forget(move)
        return whole

    def _is_whole(self, move: state.Move, tags: frozenset[str]) -> bool:
        self._recall(move, tags)
        try:
            if (self._is_known(move)
                    and move.source
                not in self._node.services.alive_by_host()):
                raise exceptions.Forgotten(host=move.source)
            here = self._compare_maps(move)
            lost = self._missing(move, here)
        except ERRORS as exc:
            self._check_pool(move)
            try:
                self._forget_read(move)
            except ERRORS as unread:
                raise self._not_refilled(move, unread) from unread
            with contextlib.suppress(*ERRORS):
                self._unmark(move)
            return self._is_given_up(move, exc)
        self.memory.suspected.pop(move.move_id, None)
        self._restore(move, lost, here, tags)
        self.memory.unseen.pop(move.move_id, None)
        return True

    # -- both maps, in blocks no larger than a region

    def _factor(self, move: state.Move) -> int:
        """Return the number of blocks in a region."""
        return int(max(
            1, move.geometry.region_sectors * state.SECTOR // BLOCK))

    def _all(self, move: state.Move) -> thin_map.Holes:
        return thin_map.in_smaller_regions(
            [[0, move.geometry.regions(move.size_bytes)]], self._factor(move))

    def _compare_maps(self, move: state.Move) -> thin_map.Holes:
        """Return the blocks unmapped here, and update the known losses.

        A block with a new copy is restored if it is mapped. Any other lost
        block stays lost even if it is mapped later, because a write may have
        covered a part of it only.
        """
        here = self._node.clones.unmapped_blocks(move, self._factor(move))
        known = self.memory.known
        found = thin_map.difference(
            self.memory.copied.pop(move.move_id, ()), here)
        if found:
            known[move.move_id] = thin_map.difference(
                known[move.move_id], found)
            self.memory.unseen.pop(move.move_id, None)  # there is progress
        return here

    def _missing(self, move: state.Move, here: thin_map.Holes
                 ) -> thin_map.Holes:
        """Return the suspected blocks, old and new, that the source has.

        :param here: blocks unmapped here although recorded as local
        :raises Forgotten: if the source's node was forgotten
        :raises PeerUnreachable: if its service is down
        """
        suspected = self.memory.suspected[move.move_id] = thin_map.union(
            self.memory.suspected.get(move.move_id, ()), here)
        if not suspected:
            return ()
        runs = self._node.services.alive_by_host().get(move.source)
        if runs is None:
            raise exceptions.Forgotten(host=move.source)
        if not runs:
            raise exceptions.PeerDown(host=move.source)
        return thin_map.difference(suspected, thin_map.in_smaller_regions(
            self._holes(move), self._factor(move)))

    # -- known losses

    def _is_known(self, move: state.Move) -> bool:
        """Return whether any blocks are known to be lost."""
        return bool(self.memory.known.get(move.move_id))

    def _recall(self, move: state.Move, tags: frozenset[str]) -> None:
        """Recall the losses of an earlier service: any block may be lost."""
        if names.LACKING in tags and move.move_id not in self.memory.known:
            self.memory.known[move.move_id] = self._all(move)
            self.memory.read.add(move.move_id)

    def _restore(self, move: state.Move, lost: thin_map.Holes,
                 here: thin_map.Holes, tags: frozenset[str]) -> None:
        """Copy lost blocks again; the LV stays tagged until all are restored.

        If a block is mapped by then without this copy, it may be incomplete: a
        guest may have written to a part of it, or an earlier service was
        killed. The map does not show this.

        :param here: blocks unmapped here
        :param tags: of the LV
        :raises Lacking: if a block may be incomplete
        :raises NotRefilled: if blocks could not be copied
        :raises NotAllCopied: if copied blocks are lost again
        """
        if not lost and move.move_id not in self.memory.known:
            return
        self.memory.known[move.move_id] = thin_map.union(
            self.memory.known.get(move.move_id, ()), lost)
        if self._is_known(move) and names.LACKING not in tags:
            self._mark(move)
        try:
            self._refill(move, thin_map.intersection(lost, here))
            self._forget_read(move)
        except ERRORS as exc:
            with contextlib.suppress(*ERRORS):
                self._forget_read(move)
            if isinstance(exc, (exceptions.PoolFails,
                                exceptions.NotAllCopied)):
                raise
            raise self._not_refilled(move, exc) from exc
        if self._is_known(move):
            raise self._lacking(move)
        self._unmark(move)

    def _refill(self, move: state.Move, missing: thin_map.Holes) -> None:
        if not missing:
            return
        copied, size = self.memory.copied, 0
        self.memory.read.add(move.move_id)
        try:
            disk = self._node.sessions.attach(move)
            for part in self._node.clones.refill(
                    move, disk, missing, self._factor(move)):
                copied[move.move_id] = thin_map.union(
                    copied.get(move.move_id, ()), part)
                size += _kib(part, move)
        except ERRORS:
            # Check now, because later a guest's writes may hide another loss.
            try:
                self._compare_maps(move)
            except exceptions.PoolFails:
                raise
            except ERRORS:
                pass  # until the next check
            raise
        finally:
            events.say(events.COPIED_AGAIN, volume=move.volume_id,
                       source=move.source, size=_kib(missing, move),
                       copied=size)
        missing = thin_map.intersection(missing, self._compare_maps(move))
        if missing:
            raise exceptions.NotAllCopied(
                volume=move.volume_id, host=self._node.host,
                size=_kib(missing, move), end=self._end(move))

    def _forget_read(self, move: state.Move) -> None:
        """Drop cached zeros of lost blocks, so readers read again."""
        if move.move_id in self.memory.read:
            self._node.handles.forget_read(move.volume_id)
            self.memory.read.remove(move.move_id)

    def _mark(self, move: state.Move) -> None:
        """Tag the LV, so its source stays whatever happens."""
        self._node.lvm.mark(move.destination_lv, names.LACKING)

    def _unmark(self, move: state.Move) -> None:
        """Remove the tag, if all known losses were seen to be restored."""
        if not self.memory.known.get(move.move_id, True):
            self._node.lvm.unmark(move.destination_lv, names.LACKING)
            del self.memory.known[move.move_id]

    def _tags(self, move: state.Move) -> frozenset[str]:
        lv = self._node.lvm.lvs().get(move.destination_lv)
        if lv is None:
            raise exceptions.MissingData(
                what='The data', volume=move.volume_id, host=self._node.host)
        return lv.tags

    def _not_refilled(self, move: state.Move, reason: Exception
                      ) -> exceptions.NotRefilled:
        return exceptions.NotRefilled(
            volume=move.volume_id, host=self._node.host, source=move.source,
            reason=reason, end=self._end(move))

    def _lacking(self, move: state.Move) -> exceptions.Lacking:
        return exceptions.Lacking(
            volume=move.volume_id, host=self._node.host, source=move.source,
            end=self._end(move))

    def _end(self, move: state.Move) -> str:
        return 'lvchange --addtag %s %s' % (names.ACCEPTED, names.lv_path(
            self._node.lvm.group, move.destination_lv))

    # -- failed comparisons

    def _check_pool(self, move: state.Move) -> None:
        """Check the pool here after any error: a failing pool is waited for.

        :raises PoolFails: if it can't write its metadata
        """
        try:
            self._node.clones.check_pool(move)
        except exceptions.PoolFails:
            # This time does not count.
            self.memory.unseen.pop(move.move_id, None)
            raise
        except ERRORS:
            pass  # the state of the pool is unknown

    def _is_given_up(self, move: state.Move, error: Exception) -> bool:
        if not self._has_waited(move, error):
            return False
        if self._is_known(move) and not isinstance(
                error, exceptions.Forgotten):
            raise self._lacking(move)
        events.say(events.UNCOMPARED, volume=move.volume_id,
                   source=move.source, error=error)
        return True

    def _has_waited(self, move: state.Move, error: Exception) -> bool:
        if isinstance(error, exceptions.Forgotten):
            return True  # its node was forgotten
        now, unseen = time.monotonic(), self.memory.unseen
        since, last = unseen.get(move.move_id, (now, now))
        if move.move_id not in unseen or now - last > AGO:
            since = now
            events.say(events.NOT_COMPARED, volume=move.volume_id,
                       error=error, seconds=self._node.compare_wait)
        unseen[move.move_id] = since, now
        if now - since < self._node.compare_wait:
            return False
        del unseen[move.move_id]
        return True


def _kib(holes: thin_map.Holes, move: state.Move) -> int:
    block = min(BLOCK, move.geometry.region_sectors * state.SECTOR)
    return int(sum(count for _start, count in holes) * block >> 10)
