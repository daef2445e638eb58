# SPDX-License-Identifier: Apache-2.0
"""The model of a Nova server under test, for demos, benchmarks and tests.

A :class:`Server` knows the volumes attached to it, asks Nova for each
operation on a server, and waits for the guest to write to its volumes or to
read its blocks back. The requests are plain REST: an openstack command costs
seconds each.
"""

import json
import re
import time

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.guest import console as guest_console
from lab.guest import image as guest_image
from lab.nova import switch_over

BOOT_TIMEOUT = 240
MIGRATION_TIMEOUT = 300
OPERATION_TIMEOUT = 300
#: Seconds. Nova asks Cinder five times, and waits a minute each time.
EVACUATION_TIMEOUT = 600
#: Seconds for the copies of all volumes to end.
COPY_TIMEOUT = 420
#: A text on the root volume, in an area (MiB) which neither the image nor the
#: guest writes to.
MARK, MARKED = 'marked', 30


def image(lab):
    """Return the id of the guest's image."""
    return lab.client('glance').get(
        '/images?name=' + guest_image.NAME).json()['images'][0]['id']


def flavor_id(nova, name):
    """Return the id of a flavour by its name."""
    return next(each['id'] for each in nova.get('/flavors').json()['flavors']
                if each['name'] == name)


def boot_volume(lab, volume_type='localclone', node=None):
    """Create a volume of 1 GiB with the guest's image; return its id.

    :param node: the name of its home; None: Cinder's scheduler chooses
    """
    return instances.create_volume(lab.cinder(), 1, volume_type, timeout=120,
                                   node=node, image=image(lab))


def delete_all(lab):
    """Delete all servers of a lab; their volumes stay."""
    nova = lab.client('nova')
    for each in nova.get('/servers?all_tenants=1').json()['servers']:
        Server(lab, each['id']).delete()


def clear(lab):
    """Delete all servers, and the administrator's snapshots and volumes.

    An interrupted run may have left volumes in use: their attachments are
    deleted and their status is reset.

    :raises LabError: if a snapshot or a volume is left after 240 s
    """
    delete_all(lab)
    cinder = lab.cinder()
    for each in cinder.get('/attachments').json()['attachments']:
        instances.as_nova(lab, 'admin').delete('/attachments/' + each['id'])

    def are_gone():
        snapshots = cinder.get('/snapshots').json()['snapshots']
        for each in snapshots:
            cinder.delete('/snapshots/' + each['id'])
        volumes = cinder.get('/volumes/detail').json()['volumes']
        for each in volumes:
            if each['status'] not in ('available', 'error', 'deleting'):
                instances.reset(lab, each['id'])
            cinder.delete('/volumes/' + each['id'])
        return not snapshots and not volumes
    process.wait_for('old snapshots and volumes to go', are_gone, 240,
                     every=2)


class Server:
    """A server of Nova's, booted from a volume.

    Many methods return the seconds which the operation took.

    :param lab: the lab
    :param server_id: the id of an existing server; see :meth:`boot`
    :param volumes: the ids of its volumes, the root volume first
    """

    def __init__(self, lab, server_id, volumes=()):
        self.lab = lab
        self.id = server_id
        self.nova = lab.client('nova')
        #: The ids of the attached volumes, which the guest writes to.
        self.volumes = list(volumes)

    @classmethod
    def boot(cls, lab, root, node, *volumes):
        """Boot a server, wait until it is ACTIVE, and attach more volumes.

        :param root: the id of the volume to boot from
        :param node: the name of the node; None: Nova's scheduler chooses
        :param volumes: the ids of more volumes
        """
        server = cls.create(lab, root, node)
        server.wait_status('ACTIVE', BOOT_TIMEOUT)
        for volume in volumes:
            server.attach(volume)
        return server

    @classmethod
    def create(cls, lab, root, node):
        """Request a server as :meth:`boot` does; do not wait for it."""
        nova = lab.client('nova')
        return cls(lab, nova.post('/servers', json={'server': {
            'name': 'guest', 'networks': 'none',
            'flavorRef': flavor_id(nova, guest_image.NAME),
            'block_device_mapping_v2': [{
                'uuid': root, 'source_type': 'volume',
                'destination_type': 'volume', 'boot_index': 0}],
            **({'host': node} if node else {}),
        }}).raise_for_status().json()['server']['id'], [root])

    def show(self):
        """Return Nova's record of the server."""
        return self.nova.get('/servers/' + self.id).json()['server']

    @property
    def node(self):
        """The node of the server."""
        return self.lab.nodes[self.show()['OS-EXT-SRV-ATTR:host']]

    @property
    def other_node(self):
        """The first node of the lab which is not the server's."""
        here = self.node
        return next(node for node in self.lab.nodes.values()
                    if node is not here)

    @property
    def domain(self):
        """The name of the server in libvirt."""
        return self.show()['OS-EXT-SRV-ATTR:instance_name']

    def act(self, action, arguments=None, version=None):
        """Request an action of the API; return the answer, unchecked."""
        return self.nova.request(
            'POST', '/servers/%s/action' % self.id, {action: arguments},
            {'OpenStack-API-Version': 'compute ' + version} if version
            else None)

    def wait_status(self, wanted, timeout=60):
        """Wait for a status of the server, with no task in progress.

        :raises LabError: if the status is ERROR instead
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
        """Attach a volume; return the seconds until it is in use."""
        began = time.monotonic()
        self.begin_attach(volume_id)
        instances.wait_status(self.lab.cinder(), volume_id, 'in-use',
                              timeout)
        self.volumes.append(volume_id)
        return time.monotonic() - began

    def begin_attach(self, volume_id) -> None:
        """Request an attach from Nova, which reserves the volume at once."""
        self.nova.post('/servers/%s/os-volume_attachments' % self.id, json={
            'volumeAttachment': {'volumeId': volume_id},
        }).raise_for_status()

    def detach(self, volume_id, timeout=120) -> float:
        """Detach a volume; return the seconds until it is available."""
        began = time.monotonic()
        self.nova.delete('/servers/%s/os-volume_attachments/%s' % (
            self.id, volume_id)).raise_for_status()
        self.volumes = [each for each in self.volumes if each != volume_id]
        instances.wait_status(self.lab.cinder(), volume_id, 'available',
                              timeout)
        return time.monotonic() - began

    def attachments(self):
        """Return the attachments as Nova lists them: {volume id: id}."""
        answer = self.nova.get('/servers/%s/os-volume_attachments' % self.id)
        return {each['volumeId']: each['attachment_id']
                for each in answer.json()['volumeAttachments']}

    def disk_bytes(self, volume_id):
        """Return the size of a volume in the guest, as QEMU reports it."""
        answer = json.loads(self.node.run([
            'virsh', 'qemu-monitor-command', self.domain,
            '{"execute": "query-block"}']).stdout)['return']
        return next(each['inserted']['image']['virtual-size']
                    for each in answer if volume_id in json.dumps(each))

    def homes(self):
        """Return the names of the nodes with the data of the volumes."""
        return {instances.home(self.lab, volume) for volume in self.volumes}

    def statuses(self):
        """Return the statuses of the volumes in Cinder."""
        return {instances.row(self.lab, volume)['status']
                for volume in self.volumes}

    def wait_homes(self, timeout=COPY_TIMEOUT) -> None:
        """Wait until the server's node is the home of all volumes."""
        wanted = {self.node.name}
        process.wait_for('the volumes to move to the server', lambda: (
            self.homes() == wanted), timeout, every=1)

    def wait_no_move(self, timeout=COPY_TIMEOUT) -> None:
        """Wait until the moves of all volumes have ended.

        :param timeout: seconds for each volume
        """
        for volume in self.volumes:
            observe.wait_no_move(self.lab, volume, timeout)

    def wait_moved(self, timeout=COPY_TIMEOUT) -> None:
        """Wait until the moves of all volumes have ended with success.

        :param timeout: seconds for each volume
        """
        for volume in self.volumes:
            observe.wait_moved(self.lab, volume, timeout)

    def mark(self) -> None:
        """Write MARK to the root volume."""
        self.node.run(
            'printf %s | dd of=%s bs=1M seek=%d conv=notrunc,fsync '
            'iflag=fullblock status=none' % (
                MARK, '/dev/mapper/localclone-' + self.volumes[0], MARKED))

    def is_marked(self) -> bool:
        """Return whether the root volume has the text of :meth:`mark`."""
        return self.node.run(
            'dd if=%s bs=1M skip=%d count=1 iflag=direct status=none '
            '| head -c %d' % ('/dev/mapper/localclone-' + self.volumes[0],
                              MARKED, len(MARK))).stdout == MARK

    # -- operations which stop and start the guest

    def operate(self, action, arguments=None, status='ACTIVE',
                timeout=OPERATION_TIMEOUT, version=None) -> float:
        """Request an action and wait for its end; return the seconds.

        :param status: the status of the server afterwards
        :param version: the version of the API; None: the usual version
        """
        began = time.monotonic()
        self.act(action, arguments, version).raise_for_status()
        self.wait_status(status, timeout)
        return time.monotonic() - began

    def reboot(self):
        """Reboot the server (hard)."""
        return self.operate('reboot', {'type': 'HARD'})

    def reboot_failed(self, timeout=240) -> None:
        """Reboot a server which Nova could not start with its node.

        Nova fails as it has no right to the owner's secrets. A request before
        nova-compute has failed ends nova-compute of 34.0.0 with the error.
        """
        self.wait_status('ERROR', timeout)
        self.act('reboot', {'type': 'HARD'}).raise_for_status()
        process.wait_for('the guest to run', lambda: (
            self.show()['status'] == 'ACTIVE'), timeout, every=1)

    def rebuild(self, version=None):
        """Rebuild the server from the guest's image.

        :param version: of the API; before 2.93 a root volume keeps its data
        """
        return self.operate('rebuild', {'imageRef': image(self.lab)},
                            version=version)

    def shelve(self):
        """Shelve the server; Nova offloads it at once, as it is on volumes."""
        return self.operate('shelve', status='SHELVED_OFFLOADED')

    def unshelve(self, node=None):
        """Unshelve the server.

        :param node: None: Nova's scheduler chooses
        """
        return self.operate('unshelve', node and {'host': node.name})

    def cold_migrate(self, node):
        """Migrate the server, off; :meth:`confirm` or :meth:`revert` it."""
        return self.operate('migrate', {'host': node.name},
                            status='VERIFY_RESIZE')

    def resize(self, flavor):
        """Resize the server, which moves it to another node."""
        return self.operate(
            'resize', {'flavorRef': flavor_id(self.nova, flavor)},
            status='VERIFY_RESIZE')

    def confirm(self):
        """Confirm a resize or a cold migration."""
        return self.operate('confirmResize')

    def revert(self):
        """Revert a resize or a cold migration."""
        return self.operate('revertResize')

    def evacuate(self, node, status='ERROR'):
        """Request an evacuation, which Nova must refuse on local volumes.

        :param status: the status of the server afterwards
        """
        return self.operate('evacuate', {'host': node.name}, status,
                            EVACUATION_TIMEOUT)

    # -- live migration

    def live_migrate(self, node):
        """Request a live migration; return the answer, unchecked."""
        return self.act('os-migrateLive', {
            'host': node.name, 'block_migration': 'auto'})

    def migrations(self):
        """Return the records of all migrations of the server, oldest first."""
        answer = self.nova.get('/os-migrations?instance_uuid=' + self.id)
        return sorted(answer.json()['migrations'], key=lambda m: m['id'])

    def wait_migration(self, number, *wanted, timeout=MIGRATION_TIMEOUT):
        """Wait for a status of a migration; return its record.

        A server is ACTIVE before its migration's record says completed.

        :param number: of the migration, from 1
        :param wanted: the statuses to wait for
        :raises LabError: if the migration ends with another status
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
        """Live-migrate the server and wait for the end; return the seconds.
        """
        number = len(self.migrations()) + 1
        began = time.monotonic()
        self.live_migrate(node).raise_for_status()
        self.wait_migration(number, 'completed', timeout=timeout)
        seconds = time.monotonic() - began
        self.wait_status('ACTIVE')
        return seconds

    def migrate_observed(self, node):
        """Live-migrate the server, and measure how long the guest stops.

        :returns: the seconds in all; the seconds of the stop, as by
            :meth:`downtime`; its parts, as by
            :meth:`lab.nova.switch_over.SwitchOver.parts`
        """
        with switch_over.SwitchOver(self.lab, self.domain) as observed:
            seconds = self.migrate(node)
        return seconds, self.downtime(), observed.parts()

    def abort(self, migration, timeout=180) -> str:
        """Abort a running live migration and wait for its end.

        :param migration: its record
        :returns: the status of the record afterwards
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
        """Reset the status of a running server from ERROR to ACTIVE."""
        self.act('os-resetState', {'state': 'active'}).raise_for_status()
        self.wait_status('ACTIVE')

    def downtime(self):
        """Return the seconds for which a live migration stopped the guest.

        :returns: of the last migration to this node, as QEMU measured them;
            None if libvirt does not know
        """
        text = self.node.run(['virsh', 'domjobinfo', '--completed',
                              '--keep-completed', self.domain],
                             check=False).stdout
        told = re.search(r'Total downtime:\s+(\d+)\s+ms', text)
        return int(told.group(1)) / 1000 if told else None

    # -- the guest

    def console(self) -> guest_console.Console:
        """Return the guest's console since the server is on this node.

        After a node's boot Nova's API gives up with HTTP 500 while the guests
        of the node resume: the request is repeated.
        """
        def ask():
            answer = self.act('os-getConsoleOutput', {})
            return None if answer.status_code == 500 else answer
        answer = process.wait_for('the console', ask, BOOT_TIMEOUT, every=1)
        return guest_console.Console(
            answer.raise_for_status().json()['output'])

    def wait_guest(self, what, check, timeout=120):
        """Wait until ``check`` is true of the console; return the console."""
        def observe_console():
            console = self.console()
            return console if check(console) else None
        return process.wait_for('the guest to ' + what, observe_console,
                                timeout, every=1)

    def wait_writing(self, timeout=180):
        """Wait until the guest has written to each volume; the console."""
        began = self.console()

        def check(console):
            return all(
                console.of(volume) and console.of(volume)['seq']
                > (began.of(volume) or {'seq': 0})['seq']
                for volume in self.volumes)
        return self.wait_guest('write', check, timeout)

    def wait_writing_offline(self, node, written):
        """Wait until the guest writes, without nova-compute; the console.

        :param node: the node of the server
        :param written: as by :meth:`written`, before
        """
        path = '/run/nova/instances/%s/console.log' % self.id

        def read_console():
            console = guest_console.Console(
                node.run('tail -c 100000 ' + path).stdout)
            return console if all(
                console.disks.get(serial, {'seq': 0})['seq'] > seq
                for serial, seq in written.items()) else None
        return process.wait_for('the guest to write on', read_console, 120,
                                every=1)

    def wait_verified(self, timeout=300):
        """Wait until the guest has read all its blocks back; the console.

        A sweep in progress may already have read some of the blocks:
        therefore two sweeps of each volume must end.
        """
        began = self.wait_writing()

        def check(console):
            return all(console.of(volume)['sweeps']
                       >= began.of(volume)['sweeps'] + 2
                       for volume in self.volumes)
        return self.wait_guest('read all blocks back', check, timeout)

    def written(self):
        """Wait until the guest writes; return its last block numbers.

        :returns: {serial: number} of the volumes
        """
        console = self.wait_writing()
        return {guest_console.serial(volume): console.of(volume)['seq']
                for volume in self.volumes}

    def wait_found(self, written, timeout=BOOT_TIMEOUT):
        """Wait until the guest has found its blocks again; the console.

        A guest reads all of a disk after its own start, and when the disk is
        attached. Its console reports a missing block, except the newest.

        :param written: as by :meth:`written`, before
        """
        def check(console):
            return all(console.found.get(serial, {'seq': -1})['seq'] >= seq
                       for serial, seq in written.items())
        return self.wait_guest('find the blocks written: %s' % written,
                               check, timeout)

    def wait_copied(self, volume_id, seq, timeout=BOOT_TIMEOUT):
        """Wait until the guest has read a copy of another disk; the console.

        :param seq: the block number which the copy must have at least, as by
            :meth:`written`
        """
        def check(console):
            copy = console.copies.get(guest_console.serial(volume_id))
            return copy and copy['seq'] >= seq and not copy['torn']
        return self.wait_guest('find number %d on copy %s' % (
            seq, volume_id), check, timeout)

    def delete(self, timeout=120) -> None:
        """Delete the server; wait until it is gone and its volumes are free.

        The volumes stay: see :func:`lab.core.instance.delete_volumes`.
        """
        self.nova.delete('/servers/' + self.id).raise_for_status()
        process.wait_for(
            'server %s to go' % self.id, lambda: self.id not in
            self.nova.get('/servers?all_tenants=1').text, timeout,
            every=0.5)
        for volume in self.volumes:
            instances.wait_status(self.lab.cinder(), volume, 'available',
                                  timeout)
