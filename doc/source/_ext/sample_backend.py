# SPDX-License-Identifier: Apache-2.0
"""A made-up backend of two nodes, for the operator's command to run on.

MOVING and STARTING in its words stand for the ids of two volumes. A third
node, node3, is gone; only ``forget`` is told of it.
"""

import contextlib
import dataclasses
import io
import logging
import time
import types
from unittest import mock

from cinder_localclone.cmd import backend
from cinder_localclone.cmd import checks
from cinder_localclone.cmd import doctor
from cinder_localclone.cmd import main
from cinder_localclone import exceptions
from cinder_localclone import hydration
from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import operator_records
from cinder_localclone.privileged import configfs
from cinder_localclone.privileged import devicemapper
from cinder_localclone.privileged import lvm
from cinder_localclone.privileged import process
from cinder_localclone import repair
from cinder_localclone import restore
from cinder_localclone import state

GIB = 1 << 30
MOVING, STARTING, QUIET, SHADOW, OTHER_SHADOW, SERVER = (
    '%s-5b1e-4f0a-9c3d-71f2a86e04b5' % begin for begin in (
        '1c7e09a4', '6fd2b83e', 'a40b5c17', 'd93e6f02', 'e8a1c75b',
        '27b64d90'))
NODE1, NODE2, NODE3 = ('node%d@localclone' % n for n in (1, 2, 3))


def _move(volume, shadow, phase, source=NODE1):
    return state.Move(
        volume, shadow, state.Token(phase, 'n', state.Geometry(128, 32, 8)),
        True, source, NODE2, 'volume-' + volume, 'volume-' + shadow, 20)


MOVES = {each.volume_id: each for each in (
    _move(MOVING, SHADOW, state.Phase.MIGRATING),
    _move(STARTING, OTHER_SHADOW, state.Phase.STARTING))}

#: What a node that is to be emptied has.
GROUPED, FREE, SNAPSHOT = (
    '%s-5b1e-4f0a-9c3d-71f2a86e04b5' % begin
    for begin in ('52e7c0d1', '0b9d3a86', '94f1b6e2'))


def _volume(volume, **more):
    return types.SimpleNamespace(**{
        'id': volume, 'status': 'available', 'host': NODE1 + '#localclone',
        'size': 20, 'volume_attachment': [], 'group_id': None,
        'migration_status': None, 'replication_driver_data': None,
        'attach_status': 'detached', 'availability_zone': 'nova', **more})


def _attachment(host):
    return types.SimpleNamespace(
        attach_status='attached', instance_uuid=SERVER,
        connector={'host': host})


#: What a node that is gone is named by.
MOVES_OF = {NODE1: list(MOVES.values()), NODE3: [
    _move(MOVING, SHADOW, state.Phase.MIGRATING, NODE3),
    _move(STARTING, OTHER_SHADOW, state.Phase.RELEASING, NODE3)]}
VOLUMES_OF = {
    NODE3: [_volume(QUIET, host=NODE3 + '#localclone')],
    NODE1: [_volume(FREE), _volume(GROUPED, group_id='g'), _volume(
        QUIET, status='in-use', volume_attachment=[_attachment('node1')])]}


def _lv(name, size=20 * GIB):
    return {'name': name, 'size': size, 'active': True, 'tags': []}


def _inspect(host, volume_id):
    """As if an administrator had cleared the target of node1."""
    moving = MOVES[volume_id]
    found = {'host': host, 'clone': None, 'session': None, 'progress': None,
             'served': False, 'source': None,
             'handle': {'number': '253:7', 'opened': 0, 'suspended': False,
                        'on': ['LV ' + moving.source_lv]},
             'lvs': [_lv(moving.source_lv)]}
    if host == NODE1:
        return dict(
            found, source={'opened': 0, 'exported': False},
            handle=found['handle'] if moving.keeps_handle else None)
    copies = moving.phase is state.Phase.MIGRATING
    return dict(
        found, session='/dev/sdb', lvs=[
            _lv(names.metadata_lv(moving.shadow_id), 4 << 20),
            _lv(moving.destination_lv)],
        handle=dict(found['handle'], opened=1,
                    on=['clone ' + names.clone(moving.shadow_id)]),
        clone={'hydrated': 134808 if copies else 12, 'regions': 327680,
               'mode': 'rw', 'enabled': copies},
        progress=dataclasses.asdict(hydration.Progress(
            41.1, 161.6 * (1 << 20), 74.6))
        if copies else None)


class _Peers:
    """The answers of the two volume services."""

    def abort(self, _context, host, volume_id):
        pass

    resume = abort
    #: Whether both nodes are ready.
    ready = False

    def answer(self, host, method, *arguments):
        if method == 'inspect':
            return _inspect(host, *arguments)
        if method == 'repair':
            moving = MOVES[arguments[0]]
            return [] if host == NODE2 else [
                repair.DESCRIPTIONS['offer_source'].format(moving)]
        if method == 'troubles':
            return []
        problems = [] if host == NODE1 or self.ready else [
            'its kernel has no dm-clone (CONFIG_DM_CLONE), or the module is '
            'missing']
        return {'host': host + '#localclone', 'time': time.time(),
                'problems': problems, 'room': dataclasses.asdict(
                    reports.FreeSpace(142 * GIB, 9 * GIB, False))}


class _Backend:
    """Stands for :class:`cinder_localclone.cmd.backend.Backend`."""

    name = 'localclone'
    host = NODE1
    context = None
    peers = _Peers()
    records = types.SimpleNamespace(
        services=lambda: {NODE1: True, NODE2: True},
        moves=lambda: list(MOVES.values()), remains_of=lambda volume_id: [],
        snapshots_of=lambda volume_id: [], snapshots=lambda ids: {},
        moves_of=lambda host: MOVES_OF.get(host, []),
        volumes_of=lambda host: VOLUMES_OF.get(host, []) if (
            host == NODE3 or _Peers.ready) else [],
        service=lambda host: operator_records.Service(
            True, host == NODE1, 'nova'),
        snapshots_on=lambda host: {SNAPSHOT: QUIET})
    settings = types.SimpleNamespace(
        named='/etc/cinder/cinder.conf', rpc_timeout=60)
    conf = types.SimpleNamespace(check=lambda: None, **{
        each.dest: each.default for each in backend.SECTION_OPTS})

    def load_cinder(self):
        pass

    def nodes(self):
        return self.records.services()

    def ask(self, host, method, *arguments):
        return self.peers.answer(host, method, *arguments), ''

    def volume(self, volume_id):
        moving = MOVES[volume_id]
        return types.SimpleNamespace(
            status='in-use', host=NODE2 + '#localclone',
            name=moving.destination_lv, migration_status=None,
            volume_attachment=[_attachment('node2')]), moving

    def sessions(self):
        return types.SimpleNamespace(
            initiator=lambda: 'iqn.2026-11.org.example:node1')

    def stack(self):
        pool = 'cinder-volumes-pool'
        return types.SimpleNamespace(
            group='cinder-volumes', pool=pool,
            metadata_group='cinder-volumes',
            lvs=lambda: {pool: reports.LogicalVolume(
                'cinder-volumes', pool, 900 * GIB, '', frozenset(),
                zeroes=True)},
            pool_usage=lambda: (84.2, 11.0),
            free_space=lambda: reports.FreeSpace(142 * GIB, 9 * GIB, False))


def _restored(*_args):
    return [(restore.Local(volume, 'volume-' + lv, 20 * GIB, move),
             problem) for volume, lv, move, problem in (
        (QUIET, QUIET, None, ''),
        (MOVING, SHADOW, MOVES[MOVING], ''),
        (STARTING, OTHER_SHADOW, MOVES[STARTING], str(
            exceptions.SourceUnreachable(portal='192.0.2.13:3260',
                                         reason='timed out'))))]


class _Sample(main.LocalClone):

    def backend(self):
        return _Backend()


@contextlib.contextmanager
def _logging_kept():
    """What the command does to this process's logging is undone."""
    loggers = [logging.getLogger(name) for name in (None, *main.TALKATIVE)]
    kept = [(each, each.level, list(each.handlers)) for each in loggers]
    try:
        yield
    finally:
        for logger, level, handlers in kept:
            logger.setLevel(level)
            logger.handlers[:] = handlers


def run(words: list[str]) -> tuple[str, int]:
    """What a command prints and its exit code."""
    argv = [{'MOVING': MOVING, 'STARTING': STARTING}.get(word, word)
            for word in words]
    with contextlib.ExitStack() as made_up:
        made_up.enter_context(_logging_kept())
        printed = made_up.enter_context(
            contextlib.redirect_stdout(io.StringIO()))
        for where, what, instead in (
                (main, 'LocalClone', _Sample),
                (_Peers, 'ready', words[0] == 'drain'),
                (backend, 'act_as_root', lambda: None),
                (restore, 'restore', _restored),
                (doctor.os, 'geteuid', lambda: 0),
                (doctor.shutil, 'which', lambda name: '/usr/sbin/' + name),
                (doctor.os.path, 'isdir', lambda path: True),
                (checks, 'rules', lambda directories: [checks.Finding(
                    'udev rules', checks.OK,
                    '/usr/lib/udev/rules.d/' + checks.RULES)]),
                (process, 'run', lambda *argv, timeout:
                 'global_filter=["a|^/dev/nvme0n1p3$|","r|.*|"]\n'),
                (lvm, 'free', lambda groups, timeout: None),
                (configfs, 'hanging', lambda prefix, timeout: []),
                (devicemapper, 'targets',
                 lambda timeout: 'clone v1.0.0\nthin-pool v1.22.0\n')):
            made_up.enter_context(
                mock.patch.object(where, what, instead))
        code = main.main(argv)
    return '# cinder-localclone %s\n%s' % (
        ' '.join(argv), printed.getvalue()), code
