# SPDX-License-Identifier: Apache-2.0
"""Upper devices of several volumes of a node, and what keeps one open."""

import types
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.encryption import devices as upper_devices
from tests.helpers import specs
from tests.world import images

V1, V2 = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
GIB = 1 << 30
FAILED = exceptions.CommandFailed(command='dmsetup', code=1, stderr='busy')


def device(name, number, table, opened=0):
    return dm_tables.Device(
        name, names.device_uuid(name), number, opened, False, table)


def handle(volume_id, opened=0):
    return device(names.handle(volume_id), '253:7',
                  '0 2097152 linear 253:3 0', opened)


def crypt(volume_id, opened=0):
    return device(names.crypt(volume_id), '253:9',
                  '0 2097152 crypt aes-xts-plain64 :64:logon:x 0 253:7 32768',
                  opened)


def lv(volume_id, header):
    return lvm_reports.LogicalVolume(
        'g', 'volume-' + volume_id, GIB, '', frozenset(
            names.tags(volume=volume_id, **{names.GUARDED: header})))


def attachment(number, host):
    return images.attachment(
        id='a%d' % number, connector=host and {'host': host})


class Base(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.node = specs.node()
        self.paused = self.enterContext(
            mock.patch.object(upper_devices, 'stop_reencryption',
                              autospec=True))
        self.node.exports.has_open_unexported.return_value = False

    def there(self, *devices, lvs=()):
        found = {each.name: each for each in devices}
        self.node.handles.survey.return_value = survey.Survey(
            {each.name: each for each in lvs}, found)
        self.node.handles.devices.return_value = found


class ClosedTest(Base):
    """The fence: nothing uses a volume, and its upper device is gone."""

    def close(self, opened):
        """Close an idle one, which fails; how often the handle is open."""
        self.there(handle(V1, 1), crypt(V1))

        def fail(volume_id):
            self.there(handle(V1, opened))
            raise FAILED
        self.node.handles.close_upper.side_effect = fail
        upper_devices.ensure_closed(self.node, V1)

    def test_it_could_not_be_closed_though_nobody_has_it_open(self):
        self.assertRaises(exceptions.CommandFailed, self.close, 0)

    def test_it_could_not_be_closed_as_somebody_has_opened_it(self):
        self.assertRaises(exceptions.SourceBusy, self.close, 1)


class DetachedTest(Base):

    def test_only_attachments_of_this_node_are_noted(self):
        self.node.is_at.side_effect = lambda connector, host: (
            connector['host'] + '@l' == host)
        upper_devices.note_detached(self.node, types.SimpleNamespace(
            volume_attachment=[attachment(1, 'a'), attachment(2, 'b'),
                               attachment(3, None)]))
        self.assertEqual(['a1'], list(self.node.detached))


@ddt.ddt
class IdleTest(Base):

    def test_one_that_is_open_is_left_as_it_is(self):
        """Nor is its re-encryption paused."""
        self.there(handle(V1, 1), crypt(V1, 1))
        self.assertIs(False, upper_devices.close_if_idle(self.node, V1))
        self.paused.assert_not_called()
        self.node.handles.close_upper.assert_not_called()

    def test_somebody_opens_it_while_its_re_encryption_is_paused(self):
        self.there(handle(V1, 1), crypt(V1))
        self.paused.side_effect = exceptions.SourceBusy(
            volume=V1, host='a@l', count=1, device='d')
        self.assertIs(False, upper_devices.close_if_idle(self.node, V1))
        self.node.handles.close_upper.assert_not_called()

    @ddt.data((V1, 4096), (V2, 8192))
    @ddt.unpack
    def test_other_volumes_stay_guarded(self, volume_id, header):
        self.there(lvs=[lv(V1, 4096), lv(V2, 8192)])
        self.assertIs(True, upper_devices.close_if_idle(self.node, volume_id))
        self.node.lvm.unmark.assert_called_once_with(
            'volume-' + volume_id, names.guard_tag(header))
        self.node.handles.close_upper.assert_called_once_with(volume_id)


class PathTest(Base):
    """The look at paths: those of volumes that are elsewhere are removed."""

    def test_volume_that_is_here_is_not_waited_for(self):
        present = survey.Survey({}, {names.handle(V1): handle(V1)})
        self.node.handles.survey.return_value = present
        upper_devices.sweep(self.node, present, {V1: 'x', V2: 'y'})
        self.node.try_lock.assert_called_once_with(V2)
        self.node.handles.remove_link.assert_called_once_with(V2)
