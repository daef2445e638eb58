# SPDX-License-Identifier: Apache-2.0
"""The report of a backend to the scheduler. Pure."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_utils import units

from cinder_localclone.core.formats import lvm_reports

#: The default goodness of this backend for a new volume (GoodnessWeigher): its
#: share of free space, or half of it if no volume can move to this node.
GOODNESS = ('50 * (1 + capabilities.localclone_destination) '
            '* capabilities.free_capacity_gb '
            '/ max(capabilities.total_capacity_gb, 1)')


def stats(name: str, version: str, thin: bool, pool: Mapping[str, Any]
          ) -> dict[str, Any]:
    """Return the statistics of a backend with a single pool, for Cinder.

    :param name: volume_backend_name
    :param thin: whether its volumes are thin
    :param pool: as :func:`pool` returns it
    """
    return {
        'volume_backend_name': name,
        'vendor_name': 'Open Source',
        'driver_version': version,
        'storage_protocol': 'iSCSI',
        'shared_targets': False,
        'sparse_copy_volume': thin,
        # Cinder's image cache is used from any pool.
        'clone_across_pools': thin,
        'pools': [dict(pool)],
    }


def pool(name: str, location: str, thin: bool, capacity: lvm_reports.Capacity,
         outage: str, problems: Sequence[str], options: Mapping[str, Any],
         block: int
         ) -> dict[str, Any]:
    """Return the only pool of a backend.

    :param location: identifies the backend in migrations
    :param outage: why it can take no volume; '' if it can
    :param problems: why no volume can move to this node
    :param options: the operator's settings for the scheduler
    :param block: logical block size of its disks, bytes
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
