# SPDX-License-Identifier: Apache-2.0
"""Attach, live migration, detach: what Nova asks for."""

from lab.core import process
from lab.scenarios.once import groups
from lab.scenarios.once import operation
from lab.scenarios import requests
from lab.scenarios.requests import must


def refusing(call, *args, **how):
    """Nova's request; the error of one that Cinder refuses.

    :raises Refused: then
    """
    try:
        return call(*args, **how)
    except process.LabError as exc:
        if str(exc).startswith('HTTP '):
            raise requests.Refused(str(exc))
        raise


class Connection(operation.Once):
    """Ends with a guest that writes on a node."""

    alone = True

    def connect(self, node, live=False):
        """Attach on a node.

        :returns: 'works' if the volume is there, or comes; 'remote' if not
        """
        refusing(self.disk.try_attach, node, live=live)
        must(self.disk.attached[node.name].path == self.disk.path,
             'the path is ' + self.disk.attached[node.name].path)
        return ('works' if self.disk.home() == node.name else 'remote')

    def prove_at(self, node):
        """The guest goes on here; all that it had is there."""
        self.disk.verify(node)
        self.disk.start(node)
        self.disk.check_running()


class AttachAtHome(Connection):
    name = 'attach at home'
    alone = False

    def where(self):
        return self.place.home

    def ask(self):
        found = self.connect(self.where())
        self.prove_at(self.where())
        if not self.alone:
            self.disk.stop()
            self.disk.detach(self.where())
        return found


class AttachWhereItCameFrom(AttachAtHome):
    name = 'attach where it came from'
    alone = True

    def where(self):
        return self.place.came_from


class AttachElsewhere(AttachAtHome):
    name = 'attach on another node'
    alone = True

    def where(self):
        return self.place.another


class LiveMigration(Connection):
    """The guest goes from where it is to another node."""

    name = 'live migration'
    in_use = True

    def where(self):
        place = self.place
        passed = place.guest_at is place.another
        return place.came_from if passed else place.another

    def ask(self):
        disk, node = self.disk, self.where()
        found = self.connect(node, live=True)
        disk.check_running()
        disk.stop()  # QEMU pauses here, and goes on there
        self.prove_at(node)
        disk.detach(self.place.guest_at, 'in-use')
        disk.check_running()
        return found


class LiveMigrationBack(LiveMigration):
    """Where the guest was before; or to the volume's home."""

    name = 'live migration back'

    def where(self):
        place = self.place
        return place.home if place.guest_at is place.another else (
            place.came_from)

    def ask(self):
        if self.place.guest_at is not self.place.first:
            return super().ask()
        # It has only begun: it is given up.
        disk = self.disk
        disk.detach(self.place.home, 'in-use')
        requests.wait('the move to be rolled back',
                      lambda: not disk.is_moving(), self.seconds)
        must(disk.home() == self.place.first.name,
             'its home is ' + disk.home())
        disk.check_running()
        return 'works'


class Detach(Connection):
    name = 'detach'
    in_use = True

    def ask(self):
        disk, node = self.disk, self.place.guest_at
        if self.place.chain.situation == 'starting':
            # The guest has gone over.
            self.place.go_over()
            disk.check_running()
            return 'works'
        disk.check_running()
        disk.stop()
        disk.detach(node)
        disk.verify_home()
        if node is not self.place.home:
            requests.wait('the handle to go',
                          lambda: not disk.has_path(node), 30)
        return 'works'


class HostWithoutBackend(operation.Once):
    """Attached, read, written and detached by some other host."""

    name = 'host without the backend'
    _WRITE = ('dd if=/dev/zero of=%s bs=1M seek=%d count=1 oflag=direct '
              'conv=notrunc,fsync status=none')

    def ask(self):
        disk, node = self.disk, self.place.another
        home = disk.home()
        remote = refusing(disk.attach_elsewhere, node)
        try:
            must(remote.data['driver_volume_type'] == 'iscsi', 'it is '
                 + remote.data['driver_volume_type'])
            disk.verify_at(node, remote.path, disk.content())
            node.run(self._WRITE % (remote.path, disk.layout.looked_at[-1]))
        finally:
            remote.detach()
        must(disk.home() == home, 'it has moved to ' + disk.home())
        return 'remote'


class AttachOfGroup(Connection):
    """A volume that has to stay where its group is."""

    name = "attach a group's elsewhere"

    def ask(self):
        self.group = groups.Group(self.environment, self.disk)
        self.disk.pinned = True
        node = self.place.another
        found = self.connect(node)
        self.prove_at(node)
        return found

    def clean(self):
        node = self.place.another
        if node.name in self.disk.attached:
            self.disk.check_running()
            self.disk.stop()
            self.disk.verify(node)
            must(self.disk.home() == self.place.home.name,
                 'it has moved to ' + self.disk.home())
            self.disk.detach(node)
        self.group.remove()


OPERATIONS = (AttachAtHome, AttachWhereItCameFrom, AttachElsewhere,
              AttachOfGroup, HostWithoutBackend, LiveMigration,
              LiveMigrationBack, Detach)
