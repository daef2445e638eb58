# SPDX-License-Identifier: Apache-2.0
"""Nodes whose rooms are the real ones, above commands that are simulated.

The database, the peers and the flows are those of :mod:`.world`. LVM,
device-mapper, iSCSI and LIO answer as they do, for what the driver asks of
them, and all that is asked is written down in order: each process, each call
of the privileged daemon, each use of the database. So it can be counted what
a step costs; what the steps promise is tested elsewhere.
"""

import collections
from collections.abc import Callable
import contextlib
import dataclasses
import importlib
import itertools
import json
import os
import re
import types
import typing

import fixtures

from cinder_localclone.core import attachments
from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.service import assembly
from cinder_localclone.service import directory
from cinder_localclone.service import options
from cinder_localclone.storage import clones
from cinder_localclone.storage import cryptsetup
from cinder_localclone.storage import handles
from cinder_localclone.storage import iscsi_initiator
from cinder_localclone.storage import iscsi_target
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import dm_control
from cinder_localclone.storage.privsep import lower
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs
from cinder_localclone.volumes import connect
from cinder_localclone.volumes import reconcile
from tests.helpers import callers
from tests.helpers import configured
from tests import world as worlds
from tests.world import dm_kernel
from tests.world import images
from tests.world import peers
from tests.world import records

GIB = 1 << 30
GROUP, POOL = 'g', 'pool'
PREFIX = 'iqn.2026-11.org.example:'
CLONE = '0 2097152 clone 8 1/1024 128 5/16384 0 %s rw'


class Machine:
    """What one node's kernel and LVM have.

    :param thin: whether there is a thin pool
    """

    network: Callable[[str], str]

    def __init__(self, thin):
        self.lvs, self.devices, self.targets, self.disks = {}, {}, {}, {}
        self.records = {}
        self.changes = 0
        self.minors = iter(range(10, 100000))
        if thin:
            self.lvs[POOL] = self._lv(100 * GIB, 'twi-aotz--', ())

    def _lv(self, size, attr, tags):
        return types.SimpleNamespace(
            size=size, attr=attr, tags=set(tags),
            number='253:%d' % next(self.minors))

    # -- where devices are

    def number(self, path):
        kind, name = path.split('/')[-2:]
        if kind == GROUP:
            return self.lvs[name].number if name in self.lvs else ''
        if kind == 'mapper':
            return (self.devices[name].number if name in self.devices
                    else self._of_lvm(name))
        return self.disks[name].number if name in self.disks else ''

    def _of_lvm(self, name):
        return next((lv.number for each, lv in self.lvs.items() if name in (
            names.mapped_name(GROUP, each),
            names.mapped_name(GROUP, each, 'tpool'),
            names.mapped_name(GROUP, each, 'tmeta'))), '')

    def name_of(self, number):
        found = [name for name, device in self.devices.items()
                 if device.number == number]
        found += [names.mapped_name(GROUP, name, *['tpool'] * (name == POOL))
                  for name, lv in self.lvs.items() if lv.number == number]
        return (found + [''])[0]

    def uuid_of(self, number):
        return next((device.uuid for device in self.devices.values()
                     if device.number == number), 'LVM-' if any(
                         lv.number == number for lv in self.lvs.values())
                    else '')

    def disk_at(self, number):
        return next((disk for disk in self.disks.values()
                     if disk.number == number), None)

    def of_disk(self, path, *entry):
        return '/'.join((path, *entry))

    def size(self, path):
        kind, name = path.split('/')[-2:]
        return (self.lvs[name].size if kind == GROUP
                else self.disks[name].size if kind == 'dev'
                else int(self.devices[name].table.split()[1]) * 512)

    def kernel(self):
        """What device-mapper's ioctls show."""
        kernel = dm_kernel.Kernel()
        for name, device in self.devices.items():
            kernel.add(name, device.number, device.table, CLONE % (
                '1 no_discard_passdown' if device.hydrates
                else '2 no_hydration no_discard_passdown'), device.uuid,
                self.opened(device.number))
        for name, lv in self.lvs.items():
            pool = name == POOL
            kernel.add(
                names.mapped_name(GROUP, name, *['tpool'] * pool), lv.number,
                '0 8 thin-pool %s 253:1 128 0 0' % lv.number if pool
                else '0 8 thin %s 7' % self.lvs[POOL].number
                if lv.attr.startswith('V') else '0 8 linear 8:1 0',
                '0 8 thin-pool 1 5/10 5/10 %s rw' % self.held
                if pool else '', 'LVM-' + name)
        return kernel

    def opened(self, number):
        return sum(number in each.table.split() for each in
                   self.devices.values()) + sum(
            self.number(device) == number for device in self.targets.values())

    # -- commands

    def run(self, *argv, stdin):
        if argv[0] == 'lvs':
            return (','.join(self.lvs[argv[-1].partition('/')[2]].tags)
                    if 'lv_tags' in argv else self.lvs_report())
        # As LVM counts what is changed in the group.
        self.changes += argv[0] in ('lvcreate', 'lvchange', 'lvremove')
        act = getattr(self, argv[0], None)
        return (act and act(argv[1:], stdin)) or ''

    def lvs_report(self):
        rows = [{
            'vg_name': GROUP, 'lv_name': name, 'lv_size': str(lv.size),
            'lv_attr': lv.attr, 'lv_tags': ','.join(sorted(lv.tags)),
            'data_percent': '', 'metadata_percent': '',
            'lv_kernel_major': lv.number.split(':')[0],
            'lv_kernel_minor': lv.number.split(':')[1],
            'zero': 'zero' * (name == POOL), 'lv_uuid': 'uuid-' + name,
            'pool_lv': POOL * lv.attr.startswith('V'), 'origin': '',
            'lv_metadata_size': '', 'vg_size': str(1000 * GIB),
            'vg_free': str(900 * GIB), 'vg_seqno': str(self.changes),
            'vg_missing_pv_count': '0'}
            for name, lv in self.lvs.items()]
        return json.dumps({'report': [{'lv': rows}]})

    def vgs(self, words, _stdin):
        if 'vg_name,vg_size,vg_free,vg_missing_pv_count' in words:
            return json.dumps({'report': [{'vg': [{
                'vg_name': GROUP, 'vg_size': str(1000 * GIB),
                'vg_free': str(900 * GIB), 'vg_missing_pv_count': '0'}]}]})
        return ('%d \n' % self.changes if 'vg_seqno,vg_tags' in words
                else '/dev/vdb\n')

    def lvcreate(self, words, _stdin):
        name = words[words.index('-n') + 1]
        if name in self.lvs:
            raise exceptions.CommandFailed(
                command='lvcreate', code=5, stderr='"%s" already exists in '
                'volume group "g"' % name)
        size = int(words[words.index('-V' if '-V' in words else '-L') + 1]
                   .removesuffix('b'))
        self.lvs[name] = self._lv(
            size, ('V' if '-V' in words else '-') + 'wi-a-----',
            [word for before, word in zip(words, words[1:])
             if before == '--addtag'])

    def lvchange(self, words, _stdin):
        tags = self.lvs[words[-1].partition('/')[2]].tags
        for option, word in zip(words, words[1:]):
            if option == '--addtag':
                tags.add(word)
            elif option == '--deltag':
                tags.discard(word)

    def lvremove(self, words, _stdin):
        self.lvs.pop(words[-1].partition('/')[2])

    def dmsetup(self, words, stdin):
        verb, *rest = words
        plain = [word for word in rest if not word.startswith('-')]
        if verb in ('create', 'load'):
            text = (stdin.decode() if stdin
                    else rest[rest.index('--table') + 1])
            table = re.sub(r'/dev/\S+', lambda path: self.number(
                path.group()), text)
            if verb == 'create':
                self.devices[plain[0]] = types.SimpleNamespace(
                    uuid=rest[rest.index('--uuid') + 1], table=table,
                    number='253:%d' % next(self.minors), hydrates=False)
            else:
                self.devices[plain[0]].table = table
        elif verb == 'remove':
            if self.devices.pop(plain[-1], None) is None:
                raise exceptions.CommandFailed(
                    command='dmsetup', code=1, stderr='No such device')
        elif verb == 'message':
            if 'reserve_metadata_snap' in words:
                self.held = '9'
            elif 'release_metadata_snap' in words:
                self.held = '-'
            else:
                self.devices[plain[0]].hydrates = (
                    'enable_hydration' in words)

    #: Where the pool's snapshot of its metadata is.
    held = '-'

    def iscsiadm(self, words, _stdin):
        if words == ('-m', 'node'):
            return ''.join('%s,1 %s\n' % (portal, iqn) for iqn, portal
                           in self.records.items())
        iqn = words[words.index('-T') + 1]
        if 'new' in words:
            self.records[iqn] = words[words.index('-p') + 1]
        elif 'delete' in words:
            self.records.pop(iqn, None)
        elif '--login' in words:
            self.disks['sd' + iqn[-36:]] = self.network(iqn)
        elif '--logout' in words:
            self.disks.pop('sd' + iqn[-36:], None)

    def session_disks(self):
        return json.dumps({each.iqn: ['/dev/' + name] for name, each
                           in self.disks.items()})


class Channel:
    """The way to the privileged daemon, which runs what it is asked for."""

    running = True

    def __init__(self, machines):
        self._machines = machines

    def remote_call(self, name, args, kwargs, _timeout):
        machines = self._machines
        module, _dot, function = name.rpartition('.')
        machines.note('privileged', '%s.%s' % (
            module.rpartition('.')[2], function))
        fake = machines.fakes.get(name.removeprefix(
            'cinder_localclone.storage.privsep.'))
        if fake:
            return fake(*args, **kwargs)
        privsep.default.client_mode = False
        try:
            return getattr(importlib.import_module(module), function)(
                *args, **kwargs)
        finally:
            privsep.default.client_mode = True


class Counted:
    """The database, as one service uses it."""

    #: Those that do not ask it, and those that ask more than once.
    TIMES = {'lv_name': 0}

    def __init__(self, machines, inner):
        self._machines, self._inner = machines, inner

    def __getattr__(self, name):
        found = getattr(self._inner, name)

        def counted(*args, **kwargs):
            for _time in range(self.TIMES.get(name, 1)):
                self._machines.note('database', name)
            return found(*args, **kwargs)
        return counted if callable(found) else found


class Peers(peers.SimPeers):
    """Calls of peers, with the real service at the other end."""

    def __init__(self, machines, node):
        super().__init__(node)
        self._machines = machines

    def send(self, host, name, *args):
        with self._machines.at(host):
            return getattr(self._machines.answers[host], name)(*args)

    def describe(self, host):
        return self.send(host, 'describe')


class Machines(fixtures.Fixture):
    """Two nodes, ``a@l`` and ``b@l``; ``asked`` has what was asked for.

    In order: the node, what kind of thing it is ('process', 'privileged' or
    'database') and what. ``ioctls`` is how often device-mapper was asked.

    :param thin: whether volumes are thin
    """

    def __init__(self, thin=True):
        self.thin = thin

    def _setUp(self):
        self.asked, self.ioctls = [], 0
        self.world = worlds.World()
        self.machines = {host: Machine(self.thin)
                         for host in self.world.nodes}
        self.services, self.answers = {}, {}
        self.here = 'a@l'
        self.disk_minors = itertools.count(16, 16)
        self._patch()
        for host, sim in self.world.nodes.items():
            self._assemble(host, sim)

    def _patch(self):
        for key, value in (('client_mode', True),
                           ('channel', Channel(self))):
            self.useFixture(fixtures.MockPatchObject(
                privsep.default, key, value))
        self.fakes = {
            'iscsiadm.disks': lambda iqn='': self.machine.session_disks(),
            'iscsiadm.set_recovery_timeout': lambda path, seconds: None,
            'iscsiadm.bring_back': lambda path, timeout: False,
            'block.identity': lambda path: (
                self.machine.size(path),
                self.machine.disks[path.removeprefix('/dev/')].serial),
            'block.size': lambda path: self.machine.size(path),
            'block.written_sectors': lambda path: 0,
            'block.completed_reads': lambda path: 7,
            'block.logical_block': lambda path: 512,
            'lvm.archive_space': lambda timeout: ('', 0),
            'block.disable_discards': lambda path: None,
            'block.discard': lambda *what: None,
            'dmsetup.ensure_devnode': lambda name: False,
            'lio_configfs.exports': self._exports,
            'lio_configfs.targets': lambda: json.dumps(
                [*self.machine.targets]),
            'lio_configfs.unfinished': lambda: '[]',
            'lio_configfs.unused_backstores': lambda: '[]',
            'lio.export': self._export,
            'lio.is_exported': lambda iqn, *_more: (
                iqn in self.machine.targets),
            'lio.unexport': self._unexport,
            'links.targets': lambda: {},
        }
        self.useFixture(configured.Configured(
            volume_driver=options.DRIVER, volume_group=GROUP))
        for what, fake in (
                ((process, 'run'), self._run),
                ((process, 'stream'), self._stream),
                ((dm_control, '_ioctl'), self._ioctl),
                ((sysfs, 'number'), lambda path: self.machine.number(path)),
                ((sysfs, 'name_of'), lambda number: self.machine.name_of(
                    number) or ('' if self.machine.disk_at(number) else
                                'g-pool-tmeta')),
                ((sysfs, 'uuid_of'), lambda number: self.machine.uuid_of(
                    number)),
                ((lower, '_target_of'), lambda number: getattr(
                    self.machine.disk_at(number), 'iqn', '')),
                ((sysfs, 'check_mapped'), lambda path: None),
                ((block, 'serial'), lambda number: next(
                    each.serial for each in self.machine.disks.values()
                    if each.number == number)),
                ((iscsi_initiator.Sessions, '_check_portal'),
                 lambda _self, portal: None)):
            self.useFixture(fixtures.MockPatchObject(*what, fake))
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.storage.privsep.process.locked',
            lambda *_what: contextlib.nullcontext(0)))
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.storage.privsep.iscsiadm._sessions',
            lambda iqn: [(each.iqn, '/sys/devices/platform/host3/session1')
                         for each in self.machine.disks.values()
                         if iqn in ('', each.iqn)]))

    def _assemble(self, host, sim):
        db = records.database(sim)
        services: typing.Any = Counted(self, db.services)
        lvm = logical_volumes.Lvm(
            GROUP, POOL if self.thin else None, GROUP, 30, host)
        own_handles = handles.Handles(lvm)
        calls = Peers(self, sim)
        where = directory.Directory(host, services, calls)
        sim.node = dataclasses.replace(
            sim.node, moves=Counted(self, db.moves),
            volumes=Counted(self, db.volumes),
            snapshots=Counted(self, db.snapshots),
            attachments=Counted(self, records.SimAttachments(sim)),
            services=services, queue=Counted(self, db.queue),
            lvm=lvm, handles=own_handles,
            clones=clones.Clones(lvm, own_handles), peers=calls,
            is_at=where.is_at,
            crypt=cryptsetup.Cryptsetup(GROUP, 30),
            clear=lambda lv, size: None,
            exports=iscsi_target.Exports(PREFIX, '192.0.2.' + str(
                len(self.services)), 3260, host),
            sessions=iscsi_initiator.Sessions(30, 30, host))
        reconciler = reconcile.Reconciler(sim.node)
        lvm._block = 512  # as the service has found it when it started
        lvm._extent = 4 << 20
        self.services[host] = assembly.Service(
            'l', sim.node, lvm, reconciler,
            connect.Connections(reconciler, where.find), [], 'iqn.i',
            block=512)
        self.answers[host] = callers.Answers(self.services[host])
        self.machines[host].network = self._disk

    # -- what is beneath

    @property
    def machine(self):
        return self.machines[self.here]

    @contextlib.contextmanager
    def at(self, host):
        """What is done now is done by another node."""
        before, self.here = self.here, host
        try:
            yield
        finally:
            self.here = before

    def note(self, kind, what):
        self.asked.append((self.here, kind, what))

    def _run(self, *argv, timeout, ok=(0,), stdin=None, **_more):
        self.note('process', command(argv))
        return self.machine.run(*argv, stdin=stdin)

    def _stream(self, take, *argv, timeout):
        self.note('process', argv[0])
        take(b'<superblock data_block_size="128"><device dev_id="7" '
             b'mapped_blocks="1"><single_mapping origin_block="0" '
             b'data_block="0"/></device></superblock>')

    def _ioctl(self, *what):
        self.ioctls += 1
        self.machine.kernel().ioctl(*what)

    def _exports(self):
        return json.dumps([
            {'iqn': iqn, 'devices': [device]}
            for iqn, device in self.machine.targets.items()])

    def _export(self, iqn, name, device, *_more):
        new = iqn not in self.machine.targets
        self.machine.targets[iqn] = device
        return new

    def _unexport(self, iqn, name):
        return self.machine.targets.pop(iqn, None) is not None

    def _disk(self, iqn):
        """What is found behind a target's name, by who logs in to it."""
        home = next(each for each in self.machines.values()
                    if iqn in each.targets)
        move = self.world.move_records[iscsi.move_of_iqn(iqn)]
        return types.SimpleNamespace(
            iqn=iqn, number='8:%d' % next(self.disk_minors),
            size=home.size(home.targets[iqn]),
            serial=move.volume_id)

    # -- what is done with it

    def create_volume(self, host='a@l', size=1):
        """A volume at rest."""
        volume = self.world.row(host, size=size, status='available')
        node = self.services[host].node
        with self.at(host):
            node.lvm.create_lv(volume.name, size * GIB, volume.id)
            node.handles.ensure_handle_on_lv(
                volume.id, volume.name, size * GIB)
        return volume

    def attach(self, volume, where):
        """What a service does when Nova asks for a volume."""
        volume.status = 'attaching'
        attachment = images.attachment(
            id='1', instance_uuid='i', connector=None, connection_info=None,
            attach_status='attaching')
        volume.volume_attachment = [attachment]
        home = volume.host.partition('#')[0]
        with self.at(home):
            self.services[home].connections.connect(
                volume.id, {'host': where, 'initiator': 'iqn.i'},
                attachments.as_sent(volume))
        attachment.connector = {'host': where, 'initiator': 'iqn.i'}
        attachment.attach_status, attachment.connection_info = 'attached', {}
        volume.status = 'in-use'

    def sweep(self, host, moves=True):
        """A periodic look at one node: what is asked for meanwhile.

        :param moves: only at what moves
        """
        reconciler = self.services[host].reconciler
        with self.at(host):
            return self.count(reconciler.reconcile_moves if moves
                              else reconciler.reconcile_node)

    def count(self, act):
        """What is asked for while something is done.

        :returns: that, as ``asked``
        """
        self.asked.clear()
        self.ioctls = 0
        act()
        return list(self.asked)


def command(argv):
    """A command in short: its name, and what it is to do."""
    if argv[0] == 'dmsetup':
        return 'dmsetup ' + argv[1]
    if argv[0] == 'iscsiadm':
        verbs = {'new', 'update', 'delete', '--login', '--logout', '-u'}
        return ' '.join(['iscsiadm', *sorted(verbs.intersection(argv))])
    if argv[0] == 'lvchange':
        return ' '.join(['lvchange', *[word for word in argv if word in (
            '-ay', '-an', '--addtag', '--deltag')]])
    return os.path.basename(argv[0]) + (
        ' ' + os.path.basename(argv[3]) if argv[1:3] == ('-I', '-S') else '')


def sums(asked):
    """How many of each kind each node has asked for."""
    return collections.Counter((host, kind) for host, kind, _what in asked)
