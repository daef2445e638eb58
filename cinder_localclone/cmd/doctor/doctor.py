# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone doctor``: make all checks, even after errors."""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import os
import platform
import shutil
import textwrap
import time
import typing

from oslo_config import cfg

from cinder_localclone.cmd import base
from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor.checks import Finding
from cinder_localclone.cmd.doctor import container as containers
from cinder_localclone.cmd.doctor import encryption
from cinder_localclone.cmd.doctor import link
from cinder_localclone.cmd.doctor import packages
from cinder_localclone.cmd.doctor import stuck
from cinder_localclone.core import copies
from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.encryption import operator
from cinder_localclone.service import operator as backends
from cinder_localclone.service import options

if typing.TYPE_CHECKING:
    from cinder_localclone.storage import logical_volumes

_Arguments = typing.ParamSpec('_Arguments')
#: A node's description of itself; see :func:`.peers.describe`.
_Answer: typing.TypeAlias = dict[str, typing.Any]

#: Seconds for a command, without a configuration.
TIMEOUT = 30
#: Seconds after which a change of a target counts as hanging.
PROBE_TIMEOUT = 2
#: Remedies for checks that fail with an error.
FIXES = {
    'cinder.conf': 'pass --config-file, or correct the file',
    'kernel: device-mapper': 'modprobe dm-mod',
    'database': 'start the database; check [database] connection',
}


def examine(name: str, check: Callable[_Arguments, list[Finding]],
            *arguments: _Arguments.args, **more: _Arguments.kwargs
            ) -> list[Finding]:
    """Return the findings of a check; an error is a finding too."""
    try:
        return check(*arguments, **more)
    except Exception as exc:
        return [Finding(
            name, checks.FAIL, textwrap.shorten(base.in_words(exc), 300),
            _fix(name, exc))]


def _fix(name: str, error: Exception) -> str:
    if isinstance(error, ImportError):  # a database that runs is no remedy
        return checks.SEE_DETAILS
    fix = FIXES.get(name, checks.SEE_DETAILS)
    if name == 'kernel: device-mapper' and os.geteuid():
        return fix + '; run doctor as root'
    return fix


def node_checks(backend: backends.Backend | None) -> list[Finding]:
    """Check the prerequisites of this node, even without a backend."""
    from cinder_localclone.storage import prerequisites
    timeout = (backend.conf.localclone_command_timeout if backend
               else TIMEOUT)

    def available(module: str) -> bool:
        return prerequisites.has_module(module, timeout)

    container, unknown = _container()

    def lvm_filter() -> list[Finding]:
        return containers.lvm_filter(container) or checks.lvm_filter(
            prerequisites.lvm_settings(
                ['devices/' + name for name in checks.FILTERS], timeout))

    def rules() -> list[Finding]:
        found = checks.rules(containers.rule_directories(container))
        return containers.rules(container, found) if container else found

    os_release, kernel = _os_release(), platform.release()
    how = packages.family(os_release)
    findings = checks.commands(shutil.which, how)
    if container:
        findings = containers.namespaces(container) + containers.in_image(
            findings)
    findings = unknown + findings
    findings += examine('kernel: device-mapper', lambda: checks.targets(
        prerequisites.mapper_targets(timeout), os_release, kernel))
    findings += examine('kernel: iSCSI', checks.modules, available,
                        os_release, kernel)
    findings += examine(
        'kernel: encryption', encryption.modules, available,
        bool(backend and backend.conf.localclone_enable_integrity))
    findings += examine('cryptsetup', lambda: encryption.version(
        prerequisites.cryptsetup_version(timeout), how))
    if backend:
        findings += examine('iSCSI initiator', _initiator, backend, how)
    findings += examine('iSCSI target', lambda: checks.iscsi_target(
        os.path.isdir('/sys/kernel/config'),
        lambda: prerequisites.hanging_changes(PROBE_TIMEOUT),
        _target_port(backend) if backend else link.PORT,
        prerequisites.programs_listening))
    findings += examine('udev rules', rules)
    return findings + examine('LVM filter', lvm_filter)


def _container() -> tuple[containers.Container | None, list[Finding]]:
    """Return the container of this process, and a finding if it is unknown.

    :returns: None on the host, and where it is unknown
    """
    from cinder_localclone.storage import prerequisites
    found = prerequisites.isolation()
    if found.is_container:
        return containers.Container(found.own, found.mounts), []
    return None, [] if found.is_container is False else [containers.unknown()]


def _os_release() -> dict[str, str]:
    with contextlib.suppress(OSError):  # there is no such file
        return platform.freedesktop_os_release()
    return {}


def _initiator(backend: backends.Backend, how: str) -> list[Finding]:
    backend.load_cinder()
    return checks.initiator(backend.sessions().initiator(), how)


def storage_checks(backend: backends.Backend) -> list[Finding]:
    """Check the volume groups and the thin pool."""
    from cinder_localclone.storage import prerequisites
    volumes = backend.lvm()
    wanted = {'volume_group': volumes.group}
    if volumes.metadata_group != volumes.group:
        wanted['localclone_metadata_volume_group'] = volumes.metadata_group
    findings = checks.groups(wanted, lambda group: prerequisites.group_report(
        group, backend.conf.localclone_command_timeout))
    if any(each.verdict == checks.FAIL for each in findings):
        return findings
    lvs = volumes.lvs()
    findings += examine('changes of ' + volumes.group, checks.changes,
                        volumes.group, lambda: volumes.check_groups(lvs))
    if volumes.pool:
        findings += checks.pool(volumes.group, volumes.pool, lvs)
    if volumes.pool in lvs:
        findings += examine('thin pool transactions', _transactions, volumes,
                            volumes.pool)
    findings += examine('stripes', _stripes, backend, volumes)
    findings += stuck.suspended(lvs) + stuck.to_wipe(
        lvs, backend.settings.sections())
    if volumes.pool in (None, *lvs):
        findings += checks.metadata_space(
            volumes.metadata_group, volumes.free_space().metadata)
    return findings


def _stripes(backend: backends.Backend,
             volumes: 'logical_volumes.Lvm') -> list[Finding]:
    from cinder_localclone.storage import prerequisites
    wanted = backend.conf.localclone_thick_stripes
    return stuck.stripes(
        volumes.group, wanted, bool(volumes.pool),
        lambda: prerequisites.disks_with_space(
            volumes.group, volumes.timeout))


def _transactions(volumes: 'logical_volumes.Lvm', pool: str
                  ) -> list[Finding]:
    return stuck.pool_transactions(
        volumes.group, pool, *volumes.pool_transactions(pool))


def shared_checks(backend: backends.Backend) -> list[Finding]:
    """Check the database, then each node over the message bus."""
    nodes = backend.nodes()
    findings = checks.services(backend.name, backend.host, nodes)
    answers: dict[str, _Answer] = {}
    for host, alive in nodes.items():
        findings += examine(host, _peer, backend, host, alive, answers)
    findings += checks.sectors({  # a node without a size reports this itself
        host: each['block'] for host, each in answers.items()
        if each['block']})
    findings += checks.initiators({
        host: each['initiator'] for host, each in answers.items()})
    findings += examine('links', _links, backend, answers)
    findings += checks.stranded_moves(
        backend.name, backend.db.moves.readable_moves(), nodes)
    findings += stuck.interrupted_operations(backend.db.inventory.unended(
        backend.name, stuck.PATIENCE))
    findings += examine('copies', _copies, backend, nodes)
    findings += examine('encryption', _encryption, backend)
    return findings + examine('volumes', lambda: checks.unknown_volumes(
        _unknown_lvs(backend)))


def _links(backend: backends.Backend, answers: dict[str, _Answer]
           ) -> list[Finding]:
    """Report whether iSCSI between this node and its peers is encrypted."""
    portals = {host: iscsi.plain(each['addresses'][0])
               for host, each in answers.items() if each.get('addresses')}
    own = portals.pop(backend.host, '')
    if not own or not portals:
        return []
    how = packages.family(_os_release())
    try:
        found = link.parse(_policies(backend.conf.localclone_command_timeout))
    except (exceptions.LocalCloneError, OSError, ValueError) as exc:
        return [link.unknown(host, textwrap.shorten(base.in_words(exc), 300))
                for host in portals]
    return [_link(backend, host, own, portal, found, how)
            for host, portal in portals.items()]


def _policies(timeout: float) -> str:
    from cinder_localclone.storage import prerequisites
    return prerequisites.ipsec_policies(timeout)


def _link(backend: backends.Backend, host: str, own: str, portal: str,
          policies: list[link.Policy], how: str) -> Finding:
    from cinder_localclone.storage import prerequisites
    timeout = backend.conf.localclone_command_timeout
    try:
        device, source = prerequisites.route(portal, timeout)
        if prerequisites.is_wireguard(device):
            return link.wireguard(host, device)
        if not source:
            return link.unknown(host, 'the route to %s through %s has no '
                                'source address' % (portal, device))
        return link.ipsec(host, link.flows(
            own, source, portal, _target_port(backend)), policies, how)
    except (exceptions.LocalCloneError, OSError, ValueError) as exc:
        return link.unknown(host, textwrap.shorten(base.in_words(exc), 300))


def _target_port(backend: backends.Backend) -> int:
    """Return Cinder's option; all nodes should have the same value."""
    conf = backend.settings.conf
    for group in (backend.name, 'backend_defaults'):
        conf.register_opt(cfg.PortOpt('target_port'), group)
        if conf[group].target_port:
            return int(conf[group].target_port)
    return link.PORT


def _encryption(backend: backends.Backend) -> list[Finding]:
    """Check encryption, unless no volume can be encrypted."""
    from cinder_localclone.storage import prerequisites
    db = backend.db
    if not (db.secrets.secrets_in_use(host=backend.host)
            or db.inventory.is_encryption_available()):
        return []
    keys = backend.keys()
    findings = encryption.key_manager(keys.check, keys.project)
    if findings[0].verdict == checks.OK:
        findings += examine('secrets without volume', lambda: (
            encryption.leftover_secrets(
                operator.find_left(backend.db.inventory, keys))))
    return findings + encryption.header_backups(
        backend.conf.localclone_header_backup_dir, _group_disks(backend),
        unsafe=prerequisites.why_unsafe)


def _group_disks(backend: backends.Backend) -> set[str]:
    """Return the disks of the volume group."""
    from cinder_localclone.storage import prerequisites
    numbers = [os.stat(path).st_rdev for path in prerequisites.group_disks(
        backend.conf.volume_group, backend.conf.localclone_command_timeout)
        if os.path.exists(path)]
    return {disk for number in numbers
            for disk in encryption.disks_below('%d:%d' % (
                os.major(number), os.minor(number)))}


def _key_cache(backend: backends.Backend) -> list[Finding]:
    from cinder_localclone.storage import prerequisites
    return encryption.key_cache(
        options.sealed_keys(backend.conf), shutil.which,
        lambda: prerequisites.has_tpm(backend.conf.localclone_command_timeout))


def _kept(backend: backends.Backend) -> list[Finding]:
    """Report what of the node's files a container would lose."""
    container, _unknown = _container()
    if container is None:
        return []
    sealed = options.sealed_keys(backend.conf)
    return containers.kept(container, {
        'localclone_header_backup_dir':
            backend.conf.localclone_header_backup_dir,
        'localclone_key_cache_dir': sealed}) + (
            containers.credentials(container) if sealed else [])


def _former(backend: backends.Backend) -> list[Finding]:
    return encryption.former_directories(backend.crypt().former_directories())


def _locked(backend: backends.Backend) -> list[Finding]:
    """Report locked volumes that were in use here."""
    return encryption.locked_volumes(backends.locked(backend))


def _copies(backend: backends.Backend, nodes: dict[str, bool]
            ) -> list[Finding]:
    """Report running and waiting copies, if there are any."""
    entries = backend.db.queue.copies(backend.host)
    positions = copies.positions(
        entries, options.limits(backend.conf),
        {host for each in entries for host in each.hosts
         if not nodes.get(host)}).values()
    stalled = sum(bool(each.entry.stalled) for each in positions)
    return [Finding(
        'copies', checks.WARN if stalled else checks.OK, ', '.join(
            '%d %s' % (count, what) for count, what in (
                (sum(each.may_run for each in positions), 'run'),
                (sum(not each.may_run for each in positions),
                 'wait in the queue'),
                (stalled, 'make no progress')) if count),
        'cinder-localclone move list; see whether their sources can be '
        'reached and read' if stalled else '')] if positions else []


def _unknown_lvs(backend: backends.Backend) -> Iterator[str]:
    """Yield the LVs with tags of volumes or snapshots but no record."""
    volumes, snapshots = {}, {}
    with contextlib.suppress(exceptions.LocalCloneError):  # other checks do
        for name, lv in backend.lvm().lvs().items():
            facts = names.facts(lv.tags)
            if not names.is_to_wipe(name):
                volumes[name] = facts.get('volume')
            if 'snapshot' in facts:
                snapshots[facts['snapshot']] = name
    db = backend.db
    # The LV of a deleted snapshot is removed by the next sweep.
    recorded = db.snapshots.snapshots(snapshots) if snapshots else {}
    yield from (name for key, name in snapshots.items()
                if key not in recorded)
    known = {volume.name for volume in db.volumes.volumes_of(backend.host)}
    for move in db.moves.moves_of(backend.host):
        known |= {move.source_lv, move.destination_lv,
                  names.metadata_lv(move.move_id)}
    for name, volume_id in volumes.items():
        if volume_id and name not in known:
            try:
                db.moves.move_of(volume_id)
            except exceptions.InvalidToken:
                continue  # a forged tag may contain any text
            if not _may_be_at_home(backend, volume_id, name):
                yield name


def _may_be_at_home(backend: backends.Backend, volume_id: str, lv: str
                    ) -> bool:
    """Return whether an LV may be a volume's whose row names a former home.

    Its move or the service in the row may tell that its home is this node: see
    :mod:`.volumes.homes`. If they differ, this node may have another name, or
    a new service. The LV may then be the only copy.
    """
    volumes = backend.db.volumes
    volume = volumes.volume(volume_id)
    if volume is None or volume.name != lv:
        return False
    service = volumes.service_of(volume_id)
    return volume.home == backend.host or volume.home != service


def _peer(backend: backends.Backend, host: str, alive: bool,
          answers: dict[str, _Answer]) -> list[Finding]:
    before = time.time()
    answer, problem = backend.ask(host, 'describe')
    after = time.time()
    findings = checks.peer(host, alive, answer, problem, before, after)
    if answer is not None:
        answers[host] = answer
        findings += checks.troubles(host, *backend.ask(host, 'troubles'))
    return findings


class Doctor(base.Command):
    """Check this node, its peers and shared services.

    The command checks the configuration, commands, kernel modules, iSCSI, udev
    rules, LVM filter, volume groups and thin pool of this node, the database,
    and for each peer its readiness and clock. Checks do not depend on each
    other; only some need cinder.conf. Run as root, the command checks
    everything itself. As Cinder's user it uses the privileged helper of the
    volume service. The exit code is 1 if there is a FAIL.
    """

    example = 'doctor --json'
    changes = 'nothing; it may load kernel modules'

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        found = findings(self.app.backend)
        self.app.exit_code = int(any(each.verdict == checks.FAIL
                                     for each in found))
        return ('Check', 'Verdict', 'Details', 'Fix'), [
            dataclasses.astuple(each) for each in found]


def findings(find_backend: Callable[[], backends.Backend]) -> list[Finding]:
    """Make all checks.

    :param find_backend: returns the backend, or raises CommandError
    """
    backend: backends.Backend | None = None
    found: list[Finding] = []

    def configuration() -> list[Finding]:
        nonlocal backend
        present = find_backend()
        present.conf.check()
        backend = present
        return [Finding('cinder.conf', checks.OK, '[%s] in %s' % (
            present.name, present.settings.named))]

    found += examine('cinder.conf', configuration)
    found += examine('privileges', _privileges, backend)
    found += node_checks(backend)
    if backend is None:
        return found + [Finding(
            'storage, peers', checks.WARN, 'not checked: they depend on '
            'cinder.conf', FIXES['cinder.conf'])]
    found += checks.limits(backend.conf, backend.settings.rpc_timeout)
    found += examine('storage', storage_checks, backend)
    found += examine('locked volumes', _locked, backend)
    found += examine('key cache', _key_cache, backend)
    found += examine('container', _kept, backend)
    found += examine('former directories', _former, backend)
    return found + examine('database', shared_checks, backend)


def _privileges(backend: backends.Backend | None) -> list[Finding]:
    if not os.geteuid():
        backends.act_as_root(backend.settings if backend else None)
    elif backend:
        backend.load_cinder()  # configures how the helper is started
    return []
