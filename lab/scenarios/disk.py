# SPDX-License-Identifier: Apache-2.0
"""The model of a volume under test: known data, its guest, verification."""

import dataclasses
import itertools
import json
import threading
import time

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.scenarios import payload
from lab.scenarios.requests import ANSWERED
from lab.scenarios.requests import ask
from lab.scenarios.requests import until

#: A MiB of each layout which is always free.
SPARE = 24
#: The most starts of guests: each start takes one MiB.
AREAS = 24
#: Blocks a second: enough for each step, few enough for many volumes.
RATE = 3
#: The name of a host without the backend.
ELSEWHERE = 'elsewhere'
#: MiB of a GiB.
GIB = 1024

_seeds = itertools.count(1)


@dataclasses.dataclass(frozen=True)
class Layout:
    """The areas of a volume with data, in MiB.

    :param fill: the length filled at first, which is compared byte by byte
    :param first_area: the beginning of the guests' areas
    :param quarters: of the volume, also written at first, so that a move
        takes a while; the rest stays a hole, which no move copies
    :param looked_at: more MiBs to read, written or not; None: all
    """

    fill: int
    first_area: int
    quarters: int
    looked_at: tuple[int, ...] | None = None


#: Small volumes: every byte is read.
WHOLE = Layout(16, 32, 3)
#: The MiB written at the volume's new home.
FRESH = 18
#: Volumes of their full size: only a few MiBs of the long part are read.
SAMPLED = Layout(2, 200, 0, (16, FRESH, 100, 300))


def sampled(content, layout, local_only=False):
    """Return content with the list of the MiBs to read.

    :param content: see :meth:`Disk.content`
    :param local_only: only the MiBs written at the new home
    """
    written = {first + index for first, count, _seed in content['fills']
               if count <= layout.fill for index in range(count)}
    used = {first for first, _count in content['areas']}
    ends = {end for mib in (GIB, content['mib'])
            for end in (mib - 1, mib) if end < content['mib']}
    return dict(content, only=sorted(
        written & {FRESH} | used if local_only
        else written | used | ends | set(layout.looked_at)))


def check_file(path, content):
    """Compare the beginning of a file, such as a backup.

    :param content: see :meth:`Disk.content`
    :raises LabError: if a MiB differs
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


def prove(node, what, path, content, timeout=200):
    """Compare every byte of a device.

    :param what: the name of the volume, for errors
    :param content: see :meth:`Disk.content`
    :returns: the number of guests' blocks, and a digest of all bytes
    :raises LabError: if a byte differs
    """
    result = json.loads(node.run(
        _payload_words(node, 'verify', path), timeout=timeout,
        stdin=json.dumps(content).encode()).stdout)
    if result['count']:
        raise process.LabError('DATA of %s on %s is wrong, %d times: %s' % (
            what, node.name, result['count'], '; '.join(result['bad'][:3])))
    return result


def _payload_words(node, *words):
    return ['/usr/bin/python3', '-S',
            node.lab.repo / 'lab/scenarios/payload.py', *words]


class Disk:
    """A volume of one instance.

    :param user: of its project: 'demo' or 'admin'
    :param layout: WHOLE or SAMPLED
    """

    #: The key of an encrypted volume.
    key = b''

    def __init__(self, lab, volume, user='demo', size=1, layout=WHOLE):
        self.lab = lab
        self.layout = layout
        self.volume = volume
        self.cinder = lab.cinder(user)
        self.instance = instances.Instance(lab)
        self.path = '/dev/mapper/localclone-' + volume
        self.grow(size)
        self.fills = []
        self.attached = {}
        self._areas = []
        self._before = {}
        self._sessions = []
        self._writer = None
        self._writes_to = self.path
        self._on = None
        self._lock = threading.Lock()
        #: Only the data written at its home can be read, for now.
        self.local_only = False
        #: The volume must stay on its node.
        self.pinned = False
        #: The volume is deleted, or has become another volume.
        self.gone = False

    # -- data

    def grow(self, size):
        """Note a new size; the added part must be zeros.

        :param size: GiB
        """
        self.mib = size * 1024 // (self.lab.settings.get('stepping') or 1)
        self.occupied = self.mib * self.layout.quarters // 4

    def content(self):
        """Return the content which the volume must have at this moment."""
        return {'mib': self.mib, 'fills': list(self.fills),
                'areas': list(self._areas),
                'acknowledged': self.acknowledged()}

    def become(self, content):
        """Note that the volume has the content of another one now."""
        self.stop()
        self.fills = list(content['fills'])
        self._areas = list(content['areas'])
        self._before = dict(content['acknowledged'])
        self._sessions = []

    def fill(self, node, first=0, count=None, full=True):
        """Fill MiBs with known data.

        :param count: of MiBs; None: as the layout says
        :param full: the first time, fill the ``occupied`` part, too
        """
        if full and not self.fills and self.occupied:
            self._fill(node, 0, self.occupied)
        self._fill(node, first, count or self.layout.fill)

    def _fill(self, node, first, count):
        seed = '%s-%d' % (self.volume, next(_seeds))
        self._payload(node, 'fill', self.path, first, count, seed)
        self.fills = [each for each in self.fills
                      if each[:2] != [first, count]]
        self.fills.append([first, count, seed])

    def start(self, node, path=None):
        """Start the guest on a node, in an area not written before.

        :param path: of the volume there; None: the handle
        """
        self.stop()
        self._writes_to = path or self.path
        first = self.layout.first_area + len(self._areas)
        self._areas.append([first, 1])
        self._writer = instances.start_writing(
            node, self._writes_to, first, 1, 3600, len(self._areas), RATE)
        self._on = node
        self._sessions.append(self._writer)

    def stop(self):
        """Stop the guest, if it still runs."""
        if self._writer is None:
            return
        deadline = time.monotonic() + 20
        while (self._on.is_on and self._writer.running
               and time.monotonic() < deadline):
            with self._lock:  # again: it may not even have begun
                instances.stop_writing(self._on, self._writes_to)
            self._writer.wait(1)
        self._writer = self._on = None

    def lost_power(self, node):
        """Note that a node went down, and the guest on it."""
        if self._on is node:
            self._writer = self._on = None

    @property
    def runs_on(self):
        """The node of the running guest, if any."""
        return self._on

    def written(self):
        """Return the bytes which its guests have reported up to now."""
        return sum(len(each.stdout) for each in self._sessions)

    def check_running(self, seconds=ANSWERED):
        """Check that the guest goes on to write.

        :raises LabError: if it is suspended, or has failed
        """
        if self._writer is None:
            return
        before = self.written()
        process.wait_for(
            'a write of the guest of %s' % self.volume,
            lambda: self._ended() or self.written() > before, seconds)

    def _ended(self):
        if not self._writer.running:
            raise process.LabError(
                'the guest of %s ended by itself (%s): %s' % (
                    self.volume, self._writer.returncode,
                    self._writer.stderr[-300:].decode(errors='replace')))
        return False

    def acknowledged(self):
        """Return the last confirmed number of each block of the guests."""
        numbers = dict(self._before)
        for session in self._sessions:
            for line in session.stdout.decode().splitlines(True):
                words = line.split()
                if (len(words) == 2 and words[0].isdigit()
                        and line.endswith('\n')):
                    numbers[int(words[0])] = int(words[1])
        return numbers

    def verify(self, node, timeout=200):
        """Compare every byte of the volume, or the MiBs of its layout.

        :raises LabError: if a byte differs
        """
        return self.verify_at(node, self.path, self.content(), timeout)

    def verify_at(self, node, path, content, timeout=200):
        """Compare any device with a content, as :meth:`verify` does."""
        if self.layout.looked_at is not None:
            content = sampled(content, self.layout, self.local_only)
        return prove(node, self.volume, path, content, timeout)

    def verify_lv(self, node, lv, content):
        """Compare an inactive LV with a content, as :meth:`verify` does.

        :param lv: with its group
        """
        node.run('lvchange -ay -K ' + lv)
        try:
            return self.verify_at(node, '/dev/' + lv, content)
        finally:
            node.run('lvchange -an ' + lv, check=False)

    def verify_home(self):
        """Compare the volume at its home, attached or not."""
        node = self.lab.nodes[self.home()]
        process.wait_for('the handle of %s on %s' % (self.volume, node.name),
                         lambda: self.has_path(node), 60, every=1)
        self.verify(node)

    def settle(self, seconds=240):
        """Wait for the end of moves; compare the volume on its guest's node.

        :raises LabError: if a move has not ended in time, or a byte differs
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

    def _payload(self, node, *words):
        return node.run(_payload_words(node, *words), timeout=120).stdout

    def watch(self, node, seconds):
        """Start a guest which reads the last filled MiB over and over.

        :returns: a :class:`lab.core.node.Running`; see :mod:`.payload`
        """
        first, _count, seed = self.fills[-1]
        return node.popen(
            _payload_words(node, 'watch', self.path, first, 1, seed, seconds),
            timeout=seconds + 60)

    def newest_area(self):
        """Return the area of the last guest, MiB."""
        return self._areas[-1][0]

    def a_late_block(self):
        """Return the place of a block which is copied late (4 KiB blocks).

        No hole is before it.
        """
        return (self.occupied - 8) * 256

    def a_written_block(self):
        """Return the place of an acknowledged block (4 KiB blocks)."""
        return max(self.acknowledged())

    def has_path(self, node):
        """Return whether the volume has a handle on a node."""
        return not node.run('test -b ' + self.path, check=False).returncode

    # -- connections

    def attach(self, node, live=False):
        """Attach the volume on a node.

        :param live: for a live migration: it is attached on the other node
        """
        self.attached[node.name] = self.instance.attach(
            self.volume, node, live=live)

    def attach_elsewhere(self, node):
        """Attach the volume on a host without the backend, by an export.

        :param node: acts as this host
        :returns: the attachment, which is not counted as one of a node
        """
        return self.instance.attach(self.volume, node, dict(
            self.instance.connector(node), host=ELSEWHERE, ip='192.0.2.99'))

    def try_attach(self, node, live=False):
        """Attach the volume; remove the attachments of a refused request."""
        try:
            self.attach(node, live)
        except process.LabError:
            self.forget_failed()
            raise

    def detach(self, node, status='available'):
        """Detach the volume; may be repeated.

        :param node: or its name
        """
        name = getattr(node, 'name', node)
        self.forget(self.attached[name].id)
        del self.attached[name]
        instances.wait_status(self.instance.nova, self.volume, status, 30)

    def forget(self, attachment):
        """Delete an attachment, if it still exists."""
        answer = self.instance.nova.delete('/attachments/' + attachment)
        if answer.status_code != 404:
            answer.raise_for_status()

    def forget_failed(self):
        """Delete the attachments of failed requests."""
        mine = {each.id for each in self.attached.values()}
        for attachment in self.attachments():
            if attachment not in mine:
                self.forget(attachment)

    def forget_others(self, node):
        """Delete all attachments except the node's."""
        self.attached = {name: each for name, each in self.attached.items()
                         if name == node.name}
        self.forget_failed()

    def attachments(self):
        """Return the ids of all attachments."""
        return [each['id'] for each in self.instance.nova.get(
            '/attachments?volume_id=' + self.volume).json()['attachments']]

    # -- the volume

    def home(self):
        """Return the name of the volume's home."""
        return instances.home(self.lab, self.volume)

    def act(self, action, client=None, **how):
        """Request an action; return the answer.

        :raises Refused: if the API refuses it
        """
        return ask((client or self.cinder).post(
            '/volumes/%s/action' % self.volume, json={action: how}))

    def admin(self, action, **how):
        """Request an action as an administrator."""
        return self.act(action, self.lab.cinder(), **how)

    def row(self):
        """Return the volume as Cinder shows it to an administrator."""
        return instances.row(self.lab, self.volume)

    def is_moving(self):
        """Return whether the database has a move of the volume."""
        return observe.is_moving(self.lab, self.volume)

    def exists(self):
        """Return whether Cinder still has the volume."""
        answer = self.cinder.request('GET', '/volumes/' + self.volume)
        if answer.status_code == 404:
            return False
        return bool(answer.raise_for_status())

    def remove(self, seconds=150):
        """Detach and delete the volume and its snapshots, by force."""
        self.stop()

        def ask():
            for attachment in self.attachments():
                self.forget(attachment)
            self.attached.clear()
            if not self.exists():
                return
            volume = self.cinder.get('/volumes/' + self.volume).json()[
                'volume']
            if volume['status'] != 'deleting':
                if volume['attachments'] or (
                        volume['status'] not in ('available', 'error')):
                    instances.reset(self.lab, self.volume)
                self._free_snapshots()
                self.cinder.delete('/volumes/%s?cascade=true' % self.volume)
            raise process.LabError('still ' + volume['status'])
        until('volume %s to go' % self.volume, ask, seconds)

    def _free_snapshots(self):
        """Reset snapshots in another status, so that they can be deleted."""
        for snapshot in self.lab.cinder().get(
                '/snapshots?all_tenants=1&volume_id=' + self.volume).json()[
                    'snapshots']:
            if snapshot['status'] not in ('available', 'error', 'deleting'):
                self.lab.cinder().post(
                    '/snapshots/%s/action' % snapshot['id'],
                    json={'os-reset_status': {'status': 'error'}})
