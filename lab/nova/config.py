# SPDX-License-Identifier: Apache-2.0
"""The configuration files of Nova, Placement and libvirt, as text. Pure."""

from lab.core import config

DATABASES = ('nova_api', 'nova', 'nova_cell0', 'placement')
_PLACEMENT = 'cinder_localclone.nova.scheduler.LocalClone'


def placement() -> str:
    """Placement's configuration."""
    return config.ini({
        'DEFAULT': {'use_stderr': 'true'},
        'api': {'auth_strategy': 'keystone'},
        'placement_database': {
            'connection': config.database('placement'), 'max_pool_size': 5},
        'keystone_authtoken': config.authtoken('placement'),
    })


def _nova(state, locks, debug, keys):
    service = dict(config.service_auth('nova'), region_name='lab')
    return (config.key_manager() if keys else {}) | {
        'DEFAULT': {
            'transport_url': config.BUS, 'state_path': state,
            'debug': debug, 'use_stderr': 'true', 'report_interval': 5,
            # A busy machine of two cores: slow is not dead.
            'rpc_response_timeout': 120, 'service_down_time': 120,
            'periodic_fuzzy_delay': 0,
            'default_log_levels': 'amqp=WARN,amqplib=WARN,sqlalchemy=WARN,'
            'oslo.messaging=INFO,oslo_messaging=INFO,stevedore=WARN,'
            'keystoneauth=WARN,urllib3=WARN,oslo.privsep.daemon=INFO,'
            'oslo_service=INFO,nova.scheduler=INFO,nova.compute.'
            'resource_tracker=INFO',
        },
        'keystone_authtoken': config.authtoken('nova'),
        'service_user': dict(config.service_auth('nova'),
                             send_service_user_token='true'),
        'placement': service,
        'neutron': dict(service, endpoint_override=config.url('neutron')),
        'glance': {'api_servers': config.url('glance')},
        # As itself, when nobody has asked: as a node starts.
        'cinder': dict(config.service_auth('nova'), os_region_name='lab',
                       catalog_info='block-storage::publicURL'),
        'oslo_concurrency': {'lock_path': locks},
        'vnc': {'enabled': 'false'},
        'conductor': {'workers': 1},
        'scheduler': {'workers': 1, 'discover_hosts_in_cells_interval': 5},
    }


def control(state, debug=False, keys=False) -> str:
    """For nova-api, nova-conductor and nova-scheduler.

    :param keys: whether the lab has a key manager
    """
    sections = _nova(state, '%s/locks' % state, debug, keys)
    sections['DEFAULT']['host'] = 'control'
    sections['database'] = {'connection': config.database('nova'),
                            'max_pool_size': 5}
    sections['api_database'] = {'connection': config.database('nova_api'),
                                'max_pool_size': 5}
    # Nova's own, and those of the driver.
    sections['filter_scheduler'] = {
        'available_filters': ['nova.scheduler.filters.all_filters',
                              _PLACEMENT + 'Filter'],
        'enabled_filters':
            'ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,'
            'ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,'
            'LocalCloneFilter',
        'weight_classes': 'nova.scheduler.weights.all_weighers,'
                          + _PLACEMENT + 'Weigher'}
    sections['localclone_placement'] = {'cache_time': 1}
    return config.ini(sections)


def compute(node, address, venv, state, path, debug=False, keys=False
            ) -> str:
    """For nova-compute on one node.

    :param state: kept across power cuts, as on a real host. Not so what
        Nova keeps of each instance: a hard reboot makes it anew, and logs
        that grow are not seen through hostfs.
    :param keys: whether the lab has a key manager
    """
    sections = _nova(state, '/run/nova/locks', debug, keys)
    sections['DEFAULT'].update({
        'host': node, 'my_ip': address, 'my_block_storage_ip': address,
        'compute_driver': 'libvirt.LibvirtDriver',
        'instances_path': '/run/nova/instances',
        'reserved_host_memory_mb': 512, 'cpu_allocation_ratio': 8.0,
        # Instances' own disks are sparse, in a file system in memory.
        'disk_allocation_ratio': 8.0,
        'shutdown_timeout': 3, 'resume_guests_state_on_host_boot': 'true',
        'reimage_timeout_per_gb': 240})
    sections['libvirt'] = {
        'virt_type': 'qemu', 'cpu_mode': 'none',
        'hw_machine_type': 'x86_64=pc', 'live_migration_scheme': 'tcp',
        'live_migration_inbound_addr': address,
        # A guest that writes all the time, over a slow link: the first
        # limits that Nova would try would only cost time.
        'live_migration_downtime': 1000,
        'live_migration_downtime_steps': 3,
        'live_migration_downtime_delay': 3}
    helper = '%s/bin/privsep-helper --config-file %s' % (venv, path)
    for name in ('nova_sys_admin', 'privsep_osbrick',
                 'vif_plug_linux_bridge_privileged',
                 'vif_plug_ovs_privileged'):
        sections[name] = {'helper_command': helper}
    return config.ini(sections)


def libvirtd(address, host_uuid) -> str:
    """libvirtd.conf: for this node and, unguarded, for its peer."""
    return ('listen_tls = 0\nlisten_tcp = 1\nlisten_addr = "%s"\n'
            'auth_tcp = "none"\nauth_unix_rw = "none"\n'
            'host_uuid = "%s"\n' % (address, host_uuid))


def qemu() -> str:
    """qemu.conf: a node has no users, no cgroups and no security module."""
    return ('user = "root"\ngroup = "root"\nsecurity_driver = "none"\n'
            'cgroup_controllers = [ ]\nremember_owner = 0\n')
