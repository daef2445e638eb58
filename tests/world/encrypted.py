# SPDX-License-Identifier: Apache-2.0
"""Volumes that the driver encrypts, as events of a schedule, and checks.

cryptsetup, headers and the key manager are those of :mod:`.cryptsetup` and
:mod:`.reencrypt`. The operator rotates keys and encrypts volumes anew; the
process that does so comes on, ends, or is killed; the key manager is away;
somebody forges a header for a while.
"""

import typing

from cinder_localclone.core.interfaces import records
from cinder_localclone.core import names
from cinder_localclone.encryption import operator
from tests.world import crypt
from tests.world import disks
from tests.world import reencryption

TYPE = {'localclone:encryption': 'luks2'}
#: How often each kind of event is drawn, beside those of the theme.
KINDS = {'rotate': 6, 'reencrypt': 5, 'anew': 8, 'pause': 1, 'go on': 1,
         'key manager': 2, 'header backup': 1}
#: The same where nothing copies a header that was forged.
FORGES = {'forge': 2}
#: What copies a header.
COPIES = frozenset(('snapshot', 'from snapshot', 'clone'))
#: What becomes of a process that encrypts a volume anew.
PROCESS = (reencryption.go_on, reencryption.end, reencryption.kill,
           reencryption.almost_end, reencryption.cut_short, reencryption.end)
#: Statuses in which a volume has all that opens it.
WHOLE = ('available', 'in-use', 'reserved', 'maintenance', 'retyping')


class Events:
    """A part of :class:`.workload.Cloud`."""

    world: typing.Any
    scheduler: typing.Any
    volume: typing.Any
    nodes: typing.Any
    home: typing.Any
    ask: typing.Any
    say: typing.Any

    def adopt_encrypted(self, volume):
        """A volume that is there is one that the driver has encrypted."""
        key = crypt.encrypt(self.world, volume)
        node = self.home(volume)
        node.disk.tags[volume.name] |= {*names.tags(key=key, luks=volume.id)}
        crypt.SimCrypt(node).back_up(volume.id)
        self.world.secrets.consumers.add((key, 'volumes', volume.id))

    @staticmethod
    def top(volume):
        """The device that a guest has of a volume."""
        return (names.crypt if volume.encryption else names.handle)(
            volume.id)

    def _operate(self, number, method, **more):
        """The operator asks for something, at the volume's home."""
        volume = self.volume(number, 'available', 'in-use')
        if volume is None or not volume.encryption:
            return False
        self.say('%s of %s', method, volume.id[:4])
        self.ask(volume.host.partition('#')[0], lambda node: getattr(
            node.endpoint, 'encryption_' + method)(
                None, volume_id=volume.id, **more), 80)
        return True

    def _rotate(self, a, _b):
        return self._operate(a, 'rotate')

    def _header_backup(self, a, _b):
        return self._operate(a, 'header_backup')

    def _pause(self, a, _b):
        return self._operate(a, 'pause')

    def _go_on(self, a, _b):
        return self._operate(a, 'resume')

    def _reencrypt(self, a, b):
        return self._operate(
            a, 'reencrypt', cipher='aes-xts-plain64',
            key_bits=(512, 256)[b % 2], resilience='', drops_keys=False,
            zone=(0, 4)[b // 2 % 2])

    def _anew(self, a, b):
        """What encrypts a volume anew comes to some point."""
        found = [(node, volume_id) for node in self.nodes()
                 for volume_id in sorted(node.reencrypting)]
        if not found:
            return False
        node, volume_id = found[a % len(found)]
        self.say('re-encryption of %s on %s: %s', volume_id[:4], node.host,
                 PROCESS[b].__name__)
        PROCESS[b](node, volume_id)

    def _key_manager(self, _a, b):
        """The key manager does not answer for a while."""
        self.say('the key manager is away')
        self.world.secrets.state = crypt.AWAY
        self.world.secrets.missed = True
        self.scheduler.wait((1, 20, 100)[b % 3])
        self.world.secrets.state = ''

    def _forge(self, a, b):
        """Somebody who can write to a disk puts another header there.

        While nothing is at work on the volume: what is checked is read again
        when it is used.
        """
        volume = self.volume(a, 'available', 'in-use')
        header = volume and self.world.headers.get(volume.id)
        if header is None or header.digest == crypt.FORGED or (
                header.under_way) or any(
                name == volume.id for _host, name in self.scheduler.locks):
            return False
        self.say('the header of %s is forged', volume.id[:4])
        forged = self.world.headers[volume.id] = crypt.SimHeader(
            {'0': b'enemy'}, dict(header.tokens), digest=crypt.FORGED)
        self.scheduler.wait((1, 20, 100)[b % 3])
        if self.world.headers.get(volume.id) is forged:
            self.world.headers[volume.id] = header


def check(world):
    """The secret that the row of a volume names opens it, at each moment."""
    for volume in world.volumes.values():
        recorded = volume.encryption
        header = world.headers.get(volume.id)
        if (not recorded or header is None or header.digest == crypt.FORGED
                or volume.status not in WHOLE
                # Cinder writes the end of a retype over "deleting".
                or volume.id in world.going):
            continue
        _name, key = world.secrets.kept.get(recorded.key, ('', None))
        if key not in header.slots.values():
            return 'volume %s is not opened by what its row names' % (
                volume.id[:4])
    return ''


class _Known(records.SecretOwners):
    """What the database knows of secrets; see :mod:`.leftovers`."""

    def __init__(self, world):
        self._world = world

    def secrets_of_all(self):
        node = next(iter(self._world.nodes.values()))
        return node.make_database().secrets.secrets_in_use()

    def volumes_known(self, volume_ids):
        return (volume_ids & set(self._world.volumes),
                volume_ids & set(self._world.deleted))


def clean_up(world):
    """The operator's command removes what deleted volumes have left.

    A delete does not wait for a key manager that is away, nor for a backup
    of a header that can't be removed.
    """
    node = next(iter(world.nodes.values()))
    keys = crypt.SimKeys(node)
    known = _Known(world)
    for each in operator.find_left(known, keys, set(world.backups)):
        if each.known:
            operator.remove_left(known, keys, crypt.SimCrypt(node), each)


def left(world):
    """Yield what is left though all volumes and snapshots are deleted."""
    for what, found in (
            ('secrets', world.secrets.kept),
            ('uses of secrets', world.secrets.consumers),
            ('backups of headers', world.backups),
            *(('kept keys on ' + node.host, node.disk.sealed)
              for node in world.nodes.values())):
        if found:
            yield '%s are left: %s' % (what, found)


def data_of(lv):
    """What a new volume may be found to have: noise is what it has."""
    return [[disks.ZERO if value == disks.EMPTY else value] for value in lv]
