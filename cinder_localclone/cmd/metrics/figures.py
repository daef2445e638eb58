# SPDX-License-Identifier: Apache-2.0
"""Convert the answers of the sources to the metrics of a node. Pure.

prometheus_client writes them as text or over HTTP. Each move is reported by a
single node, so sums over all nodes are right. This is the destination until
the move is over, and then the node with the pending cleanup.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import typing

from oslo_utils import units
from prometheus_client import core

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.metrics import sources
from cinder_localclone.core import boot_plan
from cinder_localclone.core import copies
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import inspection
from cinder_localclone.core import names
from cinder_localclone.core import state

#: The phases of a move, as ``cinder-localclone move list`` shows them.
PHASES = ('preparing', *(
    phase.value for phase in state.Phase if phase is not state.Phase.ABSENT))
VERDICTS = (checks.OK, checks.WARN, checks.FAIL)
#: The labels of a metric of each move.
_MOVE_LABELS = ('volume', 'source', 'destination')
#: A metric with its values (``prometheus_client.core.Metric``).
Family: typing.TypeAlias = typing.Any


class Metric(typing.NamedTuple):
    """A metric of a node.

    :param labels: names of labels, besides the labels of all metrics
    :param kind: gauge or counter
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: str = 'gauge'


METRICS = {each.name: each for each in (
    Metric('localclone_info', 'Always 1, with the installed '
           'version', ('version',)),
    Metric('localclone_collector_success',
           'Whether a source of metrics has answered (0, 1)',
           ('collector',)),
    Metric('localclone_collector_seconds',
           'Seconds taken by a source of metrics', ('collector',)),
    # from the database
    Metric('localclone_service_up', 'Whether a volume service of the backend '
           'is alive by Cinder\'s records (0, 1)', ('service',)),
    Metric('localclone_volumes', 'Volumes with this node as their home'),
    Metric('localclone_volumes_bytes', 'Total size of these volumes'),
    Metric('localclone_moves', 'Moves to be completed by this node, by '
           'phase', ('phase',)),
    Metric('localclone_moves_unreadable', 'Unreadable move records, of all '
           'nodes'),
    Metric('localclone_move_age_seconds', 'Seconds since the beginning of a '
           'move, until the end of its cleanup', (*_MOVE_LABELS, 'phase')),
    Metric('localclone_move_bytes', 'Bytes to be copied by a move',
           _MOVE_LABELS),
    Metric('localclone_move_stalled', 'Whether a copy made no progress '
           'although it had a slot to run (0, 1)', _MOVE_LABELS),
    Metric('localclone_copies', 'Copies to this node: running, waiting in the '
           'queue, stalled', ('state',)),
    Metric('localclone_unended', 'Interrupted operations on volumes, '
           'snapshots and moves of this node', ('what',)),
    # from LVM and device-mapper
    Metric('localclone_copied_bytes', 'Bytes of a volume already copied to '
           'this node', ('volume',)),
    Metric('localclone_clone_failed', 'Whether the dm-clone device of a '
           'moving volume has failed (0, 1)', ('volume',)),
    Metric('localclone_capacity_bytes', 'Size of the thin pool, or of the '
           'volume group for thick volumes'),
    Metric('localclone_provisioned_bytes', 'Space promised to volumes and '
           'snapshots'),
    Metric('localclone_free_bytes', 'Free space of this node: for volumes, '
           'for metadata of moves', ('what',)),
    Metric('localclone_pool_used_bytes', 'Used bytes of the thin pool: data, '
           'metadata', ('what',)),
    Metric('localclone_pool_size_bytes', 'Size of the thin pool: data, '
           'metadata', ('what',)),
    Metric('localclone_pool_limit_ratio', 'Used share at which the node '
           'accepts no new volumes: data, metadata', ('what',)),
    Metric('localclone_suspended_devices', 'Suspended devices and LVs of the '
           'driver; their users hang'),
    Metric('localclone_locked_volumes', 'Encrypted volumes in use on this '
           'node, but not open'),
    Metric('localclone_reencryptions', 'Re-encryptions on this node: running, '
           'paused, waiting', ('state',)),
    Metric('localclone_reencrypted_bytes', 'Re-encrypted bytes of a volume, '
           'while its re-encryption runs', ('volume',)),
    Metric('localclone_reencryption_bytes', 'Size of a volume, while its '
           're-encryption runs',
           ('volume',)),
    Metric('localclone_reencryption_rate_bytes', 'Re-encrypted bytes a '
           'second', ('volume',)),
    # from both
    Metric('localclone_differing_volumes', 'Volumes with differences between '
           'their devices on this node and the records; normal for a moment'),
    Metric('localclone_unknown_lvs', 'LVs on this node with the tag of a '
           'volume, but without a record'),
    # from the service
    Metric('localclone_copy_rate_bytes', 'Bytes of a volume copied to this '
           'node a second, over the last minute', ('volume',)),
    Metric('localclone_copy_pace', 'Current pace of a copy to this node (1; '
           'the others are 0): full speed; yielding to its guest; at the '
           'floor, beside a guest without idle time; limited by '
           'localclone_max_copy_rate_mib', ('volume', 'pace')),
    Metric('localclone_events_total', 'Events logged by the volume service, '
           'by name', ('event',), 'counter'),
    Metric('localclone_refusals_total', 'Requests refused by the volume '
           'service, by cause', ('cause',), 'counter'),
    # from doctor
    Metric('localclone_doctor_checks', 'Checks of this node by doctor, by '
           'verdict', ('verdict',)),
    Metric('localclone_doctor_check', 'Result of a check by doctor: 0 OK, 1 '
           'WARN, 2 FAIL', ('check',)),
)}


FAMILIES = {'gauge': core.GaugeMetricFamily,
            'counter': core.CounterMetricFamily}


class Figures:
    """The metric families of a single reading of all sources.

    :param host: service host of this node
    :param now: seconds since the epoch
    :param common: labels of all values
    """

    def __init__(self, host: str, now: float,
                 common: Mapping[str, str] | None = None):
        self._host = host
        self._now = now
        self._common = common or {}
        self._families: dict[str, Family] = {
            name: FAMILIES[metric.kind](
                name, metric.help, labels=(*self._common, *metric.labels))
            for name, metric in METRICS.items()}

    def _add(self, name: str, value: float, **labels: str) -> None:
        """Add a value.

        :raises ValueError: if the labels differ from the metric's labels
        """
        wanted = METRICS['localclone_' + name].labels
        if set(labels) != set(wanted):
            raise ValueError('%s has no labels %s' % (name, sorted(labels)))
        self._families['localclone_' + name].add_metric(
            [*self._common.values(), *(labels[each] for each in wanted)],
            float(value))

    def collect(self, answers: Mapping[str, sources.Answer], version: str
                ) -> list[Family]:
        """Add the metrics of all sources, and return the families with values.

        ``collector_seconds`` and ``collector_success`` report each source,
        failed or not. The collector "comparison" has no source of its own, and
        no duration. It is left out if storage or database has failed.

        :param answers: by the names of the sources
        """
        self._add('info', 1, version=version)
        for name, each in answers.items():
            self._add('collector_seconds', each.seconds, collector=name)
        storage: sources.Storage | None = answers['storage'].value
        database: sources.Database | None = answers['database'].value
        service, findings = answers['service'].value, answers['doctor'].value
        self._add_source('storage', self._of_storage, storage)
        self._add_source('database', self._of_database, database)
        self._add_source('service', self._of_service, service,
                         _moving_volumes(storage))
        self._add_source('doctor', self._of_doctor, findings)
        if storage and database:
            self._add_source('comparison', self._of_both, storage, database)
        return [each for each in self._families.values() if each.samples]

    def _add_source(self, name: str, make: Callable[..., None],
                    said: typing.Any, *more: typing.Any) -> None:
        """Add the metrics of a source, and whether this was possible.

        After an error only later metrics of this source are missing.

        :param make: adds the metrics of an answer
        :param said: the answer; None: the source has failed
        """
        success = said is not None
        if success:
            try:
                make(said, *more)
            except Exception:
                success = False
        self._add('collector_success', success, collector=name)

    def _of_database(self, said: sources.Database) -> None:
        for host, alive in said.services.items():
            self._add('service_up', alive, service=host)
        own = [row for row in said.volumes if row.home == self._host]
        self._add('volumes', len(own))
        self._add('volumes_bytes', units.Gi * sum(row.size for row in own))
        self._add('moves_unreadable', said.unreadable)
        told = [each for each in said.moves
                if sources.reporting_node(each.move) == self._host]
        for phase in PHASES:
            self._add('moves', sum(
                each.move.display_phase == phase for each in told),
                phase=phase)
        # A volume has at most one current move, but may have several pending
        # cleanups with the same labels: report the oldest.
        began: dict[tuple[str, ...], float] = {}
        for each in told:
            key = (*_move_labels(each.move).values(), each.move.display_phase)
            began[key] = min(each.began, began.get(key, each.began))
            if not each.move.is_over:
                self._of_move(each.move, said.positions.get(each.move.move_id))
        for key, moment in began.items():
            self._add('move_age_seconds', max(0, self._now - moment), **dict(
                zip((*_MOVE_LABELS, 'phase'), key, strict=True)))
        here = [position for position in said.positions.values()
                if position.entry.destination == self._host]
        for name, count in (
                ('running', sum(position.may_run for position in here)),
                ('waiting', sum(not position.may_run for position in here)),
                ('stalled',
                 sum(bool(position.entry.stalled) for position in here))):
            self._add('copies', count, state=name)
        for what in ('volume', 'snapshot', 'migration', 'move'):
            self._add('unended', sum(
                each.what == what for each in said.unended), what=what)

    def _of_move(self, move: state.Move,
                 position: copies.Position | None) -> None:
        labels = _move_labels(move)
        self._add('move_bytes', move.size_bytes, **labels)
        self._add('move_stalled', bool(position and position.entry.stalled),
                  **labels)

    def _of_storage(self, said: sources.Storage) -> None:
        volumes = _moving_volumes(said)
        for move_id, clone in said.clones.items():
            if move_id in volumes:
                volume = volumes[move_id]
                self._add('clone_failed', clone.mode != 'rw', volume=volume)
                self._add('copied_bytes', clone.hydrated
                          * clone.region_sectors * state.SECTOR,
                          volume=volume)
        self._add('capacity_bytes', said.capacity.total)
        self._add('provisioned_bytes', said.capacity.provisioned)
        self._add('free_bytes', max(0, said.free.volumes), what='volumes')
        self._add('free_bytes', said.free.metadata, what='metadata')
        pool = said.present.lvs.get(said.pool or '')
        if pool:
            for what, used, size, limit in (
                    ('data', pool.allocated, pool.size, lvm_reports.FULL_DATA),
                    ('metadata', pool.metadata_used, pool.metadata_size,
                     lvm_reports.metadata_limit(pool.metadata_size))):
                self._add('pool_used_bytes', used, what=what)
                self._add('pool_size_bytes', size, what=what)
                self._add('pool_limit_ratio', limit / 100, what=what)
        self._add('suspended_devices', sum(
            lv.suspended for lv in said.present.lvs.values()) + sum(
                each.suspended for each in said.present.devices.values()))
        self._add('locked_volumes', sum(
            not said.present.crypt(each.volume_id)
            for each in boot_plan.to_unlock(said.present)))
        self._of_reencryption(said)

    def _of_reencryption(self, said: sources.Storage) -> None:
        found = {'running': 0, 'paused': 0, 'waiting': 0}
        for lv in said.present.lvs.values():
            if names.REENCRYPTED not in lv.tags:
                continue
            volume = names.facts(lv.tags).get('volume', '')
            how = said.how_far.get(volume)
            if volume in said.reencrypting:
                found['running'] += 1
                if how:
                    self._add('reencrypted_bytes', how.done, volume=volume)
                    self._add('reencryption_bytes', how.total, volume=volume)
                    self._add('reencryption_rate_bytes', how.rate,
                              volume=volume)
            else:
                found['paused' if names.PAUSED in lv.tags else 'waiting'] += 1
        for name, count in found.items():
            self._add('reencryptions', count, state=name)

    def _of_both(self, storage: sources.Storage, database: sources.Database
                 ) -> None:
        record = record_of(self._host, database)
        self._add('differing_volumes', len(inspection.differing(
            record, storage.present, storage.clones)))
        self._add('unknown_lvs', len(inspection.unknown_lvs(
            record, storage.present)))

    def _of_service(self, said: dict[str, typing.Any],
                    volumes: Mapping[str, str]) -> None:
        for name, count in sorted(said['events'].items()):
            self._add('events_total', count, event=name)
        for cause, count in sorted(said['refusals'].items()):
            self._add('refusals_total', count, cause=cause)
        for move_id, copy in said['copies'].items():
            if move_id in volumes:
                self._add('copy_rate_bytes', copy['rate'] or 0,
                          volume=volumes[move_id])
                for speed in copies.Speed if copy['pace'] else ():
                    self._add('copy_pace', speed == copy['pace'],
                              volume=volumes[move_id], pace=speed.value)

    def _of_doctor(self, found: list[checks.Finding]) -> None:
        worst: dict[str, int] = {}
        for each in found:
            worst[each.check] = max(worst.get(each.check, 0),
                                    VERDICTS.index(each.verdict))
        for verdict in VERDICTS:
            self._add('doctor_checks', sum(
                each.verdict == verdict for each in found), verdict=verdict)
        for check, verdict_number in worst.items():
            self._add('doctor_check', verdict_number, check=check)


def _move_labels(move: state.Move) -> dict[str, str]:
    """Return the labels of a metric of a move."""
    return dict(zip(
        _MOVE_LABELS, (move.volume_id, move.source, move.destination),
        strict=True))


def _moving_volumes(said: sources.Storage | None) -> dict[str, str]:
    """Return the IDs of volumes being copied to this node.

    :returns: by move record ID, from the tags of the metadata LVs
    """
    found = {}
    for lv in said.present.lvs.values() if said else ():
        move_id = names.move_of_metadata(lv.name)
        volume = names.facts(lv.tags).get('volume')
        if move_id and volume:
            found[move_id] = volume
    return found


def record_of(host: str, said: sources.Database) -> inspection.Record:
    """Return the records of a node, to compare its devices with.

    :param host: service host of the node
    :param said: the answer of the database
    """
    return inspection.Record(
        host, [row for row in said.volumes
               if row.home == host],
        [each.move for each in said.moves
         if host in (each.move.source, each.move.destination)],
        said.snapshots,
        {move_id: position.number for move_id, position
         in said.positions.items()})


def as_objects(families: Iterable[Family]
               ) -> Iterator[dict[str, typing.Any]]:
    """Yield all values as objects for ``--json``."""
    for family in families:
        for sample in family.samples:
            yield {'Name': sample.name, 'Labels': sample.labels,
                   'Value': sample.value}
