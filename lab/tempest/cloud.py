# SPDX-License-Identifier: Apache-2.0
"""What Tempest needs in a lab's cloud beyond what every lab has."""

from lab.core import config
from lab.core import process
from lab.guest import image as guest_image
from lab.nova import server as servers
from lab.tempest import settings

BACKUP = 'cinder-backup'
#: Only an administrator may boot from an image with a flavour without disk.
FLAVORS = (('tempest', 0), ('tempest-larger', 32))


def prepare(lab) -> settings.Cloud:
    """Make it; nothing that is there already is made again."""
    second_backend(lab)
    backup_service(lab)
    nova = lab.client('nova')
    there = {each['name']: each['id'] for each in nova.get(
        '/flavors').json()['flavors']}
    for name, more in FLAVORS:
        if name not in there:
            there[name] = nova.post('/flavors', json={'flavor': {
                'name': name, 'ram': guest_image.MEMORY_MIB + more,
                'vcpus': 1, 'disk': 1}}).raise_for_status().json()[
                    'flavor']['id']
    image = servers.image(lab)
    return settings.Cloud(image, image, *(there[name]
                                          for name, _more in FLAVORS))


def second_backend(lab) -> None:
    """Cinder's own LVM driver on one node, to retype to and migrate to."""
    node, backend = lab.nodes['node1'], settings.BACKENDS[1]
    lab.write_service_config(node, backend)
    node.service('restart', backend)
    lab.wait_for_services(backend, nodes=[node.name])


def backup_service(lab) -> None:
    """cinder-backup on one node, into a directory of the lab's."""
    node = lab.nodes['node2']
    path, store = node.directory / 'backup.conf', lab.directory / 'backups'
    store.mkdir(exist_ok=True)
    # As the volume service of that node, for which it attaches volumes.
    path.write_text((node.directory / 'localclone.conf').read_text()
                    + config.ini({'DEFAULT': {
                        'state_path': '/run/cinder/backup',
                        'backup_driver': 'cinder.backup.drivers.posix.'
                        'PosixBackupDriver', 'backup_posix_path': store,
                        # So much of a volume is kept in memory.
                        'backup_file_size': 50 << 20}}))
    node.run('mkdir -p /run/cinder/backup')
    node.daemon('restart', BACKUP, BACKUP, path)
    process.wait_for('the backup service', lambda: any(
        each['binary'] == BACKUP and each['state'] == 'up'
        for each in lab.cinder().get('/os-services').json()['services']), 120,
        every=1)
