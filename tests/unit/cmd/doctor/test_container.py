# SPDX-License-Identifier: Apache-2.0
"""What the doctor sees of the host from within a container."""

import os
from unittest import mock

import ddt
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor import container

#: kolla-ansible's mounts, and those of the installation page.
MOUNTS = {'/dev': 'devtmpfs', '/run': 'tmpfs', '/lib/modules': 'ext4',
          '/sys/kernel/config': 'configfs', '/etc/iscsi': 'ext4',
          '/etc/lvm': 'ext4', '/etc/udev/rules.d': 'ext4'}


def made(*own, **mounts):
    """A container with MOUNTS, and others."""
    found = {**MOUNTS, **mounts, os.path.realpath('/lib/modules'): 'ext4'}
    return container.Container(frozenset(own), found)


@ddt.ddt
class ChecksTest(testtools.TestCase):

    def assert_told(self, found, verdict, *words):
        finding, = found
        self.assertEqual(verdict, finding.verdict)
        for word in words:
            self.assertIn(word, finding.details + finding.fix)

    def test_complete(self):
        self.assert_told(container.namespaces(made()), checks.OK)
        self.assert_told(container.namespaces(made('pid')), checks.OK,
                         'can\'t re-encrypt')

    @ddt.data(*MOUNTS)
    def test_mount_that_is_missing(self, path):
        found = made()
        for each in {path, os.path.realpath(path)}:
            found.mounts.pop(each)
        if path in container.NEEDED:
            self.assert_told(
                container.namespaces(found), checks.FAIL,
                'not mounted from the host: ' + path, '%s:%s' % (path, path))
        else:
            self.assert_told(container.namespaces(found), checks.OK)

    def test_devices_of_the_engine(self):
        self.assert_told(container.namespaces(made(**{'/dev': 'tmpfs'})),
                         checks.FAIL, '/dev')

    def test_semaphores(self):
        self.assert_told(container.namespaces(made('ipc', 'pid')),
                         checks.FAIL, 'ipc_mode: host')

    def test_unknown(self):
        self.assert_told([container.unknown()], checks.WARN, 'not known',
                         'process 1', 'hidepid')

    def test_rules(self):
        missing = [checks.Finding('udev rules', checks.WARN, 'x', 'cp a b')]
        good = [checks.Finding('udev rules', checks.OK, 'x')]
        self.assertEqual(good, container.rules(made(), good))
        self.assert_told(container.rules(made(), missing), checks.WARN,
                         'on the host: docker cp')
        found = made()
        del found.mounts['/etc/udev/rules.d']
        self.assert_told(container.rules(found, missing), checks.WARN,
                         'not checked', '/etc/udev/rules.d:ro')
        self.assertEqual(['/run/udev/rules.d'],
                         container.rule_directories(found))
        self.assertEqual(list(checks.RULE_DIRECTORIES),
                         container.rule_directories(None))

    def test_filter(self):
        found = made()
        self.assertEqual([], container.lvm_filter(found))
        self.assertEqual([], container.lvm_filter(None))
        del found.mounts['/etc/lvm']
        self.assert_told(container.lvm_filter(found), checks.WARN,
                         'not checked', '/etc/lvm:/etc/lvm')

    def test_what_the_container_loses(self):
        found = made(**{'/var/lib/keys': 'ext4'})
        self.assertEqual([], container.kept(found, {
            'a': '/var/lib/keys/node', 'b': None, 'c': ''}))
        self.assert_told(container.kept(found, {'option': '/var/lib/other'}),
                         checks.WARN, 'lost with the container',
                         '/var/lib/other:/var/lib/other')
        self.assert_told(container.credentials(found), checks.WARN,
                         '/var/lib/systemd', '/etc/machine-id')
        self.assertEqual([], container.credentials(made(**dict.fromkeys(
            container.CREDENTIALS, 'ext4'))))

    def test_packages(self):
        first, second = container.in_image([
            checks.Finding('a', checks.FAIL, 'b', 'apt install c'),
            checks.Finding('d', checks.OK)])
        self.assertEqual('in the image: apt install c', first.fix)
        self.assertEqual('', second.fix)

    def test_path_below_a_link(self):
        with mock.patch.object(os.path, 'realpath', return_value='/run/x'):
            self.assertTrue(made().is_hosts('/var/run/x'))
