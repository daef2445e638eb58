# SPDX-License-Identifier: Apache-2.0
"""Where metrics come from: each source by itself, within a time limit.

How many commands and queries it takes does not depend on how many volumes
there are. A source that is away, or hangs, keeps none of the others back, and
is not asked again before it has answered.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import os
import threading
import time
import typing

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.core import copies
from cinder_localclone.core import errors
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.service import operator as backends
from cinder_localclone.service import options

if typing.TYPE_CHECKING:
    from cinder_localclone.db import inventory


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a source has said.

    :param value: None if it has failed
    :param problem: why; '' if it has not
    :param seconds: how long that took
    """

    value: typing.Any
    problem: str = ''
    seconds: float = 0.0


class Source:
    """One of them.

    :param read: asks it; whatever that raises, the source is away
    :param keep: for how many seconds an answer is good enough
    """

    def __init__(self, name: str, read: Callable[[], typing.Any],
                 keep: float = 0.0,
                 clock: Callable[[], float] = time.monotonic):
        self.name = name
        self._read = read
        self._keep = keep
        self._clock = clock
        self._done = threading.Event()
        self._answer: Answer | None = None
        self._begun: float | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Ask it, unless somebody does, or has of late."""
        with self._lock:
            now = self._clock()
            if self._begun is not None and (
                    not self._done.is_set()
                    or now - self._begun < self._keep and self._answer
                    and not self._answer.problem):
                return
            self._begun = now
            self._done.clear()
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        begun, answer = self._clock(), Answer(None, 'it has ended')
        try:
            answer = Answer(self._read())
        except Exception as exc:
            answer = Answer(None, errors.in_words(exc))
        finally:  # or nobody would ever ask it again
            self._answer = dataclasses.replace(
                answer, seconds=self._clock() - begun)
            self._done.set()

    def answer(self, deadline: float) -> Answer:
        """What it has said, by then at the latest."""
        if not self._done.wait(max(0.0, deadline - self._clock())):
            return Answer(None, 'no answer in time',
                          self._clock() - (self._begun or 0.0))
        return self._answer or Answer(None, 'no answer')


# -- what they say

def told_by(move: state.Move) -> str:
    """The node that tells of a move."""
    return move.cleanup_node if move.is_over else move.destination


@dataclasses.dataclass(frozen=True)
class Storage:
    """What LVM and device-mapper show of the backend on this node.

    :param clones: by their shadows' ids
    :param reencrypting: ids of volumes that a process re-encrypts
    :param how_far: what is re-encrypted is, by volume
    """

    present: survey.Survey
    free: lvm_reports.FreeSpace
    capacity: lvm_reports.Capacity
    group: str
    pool: str | None
    clones: dict[str, dm_tables.CloneStatus] = dataclasses.field(
        default_factory=dict)
    reencrypting: frozenset[str] = frozenset()
    how_far: dict[str, cryptsetup_cli.Progress] = dataclasses.field(
        default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Database:
    """What Cinder's database says of the backend.

    :param services: hosts, and whether they are alive
    :param unreadable: records of moves that can't be read
    :param volumes: whose home is this node
    :param snapshots: those on this node that can be used
    :param unended: statuses that nobody ends any more, of this node
    """

    services: dict[str, bool]
    moves: 'list[inventory.Under]'
    unreadable: int
    volumes: 'list[inventory.Row]'
    positions: dict[str, copies.Position]
    snapshots: list[rows.Snapshot] = dataclasses.field(
        default_factory=list)
    unended: 'list[inventory.Unended]' = dataclasses.field(
        default_factory=list)


def storage(backend: backends.Backend) -> Storage:
    """Ask LVM and device-mapper."""
    lvm, handles = backend.lvm(), backend.handles()
    present = handles.survey()
    free, capacity = lvm.space(present.lvs)
    reencrypted = {
        names.facts(lv.tags).get('volume', '')
        for lv in present.lvs.values() if names.REENCRYPTED in lv.tags}
    reencrypting, how_far = backends.reencryptions(reencrypted)
    return Storage(
        present, free, capacity, lvm.group, lvm.pool,
        backend.clones().clone_statuses() if any(
            map(names.move_of_clone, present.devices)) else {},
        reencrypting, how_far)


def database(backend: backends.Backend) -> Database:
    """Ask Cinder's database."""
    from cinder_localclone.cmd.doctor import stuck
    db, nodes = backend.db, backend.nodes()
    moves, unreadable = db.inventory.all_moves(backend.name)
    entries = db.queue.copies(backend.host)
    dead = {host for each in entries for host in each.ends
            if not nodes.get(host)}
    return Database(
        nodes, moves, unreadable,
        db.inventory.all_volumes(backend.name, backend.host),
        copies.positions(entries, options.limits(backend.conf), dead),
        db.inventory.available_snapshots(backend.host),
        [each for each in db.inventory.unended(backend.name, stuck.PATIENCE)
         if each.host == backend.host])


def service(backend: backends.Backend) -> dict[str, typing.Any]:
    """Ask this node's volume service."""
    found: dict[str, typing.Any] = backend.call(backend.host, 'figures')
    return found


def doctor(backend: backends.Backend) -> list[checks.Finding]:
    """What doctor finds on this node."""
    from cinder_localclone.cmd.doctor import doctor as doctor_module
    found = doctor_module.node_checks(backend)
    found += checks.limits(backend.conf, backend.settings.rpc_timeout)
    return found + doctor_module.examine(
        'storage', doctor_module.storage_checks, backend)


class Watch:
    """All sources of one backend on this node.

    :param seconds: for which they are waited for, together
    :param doctor_interval: how old what doctor has found may be
    """

    def __init__(self, backend: backends.Backend, seconds: float,
                 doctor_interval: float):
        self.backend = backend
        self._seconds = seconds
        self._sources = [
            Source('storage', lambda: storage(backend)),
            Source('database', lambda: database(backend)),
            Source('service', lambda: service(backend)),
            Source('doctor', lambda: doctor(backend), doctor_interval)]

    def prepare(self) -> None:
        """What can't be done side by side: who acts, and what is imported.

        If Cinder can't be imported, the sources that need it say so.
        """
        if not os.geteuid():
            backends.act_as_root(self.backend.settings)
        with contextlib.suppress(Exception):
            self.backend.load_cinder()

    def read(self) -> dict[str, Answer]:
        """Ask all of them, and wait for as long as may be."""
        deadline = time.monotonic() + self._seconds
        for each in self._sources:
            each.begin()
        return {each.name: each.answer(deadline) for each in self._sources}
