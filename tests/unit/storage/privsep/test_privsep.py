# SPDX-License-Identifier: Apache-2.0
"""What the privileged daemon can be asked for."""

import importlib
import inspect
import pathlib
import pkgutil

import ddt
from oslo_rootwrap import filters
import testtools

from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import cryptsetup_keys

#: Each is a door into a process with root's capabilities: there are these,
#: and with another one comes the question who may ask what through it.
ENTRY_POINTS = {
    'block': {'completed_reads', 'disable_discards', 'discard', 'flush',
              'head_is_zero', 'identity', 'logical_block', 'lv_number',
              'number', 'read_head', 'size', 'written_sectors', 'zero_head'},
    'lio_configfs': {'exports', 'hanging', 'targets', 'unfinished',
                     'unused_backstores'},
    'dm_control': set(),
    'header_backups': {'add', 'drop', 'dump', 'keep_only', 'listed', 'make',
                       'remove', 'restore', 'save_beginning', 'volumes'},
    'configuration': set(), 'folders': set(), 'lower': set(),
    'cryptsetup': {'close', 'damaged_copies', 'dump', 'erase', 'import_token',
                   'luks_uuid', 'payload_sectors', 'remove_integrity',
                   'remove_token', 'set_uuid', 'version'},
    'dmsetup': {'clone_statuses', 'create', 'discard_beneath',
                'mend_path', 'message', 'remove', 'replace_suspended',
                'send', 'status', 'survey', 'swap_flushed',
                'swap_table', 'targets'},
    'while_suspended': set(),
    'iscsiadm': {'bring_back', 'disks', 'end_session', 'initiator_name',
                 'is_down', 'known_portal', 'login', 'record_target',
                 'recorded', 'rescan', 'set_recovery_timeout'},
    'links': {'ensure', 'remove', 'targets'},
    'lio': {'export', 'is_exported', 'unexport'},
    'lvm': {'activate', 'add_tag', 'archive_room', 'create_snapshot',
            'create_thick', 'create_thin', 'deactivate', 'extend', 'free',
            'extent_size', 'free_of_disks',
            'group_tags', 'physical_volumes', 'protect', 'remove',
            'remove_tag', 'rename', 'resume', 'retag', 'retag_group',
            'skip_activation', 'transactions', 'volumes', 'zero',
            'zero_decrypted'},
    'header_lock': set(), 'memory': set(), 'process': set(),
    'reencrypt_process': {'is_running', 'obstacle', 'running', 'said', 'start',
                          'stop', 'stop_sessions'},
    'cryptsetup_keys': {'add_key', 'begin_reencryption', 'end_reencryption',
                        'format_luks1',
                        'format_luks2', 'kill_slot', 'open_device',
                        'resize', 'test', 'test_backup', 'test_ended'},
    'sealed_keys': {'end_reencryption', 'forget', 'open_device', 'resize',
                    'seal', 'volumes'},
    'sysfs': set(),
    'refill': {'forget_read', 'local', 'refill'},
    'thin_pool': {'block', 'check', 'holes', 'release', 'unmapped'},
}


def entry_points(module):
    module = importlib.import_module(
        'cinder_localclone.storage.privsep.' + module)
    return {name: value.args[0] for name, value in vars(module).items()
            if privsep.default.is_entrypoint(value)
            or cryptsetup_keys.context.is_entrypoint(value)}


@ddt.ddt
class EntryPointsTest(testtools.TestCase):

    def test_modules(self):
        self.assertEqual(set(ENTRY_POINTS), {
            each.name for each in pkgutil.iter_modules(privsep.__path__)})

    @ddt.data(*ENTRY_POINTS)
    def test_entry_points(self, module):
        self.assertEqual(ENTRY_POINTS[module], set(entry_points(module)))

    @ddt.data(*ENTRY_POINTS)
    def test_by_name_typed_and_described(self, module):
        for name, function in entry_points(module).items():
            self.assertEqual(
                ('cinder_localclone.storage.privsep.' + module, name),
                (function.__module__, function.__name__))
            signature = inspect.signature(function)
            for each in (signature.return_annotation, *(
                    parameter.annotation
                    for parameter in signature.parameters.values())):
                self.assertIsNot(inspect.Signature.empty, each, name)
            self.assertTrue(function.__doc__, name)


SOCKET = '/tmp/tmpa1b2c3_d/privsep.sock'  # tempfile.mkdtemp()


@ddt.ddt
class RootwrapTest(testtools.TestCase):
    """Which configuration a daemon of root's may be started with."""

    @ddt.data(
        ('/etc/cinder/cinder.conf', True), ('/etc/a..b/c.conf', True),
        ('/etc/../tmp/evil.conf', False), ('/etc/..', False),
        ('/etc/cinder/../../tmp/evil.conf', False),
        ('/etc/cinder/..', False), ('/tmp/evil.conf', False))
    @ddt.unpack
    def test_configuration_below_etc(self, path, allowed):
        self._each(path, SOCKET, allowed)

    @ddt.data('/tmp/x', '/tmp/tmpa1b2c3_d/../../etc/x/privsep.sock',
              '/tmp/tmpa1b2c3_d/privsep.sock/x', '/tmp/tmpa1/privsep.sock')
    def test_socket_of_privseps(self, path):
        self._each('/etc/cinder/cinder.conf', path, False)

    def _each(self, path, socket, allowed):
        root = pathlib.Path(privsep.__file__).resolve().parents[3]
        found = [line.split(': RegExpFilter, ')[1].split(', ') for line in (
            root / 'etc/cinder/rootwrap.d/localclone.filters'
        ).read_text().splitlines() if ': RegExpFilter, ' in line]
        self.assertEqual(2, len(found))
        for words in found:
            self.assertEqual(allowed, bool(filters.RegExpFilter(*words).match([
                'privsep-helper', '--config-file', path,
                '--privsep_context', words[6].replace('\\', ''),
                '--privsep_sock_path', socket])), path)
