# SPDX-License-Identifier: Apache-2.0
"""The steps of the encryption story for one type of encryption."""

import time

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.core import report as reports
from lab.encryption import watching
from lab.guest import console as guest_console
from lab.keys import leaks
from lab.keys import secrets
from lab.keys import types
from lab.keys import volumes
from lab.nova import compute
from lab.nova import server as servers
from lab.scenarios.requests import must

#: The owner of the volumes. Only administrators migrate servers, and only
#: members of a key's own project may read the key of Nova's encryption.
OWNER = 'admin'
#: The last steps of each chapter.
LAST = ('keys', 'shred')
#: The LV with a stolen copy of a header.
_STOLEN = 'cinder-volumes/stolen'


def drop_stolen(node):
    """Remove the stolen copy of a header from a node, if it exists."""
    node.run('if lvs %s; then lvremove -q -f %s; fi' % (_STOLEN, _STOLEN),
             check=False)


class Chapter:
    """The steps; each begins with the state after its predecessor.

    :param way: a class of :mod:`lab.keys.volumes`: the type of encryption
    """

    #: The title of each step, by the name of its method.
    STEPS = {
        'create': 'volumes of the type, one of them from an image',
        'readers': 'the secret: only its owner reads or deletes it',
        'boot': 'a server boots, a second volume is attached',
        'sizes': 'the guest gets exactly what the volume has for it',
        'disks': 'what the guest writes is on no disk to be read',
        'reboot': 'hard reboot: the guest finds all that it wrote',
        'live': 'live migration while the guest writes',
        'tap': 'control: of a plain volume the link shows the mark',
        'cold': 'cold migration',
        'power': 'the node loses power; unlocked at boot',
        'away': 'the key manager is away: attach refused, nothing touched',
        'copies': 'a snapshot and a clone: the guest reads them',
        'keys': 'no key in logs, command lines, bus, databases',
        'shred': 'deleted: secret gone, an old copy of the header is locked',
    }

    def __init__(self, lab, report, way):
        self.lab = lab
        self.report = report
        self.way = way
        self.cinder = lab.cinder(OWNER)
        self.n1, self.n2 = lab.nodes.values()
        self.server = None
        self.data = self.root = self.plain = None
        self.header = ''
        self.listener = None

    def run(self):
        """Run all steps; after a failed step, none."""
        self.report.part = self.way.name
        left = list(self.STEPS)
        with leaks.Listener(self.lab) as self.listener:
            try:
                while left:
                    name = left.pop(0)
                    with self.report.doing(self.STEPS[name]) as row:
                        getattr(self, name)(row)
            except reports.Failed:
                self.report.leave_out(*[self.STEPS[name] for name in left])

    # -- the steps

    def create(self, row):
        if self.way.type_name not in self.cinder.get('/types').text:
            types.make(self.lab, self.way.type_name, self.way.encryption,
                       self.way.specs)
        began = time.monotonic()
        self.data = self._volume()
        data = time.monotonic() - began
        began = time.monotonic()
        self.root = self._volume(servers.image(self.lab))
        row.detail = 'one %.1f s, from the image %.1f s' % (
            data, time.monotonic() - began)
        self.plain = instances.create_volume(self.cinder, 1, node='node1')
        for volume in self.data, self.root:
            must(volumes.lv_bytes(self.lab, self.n1, volume)
                 == self.way.lv_bytes(1), 'an LV is of another size')
        self.header = self._header()

    def readers(self, row):
        reference, = self.way.references(self.data)
        found = {user: secrets.Secrets(self.lab, user).read(reference)[0]
                 for user in ('admin', 'cinder', 'demo')}
        must(found == {user: 200 if user == self.way.reader else 403
                       for user in found}, 'HTTP %s' % found)
        must(secrets.Secrets(self.lab, 'demo').delete(reference) == 403,
             'a member of another project may delete it')
        row.detail = self.way.reader

    def boot(self, row):
        self.server = servers.Server.boot(self.lab, self.root, 'node1')
        row.detail = 'attach %.1f s, of a plain volume %.1f s' % (
            self.server.attach(self.data), self.server.attach(self.plain))
        self._writes()
        shown = self.n1.run(['virsh', 'dumpxml', self.server.domain]).stdout
        for volume in self.data, self.root:
            must(self.way.path(volume) in shown,
                 'the guest has another path than ' + self.way.path(volume))

    def sizes(self, row):
        for volume, wanted in ((self.root, self.way.bytes_of(1)),
                               (self.data, self.way.bytes_of(1)),
                               (self.plain, volumes.GIB)):
            found = self.server.disk_bytes(volume)
            must(found == wanted, '%d bytes, not %d' % (found, wanted))
        row.detail = '%d bytes of 1 GiB' % self.way.bytes_of(1)

    def disks(self, row):
        readable = watching.readable_lvs(self.lab)
        plain = 'node1', volumes.backing(self.lab, self.plain)
        must(plain in readable, 'control: not even of a plain volume')
        must(readable == [plain], 'the mark can be read: %s' % readable)
        row.detail = 'found on the LV of the plain volume alone'

    def reboot(self, row):
        self.server.detach(self.plain)
        written = self.server.written()
        self.server.reboot()
        self._found(written)
        self._same_header()

    def live(self, row):
        with watching.unread(row, self.n1, self.n2):
            seconds = self.server.migrate(self.n2)
            rate = self._moved_to(self.n2)
            self._writes()
        self._same_header()
        row.detail += '; migrated in %.1f s, copied at %s' % (seconds, rate)
        must(observe.volume_lvs(self.n1) == [
            volumes.backing(self.lab, self.plain)], 'node1 still has an LV')

    def tap(self, row):
        with watching.tap(self.n1) as seen:
            self.server.attach(self.plain)
            observe.wait_no_move(self.lab, self.plain, servers.COPY_TIMEOUT)
        must(seen.found, 'nothing was found where it must be')
        row.detail = '%d times in %d MiB' % (
            seen.found, seen.seen // volumes.MIB)
        self.server.detach(self.plain)

    def cold(self, row):
        written = self.server.written()
        with watching.unread(row, self.n1, self.n2):
            self.server.cold_migrate(self.n1)
            self._moved_to(self.n1)
            self._found(written)
        self._same_header()
        self.server.confirm()

    def power(self, row):
        self._writes()
        written = self.server.written()
        if self.way.unlocks_at_boot:
            volumes.key_manager(self.lab, False)
        self.n1.power_cut()
        self.n1.power_on()
        self.listener.watch(self.n1)
        must(not self.n1.operator('node', 'restore').returncode,
             'restore failed')
        if self.way.unlocks_at_boot:
            self._unlock(row)
        began = time.monotonic()
        self.lab.start_services(self.n1)
        self.lab.wait_for_services()
        compute.wait(self.lab)
        if not self.way.unlocks_at_boot:
            self.server.reboot_failed()
        self._found(written)
        row.detail += 'services and guest again after %.0f s' % (
            time.monotonic() - began)
        self._same_header()

    def _unlock(self, row):
        """Unlock: refused within a time limit without the key manager."""
        began = time.monotonic()
        done = self.n1.operator('node', 'unlock', '--seconds', '10')
        seconds = time.monotonic() - began
        must(done.returncode == 1 and 'locked' in done.stdout
             and not self._is_open(self.n1, self.data),
             'not locked: %s %s' % (done.stdout[-300:], done.stderr[-300:]))
        row.detail = 'key manager down: locked, said after %.0f s; ' % seconds
        volumes.key_manager(self.lab, True)
        began = time.monotonic()
        done = self.n1.operator('node', 'unlock')
        must(not done.returncode and self._is_open(self.n1, self.data)
             and self._is_open(self.n1, self.root),
             'not unlocked: ' + done.stdout[-300:] + done.stderr[-300:])
        row.detail += 'up: unlocked in %.1f s; ' % (time.monotonic() - began)

    def away(self, row):
        serial = guest_console.serial(self.data)
        written = self.server.written()[serial]
        self.server.detach(self.data)
        volumes.key_manager(self.lab, False)
        try:
            row.detail = self._refused()
            self.server.wait_writing()
        finally:
            volumes.key_manager(self.lab, True)
        must(instances.home(self.lab, self.data) == 'node1'
             and not observe.move_records(self.lab), 'the volume has moved')
        self._same_header()
        self._attach_again()
        self._found({serial: written})

    def _refused(self):
        """Request an attach without the key; return the refusal in words.
        """
        if not self.way.unlocks_at_boot:  # Nova reads the key itself
            self._given_back()
            return 'Nova has given it back'
        instance = instances.Instance(self.lab, user=OWNER)
        for node in self.n2, self.n1:
            attachment = instance.reserve(self.data)
            answer = instance.connect(attachment, instance.connector(node))
            instance.nova.delete('/attachments/' + attachment)
            must(answer.status_code >= 400, 'it was not refused')
            must(not self._is_open(node, self.data), 'it was opened')
        instances.wait_status(self.cinder, self.data, 'available')
        process.wait_for('the roll-back',
                         lambda: not observe.move_records(self.lab),
                         60)
        left = observe.leftovers(self.n2, self.data) + [
            lv for lv in observe.volume_lvs(self.n2)
            if lv != volumes.backing(self.lab, self.plain)]
        must(not left, 'left on node2: %s' % left)
        return 'refused on both nodes'

    def _given_back(self):
        """Have Nova fail to attach the volume: it must release the volume.
        """
        self.server.begin_attach(self.data)
        instances.wait_status(self.cinder, self.data, 'available', 180)
        process.wait_for('Nova to give it back', lambda: (
            self.data not in self.server.attachments()), 60)

    def _attach_again(self):
        """Attach the volume, once the key manager is asked again."""
        def settled():
            status = instances.row(self.lab, self.data)['status']
            return status if status in ('in-use', 'available') else None

        def attach():
            self.server.begin_attach(self.data)
            return process.wait_for('the attach', settled, 180,
                                    every=1) == 'in-use'
        process.wait_for('an attach that is not refused', attach, 360,
                         every=3)
        self.server.volumes.append(self.data)

    def copies(self, row):
        self._writes()
        written = self.server.written()[guest_console.serial(self.data)]
        snapshot = instances.create_snapshot(self.cinder, self.data)
        made = self._copy(snapshot_id=snapshot)
        instances.delete_snapshot(self.cinder, snapshot)
        self.server.detach(self.data)
        clone = self._copy(source_volid=self.data)
        for volume in made, clone:
            self.server.attach(volume)
            self.server.wait_copied(volume, written).check()
            self.server.detach(volume)
        must(not watching.readable_lvs(self.lab) or [
            lv for _node, lv in watching.readable_lvs(self.lab)] == [
                volumes.backing(self.lab, self.plain)], 'the mark can be read')
        for volume in made, clone:
            self.cinder.delete('/volumes/' + volume).raise_for_status()
        row.detail = 'the guest found number %d in each' % written
        self.server.attach(self.data)

    def keys(self, row):
        keys = {self.way.key(volume) for volume in (self.data, self.root)}
        found = self.listener.leaks(keys)
        must(not found, 'a key is in: ' + ', '.join(found))
        row.detail = '%d bytes on the bus, %d command lines' % (
            self.listener.heard)

    def shred(self, row):
        key = self.way.key(self.data)
        references = self.way.references(self.data)
        stolen, node = '/dev/' + _STOLEN, self._home()
        node.run(
            'lvcreate -q -y -T -V 32m -n stolen '
            'cinder-volumes/cinder-volumes-pool && '
            'dd if=%s of=%s bs=1M count=17 iflag=direct oflag=direct '
            'status=none' % (volumes.backing_path(self.lab, self.data),
                             stolen))
        must(volumes.opens(node, stolen, key),
             'control: the copy of the header is not opened by the key')
        self.server.delete()
        instances.delete_volumes(self.cinder, self.data, self.root,
                                 self.plain)
        statuses = {self.way.secrets.read(reference)[0]
                    for reference in references}
        must(statuses == {404}, 'the secret can be read: %s' % statuses)
        must(not volumes.opens(node, stolen, b'0' * len(key)),
             'a key of zeros opens the copy of the header')
        drop_stolen(node)
        left = [each for node in self.lab.nodes.values()
                for volume in (self.data, self.root)
                for each in observe.leftovers(node, volume)]
        must(not left, 'left: %s' % left)
        row.detail = 'the secret, which opened it before, is gone (404)'

    # -- parts of steps

    def _volume(self, image=None):
        return instances.create_volume(
            self.cinder, 1, self.way.type_name, 240, 'node1', image)

    def _copy(self, **source):
        return instances.create_volume(self.cinder, 1, None, 180, **source)

    def _home(self):
        return self.lab.nodes[instances.home(self.lab, self.data)]

    def _header(self):
        """Return the checksum of the header at the volume's home."""
        return volumes.header(
            self._home(), volumes.backing_path(self.lab, self.data),
            self.way.header_bytes // volumes.MIB)

    def _same_header(self):
        must(self._header() == self.header, 'the header is another one')

    def _is_open(self, node, volume):
        return volumes.has_device(node, self.way.top + volume)

    def _writes(self):
        """Check that the guest writes to all volumes and reads them back."""
        self.server.wait_verified().check()

    def _found(self, written):
        """Check that the guest finds its blocks again, and writes on."""
        self.server.wait_found(written).check()
        self._writes()

    def _moved_to(self, node):
        """Wait until all volumes are copied to a node; return the rate."""
        self.server.wait_homes(180)
        rate = self.report.watch_copies(node, servers.COPY_TIMEOUT)
        self.server.wait_no_move()
        return rate
