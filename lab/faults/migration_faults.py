# SPDX-License-Identifier: Apache-2.0
"""Cinder's own migration of a volume that moves, and the other way round."""

import contextlib

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.faults.scenario import fault
from lab.scenarios.repeated import OPERATIONS
from lab.scenarios.requests import must

#: While Cinder copies, requests must come in between.
_SLOW = '16mbit'


@contextlib.contextmanager
def _another_backend(scenario):
    """Cinder's own LVM driver on the destination, and a type for it."""
    lab, node = scenario.environment.lab, scenario.destination
    lab.write_service_config(node, 'stock')
    node.service('start', 'stock')
    try:
        lab.wait_for_services('stock', nodes=[node.name])
        yield
    finally:
        node.service('stop', 'stock')


def _row(scenario):
    return scenario.environment.lab.cinder().get(
        '/volumes/' + scenario.disk.volume).json()['volume']


def _act(scenario, action, **how):
    scenario.environment.lab.cinder().post(
        '/volumes/%s/action' % scenario.disk.volume,
        json={action: how}).raise_for_status()


def _migrate(scenario, force):
    """To the node that the move comes from."""
    _act(scenario, 'os-migrate_volume', force_host_copy=force,
         host=scenario.source.name + '@localclone#localclone')


def _retype(scenario):
    _act(scenario, 'os-retype', new_type='stock',
         migration_policy='on-demand')


def _settled(scenario, *wanted):
    """Cinder's migration has ended."""
    def ended():
        row = _row(scenario)
        return row['status'] == 'available' and (
            row['migration_status'] in wanted) and row
    return process.wait_for("Cinder's migration to end", ended, 240, every=1)


def _rows(scenario):
    """Of the volume, its shadow and what Cinder makes for a migration."""
    return {row[0] for row in observe.sql(
        scenario.environment.lab, "SELECT id FROM volumes WHERE deleted = 0 "
        "AND (id = '%s' OR migration_status = 'target:%s')" % (
            (scenario.disk.volume,) * 2))}


def _all_refused(scenario):
    """Each way of Cinder's is refused; what it has begun goes by itself."""
    before = _rows(scenario)
    must(len(before) == 2, 'the volume is not moving')
    for ask in (lambda: _migrate(scenario, False),
                lambda: _migrate(scenario, True),
                lambda: _retype(scenario)):
        ask()
        _settled(scenario, 'error')
        process.wait_for("Cinder's new volume to go",
                         lambda: _rows(scenario) == before, 60)


def _left_alone(scenario):
    """It is being moved, and attached nowhere."""
    scenario.disk.stop()
    scenario.disk.detach(scenario.destination)


@fault("Cinder's migration while it is copied")
def while_copied(scenario):
    with _another_backend(scenario):
        scenario.start_slow()
        _left_alone(scenario)
        _all_refused(scenario)
    scenario.go_on()


@fault("Cinder's migration while its move ends")
def while_it_ends(scenario):
    with _another_backend(scenario):
        scenario.start_slow()
        _left_alone(scenario)
        scenario.environment.brake(scenario.source)
        # The volume's lock is held there: only now.
        scenario.stop_at('destination',
                         'advance: all regions local and flushed')
        _all_refused(scenario)
        scenario.environment.release()


def _checksum(scenario, node, path):
    return instances.checksum(node, path, scenario.disk.mib, timeout=120)


@fault("attaches while Cinder migrates it")
def attached_meanwhile(scenario):
    """Refused on both nodes; Cinder's migration ends."""
    disk, source = scenario.disk, scenario.source
    before = _checksum(scenario, source, disk.path)
    with _another_backend(scenario):
        scenario.environment.brake(source, _SLOW)
        _retype(scenario)
        process.wait_for("Cinder's migration to begin",
                         lambda: len(_rows(scenario)) == 2, 60)
        for node in (scenario.destination, source):
            connector = disk.instance.connector(node)
            answer = disk.instance.nova.post('/attachments', json={
                'attachment': {'volume_uuid': disk.volume,
                               'instance_uuid': disk.instance.uuid,
                               'connector': connector}})
            must(answer.status_code >= 400, 'it was given out on '
                 + node.name)
        must(len(_rows(scenario)) == 2, 'a move has begun')
        scenario.environment.brake(source)
        row = _settled(scenario, 'success')
        must('@stock' in row['os-vol-host-attr:host'], 'it is at '
             + row['os-vol-host-attr:host'])
        remote = instances.Instance(
            scenario.environment.lab).attach(disk.volume, source)
        after = _checksum(scenario, source, remote.path)
        remote.detach()
        must(after == before, 'the data is not what it was')
        disk.remove()
    # It has left: what can be done with the others is seen with another.
    scenario.disk = scenario.fresh(source)
    scenario.operation = OPERATIONS['move'](
        scenario.environment, scenario.disk, source, scenario.destination)
