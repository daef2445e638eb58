# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone doctor``: what is wrong here, and what mends it."""

import dataclasses
import os
import shutil
import time

from cliff import lister
from oslo_config import cfg

from cinder_localclone import exceptions
from cinder_localclone import opts
from cinder_localclone.privileged import devicemapper

OK, WARN, FAIL = 'ok', 'warn', 'FAIL'

#: Commands that the driver runs, and Debian's packages that have them.
COMMANDS = {'dmsetup': 'dmsetup', 'iscsiadm': 'open-iscsi', 'lvs': 'lvm2',
            'modprobe': 'kmod', 'sync': 'coreutils',
            'thin_check': 'thin-provisioning-tools', 'udevadm': 'udev'}
#: Seconds that the clocks of two nodes may differ.
SKEW = 2.0
#: Percent of a thin pool from which it should be extended.
FULL = 80.0


@dataclasses.dataclass(frozen=True)
class Finding:
    """One check.

    :param verdict: ok, warn or FAIL
    :param mend: the line that mends it
    """

    check: str
    verdict: str
    found: str = ''
    mend: str = ''


def commands(which) -> list[Finding]:
    """:param which: as ``shutil.which``"""
    lacking = [name for name in COMMANDS if not which(name)]
    if not lacking:
        return [Finding('commands', OK, ', '.join(COMMANDS))]
    return [Finding('commands', FAIL, 'missing: ' + ', '.join(lacking),
                    'apt install ' + ' '.join(sorted(
                        {COMMANDS[name] for name in lacking})))]


def targets(text: str) -> list[Finding]:
    """:param text: what ``dmsetup targets`` printed"""
    known = {line.split()[0] for line in text.splitlines() if line.split()}
    found = []
    for name, mend in (
            ('clone', 'use a kernel with CONFIG_DM_CLONE; modprobe dm-clone'),
            ('thin-pool', 'modprobe dm-thin-pool')):
        found.append(
            Finding('kernel: dm-' + name, OK) if name in known else
            Finding('kernel: dm-' + name, FAIL, 'not there', mend))
    return found


def pool(group: str, name: str, lvs, data: float, metadata: float
         ) -> list[Finding]:
    """:param data: percent in use, as ``metadata``"""
    path = '%s/%s' % (group, name)
    if name not in lvs:
        return [Finding('thin pool', WARN, '%s does not exist yet' % path,
                        'the volume service makes it when it starts')]
    found = []
    if not lvs[name].zeroes:
        found.append(Finding(
            'thin pool zeroes', FAIL, '%s hands out old bytes' % path,
            'lvchange -Zy ' + path))
    for what, used, mend in (
            ('data', data, 'lvextend -L +10G ' + path),
            ('metadata', metadata, 'lvextend --poolmetadatasize +64M '
             + path)):
        found.append(Finding(
            'thin pool ' + what, WARN if used >= FULL else OK,
            '%.0f %% in use' % used, mend if used >= FULL else ''))
    return found


def limits(conf, rpc_timeout: float) -> list[Finding]:
    """Time limits that do not fit each other, and values that cannot be."""
    found = []
    try:
        opts.geometry(conf)
    except ValueError as exc:
        found.append(Finding('configuration', FAIL, str(exc),
                             'localclone_region_size = 64'))
    if conf.localclone_peer_timeout >= rpc_timeout:
        found.append(Finding(
            'time limits', WARN, 'localclone_peer_timeout (%d s) is not '
            'below rpc_response_timeout (%d s): cinder-api gives up first'
            % (conf.localclone_peer_timeout, rpc_timeout),
            'localclone_peer_timeout = %d' % max(5, rpc_timeout - 20)))
    return found or [Finding('configuration', OK)]


def clock(host: str, theirs: float, before: float, after: float
          ) -> list[Finding]:
    """:param theirs: what a peer's clock said between two times of ours"""
    skew = max(before - theirs, theirs - after, 0.0)
    return [Finding(
        'clock of ' + host, WARN if skew > SKEW else OK,
        'differs by %.1f s' % skew,
        'run an NTP client on both' if skew > SKEW else '')]


class Doctor(lister.Lister):
    """Check this node, its peers and what they share; exit 1 on a FAIL.

    As root it sees everything; otherwise privileged checks go through the
    same privsep daemon as the volume service's work.
    """

    def take_action(self, args):
        backend = self.app.backend()
        if not os.geteuid():
            backend.act_as_root()
        rows = []
        for check in (self._node, self._initiator, self._storage,
                      self._shared, self._peers):
            try:
                rows += check(backend)
            except Exception as exc:
                rows.append(Finding(
                    check.__name__.strip('_'), FAIL,
                    '%s: %s' % (type(exc).__name__, str(exc)[:200]),
                    'see the message'))
        self.app.exit_code = int(any(row.verdict == FAIL for row in rows))
        return ('Check', 'Verdict', 'Found', 'What mends it'), [
            dataclasses.astuple(row) for row in rows]

    @staticmethod
    def _node(backend):
        return commands(shutil.which) + targets(devicemapper.targets(
            backend.conf.localclone_command_timeout)) + limits(
                backend.conf, cfg.CONF.rpc_response_timeout)

    @staticmethod
    def _initiator(backend):
        name = backend.imports().initiator()
        found = [Finding('iSCSI initiator', OK, name) if name else Finding(
            'iSCSI initiator', FAIL, 'it has no name',
            'iscsi-iname -p "InitiatorName=iqn.1993-08.org.debian:01" '
            '> /etc/iscsi/initiatorname.iscsi; systemctl restart iscsid')]
        there = os.path.isdir('/sys/kernel/config')
        return found + [Finding('iSCSI target', OK) if there else Finding(
            'iSCSI target', FAIL, 'there is no configfs',
            'modprobe -a configfs iscsi_target_mod; '
            'mount -t configfs none /sys/kernel/config')]

    @staticmethod
    def _storage(backend):
        stack = backend.stack()
        try:
            lvs = stack.lvs()
        except exceptions.CommandFailed as exc:
            return [Finding(
                'volume group', FAIL, str(exc)[-200:],
                'vgcreate %s /dev/DISK' % stack.group)]
        found = [Finding('volume group', OK, stack.group)]
        if stack.pool:
            data, metadata = stack.pool_usage()
            found += pool(stack.group, stack.pool, lvs, data, metadata)
        room = stack.room() if stack.pool in (None, *lvs) else None
        if room and room.metadata < 64 << 20:
            found.append(Finding(
                'room for transfers', FAIL if room.metadata < 4 << 20
                else WARN, '%d MiB free in %s' % (
                    room.metadata >> 20, stack.metadata_group),
                'leave some extents of %s free, or set '
                'localclone_metadata_group' % stack.metadata_group))
        return found

    @staticmethod
    def _shared(backend):
        try:
            nodes = backend.nodes()
        except Exception as exc:
            return [Finding('database', FAIL, str(exc)[:200],
                            '[database] connection in cinder.conf')]
        found = [Finding('database', OK, '%d nodes of backend %s' % (
            len(nodes), backend.name))]
        if backend.host not in nodes:
            found.append(Finding(
                'this node', FAIL, 'no volume service %s is known'
                % backend.host, 'start cinder-volume here; host and the '
                'section\'s name must be those of the service'))
        if len(nodes) < 2:
            found.append(Finding(
                'peers', WARN, 'there is no other node with a backend '
                'section "%s"' % backend.name,
                'name the section the same on all nodes'))
        return found

    @staticmethod
    def _peers(backend):
        found = []
        for host, alive in backend.nodes().items():
            before = time.time()
            answer, problem = backend.ask(host, 'describe')
            after = time.time()
            if answer is None:
                found.append(Finding(
                    host, FAIL, problem if alive else 'the service is down',
                    'systemctl status cinder-volume there; the message bus '
                    'is [DEFAULT] transport_url'))
                continue
            found += [Finding(host, FAIL, each, 'mend it there, restart '
                              'its volume service')
                      for each in answer['problems']] or [
                          Finding(host, OK, 'ready')]
            found += clock(host, answer['time'], before, after)
        return found
