# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone doctor``: what is wrong here, and what mends it."""

import dataclasses
import os
import re
import shutil
import sys
import time

from cliff import lister
from oslo_config import cfg

from cinder_localclone import exceptions
from cinder_localclone import opts
from cinder_localclone.privileged import devicemapper
from cinder_localclone.privileged import lvm
from cinder_localclone.privileged import process

OK, WARN, FAIL = 'ok', 'warn', 'FAIL'

#: Commands that the driver runs, and Debian's packages that have them.
COMMANDS = {'dmsetup': 'dmsetup', 'iscsiadm': 'open-iscsi', 'lvs': 'lvm2',
            'modprobe': 'kmod', 'sync': 'coreutils',
            'thin_check': 'thin-provisioning-tools', 'udevadm': 'udev'}
#: Kernel modules by what needs them, each with the kernel's option for it.
MODULES = {
    'iSCSI initiator': {'iscsi_tcp': 'CONFIG_ISCSI_TCP'},
    'iSCSI target': {'target_core_mod': 'CONFIG_TARGET_CORE',
                     'target_core_iblock': 'CONFIG_TCM_IBLOCK',
                     'iscsi_target_mod': 'CONFIG_ISCSI_TARGET'}}
RULES = '11-localclone.rules'
#: Where udev looks for rules; a file in an earlier one hides those of the
#: same name in later ones (udev(7)).
RULE_DIRECTORIES = (
    '/etc/udev/rules.d', '/run/udev/rules.d', '/usr/local/lib/udev/rules.d',
    '/usr/lib/udev/rules.d', '/lib/udev/rules.d')
#: What the rules must know: the driver's own devices, and imported disks.
RULES_KNOW = ('LOCALCLONE-*', 'LOCALCLONE_SOURCE')
#: Settings that say which devices LVM looks at, and how lvmconfig calls them.
FILTERS = ('use_devicesfile', 'global_filter', 'filter')
#: What LVM must not look at: names that such devices have.
GUESTS = {
    'volumes': ('/dev/mapper/localclone-00000000-0000-4000-8000-000000000000',
                '/dev/dm-99999'),
    'imported disks': ('/dev/sdzzz', '/dev/disk/by-id/scsi-localclone-sdzzz'),
}
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


def modules(there) -> list[Finding]:
    """:param there: ``there(name)``: whether a module is or can be loaded"""
    found = []
    for what, wanted in MODULES.items():
        lacking = [name for name in wanted if not there(name)]
        check = 'kernel: ' + what
        found.append(Finding(
            check, FAIL, 'missing: ' + ', '.join(lacking),
            'modprobe -a %s; if there are none, use a kernel with %s' % (
                ' '.join(lacking), ', '.join(
                    wanted[name] for name in lacking))) if lacking else
            Finding(check, OK, ', '.join(wanted)))
    return found


def rules(directories) -> list[Finding]:
    """Whether udev has the driver's rules, and these ones.

    :param directories: where udev looks, in its order
    """
    paths = [os.path.join(each, RULES) for each in directories]
    path = next(filter(os.path.exists, paths), None)
    text = ''
    if path:
        with open(path) as file:
            text = file.read()
    if all(word in text for word in RULES_KNOW):
        return [Finding('udev rules', OK, path)]
    return [Finding(
        'udev rules', WARN, '%s is not these of this version' % path
        if path else '%s is not installed: udev probes guests\' data' % RULES,
        'cp %s /etc/udev/rules.d/; udevadm control --reload' % os.path.join(
            sys.prefix, 'lib/udev/rules.d', RULES))]


def hides(patterns: list[str], names) -> bool:
    """Whether LVM ignores a device, as lvm.conf(5) has it.

    The first pattern that matches a name decides about the name; one name
    that is accepted is enough.

    :param patterns: such as ``a|^/dev/vda$|`` and ``r|.*|``
    :param names: all that the device has
    """
    decided = [next((each[0] for each in patterns
                     if re.search(each[2:-1], name)), '') for name in names]
    return 'r' in decided and 'a' not in decided


def lvm_filter(text: str) -> list[Finding]:
    """:param text: what ``lvmconfig`` printed of :data:`FILTERS`"""
    settings = dict(line.partition('=')[::2] for line in text.splitlines())
    if settings.get('use_devicesfile', '0').strip() == '1':
        return [Finding('LVM filter', OK, 'use_devicesfile = 1')]
    filters = [re.findall(r'"((?:[^"\\]|\\.)*)"', settings.get(name, ''))
               for name in ('global_filter', 'filter')]
    seen = [what for what, names in GUESTS.items()
            if not any(hides(each, names) for each in filters)]
    if not seen:
        return [Finding('LVM filter', OK)]
    return [Finding(
        'LVM filter', WARN, 'LVM looks into guests\' ' + ' and '.join(seen),
        'devices { global_filter = [ "a|^/dev/DISK$|", "r|.*|" ] } in '
        '/etc/lvm/lvm.conf, with the disks of this node\'s own groups')]


def groups(wanted: dict[str, str], look) -> list[Finding]:
    """The volume groups, each under its own name.

    :param wanted: name of each group, by the option that says it
    :param look: ``look(group)`` raises CommandFailed if there is none
    """
    found = []
    for option, group in wanted.items():
        check = 'volume group ' + group
        try:
            look(group)
        except exceptions.CommandFailed as exc:
            found.append(Finding(
                check, FAIL, str(exc)[-200:],
                'vgcreate %s /dev/DISK, or correct %s' % (group, option)
                if 'not found' in str(exc) else 'see the message'))
        else:
            found.append(Finding(check, OK, option))
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
        for check in (self._node, self._iscsi, self._probes, self._storage,
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
    def _iscsi(backend):
        def there(name):
            if os.path.isdir('/sys/module/' + name):
                return True
            try:
                process.run('modprobe', '--dry-run', '--quiet', name,
                            timeout=backend.conf.localclone_command_timeout)
            except exceptions.CommandFailed:
                return False
            return True
        name = backend.imports().initiator()
        found = modules(there) + [
            Finding('iSCSI initiator', OK, name) if name else Finding(
                'iSCSI initiator', FAIL, 'it has no name',
                'iscsi-iname -p "InitiatorName=iqn.1993-08.org.debian:01" '
                '> /etc/iscsi/initiatorname.iscsi; systemctl restart iscsid')]
        there = os.path.isdir('/sys/kernel/config')
        return found + [Finding('iSCSI target', OK) if there else Finding(
            'iSCSI target', FAIL, 'there is no configfs',
            'modprobe -a configfs iscsi_target_mod; '
            'mount -t configfs none /sys/kernel/config')]

    @staticmethod
    def _probes(backend):
        """Who would look into guests' data."""
        return rules(RULE_DIRECTORIES) + lvm_filter(process.run(
            'lvmconfig', '--typeconfig', 'full',
            *['devices/' + name for name in FILTERS],
            timeout=backend.conf.localclone_command_timeout))

    @staticmethod
    def _storage(backend):
        stack = backend.stack()
        wanted = {'volume_group': stack.group}
        if stack.metadata_group != stack.group:
            wanted['localclone_metadata_group'] = stack.metadata_group
        found = groups(wanted, lambda group: lvm.free(
            [group], backend.conf.localclone_command_timeout))
        if any(each.verdict == FAIL for each in found):
            return found
        lvs = stack.lvs()
        if stack.pool:
            data, metadata = stack.pool_usage()
            found += pool(stack.group, stack.pool, lvs, data, metadata)
        free = stack.free_space() if stack.pool in (None, *lvs) else None
        if free and free.metadata < 64 << 20:
            found.append(Finding(
                'room for moves', FAIL if free.metadata < 4 << 20
                else WARN, '%d MiB free in %s' % (
                    free.metadata >> 20, stack.metadata_group),
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
