# SPDX-License-Identifier: Apache-2.0
"""The key manager is away, or does not give the key of a volume."""

import contextlib
import signal

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.faults.scenario import fault
from lab.keys import volumes
from lab.scenarios import encrypted_disk
from lab.scenarios import requests
from lab.scenarios.requests import must

OPERATION = 'move encrypted'
#: Seconds until a request is refused whose key is not to be had.
_REFUSED = 60


def refused(scenario, *nodes):
    """Attaches are, on these nodes, and the header stays as it is."""
    disk, home = scenario.disk, scenario.source
    before = disk.header(home)
    not_attached(scenario, *nodes)
    must(disk.header(home) == before, 'the header is another one')


def not_attached(scenario, *nodes):
    """Attaches are refused; the volume is at home and at rest afterwards."""
    disk = scenario.disk
    for node in nodes:
        try:
            disk.try_attach(node)
        except process.LabError:
            pass
        else:
            raise process.LabError('attached on ' + node.name)
        must(not disk.has_path(node), 'it was opened on ' + node.name)
        instances.wait_status(disk.cinder, disk.volume, 'available')
    process.wait_for('the roll-back', lambda: not observe.move_records(
        scenario.environment.lab), _REFUSED)
    must(disk.home() == scenario.source.name, 'the volume has moved')


def _starts(scenario):
    """The operation begins as soon as the driver asks for the key again."""
    requests.until('the attach', lambda: scenario.disk.try_attach(
        scenario.source), 90)
    scenario.disk.verify(scenario.source)
    scenario.disk.detach(scenario.source)
    scenario.start()


@contextlib.contextmanager
def _away(scenario):
    lab = scenario.environment.lab
    volumes.key_manager(lab, False)
    try:
        yield
    finally:
        volumes.key_manager(lab, True)


@fault('the key manager is away', OPERATION)
def away(scenario):
    with _away(scenario):
        refused(scenario, scenario.destination, scenario.source)
    _starts(scenario)


@fault('the key manager does not answer', OPERATION)
def hangs(scenario):
    lab = scenario.environment.lab
    lab.processes.signal('barbican', signal.SIGSTOP)
    try:
        refused(scenario, scenario.destination, scenario.source)
    finally:
        volumes.key_manager(lab, True)
    _starts(scenario)


@fault('the key manager is away while a guest writes', OPERATION)
def in_use(scenario):
    """A guest goes on; nobody else gets the volume."""
    disk, node = scenario.disk, scenario.source
    disk.attach(node)
    disk.start(node)
    with _away(scenario):
        try:
            disk.attach(scenario.destination, live=True)
        except process.LabError:
            disk.forget_others(node)
        else:
            raise process.LabError('attached on both nodes')
        disk.check_running()
    disk.stop()
    disk.verify(node)
    disk.detach(node)
    _starts(scenario)


@fault('the key manager is away at boot', OPERATION)
def at_boot(scenario):
    """What is locked is opened when it answers; others are there before."""
    disk, node = scenario.disk, scenario.source
    plain, = encrypted_disk.create(scenario.environment, node, [False])
    try:
        plain.fill(node)
        disk.attach(node)
        disk.start(node)
        disk.check_running()
        with _away(scenario):
            scenario.cut(node)
            scenario.boot(node)
            process.wait_for('the other handle', lambda: plain.has_path(node),
                             60, every=1)
            plain.verify(node)
            must(not disk.has_path(node), 'it is open without a key')
        process.wait_for('it to be opened', lambda: disk.has_path(node), 120,
                         every=1)
    finally:
        plain.remove()
    scenario.lost_power.clear()  # the operation begins now
    disk.verify(node)
    disk.detach(node)
    scenario.start()


# -- what Barbican has in its database


def _secret(disk):
    reference, = disk.way.references(disk.volume)
    return reference.rpartition('/')[2]


def _sql(scenario, statement):
    observe.sql(scenario.environment.lab, statement, 'barbican')


@fault('the secret is revoked', OPERATION)
def revoked(scenario):
    secret = _secret(scenario.disk)
    change = "UPDATE secrets SET deleted = %d WHERE id = '%s'"
    _sql(scenario, change % (1, secret))
    try:
        refused(scenario, scenario.destination, scenario.source)
    finally:
        _sql(scenario, change % (0, secret))
    _starts(scenario)


@fault('the secret is that of another volume', OPERATION)
def wrong(scenario):
    mine = _secret(scenario.disk)
    other = scenario.fresh(scenario.source)
    theirs = _secret(other)
    change = ("UPDATE encrypted_data SET secret_id = '%s' "
              "WHERE secret_id = '%s'")
    nobody = '-' * 36

    def swap():
        _sql(scenario, 'SET foreign_key_checks = 0; ' + '; '.join(
            change % pair for pair in (
                (nobody, mine), (mine, theirs), (theirs, nobody))))
    swap()
    try:
        refused(scenario, scenario.destination, scenario.source)
    finally:
        swap()
    _starts(scenario)
