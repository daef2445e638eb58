# SPDX-License-Identifier: Apache-2.0
"""One contract of a node's storage, for the simulated one and the real one.

Each scenario is a function that gets a bench: a node on which nothing else is
at work. ``tests/unit/storage/test_storage_contract.py`` runs them on the
simulated world; ``tests/functional/test_storage_contract.py`` on LVM,
device-mapper and iSCSI of a node of the lab, through the driver's privileged
daemon.

A volume has four regions of 256 MiB; a scenario writes and reads one value in
each, through a device or past it.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import typing

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import state

GIB = 1 << 30
REGIONS = 4
GEOMETRY = state.Geometry(128, 32, 8)
#: An initiator that never logs in.
OTHER = 'iqn.2026-11.org.example:other'
AUTH = 'CHAP contractuser contractsecret'


#: All of them, by name.
SCENARIOS: dict[str, Callable[['Bench'], None]] = {}


def scenario(function: Callable[['Bench'], None]
             ) -> Callable[['Bench'], None]:
    SCENARIOS[function.__name__] = function
    return function


class Bench(typing.Protocol):
    """A node, and what is done to it beside the driver.

    :ivar lvm: the driver's LVs; handles, clones: its devices; exports,
        sessions: its iSCSI
    :ivar host: the node's service host
    """

    lvm: typing.Any
    handles: typing.Any
    clones: typing.Any
    exports: typing.Any
    sessions: typing.Any
    host: str

    def volume(self, encrypted: bool = False) -> str:
        """Return the id of a volume of which there is nothing yet.

        :param encrypted: whether its row says that the driver encrypts it
        """

    def move(self, volume_id: str, **values: typing.Any) -> state.Move:
        """Return a move of a volume from this node to this node."""

    def foreign(self, name: str) -> None:
        """Create an LV of 1 GiB that is not the driver's."""

    def locked(self, *what: str) -> contextlib.AbstractContextManager[None]:
        """Hold the locks of volumes, and that of free space."""

    def write(self, device: str, region: int, value: str) -> None:
        """Write to a device of the driver, or to an LV, and flush that."""

    def read(self, device: str, region: int) -> str:
        """Return what was written there; '' for zeros.

        :raises OSError: if it can't be read
        """

    def opened(self, device: str) -> contextlib.AbstractContextManager[None]:
        """Have a device open."""

    def copied(self, move: state.Move) -> None:
        """Wait until the clone of a move has copied all that it copies."""

    def impossible(self) -> contextlib.AbstractContextManager[None]:
        """Expect what the driver is never to ask for, and what fails."""


def same(expected: object, found: object) -> None:
    if expected != found:
        raise AssertionError('%r expected, %r found' % (expected, found))


@contextlib.contextmanager
def refused(error: type[Exception]) -> Iterator[None]:
    """Expect an error of the driver's."""
    try:
        yield
    except error:
        return
    raise AssertionError('nothing raised %s' % error.__name__)


def lv_of(volume_id: str) -> str:
    return 'volume-' + volume_id


def created(bench: Bench, gib: int = 1, **how: typing.Any) -> tuple[str, str]:
    """A volume with an LV: its id, and the LV's name."""
    volume = bench.volume()
    with bench.locked(volume):
        same(True, bench.lvm.create_lv(
            lv_of(volume), gib * GIB, volume, **how))
    return volume, lv_of(volume)


def handled(bench: Bench, *values: str) -> tuple[str, str, str]:
    """A volume with a handle: its id, its LV, and its handle.

    :param values: what is written to it, from its first region on
    """
    volume, lv = created(bench)
    same(True, bench.handles.ensure_handle_on_lv(volume, lv, GIB))
    for region, value in enumerate(values):
        bench.write(names.handle(volume), region, value)
    return volume, lv, names.handle(volume)


def facts(bench: Bench, lv: str) -> dict[str, str]:
    return names.facts(bench.lvm.lvs()[lv].tags)


def sizes(bench: Bench, lv: str) -> tuple[int, int]:
    """How long an LV is, and how much of it users may see."""
    found = bench.lvm.lvs()[lv]
    return found.size, found.shown


# -- LVs

@scenario
def lv_is_created_once(bench: Bench) -> None:
    volume, lv = created(bench)
    bench.write(lv, 0, 'data')
    same(False, bench.lvm.create_lv(lv, GIB, volume))
    found = bench.lvm.lvs()[lv]
    same((GIB, GIB, True, False, False), (
        found.size, found.shown, found.thin, found.readonly, found.opened))
    same({'volume': volume}, facts(bench, lv))
    same(bench.lvm.number_of(lv), found.number)
    same(True, bool(found.number))
    same('data', bench.read(lv, 0))
    same('', bench.read(lv, 1))


@scenario
def lv_is_removed_once(bench: Bench) -> None:
    _volume, lv = created(bench)
    same(True, bench.lvm.remove_lv(lv))
    same(False, bench.lvm.remove_lv(lv))
    same(False, lv in bench.lvm.lvs())
    same('', bench.lvm.number_of(lv))


@scenario
def lv_in_use_stays(bench: Bench) -> None:
    volume, lv, handle = handled(bench, 'data')
    same(True, bench.lvm.lvs()[lv].opened)
    for act in (bench.lvm.remove_lv, bench.lvm.deactivate):
        with bench.impossible():
            act(lv)
    same('data', bench.read(handle, 0))
    same(True, bench.handles.remove_handle(volume))
    same(False, bench.lvm.lvs()[lv].opened)
    same(True, bench.lvm.remove_lv(lv))


@scenario
def lv_that_is_absent(bench: Bench) -> None:
    volume = bench.volume()
    lv = lv_of(volume)
    with refused(exceptions.MissingData):
        bench.handles.ensure_handle_on_lv(volume, lv, GIB)
    with refused(exceptions.MissingData):
        bench.handles.ensure_source(bench.move(volume))
    with refused(exceptions.MissingData):
        bench.handles.ensure_export_device(volume)
    for act in (lambda: bench.lvm.extend_lv(lv, GIB),
                lambda: bench.lvm.mark(lv, names.AWAY),
                lambda: bench.lvm.unmark(lv, names.AWAY),
                lambda: bench.lvm.accept(lv),
                lambda: bench.lvm.mark_uncommitted(lv),
                lambda: bench.lvm.create_snapshot(bench.volume(), lv, volume),
                lambda: bench.lvm.adopt(
                    lv, lv + '-new', names.tags(volume='x')),
                lambda: bench.lvm.deactivate(lv)):
        with refused(exceptions.CommandFailed):
            act()
    with refused(exceptions.MissingData):
        bench.lvm.protect(lv)
    for act in (lambda: bench.lvm.flush_lv(lv),
                lambda: bench.handles.flush_handle(volume),
                lambda: bench.handles.read_head(volume)):
        with bench.impossible():
            act()
    with bench.locked(volume):
        same(False, bench.lvm.disown(lv, 'x'))
    same(False, bench.lvm.resume(lv))
    same('', bench.lvm.number_of(lv))
    same(0, bench.handles.shown_bytes(volume, lv, GIB))
    same(False, bench.lvm.reads_zeros(lv))
    same(False, bench.handles.remove_handle(volume))
    same(False, bench.handles.remove_export_device(volume))
    same(False, bench.clones.remove_clone(volume))
    same(False, bench.handles.remove_source(volume))
    same({}, {name: lv for name in bench.lvm.lvs() if volume in name})
    same({}, bench.handles.devices([names.handle(volume)]))


@scenario
def lv_is_newborn(bench: Bench) -> None:
    _volume, lv = created(bench, uncommitted=True)
    marks = set(names.uncommitted(bench.host))
    for act in (lambda _lv: None, bench.lvm.accept, bench.lvm.accept,
                bench.lvm.mark_uncommitted, bench.lvm.mark_uncommitted):
        act(lv)
        found = bench.lvm.lvs()[lv].tags & marks
        same(set() if act == bench.lvm.accept else marks, set(found))


@scenario
def lv_is_tagged(bench: Bench) -> None:
    volume, lv = created(bench)
    for act, there in ((bench.lvm.mark, True), (bench.lvm.mark, True),
                       (bench.lvm.unmark, False),
                       (bench.lvm.unmark, False)):
        act(lv, names.AWAY)
        same(there, names.AWAY in bench.lvm.lvs()[lv].tags)
        same({'volume': volume}, facts(bench, lv))


@scenario
def lv_is_extended(bench: Bench) -> None:
    volume, lv, handle = handled(bench, 'data')
    with bench.opened(handle):
        same(True, bench.lvm.extend_lv(lv, 2 * GIB))
        for size in (2 * GIB, GIB):
            same(False, bench.lvm.extend_lv(lv, size))
        # Nobody is shown it before it is zeroed.
        same((2 * GIB, GIB), sizes(bench, lv))
        same(GIB, bench.handles.shown_bytes(volume, lv, GIB))
        with refused(exceptions.NotPossible):
            bench.handles.ensure_handle_on_lv(volume, lv, 2 * GIB)
        same(False, bench.handles.ensure_handle_on_lv(volume, lv, GIB))
        same(0, bench.lvm.zero_part(lv))
        bench.lvm.show_lv(lv, 2 * GIB)
        bench.lvm.show_lv(lv, 2 * GIB)
        same((2 * GIB, 2 * GIB), sizes(bench, lv))
        same(True, bench.handles.ensure_handle_on_lv(volume, lv, 2 * GIB))
        same(False, bench.handles.ensure_handle_on_lv(volume, lv, 2 * GIB))
        same(2 * GIB, length(bench, handle))
        same(2 * GIB, bench.handles.shown_bytes(volume, lv, GIB))
        same('', bench.read(handle, 2 * REGIONS - 1))
        bench.write(handle, 2 * REGIONS - 1, 'end')
    same(('data', 'end'), (bench.read(lv, 0), bench.read(lv, 7)))
    same({'volume': volume}, facts(bench, lv))


@scenario
def handle_has_what_users_have_seen(bench: Bench) -> None:
    """Its row says less since an extension has failed."""
    volume, lv, handle = handled(bench, 'data')
    same(True, bench.lvm.extend_lv(lv, 3 * GIB))
    same(0, bench.lvm.zero_part(lv))
    bench.lvm.show_lv(lv, 2 * GIB)
    # One that is there is as long as it was.
    same(False, bench.handles.ensure_handle_on_lv(volume, lv, GIB))
    same(GIB, length(bench, handle))
    bench.handles.remove_handle(volume)
    same(True, bench.handles.ensure_handle_on_lv(volume, lv, GIB))
    same(2 * GIB, length(bench, handle))


@scenario
def lv_is_deactivated(bench: Bench) -> None:
    volume, lv = created(bench)
    bench.write(lv, 0, 'data')
    bench.lvm.deactivate(lv)
    same('', bench.lvm.number_of(lv))
    same('', bench.lvm.lvs()[lv].number)
    bench.lvm.activate(lv)
    bench.lvm.activate(lv)
    same(True, bool(bench.lvm.number_of(lv)))
    bench.lvm.deactivate(lv)
    # A handle has it activated.
    same(True, bench.handles.ensure_handle_on_lv(volume, lv, GIB))
    same('data', bench.read(names.handle(volume), 0))


@scenario
def lv_of_others_is_adopted_and_left(bench: Bench) -> None:
    volume = bench.volume()
    foreign, lv = 'foreign-' + volume, lv_of(volume)
    bench.foreign(foreign)
    bench.write(foreign, 0, 'data')
    with bench.locked(volume):
        same(False, bench.lvm.disown(foreign, 'x'))
        bench.lvm.adopt(foreign, lv, names.tags(volume=volume))
        same({'volume': volume}, facts(bench, lv))
        same((False, 'data'), (foreign in bench.lvm.lvs(),
                               bench.read(lv, 0)))
        same(True, bench.lvm.disown(lv, foreign))
        same(({}, False), (facts(bench, foreign), lv in bench.lvm.lvs()))
        same(False, bench.lvm.disown(foreign, 'x'))
    same('data', bench.read(foreign, 0))


@scenario
def lv_gets_no_name_of_another(bench: Bench) -> None:
    volume, lv = created(bench)
    other, taken = created(bench)
    bench.write(lv, 0, 'data')
    bench.write(taken, 0, 'other')
    with refused(exceptions.CommandFailed):
        bench.lvm.adopt(lv, taken, names.tags(volume=volume))
    with bench.locked(volume):
        # Tags go in any case, the name only if it is free.
        same(True, bench.lvm.disown(lv, taken))
    same(('data', 'other'), (bench.read(lv, 0), bench.read(taken, 0)))
    same(({}, {'volume': other}), (facts(bench, lv), facts(bench, taken)))


# -- snapshots and copies

@scenario
def snapshot_keeps_its_moment(bench: Bench) -> None:
    volume, lv, handle = handled(bench, 'old')
    snapshot = bench.volume()
    name = names.snapshot_lv(snapshot)
    same(None, bench.lvm.create_snapshot(snapshot, lv, volume))
    found = bench.lvm.lvs()[name]
    same((GIB, '', True, True), (
        found.size, found.number, found.readonly, found.thin))
    same({'snapshot': snapshot, 'of': volume},
         {key: value for key, value in facts(bench, name).items()
          if key in ('snapshot', 'of')})
    same(True, names.node_tag(bench.host) in found.tags)
    bench.write(handle, 0, 'new')
    same(True, bench.handles.ensure_handle_on_snapshot(snapshot, GIB))
    same(False, bench.handles.ensure_handle_on_snapshot(snapshot, GIB))
    same(('old', 'new'), (bench.read(names.handle(snapshot), 0),
                          bench.read(handle, 0)))
    # One that somebody reads is not taken again.
    with bench.impossible():
        bench.lvm.create_snapshot(snapshot, lv, volume)
    same('old', bench.read(names.handle(snapshot), 0))
    same(True, bench.handles.remove_handle(snapshot))
    same(None, bench.lvm.create_snapshot(snapshot, lv, volume))
    same(True, bench.handles.ensure_handle_on_snapshot(snapshot, GIB))
    same('new', bench.read(names.handle(snapshot), 0))


@scenario
def copy_outlives_its_origin(bench: Bench) -> None:
    volume, lv, _handle = handled(bench, 'old', 'kept')
    copy = bench.volume()
    name = lv_of(copy)
    with bench.locked(copy):
        bench.lvm.create_copy(name, lv, GIB, 2 * GIB, copy)
    found = bench.lvm.lvs()[name]
    same((2 * GIB, 2 * GIB, False, True), (
        found.size, found.shown, found.readonly, bool(found.number)))
    same(True, found.tags >= {*names.uncommitted(bench.host),
                              *names.volume_tags(copy, 0)})
    same(True, bench.handles.ensure_handle_on_lv(copy, name, 2 * GIB))
    bench.write(names.handle(copy), 0, 'own')
    same(True, bench.handles.remove_handle(volume))
    same(True, bench.lvm.remove_lv(lv))
    same(['own', 'kept', '', ''], [
        bench.read(names.handle(copy), each) for each in range(4)])
    same('', bench.read(names.handle(copy), 2 * REGIONS - 1))


@scenario
def lv_is_protected(bench: Bench) -> None:
    _volume, lv = created(bench)
    bench.write(lv, 0, 'data')
    bench.lvm.protect(lv)
    bench.lvm.protect(lv)
    found = bench.lvm.lvs()[lv]
    same((True, ''), (found.readonly, found.number))


# -- handles

def length(bench: Bench, device: str) -> int:
    """How long a device is, in bytes."""
    found: int = bench.handles.devices([device])[device].sectors * state.SECTOR
    return found


@scenario
def handle_is_made_once(bench: Bench) -> None:
    volume, lv, handle = handled(bench, 'data')
    same(False, bench.handles.ensure_handle_on_lv(volume, lv, GIB))
    found = bench.handles.devices()[handle]
    same((0, False, 'linear'), (
        found.opened, found.suspended, found.target))
    same((GIB, {handle}), (length(bench, handle),
                           set(bench.handles.devices([handle, 'x']))))
    same('data', bench.read(lv, 0))
    same(None, bench.handles.read_head(volume))
    same(None, bench.handles.flush_handle(volume))
    same(True, bench.handles.remove_handle(volume))
    same(False, bench.handles.remove_handle(volume))
    same('data', bench.read(lv, 0))


@scenario
def handle_in_use_stays(bench: Bench) -> None:
    volume, _lv, handle = handled(bench, 'data')
    with bench.opened(handle):
        same(1, bench.handles.devices()[handle].opened)
        with bench.impossible():
            bench.handles.remove_handle(volume)
        same('data', bench.read(handle, 0))
    same(0, bench.handles.devices()[handle].opened)
    same(True, bench.handles.remove_handle(volume))


@scenario
def handle_is_swapped_in_use(bench: Bench) -> None:
    volume, lv, handle = handled(bench, 'one')
    _other, second = created(bench)
    bench.write(second, 0, 'two')
    with refused(exceptions.NotPossible):
        bench.handles.ensure_handle_on_lv(volume, second, GIB, swaps=False)
    same('one', bench.read(handle, 0))
    with bench.opened(handle):
        same(True, bench.handles.ensure_handle_on_lv(volume, second, GIB))
        same(('two', 1), (bench.read(handle, 0),
                          bench.handles.devices()[handle].opened))
        bench.write(handle, 1, 'on it')
    same(('', 'on it'), (bench.read(lv, 1), bench.read(second, 1)))
    same((False, True), tuple(
        bench.lvm.lvs()[each].opened for each in (lv, second)))
    same(False, bench.handles.ensure_handle_on_lv(
        volume, second, GIB, swaps=False))


@scenario
def handle_never_gets_shorter_in_use(bench: Bench) -> None:
    volume, lv = created(bench, 2)
    handle = names.handle(volume)
    same(True, bench.handles.ensure_handle_on_lv(volume, lv, 2 * GIB))
    _other, second = created(bench, 2)
    with bench.opened(handle):
        for name, swapped in ((lv, False), (second, True)):
            same(swapped, bench.handles.ensure_handle_on_lv(volume, name, GIB))
            same(2 * GIB, length(bench, handle))
    # Nor while all of it may be seen on what it is on.
    same(True, bench.handles.ensure_handle_on_lv(volume, lv, GIB))
    same(2 * GIB, length(bench, handle))


@scenario
def handle_is_not_longer_than_its_lv(bench: Bench) -> None:
    volume, lv = created(bench)
    with bench.impossible():
        bench.handles.ensure_handle_on_lv(volume, lv, 2 * GIB)


@scenario
def handle_counts_what_is_written(bench: Bench) -> None:
    volume, _lv, handle = handled(bench)
    same(0, bench.handles.written(volume))
    bench.read(handle, 0)
    same(0, bench.handles.written(volume))
    bench.write(handle, 0, 'data')
    first = bench.handles.written(volume)
    bench.write(handle, 0, 'data')
    same(True, 0 < first < bench.handles.written(volume))


@scenario
def served_is_what_the_handle_is(bench: Bench) -> None:
    volume, lv, handle = handled(bench, 'data')
    exported = names.export_device(volume)
    same(True, bench.handles.ensure_export_device(volume))
    same(False, bench.handles.ensure_export_device(volume))
    same(GIB, length(bench, exported))
    same(1, bench.handles.devices()[handle].opened)
    with bench.opened(exported):
        same(False, bench.handles.remove_export_device(volume))
        with bench.impossible():
            bench.handles.remove_handle(volume)
    same(True, bench.lvm.extend_lv(lv, 2 * GIB))
    same(0, bench.lvm.zero_part(lv))
    bench.lvm.show_lv(lv, 2 * GIB)
    same(True, bench.handles.ensure_handle_on_lv(volume, lv, 2 * GIB))
    same(2 * GIB, length(bench, exported))
    same(True, bench.handles.remove_export_device(volume))
    same(False, bench.handles.remove_export_device(volume))
    same(True, bench.handles.ensure_export_device(volume))
    # It goes with its handle.
    same(True, bench.handles.remove_handle(volume))
    same({}, bench.handles.devices([exported, handle]))


# -- the source of a move, and the clone

@scenario
def source_of_a_move(bench: Bench) -> None:
    volume, lv, _handle = handled(bench, 'data')
    move = bench.move(volume)
    source = names.source(move.move_id)
    same(True, bench.handles.ensure_source(move))
    same(False, bench.handles.ensure_source(move))
    same(('data', GIB), (bench.read(source, 0), length(bench, source)))
    with bench.opened(source):
        with bench.impossible():
            bench.handles.remove_source(move.move_id)
        with bench.impossible():
            bench.lvm.remove_lv(lv)
    same(True, bench.handles.remove_source(move.move_id))
    same(False, bench.handles.remove_source(move.move_id))


class Cloned(typing.NamedTuple):
    """A volume that is being copied from its LV to another, on one node."""

    move: state.Move
    disk: str
    handle: str
    clone: str
    #: What need not be copied, as the driver has told.
    holes: typing.Any


@contextlib.contextmanager
def cloned(bench: Bench, left_out: bool = True, **values: typing.Any
           ) -> Iterator[Cloned]:
    """A clone that copies nothing yet, of a source with data in two regions.

    :param left_out: whether what the source never wrote counts as copied
    """
    volume, lv = created(bench)
    bench.write(lv, 0, 'first')
    bench.write(lv, 1, 'one')
    move = bench.move(volume, **values)
    holes = bench.lvm.holes(lv, GIB, GEOMETRY)
    same(True, bench.handles.ensure_source(move))
    with bench.locked(volume, move.move_id):
        same(True, bench.exports.export_source(move))
        disk = bench.sessions.attach(move)
        same(disk, bench.sessions.attach(move))
        same(disk, bench.sessions.disk(move))
        with refused(exceptions.MissingData):
            bench.clones.create_metadata(move, {move.destination_lv: None})
        same(True, bench.clones.create_metadata(move, bench.lvm.lvs()))
        same(True, bench.lvm.create_lv(move.destination_lv, GIB, volume,
                                       covered=True))
        same(False, bench.clones.create_metadata(move, bench.lvm.lvs()))
        same(True, bench.clones.ensure_clone(
            move, disk, holes if left_out else ()))
        same(False, bench.clones.ensure_clone(move, disk, ()))
        same(True, bench.handles.ensure_handle_on_clone(move))
        same(False, bench.handles.ensure_handle_on_clone(move))
        yield Cloned(move, disk, names.handle(volume),
                     names.clone(move.move_id), holes)
        bench.handles.remove_handle(volume)
        bench.clones.remove_clone(move.move_id)
        bench.sessions.detach(move)
        bench.exports.withdraw_source(move.move_id)
        bench.handles.remove_source(move.move_id)


@scenario
def clone_reads_its_source_and_keeps_what_is_written(bench: Bench) -> None:
    with cloned(bench) as found:
        move = found.move
        status = bench.clones.clone_status(move.move_id)
        same(('rw', False, False), (
            status.mode, status.enabled, status.finished))
        same(['first', 'one', '', ''], [
            bench.read(found.handle, each) for each in range(4)])
        same(status.hydrated,
             bench.clones.clone_status(move.move_id).hydrated)
        bench.write(found.handle, 1, 'new')
        same(['first', 'new'], [
            bench.read(found.handle, each) for each in range(2)])
        same('one', bench.read(move.source_lv, 1))
        same(True, bench.clones.clone_status(move.move_id).hydrated
             > status.hydrated)
        same(['', 'new'], [
            bench.read(move.destination_lv, each) for each in range(2)])
        same(None, bench.clones.read_clone(move.move_id))
        # What uses it keeps it.
        with bench.impossible():
            bench.clones.remove_clone(move.move_id)
        for lv in (move.destination_lv, names.metadata_lv(move.move_id)):
            with bench.impossible():
                bench.lvm.remove_lv(lv)
        same('first', bench.read(found.handle, 0))


@scenario
def clone_is_copied_to_its_end(bench: Bench) -> None:
    with cloned(bench) as found:
        move = found.move
        bench.write(found.handle, 1, 'new')
        same(False, bench.clones.set_hydration(move.move_id, False))
        same(True, bench.clones.set_hydration(move.move_id, True))
        same(False, bench.clones.set_hydration(move.move_id, True))
        bench.copied(move)
        status = bench.clones.clone_status(move.move_id)
        same((True, status.regions), (status.finished, status.hydrated))
        same(None, bench.handles.flush_handle(move.volume_id))
        same(True, bench.clones.set_hydration(move.move_id, False))
        # All is there without the source.
        same(True, bench.handles.ensure_handle_on_lv(
            move.volume_id, move.destination_lv, GIB))
        same(True, bench.clones.remove_clone(move.move_id))
        same(False, bench.clones.remove_clone(move.move_id))
        same(['first', 'new', '', ''], [
            bench.read(found.handle, each) for each in range(4)])
        same(True, bench.lvm.remove_lv(names.metadata_lv(move.move_id)))
        same(False, bench.lvm.remove_lv(names.metadata_lv(move.move_id)))


@scenario
def clone_is_the_same_when_it_is_made_again(bench: Bench) -> None:
    with cloned(bench) as found:
        move = found.move
        bench.write(found.handle, 1, 'new')
        before = bench.clones.clone_status(move.move_id).hydrated
        same(True, bench.handles.remove_handle(move.volume_id))
        same(True, bench.clones.remove_clone(move.move_id))
        same(False, bench.clones.create_metadata(move, bench.lvm.lvs()))
        same(True, bench.clones.ensure_clone(move, found.disk))
        same(before, bench.clones.clone_status(move.move_id).hydrated)
        same(True, bench.handles.ensure_handle_on_clone(move))
        same(['first', 'new', '', ''], [
            bench.read(found.handle, each) for each in range(4)])


@scenario
def clone_without_its_source(bench: Bench) -> None:
    with cloned(bench) as found:
        move = found.move
        bench.write(found.handle, 1, 'new')
        same(True, bench.handles.remove_handle(move.volume_id))
        same(True, bench.clones.remove_clone(move.move_id))
        bench.sessions.detach(move)
        same(None, bench.sessions.disk(move))
        same(True, bench.clones.ensure_clone_alone(move))
        same(False, bench.clones.ensure_clone_alone(move))
        same(True, bench.handles.ensure_handle_on_clone(move))
        same(['new', ''], [
            bench.read(found.handle, each) for each in (1, 3)])
        with refused(OSError):
            bench.read(found.handle, 0)
        with refused(exceptions.CommandFailed):
            bench.clones.read_clone(move.move_id)
        with refused(exceptions.CommandFailed):
            bench.handles.read_head(move.volume_id)


@scenario
def clone_of_a_volume_that_was_extended(bench: Bench) -> None:
    with cloned(bench) as found:
        move = found.move
        same(True, bench.lvm.extend_lv(move.destination_lv, 2 * GIB))
        same(0, bench.lvm.zero_part(move.destination_lv))
        bench.lvm.show_lv(move.destination_lv, 2 * GIB)
        longer = dataclasses.replace(move, volume_gib=2)
        same(True, bench.handles.ensure_handle_on_clone(longer))
        same(False, bench.handles.ensure_handle_on_clone(longer))
        same(2 * GIB, length(bench, found.handle))
        bench.write(found.handle, 7, 'end')
        same(['first', '', 'end'], [
            bench.read(found.handle, each) for each in (0, 4, 7)])
        same('end', bench.read(move.destination_lv, 7))
        bench.handles.remove_handle(move.volume_id)
        same(True, bench.handles.ensure_handle_on_clone(move))
        same(2 * GIB, length(bench, found.handle))


@scenario
def clone_says_what_is_left_to_be_done(bench: Bench) -> None:
    """On record on its metadata LV."""
    with cloned(bench) as found:
        move = found.move
        same((False, False), (bench.clones.needs_hole_search(move),
                              bench.clones.begin_swap(move)))
        for tag in (names.DEFERRED, names.UNMAPPED):
            bench.lvm.mark(names.metadata_lv(move.move_id), tag)
        same((True, True), (bench.clones.needs_hole_search(move),
                            bench.clones.begin_swap(move)))
        bench.clones.note_holes_searched(move)
        same((False, True), (bench.clones.needs_hole_search(move),
                             bench.clones.begin_swap(move)))
        bench.clones.end_swap(move)
        same(False, bench.clones.begin_swap(move))


# -- what is served

@scenario
def source_is_served(bench: Bench) -> None:
    volume, _lv = created(bench)
    move = bench.move(volume)
    same((False, False), (bench.exports.is_source_exported(move.move_id),
                          bench.exports.is_source_exported_as_recorded(move)))
    same(None, bench.sessions.disk(move))
    same(True, bench.handles.ensure_source(move))
    for exported in (True, False):
        same(exported, bench.exports.export_source(move))
    same((True, True), (bench.exports.is_source_exported(move.move_id),
                        bench.exports.is_source_exported_as_recorded(move)))
    same(1, bench.handles.devices()[names.source(move.move_id)].opened)
    with bench.impossible():
        bench.handles.remove_source(move.move_id)
    same(True, bench.exports.withdraw_source(move.move_id))
    same(False, bench.exports.withdraw_source(move.move_id))
    same(False, bench.exports.is_source_exported(move.move_id))
    same(True, bench.handles.remove_source(move.move_id))


@scenario
def source_is_exported_to_its_destination_alone(bench: Bench) -> None:
    volume, _lv = created(bench)
    for lacking in ({'auth': ''}, {'initiator': ''}):
        move = bench.move(volume, **lacking)
        same(True, bench.handles.ensure_source(move))
        with refused(exceptions.ExportFailed):
            bench.exports.export_source(move)
        same((False, False),
             (bench.exports.is_source_exported_as_recorded(move),
              bench.exports.is_source_exported(move.move_id)))
        same(True, bench.handles.remove_source(move.move_id))


@scenario
def only_the_export_that_is_over_is_withdrawn(bench: Bench) -> None:
    volume, _lv = created(bench)
    first, second = bench.move(volume), bench.move(volume)
    for move in (first, second):
        same(True, bench.handles.ensure_source(move))
        bench.exports.export_source(move)
    same(True, bench.exports.withdraw_source(first.move_id))
    same((False, True), tuple(bench.exports.is_source_exported(each.move_id)
                              for each in (first, second)))
    same(True, bench.exports.withdraw_source(second.move_id))


@scenario
def what_is_gone_is_an_error_of_the_driver(bench: Bench) -> None:
    volume = bench.volume()
    move = bench.move(volume)
    with bench.locked(volume, move.move_id):
        for act in (
                lambda: bench.clones.clone_status(move.move_id),
                lambda: bench.clones.set_hydration(move.move_id, True),
                lambda: bench.clones.read_clone(move.move_id),
                lambda: bench.clones.leave_out(move, [[0, 1]]),
                lambda: bench.lvm.zero_part(lv_of(volume)),
                lambda: bench.lvm.note_zeroed(lv_of(volume), GIB),
                lambda: bench.lvm.show_lv(lv_of(volume), GIB),
                lambda: bench.lvm.protect(lv_of(volume)),
                lambda: bench.lvm.extend_lv(lv_of(volume), GIB)):
            with refused(exceptions.LocalCloneError):
                act()


@scenario
def strays_are_withdrawn(bench: Bench) -> None:
    volume, _lv = created(bench)
    kept, gone = bench.move(volume), bench.move(volume)
    for move in (kept, gone):
        same(True, bench.handles.ensure_source(move))
        bench.exports.export_source(move)
    same([gone.move_id], bench.exports.withdraw_strays(
        lambda move_id: move_id == kept.move_id))
    same((True, False), tuple(bench.exports.is_source_exported(each.move_id)
                              for each in (kept, gone)))


@scenario
def volume_is_served(bench: Bench) -> None:
    volume, _lv, handle = handled(bench)
    exports = bench.exports
    same((False, False), (exports.is_exported(volume),
                          exports.is_last(volume, None)))
    told = [exports.export_volume(volume, who, AUTH)
            for who in (OTHER, OTHER + '2')]
    same({each['target_iqn'] for each in told}, exports.remote()[volume])
    same(2, len(exports.remote()[volume]))
    same('contractsecret', told[0]['auth_password'])
    same((True, False, True), (
        exports.is_exported(volume), exports.is_last(volume, OTHER),
        exports.is_last(volume, None)))
    same(1, bench.handles.devices()[handle].opened)
    with bench.impossible():
        bench.handles.remove_handle(volume)
    same(True, exports.withdraw_volume(volume, OTHER))
    same(False, exports.withdraw_volume(volume, OTHER))
    same(True, exports.is_last(volume, OTHER + '2'))
    same(True, exports.withdraw_volume(volume, None))
    same(False, exports.withdraw_volume(volume, None))
    same((False, False), (exports.is_exported(volume),
                          volume in exports.remote()))
    same(0, bench.handles.devices()[handle].opened)


@scenario
def volume_is_served_again(bench: Bench) -> None:
    volume, _lv, _handle = handled(bench)
    exports = bench.exports
    told = exports.export_volume(volume, OTHER, AUTH)
    iqn = told['target_iqn']
    # An attachment may not name yet what was offered a moment ago.
    same(False, exports.withdraw_unnamed(volume, {iqn}))
    same(True, exports.withdraw_unnamed(volume, {iqn}, at_once=True))
    same(False, exports.withdraw_unnamed(volume, {iqn}, at_once=True))
    same(True, exports.export_again(volume, OTHER, told))
    same(False, exports.export_again(volume, OTHER, told))
    same({iqn}, exports.remote()[volume])
    same(True, exports.withdraw_volume(volume, OTHER))
    # That connection was ended here: no attachment makes it again.
    same(False, exports.export_again(volume, OTHER, told))
    same(False, exports.is_exported(volume))
