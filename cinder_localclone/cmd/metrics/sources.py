# SPDX-License-Identifier: Apache-2.0
"""The sources of metrics, each with its own thread and time limit.

The number of commands and queries does not depend on the number of volumes. A
source that fails or hangs does not delay the others. It is not asked again
before it has answered.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import os
import threading
import time
import typing

from cinder_localclone.cmd import base
from cinder_localclone.cmd.doctor import checks
from cinder_localclone.core import copies
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
    """The answer of a source.

    :param value: None after an error
    :param problem: the error; '' after success
    :param seconds: the duration of the query
    """

    value: typing.Any
    problem: str = ''
    seconds: float = 0.0


class Source:
    """A source of metrics.

    :param read: reads the source; any error counts as its failure
    :param keep: seconds for which an answer is reused
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
        """Read the source, unless a read is running or its answer is fresh."""
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
            answer = Answer(None, base.in_words(exc))
        finally:  # also after BaseException, or it would never be read again
            self._answer = dataclasses.replace(
                answer, seconds=self._clock() - begun)
            self._done.set()

    def answer(self, deadline: float) -> Answer:
        """Return the answer, or a failure at the deadline."""
        if not self._done.wait(max(0.0, deadline - self._clock())):
            return Answer(None, 'no answer in time',
                          self._clock() - (self._begun or 0.0))
        return self._answer or Answer(None, 'no answer')


# -- their values

def reporting_node(move: state.Move) -> str:
    """Return the node that reports a move."""
    return move.cleanup_node if move.is_over else move.destination


@dataclasses.dataclass(frozen=True)
class Storage:
    """The state of LVM and device-mapper for the backend on this node.

    :param clones: by the IDs of their move records
    :param reencrypting: IDs of volumes with a running re-encryption
    :param how_far: progress of re-encryptions, by volume ID
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
    """The state of the backend in Cinder's database.

    :param services: service hosts, with their liveness
    :param unreadable: the number of unreadable move records
    :param volumes: the volumes of this node
    :param snapshots: the usable snapshots on this node
    :param unended: interrupted operations on this node
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
    """Query LVM and device-mapper."""
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
    """Query Cinder's database."""
    from cinder_localclone.cmd.doctor import stuck
    db, nodes = backend.db, backend.nodes()
    moves, unreadable = db.inventory.all_moves(backend.name)
    entries = db.queue.copies(backend.host)
    dead = {host for each in entries for host in each.hosts
            if not nodes.get(host)}
    return Database(
        nodes, moves, unreadable,
        db.inventory.all_volumes(backend.name, backend.host),
        copies.positions(entries, options.limits(backend.conf), dead),
        db.inventory.available_snapshots(backend.host),
        [each for each in db.inventory.unended(backend.name, stuck.PATIENCE)
         if each.host == backend.host])


def service(backend: backends.Backend) -> dict[str, typing.Any]:
    """Query this node's volume service."""
    found: dict[str, typing.Any] = backend.call(backend.host, 'figures')
    return found


def doctor(backend: backends.Backend) -> list[checks.Finding]:
    """Return the findings of doctor on this node."""
    from cinder_localclone.cmd.doctor import doctor as doctor_module
    found = doctor_module.node_checks(backend)
    found += checks.limits(backend.conf, backend.settings.rpc_timeout)
    return found + doctor_module.examine(
        'storage', doctor_module.storage_checks, backend)


class Watch:
    """All sources of a backend on this node.

    :param seconds: the time limit of a reading of all sources
    :param doctor_interval: maximum age of doctor's findings, in seconds
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
        """Change the user and import modules, before threads are started.

        If Cinder can't be imported, its sources report this.
        """
        if not os.geteuid():
            backends.act_as_root(self.backend.settings)
        with contextlib.suppress(Exception):
            self.backend.load_cinder()

    def read(self) -> dict[str, Answer]:
        """Read all sources, until the time limit."""
        deadline = time.monotonic() + self._seconds
        for each in self._sources:
            each.begin()
        return {each.name: each.answer(deadline) for each in self._sources}
