# SPDX-License-Identifier: Apache-2.0
"""Faults that are planted in the driver: does a schedule find them?

Each is a change of one function: a lock that is not taken, a compare-and-swap
that compares less, an intent that is recorded after the act, a row that is
trusted though it is old, a flush or a wait that is left out.
"""

import contextlib
import importlib
import inspect
import re
import textwrap
import time

from cinder_localclone.core import rpc
from tests.simulation import workers

#: Schedules that are run for each, unless the command line says.
MOST = 2000

#: By name: module, function, a text in it and what stands there instead.
FAULTS = {
    'lock dropped: prepare': (
        'moves.destination', 'prepare',
        'node.lock(move.volume_id if move else move_id)',
        '_contextlib.nullcontext()'),
    'lock dropped: free space': (
        'moves.destination', 'Allocate._allocate',
        'self._node.allocation_lock()', '_contextlib.nullcontext()'),
    'lock dropped: deletion': (
        'volumes.delete', '_locked',
        'locks.enter_context(node.lock(volume_id))', 'pass'),
    'lock dropped: snapshot': (
        'volumes.snapshots', 'take',
        'node.lock(snapshot.volume_id)', '_contextlib.nullcontext()'),
    'lock dropped: extension': (
        'volumes.extend', 'extend', 'with node.lock(volume_id):',
        'with _contextlib.nullcontext():'),
    'swap weakened: token not compared': (
        'tests.world.records', 'Base._check',
        '(recorded.token, recorded.committed) != (\n'
        '                move.token, move.committed)', 'False'),
    'swap weakened: may always move': (
        'core.volume', 'Row.may_move', 'if asked_by is state.Asked.ATTACH:',
        'return True\n    if asked_by is state.Asked.ATTACH:'),
    'stale row: home not read again': (
        'core.node', 'volume_at_home',
        'or volume.home != node.host', ''),
    'stale row: deletion': (
        'volumes.delete', 'delete',
        '    with _locked(node, volume_id):\n'
        '        volume = _at_home(node, volume_id)\n',
        '    volume = _at_home(node, volume_id)\n'
        '    with _locked(node, volume_id):\n'),
    'intent after acting: snapshot': (
        'volumes.snapshots', 'take',
        'node.snapshots.locate(snapshot_id, node.host, volume.encryption)\n'
        '            node.lvm.create_snapshot('
        'snapshot_id, volume.name, volume.id)',
        'node.lvm.create_snapshot(snapshot_id, volume.name, volume.id)\n'
        '            node.snapshots.locate('
        'snapshot_id, node.host, volume.encryption)'),
    'check removed: a volume is made once': (
        'volumes.uncommitted', 'being_created',
        'if row.name in node.lvm.lvs():', 'if False:'),
    'stale row: home written by Cinder': (
        'volumes.homes', 'correct',
        'if is_here else volume', 'if False else volume'),
    'clock: a node goes by its own': (
        'moves.remote_attachment', 'is_being_attached',
        'node.attachments.any_newer(\n'
        '            [each.id for each in unsaid], ATTACHING)',
        'any(each.created_at\n'
        "            > __import__('oslo_utils.timeutils').timeutils.utcnow()\n"
        "            - __import__('datetime').timedelta(seconds=ATTACHING)\n"
        '            for each in unsaid)'),
    'recorded before done: hydration may begin': (
        'moves.source', 'begin_hydration',
        'node.handles.flush_handle(move.volume_id)\n'
        '    released = node.moves.advance('
        'move, state.Event.SOURCE_DETACHED)',
        'released = node.moves.advance(move, state.Event.SOURCE_DETACHED)\n'
        '    rpc.cast(move.destination, peers.reconcile, node,'
        ' move.volume_id)\n'
        '    node.handles.flush_handle(move.volume_id)'),
    'recorded before done: the source may go': (
        'moves.destination', 'RemoveClone.execute',
        'self._node.clones.remove_clone(completing.move_id)\n'
        '    self._node.sessions.detach(completing)\n'
        '    self._node.lvm.remove_lv('
        'names.metadata_lv(completing.move_id))\n'
        '    self._node.moves.advance('
        'completing, state.Event.DRAINED)',
        'self._node.moves.advance(completing, state.Event.DRAINED)\n'
        '    self._node.clones.remove_clone(completing.move_id)\n'
        '    self._node.sessions.detach(completing)\n'
        '    self._node.lvm.remove_lv('
        'names.metadata_lv(completing.move_id))'),
    'recorded before done: all is copied': (
        'moves.destination', 'MarkHydrated.execute',
        'self._node.handles.flush_handle(move.volume_id)\n'
        '    return self._node.moves.advance('
        'move, state.Event.HYDRATED)',
        'found = self._node.moves.advance(move, state.Event.HYDRATED)\n'
        '    self._node.handles.flush_handle(move.volume_id)\n'
        '    return found'),
    'recorded before done: end of a move': (
        'moves.cleanup', 'take_down',
        '    if move.committed:', '    node.moves.finish(move, event)\n'
        '    return\n    if move.committed:'),
    'flush left out: before a move': (
        'moves.source', 'Flush.execute',
        'self._node.handles.flush_handle(volume.id)', 'pass'),
    'flush left out: a live move\'s source': (
        'moves.source', 'begin_hydration',
        'node.handles.flush_handle(move.volume_id)', 'pass'),
    'flush left out: before a copy is complete': (
        'moves.destination', 'MarkHydrated.execute',
        'self._node.handles.flush_handle(move.volume_id)', 'pass'),
    'flush left out: before a snapshot': (
        'volumes.snapshots', 'at_home', 'node.handles.flush_handle(volume_id)',
        'pass'),
    'flush left out: source of a deferred move': (
        'moves.destination', '_put_on_clone',
        'node.handles.switch_to_clone(move, source)',
        'node.handles.switch_to_clone(move, "")'),
    'wait removed: source still open': (
        'moves.source', 'CheckClosed.execute',
        'devices.ensure_closed(self._node, volume.id)', 'pass'),
    'wait removed: source of a live move still open': (
        'moves.source', 'begin_hydration',
        'devices.ensure_closed(node, move.volume_id)', 'pass'),
    'wait removed: destination of a live move still open': (
        'moves.destination', 'roll_back_live',
        'devices.ensure_closed(node, move.volume_id)', 'pass'),
    'wait removed: remote attachment still open': (
        'moves.remote_attachment', 'end',
        'devices.ensure_closed(node, volume_id)', 'pass'),
    'wait removed: deleted volume still open': (
        'volumes.delete', '_close',
        'if not _wait_until_closed(node, volume_id, move):', 'if False:'),
    'wait removed: new end of a volume not zeroed': (
        'volumes.extend', 'extend', 'if rest:', 'if False:'),
    'check removed: destination of a live move written': (
        'moves.destination', 'roll_back_live', 'if written:', 'if False:'),
    'check removed: complete without its source': (
        'moves.destination', 'open_if_complete',
        'if not node.clones.clone_status(move.move_id).finished:',
        'if False:'),
    'order: metadata goes before its LV': (
        'moves.cleanup', 'remove_stack',
        'discard_lv(node, move.destination_lv)\n'
        '    node.lvm.remove_lv(names.metadata_lv(move.move_id))',
        'node.lvm.remove_lv(names.metadata_lv(move.move_id))\n'
        '    discard_lv(node, move.destination_lv)'),
    'order: committed though begun before': (
        'moves.source', 'abandon_interrupted',
        'if move and not move.committed and', 'if False and'),
    'export ended right after its start': (
        'tests.world.iscsi', 'SimExports.withdraw_unnamed',
        'if not at_once:', 'if False:'),
}


@contextlib.contextmanager
def planted(module, function, before, after):
    """Change a function.

    :raises ValueError: if it does not have the text any more
    """
    if not module.startswith('tests.'):
        module = 'cinder_localclone.' + module
    owner = found = importlib.import_module(module)
    *way, name = function.split('.')
    for each in way:
        owner = getattr(owner, each)
    original = vars(owner)[name]
    text = textwrap.dedent(inspect.getsource(
        getattr(original, '__wrapped__', original)))
    # Other lines of what stands there instead are indented as it says.
    pattern = r'\s+'.join(map(re.escape, before.split()))
    text, count = re.subn(pattern, lambda _match: after.strip(), text)
    if not count:
        raise ValueError('%s.%s has no such text' % (module, function))
    names = dict(vars(found), _contextlib=contextlib)
    methods = dict(rpc.METHODS)  # a decorator may put the changed one there
    exec(compile(text, module + ' (planted)', 'exec'), names)
    setattr(owner, name, names[name])
    try:
        yield
    finally:
        setattr(owner, name, original)
        rpc.METHODS.update(methods)


def find(fault, act, size, seed, most, seconds):
    """Plant a fault, and run schedules until one finds it.

    :param act: see :class:`.workers.Crew`
    :param size: how many schedules at a time
    :param most: how many in all
    :returns: (schedules that it took, the failure; None: it was not found)
    """
    with planted(*FAULTS[fault]):
        crew = workers.Crew(act, size)
        failure = crew.run(seed, most, time.monotonic() + seconds)
    return (failure.seed - seed + 1 if failure else crew.count), failure


def main(options, act, size):
    """Look for each fault that is asked for.

    :param act: see :class:`.workers.Crew`
    :param size: how many schedules at a time
    :returns: the exit code
    """
    missed = 0
    for fault in FAULTS:
        if not re.search(options.planted, fault):
            continue
        began = time.monotonic()
        count, failure = find(
            fault, act, size, options.seed or 0, options.schedules or MOST,
            60 * (options.minutes or 10 ** 6))
        missed += failure is None
        print('%-55s %s' % (fault, (
            'found by schedule %d in %d s: %s' % (
                count, time.monotonic() - began, failure.what[:90])
            if failure else 'not found in %d' % count)), flush=True)
    print('%d not found' % missed)
    return int(bool(missed))
