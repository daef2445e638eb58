# SPDX-License-Identifier: Apache-2.0
"""Keys of headers in files, by the real cryptsetup."""

import dataclasses
import os

import fixtures

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import headers
from cinder_localclone.storage import cryptsetup
from cinder_localclone.storage.privsep import cryptsetup as privileged_crypt
from tests.helpers import configured
from tests.helpers import cryptsetup_case
from tests import world as worlds

A = 'a@l'


class Crypt(cryptsetup.Cryptsetup):
    """Headers are real; LVs and what decrypts them are the world's."""

    def __init__(self, sim, backups):
        super().__init__('g', 60, backups, backend=configured.BACKEND)
        self.note, self.close = sim.note, sim.close
        self.former_directories = sim.former_directories


class RealCase(cryptsetup_case.CaseOfFiles):
    """Headers in files, by the real cryptsetup, of a simulated node."""

    def setUp(self):
        super().setUp()
        for module, name, value in (
                (names, 'handle_path', lambda volume_id: str(
                    self.directory / names.handle(volume_id))),
                (privileged_crypt, 'require_handle', lambda path:
                 names.volume_of_handle(os.path.basename(path)))):
            self.useFixture(fixtures.MockPatchObject(module, name, value))
        self.world = worlds.World()
        node = self.world.nodes[A].node
        self.node = dataclasses.replace(node, crypt=Crypt(
            node.crypt, str(self.backups)))
        self.volume = self.create()

    def create(self):
        volume = self.world.create_volume(
            A, provider_id=str(volume_types.Recorded(16 << 20, '')))
        key = self.node.keys.create(volume.id)
        volume.provider_id = str(volume_types.Recorded(16 << 20, key))
        self.node.keys.consume(key, 'volumes', volume.id)
        self.image(names.handle(volume.id))
        crypt = self.node.crypt
        with self.through_the_cache():
            crypt.format(volume.id, cryptsetup_cli.new_header(
                volume_types.Encryption(), volume.id), self.secret(key))
        crypt.write_token(volume.id, '0', str(luks_header.Token(
            key, volume_types.KeyFormat.HEX, keyslots=('0',))))
        crypt.back_up(volume.id)
        volume.provider_id = str(volume_types.Recorded(
            16 << 20, key, pin=crypt.header(volume.id).pin))
        return volume

    def secret(self, key):
        return self.world.secrets.kept[key][1]

    def key(self, volume=None):
        return (volume or self.volume).encryption.key

    def opens(self, key, volume=None):
        try:
            self.node.crypt.test((volume or self.volume).id, key)
            return True
        except encryption_exceptions.WrongKey:
            return False

    def assert_sound(self, volume=None):
        with self.through_the_cache():
            self.assertEqual([], [
                each for each in headers.verify(
                    self.node, (volume or self.volume).id)
                if each['problem']])
