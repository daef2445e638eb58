# SPDX-License-Identifier: Apache-2.0
"""A live migration of a guest whose volumes follow it."""

import collections
import statistics

from lab.bench import base
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.nova import server as servers
from lab.nova import switch_over

#: Seconds in which the volumes have followed, and are local.
_PATIENCE = 600


class Live(base.Base):
    """Live migrations, beside those of a guest on stock iSCSI volumes."""

    def live_migration(self):
        """How long the guest stands still, and how long all of it takes.

        It has a root volume and another one, and writes to both all the time.
        ``back`` is the way back at once, while the volumes are still copied.
        """
        ours, stock = [self._medians(kind) for kind in ('localclone',
                                                        'stock')]
        for way, name in (('there', ''), ('back', '_back_at_once')):
            for figure in ('downtime', 'seconds'):
                self.add('live_migration_%s%s' % (figure, name),
                         ours[way, figure], 's', stock[way, figure])

    def _medians(self, kind):
        """Seconds by way and figure."""
        server, volumes = self._guest(kind)
        rounds = collections.defaultdict(list)
        for _round in range(base.ROUNDS):
            # The next round goes the other way: this one ends elsewhere.
            for way in ('there', 'back', 'there'):
                if way == 'there':
                    self._settle(server, volumes, kind)
                for figure, seconds in self._migrate(server).items():
                    rounds[way, figure].append(seconds)
        self._settle(server, volumes, kind)
        self._check(server.wait_verified(*volumes))
        server.delete()
        for volume in volumes:
            instances.wait_status(self.lab.cinder(), volume, 'available', 120)
            self.lab.cinder().delete('/volumes/' + volume).raise_for_status()
        observe.wait_deleted(self.lab, 120)
        return {key: statistics.median(each) for key, each in rounds.items()}

    def _guest(self, kind):
        """A guest that writes, and its volumes."""
        root = servers.boot_volume(self.lab, volume_type=kind)
        home = instances.home(self.lab, root)
        volumes = [root, instances.create_volume(
            self.lab.cinder(), 1, kind, node=home)]
        server = servers.Server.boot(self.lab, root, home)
        server.attach(volumes[1])
        self._check(server.wait_verified(*volumes))
        return server, volumes

    def _migrate(self, server):
        """To the other node; seconds by figure."""
        source = server.node
        target = self.n2 if source is self.n1 else self.n1
        with switch_over.SwitchOver(self.lab, server.domain) as seen:
            seconds = server.migrate(target)
        downtime = server.downtime()
        parts = seen.parts()
        print('    from %s to %s in %.1f s, still for %s s: %s' % (
            source.name, target.name, seconds, downtime, ', '.join(
                '%s %.2f' % part for part in parts)), flush=True)
        return {'seconds': seconds, 'downtime': sum(
            part for _what, part in parts) if downtime is None else downtime}

    def _settle(self, server, volumes, kind):
        """Until the volumes are where the guest is, and local."""
        here = server.node.name
        for volume in volumes if kind == 'localclone' else ():
            process.wait_for(
                'volume %s to follow' % volume, lambda volume=volume:
                instances.home(self.lab, volume) == here, _PATIENCE, every=1)
            observe.wait_no_move(self.lab, volume, _PATIENCE)
        self._check(server.wait_writing(*volumes))

    @staticmethod
    def _check(console):
        if not console.clean:
            raise process.LabError('wrong data: %s' % console.bad[:3])
