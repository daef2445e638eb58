# SPDX-License-Identifier: Apache-2.0
"""Nodes on a stock kernel; none is booted here."""

import json
import pathlib
import time
import types

import fixtures
import testtools

from lab.core import kernel
from lab.core import process
from lab.core import stock
from lab import lab as labs


class StockTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.path / 'modules').mkdir()
        self.packed = []
        self.useFixture(fixtures.MockPatchObject(
            stock, '_pack', lambda *words: self.packed.append(words)))
        self.useFixture(fixtures.EnvironmentVariable(
            'LOCALCLONE_LAB_CACHE', str(self.path / 'cache')))
        self.useFixture(fixtures.EnvironmentVariable(
            kernel.CHOICE, str(self.path)))

    def versions(self, *names):
        (self.path / 'vmlinuz').touch()
        for name in names:
            (self.path / 'modules' / name).mkdir()

    def test_is_chosen_by_its_directory(self):
        self.versions('6.1.0-57-amd64')
        self.useFixture(fixtures.MockPatchObject(kernel.install, 'basics'))
        found = kernel.choose(lambda text: None)
        self.assertEqual(str(self.path / 'vmlinuz'), found['binary'])
        self.assertEqual('6.1.0-57-amd64', found['release'])
        self.assertEqual(str(self.path / 'modules'), found['modules'])
        (path, version, initrd), = self.packed
        self.assertEqual((self.path, '6.1.0-57-amd64', found['initrd']),
                         (path, version, str(initrd)))

    def test_one_version_of_modules(self):
        self.assertFalse(stock.is_one(self.path))
        self.versions()
        self.assertTrue(stock.is_one(self.path))
        self.assertIn('none', str(self.assertRaises(
            process.LabError, stock.kernel, self.path, self.path)))
        self.versions('6.1', '6.12')
        self.assertIn('6.1, 6.12', str(self.assertRaises(
            process.LabError, stock.kernel, self.path, self.path)))

    def test_command(self):
        node = types.SimpleNamespace(
            tap='tap1', address='192.0.2.11', lab=types.SimpleNamespace(
                directory=pathlib.Path('/var/tmp/labs/x'), settings={
                    'kernel': {'binary': 'vmlinuz', 'initrd': 'initrd'}}))
        words = stock.command(node, ['lc_name=node1'], '1536M',
                              ['driver=nbd', 'driver=file'])
        line = words[words.index('-append') + 1].split()
        for each in ('lc_name=node1', 'lc_state=/var/tmp/labs',
                     'lc_init=%s' % (stock.HERE / 'node_init.sh')):
            self.assertIn(each, line)
        self.assertIn('virtio-net-pci,netdev=net,mac=02:00:00:00:00:11',
                      words)
        self.assertIn('local,path=/var/tmp/labs,mount_tag=state,'
                      'security_model=none,multidevs=remap', words)
        self.assertEqual(
            ['node-name=d0,driver=nbd', 'node-name=d1,driver=file'],
            [after for before, after in zip(words, words[1:])
             if before == '-blockdev'])
        self.assertTrue(pathlib.Path(
            line[-2].partition('=')[2]).exists(), line)


class PatienceTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(labs, 'STATE', self.path))
        self.useFixture(fixtures.MockPatchObject(process, 'patience', 1))

    def lab(self, name, **kernel_of):
        (self.path / name).mkdir()
        (self.path / name / 'settings.json').write_text(
            json.dumps({'kernel': kernel_of}))
        return labs.Lab(name)

    def test_nodes_on_a_stock_kernel_get_more_time(self):
        self.lab('slow', binary='x', initrd='y')
        self.assertEqual(stock.SLOWER, process.patience)
        self.lab('quick', binary='x')
        self.assertEqual(1, process.patience)

    def test_waiting(self):
        process.patience = 3
        began = time.monotonic()
        self.assertRaises(process.LabError, process.wait_for, 'x',
                          lambda: False, 0.1, every=0.01)
        self.assertLessEqual(0.3, time.monotonic() - began)
