# SPDX-License-Identifier: Apache-2.0
"""What configfs shows of the iSCSI target; a directory can be it."""

import json
import os
import pathlib
from unittest import mock

import fixtures
import testtools

from cinder_localclone.storage.privsep import lio_configfs
from tests.helpers import commands

HOST = 'iqn.2026-11.org.example:host'
V1, V2 = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
#: The driver's, by two prefixes; and somebody else's.
IQN, OTHER, THIRD = ('iqn.x:localclone-' + V1,
                     'iqn.y:volume-%s-00000000' % V2,
                     'iqn.x:localclone-' + V2)
FOREIGN = 'iqn.x:volume-' + V1


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.commands = self.useFixture(commands.Commands())
        self.root = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'target'
        self.real = lio_configfs.ROOT
        self.useFixture(fixtures.MockPatchObject(
            lio_configfs, 'ROOT', str(self.root)))

    def store(self, name, number=0, enabled='1'):
        path = self.root / 'core' / ('iblock_%d' % number) / name
        path.mkdir(parents=True)
        (path.parent / 'hba_info').write_text('HBA Index: 1')
        (path / 'enable').write_text(enabled + '\n')
        (path / 'udev_path').write_text('/dev/mapper/%s\n' % name)
        return path

    def target(self, iqn, *stores):
        tpg = self.root / 'iscsi' / iqn / 'tpgt_1'
        (tpg / 'acls' / HOST / 'lun_0').mkdir(parents=True)
        (tpg / 'lun').mkdir()
        for number, store in enumerate(stores):
            lun = tpg / 'lun' / ('lun_%d' % number)
            (lun / 'statistics').mkdir(parents=True)
            (lun / 'alias').symlink_to(os.path.relpath(store, lun))
        for name in ('discovery_auth', 'cpus'):
            (self.root / 'iscsi' / name).mkdir(exist_ok=True)
        (self.root / 'iscsi' / 'lio_version').write_text('4')
        return tpg

    def exports(self):
        return json.loads(lio_configfs.exports())


class ExportsTest(Case):

    def test_where_configfs_is(self):
        lio_configfs.ROOT = self.real
        with mock.patch.object(lio_configfs.os, 'listdir',
                               side_effect=FileNotFoundError) as look:
            self.assertEqual([], self.exports())
        look.assert_called_once_with('/sys/kernel/config/target/iscsi')

    def test_no_configfs(self):
        self.assertEqual([], self.exports())
        self.assertEqual([], json.loads(lio_configfs.unused_backstores()))

    def test_the_drivers_below_any_prefix(self):
        self.target(IQN, self.store('localclone-' + V1))
        self.target(FOREIGN, self.store('localclone-' + V2, 1))
        self.assertEqual([{
            'iqn': IQN, 'devices': ['/dev/mapper/localclone-' + V1]}],
            self.exports())
        self.target(OTHER)
        self.assertEqual([IQN, OTHER], [
            each['iqn'] for each in self.exports()])

    def test_names_alone(self):
        self.assertEqual([], json.loads(lio_configfs.targets()))
        self.target(IQN, self.store('localclone-' + V1))
        self.target(OTHER, self.store('localclone-' + V2, 1))
        self.target(FOREIGN)
        with mock.patch.object(lio_configfs.os, 'listdir',
                               wraps=os.listdir) as look:
            self.assertEqual([IQN, OTHER], json.loads(lio_configfs.targets()))
        look.assert_called_once()

    def test_whom_nobody_can_log_in_to(self):
        tpg = self.target(IQN, self.store('localclone-' + V1))
        (self.root / 'iscsi' / THIRD).mkdir()
        self.target(OTHER)
        self.target(FOREIGN)

        def unfinished():
            return json.loads(lio_configfs.unfinished())
        self.assertEqual([IQN, THIRD, OTHER], unfinished())
        (tpg / 'np').mkdir()
        self.assertEqual([IQN, THIRD, OTHER], unfinished())
        (tpg / 'np' / '192.0.2.11:3260').mkdir()
        self.assertEqual([THIRD, OTHER], unfinished())

    def test_what_was_not_made_to_the_end(self):
        (self.root / 'iscsi' / IQN).mkdir(parents=True)
        self.assertEqual([{'iqn': IQN, 'devices': []}],
                         self.exports())
        self.target(THIRD)
        self.assertEqual([[], []], [
            each['devices'] for each in self.exports()])

    def test_what_vanishes_meanwhile(self):
        self.target(IQN, self.store('localclone-' + V1))
        listdir = os.listdir
        for gone in ('lun', 'acls', 'tpgt_1', 'lun_0', IQN):
            def list_(path):
                if path.endswith('/' + gone):
                    raise FileNotFoundError(path)
                return listdir(path)
            with mock.patch.object(lio_configfs.os, 'listdir', list_):
                self.assertEqual([IQN], [
                    each['iqn'] for each in self.exports()], gone)

    def test_store_that_goes_while_it_is_looked_at(self):
        store = self.store('localclone-' + V1)
        self.target(IQN, store)
        (store / 'udev_path').unlink()
        self.assertEqual([['']], [each['devices'] for each in self.exports()])

    def test_without_the_worker(self):
        """Nothing else is called: what hangs in the kernel holds nobody."""
        self.target(IQN, self.store('localclone-' + V1))
        self.exports()
        self.assertEqual([], self.commands.ran)


class UnusedTest(Case):

    def unused(self):
        return json.loads(lio_configfs.unused_backstores())

    def test_stores_that_nothing_exports(self):
        self.target(IQN, self.store('localclone-' + V1))
        self.store('localclone-' + V2, 1)
        self.assertEqual(['localclone-' + V2], self.unused())

    def test_others_are_not_the_drivers(self):
        self.store('volume-' + V1)
        self.store('localclone-clone-' + V1)
        self.assertEqual([], self.unused())

    def test_one_that_has_no_device_open(self):
        self.store('localclone-' + V1, enabled='0')
        self.assertEqual([], self.unused())


class HangingTest(Case):

    def hanging(self):
        return lio_configfs.hanging(2)

    def path(self, iqn):
        return '%s/iscsi/%s/tpgt_1/param/MaxConnections' % (self.root, iqn)

    def test_none(self):
        self.assertEqual([], self.hanging())
        for iqn in (IQN, OTHER):
            self.target(iqn)
        del self.commands.ran[:]
        self.assertEqual([], self.hanging())
        self.assertEqual(['cat /dev/null %s %s' % (
            self.path(IQN), self.path(OTHER))], self.commands.ran)

    def test_one(self):
        for iqn in (IQN, OTHER):
            self.target(iqn)
        self.commands.hang('cat /dev/null ' + self.path(IQN))
        self.assertEqual([IQN], self.hanging())

    def test_what_has_just_gone_does_not_hang(self):
        self.target(IQN)
        self.commands.answer('cat', code=1)
        self.assertEqual([], self.hanging())
