# SPDX-License-Identifier: Apache-2.0
"""What Tempest needs in a lab's cloud beyond what every lab has."""

from lab.core import extras
from lab.guest import image as guest_image
from lab.nova import server as servers
from lab.tempest import settings

#: Only an administrator may boot from an image with a flavour without disk.
FLAVORS = (('tempest', 0), ('tempest-larger', 32))


def prepare(lab) -> settings.Cloud:
    """Make it; nothing that is there already is made again."""
    extras.second_backend(lab, lab.nodes['node1'])
    # So much of a volume is kept in memory, several times for each of five
    # backups at once; and a process of a node that has more than 65530 pages
    # (vm.max_map_count of the host) never goes on.
    extras.backup_service(lab, lab.nodes['node2'],
                          backup_file_size=4 << 20)
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
