# SPDX-License-Identifier: Apache-2.0
"""The database of the simulated world."""

import copy
import dataclasses
import uuid

from cinder_localclone import encryption_types
from cinder_localclone import exceptions
from cinder_localclone import names
from cinder_localclone import passing
from cinder_localclone import queue
from cinder_localclone import rows
from cinder_localclone import served
from cinder_localclone import state
from tests.unit.world import images


class SimRecords(images.SimSnapshotRecords):
    """:class:`cinder_localclone.records.Records` on dictionaries."""

    def __init__(self, node):
        self.node = node
        self.world = node.world

    def _insist_gone(self, move, *lvs):
        """What this node has of a move: it has to be gone by now."""
        node = self.node
        left = (node.lvs.keys() & {names.metadata_lv(move.shadow_id), *lvs}
                or names.clone(move.shadow_id) in node.devices
                or move.shadow_id in node.sessions)
        self.world.insist(not left, 'the record goes before what it tells')

    def volume(self, volume_id):
        """As it is now: what was read before does not follow the row."""
        found = self.world.volumes.get(volume_id)
        return found and copy.copy(found)

    def _all(self):
        """The end that the shadow is not at is where the volume is now."""
        for move in self.world.shadows.values():
            volume = self.world.volumes.get(move.volume_id)
            home = volume.host.partition('#')[0] if volume else ''
            move = dataclasses.replace(
                move, volume_gib=volume.size if volume else 0)
            if move.committed:
                yield dataclasses.replace(move, destination=home)
            else:
                yield dataclasses.replace(
                    move, source=home,
                    source_lv=volume.name if volume else '')

    def volumes_of(self, host):
        return [copy.copy(v) for v in self.world.volumes.values()
                if v.host.partition('#')[0] == host]

    def is_move(self, shadow_id):
        return shadow_id in self.world.shadows

    def get_move(self, shadow_id):
        return next((t for t in self._all() if t.shadow_id == shadow_id),
                    None)

    def move_of(self, volume_id):
        return next((t for t in self._all() if t.volume_id == volume_id
                     and not t.is_over), None)

    def remains_of(self, volume_id):
        return [t for t in self._all()
                if t.volume_id == volume_id and t.is_over]

    def moves_of(self, host):
        return [t for t in self._all() if host in (t.source, t.destination)]

    def begin(self, volume, host, event, geometry, locate, auth, initiator,
              asked_by=state.Asked.ATTACH):
        row = self.world.volumes.get(volume.id)
        if row is None or row.host != volume.host or self.move_of(volume.id):
            raise exceptions.StaleMove(volume=volume.id)
        shadow = str(uuid.uuid4())
        token = state.Token(state.Phase.ABSENT, 'n', geometry).after(
            event, False)
        self.world.shadows[shadow] = state.Move(
            volume.id, shadow, token, False,
            volume.host.partition('#')[0], host.partition('#')[0],
            volume.name, 'volume-' + shadow, volume.size, locate(shadow),
            auth, initiator, volume.size, asked_by, rows.extra_bytes(row))
        return self.world.shadows[shadow]

    def _check(self, move):
        recorded = self.world.shadows.get(move.shadow_id)
        if recorded is None or (recorded.token, recorded.committed) != (
                move.token, move.committed):
            raise exceptions.StaleMove(volume=move.volume_id)

    def advance(self, move, event):
        self._check(move)
        after = dataclasses.replace(
            move, token=move.token.after(event, move.committed))
        if after.phase is state.Phase.RELEASING:
            self._insist_gone(move)
        self.world.shadows[move.shadow_id] = after
        return after

    def relocate(self, move, location):
        self._check(move)
        recorded = self.world.shadows[move.shadow_id]
        if recorded.location != move.location:
            raise exceptions.StaleMove(volume=move.volume_id)
        self.world.shadows[move.shadow_id] = dataclasses.replace(
            recorded, location=location)

    def readdress(self, volume_id, iqn, portal):
        for each in self.world.volumes[volume_id].volume_attachment:
            told = each.connection_info or {}
            if told.get('target_iqn') == iqn:
                each.connection_info = dict(told, target_portal=portal)

    def commit(self, move):
        self._check(move)
        volume = self.world.volumes[move.volume_id]
        volume.name_id = move.shadow_id
        volume.name = move.destination_lv
        volume.host = move.destination + '#p'
        volume.availability_zone = self.zone_of(move.destination)
        after = dataclasses.replace(move, committed=True)
        self.world.shadows[move.shadow_id] = after
        return after

    def roll_back(self, move):
        self._check(move)
        token = move.token.after(state.Event.DESTINATION_DETACHED,
                                 move.committed)
        volume = self.world.volumes[move.volume_id]
        volume.name = move.source_lv
        volume.name_id = volume.name[-36:]
        volume.host = move.source + '#p'
        after = dataclasses.replace(move, token=token, committed=False)
        self.world.shadows[move.shadow_id] = after
        return after

    def older(self, host, moment, statuses=rows.MORTAL):
        return [volume.id for volume in self.volumes_of(host)
                if volume.status in statuses]

    def end_dead(self, volume_id, host, sizes):
        """As status_records does."""
        volume = self.world.volumes[volume_id]
        after = rows.after_death(volume, sizes.get(volume.name), False)
        volume.status = after or volume.status
        return after

    def copies(self, host):
        moves = [move for move in self._all() if move.committed
                 and move.phase is state.Phase.MIGRATING and move.destination]
        began = list(self.world.shadows)
        waiting = {row.volume_id for row in self.world.snapshots.values()
                   if row.status == 'creating' and not row.deleted} | {
            row.source_volid for row in self.world.volumes.values()
            if row.status == 'creating'}
        return [queue.Entry(
            move.shadow_id, move.volume_id, move.source, move.destination,
            bool(self.volume(move.volume_id).volume_attachment),
            move.volume_id in waiting,
            self.world.stalled.get(move.shadow_id, 0),
            began.index(move.shadow_id),
            self.volume(move.volume_id).extra_specs.get(
                'localclone:pace', ''),
            len({(each.connector or {}).get('host') for each in self.volume(
                move.volume_id).volume_attachment}) > 1) for move in moves]

    def note_stalled(self, move, stalled):
        self._check(move)
        self.world.stalled.pop(move.shadow_id, None)
        if stalled:
            self.world.stalled[move.shadow_id] = next(self.world.clock)

    def drop_live_attachment(self, volume_id, host):
        volume = self.world.volumes[volume_id]
        volume.volume_attachment = [
            each for each in volume.volume_attachment if each.connector]

    def secrets_in_use(self, without=()):
        found = [(each.id, each.provider_id) for kind in (
            self.world.volumes, self.world.snapshots)
            for each in kind.values() if not getattr(each, 'deleted', False)]
        return {encryption_types.key_in(text) for key, text in found
                if text and key not in without}

    def record(self, volume_id, recorded, before=None):
        volume = self.world.volumes.get(volume_id)
        if volume is None or rows.recorded(volume) != before:
            raise exceptions.TooLate(what='Volume ' + volume_id)
        volume.provider_id = str(recorded)

    def passed_to(self, host):
        return [volume for volume in self.world.volumes.values()
                if passing.connection_to(self.node.node, volume, host)]

    def end_passing(self, volume_id, host):
        for each in self.world.volumes[volume_id].volume_attachment:
            if served.passed_to(each, self.node.node.is_at, host):
                each.connection_info = served.without_export(
                    each.connection_info)

    def services(self):
        return {host: not node.dead
                for host, node in self.world.nodes.items()}

    def give_up(self, volume, heir):
        recorded = self.world.volumes[volume.id]
        recorded.host, recorded.status = heir, 'error'

    def forget_service(self, host):
        return True

    def finish(self, move, event):
        self._check(move)
        move.token.after(event, move.committed)
        if move.cleanup_node == self.node.host:
            self._insist_gone(move, move.cleanup_lv)
        del self.world.shadows[move.shadow_id]
        if (event is state.Event.SOURCE_REMOVED
                and move.volume_id in self.world.volumes):
            self.world.volumes[move.volume_id].migration_status = 'success'
