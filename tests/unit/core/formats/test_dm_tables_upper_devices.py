# SPDX-License-Identifier: Apache-2.0
"""What stands above handles: tables, names, what is below it."""

import ddt
import testtools

from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names

V1 = '00000001-0000-4000-8000-000000000000'
GUARD = dm_tables.Guard('253:7', 4096, 2097152)
TABLE = ('0 4096 flakey 253:7 0 0 1 1 drop_writes\n'
         '4096 2093056 linear 253:7 4096')
CRYPT = '0 2097152 crypt aes-xts-plain64 :64:logon:x 0 253:7 32768'


def device(table, name=names.guard(V1)):
    return dm_tables.Device(name, names.device_uuid(name), '253:9', 0, False,
                            table)


@ddt.ddt
class GuardTest(testtools.TestCase):

    def test_table(self):
        self.assertEqual(TABLE, str(GUARD))
        self.assertEqual(GUARD, dm_tables.parse_guard(device(TABLE)))
        # As dmsetup prints it.
        self.assertEqual(GUARD, dm_tables.parse_guard(device(
            TABLE.replace('drop_writes', 'drop_writes '))))
        self.assertEqual(('253:7', '253:7'), device(TABLE).uses())
        self.assertEqual(2097152, device(TABLE).sectors)

    @ddt.data(
        ('', ''), (TABLE, ''), ('0 0 1 1', '0 1 0 1'),  # always up
        ('0 0 1 1', '0 1 1 1'),  # up every other second
        ('1 drop_writes', '0'), ('drop_writes', 'error_writes'),
        ('flakey', 'linear'),
        ('0 4096 flakey', '8 4096 flakey'),  # its beginning can be written
        ('linear 253:7', 'linear 253:8'),  # the rest of another volume
        ('linear 253:7 4096', 'linear 253:7 0'),  # the rest is the header
        ('linear', 'error'), (TABLE, '0 2097152 linear 253:7 0'))
    @ddt.unpack
    def test_what_is_none(self, old, new):
        table = TABLE.replace(old, new) if old else old
        self.assertIsNone(dm_tables.parse_guard(device(table)))

    def test_names(self):
        self.assertEqual(V1, names.volume_of_guard(names.guard(V1)))
        self.assertTrue(names.is_device(names.guard(V1)))
        for other in (names.handle(V1), names.crypt(V1), names.clone(V1)):
            self.assertIsNone(names.volume_of_guard(other))
        self.assertFalse(names.is_device(names.crypt(V1)))

    def test_the_last_part_of_the_path_is_no_devices_name(self):
        last = names.link(V1).rpartition('/')[2]
        self.assertFalse(names.is_device(last))
        self.assertNotIn(last, (names.handle(V1), names.guard(V1),
                                names.crypt(V1)))


class CryptTest(testtools.TestCase):
    """What decrypts a volume, which cryptsetup has named and numbered."""

    UUID = 'CRYPT-LUKS2-%s-%s' % (32 * 'a', names.crypt(V1))

    def parse(self, name, uuid, table=CRYPT):
        return dm_tables.own_devices([dm_ioctl.Status(
            name, uuid, '253:9', 1, False, table)], names.device_uuid(''))

    def test_it_is_the_drivers_own(self):
        found = self.parse(names.crypt(V1), self.UUID)
        self.assertEqual([names.crypt(V1)], list(found))
        crypt, = found.values()
        self.assertEqual((('253:7',), 1), (crypt.uses(), crypt.opened))

    def test_what_others_have_made_is_not(self):
        for name, uuid in ((names.crypt(V1), 'x'), ('luks-x', self.UUID),
                           (names.crypt(V1), self.UUID + 'x')):
            self.assertEqual({}, self.parse(name, uuid))
