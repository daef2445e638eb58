# SPDX-License-Identifier: Apache-2.0
"""A container is told from the host, or it is not known."""

import os
import pathlib

import ddt
import fixtures
import testtools

from cinder_localclone.storage import prerequisites
from cinder_localclone.storage.privsep import container

ROOT, OVERLAY = '254:1 / /', '0:51 / /'


@ddt.ddt
class IsolationTest(testtools.TestCase):

    def proc(self, own=(), root=ROOT, hosts=ROOT):
        """A /proc of a process with namespaces and a root of its own.

        :param root: None, as hosts: this process is not shown
        """
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        inodes = {}
        for name in container.FIRST:
            path = directory / 'self/ns' / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            inodes[name] = path.stat().st_ino + (name in own)
        self.useFixture(fixtures.MockPatchObject(
            container, 'FIRST', inodes))
        for pid, where in (('self', root), ('1', hosts)):
            if where is None:
                continue
            (directory / pid).mkdir(exist_ok=True)
            (directory / pid / 'mountinfo').write_text(
                '21 1 %s rw,relatime - ext4 /dev/vda1 rw\n'
                '22 21 0:7 / /dev rw shared:2 - devtmpfs devtmpfs rw\n'
                % where)
        return directory

    @ddt.data(((), ROOT, ROOT, False), (('ipc',), ROOT, ROOT, False),
              (('pid',), ROOT, ROOT, True), (('pid',), ROOT, None, True),
              ((), OVERLAY, ROOT, True),
              ((), '254:1 /srv/image /', ROOT, True),
              ((), '254:1 / /other', ROOT, True),  # its root is from chroot(2)
              ((), ROOT, None, None), ((), OVERLAY, None, None),
              (('ipc',), OVERLAY, None, None), ((), None, ROOT, None))
    @ddt.unpack
    def test_is_container(self, own, root, hosts, expected):
        found = container.isolation(str(self.proc(own, root, hosts)))
        self.assertEqual((set(own), expected),
                         (found.own, found.is_container))

    def test_mounts(self):
        found = container.isolation(str(self.proc()))
        self.assertEqual({'/': 'ext4', '/dev': 'devtmpfs'}, found.mounts)
        found = container.isolation(str(self.proc(root=None)))
        self.assertEqual({}, found.mounts)

    def test_kernel_without_such_namespaces(self):
        for name in container.FIRST:
            proc = self.proc()
            (proc / 'self/ns' / name).unlink()
            self.assertIs(False, container.isolation(str(proc)).is_container)

    @ddt.data('self/mountinfo', '1/mountinfo')
    def test_file_that_may_not_be_read(self, path):
        proc = self.proc()
        (proc / path).unlink()
        (proc / path).mkdir()  # an error also for root
        self.assertIsNone(container.isolation(str(proc)).is_container)

    def test_namespaces_that_may_not_be_read(self):
        proc = self.proc()
        with fixtures.MockPatchObject(
                container.os, 'stat', side_effect=PermissionError(13, 'no')):
            self.assertIsNone(container.isolation(str(proc)).is_container)

    def test_no_proc(self):
        directory = self.useFixture(fixtures.TempDir()).path
        self.assertEqual(
            container.Isolation(frozenset(), None, {}),
            container.isolation(os.path.join(directory, 'proc')))

    def test_here(self):
        found = prerequisites.isolation()
        self.assertEqual(container.isolation(), found)
        self.assertIn('/proc', found.mounts)
