# SPDX-License-Identifier: Apache-2.0
"""What a simulated node does, one effect after the other."""

import typing

from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core import state

#: No moments of their own: they look, or they end what is over by then.
UNNOTED = frozenset((
    'survey', 'lvs', 'devices', 'free_space', 'clone_status', 'volume',
    'volumes_of', 'get_move', 'move_of', 'moves_of', 'pending_cleanups',
    'source_location', 'portal_for', 'has_portal', 'location_for',
    'is_exported',
    'is_source_exported', 'has_open_unexported',
    'is_source_exported_as_recorded', 'was_just_attached',
    'may_be_attached_by',
    'completed_reads', 'device_numbers', 'read_counters', 'remote',
    'withdraw_volume', 'withdraw_unnamed', 'is_move', 'is_last',
    'alive_by_host',
    'problem', 'snapshot', 'snapshots', 'snapshots_of', 'is_being_read',
    'last_known', 'zone_of', 'correct_services', 'any_newer', 'pool_usage',
    'volumes_with_wrong_host', 'service_of', 'resume',
    'note_exported', 'was_exported', 'lv_name', 'remotes', 'remote_to',
    'recorded_remotes', 'wanted_encryption', 'number_of',
    'copies', 'is_down', 'reads_zeros', 'written', 'needs_hole_search',
    'forget_read', 'check_pool', 'shown_bytes',
    'own_block', 'logical_block',
    'can_guard', 'header_sectors', 'links', 'remove_export_device',
    'uuid', 'size', 'damaged_copies', 'backup_names', 'backed_up',
    'test_backup',
    'keeps_backups', 'backed_up_volumes', 'backup_space',
    'header', 'test', 'test_ended', 'get', 'find', 'secrets_in_use',
    'secrets_of_deleted_snapshots', 'owner_of', 'consumers',
    'is_running', 'progress', 'unfinished', 'sealed_volumes'))
#: Only with the lock of the volume that the first argument is of. Begin,
#: advance and export_volume are not here: with these tests set a scene.
LOCKED = frozenset((
    'activate', 'remove_lv', 'create_metadata', 'ensure_clone',
    'ensure_clone_alone', 'set_hydration', 'remove_clone',
    'ensure_handle_on_lv', 'ensure_handle_on_clone', 'remove_handle',
    'read_head', 'flush_handle', 'flush_lv', 'clear',
    'ensure_source', 'remove_source',
    'export_source', 'withdraw_source', 'export_again', 'withdraw_volume',
    'withdraw_unnamed', 'attach', 'detach', 'end_if_down', 'commit',
    'roll_back', 'finish', 'create_snapshot', 'create_copy', 'accept',
    'mark_uncommitted', 'deactivate', 'ensure_handle_on_snapshot',
    'locate', 'protect', 'extend_lv', 'zero_part', 'show_lv',
    'note_zeroed',
    'ensure_handle_on_disk',
    'switch_to_clone', 'begin_swap', 'end_swap', 'attach_remote',
    'end_remote', 'end_remote_if_down', 'end_remote_attachments',
    'end_other_remotes', 'readdress', 'relocate', 'leave_out',
    'note_holes_searched',
    'refill',
    'header_sectors', 'ensure_guard',
    'read_guarded', 'ensure_link', 'remove_link', 'close_upper',
    'ensure_export_device', 'remove_export_device',
    'format', 'format_luks1', 'write_token', 'erase', 'open', 'close',
    'resize', 'zero', 'note', 'mark', 'unmark', 'add_key', 'kill_slot',
    'remove_token', 'renew_backup', 'record', 'set_uuid', 'save',
    'restore', 'begin_reencryption', 'end_reencryption',
    'end_reencryption_sealed',
    'start', 'stop', 'note_remote',
    'forget_remote', 'seal', 'open_sealed', 'resize_sealed',
    'remove_stray_integrity',
    'forget_sealed'))
#: Of a move that is over and gone nobody knows the volume.
OF_A_MOVE = frozenset(('remove_source', 'withdraw_source'))
#: Those whose first argument does not tell, and which does.
BY = {'create_copy': 4}
ALLOCATING = frozenset(('create_metadata', 'adopt'))


class Stopped(Exception):
    """A node has stopped dead.

    From here on nothing it does has effect, so that no handler of the
    driver, and no revert, can undo anything.
    """

    def __init__(self, node):
        super().__init__(node.host)
        self.node = node


class _Acting:
    """Lets a node stop before and after each effect of an object."""

    def __init__(self, node, inner):
        self._node = node
        self._inner = inner

    def __getattr__(self, name):
        call = getattr(self._inner, name)
        self._node.check_alive()
        if not callable(call):
            return call
        if name in UNNOTED and name not in LOCKED:
            return call

        def acting(*args, **kwargs):
            node, world = self._node, self._node.world
            if name in LOCKED:
                _insist_on_lock(node, name, args[BY.get(name, 0)])
            if name in ALLOCATING:
                world.insist(nodes.FREE_SPACE in node.held,
                             '%s without the lock of free space', name)
            if name in UNNOTED:
                return call(*args, **kwargs)
            world.tick(node, 'before ' + name)
            result = call(*args, **kwargs)
            world.done.append((node.host, name, args[0] if args else None))
            world.tick(node, 'after ' + name)
            return result
        return acting


Room = typing.TypeVar('Room')


def acting(node: typing.Any, room: Room) -> Room:
    """The same room, to the types; at each effect its node may stop."""
    return typing.cast(Room, _Acting(node, room))


def _insist_on_lock(node, name, subject):
    """:param subject: a move, an id, or the name of an LV"""
    if name in OF_A_MOVE:
        if subject not in node.world.move_records:
            return
        subject = node.world.move_records[subject]
    identity = (subject.volume_id if isinstance(subject, state.Move)
                else subject[-36:])
    tags = node.disk.tags.get(subject, ()) if isinstance(subject, str) else ()
    if isinstance(subject, str) and names.is_to_wipe(subject):
        return  # it is nobody's
    facts = names.facts(tags)
    if {identity, facts.get('volume'), facts.get('snapshot')} & node.held:
        return
    volumes = {volume.id for volume in node.world.volumes.values()
               if identity == volume.name_id}
    volumes |= {move.volume_id for move in node.world.move_records.values()
                if identity in (move.move_id, move.source_lv[-36:])}
    node.world.insist(volumes & node.held,
                      '%s without the lock of its volume', name)
