# SPDX-License-Identifier: Apache-2.0
"""A snapshot with what it must have, and volumes that are made of images."""

from lab.core import look
from lab.core import process
from lab.scenarios import disk as disks

#: Seconds for Cinder to answer what it has accepted: its services wait for
#: each other, one after the other.
ANSWER = 140
#: Seconds for which what Cinder forgets to delete is waited for.
DELETING = 30


def told(cinder, resource):
    """What the owner of something was told last; '' if nothing was."""
    return next((message['user_message'] for message in cinder.get(
        '/messages?sort=created_at:desc').json()['messages']
        if message['resource_uuid'] == resource), '')


def row_of(cinder, kind, key):
    """What the API shows of something; None if it is gone.

    :param kind: 'volume' or 'snapshot'
    """
    answer = cinder.request('GET', '/%ss/%s' % (kind, key))
    if answer.status_code == 404:
        return None
    return answer.raise_for_status().json()[kind]


def wait_available(cinder, kind, key, seconds=ANSWER):
    """Wait until something is there.

    :raises LabError: if it is gone, or in error; says what its owner is told
    """
    def there():
        row = row_of(cinder, kind, key)
        if row is None or row['status'].startswith('error'):
            raise process.LabError('%s %s: %s: %s' % (
                kind, key, row['status'] if row else 'gone',
                told(cinder, key)))
        return row if row['status'] == 'available' else None
    return process.wait_for('%s %s' % (kind, key), there, seconds, every=1)


class Snapshot:
    """A snapshot of a disk.

    It may have more of what a guest writes than was acknowledged when it was
    asked for; but whatever it has, it has for ever.
    """

    def __init__(self, disk):
        self.disk = disk
        self.id = None
        self.content = None
        self._digest = None

    @property
    def lv(self):
        """The name of its LV."""
        return '_snapshot-%s' % self.id

    def row(self):
        """What the API shows of it; None if it is gone, or not asked for."""
        return self.id and row_of(self.disk.cinder, 'snapshot', self.id)

    def ask(self):
        """Send the request."""
        content = self.disk.content()
        self.id = self.disk.cinder.post('/snapshots', json={'snapshot': {
            'volume_id': self.disk.volume,
        }}).raise_for_status().json()['snapshot']['id']
        self.content, self._digest = content, None

    def wait(self):
        """Wait until it is there.

        :raises LabError: if it is not going to be
        """
        wait_available(self.disk.cinder, 'snapshot', self.id)

    def ensure(self):
        """Ask until there is one; for :func:`.disk.until`.

        :raises LabError: if there is none yet
        """
        row = self.row()
        if row and row['status'] == 'available':
            return
        if row and row['status'] == 'creating':
            raise process.LabError('it is still being made')
        if row:
            self.delete()
        self.ask()
        self.wait()

    def verify(self, node):
        """Every byte; and nothing of it has changed since the last time.

        :raises LabError: with what is wrong
        """
        path = 'cinder-volumes/' + self.lv
        node.run('lvchange -ay -K ' + path)
        try:
            digest = disks.prove(node, 'snapshot ' + self.id, '/dev/' + path,
                                 self.content)['digest']
        finally:
            node.run('lvchange -an ' + path)
        if self._digest not in (None, digest):
            raise process.LabError(
                'snapshot %s has changed since it was taken' % self.id)
        self._digest = digest

    def ask_to_delete(self):
        """Send the request."""
        answer = self.disk.cinder.delete('/snapshots/' + self.id)
        if answer.status_code != 404:
            answer.raise_for_status()

    def wait_deleted(self, seconds=ANSWER):
        """Wait until it is gone.

        :raises LabError: if it is not going to be
        """
        def gone():
            row = self.row()
            if row and row['status'].startswith('error'):
                raise process.LabError('snapshot %s: %s' % (
                    self.id, row['status']))
            return row is None
        process.wait_for('snapshot %s to go' % self.id, gone, seconds,
                         every=1)

    def delete(self):
        """Delete it, whatever has become of it.

        Cinder never ends a delete that its service has not lived to end: its
        administrator does.
        """
        def ask():
            row = self.row()
            if row is None:
                return
            if row['status'] == 'deleting':
                try:
                    self.wait_deleted(DELETING)
                    return
                except process.LabError:
                    pass
            if row['status'] not in ('available', 'error'):
                self._reset()
            self.ask_to_delete()
            self.wait_deleted()
        if self.id:
            disks.until('snapshot %s to go' % self.id, ask, 240)

    def _reset(self):
        self.disk.lab.cinder().post(
            '/snapshots/%s/action' % self.id,
            json={'os-reset_status': {'status': 'error'}}).raise_for_status()


def ask_for(disk, size, **image):
    """Send the request for a volume that is made of an image.

    :param disk: that has, or had, what the volume gets
    :param image: 'snapshot_id' or 'source_volid'
    :returns: the volume as a Disk, which has nothing known yet
    """
    volume = disk.cinder.post('/volumes', json={'volume': dict(
        image, size=size)}).raise_for_status().json()['volume']['id']
    return disks.Disk(disk.lab, volume, size=size)


def taken(node, volume):
    """Whether the LV of a new volume counts as one that was given out."""
    tags = [line for line in node.run(
        'lvs --noheadings -o lv_tags cinder-volumes').stdout.split()
        if 'localclone.volume=' + volume in line.split(',')]
    return bool(tags) and not any('localclone.newborn' in each.split(',')
                                  for each in tags)


def is_moving(lab, volume):
    """Whether a volume has a move in the database."""
    return any(moving == volume for moving, _token in look.shadows(lab))
