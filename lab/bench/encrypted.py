# SPDX-License-Identifier: Apache-2.0
"""What it costs that the driver encrypts a volume."""

import json
import statistics
import time

from lab.bench import at_rest
from lab.bench import base
from lab.bench import guests
from lab.core import instance as instances
from lab.core import process
from lab.keys import types
from lab.keys import volumes

#: More of them than elsewhere: what is to be seen is two in a hundred, and
#: the machine's own ups and downs are ten.
ROUNDS = 21
_BY_HAND = '''
set -e
lvcreate -q -y -T -V 1040m -n byhand cinder-volumes/cinder-volumes-pool
echo key >/run/byhand.key
cryptsetup luksFormat --batch-mode --type luks2 --cipher aes-xts-plain64 \
    --key-size 512 --sector-size 512 --offset 32768 --pbkdf pbkdf2 \
    --pbkdf-force-iterations 1000 --key-file /run/byhand.key \
    /dev/cinder-volumes/byhand
cryptsetup open --key-file /run/byhand.key /dev/cinder-volumes/byhand byhand
'''
_REENCRYPT = '''
cryptsetup reencrypt --batch-mode --resilience checksum --key-file \
    /run/byhand.key /dev/cinder-volumes/byhand >/dev/null
'''
_GONE = '''
cryptsetup close byhand
lvremove -q -f cinder-volumes/byhand
rm -f /run/byhand.key
'''


class Encrypted(at_rest.AtRest):
    """A volume that the driver encrypts, beside one that it does not."""

    def encrypted(self):
        """At rest, beside the same cipher put by hand on a plain LV, and
        beside none; then attaches; then given another data key.
        """
        way = volumes.ByDriver
        types.make(self.lab, way.type_name, None, way.specs)
        made = {name: instances.create_volume(
            self.demo, 1, name, 120, 'node1')
            for name in (way.type_name, 'localclone')}
        self._io(made)
        self._attaches(made)
        self._reencryption(made[way.type_name])
        for volume in made.values():
            self.demo.delete('/volumes/' + volume).raise_for_status()

    def _io(self, made):
        attached = [self.instance.attach(volume, self.n1)
                    for volume in made.values()]
        self.n1.run(_BY_HAND)
        try:
            encrypted, plain = [each.path for each in attached]
            paths = encrypted, '/dev/mapper/byhand', plain
            for path in paths:
                self.n1.run('dd if=/dev/zero of=%s bs=1M oflag=direct '
                            'status=none' % path, timeout=300, check=False)
            for name, how in at_rest.PATTERNS.items():
                ours, by_hand, none = self.iops(how, *paths, rounds=ROUNDS)
                self.add(name + '_encrypted', ours, 'IOPS', by_hand)
                self.add(name + '_encrypted_over_plain', ours, 'IOPS', none)
        finally:
            self.n1.run(_GONE, check=False)
        for each in attached:
            each.detach()

    def _attaches(self, made):
        """Where the volume is already: what opening it takes."""
        taken = {name: [] for name in made}
        for _round in range(base.ROUNDS):
            for name, volume in made.items():
                attached = self.instance.attach(volume, self.n1)
                taken[name].append(attached.seconds)
                attached.detach()
        encrypted, plain = [statistics.median(each)
                            for each in taken.values()]
        self.add('attach_encrypted', encrypted, 's', plain)

    def _reencryption(self, volume):
        """How fast it is, beside cryptsetup alone; what it costs a guest,
        beside none.
        """
        attached = self.instance.attach(volume, self.n1)
        self._operator('reencryption', 'start', volume)
        ours = self._rate(volume)
        self.add('reencryption', ours, 'MiB/s', self._by_hand())
        alone = self._guest_waits(attached)
        self._operator('reencryption', 'start', volume)
        beside = self._guest_waits(attached)
        if self._progress(volume) is None:
            raise process.LabError('it ended before the guest did')
        self.add('guest_write_p99_while_reencrypting', beside, 'ms', alone)
        process.wait_for('it to end', lambda: self._progress(volume) is None,
                         300)
        attached.detach()

    def _progress(self, volume):
        """MiB that are encrypted anew; None once it has ended."""
        segments = volumes.segments(
            self.n1, '/dev/mapper/localclone-' + volume)
        if len(segments) == 1:
            return None
        first = segments[0]
        if 'in-reencryption' in first.get('flags', ()) or (
                first['size'] == 'dynamic'):
            return 0  # what comes first is as it was
        return int(first['size']) >> 20

    def _guest_waits(self, attached):
        return guests.figures(guests.work(
            self.n1, attached.path, guests.WORK['write']))['p99']

    def _rate(self, volume):
        """MiB a second until it has ended."""
        samples = []
        while (done := self._progress(volume)) is not None:
            if done:
                samples.append((time.monotonic(), done))
            time.sleep(0.3)
        return base.per_second(samples)

    def _by_hand(self):
        self.n1.run(_BY_HAND)
        try:
            began = time.monotonic()
            self.n1.run(_REENCRYPT, timeout=600)
            return 1024 / (time.monotonic() - began)
        finally:
            self.n1.run(_GONE, check=False)

    def _operator(self, *words):
        done = self.n1.operator('--json', *words, timeout=600)
        if done.returncode:
            raise process.LabError('%s: %s%s' % (
                ' '.join(words), done.stdout[-400:], done.stderr[-400:]))
        return json.loads(done.stdout)
