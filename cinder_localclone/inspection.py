# SPDX-License-Identifier: Apache-2.0
"""What stands on a node for one volume, and how it differs from the record.

Plain values that travel between nodes, for the operator's command.
"""

import dataclasses

from cinder_localclone import exceptions
from cinder_localclone import names
from cinder_localclone import state
from cinder_localclone.state import Phase


def inspect(node, volume_id: str, progress) -> dict:
    """Everything on this node that has to do with a volume.

    :param node: a :class:`cinder_localclone.moves.Node`
    :param progress: ``progress(shadow_id)``: the copy's last
        :class:`~cinder_localclone.hydration.Progress`, or None
    :returns: host; handle (number, opened, on: lv, clone or other,
        suspended) or None; lvs (name, size in bytes, active, tags); clone
        (hydrated, regions, hydrating, enabled, mode) or None; session (disk)
        and served (whether, whether to others)
    """
    move = node.records.move_of(volume_id)
    volume = node.records.volume(volume_id)
    survey = node.stack.survey()
    wanted = {names.metadata_lv(move.shadow_id), move.source_lv,
              move.destination_lv} if move else set()
    if volume is not None:
        wanted.add(volume.name)
    found = {
        'host': node.host, 'clone': None, 'session': None, 'progress': None,
        'handle': _handle(survey, volume_id),
        'lvs': [{'name': lv.name, 'size': lv.size, 'active': bool(lv.number),
                 'tags': sorted(lv.tags)} for name, lv in
                sorted(survey.lvs.items()) if name in wanted],
        'served': node.exports.serving(volume_id),
    }
    if move and survey.clone(move.shadow_id):
        found['clone'] = dataclasses.asdict(
            node.stack.clone_status(move.shadow_id))
        found['session'] = node.imports.disk(move)
        seen = progress(move.shadow_id)
        found['progress'] = dataclasses.asdict(seen) if seen else None
    return found


def _handle(survey, volume_id):
    device = survey.handle(volume_id)
    if device is None:
        return None
    below = {lv.number: 'LV ' + lv.name for lv in survey.lvs.values()}
    below.update({other.number: 'clone ' + other.name
                  for other in survey.devices.values()
                  if names.shadow_of_clone(other.name)})
    return {'number': device.number, 'opened': device.opened,
            'suspended': device.suspended,
            'on': [below.get(number, number) for number in device.uses()]}


_MISSING = 'the LV %s is missing'


def differences(found: dict, move: state.Move | None,
                home: str | None, lv: str | None) -> list[str]:
    """Where a node is not as the record says, in words. Pure.

    :param found: what :func:`inspect` returned
    :param home: service host of the volume's home; None: it was deleted
    :param lv: name of the LV with the volume's data
    """
    host, handle = found['host'], found['handle']
    lvs = {each['name'] for each in found['lvs']}
    wrong = []
    on = handle['on'] if handle else ['nothing']
    if handle and handle['suspended']:
        wrong.append('the handle is suspended')
    if move and host == move.destination and move.committed:
        if move.phase in (Phase.STARTING, Phase.MIGRATING):
            clone = names.clone(move.shadow_id)
            if on != ['clone ' + clone]:
                wrong.append('the handle is on %s, not on the clone' % on[0])
            if found['clone'] is None:
                wrong.append('the clone is missing')
            elif found['clone']['mode'] != 'rw':
                wrong.append('the clone is in mode ' + found['clone']['mode'])
            elif found['clone']['enabled'] != (
                    move.phase is Phase.MIGRATING):
                wrong.append('the clone is %scopying' % (
                    '' if found['clone']['enabled'] else 'not '))
            if not found['session']:
                wrong.append('there is no session with the source')
            if names.metadata_lv(move.shadow_id) not in lvs:
                wrong.append('the metadata LV is missing')
            if move.destination_lv not in lvs:
                wrong.append(_MISSING % move.destination_lv)
        else:
            wrong += _not_on_lv(on, move.destination_lv, lvs)
    elif move and host == move.source:
        if move.phase is Phase.RELEASING:
            if handle or move.source_lv in lvs:
                wrong.append('the source is still there')
        else:
            wrong += _not_on_lv(on, move.source_lv, lvs)
        if move.committed and move.phase in state.READS_SOURCE and (
                not found['served'][0]):
            wrong.append('the source is not exported')
    elif home == host:
        wrong += _not_on_lv(on, lv, lvs)
    elif handle:
        wrong.append('there is a handle, though the volume is not here')
    return wrong


def _not_on_lv(on, lv, lvs):
    if lv not in lvs:
        yield _MISSING % lv
    elif on != ['LV ' + lv]:
        yield 'the handle is on %s, not on the LV' % on[0]


#: Begins what kept a repair from being complete.
IN_THE_WAY = 'in the way: '
#: Effects that an operator wants to read of, and how.
SAID = {
    'create_lv': 'created LV {0}', 'remove_lv': 'removed LV {0}',
    'activate': 'activated LV {0}',
    'ensure_clone': 'built the clone of {0.volume_id}',
    'remove_clone': 'removed the clone of move {0}',
    'set_hydration': 'copying of move {0} switched to {1}',
    'ensure_handle_on_lv': 'handle of {0} now on LV {1}',
    'ensure_handle_on_clone': 'handle of {0} now on its clone',
    'remove_handle': 'removed the handle of {0}',
    'offer_source': 'exported the source of {0.volume_id}',
    'withdraw_source': 'withdrew the export of {0.volume_id}',
    'withdraw_volume': 'withdrew exports of {0} that nothing uses',
    'withdraw_strays': 'withdrew exports of moves that are over',
    'advance': 'move of {0.volume_id}: {1.value}',
    'roll_back': 'gave the identities of {0.volume_id} back',
    'finish': 'move of {0.volume_id} has ended',
}


class Recorder:
    """Stands before an object and notes what its effects did.

    Effects say themselves whether they did anything.
    """

    def __init__(self, inner, journal: list[str]):
        self._inner = inner
        self._journal = journal

    def __getattr__(self, name):
        method = getattr(self._inner, name)
        if name not in SAID:
            return method

        def noted(*args, **kwargs):
            result = method(*args, **kwargs)
            if result or name == 'finish':
                self._journal.append(SAID[name].format(*args))
            return result
        return noted


def recording(node) -> tuple[object, list[str]]:
    """A node whose effects are noted, and the notes.

    :param node: a :class:`cinder_localclone.moves.Node`
    """
    journal: list[str] = []
    return dataclasses.replace(
        node, stack=Recorder(node.stack, journal),
        exports=Recorder(node.exports, journal),
        records=Recorder(node.records, journal)), journal


def repair(node, reconciler, volume_id: str) -> list[str]:
    """The reconciler's own steps for one volume, and what they did.

    :param reconciler: ``reconciler(node)`` makes one for a node
    :returns: what was done, then what is in the way
    """
    noted, journal = recording(node)
    try:
        reconciler(noted).converge(volume_id)
    except exceptions.LocalCloneError as exc:
        journal.append(IN_THE_WAY + str(exc))
    return journal
