# SPDX-License-Identifier: Apache-2.0
"""Options of a backend section of this driver."""

import typing

from oslo_config import cfg
from oslo_utils import units

from cinder_localclone.core import copies
from cinder_localclone.core import state

#: The value of volume_driver in a section of this driver.
DRIVER = 'cinder_localclone.driver.LocalCloneDriver'

localclone_opts = [
    cfg.IntOpt(
        'localclone_region_size_kib', default=64, min=4, max=1024,
        help='Size of a region in KiB, a power of two. A move copies a volume '
             'region by region. Small regions make first writes cheap during '
             'a copy; large regions need less metadata. A move uses the value '
             'of its source: set the same value on all nodes.'),
    cfg.StrOpt(
        'localclone_pace', default=copies.Settings.pace.value,
        choices=[
            ('yield', '64 KiB in flight while the guest reads or writes its '
             'volume, 2 MiB once it has been idle for 0.6 s, and 8 MiB after '
             '5 s'),
            ('full', '32 MiB in flight, also beside a busy guest: the '
             'shortest copies, but slow synchronous writes'),
            ('spare', 'as yield, but 2 MiB only once the guest has been '
             'idle for 5 s, and 8 MiB after 30 s: for bursty guests, at the '
             'price of longer copies')],
        help='Speed of a copy beside a guest, on the destination of the move. '
             'The extra spec localclone:pace of a volume type takes '
             'precedence. A copy makes at least 10 MiB/s, if disks and '
             'network allow. See "Pace" in the documentation.'),
    cfg.IntOpt(
        'localclone_max_copy_rate_mib', default=0, min=0, max=100000,
        help='Maximum rate of data copied to this node, in MiB/s, by all '
             'copies of the backend together, averaged over some seconds. '
             'First writes of guests count; reads of guests do not count and '
             'are not limited. Many copies under a small limit exceed it. 0: '
             'no limit.'),
    cfg.ListOpt(
        'localclone_addresses', default=[],
        help='Further IP addresses of this node, besides target_ip_address '
             'and my_ip, as Nova may send them in my_block_storage_ip. The '
             'driver finds a node by its addresses if Nova and the volume '
             'service have different names for its host.'),
    cfg.StrOpt(
        'localclone_metadata_volume_group',
        help='Volume group of the metadata LVs, with the progress of copies: '
             '4 MiB or more for each volume moving to this node. Synchronous '
             'writes of guests wait for them during a copy: use a fast disk. '
             'Default: volume_group, which must then keep a few free '
             'extents.'),
    cfg.IntOpt(
        'localclone_thick_stripes', default=1, min=1, max=128,
        help='Number of disks of the volume group over which a new thick '
             'volume is striped, in stripes of 64 KiB. The loss of a single '
             'disk is then the loss of all volumes on the node. Thin volumes '
             'are striped by their pool instead.'),
    cfg.IntOpt(
        'localclone_max_copies_in', default=copies.Limits.into, min=0,
        max=1000,
        help='Maximum number of concurrent copies to a node. Further volumes '
             'wait in a queue; guests can use them meanwhile. Set this option '
             'and localclone_max_copies_out to the same values on all nodes. '
             '0: no limit.'),
    cfg.IntOpt(
        'localclone_max_copies_out', default=copies.Limits.out_of, min=0,
        max=1000,
        help='Maximum number of concurrent copies from a node. 0: no limit.'),
    cfg.IntOpt(
        'localclone_reconcile_interval', default=60, min=5, max=86400,
        help='Seconds between two sweeps of this node: the driver compares '
             'each volume, device and export with the database, and repairs '
             'differences. Moves are checked every 5 s.'),
    cfg.BoolOpt(
        'localclone_enable_online_extend', default=False,
        help='Whether attached volumes can be extended. Nova has to '
             'participate: see "Extending volumes" in the documentation.'),
    cfg.IntOpt(
        'localclone_command_timeout', default=30, min=5, max=600,
        help='Seconds after which a command (LVM, dmsetup, iscsiadm) is '
             'killed and counts as failed.'),
    cfg.IntOpt(
        'localclone_peer_timeout', default=40, min=5, max=600,
        help='Seconds to wait for the volume service of another node. Keep '
             'it below rpc_response_timeout of cinder-api, which waits for '
             'both services.'),
    cfg.IntOpt(
        'localclone_snapshot_timeout', default=300, min=0, max=86400,
        help='Seconds to wait for the copy of a moving volume before a '
             'snapshot or a clone of it. After this time the request fails. A '
             'snapshot or clone has the data of the end of the wait.'),
    cfg.IntOpt(
        'localclone_source_timeout', default=86400, min=30, max=2147483,
        help='Seconds to wait for an unreachable source before a guest gets '
             'an I/O error for data not yet copied. Prefer a long time: '
             'guests survive waiting better than errors.'),
    cfg.StrOpt(
        'localclone_key_auth', default='key_manager',
        choices=[
            ('key_manager', 'the credentials in the section [key_manager], '
             'with auth_type = keystone_password'),
            ('keystone_authtoken', 'the credentials of Cinder\'s own user')],
        help='Credentials of the driver for the secrets of volumes encrypted '
             'by it (extra spec localclone:encryption). Every node needs '
             'them. They give access to all of these secrets, and so does '
             'every role in the same project.'),
    cfg.StrOpt(
        'localclone_header_backup_dir',
        help='Directory for header backups of volumes encrypted by the '
             'driver, 16 MiB each. Choose a disk other than the volumes\'. '
             'Root must own the directory and all directories above it, no '
             'other user may write to them, and no part of the path may be a '
             'link. Default: no backups.'),
    cfg.BoolOpt(
        'localclone_enable_integrity', default=False,
        help='Whether volumes of types with the extra spec '
             'localclone:integrity can be created on this node. Experimental. '
             'These volumes can\'t be extended or re-encrypted, move only '
             'while they are detached, and are overwritten completely at '
             'their creation.'),
    cfg.IntOpt(
        'localclone_verify_timeout', default=3600, min=0, max=604800,
        help='Seconds for which a copy waits, before it ends or after a '
             'restart, to be compared with its source; lost regions of the '
             'thin pool are copied again. After this time the copy is '
             'completed without verification, unless a loss is known and no '
             'operator has accepted it.'),
    cfg.StrOpt(
        'localclone_key_cache', default='none',
        choices=[
            ('none', 'keys are only in the key manager'),
            ('systemd-creds', 'sealed by systemd-creds, with the credential '
             'secret of the node and its TPM, if present')],
        help='Whether a node seals the keys of its open volumes, for a boot '
             'while the key manager does not answer. Without a TPM, anyone '
             'with the node\'s system disk has these keys.'),
    cfg.StrOpt(
        'localclone_key_cache_dir', default='/var/lib/localclone/keys',
        help='Directory of the sealed keys, created for root alone. Root must '
             'own each directory above it, no other user may write to them, '
             'and no part of the path may be a link. Services of different '
             'clouds on one node need separate directories: a service removes '
             'the keys of unknown volumes.'),
]

#: KiB in flight at pace "full", and KiB of a request. The kernel starts
#: regions only in pauses of a guest, so each pause must start many. Beside a
#: guest with constant writes, a copy of 1 GiB took 34 s with 2 MiB in flight,
#: 22 s with 8 MiB, and 13 s with 32 MiB. The kernel's default request of a
#: single region is far too slow, and a link stays busy only with several
#: requests in flight.
_IN_FLIGHT_KIB, _REQUEST_KIB = 32 * units.Ki, 2 * units.Ki


def geometry(configuration: typing.Any) -> state.Geometry:
    """Return the clone parameters of new moves.

    :raises ValueError: if the region size is no power of two
    """
    kib = configuration.localclone_region_size_kib
    if kib & (kib - 1):
        raise ValueError('localclone_region_size_kib is %d; it must be a '
                         'power of two' % kib)
    return state.Geometry(region_sectors=kib * units.Ki // state.SECTOR,
                          threshold=_IN_FLIGHT_KIB // kib,
                          batch=_REQUEST_KIB // kib)


def sealed_keys(configuration: typing.Any) -> str:
    """Return the directory of sealed keys; '' for none."""
    return ('' if configuration.localclone_key_cache == 'none'
            else configuration.localclone_key_cache_dir)


def limits(configuration: typing.Any) -> copies.Limits:
    """Return the limits of concurrent copies."""
    return copies.Limits(
        into=configuration.localclone_max_copies_in,
        out_of=configuration.localclone_max_copies_out)


def pacing(configuration: typing.Any) -> copies.Settings:
    """Return the pace and the rate limit of copies."""
    return copies.Settings(
        pace=copies.Pace(configuration.localclone_pace),
        limit=configuration.localclone_max_copy_rate_mib * units.Mi)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator and the documentation."""
    # Slow to import; Cinder's drivers can't be imported before its objects.
    from cinder import objects
    objects.register_all()
    from cinder.volume.drivers import lvm
    return [('backend_defaults', localclone_opts + [
        option for option in lvm.volume_opts
        if option.name in ('volume_group', 'lvm_type', 'lvm_conf_file')])]
