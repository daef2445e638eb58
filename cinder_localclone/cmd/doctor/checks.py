# SPDX-License-Identifier: Apache-2.0
"""Checks of ``cinder-localclone doctor``, with their remedies.

Each check judges its arguments only: texts, numbers, or a function to call.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import os
import re
import sys
import types
import typing

from oslo_utils import units

from cinder_localclone.cmd.doctor import packages
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import kernels
from cinder_localclone.core import state
from cinder_localclone.service import options

_Value = typing.TypeVar('_Value', int, str)

OK, WARN, FAIL = 'OK', 'WARN', 'FAIL'

#: Commands used by the driver.
COMMANDS = ('dmsetup', 'iscsiadm', 'lvs', 'modprobe', 'sync', 'thin_check',
            'thin_dump', 'udevadm')
#: Kernel modules by purpose, with their kernel options.
MODULES = {
    'iSCSI initiator': {'iscsi_tcp': 'CONFIG_ISCSI_TCP'},
    'iSCSI target': {'target_core_mod': 'CONFIG_TARGET_CORE',
                     'target_core_iblock': 'CONFIG_TCM_IBLOCK',
                     'iscsi_target_mod': 'CONFIG_ISCSI_TARGET'}}
RULES = '11-localclone.rules'
#: The directories of udev rules. A file in an earlier directory hides a file
#: with the same name in later directories (udev(7)).
RULE_DIRECTORIES = (
    '/etc/udev/rules.d', '/run/udev/rules.d', '/usr/local/lib/udev/rules.d',
    '/usr/lib/udev/rules.d', '/lib/udev/rules.d')
#: Devices in the rules of this version: the driver's own devices, imported
#: disks, crypt devices, and LVs.
RULES_KNOW = ('LOCALCLONE-*', 'LOCALCLONE_SOURCE', '*localclone-', '*remote-',
              'localclone-crypt-', 'CRYPT-SUBDEV-*', '*-volume--',
              '*-_snapshot--', '*-localclone--meta--', '*-localclone--wipe--')
#: LVM settings for the selection of devices, by their names in lvmconfig.
FILTERS = ('use_devicesfile', 'global_filter', 'filter')
#: Device names to be ignored by LVM.
GUESTS = {
    'volumes': ('/dev/mapper/localclone-00000000-0000-4000-8000-000000000000',
                '/dev/dm-99999'),
    'imported disks': ('/dev/sdzzz', '/dev/disk/by-id/scsi-localclone-sdzzz'),
}
#: Maximum difference of the clocks of two nodes, in seconds.
SKEW = 2.0
#: The percentage of a thin pool at which it should be extended.
FULL = 80.0
SEE_DETAILS = 'see the details'
#: The os-release(5) of a node without that file.
NOWHERE: Mapping[str, str] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Finding:
    """A line of the table.

    :param verdict: OK, WARN or FAIL
    :param fix: the remedy
    """

    check: str
    verdict: str
    details: str = ''
    fix: str = ''


def commands(which: Callable[[str], str | None], how: str = ''
             ) -> list[Finding]:
    """Check for the commands used by the driver.

    :param which: as ``shutil.which``
    :param how: see :func:`.packages.family`
    """
    missing = [name for name in COMMANDS if not which(name)]
    if not missing:
        return [Finding('commands', OK, ', '.join(COMMANDS))]
    return [Finding('commands', FAIL, 'missing: ' + ', '.join(missing),
                    packages.install(missing, how))]


def targets(text: str, os_release: Mapping[str, str] = NOWHERE,
            kernel: str = '') -> list[Finding]:
    """Check for the device-mapper targets used by volumes.

    :param text: the output of ``dmsetup targets``
    :param os_release: the fields of os-release(5)
    :param kernel: the release of the running kernel
    """
    known = {line.split()[0] for line in text.splitlines() if line.split()}
    cause, command = kernels.remedy(os_release, kernel)
    findings = []
    for name, details, fix in (
            ('clone', cause + ': no volume can move to this node', command),
            ('thin-pool', 'the kernel lacks this target',
             'modprobe dm-thin-pool')):
        check = 'kernel: dm-' + name
        findings.append(Finding(check, OK) if name in known else
                        Finding(check, FAIL, details, fix))
    return findings


def modules(available: Callable[[str], bool],
            os_release: Mapping[str, str] = NOWHERE, kernel: str = ''
            ) -> list[Finding]:
    """Check for the kernel modules of iSCSI.

    :param available: ``available(name)``: whether a module is loaded or can be
        loaded
    :param os_release: as of :func:`targets`
    :param kernel: as of :func:`targets`
    """
    stock = kernels.find(os_release, kernel)
    findings = []
    for what, wanted in MODULES.items():
        missing = [name for name in wanted if not available(name)]
        check = 'kernel: ' + what
        fix = 'modprobe -a %s; if a module is missing, use a kernel with %s' \
            % (' '.join(missing), ', '.join(wanted[name] for name in missing))
        if stock and stock.lio_command and 'iscsi_target_mod' in missing:
            fix = stock.lio_command
        findings.append(
            Finding(check, FAIL, 'missing: ' + ', '.join(missing), fix)
            if missing else Finding(check, OK, ', '.join(wanted)))
    return findings


def initiator(name: str, how: str = '') -> list[Finding]:
    """Check whether this node can log in to a peer.

    :param name: its iSCSI initiator name
    :param how: see :func:`.packages.family`
    """
    return [Finding('iSCSI initiator', OK, name) if name else Finding(
        'iSCSI initiator', FAIL, 'it has no name',
        packages.initiator_name(how))]


def iscsi_target(mounted: bool, hanging: Callable[[], list[str]], port: int,
                 listening: Callable[[int], list[str]]) -> list[Finding]:
    """Check whether this node can create and remove exports.

    :param mounted: whether configfs is mounted
    :param hanging: returns the targets with a hanging change
    :param port: of this node's exports
    :param listening: returns the programs that listen on a port
    """
    check = 'iSCSI target'
    if not mounted:
        return [Finding(
            check, FAIL, 'configfs is not mounted',
            'modprobe -a configfs iscsi_target_mod; '
            'mount -t configfs none /sys/kernel/config')]
    found = hanging()
    if found:
        return [Finding(
            check, FAIL, 'a change hangs in the kernel: ' + ', '.join(found),
            'find the device with waiting commands in dmesg. If it is the '
            'source of a move, and its node is down: start the node, or run '
            'iscsiadm -m node -T IQN --logout (reads of data not yet copied '
            'then fail). Waiting changes continue by themselves')]
    programs = listening(port)
    if programs:
        return [Finding(
            check, FAIL, 'TCP port %d is taken by %s' % (
                port, ', '.join(programs)),
            'detach the volumes that it exports, such as those of Cinder\'s '
            'LVM driver, and set target_helper = lioadm in that backend. Then '
            'stop the program')]
    return [Finding(check, OK)]


def rules(directories: Iterable[str]) -> list[Finding]:
    """Check whether udev has the driver's rules of this version.

    :param directories: udev's directories of rules, in its order
    """
    paths = [os.path.join(each, RULES) for each in directories]
    path = next(filter(os.path.exists, paths), None)
    text = ''
    if path:
        with open(path) as file:
            text = file.read()
    if path and all(word in text for word in RULES_KNOW):
        return [Finding('udev rules', OK, path)]
    return [Finding(
        'udev rules', WARN, '%s belongs to another version' % path
        if path else '%s is not installed: udev probes guests\' data' % RULES,
        'cp %s /etc/udev/rules.d/; udevadm control --reload' % os.path.join(
            sys.prefix, 'lib/udev/rules.d', RULES))]


def is_filtered_out(patterns: list[str], names: Iterable[str]) -> bool:
    """Return whether LVM ignores a device, by lvm.conf(5).

    The first matching pattern decides about a name. A single accepted name is
    enough for the device.

    :param patterns: such as ``a|^/dev/vda$|`` and ``r|.*|``
    :param names: all names of the device
    """
    decided = [next((each[0] for each in patterns
                     if re.search(each[2:-1], name)), '') for name in names]
    return 'r' in decided and 'a' not in decided


def lvm_filter(text: str) -> list[Finding]:
    """Check whether LVM ignores guests' data.

    :param text: the output of ``lvmconfig`` for :data:`FILTERS`
    """
    settings = dict(line.partition('=')[::2] for line in text.splitlines())
    if settings.get('use_devicesfile', '0').strip() == '1':
        return [Finding('LVM filter', OK, 'use_devicesfile = 1')]
    filters = [re.findall(r'"((?:[^"\\]|\\.)*)"', settings.get(name, ''))
               for name in ('global_filter', 'filter')]
    seen = [what for what, names in GUESTS.items()
            if not any(is_filtered_out(each, names) for each in filters)]
    if not seen:
        return [Finding('LVM filter', OK)]
    return [Finding(
        'LVM filter', WARN, 'LVM scans guests\' ' + ' and '.join(seen),
        'devices { global_filter = [ "a|^/dev/DISK$|", "r|.*|" ] } in '
        '/etc/lvm/lvm.conf, with the disks of this node\'s own groups')]


def groups(wanted: dict[str, str], read: Callable[[str], object]
           ) -> list[Finding]:
    """Check the volume groups.

    :param wanted: the name of each group, by its option
    :param read: ``read(group)`` raises CommandFailed if there is none
    """
    findings = []
    for option, group in wanted.items():
        check = 'volume group ' + group
        try:
            read(group)
        except exceptions.CommandFailed as exc:
            findings.append(Finding(
                check, FAIL, ' '.join(str(exc)[-200:].split()),
                'vgcreate %s /dev/DISK, or correct %s' % (group, option)
                if 'not found' in str(exc) else SEE_DETAILS))
        else:
            findings.append(Finding(check, OK, option))
    return findings


def changes(group: str, check: Callable[[], None]) -> list[Finding]:
    """Check whether LVM can create and change LVs.

    :param check: raises an error if it can't
    """
    name = 'changes of ' + group
    try:
        check()
    except exceptions.DiskMissing as exc:
        return [Finding(
            name, FAIL, '%(group)s lacks %(count)s of its disks' % exc.kwargs,
            'bring the disk back: pvs shows which; or give it up: vgreduce '
            '--removemissing %(group)s' % exc.kwargs)]
    except exceptions.NoArchive as exc:
        return [Finding(
            name, FAIL, 'LVM can\'t write its archive: %(directory)s has '
            '%(free)s KiB free' % exc.kwargs,
            'remove old files there, or correct backup/archive_dir in '
            'lvm.conf')]
    return []


def pool(group: str, name: str,
         lvs: Mapping[str, lvm_reports.LogicalVolume]) -> list[Finding]:
    """Check the thin pool."""
    path = '%s/%s' % (group, name)
    if name not in lvs:
        return [Finding('thin pool', WARN, '%s does not exist yet' % path,
                        'start cinder-volume: it creates the pool')]
    findings = []
    if not lvs[name].zeroes:
        findings.append(Finding(
            'thin pool zeroes', FAIL,
            '%s gives new volumes the data of deleted ones' % path,
            'lvchange -Zy ' + path))
    usage = lvm_reports.pool_usage(lvs, name)
    for what, used, limit, fix in (
            ('data', usage.data, lvm_reports.FULL_DATA,
             'lvextend -L +10G ' + path),
            ('metadata', usage.metadata, usage.limit,
             'lvextend --poolmetadatasize +64M ' + path)):
        verdict = FAIL if used >= limit else WARN if (
            used >= min(FULL, limit - 10)) else OK
        findings.append(Finding(
            'thin pool ' + what, verdict,
            '%.0f %% in use; at %.0f %% the node takes no new volumes' % (
                used, limit), '' if verdict == OK else fix))
    return findings


def metadata_space(group: str, free: int) -> list[Finding]:
    """Check the free space for metadata of moves; [] if enough.

    :param free: bytes
    """
    if free >= 64 * units.Mi:
        return []
    return [Finding(
        'space for move metadata', FAIL if free < 4 * units.Mi else WARN,
        '%d MiB free in %s' % (free // units.Mi, group),
        'leave some extents of %s free, or set '
        'localclone_metadata_volume_group' % group)]


def limits(conf: typing.Any, rpc_timeout: float) -> list[Finding]:
    """Check for conflicting time limits and invalid values."""
    findings = []
    try:
        options.geometry(conf)
    except ValueError as exc:
        findings.append(Finding('configuration', FAIL, str(exc),
                                'localclone_region_size_kib = 64'))
    if conf.localclone_peer_timeout >= rpc_timeout:
        findings.append(Finding(
            'time limits', WARN, 'localclone_peer_timeout (%d s) is not '
            'below rpc_response_timeout (%d s): cinder-api gives up first'
            % (conf.localclone_peer_timeout, rpc_timeout),
            'localclone_peer_timeout = %d' % max(5, rpc_timeout - 20)))
    return findings or [Finding('configuration', OK)]


def services(backend: str, host: str, nodes: Mapping[str, bool]
             ) -> list[Finding]:
    """Check the volume services of this backend in Cinder's database.

    :param host: this node's service host
    :param nodes: all service hosts
    """
    findings = [Finding('database', OK, '%d nodes of backend %s' % (
        len(nodes), backend))]
    if host not in nodes:
        findings.append(Finding(
            'this node', FAIL, 'there is no volume service %s' % host,
            'start cinder-volume here; check host and the section\'s name '
            'in cinder.conf'))
    if len(nodes) < 2:
        findings.append(Finding(
            'peers', WARN, 'no other node has a backend section "%s"'
            % backend, 'give the section the same name on all nodes'))
    return findings


def stranded_moves(backend: str, moves: Iterable[state.Move],
                   nodes: Mapping[str, bool]) -> list[Finding]:
    """Report moves that need a node with a dead or missing service.

    :param nodes: the nodes of this backend, with their liveness
    """
    needed: dict[str, list[state.Move]] = {}
    for move in moves:
        for host in ({move.cleanup_node} if move.is_over
                     else {move.source, move.destination}):
            if host.partition('@')[2] == backend and not nodes.get(host):
                needed.setdefault(host, []).append(move)
    return [Finding(
        'moves and ' + host, WARN, ', '.join(
            '%d %s' % (count, what) for count, what in (
                (sum(move.is_over for move in moves), 'to be cleaned up '
                 'there'),
                (sum(not move.is_over for move in moves), 'under way'))
            if count), 'start its volume service; if the node will never '
        'come back: cinder-localclone node forget ' + host)
        for host, moves in sorted(needed.items())]


def unknown_volumes(lvs: Iterable[str]) -> list[Finding]:
    """Report LVs of volumes or snapshots without a record.

    The driver does not remove them.

    :param lvs: their names
    """
    return [Finding(
        'LV ' + name, WARN, 'no volume, move or snapshot names it: its volume '
        'was forgotten, or the database is outdated',
        'save needed data, then remove the LV with '
        'lvremove') for name in sorted(lvs)]


def peer(host: str, alive: bool, answer: dict[str, typing.Any] | None,
         problem: str, before: float, after: float) -> list[Finding]:
    """Check whether another node answers, is ready and has a correct clock.

    :param alive: its liveness by Cinder's records
    :param answer: of ``describe``; None if there is a problem
    :param before: this node's time before the call; ``after``: after the
        answer
    """
    if answer is None:
        return [Finding(
            host, FAIL, problem if alive else 'the service is down',
            'systemctl status cinder-volume there; check [DEFAULT] '
            'transport_url')]
    return ([Finding(host, FAIL, each, 'repair it there; restart its '
                     'cinder-volume') for each in answer['problems']]
            or [Finding(host, OK, 'ready')]) + clock(
                host, answer['time'], before, after)


def sectors(blocks: Mapping[str, int]) -> list[Finding]:
    """Check whether all nodes have disks with the same sector size.

    :param blocks: bytes of a sector of each node's disks
    """
    hosts = _hosts_by(blocks)
    if len(hosts) < 2:
        return []
    return [Finding(
        'sectors of disks', FAIL, '; '.join(
            '%d bytes: %s' % (size, ', '.join(hosts[size]))
            for size in sorted(hosts)) + '; no volume can move between them',
        'use disks with the same sector size (blockdev --getss), or a '
        'separate backend section for each size')]


def initiators(names: Mapping[str, str]) -> list[Finding]:
    """Check whether each node has its own iSCSI initiator name.

    :param names: the iSCSI initiator name of each node
    """
    return [Finding(
        'iSCSI name ' + name, FAIL, 'shared by several nodes: '
        + ', '.join(found), 'on each of these nodes except the first: detach '
        'remotely attached volumes, set a unique name (see iscsi-iname) in '
        '/etc/iscsi/initiatorname.iscsi, and restart iscsid and cinder-volume')
        for name, found in _hosts_by(names).items()
        if name and len(found) > 1]


def _hosts_by(values: Mapping[str, _Value]) -> dict[_Value, list[str]]:
    """Return the nodes with each value, in order."""
    hosts: dict[_Value, list[str]] = {}
    for host, value in sorted(values.items()):
        hosts.setdefault(value, []).append(host)
    return hosts


def troubles(host: str, answer: list[str] | None, problem: str
             ) -> list[Finding]:
    """Report other problems of a node; they do not prevent moves.

    :param answer: of ``troubles``; None if there is a problem
    """
    name, there = 'troubles of ' + host, 'run "cinder-localclone doctor" there'
    if answer is None:
        return [Finding(name, WARN, problem, there)]
    return [Finding(name, FAIL, each, there) for each in answer]


def clock(host: str, theirs: float, before: float, after: float
          ) -> list[Finding]:
    """Compare a peer's clock with this node's.

    :param theirs: the peer's time, between ``before`` and ``after``
    """
    skew = max(before - theirs, theirs - after, 0.0)
    return [Finding(
        'clock of ' + host, WARN if skew > SKEW else OK,
        'differs by %.1f s' % skew,
        'run an NTP client on both nodes, for example '
        'chronyd' if skew > SKEW else '')]
