# SPDX-License-Identifier: Apache-2.0
"""One volume: what it must contain, wherever it is, and its snapshot."""

import time

from lab.core import look
from lab.core import process
from lab.scenarios import disk as disks
from lab.scenarios import payload

#: MiBs: what is filled at first, what is written over after the snapshot
#: was taken, where else something is written then.
FILL, OVER, LATER = 2, 1, 16
#: Where guests write: what was written of it is local, wherever it moves.
AREA = 200
#: MiB that is written at the volume's new home.
FRESH = 18
#: MiBs that are looked at, whether they were written or not; of what makes the
#: copy take long, only these.
LOOKED_AT = (LATER, FRESH, 100, 300)
GIB = 1024


class Refused(Exception):
    """A request that is not done, and says so at once or later."""


class TakesTooLong(Exception):
    """A request that has neither been done nor failed by now."""


def ask(answer):
    """The answer to a request, if it was accepted.

    :raises Refused: if it was not
    """
    if answer.status_code >= 400:
        raise Refused('HTTP %d: %s' % (answer.status_code,
                                       answer.text[:500]))
    return answer


def wait(what, check, seconds, every=0.7):
    """Poll until ``check()`` is true; its value.

    :raises TakesTooLong: if it never is
    """
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TakesTooLong('%s: not within %d s' % (what, seconds))
        time.sleep(every)


class Subject(disks.Disk):
    """A volume under test."""

    def __init__(self, lab, volume, user='demo', size=1):
        super().__init__(lab, volume, user, size)
        self.occupied = 0
        self.first_area = AREA
        self.snapshot = self.snapshot_at = None
        self.image = None
        #: Only what was written at its home can be read, for now.
        self.local_only = False
        #: It has to stay where it is.
        self.pinned = False
        #: It is deleted, or another volume by now.
        self.gone = False

    # -- data

    def occupy(self, node):
        """Its first data, before anything is asked for."""
        self.fill(node, 0, FILL)

    def write_over(self, node):
        """What its snapshot must not have."""
        self.fill(node, 0, OVER)
        self.fill(node, LATER, OVER)

    def verify_at(self, node, path, content, timeout=200):
        """Any device, where there is something to be seen."""
        return super().verify_at(
            node, path, looked_at(content, self.local_only), timeout)

    def contains(self, image):
        """From now on, all that an image has and nothing else."""
        self.stop()
        self.fills, self._areas = list(image['fills']), list(image['areas'])
        self._sessions = []

    # -- what Cinder says

    def act(self, action, client=None, **how):
        """Ask for an action; the answer.

        :raises Refused: if the API refuses it
        """
        return ask((client or self.cinder).post(
            '/volumes/%s/action' % self.volume, json={action: how}))

    def admin(self, action, **how):
        """The same, as an administrator."""
        return self.act(action, self.lab.cinder(), **how)

    def row(self):
        """The volume as the administrator sees it."""
        return self.lab.cinder().get('/volumes/' + self.volume).json()[
            'volume']

    def is_moving(self):
        """Whether the records have a move of it."""
        return any(volume == self.volume
                   for volume, _token in look.shadows(self.lab))

    # -- snapshots

    def take_snapshot(self, seconds=90):
        """Ask for a snapshot, wait for it; its id.

        :raises Refused: if there is none in the end
        """
        snapshot = ask(self.cinder.post('/snapshots', json={'snapshot': {
            'volume_id': self.volume}})).json()['snapshot'][
                'id']
        self.wait_snapshot(snapshot, seconds)
        return snapshot

    def wait_snapshot(self, snapshot, seconds=90):
        """Wait until a snapshot can be used."""
        def taken():
            status = self.cinder.get('/snapshots/' + snapshot).json()[
                'snapshot']['status']
            if status.startswith('error'):
                raise Refused('snapshot %s: %s' % (snapshot, status))
            return status == 'available'
        wait('snapshot %s' % snapshot, taken, seconds)

    def drop_snapshot(self, snapshot, seconds=90):
        """Delete a snapshot, in whichever status, and wait until it is gone.
        """
        path = '/snapshots/' + snapshot
        found = self.cinder.request('GET', path)
        if found.status_code == 404:
            return
        if found.json()['snapshot']['status'] not in ('available', 'error'):
            self.lab.cinder().post(path + '/action', json={
                'os-reset_status': {'status': 'error'}})
        ask(self.cinder.delete(path))
        wait('snapshot %s to go' % snapshot, lambda: self.cinder.request(
            'GET', path).status_code == 404, seconds)

    # -- proof

    def verify_snapshot(self, node, snapshot, image):
        """A snapshot's LV, on the node that has it, against an image."""
        self.verify_lv(node, 'cinder-volumes/_snapshot-' + snapshot, image)

    def verify_lv(self, node, lv, image):
        """An LV that nothing has active, against an image."""
        node.run('lvchange -ay -K ' + lv)
        try:
            self.verify_at(node, '/dev/' + lv, image)
        finally:
            node.run('lvchange -an ' + lv, check=False)

    def verify_home(self):
        """The volume at its home, where nobody need have attached it."""
        node = self.lab.nodes[self.home()]
        process.wait_for('the handle of %s on %s' % (self.volume, node.name),
                         lambda: self.has_path(node), 60, every=1)
        self.verify(node)

    def settle(self, seconds=240):
        """All is over: it is where its guest is, with all that it had.

        :raises LabError: if not
        """
        guest = self.runs_on
        if guest and not self.pinned:
            process.wait_for('%s to be at %s' % (self.volume, guest.name),
                             lambda: self.home() == guest.name, seconds,
                             every=1)
        process.wait_for('the moves of %s to end' % self.volume,
                         lambda: not self.is_moving(), seconds, every=1)
        if guest:
            self.check_running()
            self.stop()
            self.verify(guest)
        else:
            self.verify_home()

    # -- away with it

    def remove(self, seconds=150):
        """Delete it, and its snapshots."""
        self.stop()
        for snapshot in self.cinder.get(
                '/snapshots?all_tenants=1&volume_id=' + self.volume).json()[
                    'snapshots']:
            self.drop_snapshot(snapshot['id'])
        super().remove(seconds)


def looked_at(content, local_only=False):
    """Content, with the MiBs that are to be read.

    :param local_only: what was written at its new home alone
    """
    written = {first + index for first, count, _seed in content['fills']
               if count <= FILL for index in range(count)}
    used = {first for first, _count in content['areas']}
    ends = {end for mib in (GIB, content['mib'])
            for end in (mib - 1, mib) if end < content['mib']}
    return dict(content, only=sorted(
        written & {FRESH} | used if local_only
        else written | used | ends | set(LOOKED_AT)))


def check_file(path, content):
    """A file, such as a backup, against what there must be at its beginning.

    :raises LabError: with what is wrong
    """
    filled = {first + index: (seed, index)
              for first, count, seed in content['fills']
              for index in range(count)}
    with open(path, 'rb') as data:
        for mib in range(max(filled) + 1):
            found = data.read(payload.MIB)
            wanted = payload.known(*filled[mib]) if mib in filled else (
                bytes(payload.MIB))
            if found != wanted:
                raise process.LabError('MiB %d of %s is not as it was '
                                       'filled' % (mib, path))


def newborn(subject, volume, size, image):
    """A volume that was made of an image, at its home, verified.

    :param image: what there must be; beyond its end are zeros
    """
    born = Subject(subject.lab, volume, size=size)
    born.fills, born._areas = image['fills'], image['areas']
    node = subject.lab.nodes[born.home()]
    born.verify_at(node, born.path, dict(image, mib=size * GIB))
    return born


def wait_volume(cinder, volume, seconds, wanted='available'):
    """Wait for a volume's status.

    :raises Refused: if it is an error
    """
    def there():
        status = cinder.get('/volumes/' + volume).json()['volume']['status']
        if status.startswith('error'):
            raise Refused('volume %s: %s' % (volume, status))
        return status == wanted
    wait('volume %s to be %s' % (volume, wanted), there, seconds)
