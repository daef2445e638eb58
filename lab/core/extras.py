# SPDX-License-Identifier: Apache-2.0
"""Services that some labs have besides: another backend, backups."""

from lab.core import config
from lab.core import process

BACKUP = 'cinder-backup'
#: Cinder's own LVM driver.
SECOND = 'stock'


def second_backend(lab, node) -> None:
    """Cinder's own LVM driver on a node, to retype to and migrate to."""
    lab.write_service_config(node, SECOND)
    node.service('restart', SECOND)
    lab.wait_for_services(SECOND, nodes=[node.name])


def raise_quotas(lab, user, **most) -> None:
    """Let a user's project have more than Cinder's defaults.

    :param most: numbers by Cinder's names of quotas
    """
    lab.cinder().put('/os-quota-sets/' + lab.cinder(user).project,
                     {'quota_set': most}).raise_for_status()


def backups(lab):
    """The directory that backups are kept in."""
    return lab.directory / 'backups'


def backup_service(lab, node, **options) -> None:
    """cinder-backup on a node, into a directory of the lab's.

    :param options: of that service
    """
    path = node.directory / 'backup.conf'
    backups(lab).mkdir(exist_ok=True)
    # As the volume service of that node, for which it attaches volumes.
    path.write_text((node.directory / 'localclone.conf').read_text()
                    + config.ini({'DEFAULT': dict({
                        'state_path': '/run/cinder/backup',
                        'backup_driver': 'cinder.backup.drivers.posix.'
                        'PosixBackupDriver',
                        'backup_posix_path': backups(lab)}, **options)}))
    node.run('mkdir -p /run/cinder/backup')
    node.daemon('restart', BACKUP, BACKUP, path)
    process.wait_for('the backup service', lambda: any(
        each['binary'] == BACKUP and each['state'] == 'up'
        for each in lab.cinder().get('/os-services').json()['services']), 120,
        every=1)
