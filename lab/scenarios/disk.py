# SPDX-License-Identifier: Apache-2.0
"""A volume with known data, the guest that uses it, and what verifies it."""

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

#: MiB of what is always free, in each layout.
SPARE = 24
#: Guests write one MiB each time one is started; so many times at most.
AREAS = 24
#: Blocks a second: enough to fall into each step, few enough for many.
RATE = 3
#: The name of a host that does not run the backend.
ELSEWHERE = 'elsewhere'
#: MiB of a GiB.
GIB = 1024

_seeds = itertools.count(1)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a volume has data, in MiB.

    :param fill: how much is filled at first, and what is compared byte by byte
    :param first_area: where guests write
    :param quarters: of the volume that are written at first, too, so that a
        move takes a while; some stays a hole, which no move copies
    :param looked_at: what else is read, written or not; None: all of it
    """

    fill: int
    first_area: int
    quarters: int
    looked_at: tuple[int, ...] | None = None


#: Small volumes, of which every byte is read.
WHOLE = Layout(16, 32, 3)
#: What is written at the volume's new home.
FRESH = 18
#: Volumes of their full size. What makes the copy take long is not read but
#: for a few MiBs.
SAMPLED = Layout(2, 200, 0, (16, FRESH, 100, 300))


def sampled(content, layout, local_only=False):
    """Content, with the MiBs that are to be read.

    :param local_only: what was written at its new home alone
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


def prove(node, what, path, content, timeout=200):
    """Every byte of a device.

    :param content: see :meth:`Disk.content`
    :returns: how many blocks of guests there are, and a digest of all bytes
    :raises LabError: with what is wrong
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

    #: What opens it, if it is encrypted.
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
        #: Only what was written at its home can be read, for now.
        self.local_only = False
        #: It has to stay where it is.
        self.pinned = False
        #: It is deleted, or another volume by now.
        self.gone = False

    # -- data

    def grow(self, size):
        """It has so many GiB from now on; what is new has to be zeros."""
        self.mib = size * 1024 // (self.lab.settings.get('stepping') or 1)
        self.occupied = self.mib * self.layout.quarters // 4

    def content(self):
        """What it must have at this moment, whatever is written later."""
        return {'mib': self.mib, 'fills': list(self.fills),
                'areas': list(self._areas),
                'acknowledged': self.acknowledged()}

    def become(self, content):
        """It has what something else had, as far as that went."""
        self.stop()
        self.fills = list(content['fills'])
        self._areas = list(content['areas'])
        self._before = dict(content['acknowledged'])
        self._sessions = []

    def fill(self, node, first=0, count=None, full=True):
        """Fill MiBs with data that are known.

        :param count: how many; None: those of the layout
        :param full: at first what is ``occupied`` is written, too
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
        """The guest begins to write on a node, where nothing was yet.

        :param path: of the volume there, if it is not the handle's
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
        """The guest ends, if it still runs."""
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
        """The node went down, and the guest with it."""
        if self._on is node:
            self._writer = self._on = None

    @property
    def runs_on(self):
        """The node that the guest runs on, if any."""
        return self._on

    def written(self):
        """How much its guests have reported up to now."""
        return sum(len(each.stdout) for each in self._sessions)

    def check_running(self, seconds=ANSWERED):
        """The guest's writes go on: it is neither suspended nor failed.

        :raises LabError: if not
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
        """Of all guests' blocks, the newest number that the disk confirmed."""
        numbers = dict(self._before)
        for session in self._sessions:
            for line in session.stdout.decode().splitlines(True):
                words = line.split()
                if (len(words) == 2 and words[0].isdigit()
                        and line.endswith('\n')):
                    numbers[int(words[0])] = int(words[1])
        return numbers

    def verify(self, node, timeout=200):
        """Every byte of the volume, on a node, or as many as are looked at.

        :raises LabError: with what is wrong
        """
        return self.verify_at(node, self.path, self.content(), timeout)

    def verify_at(self, node, path, content, timeout=200):
        """The same of any device, and of what there must be there."""
        if self.layout.looked_at is not None:
            content = sampled(content, self.layout, self.local_only)
        return prove(node, self.volume, path, content, timeout)

    def verify_lv(self, node, lv, content):
        """The same of an LV that nothing has active.

        :param lv: with its group
        """
        node.run('lvchange -ay -K ' + lv)
        try:
            return self.verify_at(node, '/dev/' + lv, content)
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

    def _payload(self, node, *words):
        return node.run(_payload_words(node, *words), timeout=120).stdout

    def watch(self, node, seconds):
        """A guest reads the first MiB of what was filled last, over and over.

        :returns: a :class:`lab.core.node.Running`; see :mod:`.payload`
        """
        first, _count, seed = self.fills[-1]
        return node.popen(
            _payload_words(node, 'watch', self.path, first, 1, seed, seconds),
            timeout=seconds + 60)

    def newest_area(self):
        """Where the guest that was started last writes, MiB."""
        return self._areas[-1][0]

    def a_late_block(self):
        """The place of a block that is copied late, as nothing is a hole
        before it (4 KiB blocks).
        """
        return (self.occupied - 8) * 256

    def a_written_block(self):
        """The place of a block that was acknowledged (4 KiB blocks)."""
        return max(self.acknowledged())

    def has_path(self, node):
        """Whether the volume has a handle on a node."""
        return not node.run('test -b ' + self.path, check=False).returncode

    # -- connections

    def attach(self, node, live=False):
        """Attach on a node.

        :param live: while it is attached on the other one
        """
        self.attached[node.name] = self.instance.attach(
            self.volume, node, live=live)

    def attach_elsewhere(self, node):
        """Attach as a host that does not run the backend, which is served.

        :param node: that is this host under another name
        :returns: the attachment, which is not counted as one of a node
        """
        return self.instance.attach(self.volume, node, dict(
            self.instance.connector(node), host=ELSEWHERE, ip='192.0.2.99'))

    def try_attach(self, node, live=False):
        """The same, for who asks again if it is refused."""
        try:
            self.attach(node, live)
        except process.LabError:
            self.forget_failed()
            raise

    def detach(self, node, status='available'):
        """Detach; done again, it is done.

        :param node: or its name
        """
        name = getattr(node, 'name', node)
        self.forget(self.attached[name].id)
        del self.attached[name]
        instances.wait_status(self.instance.nova, self.volume, status, 30)

    def forget(self, attachment):
        """Delete an attachment, if it is still there."""
        answer = self.instance.nova.delete('/attachments/' + attachment)
        if answer.status_code != 404:
            answer.raise_for_status()

    def forget_failed(self):
        """Delete the attachments that a failed request has left."""
        mine = {each.id for each in self.attached.values()}
        for attachment in self.attachments():
            if attachment not in mine:
                self.forget(attachment)

    def forget_others(self, node):
        """Delete all attachments but that of a node."""
        self.attached = {name: each for name, each in self.attached.items()
                         if name == node.name}
        self.forget_failed()

    def attachments(self):
        """The ids of all its attachments."""
        return [each['id'] for each in self.instance.nova.get(
            '/attachments?volume_id=' + self.volume).json()['attachments']]

    # -- the volume

    def home(self):
        """The node that has its data."""
        return instances.home(self.lab, self.volume)

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
        """Return the volume as Cinder shows it to an administrator."""
        return instances.row(self.lab, self.volume)

    def is_moving(self):
        """Return whether the database has a move of the volume."""
        return observe.is_moving(self.lab, self.volume)

    def exists(self):
        """Whether Cinder still has it."""
        answer = self.cinder.request('GET', '/volumes/' + self.volume)
        if answer.status_code == 404:
            return False
        return bool(answer.raise_for_status())

    def remove(self, seconds=150):
        """Detach and delete, by force of the cloud's administrator.

        Its snapshots go with it.
        """
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
        """Those that a fault has left in whatever status can be deleted."""
        for snapshot in self.lab.cinder().get(
                '/snapshots?all_tenants=1&volume_id=' + self.volume).json()[
                    'snapshots']:
            if snapshot['status'] not in ('available', 'error', 'deleting'):
                self.lab.cinder().post(
                    '/snapshots/%s/action' % snapshot['id'],
                    json={'os-reset_status': {'status': 'error'}})
