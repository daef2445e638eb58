# SPDX-License-Identifier: Apache-2.0
"""The database of the simulated world, on dictionaries.

A move record is a :class:`.state.Move`, and a row of what the record keeps for
the volume. ``tests/unit/db/test_db_contract_of_*.py`` hold the classes to what
those of ``cinder_localclone.db`` do.
"""

import dataclasses
import datetime
import re
import types
import typing
import uuid

from cinder_localclone.core import attachments
from cinder_localclone.core import copies
from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types

#: What commit swaps, beside the name of the LV.
SWAPPED = ('host', 'availability_zone', 'service_uuid', 'provider_id')


def _service(host):
    return (host or '').partition('#')[0]


def _copied(record, **changes):
    """Copy a row or a move, with changes.

    As ``copy.copy`` and ``dataclasses.replace`` do, in a tenth of their time.
    """
    kind: typing.Any = type(record)
    found = kind.__new__(kind)
    vars(found).update(vars(record), **changes)
    return found


def _pool(host):
    return host.partition('#')[2]


def _lv_name(name_id):
    return 'volume-' + name_id


def _text(encryption):
    return str(encryption) if encryption else None


class Base:
    """What the classes share, as those of ``cinder_localclone.db`` do.

    :param node: the one that asks
    """

    def __init__(self, node: typing.Any):
        self.node = node
        self.world = node.world

    @staticmethod
    def _read(row):
        """As it is now: what was read does not follow the row."""
        return row and Volume.of(row)

    def _at(self, host):
        return [row for row in self.world.volumes.values()
                if _service(row.host) == host]

    def _told(self, move):
        """As it is recorded, with what the volume's row tells by now."""
        volume = self.world.volumes.get(move.volume_id)
        size = volume.size if volume else 0
        home = self._home_in(move, volume)
        if move.committed:
            return _copied(move, volume_gib=size, destination=home)
        return _copied(move, volume_gib=size, source=home,
                       source_lv=volume.name if volume else '')

    @staticmethod
    def _home_in(move, row):
        """A row that names the other end was written late."""
        recorded, other = ((move.destination, move.source) if move.committed
                           else (move.source, move.destination))
        named = _service(row.host) if row else ''
        return recorded if named in ('', other) else named

    def _home_by_move(self, row):
        move = self.world.move_records.get(row.name_id)
        home = self._home_in(move, row) if move and move.committed else None
        return None if home == _service(row.host) else home

    def _is_misplaced(self, row, host, migrating=False):
        """Whether the row of a volume at home on a host names another."""
        if (_service(row.host) == host
                or not names.same_backend(_service(row.host), host)
                or row.status in statuses.BEING_CREATED
                or (row.migration_status or '').startswith('target:')
                or not migrating and row.is_migrated_by_cinder):
            return False
        home = self._home_by_move(row)
        if home is not None and (home == host or self.world.has_service(home)):
            return home == host
        return (
            self.world.has_service(host)
            and row.service_uuid == self.world.service_of(host))

    def _note_home(self, move, host):
        self.world.move_records[move.move_id] = _copied(
            self.world.move_records[move.move_id], **{
                'destination' if move.committed else 'source': host})

    def _of(self, volume_id):
        return [self._told(move) for move in self.world.move_records.values()
                if move.volume_id == volume_id]

    def _all(self):
        return [self._told(move) for move in self.world.move_records.values()]

    def _current(self, volume_id):
        """The move of a volume that is not over."""
        return next((each for each in self._of(volume_id)
                     if not each.is_over), None)

    def _take_service(self, row, host):
        """A row says which service it is of, if there is one."""
        host = host.partition('#')[0]
        if self.world.has_service(host):
            row.service_uuid = self.world.service_of(host)
            row.availability_zone = self.world.zone_of(host)

    def _check(self, move):
        recorded = self.world.move_records.get(move.move_id)
        if recorded is None or (recorded.token, recorded.committed) != (
                move.token, move.committed):
            raise exceptions.StaleMove(volume=move.volume_id)
        return recorded


class SimMoves(Base, records.Moves):

    def move_of(self, volume_id):
        return self._current(volume_id)

    def pending_cleanups(self, volume_id):
        return [each for each in self._of(volume_id) if each.is_over]

    def get_move(self, move_id):
        return self._move(move_id)

    def is_move(self, move_id):
        return move_id in self.world.move_records

    def readable_moves(self):
        return self._all()

    def moves_of(self, host):
        return [each for each in self._all()
                if host in (each.source, each.destination)]

    def begin(self, volume, host, event, geometry, locate, auth, initiator,
              asked_by=state.Asked.ATTACH):
        move_id = str(uuid.uuid4())
        token = state.Token(state.Phase.ABSENT, 'n', geometry).after(
            event, False)
        row = self.world.volumes.get(volume.id)
        if (row is None or row.host != volume.host
                or self._current(volume.id)
                or self._home_by_move(row) is not None
                or not row.may_move(asked_by)):
            raise exceptions.StaleMove(volume=volume.id)
        record = types.SimpleNamespace(
            host=host, availability_zone=row.availability_zone,
            service_uuid=None, provider_id=row.provider_id,
            previous_status=None)
        self._take_service(record, host)
        move_record.hold(row, record, asked_by)
        self.world.record_rows[move_id] = record
        self.world.move_records[move_id] = state.Move(
            volume.id, move_id, token, False, _service(row.host),
            _service(host), row.name, _lv_name(move_id), row.size,
            locate(move_id), auth, initiator, row.size, asked_by,
            row.extra_bytes)
        return self._move(move_id)

    def advance(self, move, event):
        token = move.token.after(event, move.committed)
        recorded = self._check(move)
        if token.phase is state.Phase.RELEASING:
            self._insist_gone(move)
        move_record.give_back(self.world.volumes.get(move.volume_id),
                              self.world.record_rows[move.move_id])
        return self._changed(recorded, token=token)

    def relocate(self, move, location):
        recorded = self._check(move)
        if recorded.location != move.location:
            raise exceptions.StaleMove(volume=move.volume_id)
        self._changed(recorded, location=location)

    def commit(self, move):
        recorded = self._check(move)
        volume = self.world.volumes.get(move.volume_id)
        record = self.world.record_rows[move.move_id]
        if (move.committed or volume is None
                or (_service(volume.host), volume.name) != (
                    move.source, move.source_lv)
                or move_record.has_lost_hold(volume, record)):
            raise exceptions.StaleMove(volume=move.volume_id)
        left = volume.name
        self._swap(volume, move.move_id, recorded.destination_lv,
                   move.source)
        move_record.give_back(volume, record)
        return self._changed(recorded, committed=True, source=move.source,
                             source_lv=left)

    def roll_back(self, move):
        token = move.token.after(state.Event.DESTINATION_DETACHED,
                                 move.committed)
        recorded = self._check(move)
        volume = self.world.volumes.get(move.volume_id)
        if (volume is None or volume.name_id != move.move_id
                or self._home_in(recorded, volume) != move.destination):
            raise exceptions.StaleMove(volume=move.volume_id)
        self._swap(volume, move.move_id, recorded.source_lv,
                   move.destination)
        return self._changed(recorded, token=token, committed=False,
                             destination=move.destination)

    def finish(self, move, event):
        move.token.after(event, move.committed)
        recorded = self._check(move)
        volume = self.world.volumes.get(move.volume_id)
        if volume and volume.name_id == move.move_id:
            home = self._home_in(recorded, volume)
            if self._is_misplaced(volume, home):
                volume.host = '%s#%s' % (home, _pool(volume.host))
                self._take_service(volume, home)
        if move.cleanup_node == self.node.host:
            self._insist_gone(move, move.cleanup_lv)
        del self.world.move_records[move.move_id]
        del self.world.record_rows[move.move_id]
        if (event is state.Event.SOURCE_REMOVED and volume
                and not volume.is_migrated_by_cinder):
            volume.migration_status = 'success'

    def _move(self, move_id):
        """What a change answers: tests fail the reads of the driver."""
        found = self.world.move_records.get(move_id)
        return found and self._told(found)

    def _changed(self, recorded, **values):
        self.world.move_records[recorded.move_id] = dataclasses.replace(
            recorded, **values)
        return self._move(recorded.move_id)

    def _swap(self, volume, move_id, lv, home):
        record = self.world.record_rows[move_id]
        volume.host = '%s#%s' % (home, _pool(volume.host))
        for column in SWAPPED:
            old = getattr(volume, column)
            setattr(volume, column, getattr(record, column))
            setattr(record, column, old)
        volume.name_id, volume.name = lv[-36:], lv

    def _insist_gone(self, move, *lvs):
        """What this node has of a move: it has to be gone by now."""
        node = self.node
        left = (node.lvs.keys() & {names.metadata_lv(move.move_id), *lvs}
                or names.clone(move.move_id) in node.devices
                or move.move_id in node.sessions)
        self.world.insist(not left, 'the record goes before what it tells')


class SimVolumes(Base, records.Volumes):

    def volume(self, volume_id):
        found = self._read(self.world.volumes.get(volume_id))
        home = found and self._home_by_move(found)
        return _copied(found, home_by_move=home) if home else found

    def volumes_of(self, host):
        return [self._read(row) for row in self._at(host)]

    def last_known(self, volume_id):
        gone = self.world.deleted.get(volume_id)
        volume = gone or self.volume(volume_id)
        return volume and rows.Uncommitted(
            volume.id, volume.status, (volume.host or '').partition('#')[0],
            volume.name, bool(gone), volume.provider_id)

    def lv_name(self, name_id):
        return _lv_name(name_id)

    def set_home(self, volume_id, old, new):
        volume = self.world.volumes.get(volume_id)
        if (volume is None or volume.status != 'creating'
                or volume.host != old or self._current(volume_id)):
            raise exceptions.TooLate(what=volume_id)
        volume.host = new
        self._take_service(volume, new)

    def wanted_encryption(self, volume, new=False):
        row = self.world.volumes.get(volume.id) or (
            self.world.deleted.get(volume.id))
        return volume_types.parse(row.extra_specs if row else {}, new)

    def set_encryption(self, volume, encryption):
        row = self.world.volumes.get(volume.id)
        if (row is None or row.status not in statuses.BEING_CREATED
                or (row.host, row.provider_id) != (
                    volume.host, volume.provider_id)):
            raise exceptions.TooLate(what=volume.id)
        row.provider_id = _text(encryption)
        return self.volume(volume.id)

    def replace_backing(self, volume, new, host, encryption=None):
        recorded = self.world.volumes.get(volume.id)
        if (recorded is None or recorded.status != 'reverting'
                or (recorded.host, recorded.name_id) != (
                    volume.host, volume.name_id)
                or recorded.updated_at != volume.updated_at
                or self._current(volume.id)):
            raise exceptions.StaleMove(volume=volume.id)
        recorded.name_id, recorded.name = new, _lv_name(new)
        if new in self.world.headers:
            self.world.headers[volume.id] = self.world.headers.pop(new)
        if recorded.host.partition('#')[0] != host:
            recorded.host = '%s#%s' % (host, _pool(recorded.host))
            self._take_service(recorded, host)
        if recorded.encryption != encryption:
            recorded.provider_id = _text(encryption)
        return self.volume(volume.id)

    def keep(self, volume_id, name_id):
        recorded = self.world.volumes.get(volume_id)
        if recorded and (recorded.status, recorded.name_id) == (
                'reverting', name_id):
            recorded.status = 'available'

    def volumes_with_wrong_host(self, host, migrating=False):
        return [row.id for row in self.world.volumes.values()
                if self._is_misplaced(row, host, migrating)]

    def correct_home(self, volume, host):
        row = self.world.volumes.get(volume.id)
        if row is None or row.name_id != volume.name_id or (
                not self._is_misplaced(row, host)):
            return False
        row.host = '%s#%s' % (host, _pool(row.host))
        self._take_service(row, host)
        return True

    def service_of(self, volume_id):
        row = self.world.volumes.get(volume_id)
        return next((
            host for host in self.world.nodes if row is not None
            and self.world.has_service(host)
            and self.world.service_of(host) == row.service_uuid), None)

    def correct_services(self, host, lvs):
        for row in self.world.volumes.values():
            if (self.world.has_service(host) and row.status != 'creating'
                    and (row.host or '').partition('#')[0] == host
                    and row.name in lvs):
                row.service_uuid = self.world.service_of(host)


class SimSnapshots(Base, records.Snapshots):

    def snapshot(self, snapshot_id):
        return self.world.snapshots.get(snapshot_id)

    def snapshots(self, ids):
        return {key: self.world.snapshots[key] for key in ids
                if key in self.world.snapshots}

    def snapshots_of(self, volume_id):
        return [each for each in self.world.snapshots.values()
                if each.volume_id == volume_id and not each.deleted]

    def locate(self, snapshot_id, host, encryption=None):
        snapshot = self.snapshot(snapshot_id)
        if not snapshot or snapshot.deleted or snapshot.status != 'creating':
            raise exceptions.TooLate(what=snapshot_id)
        self.world.set_snapshot(snapshot_id, node=host,
                                provider_id=_text(encryption))

    def relocate_snapshot(self, snapshot_id, before, host):
        snapshot = self.snapshot(snapshot_id)
        if snapshot and not snapshot.deleted and snapshot.node == before:
            self.world.set_snapshot(snapshot_id, node=host)

    def is_being_read(self, snapshot_id):
        return snapshot_id in self.world.read


class SimAttachments(Base, records.Attachments):

    def remote_to(self, host):
        return sorted((self._read(row) for row in self.world.volumes.values()
                       if nodes.connection_to(self.node.node, row, host)),
                      key=lambda row: row.id)

    def any_newer(self, ids, seconds):
        before = self.world.database_time() - datetime.timedelta(
            seconds=seconds)
        return any(each.id in ids
                   and any(moment and moment > before for moment in (
                       each.created_at, each.updated_at))
                   for row in self.world.volumes.values()
                   for each in row.volume_attachment)

    def end_remote_attachments(self, volume_id, host):
        self._rewrite(
            volume_id, lambda each: attachments.remote_to(
                each, self.node.node.is_at, host), attachments.without_export)

    def readdress(self, volume_id, iqn, portal):
        self._rewrite(
            volume_id, lambda each: (each.connection_info or {}).get(
                'target_iqn') == iqn,
            lambda told: dict(told, target_portal=portal))

    def drop_attachment(self, volume_id, attachment_id):
        row = self.world.volumes.get(volume_id)
        found = [each for each in (row.volume_attachment if row else ())
                 if each.id == attachment_id and not each.connector
                 and each.attach_status == 'reserved']
        if found:
            row.volume_attachment = [
                each for each in row.volume_attachment
                if each is not found[0]]
            if row.status == 'reserved' and all(
                    each.attach_status.startswith('error_')
                    for each in row.volume_attachment):
                row.status, row.attach_status = 'available', 'detached'

    def _rewrite(self, volume_id, wanted, change):
        row = self.world.volumes.get(volume_id)
        for each in row.volume_attachment if row else ():
            if wanted(each):
                each.connection_info = change(each.connection_info)


class SimSecrets(Base, records.Secrets):

    def secrets_in_use(self, without=(), host=''):
        gone = set(without)
        volumes = [(row.host, row.provider_id)
                   for row in self.world.volumes.values()
                   if row.id not in gone and not row.visible_id]
        snapshots = [(each.node, each.provider_id)
                     for each in self.world.snapshots.values()
                     if not each.deleted]
        return {volume_types.key_in(text)
                for where, text in volumes + snapshots
                if re.match('lc.*:', text or '')
                and (not host or names.same_backend(where or '', host))}

    def secrets_of_deleted_snapshots(self, volume_id):
        return {volume_types.key_in(each.provider_id)
                for each in self.world.snapshots.values()
                if each.deleted and each.volume_id == volume_id
                and re.match('lc.*:', each.provider_id or '')}

    def record(self, volume_id, recorded, before=None):
        row = self.world.volumes.get(volume_id)
        if row is None or row.provider_id != (
                str(before) if before else None):
            raise exceptions.TooLate(what='Volume ' + volume_id)
        row.provider_id = str(recorded)


class SimServices(Base, records.Services):

    def alive_by_host(self):
        return {host: not node.dead for host, node in self.world.nodes.items()
                if host not in self.world.forgotten}

    def zone_of(self, host):
        host = host.partition('#')[0]
        return self.world.zone_of(host) if (
            self.world.has_service(host)) else None


class SimQueue(Base, records.Queue):

    def copies(self, host):
        began = list(self.world.move_records)
        waiting = {row.volume_id for row in self.world.snapshots.values()
                   if row.status == 'creating' and not row.deleted} | {
            row.source_volid for row in self.world.volumes.values()
            if row.status == 'creating'}
        return [self._entry(
            move, began.index(move.move_id), move.volume_id in waiting)
            for move in self._all() if move.committed
            and move.phase is state.Phase.MIGRATING
            and move.volume_id in self.world.volumes
            and names.same_backend(move.source, host)]

    def _entry(self, move, began, awaited):
        row = self.world.volumes[move.volume_id]
        hosts = [(each.connector or {}).get('host')
                 for each in row.volume_attachment if each.instance_uuid]
        return copies.Entry(
            move.move_id, move.volume_id, move.source, move.destination,
            bool(hosts), awaited,
            self.world.stalled.get(move.move_id, 0), began,
            row.extra_specs.get('localclone:pace', ''), len(set(hosts)) > 1)

    def note_stalled(self, move, stalled):
        self._check(move)
        self.world.stalled.pop(move.move_id, None)
        if stalled:
            self.world.stalled[move.move_id] = next(self.world.clock)


class SimInterrupted(Base, records.Interrupted):

    def end_interrupted(self, host):
        return {row.id: row.migration_status
                for row in self.world.volumes.values()
                if row.migration_status == 'migrating'
                and self._end(row, host)}

    def _end(self, row, host):
        if row.attach_status == 'attached' and (
                row.status in statuses.MIGRATED
                or row.previous_status == 'in-use'):
            return False
        moves = self._of(row.id)
        copied = [move for move in moves if move.committed
                  and not move.is_over
                  and move.asked_by is state.Asked.MIGRATION]
        if self._has_committed(row, moves, host):
            row.migration_status = 'success'
        elif (host in (_service(row.host), self._home_by_move(row))
                and not copied
                and row.attach_status != 'attached'
                and not self._may_go_on(row, host)):
            row.migration_status = 'error'
        else:
            return False
        if row.status in statuses.MIGRATED and not any(
                self.world.record_rows[move.move_id].previous_status
                for move in moves):
            row.status = statuses.FREE
        return True

    def _may_go_on(self, row, host):
        service = next((each for each in self.world.nodes
                        if self.world.has_service(each)
                        and self.world.service_of(each) == row.service_uuid),
                       host)
        homes = {_service(row.host), self._home_by_move(row) or host, service}
        return homes != {host} and any(
            each.migration_status == move_record.target(row.id)
            for each in self.world.volumes.values())

    def _has_committed(self, row, moves, host):
        committed = [move for move in moves if move.committed]
        ends = len(moves) + sum(
            each.migration_status == move_record.target(row.id)
            for each in self.world.volumes.values())
        return any(
            move.source == host and move.asked_by is state.Asked.MIGRATION
            and (not move.is_over or ends == len(committed))
            for move in committed)

    def volumes_unchanged_since(self, host, moment,
                                of=statuses.LOST_WITH_SERVICE):
        return [row.id for row in self._at(host) if row.status in of
                and row.updated_at and row.updated_at < moment]

    def end_dead(self, volume_id, host, sizes):
        row = self.world.volumes.get(volume_id)
        if row is None or _service(row.host) != host:
            return None
        before, after = row.status, row.after_death(sizes.get(row.name))
        if after:
            row.status = after
        if after and before == 'reverting':
            for each in list(self.world.snapshots.values()):
                if (each.volume_id, each.status, each.deleted) == (
                        volume_id, 'restoring', False):
                    self.world.set_snapshot(each.id, status='available')
        return after

    def now(self):
        raise NotImplementedError  # nothing in the world asks for it

    def lost_deletes(self, host, seconds):
        raise NotImplementedError  # the world has no table of workers


class SimDecommission(Base, records.Decommission):

    def snapshots_on(self, host):
        return {each.id: each.volume_id
                for each in self.world.snapshots.values()
                if each.node == host and not each.deleted}

    def give_up_snapshot(self, snapshot_id, host):
        snapshot = self.world.snapshots.get(snapshot_id)
        if snapshot and not snapshot.is_to_wipe and snapshot.node == host:
            self.world.set_snapshot(snapshot_id, status='error')

    def give_up(self, volume, new_home):
        row = self.world.volumes.get(volume.id)
        if (row is None or (row.host, row.name_id) != (
                volume.host, volume.name_id)
                or any(not (move.is_over or move.committed)
                       for move in self._of(volume.id))):
            raise exceptions.StaleMove(volume=volume.id)
        row.host, row.status = new_home, 'error'
        self._take_service(row, new_home)
        move = self.world.move_records.get(row.name_id)
        if move:
            self._note_home(move, _service(new_home))

    def forget_service(self, host):
        there = self.world.has_service(host)
        self.world.forgotten.add(host)
        return there


def database(node: typing.Any) -> records.Database:
    """Return the database, as a node asks it."""
    return records.Database(
        SimMoves(node), SimVolumes(node), SimSnapshots(node),
        SimSecrets(node), node.SERVICES(node), SimQueue(node),
        SimInterrupted(node), SimDecommission(node))
