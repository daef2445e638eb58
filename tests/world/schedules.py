# SPDX-License-Identifier: Apache-2.0
"""Running a schedule to its end, and what has to be true then."""

import contextlib
import datetime
import functools
import typing
from unittest import mock

from cinder_localclone.core import expected
from cinder_localclone.core import inspection as inspection_
from cinder_localclone.core import names
from cinder_localclone.volumes import inspect as inspection
from cinder_localclone.volumes import interrupted
from tests.helpers import complaints
from tests.world import disks
from tests.world import encrypted
from tests.world import flows
from tests.world import reencryption
from tests.world import scheduler as schedulers
from tests.world import workload

#: What only depends on a name, and is asked for all the time.
OF_NAMES = ('volume_of_handle', 'volume_of_guard', 'volume_of_export_device',
            'move_of_clone', 'move_of_source', 'move_of_metadata',
            'is_crypt', 'is_integrity', 'is_to_wipe')
#: Rounds of looks at all nodes within which all comes to its end.
ROUNDS = 20
#: Statuses of a volume at rest: an administrator ends the second.
REST = 'available', 'error_extending'


class Broken(Exception):
    """A promise that a schedule has broken.

    :param trace: what has happened: (seconds, actor, what)
    """

    def __init__(self, what, trace):
        super().__init__(what)
        self.trace = trace


@contextlib.contextmanager
def fast():
    """Whatever is slow, and nothing of what is tried, is replaced."""
    remembered: typing.Any = {
        each: functools.lru_cache(4096)(getattr(names, each))
        for each in OF_NAMES}
    with (flows.plain(),
          mock.patch.multiple(names, **remembered),
          mock.patch('cinder_localclone.service.messages.tell_member',
                     lambda *_args, **_values: None),
          mock.patch('cinder_localclone.driver.front_end.is_encrypted',
                     lambda volume: False)):
        yield


def run(schedule, choices=None):
    """Run a schedule.

    :param choices: by default as it has recorded them
    :returns: what has happened
    :raises Broken: if a promise is broken
    """
    choices = choices or schedulers.Recorded(schedule.taken)
    complaints.take()
    cloud = None
    try:
        with _patched(schedule, choices) as cloud:
            cloud.start()
            cloud.scheduler.run()
            end(cloud)
    except Exception as exc:
        raise Broken(str(exc) or repr(exc), cloud.scheduler.trace if cloud
                     else []) from exc
    finally:
        complaints.take()
        schedule.taken = choices.taken
        if cloud:
            cloud.scheduler.close()
    return cloud.scheduler.trace


@contextlib.contextmanager
def _patched(schedule, choices):
    later = schedulers.Later()
    with schedulers.patched(later, schedule.seed):
        cloud = workload.Cloud(schedule, choices)
        later.scheduler = cloud.scheduler
        yield cloud


# -- the end

def end(cloud):
    """Nothing fails any more: all comes to its end, and is as it should be."""
    cloud.scheduler.quiet = True
    cloud.scheduler.STEPS = cloud.scheduler.steps + 60000
    cloud.world.secrets.state = ''
    volumes = cloud.world.volumes
    if any(each.volume_attachment for each in volumes.values()):
        _settle(cloud)
        check_expected(cloud.world)
        _check_guests(cloud)
        _let_go(cloud)
    _settle(cloud)
    if any(each.status not in REST or each.id in cloud.world.going
           for each in [*volumes.values(), *cloud.world.snapshots.values()]):
        _delete_failed(cloud)
        _settle(cloud)
    check(cloud)
    if cloud.schedule.encrypted:
        _delete_all(cloud)


def _delete_all(cloud):
    """With all volumes go all secrets, and all backups of headers."""
    def delete():
        for snapshot in list(cloud.world.snapshots.values()):
            if not snapshot.deleted:
                cloud.delete_snapshot(snapshot)
        cloud.scheduler.wait(1)
        for volume in list(cloud.world.volumes.values()):
            cloud.ask_delete(volume)
    cloud.scheduler.spawn('all is deleted', delete)
    cloud.scheduler.run()
    _settle(cloud)
    check(cloud)
    if cloud.world.secrets.missed:
        encrypted.clean_up(cloud.world)
    problems = [*encrypted.left(cloud.world), *(
        'volume %s is left' % each for each in cloud.world.volumes)]
    if problems:
        raise AssertionError('; '.join(problems))


def _each(cloud, name, act):
    """Have all nodes do something, one after the other."""
    for node in cloud.nodes():
        cloud.scheduler.spawn(name + ' on ' + node.host,
                              lambda node=node: act(node))
        cloud.scheduler.run()


def _settle(cloud):
    world = cloud.world
    for node in cloud.nodes():
        if node.dead:
            world.start(node)
    cloud.scheduler.run()
    for _round in range(ROUNDS):
        before = _state(world)
        cloud.scheduler.now += 4000
        for node in cloud.nodes():
            node.exported.clear()
            node.lent.clear()
            node.sim_exports.ended.clear()
        _each(cloud, 'resumes', lambda node: _resume(cloud, node))
        _each(cloud, 'looks', lambda node: _look(cloud, node))
        if _state(world) == before:
            return
    raise AssertionError('never settled')


def _state(world):
    """What looks change, and whatever encrypts a volume anew."""
    return repr((world.snapshot(),
                 [(each.provider_id, each.status, each.host)
                  for each in world.volumes.values()],
                 [node.reencrypting for node in world.nodes.values()]))


def _resume(cloud, node):
    """Guests that were started again, and what their node's kernel does."""
    for volume in list(cloud.world.volumes.values()):
        # Cinder ends none that a service died with before it began.
        if volume.migration_status in ('starting', 'migrating'):
            volume.migration_status = None  # by an administrator
        if len(volume.volume_attachment) == 1 and volume.status == 'in-use':
            attachment, = volume.volume_attachment
            if node.host[0] == attachment.connector['host']:
                cloud.resume(volume)
    while node.copy_one():
        pass
    node.sync()
    for volume_id in list(node.reencrypting):
        reencryption.end(node, volume_id)


def _look(cloud, node):
    node.node.sessions._inner.begun.clear()
    node.reconciler.reconcile_node()
    cloud.sweep(node)
    interrupted.end_dead(node.node, datetime.datetime.max)
    for volume in list(cloud.world.volumes.values()):
        if volume.status == 'deleting':
            cloud.delete(node, volume)
    for snapshot in list(cloud.world.snapshots.values()):
        if snapshot.status == 'creating':
            cloud.world.set_snapshot(snapshot.id, status='error')
        if snapshot.status == 'deleting':
            cloud.world.set_snapshot(snapshot.id, status='deleted',
                                     deleted=True)


def check_expected(world):
    """Each node has of each volume what the driver's own rule says.

    The rule is stated once (:mod:`cinder_localclone.core.expected`); all that
    acts by it is not asked. Nor does the operator's command find a difference.
    """
    for volume in world.volumes.values():
        if volume.status not in ('available', 'in-use') or (
                volume.visible_id or volume.id in world.going):
            continue
        for node in world.nodes.values():
            found = node.make_database()
            move = found.moves.move_of(volume.id)
            home = volume.host.partition('#')[0]
            present = node.sim_handles.survey()
            wanted = expected.expected(node.host, home, volume.name, move)
            if not expected.is_as(wanted, present, volume.id):
                raise AssertionError(
                    'the handle of %s on %s is on %s, not on %s' % (
                        volume.id[:4], node.host, expected.maps_to(
                            present, volume.id, wanted.lv, wanted.clone),
                        wanted.handle))
            wrong = inspection_.differences(
                inspection.inspect(node.reconciler, volume.id),
                move, home, volume.name,
                found.moves.pending_cleanups(volume.id),
                found.snapshots.snapshots_of(volume.id))
            if wrong:
                raise AssertionError('%s on %s: %s' % (
                    volume.id[:4], node.host, '; '.join(wrong)))


def _check_guests(cloud):
    """What runs has its volume, and all of it; and waits for nothing."""
    waiting = +cloud.waiting
    if waiting:
        raise AssertionError('guests wait for ever: %s' % dict(waiting))
    for volume in cloud.world.volumes.values():
        for each in volume.volume_attachment:
            if each.attach_status == 'attached' and not each.left and (
                    not cloud.is_there(volume, cloud.world.nodes[
                        cloud.host_of(each)])):
                raise AssertionError('%s is attached to %s, and not there' % (
                    volume.id[:4], cloud.host_of(each)))
    for volume_id, host in cloud.guests.items():
        node = cloud.world.nodes[host]
        if not cloud.is_there(cloud.world.volumes[volume_id], node):
            raise AssertionError('guest of %s on %s has no handle' % (
                volume_id[:4], host))
        _read_all(cloud, node, volume_id)


def _read_all(cloud, node, volume_id):
    """What is hidden since an extension has failed, is on the LV yet."""
    shown = disks.length(node.devices[names.handle(volume_id)])
    lv = node.lvs.get(cloud.world.volumes[volume_id].name, ())
    for region in range(len(cloud.data[volume_id].regions)):
        if region < shown:
            cloud.read(node, volume_id, region)
        else:
            cloud.compare(node, volume_id, region, lv[region] if (
                region < len(lv)) else 'nothing')
    if cloud.world.wrongs:
        raise AssertionError(cloud.world.wrongs[0])


def _let_go(cloud):
    """All are detached, and live migrations end where the guest runs."""
    def detach():
        for volume in list(cloud.world.volumes.values()):
            running = cloud.guests.get(volume.id)
            for attachment in sorted(
                    volume.volume_attachment, key=lambda each: bool(
                        running and each.connector
                        and each.connector['host'] == running[0])):
                if attachment is volume.volume_attachment[-1] or (
                        running and attachment.connector
                        and attachment.connector['host'] == running[0]):
                    cloud._stop(volume)
                if attachment.connector:
                    host = cloud.host_of(attachment)
                    if host != cloud.guests.get(volume.id):
                        cloud.close_all(volume.id, host)
                cloud._disconnect(volume, attachment)
    cloud.scheduler.spawn('all are detached', detach)
    cloud.scheduler.run()


def _delete_failed(cloud):
    """What could not be created or deleted does not stay so.

    A tenant deletes once more what is "available" all the same: a retype has
    ended meanwhile, Cinder wrote that over "deleting", and the service that
    deleted it has died.
    """
    def delete():
        for snapshot in list(cloud.world.snapshots.values()):
            if snapshot.status == 'error' and not snapshot.deleted:
                cloud.delete_snapshot(snapshot)
        cloud.scheduler.wait(1)
        for volume in list(cloud.world.volumes.values()):
            if volume.status in ('error', 'error_deleting') or (
                    volume.id in cloud.world.going):
                cloud.ask_delete(volume)
    cloud.scheduler.spawn('what failed is deleted', delete)
    cloud.scheduler.run()


def check(cloud):
    """What is left is the volumes at rest, and nothing else."""
    world = cloud.world
    problems = [*world.wrongs]  # whoever has caught them
    if world.move_records:
        problems.append('moves are left: %s'
                        % list(world.move_records.values()))
    if cloud.scheduler.locks:
        problems.append('locks are held: %s' % cloud.scheduler.locks)
    for volume in world.volumes.values():
        if volume.status not in REST:
            problems.append('%s is %s' % (volume.id, volume.status))
        else:
            home = world.home(volume)
            if volume.name not in home.lvs:
                problems.append('%s has no LV' % volume.id)
            elif names.handle(volume.id) not in home.devices:
                problems.append('%s has no handle' % volume.id)
            else:
                _read_all(cloud, home, volume.id)
    for node in cloud.nodes():
        problems += _left(cloud, node)
    if problems:
        raise AssertionError('; '.join(problems))


def _left(cloud, node):
    world = cloud.world
    own = {volume.name: volume for volume in world.volumes.values()
           if world.home(volume) is node}
    snapshots = {names.snapshot_lv(each.id) for each in
                 world.snapshots.values() if not each.deleted}
    for lv in sorted(set(node.lvs) - set(own) - snapshots):
        yield 'LV %s is left on %s' % (lv, node.host)
    handles = {names.handle(volume.id) for volume in own.values()}
    for name in sorted(set(node.devices) - handles):
        yield 'device %s is left on %s' % (name, node.host)
    for what in ('exports', 'sessions', 'remotes', 'remote', 'suspended'):
        found = getattr(node, what)
        if found:
            yield '%s are left on %s: %s' % (what, node.host, found)
