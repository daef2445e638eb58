# SPDX-License-Identifier: Apache-2.0
"""Measures the live migration of a guest with local volumes."""

import collections
import statistics

from lab.bench import base
from lab.core import instance as instances
from lab.nova import server as servers

#: Seconds for all volumes to move to the server, and to be copied.
_PATIENCE = 600


class Live(base.Base):
    """Live migrations, compared to a guest on stock iSCSI volumes."""

    def live_migration(self):
        """Measure the stop of the guest and the whole migration, in seconds.

        The guest writes to its root volume and to a second volume all the
        time. ``back`` is the migration back at once, while the volumes are
        still copied.
        """
        ours, stock = [self._medians(kind) for kind in ('localclone',
                                                        'stock')]
        for way, name in (('there', ''), ('back', '_back_at_once')):
            for figure in ('downtime', 'seconds'):
                self.add('live_migration_%s%s' % (figure, name),
                         ours[way, figure], 's', stock[way, figure])

    def _medians(self, kind):
        """Return the seconds by way and figure."""
        server = self._guest(kind)
        rounds = collections.defaultdict(list)
        for _round in range(base.ROUNDS):
            # This round ends on the other node: the next goes back.
            for way in ('there', 'back', 'there'):
                if way == 'there':
                    self._settle(server, kind)
                for figure, seconds in self._migrate(server).items():
                    rounds[way, figure].append(seconds)
        self._settle(server, kind)
        server.wait_verified().check()
        server.delete()
        instances.delete_volumes(self.lab.cinder(), *server.volumes,
                                 timeout=120)
        return {key: statistics.median(each) for key, each in rounds.items()}

    def _guest(self, kind):
        """Boot a server with two volumes; return it when its guest writes.
        """
        root = servers.boot_volume(self.lab, kind)
        home = instances.home(self.lab, root)
        server = servers.Server.boot(self.lab, root, home,
                                     instances.create_volume(
                                         self.lab.cinder(), 1, kind,
                                         node=home))
        server.wait_verified().check()
        return server

    def _migrate(self, server):
        """Live-migrate to the other node; return the seconds by figure."""
        source, target = server.node, server.other_node
        seconds, downtime, parts = server.migrate_observed(target)
        print('    from %s to %s in %.1f s, still for %s s: %s' % (
            source.name, target.name, seconds, downtime, ', '.join(
                '%s %.2f' % part for part in parts)), flush=True)
        return {'seconds': seconds, 'downtime': sum(
            part for _what, part in parts) if downtime is None else downtime}

    @staticmethod
    def _settle(server, kind):
        """Wait until the volumes are on the server's node, and local."""
        if kind == 'localclone':
            server.wait_homes(_PATIENCE)
            server.wait_no_move(_PATIENCE)
        server.wait_writing().check()
