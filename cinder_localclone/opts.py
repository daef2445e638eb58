# SPDX-License-Identifier: Apache-2.0
"""Options of a backend section that uses this driver."""

from oslo_config import cfg

from cinder_localclone import state

localclone_opts = [
    cfg.IntOpt(
        'localclone_region_size', default=64, min=4, max=1024,
        help='Size of a region in KiB, a power of two: the unit in which a '
             'volume that moves is copied. Small regions make the first '
             'write to a region that is not local yet cheap, large ones need '
             'less metadata. Stored with each move: a change applies to '
             'the next one.'),
    cfg.IntOpt(
        'localclone_hydration_batch', default=8, min=1, max=256,
        help='Contiguous regions copied as one request. Region size times '
             'batch is the size of a read from the source: 512 KiB is a good '
             'start. The kernel\'s own default, 1, is far too slow.'),
    cfg.IntOpt(
        'localclone_hydration_threshold', default=32, min=1, max=4096,
        help='Regions being copied at one moment, at most. A multiple of the '
             'batch keeps several requests in flight; 1 with a batch of 1 is '
             'a brake for links that must be spared.'),
    cfg.StrOpt(
        'localclone_metadata_group',
        help='Volume group of the small LVs that remember what has been '
             'copied (4 MiB and more for each volume that moves here). Every '
             'synchronous write of a guest waits for it while a volume '
             'moves, so a fast disk pays. Default: the volume group of the '
             'volumes, which must then keep a few free extents.'),
    cfg.FloatOpt(
        'localclone_wake_interval', default=0.05, min=0, max=10,
        help='Seconds between two times that a copy beside a busy guest is '
             'told to go on. The kernel copies only while no guest I/O is in '
             'flight, and by itself looks once a second. A longer time makes '
             'copies beside busy guests slower, and their guests a bit '
             'faster. 0: leave it to the kernel.'),
    cfg.IntOpt(
        'localclone_move_interval', default=5, min=1, max=3600,
        deprecated_name='localclone_interval',
        help='Seconds between checks of the volumes that move from or to '
             'this node.'),
    cfg.IntOpt(
        'localclone_node_interval', default=60, min=5, max=86400,
        help='Seconds between looks at everything on this node: each volume, '
             'device and export is compared with the database and mended.'),
    cfg.IntOpt(
        'localclone_command_timeout', default=30, min=5, max=600,
        help='Seconds after which a command (LVM, dmsetup, iscsiadm) is '
             'killed and counts as failed.'),
    cfg.IntOpt(
        'localclone_peer_timeout', default=40, min=5, max=600,
        help='Seconds to wait for the volume service of another node. Keep '
             'it below rpc_response_timeout of cinder-api, which waits for '
             'both.'),
    cfg.IntOpt(
        'localclone_lock_timeout', default=20, min=1, max=600,
        help='Seconds to wait for other work on the same volume.'),
    cfg.IntOpt(
        'localclone_source_timeout', default=86400, min=30, max=2147483,
        help='Seconds for which reads of parts of a volume that are not '
             'local yet wait while the source node does not answer. After '
             'that the guest sees I/O errors; waiting is what guests survive '
             'best.'),
]


def geometry(configuration) -> state.Geometry:
    """What new moves use.

    :raises ValueError: if the region size is no power of two
    """
    kib = configuration.localclone_region_size
    if kib & (kib - 1):
        raise ValueError('localclone_region_size is %d; it must be a power '
                         'of two' % kib)
    return state.Geometry(
        region_sectors=kib * 1024 // state.SECTOR,
        threshold=configuration.localclone_hydration_threshold,
        batch=configuration.localclone_hydration_batch)


def list_opts():
    """For oslo-config-generator and the documentation."""
    # Slow to import; Cinder's drivers can't be imported before its objects.
    from cinder import objects
    objects.register_all()
    from cinder.volume.drivers import lvm
    return [('backend_defaults', localclone_opts + [
        option for option in lvm.volume_opts
        if option.name in ('volume_group', 'lvm_type', 'lvm_conf_file')])]
