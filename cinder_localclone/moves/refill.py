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

#: Bytes of the smallest block that a thin pool of LVM maps.
BLOCK = 64 * units.Ki
#: Seconds after which a look that failed before says nothing of the next one.
AGO = 3600
#: What keeps something from being seen or copied.
ERRORS = (exceptions.LocalCloneError, OSError, ValueError)


@dataclasses.dataclass
class Memory:
    """What a service remembers of its copies, each by its shadow's id."""

    #: Since when one can't be compared, and until when; monotonic seconds.
    unseen: dict[str, tuple[float, float]] = dataclasses.field(
        default_factory=dict)
    #: Those that this service has found.
    interrupted: set[str] | None = None
    #: What was seen to be missing, though on record as local, as long as the
    #: source can't be asked whether it has that.
    suspected: dict[str, thin_map.Holes] = dataclasses.field(
        default_factory=dict)
    #: What is known to be lost, and was not seen since it was copied again.
    known: dict[str, thin_map.Holes] = dataclasses.field(default_factory=dict)
    #: What of that was copied again, until the next look at the map.
    copied: dict[str, thin_map.Holes] = dataclasses.field(default_factory=dict)
    #: Of which someone may have read zeros, and would read them once more.
    read: set[str] = dataclasses.field(default_factory=set)


class Comparison:
    """What this node has of its copies, when their clones say: all.

    :param memory: of the service
    """

    def __init__(self, node: Node, memory: Memory | None = None) -> None:
        self._node = node
        self.memory = memory or Memory()
        #: Moves whose source has not told what it has, by volume id.
        self._silent: dict[str, state.Move] = {}
        #: What it has told since, or failed with, by shadow id.
        self._answers: dict[str, thin_map.Holes | Exception] = {}

    def ask_ahead(self, volume_id: str) -> None:
        """Ask a source that has failed to answer, for the next look.

        For a caller without the volume's lock. A source takes as long as any
        command, and others wait less long for that lock: each look would keep
        them from it anew. Nothing writes to a source, so its answer holds.
        """
        move = self._silent.get(volume_id)
        if move is None:
            return
        present = self._node.moves.move_of(volume_id)
        if present is None or present.move_id != move.move_id:
            # It ended while somebody waited for an answer.
            self._forget(move)
        elif self._node.services.by_host().get(move.source):
            answer: thin_map.Holes | Exception
            try:
                answer = self._ask(move)
            except ERRORS as exc:
                answer = exc
            if self._silent.get(volume_id) is move:  # it goes on
                self._answers[move.move_id] = answer

    def _holes(self, move: state.Move) -> thin_map.Holes:
        """What the source says that it never had."""
        answer = self._answers.pop(move.move_id, None)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            answer = self._ask(move)
        self._silent.pop(move.volume_id, None)
        return answer

    def _ask(self, move: state.Move) -> thin_map.Holes:
        try:
            return rpc.at(move.source, never_written.of_source, self._node,
                          move.move_id, move.token.nonce)
        except ERRORS:
            self._silent[move.volume_id] = move
            raise

    def _forget(self, move: state.Move) -> None:
        """Ask the source of a move no more."""
        self._silent.pop(move.volume_id, None)
        self._answers.pop(move.move_id, None)

    def expect(self, moves: Iterable[state.Move]) -> None:
        """To be called once this service has looked at all for the first time.

        :param moves: from and to this node: what goes on was begun before
        """
        if self.memory.interrupted is None:
            self.memory.interrupted = {move.move_id for move in moves}

    def resume(self, move: state.Move) -> bool:
        """What was lost before this service runs is copied again at once.

        Later than a service starts, as its peer may start as well.

        :param move: committed, in phase "migrating", whose clone is there
        :returns: whether it may be copied on: what is copied beside it, in
            the same block of the pool, would hide what was lost. What can't
            be seen for too long is looked for when all is copied; what can't
            be copied for too long keeps the source
        :raises PoolFails: if something can't be seen or copied and the pool
            here can't write its metadata: so long nothing is copied on
        """
        interrupted = self.memory.interrupted
        if not interrupted or move.move_id not in interrupted:
            return True
        try:
            # It maps blocks all the time. Whoever drives it goes on.
            self._node.clones.set_hydration(move.move_id, False)
            # What was local then was mapped then, whoever has mapped it.
            local = self._node.clones.recorded_as_local(move)
            here = self._compare_maps(move)
            lost = self._missing(move, thin_map.common(
                thin_map.scaled(local, self._factor(move)), here))
            if lost or move.move_id in self.memory.known:
                tags = self._tags(move)
                self._recall(move, tags)
                # What it has of that is known from now on.
                del self.memory.suspected[move.move_id]
                self._restore(move, lost, here, tags)
            self.memory.suspected.pop(move.move_id, None)
        except exceptions.Lacking:
            pass  # all that can be; its source stays
        except ERRORS as exc:
            self._check_pool(move)
            if not self._has_waited(move, exc):
                return False
            if self._is_known(move):
                self._mark(move)  # if that was what has failed
            # Where it is lost again, what is copied from now on hides that.
            self.memory.copied.pop(move.move_id, None)
        self.memory.unseen.pop(move.move_id, None)
        interrupted.discard(move.move_id)
        self._forget(move)
        return True

    def ensure_whole(self, move: state.Move) -> bool:
        """See that all that the source has is here; the lock is held.

        :param move: committed, in phase "migrating", and fully copied
        :returns: False if that can't be seen now. Not for ever, as the source
            may never come back: then the clone is taken at its word, unless
            something is known to be lost
        :raises PoolFails: if the pool here can't write its metadata: so long
            the source stays
        :raises NotAllCopied: if what was lost is lost again
        :raises Lacking: if something may be lost for good
        :raises LocalCloneError: if what was lost can't be copied now. If an
            operator has accepted it, it ends nevertheless: at once if all
            that can be was copied, else not before it has waited
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
                    and move.source not in self._node.services.by_host()):
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

    # -- both maps, in blocks that are no larger than a region

    def _factor(self, move: state.Move) -> int:
        """How many blocks a region has."""
        return int(max(
            1, move.geometry.region_sectors * state.SECTOR // BLOCK))

    def _all(self, move: state.Move) -> thin_map.Holes:
        return thin_map.scaled(
            [[0, move.geometry.regions(move.size_bytes)]], self._factor(move))

    def _compare_maps(self, move: state.Move) -> thin_map.Holes:
        """What is not mapped here.

        What was copied again, and is mapped, is lost no more. What is missing
        stays lost, whoever maps it later: that may be a part of it.
        """
        here = self._node.clones.unmapped(move, self._factor(move))
        known = self.memory.known
        found = thin_map.without(
            self.memory.copied.pop(move.move_id, ()), here)
        if found:
            known[move.move_id] = thin_map.without(
                known[move.move_id], found)
            self.memory.unseen.pop(move.move_id, None)  # it goes on
        return here

    def _missing(self, move: state.Move, here: thin_map.Holes
                 ) -> thin_map.Holes:
        """What the source has of it, and of what was suspected before.

        :param here: what is not mapped, though on record as local
        :raises Forgotten: if its node was
        :raises PeerUnreachable: if its service is down
        """
        suspected = self.memory.suspected[move.move_id] = thin_map.union(
            self.memory.suspected.get(move.move_id, ()), here)
        if not suspected:
            return ()
        runs = self._node.services.by_host().get(move.source)
        if runs is None:
            raise exceptions.Forgotten(host=move.source)
        if not runs:
            raise exceptions.PeerDown(host=move.source)
        return thin_map.without(suspected, thin_map.scaled(
            self._holes(move), self._factor(move)))

    # -- what is known to be lost

    def _is_known(self, move: state.Move) -> bool:
        """Whether something is known to be lost."""
        return bool(self.memory.known.get(move.move_id))

    def _recall(self, move: state.Move, tags: frozenset[str]) -> None:
        """What an earlier service has known to be lost, whatever it was."""
        if names.LACKING in tags and move.move_id not in self.memory.known:
            self.memory.known[move.move_id] = self._all(move)
            self.memory.read.add(move.move_id)

    def _restore(self, move: state.Move, lost: thin_map.Holes,
                 here: thin_map.Holes, tags: frozenset[str]) -> None:
        """Copy what was lost; the copy is marked until all of it has been.

        What is mapped by then although this did not copy it may be there in
        part: a guest has written to it, say, or an earlier service was
        killed. The map does not tell any more.

        :param here: what is not mapped
        :param tags: of the LV
        :raises Lacking: if so
        """
        if not lost and move.move_id not in self.memory.known:
            return
        self.memory.known[move.move_id] = thin_map.union(
            self.memory.known.get(move.move_id, ()), lost)
        if self._is_known(move) and names.LACKING not in tags:
            self._mark(move)
        try:
            self._refill(move, thin_map.common(lost, here))
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
            # Later a guest may hide what is lost again.
            try:
                self._compare_maps(move)
            except exceptions.PoolFails:
                raise
            except ERRORS:
                pass  # until the next look
            raise
        finally:
            events.say(events.COPIED_AGAIN, volume=move.volume_id,
                       source=move.source, size=_kib(missing, move),
                       copied=size)
        missing = thin_map.common(missing, self._compare_maps(move))
        if missing:
            raise exceptions.NotAllCopied(
                volume=move.volume_id, host=self._node.host,
                size=_kib(missing, move), end=self._end(move))

    def _forget_read(self, move: state.Move) -> None:
        """Whoever has read zeros reads again."""
        if move.move_id in self.memory.read:
            self._node.handles.forget_read(move.volume_id)
            self.memory.read.remove(move.move_id)

    def _mark(self, move: state.Move) -> None:
        """Whatever comes now, its source stays."""
        self._node.lvm.mark(move.destination_lv, names.LACKING)

    def _unmark(self, move: state.Move) -> None:
        """If all that was known to be lost was seen to be there."""
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

    # -- what can't be seen

    def _check_pool(self, move: state.Move) -> None:
        """Whatever has failed: a pool here that fails is waited for.

        :raises PoolFails: if it does
        """
        try:
            self._node.clones.check_pool(move)
        except exceptions.PoolFails:
            self.memory.unseen.pop(move.move_id, None)  # that is no wait
            raise
        except ERRORS:
            pass  # that says nothing

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
            return True  # nobody expects it back
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
