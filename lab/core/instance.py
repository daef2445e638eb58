# SPDX-License-Identifier: Apache-2.0
"""Volumes, and an instance which attaches them without Nova.

An :class:`Instance` sends Cinder the requests that Nova's compute service
sends (attachments API, service token) and connects volumes with os-brick on
the node. It differs from :class:`lab.nova.server.Server`, which is a server
of a real Nova with a real guest: an Instance has no Nova, libvirt or QEMU, so
that it needs neither ``up --nova`` nor a boot, a test may order each request
alone and repeat it, and a process on the node acts for the guest
(:mod:`lab.guest.disk_io`). The fault matrix, the table of operations and most
functional tests use it; tests of the actions of Nova use a Server.
"""

import hashlib
import json
import time
import uuid

from lab.core import observe
from lab.core import process

#: Runs in a node: os-brick as the compute service uses it.
_BRICK = '''
import json, sys
from oslo_config import cfg
from os_brick.initiator import connector
from os_brick import opts
cfg.CONF([], default_config_files=[sys.argv[1]])
import os_brick
os_brick.setup(cfg.CONF)
action, info = sys.argv[2], json.loads(sys.argv[3])
if action == 'properties':
    print(json.dumps(connector.get_connector_properties(
        'sudo', sys.argv[4], False, False, host=sys.argv[5])))
else:
    brick = connector.InitiatorConnector.factory(
        info['driver_volume_type'], 'sudo')
    if action == 'connect':
        print(json.dumps(brick.connect_volume(info)['path']))
    else:
        brick.disconnect_volume(info, None)
'''


def wait_status(cinder, volume_id, wanted, timeout=60):
    """Wait for the status of a volume; return the volume as Cinder shows it.

    :raises LabError: if its status is an error instead
    """
    def check():
        volume = cinder.get('/volumes/' + volume_id).json()['volume']
        if volume['status'].startswith('error') and (
                not wanted.startswith('error')):
            raise process.LabError('volume %s: status %s' % (
                volume_id, volume['status']))
        return volume if volume['status'] == wanted else None
    return process.wait_for('volume %s to be %s' % (volume_id, wanted),
                            check, timeout)


def create_volume(cinder, size_gib, volume_type='localclone', timeout=60,
                  node=None, image=None, **source):
    """Create a volume and wait until it is available.

    :param volume_type: the name of its type; None: that of its source
    :param timeout: seconds
    :param node: the name of its home; None: the scheduler chooses
    :param image: the id of an image to create it from
    :param source: ``snapshot_id`` or ``source_volid``, to create it from
    :returns: its id
    :raises LabError: if it was not created, or has another home
    """
    wanted = {'size': size_gib, 'volume_type': volume_type,
              'imageRef': image, **source}
    if node:
        observe.take_volumes(cinder.lab, node)
    try:
        volume = cinder.post('/volumes', json={'volume': {
            key: value for key, value in wanted.items() if value is not None
        }}).raise_for_status().json()['volume']['id']
        wait_status(cinder, volume, 'available', timeout)
    finally:
        if node:
            observe.take_volumes(cinder.lab)
    if node and home(cinder.lab, volume) != node:
        raise process.LabError('the scheduler did not choose %s' % node)
    return volume


def delete_volumes(cinder, *volumes, timeout=90):
    """Delete volumes, and wait until the lab has no volume any more.

    :param timeout: seconds
    """
    for volume in volumes:
        cinder.delete('/volumes/' + volume).raise_for_status()
    observe.wait_deleted(cinder.lab, timeout)


def create_snapshot(cinder, volume_id, timeout=90):
    """Create a snapshot of a volume, and wait for it; return its id."""
    snapshot = cinder.post('/snapshots', json={'snapshot': {
        'volume_id': volume_id}}).raise_for_status().json()['snapshot']['id']
    process.wait_for('the snapshot', lambda: cinder.get(
        '/snapshots/' + snapshot).json()['snapshot']['status'] == 'available',
        timeout)
    return snapshot


def delete_snapshot(cinder, snapshot_id, timeout=60):
    """Delete a snapshot; wait until its project has no snapshot any more."""
    cinder.delete('/snapshots/' + snapshot_id).raise_for_status()
    process.wait_for('the snapshot to go', lambda: not cinder.get(
        '/snapshots').json()['snapshots'], timeout)


def row(lab, volume_id):
    """Return a volume as Cinder shows it to an administrator."""
    return lab.cinder().get('/volumes/' + volume_id).json()['volume']


def home(lab, volume_id):
    """Return the name of the home of a volume, as its row says."""
    return row(lab, volume_id)['os-vol-host-attr:host'].partition('@')[0]


def reset(lab, volume_id):
    """Reset a volume, as an administrator, to available and detached."""
    lab.cinder().post('/volumes/%s/action' % volume_id, json={
        'os-reset_status': {'status': 'available',
                            'attach_status': 'detached'}})


def as_nova(lab, user):
    """Return a client with the rights of a user and of Nova together."""
    client = lab.cinder(user)
    client.headers['X-Service-Token'] = lab.cinder('nova').headers[
        'X-Service-Token']
    return client


class Instance:
    """An instance without Nova: an id, which attachments name.

    :param lab: the lab
    :param user: the owner of its volumes
    :param brick: connect local volumes with os-brick, too, as Nova does;
        otherwise the path is taken from the API. os-brick returns the same
        path, seconds later.
    """

    #: Connectors by lab and node: os-brick takes seconds, and they stay.
    _connectors: dict = {}

    def __init__(self, lab, brick=False, user='demo'):
        self.lab = lab
        self.brick = brick
        self.uuid = str(uuid.uuid4())
        self.nova = as_nova(lab, user)

    def connector(self, node):
        """Return the connector of a node, as os-brick on it reports."""
        key = self.lab.name, node.name
        if key not in self._connectors:
            self._connectors[key] = json.loads(self._brick(
                node, 'properties', {}, node.address, node.name))
        return dict(self._connectors[key])

    def by_brick(self, data):
        """Return whether os-brick connects a volume.

        :param data: its connection
        """
        return self.brick or data['driver_volume_type'] != 'local'

    def _brick(self, node, action, info, *words):
        return node.run(
            [self.lab.python, '-W', 'ignore', '-c', _BRICK,
             node.directory / 'localclone.conf', action, json.dumps(info),
             *words], timeout=90).stdout

    def reserve(self, volume_id):
        """Create an attachment without a connector; return its id."""
        return self.nova.post('/attachments', json={'attachment': {
            'volume_uuid': volume_id, 'instance_uuid': self.uuid,
        }}).raise_for_status().json()['attachment']['id']

    def connect(self, attachment_id, connector):
        """Send the request which moves the volume; return the answer."""
        return self.nova.put('/attachments/' + attachment_id, json={
            'attachment': {'connector': connector}})

    def connect_live(self, volume_id, connector):
        """Send Nova's request for a live migration; return the answer."""
        return self.nova.post('/attachments', json={'attachment': {
            'volume_uuid': volume_id, 'instance_uuid': self.uuid,
            'connector': dict(connector, mountpoint='/dev/vdb')}})

    def attach(self, volume_id, node, connector=None, live=False):
        """Attach a volume on a node.

        :param live: as Nova does for a live migration, while the instance
            has the volume attached on another node
        :returns: an Attached; its ``seconds`` is the time of the API request
            for the connection
        """
        connector = connector or self.connector(node)
        began = time.monotonic()
        if live:
            answer = self.connect_live(volume_id, connector)
        else:
            attachment = self.reserve(volume_id)
            answer = self.connect(attachment, connector)
            if answer.status_code >= 400:
                self.nova.delete('/attachments/' + attachment)
        seconds = time.monotonic() - began
        answer.raise_for_status()
        attachment = answer.json()['attachment']['id']
        info = answer.json()['attachment']['connection_info']
        data = {key: value for key, value in info.items()
                if key != 'driver_volume_type'}
        data['driver_volume_type'] = info['driver_volume_type']
        began = time.monotonic()
        if self.by_brick(data):
            path = json.loads(self._brick(node, 'connect', data))
        else:
            path = info['device_path']
        brick_seconds = time.monotonic() - began
        self.nova.post('/attachments/%s/action' % attachment,
                       json={'os-complete': None}).raise_for_status()
        return Attached(self, volume_id, node, attachment, data, path,
                        seconds, brick_seconds)


def occupy(node, path, mib):
    """Write random data from the beginning: a move does not copy holes.

    :param path: of a device without data
    """
    node.run('dd if=/dev/urandom of=%s bs=1M count=%d oflag=direct '
             'conv=notrunc status=none' % (path, mib), timeout=300)


def checksum(node, path, mib, first_mib=0, timeout=300):
    """Return the checksum of an area of a device, read directly.

    :raises LabError: if it can't be read, or ends before the area does
    """
    return node.run(_disk_io(node, 'sum', path, first_mib, mib),
                    timeout=timeout).stdout


def _disk_io(node, *words):
    """Return the command line of :mod:`lab.guest.disk_io` on a node."""
    return ['/usr/bin/python3', '-S',
            node.lab.repo / 'lab/guest/disk_io.py', *words]


def checksum_of_zeros(mib):
    """Return the :func:`checksum` of an area of zeros."""
    found = hashlib.sha256()
    for _number in range(mib):
        found.update(bytes(1 << 20))
    return found.hexdigest() + '\n'


def start_writing(node, path, first_mib, length_mib, seconds, seed, rate):
    """Start to write numbered blocks; see :mod:`lab.guest.disk_io`.

    :param rate: blocks a second
    :returns: a :class:`lab.core.node.Running`; it prints the acknowledged
        blocks
    """
    return node.popen(
        _disk_io(node, 'write', path, first_mib * 256, length_mib * 256,
                 seconds, seed, rate), timeout=seconds + 60)


def stop_writing(node, path=''):
    """End all writers of a node, or the writer of a path."""
    node.run('kill $(pgrep -f "[d]isk_io.py write %s")' % path, check=False)


class Attached:
    """An attachment, connected on a node at ``path``.

    :param seconds: of the API request
    :param brick_seconds: of os-brick on the node
    """

    def __init__(self, instance, volume_id, node, attachment, data, path,
                 seconds, brick_seconds):
        self.instance = instance
        self.volume_id = volume_id
        self.node = node
        self.id = attachment
        self.data = data
        self.path = path
        self.seconds = seconds
        self.brick_seconds = brick_seconds

    def detach(self, status='available'):
        """Detach the volume.

        :param status: the status of the volume afterwards
        """
        if self.instance.by_brick(self.data):
            self.instance._brick(self.node, 'disconnect', self.data)
        self.instance.nova.delete(
            '/attachments/' + self.id).raise_for_status()
        wait_status(self.instance.nova, self.volume_id, status, 30)

    # -- the guest

    def start_writing(self, first_mib=130, length_mib=60, seconds=600,
                      seed=1, rate=25):
        """Start to write to the volume; see :func:`start_writing`."""
        return start_writing(self.node, self.path, first_mib, length_mib,
                             seconds, seed, rate)

    def stop_writing(self, writer):
        """End a writer, after its first acknowledged block."""
        process.wait_for('a write to ' + self.path, lambda: (
            writer.stdout.strip() or not writer.running), 60)
        stop_writing(self.node, self.path)
        writer.wait(20)

    def verify(self, *acknowledged, timeout=120):
        """Verify all acknowledged blocks on this node; return the verdict."""
        return self.node.run(
            _disk_io(self.node, 'verify', self.path), timeout=timeout,
            stdin=b''.join(acknowledged)).stdout.splitlines()[0]
