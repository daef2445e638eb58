# SPDX-License-Identifier: Apache-2.0
"""What is promised of exports, handles and disks, and only a kernel shows."""

from lab.core import observe
from lab.core import process
from tests.functional import base

#: iscsiadm(8): the target refuses the login.
REFUSED = 24
#: A disk of an iSCSI session, by the name of its target.
_DISK = ('basename $(ls -d /sys/class/iscsi_session/session*/device/target*/'
         '*/block/* | head -1)')
_LOGIN = '''
iscsiadm -m iface -I %(face)s --op new
test -z "%(name)s" || iscsiadm -m iface -I %(face)s --op update \
    -n iface.initiatorname -v "%(name)s"
record="iscsiadm -m node -T %(iqn)s -p %(portal)s -I %(face)s"
$record --op new
for pair in initial_login_retry_max=0 auth.authmethod=CHAP \
        auth.username=%(user)s auth.password=%(password)s; do
    $record --op update -n node.session.${pair%%=*} -v ${pair#*=}
done >/dev/null
timeout 60 $record --login
code=$?
$record --logout
$record --op delete
iscsiadm -m iface -I %(face)s --op delete
exit $code
'''

#: What another array may need: iscsid.conf(5).
OTHER_ARRAY = '''
node.startup = automatic
node.session.auth.authmethod = CHAP
node.session.auth.username = host
node.session.auth.password = secret-of-host
node.session.auth.username_in = array
node.session.auth.password_in = secret-of-array
node.session.auth.chap_algs = SHA256,MD5
node.session.nr_sessions = 2
node.session.scan = auto
node.conn[0].timeo.noop_out_interval = 0
node.conn[0].timeo.noop_out_timeout = 0
node.conn[0].iscsi.HeaderDigest = CRC32C,None
node.session.timeo.replacement_timeout = 5
'''


class PromisesTest(base.LabTest):

    def login(self, iqn, user, password, name='', face='promise'):
        """Log in to node1 from node2 beside the driver; iscsiadm's code.

        :param name: of the initiator; '': that of node2
        """
        return self.n2.run(_LOGIN % {
            'iqn': iqn, 'portal': self.n1.address + ':3260', 'user': user,
            'password': password, 'name': name, 'face': face},
            check=False, timeout=120).returncode

    def test_link_that_was_turned_elsewhere(self):
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        for elsewhere in ('/dev/vdb', '../dm-999'):
            attached.detach()
            self.n1.run('ln -sfn %s %s' % (elsewhere, attached.path))
            attached = self.instance.attach(volume, self.n1)
            self.assertEqual(expected, self.checksum(attached), elsewhere)
        attached.detach()

    def test_source_of_a_move(self):
        volume, attached, expected = self.moving_volume()
        iqn, = [line for line in self.n1.run(
            'ls /sys/kernel/config/target/iscsi').stdout.split()
            if 'localclone-' in line]
        (auth,), = observe.sql(
            self.lab, "SELECT provider_auth FROM volumes WHERE deleted = 0 "
            "AND migration_status LIKE 'target:%'")
        _method, user, password = auth.split()
        disk = self.n2.run(_DISK).stdout.strip()

        # A device of its own: the handle's name is free here.
        source, = self.n1.run('ls /dev/mapper/localclone-*').stdout.split()
        self.assertRegex(source, '/localclone-source-[-0-9a-f]{36}$')
        self.assertEqual('1', self.n1.run(
            'blockdev --getro ' + source).stdout.strip())

        # Only who knows the secret, and only under the name of node2.
        for given, name, code in (
                (password, '', 0), ('wrong' + password[5:], '', REFUSED),
                (password, 'iqn.2026-11.org.example:stranger', REFUSED)):
            self.assertEqual(code, self.login(iqn, user, given, name),
                             (given == password, name))

        # Read-only, whatever the initiator makes of that.
        self.n2.run('blockdev --setrw /dev/' + disk, check=False)
        self.assertNotEqual(0, self.n2.run(
            'dd if=/dev/urandom of=/dev/%s bs=1M count=1 oflag=direct '
            'conv=notrunc' % disk, check=False).returncode)

        # Its disk is set offline by the kernel, which never undoes it.
        state = '/sys/block/%s/device/state' % disk
        self.assertIsNotNone(observe.clone_progress(self.n2))
        self.n2.run('echo offline >' + state)
        process.wait_for('the disk to come back', lambda: self.n2.run(
            'cat ' + state).stdout.strip() == 'running', 60)

        # A host without the backend is served from the clone.
        attached.detach()
        connector = dict(self.instance.connector(self.n1),
                         host='elsewhere', ip='192.0.2.99')
        remote = self.instance.attach(volume, self.n1, connector)
        self.assertIsNotNone(observe.clone_progress(self.n2))
        self.assertEqual(expected, self.checksum(remote))
        remote.detach()
        attached = self.instance.attach(volume, self.n2)
        self.assert_moved(volume, attached, expected)
        attached.detach()

    def test_iscsid_conf_of_another_array_at_length(self):
        """A host may log in to other arrays, with other settings."""
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        attached.detach()
        conf = '/etc/iscsi/iscsid.conf'
        self.n2.run('cp %s /run/iscsid.conf && cat >>%s' % (conf, conf),
                    stdin=OTHER_ARRAY.encode())
        self.addCleanup(self.n2.run, 'cp /run/iscsid.conf ' + conf)
        attached = self.instance.attach(volume, self.n2)
        self.assertEqual(1, len(self.n2.run(
            'iscsiadm -m session').stdout.splitlines()))
        self.assert_moved(volume, attached, expected)
        attached.detach()
