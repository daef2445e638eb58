# SPDX-License-Identifier: Apache-2.0
"""Volumes that are extended."""

import functools

from lab.scenarios.once import operation
from lab.scenarios import requests
from lab.scenarios.requests import must


class Extend(operation.Once):
    name = 'extend'

    @functools.cached_property
    def request(self):
        return requests.Extension(self.disk, self.disk.row()['size'] + 1)

    def ask(self):
        self.request.send()
        try:
            self.request.wait(self.seconds)
        except requests.Refused:
            self.request.reset()
            raise
        self.disk.grow(self.request.gib)
        self.prove()
        return 'works'

    def prove(self):
        """Whoever has it goes on, and sees all of it, with zeros at its end.

        Also where it is attached remotely.
        """
        disk = self.disk
        disk.check_running()
        node = disk.runs_on or self.node(disk.home())
        disk.verify(node)
        shown = int(node.run('blockdev --getsize64 ' + disk.path).stdout)
        must(shown == disk.mib << 20, '%d bytes are shown' % shown)


class ExtendInUse(Extend):
    name = 'extend in use'
    in_use = True


OPERATIONS = (Extend, ExtendInUse)
