# SPDX-License-Identifier: Apache-2.0
"""What the scheduler is told of a backend. Pure."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_utils import units

from cinder_localclone.core.formats import lvm_reports

#: How good a choice this backend is for a new volume, for Cinder's
#: GoodnessWeigher, unless an operator has set another: the share of its room
#: that is free; half of that where no volume can move to.
GOODNESS = ('50 * (1 + capabilities.localclone_destination) '
            '* capabilities.free_capacity_gb '
            '/ max(capabilities.total_capacity_gb, 1)')


def stats(name: str, version: str, thin: bool, pool: Mapping[str, Any]
          ) -> dict[str, Any]:
    """What Cinder asks a driver for: one backend with one pool.

    :param name: volume_backend_name
    :param thin: whether its volumes are thin
    :param pool: what :func:`pool` returns
    """
    return {
        'volume_backend_name': name,
        'vendor_name': 'Open Source',
        'driver_version': version,
        'storage_protocol': 'iSCSI',
        'shared_targets': False,
        'sparse_copy_volume': thin,
        # What Cinder has cached of an image is used wherever it is.
        'clone_across_pools': thin,
        'pools': [dict(pool)],
    }


def pool(name: str, location: str, thin: bool, capacity: lvm_reports.Capacity,
         outage: str, problems: Sequence[str], options: Mapping[str, Any],
         block: int
         ) -> dict[str, Any]:
    """The only pool of a backend.

    :param location: tells it from all others, for migrations
    :param outage: why it can take no volume; '' if it can
    :param problems: why no volume can move to this node
    :param options: what an operator has set for the scheduler
    :param block: bytes of a sector of its disks
    """
    return {
        'pool_name': name,
        'total_capacity_gb': capacity.total / units.Gi,
        'free_capacity_gb': capacity.free / units.Gi,
        'provisioned_capacity_gb': capacity.provisioned / units.Gi,
        'total_volumes': capacity.volumes,
        'thin_provisioning_support': thin,
        'thick_provisioning_support': not thin,
        'location_info': location,
        'QoS_support': False,
        'multiattach': False,
        'consistent_group_snapshot_enabled': False,
        'backend_state': 'down' if outage else 'up',
        'localclone_destination': not problems,
        'localclone_problems': '; '.join(problems),
        'localclone_sector_size': block,
        **options,
    }
