# SPDX-License-Identifier: Apache-2.0
"""Options of a backend section that uses this driver."""

from oslo_config import cfg

from cinder_localclone.core import copies
from cinder_localclone.core import state

#: What volume_driver is in a section of this driver.
DRIVER = 'cinder_localclone.driver.LocalCloneDriver'

localclone_opts = [
    cfg.IntOpt(
        'localclone_region_size', default=64, min=4, max=1024,
        help='Size of a region in KiB, a power of two. A region is the unit '
             'in which a volume is copied while it moves. Small regions make '
             'the first write to one that is not copied yet cheap; large '
             'ones need less metadata. A move uses, and keeps, what is set '
             'on the node that the volume leaves: set it to the same value '
             'on all nodes.'),
    cfg.IntOpt(
        'localclone_hydration_batch', min=1, max=512,
        sample_default='2 MiB / localclone_region_size',
        help='Maximum number of contiguous regions copied in one request. '
             'Region size times batch is the size of a read from the source. '
             'While fewer regions are in flight, requests are smaller, too. '
             'The kernel\'s default of 1 is far too slow. Taken from the '
             'node that the volume leaves, like localclone_region_size.'),
    cfg.IntOpt(
        'localclone_hydration_threshold', min=1, max=8192,
        sample_default='32 MiB / localclone_region_size',
        help='Maximum number of regions in flight, at any pace. Set it to a '
             'multiple of localclone_hydration_batch, so that several '
             'requests are in flight. With the default value only '
             'localclone_pace = full uses all of it; at the other paces fewer '
             'regions are in flight. Taken from the node that the volume '
             'leaves, like localclone_region_size.'),
    cfg.StrOpt(
        'localclone_pace', default=copies.Settings.pace.value,
        choices=[
            ('yield', '64 KiB in flight while the guest reads or writes its '
             'volume, 2 MiB once it has been idle for 0.6 s, and 8 MiB after '
             '5 s'),
            ('full', 'as many regions as localclone_hydration_threshold '
             'allows, whatever the guest does: the shortest copies, but slow '
             'synchronous writes'),
            ('spare', 'as yield, but 2 MiB only once the guest has been '
             'idle for 5 s, and 8 MiB after 30 s: for guests that would '
             'rather have longer copies than bursts in their pauses')],
        help='How a volume is copied beside the guest that uses it, on the '
             'node that it moves to. With yield, a volume that no guest has '
             'used yet on this node starts at 8 MiB in flight; with spare, '
             'at 2 MiB for the first 30 s. Except while a copy is stopped, '
             'at least one region may be in flight, even if it is larger '
             'than 64 KiB; with localclone_max_rate_in there are never more '
             'than 2 MiB, at any pace. While a volume is being attached to '
             'this node, or a volume of this node to another one, and for 3 '
             's afterwards, copies to this node with yield or spare stop, '
             'for at most 10 s at a time and a third of the time overall; '
             'beyond that they are as slow as beside a guest that works. The '
             'extra spec localclone:pace of a volume type takes precedence '
             'over this option. What the guest does is read from the '
             'statistics of the volume\'s device, every '
             'localclone_wake_interval, but at least every 0.2 s.'),
    cfg.IntOpt(
        'localclone_pace_floor', default=copies.Settings.floor >> 20, min=1,
        max=10000,
        help='Minimum rate, in MiB/s, of each copy, if disks and network '
             'allow, so that it ends even if its guest is never idle. While a '
             'copy is slower than this, what it may have in flight is doubled '
             'every 2 s, up to 2 MiB. Does not apply while copies stop for an '
             'attach; localclone_max_rate_in takes precedence.'),
    cfg.IntOpt(
        'localclone_max_rate_in', default=copies.Settings.limit >> 20, min=0,
        max=100000,
        help='Maximum rate, in MiB/s, at which data is copied to this node, '
             'by all copies of the backend together, for a network or disks '
             'that must be spared. Each copy has the same share; what one '
             'does not use, the others get. The limit is kept over some '
             'seconds; within them copies come in bursts. Regions that '
             'guests write to for the first time are copied at once, and '
             'count; what guests read is not limited, and does not count. A '
             'copy is held back for at most about 20 s at a time, so many '
             'copies under a small limit exceed it. Devices whose I/O the '
             'kernel does not count (iostats off) are not limited. 0: no '
             'limit.'),
    cfg.ListOpt(
        'localclone_addresses', default=[],
        help='Further IP addresses of this node that Nova may send, as its '
             'my_block_storage_ip, besides target_ip_address and my_ip. A '
             'node is known by them where Nova\'s host name is not that of '
             'the volume service.'),
    cfg.StrOpt(
        'localclone_metadata_group',
        help='Volume group of the small LVs that record what has been copied '
             '(4 MiB or more for each volume that moves to this node). While '
             'a volume moves, every synchronous write of its guest waits for '
             'that LV, so a fast disk pays off. Default: the volume group of '
             'the volumes, which must then keep a few free extents.'),
    cfg.IntOpt(
        'localclone_thick_stripes', default=1, min=1, max=128,
        help='Over how many disks of the volume group a new thick volume is '
             'striped, in stripes of 64 KiB. The group must have that many '
             'disks; the loss of one of them is then the loss of all volumes '
             'on the node. Each node may have another number: it applies to '
             'what is created on the node, or moves to it. Volumes that are '
             'extended keep what they have. Thin volumes are striped by '
             'their pool instead.'),
    cfg.FloatOpt(
        'localclone_wake_interval', default=0.05, min=0, max=10,
        help='How often (in seconds) the kernel is prompted to resume a copy '
             'that guest I/O paused. The kernel starts to copy regions only '
             'while no guest I/O is in flight, and by itself checks that '
             'once a second. A longer interval makes copies beside busy '
             'guests slower, and these guests a little faster. 0: no '
             'prompts; the driver sends a message only when it changes how '
             'much may be in flight.'),
    cfg.IntOpt(
        'localclone_max_copies_in', default=copies.Limits.into, min=0,
        max=1000,
        help='Maximum number of volumes copied to a node at a time. The other '
        'volumes that move to the node wait in a queue; they can be used '
        'meanwhile. Volumes for which a snapshot or a clone waits come first, '
        'then attached ones, then those that have waited longest. One copy '
        'fills most links; a second one uses pauses of the first. More copies '
        'slow down each other and the guests. Each node decides by itself '
        'which copies run: set this, localclone_max_copies_out and '
        'localclone_max_copies to the same values on all nodes. 0: no limit.'),
    cfg.IntOpt(
        'localclone_max_copies_out', default=copies.Limits.out_of, min=0,
        max=1000,
        help='Maximum number of volumes copied from a node at a time. '
             '0: no limit.'),
    cfg.IntOpt(
        'localclone_max_copies', default=copies.Limits.total, min=0,
        max=10000,
        help='Maximum number of volumes copied at a time between all nodes '
             'of the backend, for a network that all of them share. 0: no '
             'limit.'),
    cfg.IntOpt(
        'localclone_move_interval', default=5, min=1, max=3600,
        deprecated_name='localclone_interval',
        help='Seconds between checks of the volumes that move from or to '
             'this node.'),
    cfg.IntOpt(
        'localclone_node_interval', default=60, min=5, max=86400,
        help='Seconds between checks of everything on this node: each '
             'volume, device and export is compared with the database, and '
             'repaired if it differs.'),
    cfg.BoolOpt(
        'localclone_online_extend', default=False,
        help='Whether volumes can be extended while they are attached. Nova '
             'has to take part: see "Extending volumes" in the '
             'documentation.'),
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
        'localclone_lock_timeout', default=20, min=1, max=600,
        help='Seconds that a request waits for other work on the same '
             'volume to end.'),
    cfg.IntOpt(
        'localclone_snapshot_wait', default=300, min=0, max=86400,
        help='Seconds that a snapshot or a clone waits for the volume to be '
        'copied to its new home. After this time the request fails. The '
        'snapshot or clone has the data of the end of the wait.'),
    cfg.IntOpt(
        'localclone_source_timeout', default=86400, min=30, max=2147483,
        help='How long (in seconds) reads of data that is not copied yet '
             'wait for an unreachable source before the guest gets an I/O '
             'error. Prefer a long time: guests survive waiting better than '
             'errors.'),
    cfg.StrOpt(
        'localclone_key_auth', default='key_manager',
        choices=[
            ('key_manager', 'those in the section [key_manager], with '
             'auth_type = keystone_password'),
            ('keystone_authtoken', 'those of Cinder\'s own user')],
        help='Credentials with which the driver stores and reads the secrets '
        'of volumes that it encrypts (extra spec localclone:encryption). '
        'Every node needs them: it opens its volumes before any user has sent '
        'it a token. These credentials can read all of these secrets, and so '
        'can every user with a role in the same project.'),
    cfg.IntOpt(
        'localclone_key_timeout', default=15, min=1, max=300,
        help='Seconds to wait for an answer of the key manager. Keep it well '
             'below localclone_peer_timeout: a node that takes in a volume '
             'asks for its key meanwhile.'),
    cfg.StrOpt(
        'localclone_header_backup_dir',
        help='Directory for backups of the headers of volumes that the '
             'driver encrypts, 16 MiB each. Without its header a volume is '
             'lost: choose a directory on another disk than the volumes\'. '
             'Root must own it and each directory above it, and nobody else '
             'may be able to write to them; no part of the path may be a '
             'link. Default: none are made.'),
    cfg.StrOpt(
        'localclone_reencryption_resilience', default='checksum',
        choices=[
            ('checksum', 'checksums of the part that is being re-encrypted; '
             'the faster one'),
            ('journal', 'a journal of that part: everything is written '
             'twice')],
        help='How a re-encryption ("cinder-localclone encryption '
             'reencrypt") survives a power cut, unless --resilience says '
             'otherwise.'),
    cfg.IntOpt(
        'localclone_reencryption_zone', default=16, min=1, max=64,
        help='How many MiB of a volume are re-encrypted at a time, at most. A '
             'guest that reads or writes there waits until they are done. '
             'Smaller parts mean shorter waits, but a slower re-encryption: '
             'each costs writes to the header, and stops the volume twice '
             'for a moment.'),
    cfg.BoolOpt(
        'localclone_authenticated', default=False,
        help='Whether volumes of types with the extra spec '
             'localclone:integrity can be created on this node. This is '
             'experimental. Such volumes can\'t be extended or re-encrypted, '
             'move only while they are detached, and are overwritten '
             'completely when they are created.'),
    cfg.IntOpt(
        'localclone_compare_timeout', default=3600, min=0, max=604800,
        help='Seconds that a copy waits, before it ends or after a restart, '
        'for the volume service of its source, for the map of a thin pool, or '
        'for lost data that can\'t be copied again. A thin pool that could '
        'not write its metadata may have lost regions that had been copied, '
        'although it reported success; the source is asked for its data, and '
        'these regions are copied again. After this time the copy continues '
        'and may end, unless a loss is known that no operator has accepted.'),
    cfg.StrOpt(
        'localclone_key_cache', default='none',
        choices=[
            ('none', 'keys are only in the key manager'),
            ('systemd-creds', 'sealed by systemd-creds, with the key that '
             'the node has for that and its TPM, if it has one')],
        help='Whether a node keeps the keys of the volumes that it has open, '
             'for a boot at which the key manager does not answer. Without a '
             'TPM whoever has the node\'s system disk has these keys.'),
    cfg.StrOpt(
        'localclone_key_cache_dir', default='/var/lib/localclone/keys',
        help='Directory of the keys that are kept. It is created for root '
             'alone; root must own each directory above it, and nobody else '
             'may be able to write to them; no part of the path may be a '
             'link. Services of one cloud on '
             'the same node may share it; those of different clouds must '
             'not: each removes the keys of volumes that it does not know.'),
    cfg.IntOpt(
        'localclone_unlock_timeout', default=120, min=5, max=3600,
        help='Seconds that "cinder-localclone unlock" takes at most. A boot '
             'waits for it before Nova starts guests.'),
]


#: KiB that are copied at one moment, and in one request, at most.
_AT_ONE_MOMENT, _IN_ONE_REQUEST = 32 << 10, 2 << 10


def geometry(configuration) -> state.Geometry:
    """The clone parameters of new moves.

    :raises ValueError: if the region size is no power of two
    """
    kib = configuration.localclone_region_size
    if kib & (kib - 1):
        raise ValueError('localclone_region_size is %d; it must be a power '
                         'of two' % kib)
    return state.Geometry(
        region_sectors=kib * 1024 // state.SECTOR,
        threshold=(configuration.localclone_hydration_threshold
                   or _AT_ONE_MOMENT // kib),
        batch=(configuration.localclone_hydration_batch
               or _IN_ONE_REQUEST // kib))


def sealed_keys(configuration) -> str:
    """The directory of keys that this node keeps, sealed; '' for none."""
    return ('' if configuration.localclone_key_cache == 'none'
            else configuration.localclone_key_cache_dir)


def limits(configuration) -> copies.Limits:
    """How many copies run at one time."""
    return copies.Limits(
        into=configuration.localclone_max_copies_in,
        out_of=configuration.localclone_max_copies_out,
        total=configuration.localclone_max_copies)


def pacing(configuration) -> copies.Settings:
    """How fast copies may be."""
    return copies.Settings(
        pace=copies.Pace(configuration.localclone_pace),
        floor=configuration.localclone_pace_floor << 20,
        limit=configuration.localclone_max_rate_in << 20,
        prompt=configuration.localclone_wake_interval)


def list_opts():
    """For oslo-config-generator and the documentation."""
    # Slow to import; Cinder's drivers can't be imported before its objects.
    from cinder import objects
    objects.register_all()
    from cinder.volume.drivers import lvm
    return [('backend_defaults', localclone_opts + [
        option for option in lvm.volume_opts
        if option.name in ('volume_group', 'lvm_type', 'lvm_conf_file')])]
