# SPDX-License-Identifier: Apache-2.0
"""The base of tests of volumes encrypted by Nova, and of their servers."""

import json

from lab.core import instance as instances
from lab.keys import types
from lab.keys import volumes
from lab.nova import compute
from lab.nova import server as servers
from tests.functional import base

MIB = volumes.MIB
MARK = volumes.GUESTS_MARK
#: Bytes of a header of Nova's encryption.
HEADER = volumes.ByNova.header_bytes

#: Runs in a node: os-brick's encryptor, as Nova uses it.
_ENCRYPTOR = '''
import json, sys
from oslo_concurrency import lockutils, processutils
from oslo_config import cfg
from os_brick.initiator import connector
import os_brick
from os_brick import opts
cfg.CONF([], default_config_files=[sys.argv[1]])
os_brick.setup(cfg.CONF)
from castellan.common.objects import symmetric_key
from os_brick.encryptors import luks
volume, path, key, action = sys.argv[2:6]
class Keys:
    def get(self, _context, _key):
        return symmetric_key.SymmetricKey('AES', 256, bytes.fromhex(key))
encryptor = luks.LuksEncryptor(
    root_helper='sudo', keymgr=Keys(), encryption_key_id='key',
    connection_info={'driver_volume_type': 'local',
                     'data': {'device_path': path}}, volume_id=volume)
try:
    if action == 'format' or (  # what Nova does for QEMU
            action == 'attach' and not luks.is_luks('sudo', path)):
        encryptor._format_volume(key, cipher='aes-xts-plain64', key_size=256)
    elif action == 'detach':
        encryptor.detach_volume()
except processutils.ProcessExecutionError as exc:
    print(json.dumps(exc.exit_code))
else:
    print(json.dumps(0))
'''


class EncryptedTest(base.LabTest):
    """A lab with Barbican, and a volume type which Nova encrypts."""

    lab_name = base.KEYS
    options = base.WITH_KEYS
    parts = {'keys': True}
    type_name = volumes.ByNova.type_name
    #: The owner of the volumes. Only administrators migrate servers, and only
    #: members of a key's own project may read it.
    owner_name = 'admin'

    def setUp(self):
        super().setUp()
        self.owner = self.lab.cinder(self.owner_name)
        if self.type_name not in self.owner.get('/types').text:
            types.make(self.lab, self.type_name, {})

    def encrypted(self, node=None, image=None, **source):
        """Create a volume of the encrypted type; return its id.

        :param source: ``snapshot_id`` or ``source_volid``
        """
        return instances.create_volume(
            self.owner, 1, None if source else self.type_name, 180,
            node and node.name, image, **source)

    # -- a volume on the nodes

    def backing(self, volume):
        """Return the path of a volume's LV at its home."""
        return volumes.backing_path(self.lab, volume)

    def header(self, node, volume):
        """Return the checksum of a volume's header on the disk."""
        return volumes.header(node, self.backing(volume), 2)

    def key(self, volume):
        """Return the key of a volume, as Nova makes it of the secret."""
        return volumes.ByNova(self.lab, self.owner_name).key(volume).decode()

    def encryptor(self, attached, action):
        """Run os-brick's encryptor on a node; return its exit code."""
        return json.loads(attached.node.run([
            self.lab.python, '-W', 'ignore', '-c', _ENCRYPTOR,
            attached.node.directory / 'localclone.conf', attached.volume_id,
            attached.path, self.key(attached.volume_id), action],
            timeout=120).stdout.splitlines()[-1])

    def opens(self, attached, what):
        """Return the open count of a volume's device; '' if it is gone."""
        return attached.node.run(
            'dmsetup info -c --noheadings -o open localclone-%s%s' % (
                what, attached.volume_id), check=False).stdout.strip()


class ServerTest(EncryptedTest):
    """A lab with Nova, and servers with encrypted volumes."""

    lab_name = 'nova'
    options = base.QUICK
    parts = {'nova': True, 'keys': True}

    def setUp(self):
        super().setUp()
        self.addCleanup(self.end_servers)

    def mend(self):
        for node in self.lab.nodes.values():
            if not node.is_on:
                node.power_on()
                self.lab.start_services(node)
        for volume in self.lab.cinder().get('/volumes').json()['volumes']:
            self.lab.cinder().delete('/volumes/' + volume['id'])
        super().mend()

    def end_servers(self):
        for node in self.lab.nodes.values():
            if node.is_on and not compute.is_running(node):
                compute.service(node, 'start')
        servers.delete_all(self.lab)

    def boot(self, node, *volumes):
        """Boot a server on a node from an encrypted volume.

        :param volumes: the ids of more volumes
        :returns: the server; the id of its root volume
        """
        root = self.encrypted(node, servers.image(self.lab))
        server = servers.Server.boot(self.lab, root, node.name, *volumes)
        server.wait_verified()
        return server, root

    def has_mark(self, node, volume):
        """Return whether a volume's LV has the mark of the guest's blocks."""
        return volumes.has_mark(node, self.backing(volume), MARK)
