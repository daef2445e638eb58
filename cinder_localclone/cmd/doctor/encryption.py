# SPDX-License-Identifier: Apache-2.0
"""Checks of ``cinder-localclone doctor`` for encryption.

A backend without encrypted volumes needs none of this, so the only FAIL is a
locked volume.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import os

from cinder_localclone.cmd.doctor.checks import FAIL
from cinder_localclone.cmd.doctor.checks import Finding
from cinder_localclone.cmd.doctor.checks import OK
from cinder_localclone.cmd.doctor.checks import WARN
from cinder_localclone.cmd.doctor import packages
from cinder_localclone.core import boot_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.encryption import operator

#: Kernel modules with their kernel options. Without the last module cryptsetup
#: opens its own device for each access to a key slot.
MODULES = {'dm_crypt': 'CONFIG_DM_CRYPT', 'dm_flakey': 'CONFIG_DM_FLAKEY',
           'algif_skcipher': 'CONFIG_CRYPTO_USER_API_SKCIPHER'}
#: The same for authenticated volumes; cryptsetup uses the kernel for their
#: ciphers.
AUTHENTICATED = {'dm_integrity': 'CONFIG_DM_INTEGRITY',
                 'algif_aead': 'CONFIG_CRYPTO_USER_API_AEAD'}
#: The number of volumes or secrets in a finding.
SHOWN = 5
#: The maximum length of the reason for a locked volume.
REASON = 300
ONLY = 'only encrypted volumes need it: '


def modules(available: Callable[[str], bool], authenticates: bool = False
            ) -> list[Finding]:
    """Check whether the kernel can encrypt, and protect headers.

    :param available: whether a module is loaded or can be loaded
    :param authenticates: whether volumes may be authenticated
    """
    check = 'kernel: encryption'
    wanted = {**MODULES, **(AUTHENTICATED if authenticates else {})}
    missing = [name for name in wanted if not available(name)]
    if not missing:
        return [Finding(check, OK, ', '.join(wanted))]
    return [Finding(
        check, WARN, ONLY + 'missing: ' + ', '.join(missing),
        'modprobe -a %s; if a module is missing, use a kernel with %s' % (
            ' '.join(missing), ', '.join(wanted[name] for name in missing)))]


def version(text: str, how: str = '') -> list[Finding]:
    """Check the version of cryptsetup.

    :param text: the output of ``cryptsetup --version``
    :param how: see :func:`.packages.family`
    """
    found, new_enough = cryptsetup_cli.version(text)
    if new_enough:
        return [Finding('cryptsetup', OK, found)]
    return [Finding(
        'cryptsetup', WARN, ONLY + (found or 'its version is not known'),
        'install cryptsetup %s or later: %s' % (
            '.'.join(map(str, cryptsetup_cli.NEEDED)),
            packages.install(['cryptsetup'], how)))]


#: Projects in which the users of all services have a role.
SERVICES = 'service', 'services'


def key_manager(check: Callable[[], None], project: Callable[[], str]
                ) -> list[Finding]:
    """Check the key manager, and other readers of the secrets.

    :param check: raises an error if the key manager does not answer
    :param project: returns the name of the project with the secrets
    """
    try:
        check()
        found = project()
    except exceptions.LocalCloneError as exc:
        return [Finding(
            'key manager', WARN, ONLY + ' '.join(str(exc).split())[:250],
            'check [key_manager] and [barbican] in cinder.conf, and '
            'localclone_key_auth')]
    if found in SERVICES:
        return [Finding('key manager', OK), Finding(
            'project of the secrets', WARN, 'the secrets of encrypted volumes '
            'are in the project %s: all service users with a role there can '
            'read them' % found, 'before the first encrypted '
            'volume is created, set [key_manager] to the only user with a '
            'role in a separate project')]
    return [Finding('key manager', OK)]


def former_directories(directories: Sequence[str]) -> list[Finding]:
    """Report former directories of header backups or sealed keys."""
    if not directories:
        return []
    return [Finding(
        'former directories', WARN, 'header backups or sealed keys may be '
        'in ' + ', '.join(directories), 'move needed files to '
        'localclone_header_backup_dir, and remove the directory')]


def key_cache(directory: str, which: Callable[[str], str | None],
              tpm: Callable[[], bool]) -> list[Finding]:
    """Check whether this node can seal keys, if configured.

    :param directory: the directory of sealed keys; '' for none
    :param which: as ``shutil.which``
    :param tpm: whether a TPM is used
    """
    check = 'key cache'
    if not directory:
        return []
    if not which('systemd-creds'):
        return [Finding(
            check, WARN, 'systemd-creds is missing, so no key is sealed',
            'install systemd 250 or later, or set localclone_key_cache to '
            'none')]
    if not tpm():
        return [Finding(
            check, WARN, 'there is no TPM: the system disk alone gives access '
            'to the keys in ' + directory, 'use a TPM, or encrypt the system '
            'disk; or set localclone_key_cache to none')]
    return [Finding(check, OK, directory)]


def locked_volumes(outcomes: Sequence[boot_plan.Outcome]) -> list[Finding]:
    """Report locked volumes in use on this node.

    :param outcomes: the locked volumes with their problems
    """
    if not outcomes:
        return []
    said = ['%s: %s' % (each.volume_id, ' '.join((
        each.problem or 'no obstacle was found').split())[:REASON])
        for each in outcomes[:SHOWN]]
    return [Finding(
        'locked volumes', FAIL, _some(said, len(outcomes)),
        'remove the causes, and run cinder-localclone volume unlock (the '
        'volume service also tries again); then openstack server reboot '
        '--hard for their instances')]


def leftover_secrets(found: Sequence[operator.Left]) -> list[Finding]:
    """Report secrets of deleted volumes."""
    check = 'secrets without volume'
    if not found:
        return [Finding(check, OK)]
    return [Finding(
        check, WARN, _some(['%s (volume %s)' % (each.name, each.volume_id)
                            for each in found[:SHOWN]], len(found)),
        'cinder-localclone encryption leftover remove')]


def _some(said: list[str], count: int) -> str:
    return '; '.join(said) + (
        '; and %d more' % (count - len(said)) if count > len(said) else '')


def disks_below(number: str, sys: str = '/sys') -> set[str]:
    """Return the kernel names of the disks below a block device.

    :param number: its ``major:minor``
    :returns: no disks if it is no block device, such as a tmpfs
    """
    path = os.path.realpath(os.path.join(sys, 'dev/block', number))
    if not os.path.isdir(path):
        return set()
    slaves = os.path.join(path, 'slaves')
    below = os.listdir(slaves) if os.path.isdir(slaves) else []
    if below:
        found: set[str] = set()
        for each in below:
            with open(os.path.join(slaves, each, 'dev')) as file:
                found |= disks_below(file.read().strip(), sys)
        return found
    if os.path.exists(os.path.join(path, 'partition')):
        path = os.path.dirname(path)
    return {os.path.basename(path)}


def header_backups(directory: str | None, group_disks: Iterable[str] = (),
                   below: Callable[[str], set[str]] = disks_below,
                   unsafe: Callable[[str], str] = lambda directory: ''
                   ) -> list[Finding]:
    """Check whether header backups survive the loss of the volumes.

    :param group_disks: the disks of their volume group
    :param below: see :func:`disks_below`
    :param unsafe: says why the service refuses a directory; '' if not
    """
    check = 'header backups'
    fix = 'set localclone_header_backup_dir to a directory on another disk'
    if not directory:
        return [Finding(check, WARN, ONLY + 'no backups are made', fix)]
    if not os.path.isdir(directory):
        return [Finding(check, WARN, '%s is no directory' % directory,
                        'mkdir -m 700 ' + directory)]
    if unsafe(directory):
        return [Finding(
            check, WARN, '%s, so no backups are made in %s' % (
                unsafe(directory), directory), 'chown root and chmod go-w the '
            'directory; use a path without links')]
    device = os.stat(directory).st_dev
    same = below('%d:%d' % (os.major(device), os.minor(device))).intersection(
        group_disks)
    if same:
        return [Finding(
            check, WARN, '%s is on %s, like the volumes: a single failure '
            'would lose both' % (directory, ', '.join(sorted(same))), fix)]
    return [Finding(check, OK, directory)]
