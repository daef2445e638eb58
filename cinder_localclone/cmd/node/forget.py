# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone node forget``: remove a dead node from the records.

Only records are changed: the node is not needed, and no data is removed from a
disk. Each step compares before it acts, and can be repeated.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import typing

from cinder_localclone.cmd import base
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.service import operator as backends

NOTHING = 'nothing'
MIGRATED = 'when Cinder\'s own migration has ended'


def _copied(backend: backends.Backend, move: state.Move) -> float | None:
    """Return the copied percentage of a move; None if unknown."""
    answer, _problem = backend.ask(
        move.destination, 'inspect', move.volume_id)
    clone = (answer or {}).get('clone')
    if not clone:
        return None
    percent: float = 100.0 * clone['hydrated'] / max(1, clone['regions'])
    return percent


@dataclasses.dataclass(frozen=True)
class Step:
    """The part of a volume on the node, with its loss and its future.

    :param what: the role of the node for the volume
    :param lost: the loss, in words
    :param then: the result, in words
    :param act: takes the step; None if nothing has to be done
    """

    volume_id: str
    what: str
    lost: str
    then: str
    act: Callable[[], object] | None = None


class Forget(base.Command):
    """Forget a node lost for good; show the losses first.

    Without --yes nothing is changed and the exit code is 1; it is also 1 if a
    step failed. Refused while the node's volume service is up. No data is
    removed from a disk.
    """

    example = 'node forget node3@localclone'
    changes = 'records, with --yes'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the node and --yes."""
        parser = base.with_service(super().get_parser(prog_name))
        parser.add_argument('--yes', action='store_true',
                            help='forget the node; default: only show the '
                            'losses')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend, host = self.app.backend(), parsed_args.node
        new_home = self._new_home(backend, host)
        # First, because no home is corrected during a migration.
        ended = (backend.db.interrupted.end_interrupted(host)
                 if parsed_args.yes else {})
        steps = plan(
            backend.db, host, new_home,
            lambda move: _copied(backend, move),
            lambda volume, other: backend.call(
                other, 'has_lv', volume.id, volume.name))
        if not steps and host not in backend.nodes():
            raise errors.CommandError(
                'The node %s has no volumes, moves or volume service. '
                '"cinder-localclone node list" lists the nodes of this '
                'backend.' % host)
        if not parsed_args.yes:
            self.app.exit_code = 1
            print('Nothing was changed. To forget the node, pass --yes.',
                  file=self.app.stderr)
            return ('Volume', 'Role', 'Lost', 'Then'), [
                (step.volume_id, step.what, step.lost, step.then)
                for step in steps] + [
                    ('', 'volume service', NOTHING, 'forgotten')]
        rows = [
            (volume_id, 'Cinder\'s own migration has ended: ' + how)
            for volume_id, how in ended.items()]
        rows += [(step.volume_id, self._done(step)) for step in steps]
        if not self.app.exit_code and (
                backend.db.decommission.forget_service(host)):
            rows.append(('', 'the volume service is forgotten'))
        return ('Volume', 'What'), rows

    def _done(self, step: Step) -> str:
        """Take a step and return its result; an error stops this step only."""
        try:
            if step.act:
                step.act()
        except Exception as exc:
            self.app.exit_code = 1
            return 'failed: ' + base.in_words(exc)
        return step.then

    @staticmethod
    def _new_home(backend: backends.Backend, host: str) -> str:
        """Return this node with its pool, the new home of lost volumes."""
        if backend.db.services.alive_by_host().get(host):
            raise errors.CommandError(
                'The volume service %s is up. Nothing was changed. To take a '
                'node out of service, empty it first: "cinder-localclone node '
                'drain %s".' % (host, host))
        if host == backend.host:
            raise errors.CommandError(
                '%s is this node. Nothing was changed. Run the command on '
                'another node.'
                % host)
        if host.partition('@')[2] != backend.name:
            raise errors.CommandError(
                '%s is not a node of the backend %s: pass a volume service '
                'as listed by "node list", without a pool. Nothing was '
                'changed.' % (
                    host, backend.name))
        answer, problem = backend.ask(backend.host, 'describe')
        if answer is None:
            raise errors.CommandError(
                'The volume service of this node did not answer. Nothing was '
                'changed. Start it first: the lost volumes get this node as '
                'their home, and can be deleted from here. ' + problem)
        new_home: str = answer['host']
        return new_home


def plan(db: records.Database, host: str, new_home: str,
         copied: Callable[[state.Move], float | None],
         has_lv: Callable[[Volume, str], bool]) -> list[Step]:
    """Return the steps in their order; none for an unknown node.

    :param host: service host of the node
    :param new_home: service host, with pool, of the new home of lost volumes,
        where they can be deleted
    :param copied: ``copied(move)``: the copied percentage, or None
    :param has_lv: ``has_lv(volume, node)``: whether a node has the LV of a
        volume; raises LocalCloneError if the node does not answer
    """
    volumes = [
        volume for each in db.volumes.volumes_of(host)
        if (volume := db.volumes.volume(each.id)) is not None
        # Compared once more, because a step gives up a volume for good.
        and names.service_host(volume.host) == host]
    known = db.services.alive_by_host()
    has_lv = _asked_once(has_lv)
    others = {volume.id: names.other_node(
        volume.home if volume.is_misplaced and volume.home in known
        else db.volumes.service_of(volume.id), host) for volume in volumes}
    moves = [_with_home(move, others.get(move.volume_id))
             for move in db.moves.moves_of(host)]
    current = {move.volume_id: move for move in moves if not move.is_over}
    of_volumes, stopped = list[Step](), set[str]()
    for volume in volumes:
        move = current.get(volume.id)
        if move and _goes_back(move, host):
            continue
        step = _of_other_home(db, volume, others[volume.id], has_lv)
        if not step and (
                step := _of_renamed(db, volume, host, has_lv, known)):
            stopped.add(volume.id)  # its record tells of the new name
        of_volumes.append(step or _of_volume(db, volume, move, new_home))
    steps = [step for move in moves if move.volume_id not in stopped
             for step in _of_move(db, host, move, copied)] + of_volumes
    steps += _of_misplaced(db, host, new_home, has_lv, known)
    return steps + list(_of_snapshots(db, host))


def _asked_once(has_lv: Callable[[Volume, str], bool]
                ) -> Callable[[Volume, str], bool]:
    """Return has_lv for which a node that did not answer is not asked again.

    Each call without an answer lasts several seconds, and there may be
    thousands of volumes.
    """
    silent = dict[str, exceptions.PeerUnreachable]()

    def ask(volume: Volume, node: str) -> bool:
        if node in silent:
            raise silent[node]
        try:
            return has_lv(volume, node)
        except exceptions.PeerUnreachable as exc:
            silent[node] = exc
            raise
    return ask


def _with_home(move: state.Move, home: str | None) -> state.Move:
    """Return a move with its volume's home, if the row names another node.

    The row tells the destination of a committed move.

    :param home: by the service in the row; '' or None: as in the row
    """
    return (dataclasses.replace(move, destination=home)
            if home and move.committed else move)


def _goes_back(move: state.Move, host: str) -> bool:
    """Return whether the guest of a live move may still be at its source."""
    return (move.committed and move.phase is Phase.STARTING
            and host == move.destination != move.source)


def _of_move(db: records.Database, host: str,
             move: state.Move, copied: Callable[[state.Move], float | None]
             ) -> Iterator[Step]:
    if move.is_over:
        if move.cleanup_node == host:
            yield Step(
                move.volume_id, 'pending cleanup of a move', NOTHING,
                'the cleanup is cancelled', lambda: _finish(db, move))
    elif not move.committed:
        yield _roll_back(db, host, move)
    elif _goes_back(move, host):
        yield _back(db, move)
    elif move.source == host != move.destination:
        starting = move.phase is Phase.STARTING
        yield Step(
            move.volume_id, 'source of a move', _not_copied(
                move, copied(move)),
            'copied data can be used on %s' % move.destination,
            (lambda: db.moves.advance(move, Event.SOURCE_DETACHED))
            if starting else None)


def _roll_back(db: records.Database, host: str, move: state.Move) -> Step:
    """The step of a move that is not committed."""
    def fail() -> None:
        failed = db.moves.advance(move, Event.FAILED)
        if failed.cleanup_node == host:
            _finish(db, failed)
    return Step(
        move.volume_id, 'uncommitted move %s it' % (
            'to' if move.destination == host else 'from'),
        NOTHING if move.destination == host else 'see the row of the volume',
        'rolled back', fail)


def _back(db: records.Database, move: state.Move) -> Step:
    """The step of a live move whose guest may still be at its source."""
    return Step(
        move.volume_id, 'destination of a live migration',
        'writes on the lost node', 'back on %s' % move.source,
        lambda: _finish(db, db.moves.roll_back(move)))


def _finish(db: records.Database, move: state.Move) -> None:
    db.moves.finish(move, Event.SOURCE_REMOVED if move.committed
                    else Event.DESTINATION_REMOVED)


def _not_copied(move: state.Move, percent: float | None) -> str:
    if move.phase is Phase.COMPLETING or percent == 100:
        return NOTHING
    if percent is None:
        return 'data not yet copied (unknown amount)'
    return 'data not yet copied (%.1f %%)' % (100 - percent)


def _of_other_home(db: records.Database, volume: Volume, home: str,
                   has_lv: Callable[[Volume, str], bool]
                   ) -> Step | None:
    """The step of a volume whose row names the node by mistake.

    Its move or the service in the row tells its home then: see
    :mod:`.volumes.homes`.

    :param home: by its move or this service; '' if it is the node itself
    :returns: None if the node is its home, as far as its row tells
    """
    if not home:
        return None
    what = 'home of the volume (%s) by mistake' % volume.status
    try:
        if not (volume.is_misplaced and volume.home == home
                or has_lv(volume, home)):
            return None
    except exceptions.LocalCloneError as exc:
        return Step(
            volume.id, what, 'unknown: %s may have the volume' % home,
            'not changed', functools.partial(_leave, home, exc))
    if volume.is_migrated_by_cinder:
        # With --yes it has ended by now, unless the home may be at work on it.
        return Step(volume.id, what, NOTHING, 'at %s, %s' % (home, MIGRATED),
                    functools.partial(_still_migrates, volume.id, home))
    return Step(volume.id, what, NOTHING, 'at %s' % home,
                lambda: _correct_home(db, volume, home))


def _leave(home: str, error: Exception) -> typing.NoReturn:
    raise errors.CommandError(
        '%s may have the volume. Nothing was changed. Run the command again '
        'when the other node answers. If the other node is lost, too, forget '
        'it first. %s' % (home, error))


def _stop(node: str, volume: Volume) -> typing.NoReturn:
    raise errors.CommandError(
        '%s has the LV %s of the volume. Nothing was changed. If this node '
        'was renamed, the row of the volume must name it as host. If it has a '
        'copy of the lost disk, rename the LV. Then run the command again.'
        % (node, volume.name))


def _correct_home(db: records.Database, volume: Volume, home: str) -> None:
    if not db.volumes.correct_home(volume, home):
        found = db.volumes.volume(volume.id)
        if found is None or names.service_host(found.host) != home:
            raise exceptions.StaleMove(volume=volume.id)
        # The end of a move's record, in an earlier step, has corrected it.


def _of_misplaced(db: records.Database, host: str, new_home: str,
                  has_lv: Callable[[Volume, str], bool],
                  known: Mapping[str, bool]) -> Iterator[Step]:
    """Yield the steps of volumes whose rows name another node by mistake.

    The move or the service in the row names the lost node: the home may have
    been written late, see :mod:`.volumes.homes`. Nothing tells of the loss
    once this service is forgotten.
    """
    for volume_id in db.volumes.volumes_with_wrong_host(
            host, migrating=True):
        volume = db.volumes.volume(volume_id)
        if volume is None:
            continue
        named = names.service_host(volume.host)
        move = db.moves.move_of(volume_id)
        if move and _goes_back(move, host):
            continue  # _of_move has its step
        try:
            if not volume.is_misplaced and has_lv(volume, named):
                continue  # only the service in the row is wrong
        except exceptions.LocalCloneError as exc:
            yield Step(
                volume_id, 'home of the volume (%s), unless it is at %s' % (
                    volume.status, named),
                'unknown: %s' % exc, 'not changed')
            continue
        renamed = _of_renamed(db, volume, host, has_lv, known)
        if renamed:
            yield renamed
        elif volume.is_migrated_by_cinder:
            # With --yes its migration has ended by now, unless the other home
            # may be at work on it.
            yield Step(
                volume_id, 'home of the volume (migrating)',
                'the whole volume', 'in status "error", ' + MIGRATED,
                functools.partial(_still_migrates, volume_id, named))
        elif move and move.committed and move.phase is Phase.STARTING:
            yield _back(db, move)
        else:
            if move and not move.committed and (
                    host not in (move.source, move.destination)):
                # The row names the source; it is the lost node in fact.
                yield _roll_back(db, host, move)
            yield _of_volume(db, volume, move, new_home)


def _still_migrates(volume_id: str, node: str) -> typing.NoReturn:
    raise errors.CommandError(
        'Cinder may still be migrating the volume on %s. Nothing was changed. '
        'Run the command again when the migration has ended. If none is under '
        'way, first run "cinder reset-state --reset-migration-status %s".' % (
            node, volume_id))


def _of_renamed(db: records.Database, volume: Volume, host: str,
                has_lv: Callable[[Volume, str], bool],
                known: Mapping[str, bool]) -> Step | None:
    """Return the step of a volume whose home may live by another name.

    The record of its move has the former name, or its row a service that was
    removed. All living nodes are asked.

    :param known: by service host: whether the node lives
    :returns: None if no node has its LV, or its row is right
    """
    if not volume.is_misplaced and db.volumes.service_of(volume.id) in known:
        return None
    what = 'home of the volume (%s), unless the node was renamed' % (
        volume.status)
    for node, alive in sorted(known.items()):
        if not alive or node == host or not names.same_backend(node, host):
            continue
        try:
            if has_lv(volume, node):
                return Step(volume.id, what, NOTHING, 'not changed',
                            functools.partial(_stop, node, volume))
        except exceptions.LocalCloneError as exc:
            return Step(
                volume.id, what, 'unknown: %s may have the volume' % node,
                'not changed', functools.partial(_leave, node, exc))
    return None


def _of_volume(db: records.Database,
               volume: Volume, move: state.Move | None,
               new_home: str) -> Step:
    lost = 'the whole volume'
    if move and move.committed:
        lost = ('writes since its move began; the LV %s on %s has older '
                'data' % (move.source_lv, move.source))
    return Step(
        volume.id, 'home of the volume (%s)' % volume.status, lost,
        'in status "error", to be deleted from %s' %
        names.service_host(new_home),
        lambda: db.decommission.give_up(volume, new_home))


def _of_snapshots(db: records.Database, host: str) -> Iterator[Step]:
    """Yield a step for each snapshot; snapshots do not move."""
    found = db.snapshots.snapshots(db.decommission.snapshots_on(host))
    for snapshot in sorted(found.values(), key=lambda each: each.id):
        if snapshot.status not in statuses.SNAPSHOT_GIVEN_UP:
            yield Step(
                snapshot.volume_id, 'its snapshot %s' % snapshot.id,
                'the whole snapshot', 'in status "error", to be deleted',
                functools.partial(db.decommission.give_up_snapshot,
                                  snapshot.id, host))
