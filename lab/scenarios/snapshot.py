# SPDX-License-Identifier: Apache-2.0
"""A snapshot with what it must have, and volumes that are made of images."""

from lab.core import process
from lab.scenarios import disk as disks
from lab.scenarios import requests

#: Seconds for which what Cinder forgets to delete is waited for.
DELETING = 30


class Snapshot(requests.Request):
    """A snapshot of a disk.

    It may have more of what a guest writes than was acknowledged when it was
    asked for; but whatever it has, it has for ever.

    :param made: its id and content, if somebody else has asked for it
    """

    what = 'the snapshot'

    def __init__(self, disk, *made):
        super().__init__(disk)
        self.id, self.content = made or (None, None)
        #: The node that has it, if that is known.
        self.node = None
        self._digest = None

    @property
    def lv(self):
        """The name of its LV."""
        return '_snapshot-%s' % self.id

    def row(self):
        """What the API shows of it; None if it is gone, or not asked for."""
        return self.id and requests.row_of(
            self.disk.cinder, 'snapshot', self.id)

    def send(self):
        content = self.disk.content()
        self.id = requests.ask(self.disk.cinder.post('/snapshots', json={
            'snapshot': {'volume_id': self.disk.volume}},
        )).json()['snapshot']['id']
        self.content, self._digest = content, None

    def is_done(self):
        return requests.is_available(self.disk.cinder, 'snapshot', self.id)

    def ensure(self):
        row = self.row()
        if row and row['status'] == 'available':
            return
        requests.must(not row or row['status'] != 'creating',
                      'it is still being made')
        if row:
            self.delete()
        self.do()

    def verify(self, node):
        """All that it must have; and nothing of it has changed since.

        :param node: that has it
        :raises LabError: with what is wrong
        """
        digest = self.disk.verify_lv(node, 'cinder-volumes/' + self.lv,
                                     self.content)['digest']
        if self._digest not in (None, digest):
            raise process.LabError(
                'snapshot %s has changed since it was taken' % self.id)
        self._digest = digest

    def ask_to_delete(self):
        """Send the request; it may just have gone.

        :raises Refused: if it is refused
        """
        answer = self.disk.cinder.delete('/snapshots/' + self.id)
        if answer.status_code != 404:
            requests.ask(answer)

    def wait_deleted(self, seconds=requests.ANSWER):
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
            requests.until('snapshot %s to go' % self.id, ask, 240)

    def _reset(self):
        self.disk.lab.cinder().post(
            '/snapshots/%s/action' % self.id,
            json={'os-reset_status': {'status': 'error'}}).raise_for_status()


class Uncommitted(requests.Request):
    """A volume that is made of another, or of a snapshot.

    It has what that has when it is asked for; beyond its end are zeros.

    :param gib: how large it is
    :param snapshot: of the disk, if it is made of that
    """

    what = 'a volume that is made'

    def __init__(self, disk, gib=1, snapshot=None):
        super().__init__(disk)
        self.gib = gib
        self.snapshot = snapshot
        #: The volume, once it was asked for.
        self.made = None

    def send(self):
        if self.snapshot:
            image = {'snapshot_id': self.snapshot.id}
            content = self.snapshot.content
        else:
            image = {'source_volid': self.disk.volume}
            content = self.disk.content()
        volume = requests.ask(self.disk.cinder.post('/volumes', json={
            'volume': dict(image, size=self.gib)})).json()['volume']['id']
        self.made = disks.Disk(self.disk.lab, volume, size=self.gib,
                               layout=self.disk.layout)
        self.made.become(content)

    def is_done(self):
        return requests.is_available(
            self.disk.cinder, 'volume', self.made.volume)

    def ensure(self):
        row = self.made and requests.row_of(
            self.disk.cinder, 'volume', self.made.volume)
        requests.must(not row or row['status'] != 'creating',
                      'it is still being made')
        if not row or row['status'] != 'available':
            self.remove()
            self.do()

    def remove(self):
        """Delete it, if it was made."""
        if self.made:
            self.made.remove()
            self.made = None


def taken(node, volume):
    """Whether the LV of a new volume counts as one that was given out."""
    tags = [line for line in node.run(
        'lvs --noheadings -o lv_tags cinder-volumes').stdout.split()
        if 'localclone.volume=' + volume in line.split(',')]
    return bool(tags) and not any('localclone.uncommitted' in each.split(',')
                                  for each in tags)
