# SPDX-License-Identifier: Apache-2.0
"""A made-up backend of two nodes, for the operator's command to run on.

A third node, node3, is gone; only ``node forget`` is told of it.
"""

import contextlib
import dataclasses
import datetime
import io
import logging
import shlex
import time
import types
from unittest import mock

from oslo_config import cfg

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor import doctor
from cinder_localclone.cmd import main
from cinder_localclone.cmd.metrics import sources
from cinder_localclone.cmd.report import command as report
from cinder_localclone.cmd.report import parts
from cinder_localclone.core import boot_plan
from cinder_localclone.core import copies as copies_module
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core import volume as core_volume
from cinder_localclone.core import volume_types
from cinder_localclone.db import inventory
from cinder_localclone.encryption import operator
from cinder_localclone.encryption import upkeep
from cinder_localclone.service import operator as backend
from cinder_localclone.service import restore
from cinder_localclone.storage import prerequisites
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import lio_configfs
from cinder_localclone.storage.privsep import lvm
from cinder_localclone.storage.privsep import process
from cinder_localclone.volumes import repair

GIB = 1 << 30
#: A volume that is gone, and the reference of a secret that it had.
GONE, KEY_LEFT = ('e1c94d07-62a8-4b3f-8d15-90f7ab3c26e8',
                  '5d0b7c1e-93f4-4a68-b2d7-1f8e6c05a943')
MOVING, STARTING, QUIET, SHADOW, OTHER_SHADOW, SERVER = (
    '%s-5b1e-4f0a-9c3d-71f2a86e04b5' % begin for begin in (
        '1c7e09a4', '6fd2b83e', 'a40b5c17', 'd93e6f02', 'e8a1c75b',
        '27b64d90'))
NODE1, NODE2, NODE3 = ('node%d@localclone' % n for n in (1, 2, 3))


def _move(volume, record, phase, source=NODE1):
    return state.Move(
        volume, record, state.Token(phase, 'n', state.Geometry(128, 32, 8)),
        True, source, NODE2, 'volume-' + volume, 'volume-' + record, 20)


MOVES = {each.volume_id: each for each in (
    _move(MOVING, SHADOW, state.Phase.MIGRATING),
    _move(STARTING, OTHER_SHADOW, state.Phase.STARTING))}

#: A snapshot of QUIET, and what node3 had: a volume, and two sources of moves.
SNAPSHOT, LOST, CUT_OFF, RELEASED, *RECORDS = (
    '%s-5b1e-4f0a-9c3d-71f2a86e04b5' % begin
    for begin in ('94f1b6e2', '52e7c0d1', '0b9d3a86', 'f7a3e5c0', '48d1b96f',
                  'b26c70ea'))
MOVES_OF_LOST = {each.volume_id: each for each in (
    _move(CUT_OFF, RECORDS[0], state.Phase.MIGRATING, NODE3),
    _move(RELEASED, RECORDS[1], state.Phase.RELEASING, NODE3))}
ALL_MOVES = {**MOVES, **MOVES_OF_LOST}


def _columns(volume, host=NODE1, lv=None):
    return dict(
        dict.fromkeys(core_volume.COLUMNS), id=volume,
        name='volume-' + (lv or volume), name_id=lv or volume,
        host=host + '#localclone', size=20, status='available',
        attach_status='detached', availability_zone='nova', use_quota=True)


def _volume(volume, **more):
    return core_volume.Volume(**{
        **_columns(volume), 'volume_attachment': (), **more})


def _attachment(host):
    return core_volume.Attachment(
        'a', SERVER, 'attached', None, datetime.datetime(2026, 11, 1),
        {'host': host}, {})


#: Volumes that are encrypted: two by the driver, one by Nova.
ENCRYPTED, REENCRYPTED, BY_NOVA = (
    '%s-5b1e-4f0a-9c3d-71f2a86e04b5' % begin
    for begin in ('3d80f6c2', '7be214a9', 'c05a97e1'))
_RECORDED = str(volume_types.Recorded(
    volume_types.HEADER_BYTES, '8f21c6d4-0d5b-4a7e-9b1c-d27e3f60a815'))
VOLUMES_OF = {
    NODE1: [_volume(ENCRYPTED, provider_id=_RECORDED, status='in-use',
                    volume_attachment=(_attachment('node1'),)),
            _volume(QUIET, group_id='g'),
            _volume(BY_NOVA, encryption_key_id='k')],
    NODE2: [_volume(REENCRYPTED, provider_id=_RECORDED,
                    host=NODE2 + '#localclone'),
            *(_volume(each.volume_id, host=NODE2 + '#localclone',
                      status='in-use', name=each.destination_lv,
                      name_id=each.move_id,
                      volume_attachment=(_attachment('node2'),))
              for each in MOVES.values())],
    NODE3: [_volume(LOST, host=NODE3 + '#localclone')]}
#: Moves that name a node.
MOVES_OF = {NODE1: list(MOVES.values()), NODE2: list(MOVES.values()),
            NODE3: list(MOVES_OF_LOST.values())}


def _status(volume_id):
    found = {'cipher': 'aes-xts-plain64', 'key_bits': 512,
             'sector_size': 512, 'key_slots': ['0', '1'],
             'recovery_keys': ['1'], 'unknown_keys': [], 'changing': False,
             'shares_key': False, 'open': True,
             'reencryption': _reencryption('none')}
    return found if volume_id == ENCRYPTED else dict(
        found, key_slots=['0', '1'], recovery_keys=[], changing=True,
        open=False, reencryption=_reencryption('paused'))


def _lv(name, size=20 * GIB):
    return {'name': name, 'size': size, 'active': True, 'tags': []}


def _inspect(host, volume_id):
    """As if an administrator had cleared the target of node1."""
    moving = ALL_MOVES.get(volume_id)
    lv = moving.source_lv if moving else 'volume-' + volume_id
    found = {'host': host, 'clone': None, 'session': None, 'progress': None,
             'exported': False, 'source': None, 'remote': False,
             'upper_devices': [],
             'handle': {'number': '253:7', 'opened': 0, 'suspended': False,
                        'on': ['LV ' + lv]},
             'lvs': [_lv(lv)]}
    if not moving:
        return found
    if host == NODE1:
        return dict(
            found, source={'opened': 0, 'exported': False},
            handle=found['handle'] if moving.keeps_handle else None)
    copies = moving.phase is state.Phase.MIGRATING
    return dict(
        found, session='/dev/sdb', lvs=[
            _lv(names.metadata_lv(moving.move_id), 4 << 20),
            _lv(moving.destination_lv)],
        handle=dict(found['handle'], opened=1,
                    on=['clone ' + names.clone(moving.move_id)]),
        clone={'hydrated': 134808 if copies else 12, 'regions': 327680,
               'mode': 'rw', 'enabled': copies},
        progress=dataclasses.asdict(copies_module.Progress(
            41.1, 43.4 * (1 << 20), 277.8, pace='yielding'))
        if copies else None)


def _reencryption(status, cipher='serpent-xts-plain64'):
    running = status == 'running'
    return {'status': status, 'done': 7 * GIB, 'total': 20 * GIB,
            'cipher': cipher, 'key_bits': 512,
            'rate': 210 << 20 if running else 0,
            'seconds_left': 63.4 if running else None}


class _Peers:
    """The answers of the two volume services."""

    def abort(self, host, volume_id):
        pass

    resume = abort

    def has_lv(self, host, volume_id, lv):
        return False

    def encryption_reencrypt(self, host, volume_id, cipher, *_wish):
        return _reencryption('running', cipher)

    def encryption_pause(self, host, volume_id):
        return _reencryption('paused')

    def encryption_resume(self, host, volume_id):
        return _reencryption('running')

    #: Whether both nodes are ready.
    ready = False

    def answer(self, host, method, *arguments):
        if method == 'inspect':
            return _inspect(host, *arguments)
        if method == 'repair':
            moving = MOVES[arguments[0]]
            return [] if host == NODE2 else [
                repair.DESCRIPTIONS['export_source'].format(moving)]
        if method == 'troubles':
            return []
        if method == 'encryption_status':
            return _status(*arguments)
        if method == 'encryption_verify':
            return [{'what': what, 'problem': problem} for what, problem in (
                ('copies of the header', ''), ('key', ''), ('key slots', ''),
                ('tags of the LV', ''), ('backup of the header',
                                         'there is none'))]
        if method == 'encryption_rotate':
            return []
        if method == 'encryption_header_backup':
            return names.header_backup(arguments[0], '3')
        problems = [] if host == NODE1 or self.ready else [
            'its kernel has no dm-clone (CONFIG_DM_CLONE), or the module is '
            'missing']
        return {'host': host + '#localclone', 'time': time.time(),
                'to_wipe': 0, 'problems': problems, 'block': 512,
                'initiator': 'iqn.2026-11.org.example:'
                + host.partition('@')[0],
                'free_space': dataclasses.asdict(
                    lvm_reports.FreeSpace(142 * GIB, 9 * GIB, False))}


class _Inventory:
    """Stands for :class:`cinder_localclone.db.inventory.Inventory`."""

    @staticmethod
    def all_volumes(_backend):
        return [
            _row(MOVING, NODE2, SHADOW, display_name='data', status='in-use',
                 hosts=('node2',)),
            _row(STARTING, NODE2, OTHER_SHADOW, display_name='web',
                 status='in-use', hosts=('node1', 'node2')),
            _row(ENCRYPTED, provider_id=_RECORDED, display_name='accounts',
                 status='in-use', hosts=('node1',)),
            _row(QUIET, display_name='logs'),
            _row(BY_NOVA, encryption_key_id='k', display_name='mail'),
            _row(REENCRYPTED, NODE2, provider_id=_RECORDED,
                 display_name='orders')]

    @staticmethod
    def all_moves(_backend):
        return [inventory.Under(each, 0.0) for each in MOVES.values()], 0

    @staticmethod
    def encrypted_by_nova(_volume_id):
        return 'aes-xts-plain64', 256

    @staticmethod
    def service(host):
        return inventory.Service(True, host == NODE1, 'nova')

    @staticmethod
    def unended(_backend, _seconds):
        return []

    @staticmethod
    def is_encryption_available():
        return False

    @staticmethod
    def secrets_of_all():
        return set()

    @staticmethod
    def volumes_known(_ids):
        return set(), {GONE}


class _Backend:
    """Stands for :class:`cinder_localclone.service.operator.Backend`."""

    name = 'localclone'
    host = NODE1
    peers = _Peers()
    db = types.SimpleNamespace(
        moves=types.SimpleNamespace(
            readable_moves=lambda: list(MOVES.values()),
            pending_cleanups=lambda volume_id: [],
            moves_of=lambda host: MOVES_OF.get(host, [])),
        volumes=types.SimpleNamespace(
            volumes_of=lambda host: VOLUMES_OF.get(host, []),
            volume=lambda volume_id: next(
                each for each in sum(VOLUMES_OF.values(), [])
                if each.id == volume_id),
            service_of=lambda volume_id: None,
            volumes_with_wrong_host=lambda host, migrating: []),
        snapshots=types.SimpleNamespace(
            snapshots_of=lambda volume_id: [], snapshots=lambda ids: {}),
        secrets=types.SimpleNamespace(secrets_in_use=lambda host='': set()),
        services=types.SimpleNamespace(
            alive_by_host=lambda: {NODE1: True, NODE2: True}),
        queue=types.SimpleNamespace(copies=lambda host: [
            copies_module.Entry(SHADOW, MOVING, NODE1, NODE2)]),
        decommission=types.SimpleNamespace(
            snapshots_on=lambda host: {SNAPSHOT: QUIET}),
        inventory=_Inventory())
    settings = types.SimpleNamespace(
        named='/etc/cinder/cinder.conf', rpc_timeout=60,
        sections=lambda: {'localclone': None}, conf=cfg.ConfigOpts())
    conf = types.SimpleNamespace(check=lambda: None, **{
        each.dest: each.default for each in backend.SECTION_OPTS})

    def load_cinder(self):
        pass

    def find(self, name):
        return {each.display_name: each.id
                for each in self.db.inventory.all_volumes(None)}[name]

    def nodes(self):
        return self.db.services.alive_by_host()

    def call(self, host, name, *arguments):
        return getattr(self.peers, name)(host, *arguments)

    def ask(self, host, method, *arguments):
        return self.peers.answer(host, method, *arguments), ''

    def volume(self, volume_id):
        return next(
            each for each in sum(VOLUMES_OF.values(), [])
            if each.id == volume_id), MOVES.get(volume_id)

    def sessions(self):
        return types.SimpleNamespace(
            initiator=lambda: 'iqn.2026-11.org.example:node1',
            recorded_remotes=lambda: {})

    def crypt(self):
        return types.SimpleNamespace(
            remotes=lambda: {}, backed_up_volumes=lambda: [GONE],
            drop_backups=lambda volume_id: None,
            former_directories=list)

    def keys(self):
        return types.SimpleNamespace(
            of_volumes=lambda: [(KEY_LEFT, GONE)],
            release=lambda *use: None, remove=lambda key: None)

    def handles(self):
        return types.SimpleNamespace(survey=lambda: survey.Survey({}, {}))

    def clones(self):
        return types.SimpleNamespace(clone_statuses=dict)

    def lvm(self):
        pool = 'cinder-volumes-pool'
        return types.SimpleNamespace(
            group='cinder-volumes', pool=pool,
            metadata_group='cinder-volumes',
            lvs=lambda: {pool: lvm_reports.LogicalVolume(
                'cinder-volumes', pool, 900 * GIB, '', frozenset(),
                zeroes=True, allocated=758 * GIB, metadata_size=GIB,
                metadata_used=110 << 20)},
            check_groups=lambda lvs: None,
            pool_transactions=lambda pool: (17, 17),
            free_space=lambda: lvm_reports.FreeSpace(
                142 * GIB, 9 * GIB, False))


def _restored(*_args):
    return [(boot_plan.Local(volume, 'volume-' + lv, 20 * GIB, move),
             problem) for volume, lv, move, problem in (
        (REENCRYPTED, REENCRYPTED, None, ''),
        (MOVING, SHADOW, MOVES[MOVING], ''),
        (STARTING, OTHER_SHADOW, MOVES[STARTING], str(
            exceptions.SourceUnreachable(portal='192.0.2.13:3260',
                                         reason='timed out'))))]


def _unlocked(*_args):
    return [boot_plan.Outcome(
        ENCRYPTED, 'volume-' + ENCRYPTED, upkeep.LOCKED, str(
            encryption_exceptions.KeyUnavailable(
                reason='no answer within 15 s')))]


def _opened(*_args):
    return [boot_plan.Outcome(
        ENCRYPTED, 'volume-' + ENCRYPTED, upkeep.OPENED)]


def _added(*_args):
    return operator.Added('1', '-'.join(
        ['Q2JW', 'T7AK', 'N5LX', '4DVG', 'M3YB', 'ZR6C', 'HE2P', 'S7UF',
         'KJ4O', 'X3WN', 'B6TA', 'V5QI', 'LG2D']))


def _measured(*_args):
    """What the sources say on the destination of the moves."""
    def answer(value, seconds):
        return sources.Answer(value, seconds=seconds)
    lvs = [lvm_reports.LogicalVolume('cinder-volumes', *each) for each in (
        ('volume-' + SHADOW, 20 * GIB, '253:8', frozenset(
            names.tags(volume=MOVING))),
        (names.metadata_lv(SHADOW), 4 << 20, '253:9', frozenset(
            names.tags(volume=MOVING))))] + [lvm_reports.LogicalVolume(
                'cinder-volumes', 'cinder-volumes-pool', 900 * GIB, '253:3',
                frozenset(), allocated=758 * GIB, metadata_size=1 << 30,
                metadata_used=110 << 20)]
    entry = copies_module.Entry(SHADOW, MOVING, NODE1, NODE2)
    return {
        'storage': answer(sources.Storage(
            survey.Survey({each.name: each for each in lvs}, {
                each.name: each for each in (dm_tables.Device(
                    names.clone(SHADOW), '', '253:11', 1, False,
                    '0 41943040 clone 253:9 253:8 8:16 128'), dm_tables.Device(
                        names.handle(MOVING), '', '253:12', 1, False,
                        '0 41943040 linear 253:11 0'))}),
            lvm_reports.FreeSpace(142 * GIB, 9 * GIB, False),
            lvm_reports.Capacity(900 * GIB, 142 * GIB, 60 * GIB, 3),
            'cinder-volumes', 'cinder-volumes-pool',
            {SHADOW: dm_tables.CloneStatus(
                128, 20, 1024, 134808, 327680, 32, True, 'rw')}), 0.31),
        'database': answer(
            sources.Database(
                {NODE1: True, NODE2: True},
                [inventory.Under(MOVES[MOVING], time.time() - 52)], 0,
                [each for each in _Inventory.all_volumes(None)
                 if each.home == NODE2],
                {SHADOW: copies_module.Position(entry, 0)}),
            0.06),
        'service': answer(
            {'events': {'move_completed': 4, 'copying': 61},
             'refusals': {'source_busy': 0, 'no_free_space': 1}, 'copies': {
                 SHADOW: {'rate': 43.4 * (1 << 20), 'pace': 'yielding'}}},
            0.02),
        'doctor': answer([checks.Finding('commands', checks.OK)], 1.4)}


def _failing():
    raise errors.CommandError('exit code 21: iscsiadm: No active sessions.')


def _parts(*_args):
    """The parts of a report, with one that fails."""
    return [parts.Part(name, read) for name, read in (
        *((each, lambda: 'x' * 900) for each in (
            'versions.txt', 'cinder.conf', 'node-list.json',
            'volume-list.json', 'move-list.json', 'doctor.json',
            'lvm/lvs.txt', 'device-mapper/table.txt')),
        ('iscsi-sessions.txt', _failing),
        ('log/journal.txt', lambda: 'x' * 48213))]


def _row(volume, host=NODE1, lv=None, **more):
    return inventory.Row(**{
        **_columns(volume, host, lv), 'display_name': '', **more})


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


#: The width of a page, in characters.
COLUMNS = 100


def run(words: list[str]) -> tuple[str, int]:
    """Return what a command prints on a page, and its exit code."""
    with contextlib.ExitStack() as made_up:
        made_up.enter_context(_logging_kept())
        printed = made_up.enter_context(
            contextlib.redirect_stdout(io.StringIO()))
        made_up.enter_context(mock.patch.dict(
            'os.environ', {'CLIFF_MAX_TERM_WIDTH': str(COLUMNS)}))
        for where, what, instead in (
                (main, 'LocalClone', _Sample),
                (_Peers, 'ready', words[:2] == ['node', 'drain']),
                (backend, 'act_as_root', lambda _settings: None),
                (backend, 'node', lambda _backend: None),
                (operator, 'add_recovery_key', _added),
                (operator, 'remove_recovery_key',
                 lambda *_args: operator.Removed('1')),
                (operator, 'restore_header', lambda *_args: operator.Restored(
                    names.header_backup(ENCRYPTED, '3'))),
                (restore, 'restore', _restored),
                (sources.Watch, 'read', _measured),
                (parts, 'parts', _parts), (parts, 'known_options', dict),
                (report, '_created',
                 lambda path: contextlib.nullcontext(io.BytesIO())),
                (_Backend, 'host', NODE2 if words[0] == 'metrics' else NODE1),
                (upkeep, 'unlock', _unlocked),
                (upkeep, 'open_wanted', _opened),
                (doctor.os, 'geteuid', lambda: 0),
                (doctor.shutil, 'which', lambda name: '/usr/sbin/' + name),
                (doctor.os.path, 'isdir', lambda path: True),
                (checks, 'rules', lambda directories: [checks.Finding(
                    'udev rules', checks.OK,
                    '/usr/lib/udev/rules.d/' + checks.RULES)]),
                (process, 'run', lambda *argv, timeout:
                 'global_filter=["a|^/dev/nvme0n1p3$|","r|.*|"]\n'
                 'cryptsetup 2.6.1\n'),
                (lvm, 'free', lambda groups, timeout: None),
                (lio_configfs, 'hanging', lambda timeout: []),
                (prerequisites, 'programs_listening', lambda port: []),
                (dmsetup, 'targets',
                 lambda timeout: 'clone v1.0.0\nthin-pool v1.22.0\n')):
            made_up.enter_context(
                mock.patch.object(where, what, instead))
        if words[0] == 'report':  # the path of its file is this machine's
            made_up.enter_context(contextlib.redirect_stderr(io.StringIO()))
        code = main.main(words)
    return '# cinder-localclone %s\n%s' % (
        shlex.join(words), printed.getvalue()), code
