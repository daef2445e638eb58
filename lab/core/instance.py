# SPDX-License-Identifier: Apache-2.0
"""Attaches volumes the way Nova does: attachments API, os-brick, tokens."""

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
    """Wait for a volume's status; its JSON."""
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
                  node=None, image=None):
    """Create a volume; with a node, there.

    :param image: the id of an image that it is made from
    :returns: its id
    """
    if node:
        observe.take_volumes(cinder.lab, node)
    try:
        volume = cinder.post('/volumes', json={'volume': {
            'size': size_gib, 'volume_type': volume_type,
            'imageRef': image}}).raise_for_status().json()['volume']['id']
        wait_status(cinder, volume, 'available', timeout)
    finally:
        if node:
            observe.take_volumes(cinder.lab)
    if node and home(cinder.lab, volume) != node:
        raise process.LabError('the scheduler did not choose %s' % node)
    return volume


def home(lab, volume_id):
    """The node on which a volume's data is, as its row says."""
    host = lab.cinder('admin').get('/volumes/' + volume_id).json()[
        'volume']['os-vol-host-attr:host']
    return host.partition('@')[0]


def reset(lab, volume_id):
    """As its administrator does: it is detached and available again."""
    lab.cinder().post('/volumes/%s/action' % volume_id, json={
        'os-reset_status': {'status': 'available',
                            'attach_status': 'detached'}})


def as_nova(lab, user):
    """A client with a user's rights and those of Nova, as it asks Cinder."""
    client = lab.cinder(user)
    client.headers['X-Service-Token'] = lab.cinder('nova').headers[
        'X-Service-Token']
    return client


class Instance:
    """What Nova knows of a server: here, an id and its attachments.

    :param lab: the lab
    :param user: whose volumes it has
    :param brick: os-brick connects local volumes on the node, too, as in
        Nova; otherwise their path is taken as the API gives it, which is
        what os-brick returns, seconds later
    """

    #: What os-brick says of a node; asking costs seconds, the answer stays.
    _connectors: dict = {}

    def __init__(self, lab, brick=False, user='demo'):
        self.lab = lab
        self.brick = brick
        self.uuid = str(uuid.uuid4())
        self.nova = as_nova(lab, user)

    def connector(self, node):
        """What os-brick on a node says of that node."""
        key = self.lab.name, node.name
        if key not in self._connectors:
            self._connectors[key] = json.loads(self._brick(
                node, 'properties', {}, node.address, node.name))
        return dict(self._connectors[key])

    def by_brick(self, data):
        """Whether os-brick connects and disconnects it."""
        return self.brick or data['driver_volume_type'] != 'local'

    def _brick(self, node, action, info, *words):
        return node.run(
            [self.lab.python, '-W', 'ignore', '-c', _BRICK,
             node.directory / 'localclone.conf', action, json.dumps(info),
             *words], timeout=90).stdout

    def reserve(self, volume_id):
        """The first half of an attach: an attachment without connector."""
        return self.nova.post('/attachments', json={'attachment': {
            'volume_uuid': volume_id, 'instance_uuid': self.uuid,
        }}).raise_for_status().json()['attachment']['id']

    def connect(self, attachment_id, connector):
        """The API call that moves the volume; the answer, unchecked."""
        return self.nova.put('/attachments/' + attachment_id, json={
            'attachment': {'connector': connector}})

    def connect_live(self, volume_id, connector):
        """Nova's call for a live migration; the answer, unchecked."""
        return self.nova.post('/attachments', json={'attachment': {
            'volume_uuid': volume_id, 'instance_uuid': self.uuid,
            'connector': dict(connector, mountpoint='/dev/vdb')}})

    def attach(self, volume_id, node, connector=None, live=False):
        """Attach a volume on a node.

        :param live: as Nova does for a live migration, while the instance
            has the volume attached on another node
        :returns: an Attached; its ``seconds`` is the time of the API call
            that asks for the connection
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
    """Write random data; a move skips what was never written.

    :param path: of a device that nothing is on yet
    """
    node.run('dd if=/dev/urandom of=%s bs=1M count=%d oflag=direct '
             'conv=notrunc status=none' % (path, mib), timeout=300)


def checksum(node, path, mib, first_mib=0, timeout=300):
    """Return the checksum of what a device has in an area, read directly.

    :raises LabError: if it can't be read, or ends before the area does
    """
    return node.run([
        '/usr/bin/python3', '-S', node.lab.repo / 'lab/guest/disk_io.py',
        'sum', path, first_mib, mib], timeout=timeout).stdout


def checksum_of_zeros(mib):
    """Return what :func:`checksum` gives of an area that has only zeros."""
    found = hashlib.sha256()
    for _number in range(mib):
        found.update(bytes(1 << 20))
    return found.hexdigest() + '\n'


def start_writing(node, path, first_mib, length_mib, seconds, seed, rate):
    """A guest writes blocks that can be proven; see :mod:`lab.guest.disk_io`.

    :param rate: blocks a second
    :returns: a :class:`lab.core.node.Running`; it prints what is acknowledged
    """
    return node.popen([
        '/usr/bin/python3', '-S', node.lab.repo / 'lab/guest/disk_io.py',
        'write', path, first_mib * 256, length_mib * 256, seconds, seed,
        rate], timeout=seconds + 60)


def stop_writing(node, path=''):
    """End the guests of a node, or the one that writes to a path."""
    node.run('kill $(pgrep -f "[d]isk_io.py write %s")' % path, check=False)


class Attached:
    """One attachment, connected on a node at ``path``.

    :param seconds: that the API took
    :param brick_seconds: that os-brick on the node took
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
        """Detach.

        :param status: of the volume afterwards
        """
        if self.instance.by_brick(self.data):
            self.instance._brick(self.node, 'disconnect', self.data)
        self.instance.nova.delete(
            '/attachments/' + self.id).raise_for_status()
        wait_status(self.instance.nova, self.volume_id, status, 30)

    # -- what the guest does

    def start_writing(self, first_mib=130, length_mib=60, seconds=600,
                      seed=1, rate=25):
        """See :func:`start_writing`."""
        return start_writing(self.node, self.path, first_mib, length_mib,
                             seconds, seed, rate)

    def stop_writing(self, writer):
        """End this writer, once there is something to be proven."""
        process.wait_for('a write to ' + self.path, lambda: (
            writer.stdout.strip() or not writer.running), 60)
        stop_writing(self.node, self.path)
        writer.wait(20)

    def verify(self, *acknowledged, timeout=120):
        """Check on this node all that a writer has had acknowledged."""
        return self.node.run([
            '/usr/bin/python3', '-S',
            self.node.lab.repo / 'lab/guest/disk_io.py',
            'verify', self.path], timeout=timeout,
            stdin=b''.join(acknowledged)).stdout.splitlines()[0]
