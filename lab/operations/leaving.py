# SPDX-License-Identifier: Apache-2.0
"""Migration, retype, managing, other owners, deletion."""

import contextlib

from lab.core import look
from lab.operations import environment as environments
from lab.operations import operation
from lab.operations.operation import must
from lab.operations import subject as subjects

STOCK = 'node3@stock#stock'


def pool(node):
    """A node of the backend, as Cinder's migration wants it."""
    return node.service_host + '#localclone'


def set_type(lab, volume, name):
    """Give a volume a type, whatever that asks for."""
    look.sql(lab, "UPDATE volumes SET volume_type_id = (SELECT id FROM "
             "volume_types WHERE name = '%s' AND deleted = 0) WHERE id = '%s'"
             % (name, volume))


class Migration(operation.Operation):
    """Cinder's own."""

    alone = True
    #: Seconds: Cinder copies all of it.
    COPYING = 240

    def migrate(self, subject, host):
        """Ask for it, wait for its end.

        :raises Refused: if it has none that is good
        """
        status = subject.row()['status']
        subject.admin('os-migrate_volume', host=host)

        def ended():
            row = subject.row()
            if row['migration_status'] == 'error':
                raise subjects.Refused("Cinder's migration has failed")
            return row['migration_status'] == 'success' and (
                row['status'] == status)
        subjects.wait("Cinder's migration", ended, self.COPYING)
        must(subject.row()['os-vol-host-attr:host'] == host,
             'it is at ' + subject.row()['os-vol-host-attr:host'])


class MigrateInside(Migration):
    name = 'migrate inside the backend'

    def ask(self):
        self.migrate(self.subject, pool(self.place.another))
        self.subject.verify_home()
        return 'works'


class MigrateOut(Migration):
    name = 'migrate out of the backend'

    def prepare(self):
        set_type(self.lab, self.subject.volume, environments.ANYWHERE)

    def ask(self):
        subject = self.subject
        self.migrate(subject, STOCK)
        subject.gone = True
        name = subject.row()['os-vol-mig-status-attr:name_id']
        subject.verify_lv(self.node('node3'), 'stock-volumes/volume-%s' % (
            name or subject.volume), subject.content())
        return 'works'


class MigrateInto(Migration):
    name = 'migrate into the backend'
    other = None

    def ask(self):
        subject, node = self.subject, self.node('node3')
        self.other = other = subjects.Subject(self.lab, self.post(
            '/volumes', {'volume': {'size': 1, 'volume_type': 'stock'}})[
                'volume']['id'])
        subjects.wait_volume(subject.cinder, other.volume, self.seconds)
        set_type(self.lab, other.volume, environments.ANYWHERE)
        path, lv = other.path, 'stock-volumes/volume-' + other.volume
        node.run('lvchange -ay -K ' + lv)
        other.path = '/dev/' + lv
        other.occupy(node)
        other.path = path
        self.migrate(other, pool(self.place.home))
        other.verify_home()
        return 'works'

    def clean(self):
        if self.other:
            self.other.remove()


class Retype(operation.Operation):
    """To a type that the driver is asked about; nothing is copied."""

    name = 'retype'

    def ask(self):
        home = self.subject.home()
        self._retype(environments.OTHER_TYPE)
        must(self.subject.home() == home, 'it has moved')
        return 'works'

    def _retype(self, name):
        subject = self.subject
        status = subject.row()['status']
        subject.act('os-retype', new_type=name, migration_policy='never')
        subjects.wait('the retype', lambda: subject.row()['status']
                      == status, self.seconds)
        if subject.row()['volume_type'] != name:
            raise subjects.Refused('it is still of type '
                                   + subject.row()['volume_type'])

    def prepare(self):
        set_type(self.lab, self.subject.volume, 'localclone')


class Unmanage(operation.Operation):
    """Its LV stays, and becomes a volume again."""

    name = 'unmanage, manage again'
    alone = True
    again = None

    def ask(self):
        subject, admin = self.subject, self.lab.cinder()
        node = self.lab.nodes[subject.home()]
        row = subject.row()
        lv = 'volume-%s' % (row['os-vol-mig-status-attr:name_id']
                            or subject.volume)
        before = self.environment.told()
        subject.admin('os-unmanage')
        with contextlib.suppress(subjects.TakesTooLong):
            subjects.wait('the end of it', lambda: not subject.exists()
                          or subject.row()['status'] != 'unmanaging', 20)
        if subject.exists():
            if subject.row()['status'] != 'available':
                subject.admin('os-reset_status', status='available')
            raise subjects.Refused('it is still managed: %s' % (
                self.environment.codes(before, subject.volume)))
        subject.gone = True
        must(not subject.has_path(node), 'its handle is left')
        subject.verify_lv(node, 'cinder-volumes/' + lv, subject.content())
        self.again = subjects.Subject(self.lab, self.post(
            '/manageable_volumes', {'volume': {
                'host': node.service_host,
                'ref': {'source-name': lv}, 'volume_type': 'localclone'}},
            admin)['volume']['id'], 'admin')
        subjects.wait_volume(admin, self.again.volume, self.seconds)
        self.again.verify_at(node, self.again.path, subject.content())
        return 'works'

    def clean(self):
        if self.again:
            self.again.remove()


class UnmanageSnapshot(operation.Operation):
    name = 'unmanage snapshot'
    snapshot = True
    alone = True
    left = None

    def ask(self):
        subject, node = self.subject, self.subject.snapshot_at
        path = '/snapshots/' + subject.snapshot
        admin = self.lab.cinder()
        subjects.ask(admin.post(path + '/action', json={'os-unmanage': {}}))

        def ended():
            found = admin.request('GET', path)
            if found.status_code == 404:
                return True
            if found.json()['snapshot']['status'] == 'error_deleting':
                subjects.ask(admin.post(path + '/action', {
                    'os-reset_status': {'status': 'available'}}))
                raise subjects.Refused('error_deleting')
            return False
        subjects.wait('the end of it', ended, self.seconds)
        self.left = 'cinder-volumes/_snapshot-' + subject.snapshot
        subject.verify_lv(node, self.left, subject.image)
        return 'works'

    def clean(self):
        if self.left:
            self.subject.snapshot_at.run('lvremove -qy ' + self.left)


class Owner(operation.Operation):
    """Read-only and back; to another project and back."""

    name = 'readonly, new owner'

    def ask(self):
        subject = self.subject
        demo, admin = subject.cinder, self.lab.cinder()
        for readonly in (True, False):
            subject.act('os-update_readonly_flag', readonly=readonly)
        for giver, taker in ((demo, admin), (admin, demo)):
            transfer = self.post('/volume-transfers', {'transfer': {
                'volume_id': subject.volume}}, giver)['transfer']
            self.post('/volume-transfers/%s/accept' % transfer['id'], {
                'accept': {'auth_key': transfer['auth_key']}}, taker)
            subjects.wait('the new owner', lambda t=taker: subject.row()[
                'os-vol-tenant-attr:tenant_id'] == t.project, self.seconds)
        subject.verify_home()
        return 'works'


class Delete(operation.Operation):
    name = 'delete'
    alone = True
    query = ''

    def ask(self):
        subject = self.subject
        subjects.ask(subject.cinder.delete(
            '/volumes/%s%s' % (subject.volume, self.query)))
        self.wait_gone('/volumes/' + subject.volume)
        subject.gone = True
        must(not subject.has_path(self.place.home), 'its handle is left')
        return 'works'

    def finish(self):
        # Its home waits a quarter of an hour for the request.
        look.sql(self.lab, "UPDATE workers SET updated_at = updated_at - "
                 "INTERVAL 1 HOUR WHERE resource_id = '%s'"
                 % self.subject.volume)
        self.wait_gone('/volumes/' + self.subject.volume, 60)
        self.subject.gone = True


class DeleteWithSnapshots(Delete):
    name = 'delete with snapshots'
    snapshot = True
    query = '?cascade=true'


OPERATIONS = (MigrateInside, MigrateOut, MigrateInto, Retype, Unmanage,
              UnmanageSnapshot, Owner, Delete, DeleteWithSnapshots)
