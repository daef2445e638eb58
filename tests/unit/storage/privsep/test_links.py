# SPDX-License-Identifier: Apache-2.0
"""The paths in /dev/localclone, in a directory like it."""

import os

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.storage.privsep import links
from tests.helpers import commands

V1, V2 = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))


@ddt.ddt
class LinksTest(commands.Case):

    def setUp(self):
        super().setUp()
        self.dev = self.useFixture(fixtures.TempDir()).path
        self.useFixture(fixtures.MockPatchObject(
            names, 'LINKS', self.dev + '/localclone'))
        os.mkdir(self.dev + '/mapper')
        for name in (names.guard(V1), names.handle(V1), 'crypt-' + V1):
            open('%s/mapper/%s' % (self.dev, name), 'w').close()
        self.useFixture(fixtures.MockPatchObject(
            links.sysfs, 'mapped_name', self.mapped_name))

    def mapped_name(self, path):
        """What the file that a path leads to is called stands for sysfs."""
        return os.path.basename(os.path.realpath(path)) if (
            os.path.exists(path)) else ''

    def leads_to(self, name):
        self.assertEqual('../mapper/' + name, os.readlink(names.link(V1)))
        self.assertEqual({V1: name}, links.targets())
        self.assertEqual([V1], os.listdir(names.LINKS))

    def test_made_and_left_alone(self):
        self.assertEqual({}, links.targets())
        self.assertTrue(links.ensure(V1, names.guard(V1)))
        self.leads_to(names.guard(V1))
        self.useFixture(fixtures.MockPatchObject(links.os, 'rename'))
        self.assertFalse(links.ensure(V1, names.guard(V1)))
        links.os.rename.assert_not_called()

    def test_turned_without_a_moment_in_which_there_is_none(self):
        links.ensure(V1, names.handle(V1))
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.storage.privsep.links.os.rename', self.rename))
        self.assertTrue(links.ensure(V1, names.guard(V1)))
        self.leads_to(names.guard(V1))

    def rename(self, old, new):
        self.assertTrue(os.path.exists(new))
        self.assertTrue(os.path.exists(old))
        os.replace(old, new)

    @ddt.data('../mapper/crypt-' + V1, 'nowhere', '../mapper')
    def test_what_others_have_turned_is_mended(self, elsewhere):
        os.mkdir(names.LINKS)
        os.symlink(elsewhere, names.link(V1))
        self.assertTrue(links.ensure(V1, names.guard(V1)))
        self.leads_to(names.guard(V1))

    def test_a_copy_of_the_device_is_no_link(self):
        """It would stay when the device gets another number."""
        os.mkdir(names.LINKS)
        open(names.link(V1), 'w').close()
        self.useFixture(fixtures.MockPatchObject(
            links.sysfs, 'mapped_name', return_value=names.guard(V1)))
        self.assertEqual({V1: ''}, links.targets())
        self.assertTrue(links.ensure(V1, names.guard(V1)))
        self.leads_to(names.guard(V1))

    def test_what_was_left_halfway(self):
        os.mkdir(names.LINKS)
        os.symlink('x', '%s/.%s.new' % (names.LINKS, V1))
        self.assertEqual({}, links.targets())
        self.assertTrue(links.ensure(V1, names.guard(V1)))
        self.leads_to(names.guard(V1))

    def test_removed(self):
        links.ensure(V1, names.guard(V1))
        self.assertTrue(links.remove(V1))
        self.assertFalse(links.remove(V1))
        self.assertEqual({}, links.targets())

    def test_nothing_but_the_drivers_own(self):
        for volume_id, device in (
                ('../x', names.guard('../x')), (V1, names.guard(V2)),
                (V1, names.crypt(V1)), (V1, 'x'), ('', names.guard(''))):
            self.assertRaises(exceptions.Foreign, links.ensure, volume_id,
                              device)
        for volume_id in ('../x', '', V1 + '/'):
            self.assertRaises(exceptions.Foreign, links.remove, volume_id)
        self.assertFalse(os.path.exists(names.LINKS))
