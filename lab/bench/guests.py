# SPDX-License-Identifier: Apache-2.0
"""What a copy costs the guest, and the guest the copy."""

import collections
import json
import statistics
import time

from lab.bench import base
from lab.core import instance as instances
from lab.core import observe
from lab.core import process

#: GiB of the volume; MiB at its beginning that are copied before the guest
#: begins, and at its end that are copied last.
SIZE, LOCAL, REMOTE = 5, 512, 512
#: Seconds that a guest works in one way.
SECONDS = 6
_FIO = ('fio --name=x --filename=%s --direct=1 --bs=4k --time_based '
        '--output-format=json --runtime=%d ')
_WRITE = '--ioengine=psync --rw=randwrite --sync=1 '
_READ = '--ioengine=psync --rw=randread '
_FIRST = '--size=%dm ' % LOCAL
_LAST = '--offset=%dm --size=%dm ' % ((SIZE << 10) - REMOTE, REMOTE)
#: What a guest does, in this order: 50 synchronous writes a second, first
#: where nothing is local; as many reads; as much as it can at once.
WORK = {'first_write': _WRITE + _LAST + '--rate_iops=50',
        'remote_read': _READ + _LAST + '--rate_iops=50',
        'write': _WRITE + _FIRST + '--rate_iops=50',
        'read': _READ + _FIRST + '--rate_iops=50',
        'busy': '--ioengine=libaio --iodepth=8 --rw=randrw --rwmixread=70',
        'deep': '--ioengine=libaio --iodepth=32 --rw=randrw --rwmixread=70'}
#: What a guest does beside one copy: more, and the copy would end before it.
GROUPS = (('first_write', 'remote_read'), ('write', 'read'), ('busy',),
          ('deep',))
#: Of these, how fast it is copied meanwhile.
_RATES = {'write': 'guest', 'busy': 'busy_guest', 'deep': 'deep_guest'}
#: Options of the driver by how copies go beside a guest: as they do by
#: default, at full speed, and hardly at all (MiB a second).
PACES = {'yield': {}, 'full': {'localclone_pace': 'full'},
         'off': {'localclone_max_copy_rate_mib': 1}}
#: Seconds in which a copy has come so far.
_PATIENCE = 300


def work(node, path, how, seconds=SECONDS):
    """Start what a guest does; read it with :func:`figures`."""
    return node.popen(_FIO % (path, seconds) + how, timeout=900)


def figures(guest):
    """What it got: ``iops``, and how many milliseconds all but 5 (``p95``) or
    but one (``p99``) of 100 of its reads or of its writes took at most;
    ``count``, ``seconds``.
    """
    guest.wait(120)
    out = guest.stdout.decode()
    if '{' not in out:
        raise process.LabError('fio: ' + guest.stderr.decode(
            errors='replace')[-2000:])
    job = json.loads(out[out.index('{'):])['jobs'][0]
    kinds = [job[kind] for kind in ('read', 'write')
             if job[kind]['total_ios']]
    waits = [kind['clat_ns']['percentile'] for kind in kinds]
    return {'iops': sum(kind['iops'] for kind in kinds),
            'p95': max(each['95.000000'] for each in waits) / 1e6,
            'p99': max(each['99.000000'] for each in waits) / 1e6,
            'count': sum(kind['total_ios'] for kind in kinds),
            'seconds': max(kind['runtime'] for kind in kinds) / 1e3}


class Guests(base.Base):
    """A guest on the node to which its volume is copied."""

    def beside_a_guest(self):
        """How fast it is copied, and what the guest waits for; medians."""
        rounds = collections.defaultdict(list)
        for _round in range(base.ROUNDS):
            for pace in PACES:
                self.settings(PACES[pace])
                for group in (list(WORK),) if pace == 'off' else GROUPS:
                    for key, value in self._beside_a_guest(
                            pace, group).items():
                        rounds[pace if key[0] != 'plain' else '', key].append(
                            value)
        found = {key: statistics.median(each) for key, each in rounds.items()}
        for pace, name in (('yield', ''), ('full', '_at_full_speed')):
            def add(figure, unit, *key, beside='off', pace=pace, name=name):
                self.add(figure + name, found[pace, key], unit,
                         found[beside, key])
            for what, guest in _RATES.items():
                self.add('hydration_beside_%s%s' % (guest, name),
                         found[pace, (what, 'rate')], 'MiB/s',
                         found[pace, ('idle_rate',)])
            for which in ('p95', 'p99'):
                for what in ('write', 'first_write', 'read', 'remote_read'):
                    add('guest_%s_%s_beside_copy' % (what, which), 'ms',
                        what, which)
            add('busy_guest_iops', 'IOPS', 'busy', 'iops')
            add('busy_guest_p99', 'ms', 'busy', 'p99')
        for what in ('write', 'first_write'):
            self.add('guest_%s_p99_over_plain' % what,
                     found['yield', (what, 'p99')], 'ms',
                     found['', ('plain', what, 'p99')])
        self.settings({})

    def _beside_a_guest(self, pace, group):
        """Figures by what they are of.

        :param pace: 'off': first the same where the volume is complete
        :param group: what the guest does, keys of WORK
        """
        volume = self.prepared(SIZE, mib=SIZE << 10)
        found = {}
        if pace == 'off':
            at_home = self.instance.attach(volume, self.n1)
            for what in group:
                got = figures(work(self.n1, at_home.path, WORK[what]))
                found.update({('plain', what, key): value
                              for key, value in got.items()})
            at_home.detach()
        attached = self.instance.attach(volume, self.n2)
        if pace == 'off':  # whole regions that are written are local
            instances.occupy(self.n2, attached.path, LOCAL)
        else:  # while the first part is copied, it gives way to the attach
            self._wait_local(LOCAL)
            if 'busy' in group:
                found['idle_rate',] = base.per_second(
                    self._wait_local(2 * LOCAL))
        for what in group:
            began, before = time.monotonic(), self._local()
            got = figures(work(self.n2, attached.path, WORK[what]))
            rate = (self._local() - before) / (time.monotonic() - began)
            found.update({(what, key): value for key, value in got.items()})
            found[what, 'rate'] = rate
        attached.detach()
        self.delete(volume)
        return found

    def _wait_local(self, mib):
        """(seconds, MiB that are local) until there are so many."""
        samples = [(time.monotonic(), self._local())]
        deadline = time.monotonic() + _PATIENCE
        while samples[-1][1] < mib and time.monotonic() < deadline:
            time.sleep(0.2)
            samples.append((time.monotonic(), self._local()))
        return samples

    def _local(self):
        """MiB that have been copied."""
        progress = observe.clone_progress(self.n2)
        if progress is None or progress[0] == progress[1]:
            raise process.LabError('the copy ended before its guest did')
        return progress[0] * progress[2] / (1 << 20)

    def writes_lost(self):
        """Writes that a guest which does nothing else could not do because of
        a copy, to its end: yielding, beside one at full speed; medians.

        How many it does alone is taken from all rounds together.
        """
        alone, taken = [], collections.defaultdict(list)
        for _round in range(base.ROUNDS):
            for how in ('full', 'yield'):
                self.settings(PACES[how])
                seconds, count, rate = self._beside_a_whole_copy()
                taken[how].append((seconds, count))
                alone.append(rate)
        rate = statistics.median(alone)
        lost = {how: statistics.median(
            rate * seconds - count for seconds, count in each)
            for how, each in taken.items()}
        self.add('writes_lost_yielding_over_full', lost['yield'], 'writes',
                 lost['full'])
        self.settings({})

    def _beside_a_whole_copy(self):
        """Seconds of a copy, writes meanwhile, and a second without it."""
        volume = self.prepared(1, mib=1024)
        attached = self.instance.attach(volume, self.n2)
        guest = work(self.n2, attached.path, _WRITE, 600)
        observe.wait_moved(self.lab, volume, 400)
        self.n2.run('kill -INT $(pgrep -o -f "[f]io --name=x")')
        beside = figures(guest)
        alone = figures(work(self.n2, attached.path, _WRITE))
        attached.detach()
        self.delete(volume)
        return beside['seconds'], beside['count'], alone['iops']
