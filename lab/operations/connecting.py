# SPDX-License-Identifier: Apache-2.0
"""Attach, live migration, detach: what Nova asks for."""

from lab.core import process
from lab.operations import groups
from lab.operations import operation
from lab.operations.operation import must
from lab.operations import subject as subjects
from lab.scenarios import third_party


def refusing(call, *args, **how):
    """Nova's request; the error of one that Cinder refuses.

    :raises Refused: then
    """
    try:
        return call(*args, **how)
    except process.LabError as exc:
        if str(exc).startswith('HTTP '):
            raise subjects.Refused(str(exc))
        raise


class Connection(operation.Operation):
    """Ends with a guest that writes on a node."""

    alone = True

    def connect(self, node, live=False):
        """Attach on a node.

        :returns: 'works' if the volume is there, or comes; 'served' if not
        """
        refusing(self.subject.try_attach, node, live=live)
        must(self.subject.attached[node.name].path == self.subject.path,
             'the path is ' + self.subject.attached[node.name].path)
        return ('works' if self.subject.home() == node.name else 'served')

    def prove(self, node):
        """The guest goes on here; all that it had is there."""
        self.subject.verify(node)
        self.subject.start(node)
        self.subject.check_running()


class AttachAtHome(Connection):
    name = 'attach at home'
    alone = False

    def where(self):
        return self.place.home

    def ask(self):
        found = self.connect(self.where())
        self.prove(self.where())
        if not self.alone:
            self.subject.stop()
            self.subject.detach(self.where())
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
        subject, node = self.subject, self.where()
        found = self.connect(node, live=True)
        subject.check_running()
        subject.stop()  # QEMU pauses here, and goes on there
        self.prove(node)
        subject.detach(self.place.guest_at, 'in-use')
        subject.check_running()
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
        subject = self.subject
        subject.detach(self.place.home, 'in-use')
        subjects.wait('the move to be rolled back',
                      lambda: not subject.is_moving(), self.seconds)
        must(subject.home() == self.place.first.name,
             'its home is ' + subject.home())
        subject.check_running()
        return 'works'


class Detach(Connection):
    name = 'detach'
    in_use = True

    def ask(self):
        subject, node = self.subject, self.place.guest_at
        if self.place.chain.situation == 'starting':
            # The guest has gone over.
            self.place.go_over()
            subject.check_running()
            return 'works'
        subject.check_running()
        subject.stop()
        subject.detach(node)
        subject.verify_home()
        if node is not self.place.home:
            subjects.wait('the handle to go',
                          lambda: not subject.has_path(node), 30)
        return 'works'


class HostWithoutBackend(operation.Operation):
    """Attached, read, written and detached by some other host."""

    name = 'host without the backend'
    _WRITE = ('dd if=/dev/zero of=%s bs=1M seek=%d count=1 oflag=direct '
              'conv=notrunc,fsync status=none')

    def ask(self):
        subject, node = self.subject, self.place.another
        home = subject.home()
        connector = dict(subject.instance.connector(node),
                         host=third_party.ELSEWHERE, ip='192.0.2.99')
        remote = refusing(subject.instance.attach, subject.volume, node,
                          connector)
        try:
            must(remote.data['driver_volume_type'] == 'iscsi', 'it is '
                 + remote.data['driver_volume_type'])
            subject.verify_at(node, remote.path, subject.content())
            node.run(self._WRITE % (remote.path, subjects.LOOKED_AT[-1]))
        finally:
            remote.detach()
        must(subject.home() == home, 'it has moved to ' + subject.home())
        return 'served'


class AttachOfGroup(Connection):
    """A volume that has to stay where its group is."""

    name = "attach a group's elsewhere"

    def ask(self):
        self.group = groups.Group(self.environment, self.subject)
        self.subject.pinned = True
        node = self.place.another
        found = self.connect(node)
        self.prove(node)
        return found

    def clean(self):
        node = self.place.another
        if node.name in self.subject.attached:
            self.subject.check_running()
            self.subject.stop()
            self.subject.verify(node)
            must(self.subject.home() == self.place.home.name,
                 'it has moved to ' + self.subject.home())
            self.subject.detach(node)
        self.group.remove()


OPERATIONS = (AttachAtHome, AttachWhereItCameFrom, AttachElsewhere,
              AttachOfGroup, HostWithoutBackend, LiveMigration,
              LiveMigrationBack, Detach)
