# SPDX-License-Identifier: Apache-2.0
"""Which rows name a secret, on Cinder's own schema."""

from cinder.tests.unit import utils
from cinder.volume import volume_types

from cinder_localclone.core import exceptions
from cinder_localclone.core import volume_types as encryption_types
from tests.helpers import records_case

A, B, FAR = 'a@l', 'b@l', 'a@other'
NONE = '%08d-0000-4000-8000-000000000000' % 9


def recorded(key, live=True):
    return encryption_types.Recorded(16 << 20, key, live)


class SecretsInUseTest(records_case.Base):

    def create(self, host=A + '#l', **more):
        return utils.create_volume(self.context, host=host, **more)

    def used(self, *without):
        return self.secrets.secrets_in_use(without)

    def test_volumes(self):
        volume, other = self.create(), self.create(B + '#l')
        self.assertEqual(set(), self.used())
        self.secrets.record(volume.id, recorded('k1'))
        self.secrets.record(other.id, recorded('k2', False))
        self.assertEqual({'k1', 'k2'}, self.used())
        self.assertEqual({'k2'}, self.used(volume.id))
        volume.refresh()
        self.assertEqual(recorded('k1'), encryption_types.Recorded.parse(
            volume.provider_id))
        self.assertRaises(exceptions.TooLate, self.secrets.record, volume.id,
                          recorded('k3'), recorded('k2'))
        self.secrets.record(  # its next one
            volume.id, recorded('k3'), recorded('k1'))
        self.assertEqual({'k2', 'k3'}, self.used())
        other.destroy()
        self.assertEqual({'k3'}, self.used())
        self.assertRaises(exceptions.TooLate, self.secrets.record, other.id,
                          recorded('k'), recorded('k2', False))
        self.assertRaises(exceptions.TooLate, self.secrets.record, NONE,
                          recorded('k'))

    def test_exported(self):
        for specs, exported in (
                ({'localclone:pace': 'full'}, False),
                ({'localclone:encryption': 'luks2'}, True)):
            kind = volume_types.create(self.context, 'a', specs)
            self.assertEqual(exported,
                             self.inventory.is_encryption_available())
            volume_types.destroy(self.context, kind.id)
        self.assertFalse(self.inventory.is_encryption_available())

    def test_snapshots(self):
        volume = self.create()
        snapshot = utils.create_snapshot(
            self.context, volume.id, provider_location='lc1:' + B)
        snapshot.update({'provider_id': str(recorded('k1'))})
        snapshot.save()
        self.secrets.record(volume.id, recorded('k2'))
        self.assertEqual({'k1', 'k2'}, self.used())
        # Its header opens with that, whatever becomes of the volume.
        self.assertEqual({'k1'}, self.used(volume.id))
        snapshot.destroy()
        self.assertEqual({'k2'}, self.used())

    def test_others(self):
        """What is another driver's."""
        for provider_id in ('lc1', 'wwn-1:2', 'lun:7', None):
            volume = self.create(FAR + '#l')
            volume.update({'provider_id': provider_id})
            volume.save()
        self.assertEqual(set(), self.used())

    def test_of_other_backends(self):
        """Also what Cinder has copied from a row there, or to one."""
        volume, other = self.create(), self.create(FAR + '#l')
        for each in (volume, other):
            self.secrets.record(each.id, recorded('k'))
        self.assertEqual({'k'}, self.used(volume.id))
        self.assertEqual(set(), self.used(volume.id, other.id))
        self.assertEqual(set(), self.secrets.secrets_in_use(
            [volume.id], A))
        self.assertEqual({'k'}, self.secrets.secrets_in_use(
            [volume.id], FAR))

    def test_what_is_not_understood_is_in_use(self):
        volume = self.create()
        volume.update({'provider_id': 'lc9:luks3:7:hot:::k/1:2'})
        volume.save()
        self.assertEqual({'k/1:2'}, self.used())

    def test_records_of_what_is_about_to_go(self):
        volume = self.create()
        record = self.create(B + '#l',
                             migration_status='target:' + volume.id)
        for each in (volume, record):
            self.secrets.record(each.id, recorded('k1'))
        self.assertEqual({'k1'}, self.used())
        self.assertEqual({'k1'}, self.used(record.id))
        self.assertEqual(set(), self.used(volume.id))
