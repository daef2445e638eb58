# SPDX-License-Identifier: Apache-2.0
"""Volumes that Nova encrypts: real Nova, libvirt, QEMU and Barbican.

The header of a volume must never change: a header written again is a lost
volume.
"""

from lab.core import capture
from lab.core import instance as instances
from lab.core import process
from tests.functional import encrypted

GIB = 1 << 30
#: Reads of the header fail, and writes succeed, so that Nova formats.
BLIND = ('0 4096 flakey {0} {1} 0 1 1 error_reads\\n'
         '4096 {2} linear {0} {3}\\n')


class GuestTest(encrypted.ServerTest):
    """Tests with writing guests; see guest.c."""

    def test_only_the_guest_reads_what_it_wrote_at_length(self):
        volume = self.encrypted(self.n1)
        plain = self.volume()
        before = self.header(self.n1, volume)
        self.n1.run('cryptsetup isLuks --type luks1 --disable-locks '
                    + self.backing(volume))
        server, root = self.boot(self.n1, volume, plain)
        for each in (volume, root):
            self.assertFalse(self.has_mark(self.n1, each))
            self.assertEqual(GIB - encrypted.HEADER,
                             server.disk_bytes(each))
            self.assertIn('/dev/localclone/' + each, self.n1.run(
                ['virsh', 'dumpxml', server.domain]).stdout)
        # The check can tell.
        self.assertTrue(self.has_mark(self.n1, plain))
        self.assertEqual(GIB, server.disk_bytes(plain))
        written = server.written()
        server.reboot()
        server.wait_found(written)
        self.assertEqual(before, self.header(self.n1, volume))
        server.detach(volume)
        self.assertEqual('', self.n1.run('ls /dev/localclone/' + volume,
                                         check=False).stdout)
        server.attach(volume)
        server.wait_found(written)
        self.assertTrue(server.console().clean)

    def test_follows_its_guest_at_length(self):
        volume = self.encrypted(self.n1)
        before = self.header(self.n1, volume)
        server, _root = self.boot(self.n1, volume)
        with capture.Capture(self.n1, encrypted.MARK) as tap:
            server.migrate(self.n2)
            server.wait_verified()
            server.wait_no_move()
        self.assertGreater(tap.seen, encrypted.MIB)
        self.assertEqual(0, tap.found)  # it can tell: see below
        self.assertEqual('node2', instances.home(self.lab, volume))
        self.assertEqual(before, self.header(self.n2, volume))
        self.assertTrue(server.console().clean)

    def test_after_a_power_cut_at_length(self):
        volume = self.encrypted(self.n2)
        plain = self.volume()
        before = self.header(self.n2, volume)
        server, _root = self.boot(self.n2, volume)
        written = server.written()
        self.n2.power_cut()
        self.n2.power_on()
        # As the unit does, before Nova starts.
        self.assertEqual(0, self.n2.operator('node', 'restore').returncode)
        self.lab.start_services(self.n2)
        server.reboot_failed(180)
        server.wait_found(written)
        server.wait_verified()
        self.assertEqual(before, self.header(self.n2, volume))
        server.detach(volume)
        # Attach it to a server on the other node.
        other, _root = self.boot(self.n1)
        other.attach(volume)
        other.wait_found({volume[:20]: written[volume[:20]]})
        other.wait_no_move()
        self.assertEqual(before, self.header(self.n1, volume))
        # The tap can tell.
        other.attach(plain)
        other.wait_verified()
        other.detach(plain)
        with capture.Capture(self.n1, encrypted.MARK) as tap:
            server.attach(plain)
            server.wait_no_move()
        self.assertGreater(tap.found, 0)

    def test_grows_and_is_copied_at_length(self):
        volume = self.encrypted(self.n1)
        server, root = self.boot(self.n1, volume)
        written = server.written()[volume[:20]]
        snapshot = instances.create_snapshot(self.owner, volume)
        made = self.encrypted(snapshot_id=snapshot)
        self.owner.delete('/snapshots/' + snapshot).raise_for_status()
        server.detach(volume)
        clone = self.encrypted(source_volid=volume)
        last = server.wait_guest('have let the disk go', lambda console: (
            volume[:20] in console.gone)).gone[volume[:20]]['sum']
        for each, least in ((made, written), (clone, 0)):
            self.assertNotEqual(self.row(volume)['encryption_key_id'],
                                self.row(each)['encryption_key_id'])
            server.attach(each)
            copy = server.wait_copied(each, least).copies[each[:20]]
            if each == clone:  # and the last write before the detach
                self.assertGreaterEqual(copy['sum'], last)
            self.assertTrue(server.console().clean)
            server.detach(each)
            self.assertFalse(self.has_mark(self.n1, each))
        before = self.header(self.n1, volume)
        server.attach(volume)
        self.act(volume, 'os-extend', new_size=2).raise_for_status()
        process.wait_for('the volume to grow', lambda: self.row(
            volume)['size'] == 2, 90, every=1)
        # Nova has no way to tell QEMU of a longer local disk.
        server.reboot()
        self.assertEqual(2 * GIB - encrypted.HEADER,
                         server.disk_bytes(volume))
        server.wait_verified()
        self.assertEqual(before, self.header(self.n1, volume))
        self.assertFalse(self.has_mark(self.n1, volume))
        server.delete()
        instances.delete_volumes(self.owner, volume, made, clone, root)


class HeaderTest(encrypted.EncryptedTest):
    """Requests of Nova and os-brick on a header, without a guest."""

    owner_name = 'demo'

    def setUp(self):
        super().setUp()
        self.volume_id = self.encrypted(self.n1)
        self.before = self.header(self.n1, self.volume_id)
        self.attached = self.instance.attach(self.volume_id, self.n1)

    def test_it_is_opened_by_the_owners_key(self):
        self.n1.run(['cryptsetup', 'open', '--test-passphrase', '--key-file',
                     '-', self.attached.path],
                    stdin=self.key(self.volume_id).encode())
        self.assertEqual('/dev/localclone/' + self.volume_id,
                         self.attached.path)

    def test_detach_that_nova_repeats_at_length(self):
        for _attempt in range(3):
            self.assertEqual(0, self.encryptor(self.attached, 'detach'))
            self.assertEqual('0', self.opens(self.attached, 'guard-'))
            self.assertEqual('1', self.opens(self.attached, ''))
        self.attached.detach()
        self.assertEqual('', self.opens(self.attached, 'guard-'))
        self.assertEqual('0', self.opens(self.attached, ''))

    def test_read_error_when_nova_looks_at_length(self):
        self.assertEqual(0, self.encryptor(self.attached, 'attach'))
        self.n1.service('stop')  # its sweep would repair the handle
        self.blind()
        self.assertNotEqual(0, self.encryptor(self.attached, 'attach'))
        self.blind(False)
        self.restart(self.n1, 'start')
        self.assertEqual(self.before, self.header(self.n1, self.volume_id))
        self.assertEqual(0, self.encryptor(self.attached, 'attach'))
        # The error is gone when Nova formats.
        self.assertNotEqual(0, self.encryptor(self.attached, 'format'))
        self.assertEqual(self.before, self.header(self.n1, self.volume_id))
        # The test can tell: without the guard it would have been written.
        self.attached.detach()
        self.attached.path = '/dev/mapper/localclone-' + self.volume_id
        self.assertEqual(0, self.encryptor(self.attached, 'format'))
        self.assertNotEqual(
            self.before, self.header(self.n1, self.volume_id))

    def blind(self, yes=True):
        """Have reads of the handle's header fail, or succeed again."""
        handle = 'localclone-' + self.volume_id
        if yes:
            self.table = self.n1.run(
                ['dmsetup', 'table', handle]).stdout.strip()
            _first, sectors, _kind, number, start = self.table.split()
            table = BLIND.format(number, start, int(sectors) - 4096,
                                 int(start) + 4096)
        else:
            table = self.table + '\\n'
        self.n1.run("set -e; printf '%s' | dmsetup load %s; dmsetup suspend "
                    "--noflush %s; dmsetup resume %s; echo 3 "
                    ">/proc/sys/vm/drop_caches" % (
                        table, handle, handle, handle))
