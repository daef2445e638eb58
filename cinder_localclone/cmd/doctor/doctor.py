# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone doctor``: make all checks, even after errors."""

import argparse
from collections.abc import Callable
import contextlib
import dataclasses
import os
import platform
import shutil
import textwrap
import time

from cinder_localclone.cmd import base
from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor.checks import Finding
from cinder_localclone.cmd.doctor import encryption
from cinder_localclone.cmd.doctor import packages
from cinder_localclone.cmd.doctor import stuck
from cinder_localclone.core import copies
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.encryption import operator
from cinder_localclone.service import operator as backends
from cinder_localclone.service import options

#: Seconds for a command, without a configuration.
TIMEOUT = 30
#: Seconds after which a change of a target counts as hanging.
PROBE_TIMEOUT = 2
#: Remedies for checks that fail with an error.
FIXES = {
    'cinder.conf': 'pass --config-file, or correct the file',
    'kernel: device-mapper': 'modprobe dm-mod; run it as root',
    'database': 'start the database; check [database] connection',
}


def examine(name: str, check: Callable, *arguments) -> list[Finding]:
    """Return the findings of a check; an error is a finding too."""
    try:
        return check(*arguments)
    except Exception as exc:
        return [Finding(
            name, checks.FAIL, textwrap.shorten(errors.in_words(exc), 300),
            FIXES.get(name, checks.SEE_DETAILS))]


def node_checks(backend: backends.Backend | None) -> list[Finding]:
    """Check the prerequisites of this node, even without a backend."""
    from cinder_localclone.storage.privsep import dmsetup
    from cinder_localclone.storage.privsep import lio_configfs
    from cinder_localclone.storage.privsep import process
    timeout = (backend.conf.localclone_command_timeout if backend
               else TIMEOUT)

    def available(module):
        if os.path.isdir('/sys/module/' + module):
            return True
        try:
            process.run('modprobe', '--dry-run', '--quiet', module,
                        timeout=timeout)
        except exceptions.CommandFailed:
            return False
        return True

    def cryptsetup():
        with contextlib.suppress(FileNotFoundError):
            return process.run('cryptsetup', '--version', timeout=timeout)
        return ''

    def lvm_filter():
        return checks.lvm_filter(process.run(
            'lvmconfig', '--typeconfig', 'full',
            *['devices/' + name for name in checks.FILTERS],
            timeout=timeout))

    os_release, kernel = _os_release(), platform.release()
    how = packages.family(os_release)
    findings = checks.commands(shutil.which, how)
    findings += examine('kernel: device-mapper', lambda: checks.targets(
        dmsetup.targets(timeout), os_release, kernel))
    findings += examine('kernel: iSCSI', checks.modules, available,
                        os_release, kernel)
    findings += examine(
        'kernel: encryption', encryption.modules, available,
        bool(backend and backend.conf.localclone_enable_integrity))
    findings += examine('cryptsetup', lambda: encryption.version(
        cryptsetup(), how))
    if backend:
        findings += examine('iSCSI initiator', _initiator, backend, how)
    findings += examine(
        'iSCSI target', checks.iscsi_target,
        os.path.isdir('/sys/kernel/config'),
        lambda: lio_configfs.hanging(PROBE_TIMEOUT))
    findings += examine('udev rules', checks.rules, checks.RULE_DIRECTORIES)
    return findings + examine('LVM filter', lvm_filter)


def _os_release():
    with contextlib.suppress(OSError):  # there is no such file
        return platform.freedesktop_os_release()
    return {}


def _initiator(backend, how):
    backend.load_cinder()
    return checks.initiator(backend.sessions().initiator(), how)


def storage_checks(backend: backends.Backend) -> list[Finding]:
    """Check the volume groups and the thin pool."""
    from cinder_localclone.storage.privsep import lvm
    volumes = backend.lvm()
    wanted = {'volume_group': volumes.group}
    if volumes.metadata_group != volumes.group:
        wanted['localclone_metadata_volume_group'] = volumes.metadata_group
    findings = checks.groups(wanted, lambda group: lvm.free(
        [group], backend.conf.localclone_command_timeout))
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


def _stripes(backend, volumes):
    from cinder_localclone.storage.privsep import lvm
    wanted = backend.conf.localclone_thick_stripes
    return stuck.stripes(
        volumes.group, wanted, bool(volumes.pool), lambda: len(
            lvm.free_of_disks(volumes.group, volumes.timeout)))


def _transactions(volumes, pool):
    return stuck.transactions(
        volumes.group, pool, *volumes.pool_transactions(pool))


def shared_checks(backend: backends.Backend) -> list[Finding]:
    """Check the database, then each node over the message bus."""
    nodes = backend.nodes()
    findings = checks.services(backend.name, backend.host, nodes)
    answers: dict[str, dict] = {}
    for host, alive in nodes.items():
        findings += examine(host, _peer, backend, host, alive, answers)
    findings += checks.sectors({  # a node without a size reports this itself
        host: each['block'] for host, each in answers.items()
        if each['block']})
    findings += checks.initiators({
        host: each['initiator'] for host, each in answers.items()})
    findings += checks.waiting(
        backend.name, backend.db.moves.readable(), nodes)
    findings += stuck.unended(backend.db.inventory.unended(
        backend.name, stuck.PATIENCE))
    findings += examine('copies', _copies, backend, nodes)
    findings += examine('encryption', _encryption, backend)
    return findings + examine('volumes', lambda: checks.unknown_volumes(
        _unknown_lvs(backend)))


def _encryption(backend):
    """Check encryption, unless no volume can be encrypted."""
    from cinder_localclone.storage.privsep import folders
    db = backend.db
    if not (db.secrets.secrets_in_use(host=backend.host)
            or db.inventory.is_encryption_available()):
        return []
    keys = backend.keys()
    findings = encryption.key_manager(keys.check, keys.project)
    if findings[0].verdict == checks.OK:
        findings += examine('secrets without volume', lambda: (
            encryption.left(operator.find_left(backend.db.inventory, keys))))
    return findings + encryption.header_backups(
        backend.conf.localclone_header_backup_dir, _group_disks(backend),
        unsafe=folders.problem)


def _group_disks(backend):
    """Return the disks of the volume group."""
    from cinder_localclone.storage.privsep import lvm
    numbers = [os.stat(path).st_rdev for path in lvm.physical_volumes(
        backend.conf.volume_group, backend.conf.localclone_command_timeout)
        if os.path.exists(path)]
    return {disk for number in numbers
            for disk in encryption.disks_below('%d:%d' % (
                os.major(number), os.minor(number)))}


def _key_cache(backend):
    from cinder_localclone.storage.privsep import process

    def tpm():
        try:
            process.run('systemd-creds', 'has-tpm2', '--quiet',
                        timeout=backend.conf.localclone_command_timeout)
        except exceptions.CommandFailed:
            return False
        return True
    return encryption.key_cache(
        options.sealed_keys(backend.conf), shutil.which, tpm)


def _former(backend):
    return encryption.former(backend.crypt().former_directories())


def _locked(backend):
    """Report locked volumes that were in use here."""
    return encryption.locked(backends.locked(backend))


def _copies(backend, nodes):
    """Report running and waiting copies, if there are any."""
    entries = backend.db.queue.copies(backend.host)
    positions = copies.positions(
        entries, options.limits(backend.conf),
        {host for each in entries for host in each.ends
         if not nodes.get(host)}).values()
    stalled = sum(bool(each.entry.stalled) for each in positions)
    return [Finding(
        'copies', checks.WARN if stalled else checks.OK, ', '.join(
            '%d %s' % (count, what) for count, what in (
                (sum(each.runs for each in positions), 'run'),
                (sum(not each.runs for each in positions),
                 'wait in the queue'),
                (stalled, 'make no progress')) if count),
        'cinder-localclone moves; see whether their sources can be reached '
        'and read' if stalled else '')] if positions else []


def _unknown_lvs(backend):
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
            yield name


def _peer(backend, host, alive, answers):
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

    Run as root, the command checks everything itself. Otherwise privileged
    checks use the same privsep daemon as the volume service. The exit code is
    1 if there is a FAIL.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        findings = self._findings()
        self.app.exit_code = int(any(each.verdict == checks.FAIL
                                     for each in findings))
        return ('Check', 'Verdict', 'Details', 'Fix'), [
            dataclasses.astuple(each) for each in findings]

    def _findings(self):
        backend, findings = None, []

        def configuration():
            nonlocal backend
            found = self.app.backend()
            found.conf.check()
            backend = found
            return [Finding('cinder.conf', checks.OK, '[%s] in %s' % (
                found.name, found.settings.named))]

        findings += examine('cinder.conf', configuration)
        findings += examine('privileges', self._privileges, backend)
        findings += node_checks(backend)
        if backend is None:
            return findings + [Finding(
                'storage, peers', checks.WARN, 'not checked: they depend on '
                'cinder.conf', FIXES['cinder.conf'])]
        findings += checks.limits(backend.conf, backend.settings.rpc_timeout)
        findings += examine('storage', storage_checks, backend)
        findings += examine('locked volumes', _locked, backend)
        findings += examine('key cache', _key_cache, backend)
        findings += examine('former directories', _former, backend)
        return findings + examine('database', shared_checks, backend)

    @staticmethod
    def _privileges(backend):
        if not os.geteuid():
            backends.act_as_root(backend and backend.settings)
        elif backend:
            backend.load_cinder()  # configures how the helper is started
        return []
