# SPDX-License-Identifier: Apache-2.0
"""What is asked of Cinder about one volume, and when it is done.

A request is sent once by who wants to know what comes of it, and again and
again, until it is done, by who tries it while something breaks.
"""

import time

from lab.core import process

#: Seconds for Cinder to answer what it has accepted: its services wait for
#: each other, one after the other.
ANSWER = 140
#: Seconds until a request is answered, or was repeated until it was; until
#: what follows by itself is done. Twenty volumes at a time share two small
#: nodes, which may have to boot before.
ANSWERED = 300


class Refused(process.LabError):
    """A request that is not done, and says so at once or later."""


class TakesTooLong(process.LabError):
    """A request that has neither been done nor failed by now."""


def must(held, otherwise):
    """:raises LabError: saying otherwise, unless it held"""
    if not held:
        raise process.LabError(otherwise)


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


def until(what, call, seconds=ANSWERED, every=2):
    """Repeat a request until it is answered; its result.

    As a user, or Nova, would: what was refused or lost is asked again.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (process.LabError, OSError) as exc:
            if time.monotonic() > deadline:
                raise process.LabError(
                    'timed out after %d s waiting for %s: %s' % (
                        seconds, what, str(exc)[:400]))
        time.sleep(every)


def row_of(cinder, kind, key):
    """What the API shows of something; None if it is gone.

    :param kind: 'volume' or 'snapshot'
    """
    answer = cinder.request('GET', '/%ss/%s' % (kind, key))
    if answer.status_code == 404:
        return None
    return answer.raise_for_status().json()[kind]


def told(cinder, resource):
    """What the owner of something was told last; '' if nothing was."""
    return next((message['user_message'] for message in cinder.get(
        '/messages?sort=created_at:desc').json()['messages']
        if message['resource_uuid'] == resource), '')


def is_available(cinder, kind, key):
    """Whether something is there.

    :raises Refused: if it is gone, or in error; says what its owner is told
    """
    row = row_of(cinder, kind, key)
    if row is None or row['status'].startswith('error'):
        raise Refused('%s %s: %s: %s' % (
            kind, key, row['status'] if row else 'gone', told(cinder, key)))
    return row['status'] == 'available'


class Request:
    """One request about a volume.

    :param disk: the volume, a :class:`.disk.Disk`
    """

    #: In words, for who waits for it.
    what = ''

    def __init__(self, disk):
        self.disk = disk

    def send(self):
        """Send it.

        :raises Refused: if the API refuses it
        """
        raise NotImplementedError()

    def is_done(self):
        """Whether it is done.

        :raises Refused: if it is not going to be
        """
        raise NotImplementedError()

    def wait(self, seconds=ANSWER):
        """Wait until it is done.

        :raises Refused: if it is not going to be
        :raises TakesTooLong: if it is neither by then
        """
        wait('%s of %s' % (self.what, self.disk.volume), self.is_done,
             seconds)

    def do(self, seconds=ANSWER):
        """Send it and wait for it; see :meth:`send`, :meth:`wait`."""
        self.send()
        self.wait(seconds)

    def ensure(self):
        """Send it again unless it is done; for :func:`until`.

        :raises LabError: if it is not done yet
        """
        raise NotImplementedError()


class Extension(Request):
    """A larger volume.

    :param gib: how large
    """

    what = 'the extension'

    def __init__(self, disk, gib):
        super().__init__(disk)
        self.gib = gib
        self.status = 'available'

    def send(self):
        self.status = self.disk.row()['status']
        self.disk.act('os-extend', new_size=self.gib)

    def reset(self):
        """Give the volume its status again, as its administrator would.

        Cinder has no other end for what a driver refuses.
        """
        self.disk.admin('os-reset_status', status=self.status)

    def is_done(self):
        row = self.disk.row()
        if row['status'] == 'extending':
            return False
        if row['status'] != self.status or row['size'] != self.gib:
            raise Refused('it was not extended, status %s: %s' % (
                row['status'], told(self.disk.cinder, self.disk.volume)))
        return True

    def ensure(self):
        row = self.disk.row()
        must(row['status'] != 'extending', 'it is still being extended')
        if row['status'] != self.status:
            self.reset()
        if row['size'] != self.gib:
            self.do()


class Reversion(Request):
    """A volume goes back to a snapshot of its own.

    :param snapshot: a :class:`.snapshot.Snapshot`
    """

    what = 'the revert'

    def __init__(self, disk, snapshot):
        super().__init__(disk)
        self.snapshot = snapshot

    def send(self):
        self.disk.act('revert', snapshot_id=self.snapshot.id)

    def is_done(self):
        return is_available(self.disk.cinder, 'volume', self.disk.volume)


class Migration(Request):
    """Cinder's own migration, asked for by an administrator.

    :param host: the pool that it goes to
    """

    what = "Cinder's migration"

    def __init__(self, disk, host):
        super().__init__(disk)
        self.host = host
        self.status = 'available'

    def send(self):
        self.status = self.disk.row()['status']
        self.disk.admin('os-migrate_volume', host=self.host,
                        force_host_copy=False)

    def has_ended(self):
        """Whether none is under way, whatever came of it."""
        row = self.disk.row()
        return row['status'] == self.status and row['migration_status'] in (
            None, 'none', 'success', 'error')

    def is_there(self):
        """Whether the volume is at that host, in any of its pools."""
        return self.disk.row()['os-vol-host-attr:host'].startswith(
            self.host.partition('#')[0])

    def is_done(self):
        if not self.has_ended():
            return False
        if self.disk.row()['migration_status'] == 'error' or (
                not self.is_there()):
            raise Refused('it was not migrated: ' + told(
                self.disk.cinder, self.disk.volume))
        return True

    def ensure(self):
        must(self.has_ended(), 'it is being migrated')
        if not self.is_there():
            self.do()


class Deletion(Request):
    """A volume is deleted.

    :param query: of the request
    """

    what = 'the deletion'

    def __init__(self, disk, query=''):
        super().__init__(disk)
        self.query = query

    def send(self):
        """Send it; it may just have gone."""
        answer = self.disk.cinder.delete('/volumes/%s%s' % (
            self.disk.volume, self.query))
        if answer.status_code != 404:
            ask(answer)

    def is_done(self):
        return not self.disk.exists()

    def ensure(self):
        if not self.disk.exists():
            return
        if self.disk.row()['status'] != 'deleting':
            self.send()
        raise process.LabError('%s is still there' % self.disk.volume)
