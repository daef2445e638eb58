# SPDX-License-Identifier: Apache-2.0
"""What the kernel's target serves, to whom, and what is withdrawn from it."""

import importlib
import json
import os
import pathlib
import threading
import time
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import lio
from cinder_localclone.storage.privsep import lio_configfs
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import lio_case
from tests.helpers.lio_case import ANOTHER
from tests.helpers.lio_case import ASKED
from tests.helpers.lio_case import Case
from tests.helpers.lio_case import DEVICE
from tests.helpers.lio_case import export
from tests.helpers.lio_case import HOST
from tests.helpers.lio_case import IQN
from tests.helpers.lio_case import OTHER_IQN
from tests.helpers.lio_case import STORE
from tests.helpers.lio_case import THIRD
from tests.helpers.lio_case import V1
from tests.helpers.lio_case import V2


@ddt.ddt
class ForeignTest(Case):
    """Nothing but the driver's own can be asked for."""

    @ddt.data({'iqn': 'iqn.x:other'}, {'name': 'other'}, {'name': ''},
              {'name': STORE + 'x'}, {'iqn': IQN + 'x'}, {'iqn': '../' + IQN},
              {'device': '/dev/mapper/other'}, {'device': '/dev/sda'},
              {'device': '/dev/mapper/localclone-crypt-' + V1},
              {'device': '/dev/' + STORE}, {'initiator': ''},
              {'initiator': HOST + '/../../../../iqn.y/tpgt_1/acls/' + HOST},
              {'address': '../../../iqn.y/tpgt_1/np/192.0.2.11'},
              {'address': 'host'}, {'device': '/dev/mapper/x/../' + STORE})
    def test_exports(self, changes):
        self.assertRaises(exceptions.Foreign, export, **changes)
        self.assertEqual([], self.lio.steps)

    @ddt.data({'iqn': 'iqn.x:other'}, {'iqn': '../' + IQN},
              {'name': 'other'})
    def test_compares(self, changes):
        self.assertRaises(exceptions.Foreign, lio.is_exported,
                          **dict(ASKED, **changes))

    @ddt.data(('iqn.x:other', STORE), (IQN, 'other'))
    @ddt.unpack
    def test_unexports(self, iqn, name):
        self.assertRaises(exceptions.Foreign, lio.unexport, iqn, name)
        self.assertEqual([], self.lio.steps)


@ddt.ddt
class ExportTest(Case):

    @ddt.data('0', '1')
    def test_a_device_that_can_only_be_read_is_opened_so(self, readonly):
        (self.root / 'block' / STORE / 'ro').write_text(readonly + '\n')
        export(readonly=True)
        store, = self.lio.stores
        self.assertIs(readonly == '1', store.readonly)

    def test_to_one_initiator_with_chap(self):
        self.assertTrue(export())
        target, = self.lio.targets
        tpg, = target.tpgs
        self.assertEqual((IQN, True), (target.wwn, tpg.enable))
        self.assertEqual({'authentication': 1, 'generate_node_acls': 0},
                         tpg.attributes)
        acl, = tpg.node_acls
        self.assertEqual((HOST, 'user', 'secret'), (
            acl.node_wwn, acl.chap_userid, acl.chap_password))
        self.assertEqual([('192.0.2.11', 3260)], tpg.portals)
        store, = self.lio.stores
        self.assertEqual((STORE, DEVICE, 'serial'), (
            store.name, store.udev_path, store.wwn))
        self.assertEqual([(0, store)], [
            (lun.number, lun.storage_object) for lun in tpg.luns])

    def test_ipv6(self):
        self.assertTrue(export(address='fd00:db8::11'))
        target, = self.lio.targets
        self.assertEqual([('[fd00:db8::11]', 3260)], target.tpgs[0].portals)

    @ddt.data(True, False)
    def test_write_protection(self, readonly):
        export(readonly=readonly)
        acl, = self.lio.targets[0].tpgs[0].node_acls
        mapped, = acl.mapped_luns
        self.assertIs(readonly, mapped.write_protect)
        self.assertIs(self.lio.targets[0].tpgs[0].luns[0], mapped.lun)

    def test_where_initiators_are_told_that_it_is(self):
        """Group 1, LUN 0."""
        export()
        tpg, = self.lio.targets[0].tpgs
        portal, iqn, lun = iscsi.location(
            '192.0.2.11', 3260, IQN).split(' ')
        self.assertEqual(('192.0.2.11:3260,%d' % tpg.tag, IQN), (portal, iqn))
        self.assertEqual(int(lun),
                         tpg.node_acls[0].mapped_luns[0].number)

    def test_discards_arrive(self):
        export()
        self.assertEqual({'emulate_tpu': '1'}, self.lio.stores[0].attributes)

    def test_a_device_that_takes_no_discards(self):
        # The handle on a clone: the kernel refuses to offer them then.
        self.discards(0)
        self.lio.refuses['emulate_tpu'] = 9
        self.assertTrue(export())
        self.assertEqual({'emulate_tpu': '0'}, self.lio.stores[0].attributes)

    def test_discards_arrive_once_the_device_takes_them(self):
        self.discards(0)
        export()
        self.discards(1 << 24)
        self.assertFalse(export())
        self.assertEqual({'emulate_tpu': '1'}, self.lio.stores[0].attributes)
        self.discards(0)
        self.assertFalse(export())
        self.assertEqual({'emulate_tpu': '0'}, self.lio.stores[0].attributes)

    def test_a_kernel_that_looks_only_once(self):
        self.discards(0)
        export()
        self.discards(1 << 24)
        self.lio.refuses['emulate_tpu'] = 9
        self.assertFalse(export())

    @ddt.data('', 'crypt-x')
    def test_a_link_that_was_turned_elsewhere_is_not_exported(self, found):
        with mock.patch.object(sysfs, 'mapped_name',
                               return_value=found) as look:
            error = self.assertRaises(exceptions.WrongDevice, export)
        look.assert_called_once_with(DEVICE)  # it stays so
        self.assertIn(DEVICE, str(error))
        self.assertEqual(([], []), (self.lio.targets, self.lio.stores))

    def test_a_directory_without_a_store_is_in_the_way(self):
        core = self.root / 'target' / 'core'
        for path in (core / 'iblock_0', core / 'iblock_1' / 'another'):
            path.mkdir(parents=True)
        export()
        self.assertEqual(['iblock_1'], os.listdir(core))

    def test_it_is_out_of_the_way_before_a_store_is_made(self):
        core = self.root / 'target' / 'core'
        (core / 'iblock_0').mkdir(parents=True)
        make = self.lio.rtslib.BlockStorageObject

        def making(*args, **kwargs):
            self.assertEqual(['iblock_0'] * ('dev' not in kwargs),
                             os.listdir(core))
            return make(*args, **kwargs)
        self.lio.rtslib.BlockStorageObject = making
        self.assertTrue(export())

    def test_nobody_logs_in_before_all_is_set(self):
        export()
        self.assertEqual('portal', self.lio.steps[-1])

    def test_what_is_as_asked_is_left(self):
        export()
        del self.lio.steps[:]
        self.assertFalse(export())
        self.assertEqual([], self.lio.steps)

    def test_an_initiator_with_capitals_in_its_name(self):
        """A session that ends with each look.

        1. /etc/iscsi/initiatorname.iscsi has a host's name as it is written
           there, in capitals. rtslib and the kernel have it without.
        2. So its export never was as asked for, and each look at the source
           of a move, every five seconds, made it anew.
        """
        capitals = HOST.replace('host', 'HOST')
        self.assertTrue(export(initiator=capitals))
        self.assertFalse(export(initiator=capitals))

    @ddt.data({'readonly': False}, {'initiator': HOST + '2'},
              {'user': 'another'}, {'password': 'another'})
    def test_what_is_not_is_replaced(self, changes):
        export()
        before, store = self.lio.targets[0], self.lio.stores[0]
        self.assertTrue(export(**changes))
        after, = self.lio.targets
        self.assertIsNot(before, after)
        self.assertEqual([store], self.lio.stores)  # nothing else uses it
        acl, = after.tpgs[0].node_acls
        self.assertEqual(dict(ASKED, **changes), dict(
            ASKED, initiator=acl.node_wwn, user=acl.chap_userid,
            password=acl.chap_password,
            readonly=acl.mapped_luns[0].write_protect))

    @ddt.data({'address': '192.0.2.99'}, {'address': 'fd00::9'},
              {'port': 3261})
    def test_what_is_at_another_portal_is_replaced(self, changes):
        export()
        self.assertTrue(export(**changes))
        asked = dict(ASKED, **changes)
        self.assertEqual([(
            asked['address'] if '.' in asked['address'] else '[fd00::9]',
            asked['port'])], self.lio.targets[0].tpgs[0].portals)
        self.assertFalse(export(**changes))

    @ddt.data(
        lambda target: setattr(target.tpgs[0], 'enable', False),
        lambda target: target.tpgs[0].luns.clear(),
        lambda target: target.tpgs.clear(),
        lambda target: target.tpgs[0].node_acls.append(
            target.tpgs[0].node_acls[0]))
    def test_what_was_not_made_to_the_end_is_replaced(self, spoil):
        export()
        spoil(self.lio.targets[0])
        self.assertTrue(export())
        tpg, = self.lio.targets[0].tpgs
        self.assertEqual((True, 1, 1), (
            tpg.enable, len(tpg.luns), len(tpg.node_acls)))

    @ddt.data({'device': '/dev/mapper/' + ANOTHER}, {'serial': 'another'})
    def test_store_of_another_device_is_replaced(self, changes):
        export(**changes)
        wrong = self.lio.stores[0]
        self.assertTrue(export())
        store, = self.lio.stores
        self.assertIsNot(wrong, store)
        self.assertEqual((DEVICE, 'serial'), (store.udev_path, store.wwn))
        lun, = self.lio.targets[0].tpgs[0].luns
        self.assertIs(store, lun.storage_object)

    def test_nobody_is_exported_any_more_when_a_store_is_replaced(self):
        """Its other targets are made anew by whoever wants them."""
        for iqn in (IQN, OTHER_IQN):
            export(iqn=iqn, serial='another')
        del self.lio.steps[:]
        self.assertTrue(export())
        self.assertEqual(
            ['delete portal', 'not enable', 'delete target'] * 2
            + ['delete store', 'store'], self.lio.steps[:8])
        self.assertEqual([IQN], [each.wwn for each in self.lio.targets])

    def test_a_strangers_target_only_loses_a_store_that_is_replaced(self):
        export(serial='another')
        rtslib, store = self.lio.rtslib, self.lio.stores[0]
        stranger = rtslib.Target(rtslib.FabricModule('iscsi'), 'iqn.x:other')
        tpg = rtslib.TPG(stranger, 1)
        rtslib.LUN(tpg, 0, store)
        tpg.enable = True
        self.assertTrue(export())
        self.assertEqual(['iqn.x:other', IQN], [
            each.wwn for each in self.lio.targets])
        self.assertEqual(([], True), (tpg.luns, tpg.enable))

    def test_store_that_was_not_made_to_the_end_is_replaced(self):
        """The daemon ended before the kernel was to open the device.

        No look removes it: it keeps nothing open.
        """
        export()
        for target in self.lio.targets:
            target.tpgs.clear()
        wrong, = self.lio.stores
        wrong.configured = False
        self.assertTrue(export())
        store, = self.lio.stores
        self.assertIsNot(wrong, store)

    def test_target_of_which_not_all_can_be_read_is_replaced(self):
        """The daemon ended before its client was given the LUN.

        What the kernel says of a mapped LUN that leads to none is empty.
        """
        class Unlinked:
            write_protect = property(lambda _self: bool(int('')))

        export()
        tpg, = self.lio.targets[0].tpgs
        tpg.enable = False
        tpg.node_acls[0].mapped_luns[:] = [Unlinked()]
        self.assertTrue(export())
        tpg, = self.lio.targets[0].tpgs
        self.assertEqual([True], [
            lun.write_protect for lun in tpg.node_acls[0].mapped_luns])

    def test_discards_that_a_shared_store_refuses(self):
        """Before Linux 6.0 only a new store probes its device."""
        self.assertTrue(export())
        self.discards(0)
        self.lio.refuses['emulate_tpu'] = 5
        self.assertTrue(export(iqn=OTHER_IQN))
        self.assertEqual(2, len(self.lio.targets))

    def test_two_targets_share_the_store(self):
        self.assertTrue(export())
        self.assertTrue(export(iqn=OTHER_IQN, readonly=False))
        self.assertFalse(export())
        self.assertEqual(2, len(self.lio.targets))
        self.assertEqual(1, len(self.lio.stores))

    STEPS = ('emulate_tpu', 'target', 'tpg', 'authentication',
             'generate_node_acls', 'lun', 'acl', 'chap_userid',
             'chap_password', 'mapped lun', 'enable', 'portal')

    def test_these_are_all_steps(self):
        export()
        self.assertEqual(('store',) + self.STEPS, tuple(self.lio.steps))

    @ddt.data('store', *STEPS)
    def test_what_is_refused_leaves_nothing(self, step):
        self.lio.refuses[step] = 5
        error = self.assertRaises(exceptions.ExportFailed, export)
        self.assertIn('Invalid argument', str(error))
        self.assertEqual(([], []), (self.lio.targets, self.lio.stores))

    @ddt.data('store', 'lun', 'mapped lun', 'chap_password')
    def test_what_the_kernel_refuses_in_its_own_words(self, step):
        """A device that something else has, say: rtslib passes that on."""
        self.lio.refusal = lambda _step: OSError(16, 'Device is busy')
        self.lio.refuses[step] = 5
        error = self.assertRaises(exceptions.ExportFailed, export)
        self.assertIn('Device is busy', str(error))
        self.assertEqual(([], []), (self.lio.targets, self.lio.stores))
        self.lio.refuses[step] = 1
        self.assertTrue(export())

    @ddt.data('store', *STEPS)
    def test_what_is_refused_once_is_done(self, step):
        self.lio.refuses[step] = 1
        self.assertTrue(export())
        self.wait.assert_called_with(0.2)
        self.assertFalse(export())
        self.assertEqual({'emulate_tpu': '1'}, self.lio.stores[0].attributes)

    def test_what_is_refused_leaves_other_targets(self):
        export(iqn=OTHER_IQN)
        self.lio.refuses['portal'] = 5
        self.assertRaises(exceptions.ExportFailed, export)
        target, = self.lio.targets
        self.assertEqual(OTHER_IQN, target.wwn)
        self.assertEqual(1, len(self.lio.stores))


class Killed(BaseException):
    """The daemon has no time for anything else."""


@ddt.ddt
class CutTest(Case):
    """The daemon is killed during a change.

    The next sweep looks at names and portals alone: it knows each target that
    is incomplete by its lack of a portal.
    """

    def kill(self, step, **changes):
        self.lio.refuses[step] = 1
        self.lio.refusal = lambda _step: Killed()
        self.assertRaises(Killed, export, **changes)
        self.lio.show(self.root / 'target')
        found = json.loads(lio_configfs.targets())
        incomplete = [each for each in found
                      if lio_configfs.export(each) is None]
        self.assertEqual(
            incomplete, json.loads(lio_configfs.unfinished()))
        self.assertTrue(export(**changes))
        self.assertFalse(export(**changes))

    @ddt.data('store', *ExportTest.STEPS)
    def test_new_one(self, step):
        self.kill(step)

    @ddt.data('delete portal', 'not enable', 'delete target',
              *ExportTest.STEPS[1:])
    def test_one_that_is_replaced(self, step):
        export()
        self.kill(step, password='other')


@ddt.ddt
class ShownTest(Case):
    """What configfs shows as asked for is not looked up in rtslib.

    That takes 40 ms, for each move of a node at each look.
    """

    def setUp(self):
        super().setUp()
        self.assertTrue(export())
        self.asked = []

    def show(self):
        self.lio.show(self.root / 'target')

    def export(self, **changes):
        """The answer, and whether rtslib was asked."""
        find, steps = self.lio._find, list(self.lio.steps)
        del self.asked[:]
        shown = lio.is_exported(**dict(ASKED, **changes))
        self.assertEqual(steps, self.lio.steps)

        def look(found):
            self.asked.append(found)
            return find(found)
        with mock.patch.object(self.lio, '_find', look):
            answer = export(**changes)
        self.assertIs(shown, not self.asked)
        return answer, bool(self.asked)

    def test_as_asked(self):
        self.show()
        del self.lio.steps[:]
        self.assertEqual((False, False), self.export())
        self.assertEqual([], self.lio.steps)

    def test_one_of_many(self):
        export(iqn=OTHER_IQN, readonly=False)
        export(iqn='iqn.x:localclone-' + V1, name=ANOTHER,
               device='/dev/mapper/' + ANOTHER)
        self.show()
        self.assertEqual((False, False), self.export())
        self.assertEqual((False, False), self.export(
            iqn=OTHER_IQN, readonly=False))

    def test_after_a_reboot(self):
        del self.lio.targets[:], self.lio.stores[:]
        self.show()
        self.assertEqual((True, True), self.export())

    @ddt.data({'readonly': False}, {'initiator': HOST + '2'},
              {'user': 'another'}, {'password': 'another'},
              {'serial': 'another'}, {'device': '/dev/mapper/' + ANOTHER},
              {'name': ANOTHER, 'device': '/dev/mapper/' + ANOTHER})
    def test_anything_else_is_not(self, changes):
        self.show()
        self.assertEqual((True, True), self.export(**changes))
        self.show()
        self.assertEqual((False, False), self.export(**changes))

    @ddt.data(
        lambda tpg: setattr(tpg, 'enable', False),
        lambda tpg: tpg.luns.clear(),
        lambda tpg: tpg.node_acls.clear(),
        lambda tpg: tpg.parent_target.tpgs.clear(),
        lambda tpg: tpg.node_acls[0].mapped_luns.clear(),
        lambda tpg: setattr(tpg.node_acls[0], 'chap_password', 'x'))
    def test_nor_what_was_half_made_or_changed_by_hand(self, spoil):
        spoil(self.lio.targets[0].tpgs[0])
        self.show()
        self.assertEqual((True, True), self.export())

    def test_nor_what_somebody_else_may_log_in_to_as_well(self):
        tpg, = self.lio.targets[0].tpgs
        self.lio.rtslib.NodeACL(tpg, HOST + '2').chap_userid = ''
        tpg.node_acls[1].chap_password = ''
        self.show()
        self.assertEqual((True, True), self.export())

    def test_nor_what_has_a_second_device(self):
        export(iqn='iqn.x:localclone-' + V1, name=ANOTHER,
               device='/dev/mapper/' + ANOTHER)
        self.lio.rtslib.LUN(self.lio.targets[0].tpgs[0], 1,
                            self.lio.stores[1])
        self.show()
        self.assertEqual((True, True), self.export())

    def test_nor_what_is_mapped_twice(self):
        """The second LUN of the initiator may be writable."""
        self.show()
        (self.root / 'target' / 'iscsi' / IQN / 'tpgt_1' / 'acls' / HOST
         / 'lun_1').mkdir()
        self.assertTrue(self.export()[1])

    def test_nor_a_store_that_was_not_made_to_the_end(self):
        self.show()
        (self.lio.stores[0].shown / 'enable').write_text('0\n')
        self.assertTrue(self.export()[1])

    def test_nor_a_group_that_nobody_is_told_of(self):
        """Which of the two it is that rtslib finds first does not matter."""
        self.show()
        (self.root / 'target' / 'iscsi' / IQN / 'tpgt_2').mkdir()
        self.assertTrue(self.export()[1])

    @ddt.data('acls/%s/lun_0/0123456789' % HOST, 'lun/lun_0/0123456789')
    def test_nor_what_a_link_is_missing_of(self, link):
        self.show()
        (self.root / 'target' / 'iscsi' / IQN / 'tpgt_1' / link).unlink()
        self.assertTrue(self.export()[1])

    def test_nor_what_leads_elsewhere(self):
        self.show()
        where = (self.root / 'target' / 'iscsi' / IQN / 'tpgt_1' / 'acls'
                 / HOST / 'lun_0')
        (where / '0123456789').unlink()
        (where / '0123456789').symlink_to('..')
        self.assertTrue(self.export()[1])

    def test_nor_another_kind_of_store(self):
        self.show()
        core = self.root / 'target' / 'core'
        (core / 'iblock_0').rename(core / 'fileio_0')
        link = (self.root / 'target' / 'iscsi' / IQN / 'tpgt_1' / 'lun'
                / 'lun_0' / '0123456789')
        link.unlink()
        link.symlink_to(core / 'fileio_0' / STORE)
        self.assertTrue(self.export()[1])

    def test_what_cannot_be_read_is_looked_up(self):
        self.show()
        with mock.patch.object(lio_configfs, '_text',
                               side_effect=OSError(5, 'EIO')):
            self.assertEqual((False, True), self.export())

    def test_discards_arrive_once_the_device_takes_them(self):
        self.show()
        self.discards(0)
        self.assertEqual((False, True), self.export())
        self.assertEqual({'emulate_tpu': '0'}, self.lio.stores[0].attributes)
        self.show()
        self.assertEqual((False, False), self.export())

    def test_a_link_that_was_turned_elsewhere(self):
        self.show()
        with mock.patch.object(sysfs, 'mapped_name', return_value='x'):
            self.assertRaises(exceptions.WrongDevice, export)
            self.assertFalse(lio.is_exported(**ASKED))

    @ddt.data(True, False)
    def test_an_initiator_with_capitals(self, shown):
        """rtslib has its name in lower case, as the kernel at a login.

        Its export was made anew at each look, and its session ended.
        """
        name = HOST.replace('host', 'Host')
        export(initiator=name)
        if shown:
            self.show()
        del self.lio.steps[:]
        self.assertEqual((False, not shown), self.export(initiator=name))
        self.assertEqual([], self.lio.steps)

    def test_no_secret_is_printed(self):
        self.show()
        self.assertNotIn('secret', repr(lio_configfs.export(IQN)))


class UnexportTest(Case):
    """Two targets of one device share its backstore."""

    def setUp(self):
        super().setUp()
        for iqn in (IQN, OTHER_IQN):
            export(iqn=iqn)
        self.targets, self.stores = self.lio.targets, self.lio.stores
        del self.lio.steps[:]

    def test_what_another_target_exports_stays(self):
        self.assertTrue(lio.unexport(IQN, STORE))
        self.assertEqual([OTHER_IQN], [each.wwn for each in self.targets])
        self.assertEqual(1, len(self.stores))
        self.assertTrue(lio.unexport(OTHER_IQN, STORE))
        self.assertEqual(([], []), (self.targets, self.stores))

    def test_nobody_is_exported_any_more_when_it_goes(self):
        tpg = self.targets[0].tpgs[0]
        lio.unexport(IQN, STORE)
        self.assertFalse(tpg.enable)
        self.assertEqual(['delete portal', 'not enable', 'delete target'],
                         self.lio.steps)

    def test_what_others_removed_is_not_remembered(self):
        # Else rtslib says that what is gone exists, as long as it runs.
        self.lio.rtslib.tcm.bs_cache['gone'] = 1
        lio.unexport(IQN, STORE)
        self.assertEqual({}, self.lio.rtslib.tcm.bs_cache)

    def test_a_target_alone(self):
        """What it serves is not the driver's."""
        del self.targets[1:]
        self.assertTrue(lio.unexport(IQN, ''))
        self.assertEqual(([], 1), (self.targets, len(self.stores)))

    def test_nothing_to_withdraw(self):
        self.assertFalse(lio.unexport(THIRD, STORE))
        self.assertEqual(2, len(self.targets))
        self.assertFalse(lio.unexport(THIRD, ANOTHER))
        self.assertEqual([], self.lio.steps)

    def test_what_the_kernel_refuses_to_remove(self):
        self.lio.refusal = lambda _step: OSError(16, 'Device is busy')
        self.lio.refuses['delete target'] = 5
        self.assertRaises(exceptions.ExportFailed, lio.unexport, IQN, STORE)
        self.assertTrue(lio.unexport(IQN, STORE))

    def test_an_unused_backstore_goes(self):
        del self.targets[:]
        self.assertTrue(lio.unexport(THIRD, STORE))
        self.assertEqual([], self.stores)

    def test_a_backstore_alone(self):
        """A volume that is in use for good.

        1. The daemon ended after it had made a backstore, or removed the
           last target of one: that has the volume's handle open.
        2. Whatever withdraws it names no target. rtslib refuses to look for
           one without a name, so it could not be removed.
        """
        self.assertFalse(lio.unexport('', STORE))  # they serve it
        del self.targets[:]
        self.assertTrue(lio.unexport('', STORE))
        self.assertEqual([], self.stores)
        self.assertFalse(lio.unexport('', STORE))


class RealTest(testtools.TestCase):
    """What rtslib itself finds by a name, in directories."""

    def setUp(self):
        super().setUp()
        self.rtslib = importlib.import_module('rtslib_fb')
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(
            self.rtslib.node.CFSNode, 'configfs_dir', str(self.root)))
        self.rtslib.tcm.bs_cache.clear()
        self.addCleanup(self.rtslib.tcm.bs_cache.clear)
        (self.root / 'iscsi').mkdir()
        (self.root / 'core').mkdir()

    def test_target(self):
        iqn = 'iqn.2026-11.org.example:volume-%s-' % V1
        for name in ('00000001', '000000012', '*'):
            (self.root / 'iscsi' / (iqn + name)).mkdir()
        self.assertEqual(iqn + '00000001', lio._target(
            self.rtslib, iqn + '00000001').wwn)
        for name in ('', '0000000', '0000001*', '00000002'):
            self.assertIsNone(lio._target(self.rtslib, iqn + name))

    def test_store(self):
        for number, name in enumerate((STORE, STORE + 'x', '*')):
            (self.root / 'core' / ('iblock_%d' % number) / name).mkdir(
                parents=True)
        (self.root / 'core' / 'fileio_7' / ANOTHER).mkdir(parents=True)
        (self.root / 'core' / 'iblock_9').mkdir()  # not made to the end
        self.assertEqual(
            str(self.root / 'core' / 'iblock_0' / STORE),
            lio._storage_object(self.rtslib, STORE).path)
        for name in (STORE[:-1], STORE + 'xx', ANOTHER):
            self.assertIsNone(lio._storage_object(self.rtslib, name))

    def test_a_name_with_capitals(self):
        iqn = 'iqn.2026-11.org.example:volume-x'
        tpg = self.root / 'iscsi' / iqn / 'tpgt_1'
        (tpg / 'acls').mkdir(parents=True)
        target = lio._target(self.rtslib, iqn.upper().replace('IQN', 'iqn'))
        self.assertEqual(iqn, target.wwn)
        self.rtslib.NodeACL(self.rtslib.TPG(target, 1), HOST.replace(
            'host', 'HOST'))
        self.assertEqual([HOST], os.listdir(tpg / 'acls'))

    def test_nothing_to_withdraw(self):
        self.useFixture(fixtures.MockPatchObject(
            privsep.default, 'client_mode', False))
        self.useFixture(fixtures.MockPatchObject(
            lio, '_changes', lio.Changes()))
        iqn = 'iqn.2026-11.org.example:localclone-' + V2
        for what in (('', STORE), (iqn, ''), (iqn, STORE)):
            self.assertFalse(lio.unexport(*what))


class TimeLimitTest(lio_case.Case):
    """The kernel may keep a thread for ever; its callers go on."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(lio, 'TIMEOUT', 0.2))
        self.kernel = threading.Event()
        self.addCleanup(self.kernel.set)
        for iqn in (IQN, OTHER_IQN):
            export(iqn=iqn)
        self.stuck = []
        for target in self.lio.targets:
            self.hang(target)
        del self.lio.steps[:]

    def hang(self, target):
        """Its commands wait for a device, so it can't be disabled."""
        inner = target.delete

        def delete():
            self.stuck.append(target.wwn)
            self.kernel.wait(60)
            inner()
        object.__setattr__(target, 'delete', delete)

    def unexport(self, iqn=IQN):
        return lio.unexport(iqn, STORE)

    def test_hangs(self):
        error = self.assertRaises(exceptions.TargetTimeout, self.unexport)
        self.assertIsInstance(error, exceptions.CommandTimeout)
        self.assertIn('within 0.2 s', str(error))

    def test_a_target_that_hangs_is_left_alone(self):
        self.assertRaises(exceptions.TargetTimeout, self.unexport)
        for change in (self.unexport, export,
                       lambda: lio.is_exported(**ASKED)):
            # It neither begins anything nor waits.
            with mock.patch.object(lio.process, 'in_thread',
                                   autospec=True) as begun:
                error = self.assertRaises(exceptions.TargetHangs, change)
            begun.assert_not_called()
            self.assertRegex(
                str(error), r'has hung in the kernel since '
                r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d and')
            self.assertIn(IQN, str(error))
        self.assertEqual([IQN], self.stuck)

    def test_others_can_be_changed(self):
        self.assertRaises(exceptions.TargetTimeout, self.unexport)
        self.assertTrue(export(iqn=THIRD))
        self.assertTrue(lio.unexport(THIRD, STORE))

    def test_it_comes_back_by_itself(self):
        self.assertRaises(exceptions.TargetTimeout, self.unexport)
        self.kernel.set()
        for _time in range(100):
            if IQN not in [each.wwn for each in self.lio.targets]:
                break
            time.sleep(0.02)
        time.sleep(0.1)
        self.assertTrue(export())
        self.assertTrue(self.unexport())

    def test_not_without_end(self):
        """A kernel in which each change hangs gets no more of them."""
        for number in range(lio.MOST_HANGING):
            iqn = 'iqn.x:volume-%s-1000000%d' % (V1, number)
            export(iqn=iqn)
            self.hang(self.lio.targets[-1])
        for number in range(lio.MOST_HANGING):
            self.assertRaises(exceptions.TargetTimeout, self.unexport,
                              'iqn.x:volume-%s-1000000%d' % (V1, number))
        del self.lio.steps[:]
        for change in (lambda: export(iqn=THIRD), self.unexport,
                       lambda: export(serial='another')):
            error = self.assertRaises(exceptions.TargetHangs, change)
            self.assertIn('-10000000, iqn', str(error))
            self.assertIn('-10000002 has hung', str(error))
        self.assertFalse(export())  # nothing has to be done
        self.assertEqual([], self.lio.steps)

    def test_a_backstore_alone_that_hangs(self):
        for target in self.lio.targets:
            target.tpgs.clear()
        store, = self.lio.stores
        store.delete = lambda: self.kernel.wait(60)
        self.assertRaises(exceptions.TargetTimeout, lio.unexport, '', STORE)
        error = self.assertRaises(exceptions.TargetHangs, lio.unexport, '',
                                  STORE)
        self.assertIn(STORE, str(error))
        self.assertFalse(lio.unexport('', ANOTHER))

    def test_what_is_known_to_hang_waits_for_no_turn(self):
        self.assertRaises(exceptions.TargetTimeout, self.unexport)
        lio._changes._turn.acquire()
        self.addCleanup(lio._changes._turn.release)
        self.assertRaises(exceptions.TargetHangs, self.unexport)

    def test_a_turn_that_never_comes(self):
        lio._changes._turn.acquire()
        self.addCleanup(lio._changes._turn.release)
        waits = threading.Thread(daemon=True, target=self.assertRaises, args=(
            exceptions.TargetTimeout, export))
        waits.start()
        waits.join(5)
        self.assertFalse(waits.is_alive())

    def test_the_same_twice_hangs_once(self):
        """The second waits for its turn while the first is found to hang."""
        threads = [threading.Thread(target=self.assertRaises, args=(
            exceptions.TargetTimeout, self.unexport)) for _time in range(2)]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        self.assertEqual([IQN], self.stuck)

    def test_what_hangs_does_not_keep_the_daemon_from_ending(self):
        self.assertTrue(lio._changes.make(
            'x', lambda: threading.current_thread().daemon))

    def meanwhile(self, act):
        """A thread acts while another one looks at what hangs.

        :returns: a work that does not end
        """
        other = threading.Thread(target=act, daemon=True)

        def done():
            if not other.ident:
                other.start()
                other.join(1)
            return False
        return mock.Mock(done=done)

    def test_what_is_found_to_hang_while_another_looks_is_not_forgotten(self):
        """Else each request would leave one more thread in the kernel."""
        changes, found = lio.Changes(), []

        def hang():
            try:
                changes.make('b', lambda: self.kernel.wait(60))
            except exceptions.TargetTimeout as exc:
                found.append(exc)
        changes._hanging = {'a': (self.meanwhile(hang), 0.0),
                            'c': (mock.Mock(**{
                                'done.return_value': False}), 0.0)}
        self.assertTrue(changes.make('x', lambda: True))
        self.assertEqual(1, len(found))
        self.assertRaises(exceptions.TargetHangs, changes.make, 'b',
                          lambda: True)

    def test_a_change_that_says_that_something_timed_out_has_ended(self):
        """ETIMEDOUT is a TimeoutError, too."""
        def change():
            raise OSError(110, 'Connection timed out')
        self.useFixture(fixtures.MockPatchObject(lio, 'TIMEOUT', 5))
        self.assertRaises(OSError, lio._changes.make, 'x', change)
        self.assertNotIn('x', lio._changes._hanging)

    def test_what_waits_meanwhile_has_its_turn(self):
        self.useFixture(fixtures.MockPatchObject(lio, 'TIMEOUT', 1))
        first = threading.Thread(target=self.assertRaises, args=(
            exceptions.TargetTimeout, self.unexport))
        first.start()
        for _time in range(100):
            if self.stuck:
                break
            time.sleep(0.01)
        time.sleep(0.3)
        self.assertTrue(export(iqn=THIRD))
        first.join()
