# SPDX-License-Identifier: Apache-2.0
"""What re-encrypts volumes in the simulated world.

A process that outlives the service of its node, but not the node's power. It
goes on when a test says so.
"""

import dataclasses

from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.interfaces import crypt
from cinder_localclone.core import names

#: How far one is that has begun; how much a volume has to be encrypted anew.
HALF, ALL = 1 << 29, 1 << 30


def begin(header, slot, wanted):
    """A slot more, of the same key, that the token has as well."""
    new = str(max(map(int, header.slots)) + 1)
    header.slots[new] = header.slots[slot]
    for number, token in header.tokens.items():
        if slot in token.keyslots:
            header.tokens[number] = dataclasses.replace(
                token, keyslots=(*token.keyslots, new))
    wanted.words()  # of what is allowed
    header.under_way = luks_header.Reencryption(
        0, wanted.resilience, False, wanted.cipher, wanted.key_bits,
        digest=header.digest + ' and anew')


def recover(header):
    header.under_way = dataclasses.replace(
        header.under_way, interrupted=False)


def go_on(node, volume_id):
    """The process comes to the half of it."""
    header = node.world.headers[volume_id]
    header.under_way = dataclasses.replace(header.under_way, done=HALF)


def end(node, volume_id):
    """It comes to its end."""
    header = node.world.headers[volume_id]
    newest = max(header.slots, key=int)
    header.slots = {newest: header.slots[newest]}
    for number, token in header.tokens.items():
        header.tokens[number] = dataclasses.replace(token, keyslots=tuple(
            set(token.keyslots) & {newest}))
    header.cipher, header.key_bits, header.digest = (
        header.under_way.cipher, header.under_way.key_bits,
        header.under_way.digest)
    header.under_way = None
    node.reencrypting.discard(volume_id)


def kill(node, volume_id):
    """It ends in the middle of something, and leaves its devices."""
    header = node.world.headers[volume_id]
    header.under_way = dataclasses.replace(header.under_way, interrupted=True)
    node.devices[names.crypt(volume_id)]['left'] = True
    node.reencrypting.discard(volume_id)


def cut_short(node, volume_id):
    """It is killed in its very end: no key opens the volume now."""
    header = node.world.headers[volume_id]
    under_way = header.under_way
    end(node, volume_id)
    header.under_way = dataclasses.replace(
        under_way, complete=True)


def almost_end(node, volume_id):
    """It is killed just before that: both slots are there."""
    header = node.world.headers[volume_id]
    header.under_way = dataclasses.replace(header.under_way, complete=True)
    node.reencrypting.discard(volume_id)


def lose_power(node):
    for volume_id in list(node.reencrypting):
        kill(node, volume_id)


def insist_on_fences(world):
    """What is encrypted anew is at rest, at home, and open."""
    for node in world.nodes.values():
        for volume_id in node.reencrypting:
            row = world.volumes.get(volume_id)
            world.insist(
                row and world.home(row) is node
                and not any(move.volume_id == volume_id and not move.is_over
                            for move in world.move_records.values())
                and not any(volume == volume_id
                            for volume, _who in node.remote)
                and {names.handle(volume_id), names.crypt(volume_id)}
                <= set(node.devices),
                'a volume that is re-encrypted is not at rest')


class SimRunner(crypt.Runner):
    """The processes that re-encrypt volumes of a node."""

    def __init__(self, node):
        self.node = node
        #: Whether it does not pause in time.
        self.stubborn = False

    def obstacle(self):
        return ''

    def end(self):
        for volume_id in list(self.node.reencrypting):
            self.stop(volume_id)

    def start(self, volume_id):
        header = self.node.world.headers[volume_id]
        self.node.world.insist(
            header.under_way and not header.under_way.interrupted
            and volume_id not in self.node.reencrypting,
            'nothing to go on with')
        self.node.reencrypting.add(volume_id)

    def stop(self, volume_id):
        if not self.stubborn:
            self.node.reencrypting.discard(volume_id)
        return not self.stubborn

    def is_running(self, volume_id):
        return volume_id in self.node.reencrypting

    def progress(self, volume_id):
        return cryptsetup_cli.Progress(HALF, ALL, 1 << 20, 512)
