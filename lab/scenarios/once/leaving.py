# SPDX-License-Identifier: Apache-2.0
"""Migration, retype, managing, other owners, deletion."""

import contextlib
import functools

from lab.core import observe
from lab.scenarios import disk as disks
from lab.scenarios.once import operation
from lab.scenarios import requests
from lab.scenarios.requests import must

STOCK = 'node3@stock#stock'
#: A type that a volume can be retyped to: the driver is asked, nothing is
#: copied; and one for Cinder's own migration, to another backend and to here.
OTHER_TYPE, ANYWHERE = 'other', 'anywhere'


def pool(node):
    """A node of the backend, as Cinder's migration wants it."""
    return node.service_host + '#localclone'


def set_type(lab, volume, name):
    """Give a volume a type, whatever that asks for."""
    observe.sql(lab, "UPDATE volumes SET volume_type_id = (SELECT id FROM "
                "volume_types WHERE name = '%s' AND deleted = 0) WHERE id = "
                "'%s'" % (name, volume))


class Migration(operation.Once):
    """Cinder's own."""

    alone = True
    #: Seconds: Cinder copies all of it.
    COPYING = 240

    def migrate(self, disk, host):
        """Ask for it, wait for its end.

        :raises Refused: if it has none that is good
        """
        requests.Migration(disk, host).do(self.COPYING)
        must(disk.row()['os-vol-host-attr:host'] == host,
             'it is at ' + disk.row()['os-vol-host-attr:host'])


class MigrateInside(Migration):
    name = 'migrate inside the backend'

    def ask(self):
        self.migrate(self.disk, pool(self.place.another))
        self.disk.verify_home()
        return 'works'


class MigrateOut(Migration):
    name = 'migrate out of the backend'

    def prepare(self):
        set_type(self.lab, self.disk.volume, ANYWHERE)

    def ask(self):
        disk = self.disk
        self.migrate(disk, STOCK)
        disk.gone = True
        name = disk.row()['os-vol-mig-status-attr:name_id']
        disk.verify_lv(self.node('node3'), 'stock-volumes/volume-%s' % (
            name or disk.volume), disk.content())
        return 'works'


class MigrateInto(Migration):
    name = 'migrate into the backend'
    other = None

    def ask(self):
        disk, node = self.disk, self.node('node3')
        self.other = other = disks.Disk(self.lab, self.post(
            '/volumes', {'volume': {'size': 1, 'volume_type': 'stock'}})[
                'volume']['id'], layout=disk.layout)
        self.wait_available(disk.cinder, other.volume)
        set_type(self.lab, other.volume, ANYWHERE)
        path, lv = other.path, 'stock-volumes/volume-' + other.volume
        node.run('lvchange -ay -K ' + lv)
        other.path = '/dev/' + lv
        other.fill(node)
        other.path = path
        self.migrate(other, pool(self.place.home))
        other.verify_home()
        return 'works'

    def clean(self):
        if self.other:
            self.other.remove()


class Retype(operation.Once):
    """To a type that the driver is asked about; nothing is copied."""

    name = 'retype'

    def ask(self):
        home = self.disk.home()
        self._retype(OTHER_TYPE)
        must(self.disk.home() == home, 'it has moved')
        return 'works'

    def _retype(self, name):
        disk = self.disk
        status = disk.row()['status']
        disk.act('os-retype', new_type=name, migration_policy='never')
        requests.wait('the retype', lambda: disk.row()['status']
                      == status, self.seconds)
        if disk.row()['volume_type'] != name:
            raise requests.Refused('it is still of type '
                                   + disk.row()['volume_type'])

    def prepare(self):
        set_type(self.lab, self.disk.volume, 'localclone')


class Unmanage(operation.Once):
    """Its LV stays, and becomes a volume again."""

    name = 'unmanage, manage again'
    alone = True
    again = None

    def ask(self):
        disk, admin = self.disk, self.lab.cinder()
        node = self.lab.nodes[disk.home()]
        row = disk.row()
        lv = 'volume-%s' % (row['os-vol-mig-status-attr:name_id']
                            or disk.volume)
        before = self.environment.told()
        disk.admin('os-unmanage')
        with contextlib.suppress(requests.TakesTooLong):
            requests.wait('the end of it', lambda: not disk.exists()
                          or disk.row()['status'] != 'unmanaging', 20)
        if disk.exists():
            if disk.row()['status'] != 'available':
                disk.admin('os-reset_status', status='available')
            raise requests.Refused('it is still managed: %s' % (
                self.environment.codes(before, disk.volume)))
        disk.gone = True
        must(not disk.has_path(node), 'its handle is left')
        disk.verify_lv(node, 'cinder-volumes/' + lv, disk.content())
        self.again = disks.Disk(self.lab, self.post(
            '/manageable_volumes', {'volume': {
                'host': node.service_host,
                'ref': {'source-name': lv}, 'volume_type': 'localclone'}},
            admin)['volume']['id'], 'admin', layout=disk.layout)
        self.wait_available(admin, self.again.volume)
        self.again.verify_at(node, self.again.path, disk.content())
        return 'works'

    def clean(self):
        if self.again:
            self.again.remove()


class UnmanageSnapshot(operation.Once):
    name = 'unmanage snapshot'
    snapshot = True
    alone = True
    left = None

    def ask(self):
        snapshot, admin = self.place.snapshot, self.lab.cinder()
        path = '/snapshots/%s' % snapshot.id
        requests.ask(admin.post(path + '/action', json={'os-unmanage': {}}))

        def ended():
            row = snapshot.row()
            if row and row['status'] == 'error_deleting':
                requests.ask(admin.post(path + '/action', {
                    'os-reset_status': {'status': 'available'}}))
                raise requests.Refused('error_deleting')
            return row is None
        requests.wait('the end of it', ended, self.seconds)
        self.left = 'cinder-volumes/' + snapshot.lv
        snapshot.verify(snapshot.node)
        return 'works'

    def clean(self):
        if self.left:
            self.place.snapshot.node.run('lvremove -qy ' + self.left)


class Owner(operation.Once):
    """Read-only and back; to another project and back."""

    name = 'readonly, new owner'

    def ask(self):
        disk = self.disk
        demo, admin = disk.cinder, self.lab.cinder()
        for readonly in (True, False):
            disk.act('os-update_readonly_flag', readonly=readonly)
        for giver, taker in ((demo, admin), (admin, demo)):
            transfer = self.post('/volume-transfers', {'transfer': {
                'volume_id': disk.volume}}, giver)['transfer']
            self.post('/volume-transfers/%s/accept' % transfer['id'], {
                'accept': {'auth_key': transfer['auth_key']}}, taker)
            requests.wait('the new owner', lambda t=taker: disk.row()[
                'os-vol-tenant-attr:tenant_id'] == t.project, self.seconds)
        disk.verify_home()
        return 'works'


class Delete(operation.Once):
    name = 'delete'
    alone = True
    query = ''

    @functools.cached_property
    def request(self):
        return requests.Deletion(self.disk, self.query)

    def prove(self):
        self.disk.gone = True
        must(not self.disk.has_path(self.place.home), 'its handle is left')

    def finish(self):
        # Its home waits a quarter of an hour for the request.
        observe.sql(self.lab, "UPDATE workers SET updated_at = updated_at - "
                    "INTERVAL 1 HOUR WHERE resource_id = '%s'"
                    % self.disk.volume)
        self.request.wait(60)
        self.disk.gone = True


class DeleteWithSnapshots(Delete):
    name = 'delete with snapshots'
    snapshot = True
    query = '?cascade=true'


OPERATIONS = (MigrateInside, MigrateOut, MigrateInto, Retype, Unmanage,
              UnmanageSnapshot, Owner, Delete, DeleteWithSnapshots)
