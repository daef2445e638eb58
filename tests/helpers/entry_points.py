# SPDX-License-Identifier: Apache-2.0
"""The functions that run in the privileged daemon."""

import importlib

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
    'configuration': set(), 'container': set(),
    'folders': set(), 'lower': set(),
    'cryptsetup': {'close', 'damaged_copies', 'dump', 'erase', 'import_token',
                   'luks_uuid', 'payload_sectors', 'remove_integrity',
                   'remove_token', 'set_uuid', 'version'},
    'dmsetup': {'clone_statuses', 'create', 'discard_beneath',
                'ensure_devnode', 'message', 'remove', 'replace_suspended',
                'send', 'status', 'survey', 'swap_flushed',
                'swap_table', 'targets'},
    'while_suspended': set(),
    'iscsiadm': {'bring_back', 'disks', 'end_session', 'initiator_name',
                 'is_down', 'known_portal', 'login', 'record_target',
                 'recorded', 'rescan', 'set_recovery_timeout'},
    'links': {'ensure', 'remove', 'targets'},
    'lio': {'export', 'is_exported', 'unexport'},
    'lvm': {'activate', 'add_tag', 'archive_space', 'create_snapshot',
            'create_thick', 'create_thin', 'deactivate', 'extend', 'free',
            'extent_size', 'free_of_disks',
            'group_tags', 'physical_volumes', 'protect', 'remove',
            'remove_tag', 'rename', 'resume', 'retag', 'retag_group',
            'skip_activation', 'transactions', 'volumes', 'zero',
            'zero_decrypted'},
    'header_lock': set(), 'memory': set(), 'process': set(),
    'network': {'ipsec_policies'},
    'reencrypt_process': {'is_running', 'obstacle', 'running',
                          'progress_output', 'start',
                          'stop', 'stop_sessions'},
    'cryptsetup_keys': {'add_key', 'begin_reencryption', 'end_reencryption',
                        'format_luks1',
                        'format_luks2', 'kill_slot', 'open_device',
                        'resize', 'test', 'test_backup', 'test_ended'},
    'sealed_keys': {'end_reencryption', 'forget', 'open_device', 'resize',
                    'seal', 'volumes'},
    'sysfs': set(),
    'refill': {'forget_read', 'local_regions', 'refill'},
    'thin_pool': {'all_holes', 'block_size', 'check_metadata_writable',
                  'largest_holes', 'release_metadata_snapshot'},
}


def entry_points(module):
    module = importlib.import_module(
        'cinder_localclone.storage.privsep.' + module)
    return {name: value.args[0] for name, value in vars(module).items()
            if privsep.default.is_entrypoint(value)
            or cryptsetup_keys.context.is_entrypoint(value)}
