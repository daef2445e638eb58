# SPDX-License-Identifier: Apache-2.0
"""Servers on the lab's nodes: boot, attach, live-migrate, listen to them.

Plain REST: an openstack command costs seconds each.
"""

import json
import re
import time

from lab.core import instance as instances
from lab.core import process
from lab.guest import console as guest_console
from lab.guest import image as guest_image

BOOT_TIMEOUT = 240
MIGRATION_TIMEOUT = 300
OPERATION_TIMEOUT = 300


def image(lab):
    """The id of the guest's image."""
    return lab.client('glance').get(
        '/images?name=' + guest_image.NAME).json()['images'][0]['id']


def flavor_id(nova, name):
    """The id of a flavour, by its name."""
    return next(each['id'] for each in nova.get('/flavors').json()['flavors']
                if each['name'] == name)


def boot_volume(lab, size_gib=1, volume_type='localclone'):
    """A volume with the guest on it, on whichever node; its id."""
    return instances.create_volume(lab.cinder(), size_gib, volume_type,
                                   timeout=120, image=image(lab))


class Server:
    """One server.

    :param lab: the lab
    :param server_id: of a server that exists; see :meth:`boot`
    """

    def __init__(self, lab, server_id):
        self.lab = lab
        self.id = server_id
        self.nova = lab.client('nova')

    @classmethod
    def boot(cls, lab, volume_id, node='node1', name='guest'):
        """Boot a server from a volume; returns when it is ACTIVE.

        :param node: None: where Nova's scheduler likes
        """
        server = cls.create(lab, volume_id, node, name)
        server.wait_status('ACTIVE', BOOT_TIMEOUT)
        return server

    @classmethod
    def create(cls, lab, volume_id, node, name='guest'):
        """Likewise; returns at once."""
        nova = lab.client('nova')
        return cls(lab, nova.post('/servers', json={'server': {
            'name': name, 'networks': 'none',
            'flavorRef': flavor_id(nova, guest_image.NAME),
            'block_device_mapping_v2': [{
                'uuid': volume_id, 'source_type': 'volume',
                'destination_type': 'volume', 'boot_index': 0}],
            **({'host': node} if node else {}),
        }}).raise_for_status().json()['server']['id'])

    def show(self):
        """Nova's record of it."""
        return self.nova.get('/servers/' + self.id).json()['server']

    @property
    def node(self):
        """The node that it runs on."""
        return self.lab.nodes[self.show()['OS-EXT-SRV-ATTR:host']]

    @property
    def domain(self):
        """libvirt's name for it."""
        return self.show()['OS-EXT-SRV-ATTR:instance_name']

    def act(self, action, arguments=None, version=None):
        """An action of the API; the answer, unchecked."""
        return self.nova.request(
            'POST', '/servers/%s/action' % self.id, {action: arguments},
            {'OpenStack-API-Version': 'compute ' + version} if version
            else None)

    def wait_status(self, wanted, timeout=60):
        """Wait until Nova is done and gives it this status.

        :raises LabError: if it is ERROR instead
        """
        def check():
            server = self.show()
            if server['status'] == 'ERROR' and wanted != 'ERROR':
                raise process.LabError('server %s: %s' % (
                    self.id, server.get('fault', {}).get('message')))
            return server['status'] == wanted and (
                server['OS-EXT-STS:task_state'] is None)
        process.wait_for('server %s to be %s' % (self.id, wanted), check,
                         timeout, every=0.5)

    # -- volumes

    def attach(self, volume_id, timeout=120) -> float:
        """Attach a volume; seconds until Cinder calls it in use."""
        began = time.monotonic()
        self.begin_attach(volume_id)
        instances.wait_status(self.lab.cinder(), volume_id, 'in-use',
                              timeout)
        return time.monotonic() - began

    def begin_attach(self, volume_id) -> None:
        """Have Nova attach a volume, which is reserved for it then."""
        self.nova.post('/servers/%s/os-volume_attachments' % self.id, json={
            'volumeAttachment': {'volumeId': volume_id},
        }).raise_for_status()

    def detach(self, volume_id, timeout=120) -> float:
        """Detach a volume; seconds until Cinder calls it available."""
        began = time.monotonic()
        self.nova.delete('/servers/%s/os-volume_attachments/%s' % (
            self.id, volume_id)).raise_for_status()
        instances.wait_status(self.lab.cinder(), volume_id, 'available',
                              timeout)
        return time.monotonic() - began

    def attachments(self):
        """Nova's own list of its volumes: {volume id: attachment id}"""
        answer = self.nova.get('/servers/%s/os-volume_attachments' % self.id)
        return {each['volumeId']: each['attachment_id']
                for each in answer.json()['volumeAttachments']}

    def disk_bytes(self, volume_id):
        """The size of a volume, as QEMU gives it to the guest."""
        answer = json.loads(self.node.run([
            'virsh', 'qemu-monitor-command', self.domain,
            '{"execute": "query-block"}']).stdout)['return']
        return next(each['inserted']['image']['virtual-size']
                    for each in answer if volume_id in json.dumps(each))

    # -- what stops and starts it

    def operate(self, action, arguments=None, status='ACTIVE',
                timeout=OPERATION_TIMEOUT, version=None) -> float:
        """Act and wait for what follows; the seconds it took.

        :param status: of the server afterwards
        :param version: of the API, if not the usual one
        """
        began = time.monotonic()
        self.act(action, arguments, version).raise_for_status()
        self.wait_status(status, timeout)
        return time.monotonic() - began

    def reboot(self):
        """A hard reboot; the seconds it took."""
        return self.operate('reboot', {'type': 'HARD'})

    def rebuild(self, version=None):
        """Rebuild from the image it was made from.

        :param version: before 2.93 a root volume keeps its data
        """
        return self.operate('rebuild', {'imageRef': image(self.lab)},
                            version=version)

    def shelve(self):
        """Shelve; a server on volumes is offloaded from its node at once."""
        return self.operate('shelve', status='SHELVED_OFFLOADED')

    def unshelve(self, node=None):
        """Unshelve on a node, or wherever; the seconds it took."""
        return self.operate('unshelve', node and {'host': node.name})

    def cold_migrate(self, node):
        """Migrate it, off; :meth:`confirm` or :meth:`revert` follows."""
        return self.operate('migrate', {'host': node.name},
                            status='VERIFY_RESIZE')

    def resize(self, flavor):
        """To another flavour, and so to another node."""
        return self.operate(
            'resize', {'flavorRef': flavor_id(self.nova, flavor)},
            status='VERIFY_RESIZE')

    def confirm(self):
        """Keep what a resize or cold migration has done."""
        return self.operate('confirmResize')

    def revert(self):
        """Undo a resize or cold migration."""
        return self.operate('revertResize')

    # -- live migration

    def live_migrate(self, node):
        """Ask for a live migration; the answer, unchecked."""
        return self.act('os-migrateLive', {
            'host': node.name, 'block_migration': 'auto'})

    def migrations(self):
        """The records of all its migrations, oldest first."""
        answer = self.nova.get('/os-migrations?instance_uuid=' + self.id)
        return sorted(answer.json()['migrations'], key=lambda m: m['id'])

    def wait_migration(self, number, *wanted, timeout=MIGRATION_TIMEOUT):
        """Wait until the number-th migration has one of these statuses.

        A server is ACTIVE before its migration's record says completed.
        """
        def check():
            records = self.migrations()
            if len(records) < number:
                return None
            status = records[number - 1]['status']
            if status in wanted:
                return records[number - 1]
            if status in ('error', 'failed', 'completed', 'cancelled'):
                raise process.LabError(
                    'live migration of %s: %s, not %s; see %s' % (
                        self.id, status, ' or '.join(wanted),
                        self.lab.logs))
        return process.wait_for(
            'migration %d of %s to be %s' % (
                number, self.id, ' or '.join(wanted)), check, timeout,
            every=0.3)

    def migrate(self, node, timeout=MIGRATION_TIMEOUT) -> float:
        """Live-migrate and wait for it; the seconds it took."""
        number = len(self.migrations()) + 1
        began = time.monotonic()
        self.live_migrate(node).raise_for_status()
        self.wait_migration(number, 'completed', timeout=timeout)
        seconds = time.monotonic() - began
        self.wait_status('ACTIVE')
        return seconds

    def abort(self, migration, timeout=180) -> str:
        """Abort a live migration that runs, by its record; wait for it.

        :returns: the status of the record then
        """
        path = '/servers/%s/migrations/%d' % (self.id, migration['id'])

        def sending():  # libvirt refuses until its own job has begun
            answer = self.nova.request('GET', path)
            return answer.status_code >= 400 or answer.json()['migration'][
                'memory_processed_bytes']
        process.wait_for('memory to be sent', sending, timeout, every=0.5)
        self.nova.delete(path).raise_for_status()

        def ended():
            status = next(each['status'] for each in self.migrations()
                          if each['id'] == migration['id'])
            return status if status in ('cancelled', 'error', 'failed'
                                        ) else None
        return process.wait_for('live migration to be aborted', ended,
                                timeout, every=0.5)

    def reset_state(self) -> None:
        """Make a server ACTIVE that Nova has left in ERROR, though it runs."""
        self.act('os-resetState', {'state': 'active'}).raise_for_status()
        self.wait_status('ACTIVE')

    def downtime(self):
        """Seconds that the last live migration to here stopped the guest.

        As QEMU measured it; None if libvirt does not know.
        """
        text = self.node.run(['virsh', 'domjobinfo', '--completed',
                              '--keep-completed', self.domain],
                             check=False).stdout
        told = re.search(r'Total downtime:\s+(\d+)\s+ms', text)
        return int(told.group(1)) / 1000 if told else None

    # -- the guest

    def console(self) -> guest_console.Console:
        """What the guest has said since it runs on this node.

        Nova asks the node, which takes its time while its guests resume
        after a boot: Nova's API has given up then (HTTP 500).
        """
        def ask():
            answer = self.act('os-getConsoleOutput', {})
            return None if answer.status_code == 500 else answer
        answer = process.wait_for('the console', ask, BOOT_TIMEOUT, every=1)
        return guest_console.Console(
            answer.raise_for_status().json()['output'])

    def wait_guest(self, what, check, timeout=120):
        """Wait until ``check`` is true of the console; the console."""
        def observe():
            console = self.console()
            return console if check(console) else None
        return process.wait_for('the guest to ' + what, observe, timeout,
                                every=1)

    def wait_writing(self, *volumes, timeout=180):
        """Wait until the guest writes on, to all these volumes."""
        began = self.console()

        def check(console):
            return all(
                console.of(volume) and console.of(volume)['seq']
                > (began.of(volume) or {'seq': 0})['seq']
                for volume in volumes)
        return self.wait_guest('write', check, timeout)

    def wait_verified(self, *volumes, timeout=300):
        """Wait until the guest has read back all that it had written.

        A sweep that began before now may have passed over a block already:
        two have to end.
        """
        began = self.wait_writing(*volumes)

        def check(console):
            return all(console.of(volume)['sweeps']
                       >= began.of(volume)['sweeps'] + 2
                       for volume in volumes)
        return self.wait_guest('read all blocks back', check, timeout)

    def written(self):
        """What the guest has reported as written: {serial: number}"""
        return {serial: disk['seq']
                for serial, disk in self.console().disks.items()}

    def wait_found(self, written, timeout=BOOT_TIMEOUT):
        """Wait until the guest has found on its disks what it had written.

        A guest that started anew, or got a disk back, reads all of it
        first. The console tells if anything but the newest is missing.

        :param written: as by :meth:`written`, before
        """
        def check(console):
            return all(console.found.get(serial, {'seq': -1})['seq'] >= seq
                       for serial, seq in written.items())
        return self.wait_guest('find what it had written: %s' % written,
                               check, timeout)

    def wait_copied(self, volume_id, seq, timeout=BOOT_TIMEOUT):
        """Wait until the guest has read all of a copy of another disk.

        :param seq: what it must have of that disk at least, as by
            :meth:`written`
        """
        def check(console):
            copy = console.copies.get(volume_id[:20])
            return copy and copy['seq'] >= seq and not copy['torn']
        return self.wait_guest('find number %d on copy %s' % (
            seq, volume_id), check, timeout)

    def delete(self, timeout=120) -> None:
        """Delete it and wait until it is gone."""
        self.nova.delete('/servers/' + self.id).raise_for_status()
        process.wait_for(
            'server %s to go' % self.id, lambda: self.id not in
            self.nova.get('/servers?all_tenants=1').text, timeout,
            every=0.5)
