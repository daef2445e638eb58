# SPDX-License-Identifier: Apache-2.0
"""A contract of :mod:`tests.contracts`, on the node that runs this.

``python -m tests.contracts.on_node storage cinder.conf``, as root, while no
volume service runs there. Says as JSON why each scenario failed that did.
"""

import contextlib
import importlib
import json
import mmap
import os
import subprocess
import sys
import time
import traceback
import uuid

from oslo_config import cfg

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.service import operator as backend
from cinder_localclone.storage import clones
from cinder_localclone.storage import handles
from cinder_localclone.storage import iscsi_initiator
from cinder_localclone.storage import iscsi_target
from cinder_localclone.storage import logical_volumes
from tests.contracts import storage

#: Bytes that are written of each region.
BLOCK = 4096
#: Of a value, to a whole block.
FILL = b'.'
#: Seconds for a command, and for a copy.
TIMEOUT = 30
#: The backend's options that the operator's command does not read.
OPTIONS = (cfg.StrOpt('target_prefix'), cfg.StrOpt('target_ip_address'),
           cfg.PortOpt('target_port', default=3260))


def run(*argv, check=True):
    return subprocess.run(argv, check=check, timeout=TIMEOUT, text=True,
                          stdout=subprocess.PIPE).stdout


class Bench:
    """The node's LVM, device-mapper and iSCSI, as its service has them."""

    def __init__(self, found, thin=True):
        """:param found: a :class:`.backend.Backend`"""
        conf = found.conf
        section = cfg.CONF[found.name]
        self.group, self.host = conf.volume_group, found.host
        self.lvm = logical_volumes.Lvm(
            self.group, self.group + '-pool' if thin else '', self.group,
            conf.localclone_command_timeout, self.host)
        self.handles = handles.Handles(self.lvm)
        self.clones = clones.Clones(self.lvm, self.handles)
        self.exports = iscsi_target.Exports(
            section.target_prefix, section.target_ip_address,
            section.target_port, self.host, iscsi_target.has_address)
        self.sessions = iscsi_initiator.Sessions(
            conf.localclone_command_timeout, conf.localclone_source_timeout,
            self.host)
        self.crypt = found.crypt()
        self._volumes, self._moves = [], []

    def volume(self, encrypted=False):
        self._volumes.append(str(uuid.uuid4()))
        return self._volumes[-1]

    def move(self, volume_id, **values):
        move_id = str(uuid.uuid4())
        self._moves.append(state.Move(**dict(dict(
            volume_id=volume_id, move_id=move_id, token=state.Token(
                state.Phase.MIGRATING, 'n', storage.GEOMETRY),
            committed=False, source=self.host, destination=self.host,
            source_lv=storage.lv_of(volume_id),
            destination_lv=storage.lv_of(move_id), size_gib=1,
            location=self.exports.source_location(move_id),
            auth=storage.AUTH, initiator=self.sessions.initiator(),
            volume_gib=1), **values)))
        return self._moves[-1]

    def foreign(self, name):
        run('lvcreate', '-q', '-y', '-V', '1G', '-T', '%s/%s-pool' % (
            self.group, self.group), '-n', name)

    @contextlib.contextmanager
    def locked(self, *_what):
        yield  # nothing else is at work

    def _path(self, device):
        return ('/dev/mapper/' + device if _is_device(device)
                else names.lv_path(self.group, device))

    @contextlib.contextmanager
    def _file(self, device, flags):
        found = os.open(self._path(device), flags)
        try:
            yield found
        finally:
            os.close(found)
            run('udevadm', 'settle', '--timeout=10')  # that looks at it, too

    def write(self, device, region, value):
        with mmap.mmap(-1, BLOCK) as block, self._file(
                device, os.O_WRONLY | os.O_DIRECT) as found:
            block[:] = value.encode().ljust(BLOCK, FILL)
            os.pwritev(found, [block], _offset(region))
            os.fsync(found)

    def read(self, device, region):
        with mmap.mmap(-1, BLOCK) as block, self._file(
                device, os.O_RDONLY | os.O_DIRECT) as found:
            os.preadv(found, [block], _offset(region))
            data = block[:]
        return data.strip(b'\0').rstrip(FILL).decode(errors='replace')

    @contextlib.contextmanager
    def opened(self, device):
        with self._file(device, os.O_RDONLY):
            yield

    def copied(self, move):
        until = time.monotonic() + TIMEOUT
        while not self.clones.clone_status(move.move_id).finished:
            if time.monotonic() > until:
                raise AssertionError('copied in vain: %s' % (
                    self.clones.clone_status(move.move_id),))
            time.sleep(0.1)

    @contextlib.contextmanager
    def impossible(self):
        try:
            yield
        except exceptions.LocalCloneError:
            return
        raise AssertionError('nothing was refused')

    def clean(self):
        """Remove all that a scenario has left, whatever it came to."""
        ids = self._volumes + [each.move_id for each in self._moves]
        for act in (*(lambda each=each: self.exports.withdraw_volume(
                each, None) for each in self._volumes),
                *(lambda each=each: self.sessions.detach(each)
                  for each in self._moves),
                *(lambda each=each: self.exports.withdraw_source(
                    each.move_id) for each in self._moves)):
            with contextlib.suppress(exceptions.LocalCloneError):
                act()
        for _round in range(4):  # what is above goes first
            for line in run('dmsetup', 'ls').splitlines():
                name = line.split()[0]
                if _is_device(name) and _of(ids, name):
                    run('dmsetup', 'remove', '--retry', name, check=False)
        left = ['%s/%s' % (self.group, name) for name in run(
            'lvs', '--noheadings', '-o', 'lv_name', self.group).split()
            if _of(ids, name)]
        if left:
            run('lvremove', '-q', '-y', '-f', *left)


def _offset(region):
    return region * (storage.GIB // storage.REGIONS)


def _is_device(name):
    return names.is_device(name) or names.is_crypt(name)


def _of(ids, name):
    return any(each in name for each in ids)


def main(contract, path):
    """:param contract: name of a module beside this one"""
    scenarios = importlib.import_module(
        __package__ + '.' + contract).SCENARIOS
    found = backend.Backend(backend.Settings([path]))
    cfg.CONF([], project='cinder', default_config_files=[path])
    cfg.CONF.register_opts(OPTIONS, found.name)
    failed = {}
    for name, scenario in scenarios.items():
        bench = Bench(found, thin=contract != 'thick')
        began = time.monotonic()
        try:
            scenario(bench)
        except Exception:
            failed[name] = traceback.format_exc()
        finally:
            bench.clean()
        print('%s: %.1f s' % (name, time.monotonic() - began),
              file=sys.stderr, flush=True)
    print(json.dumps(failed))


if __name__ == '__main__':
    main(*sys.argv[1:])
