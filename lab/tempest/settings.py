# SPDX-License-Identifier: Apache-2.0
"""tempest.conf, as text. Pure."""

import dataclasses

from lab.core import config

#: Backends by their names; tests of retyping and migrating need two.
BACKENDS = ('localclone', 'stock')


@dataclasses.dataclass(frozen=True)
class Cloud:
    """What of a lab's cloud has ids, by these.

    :ivar image: boots
    :ivar image_alt: another one, which boots as well
    :ivar flavor: of a server that any tenant may boot from an image
    :ivar flavor_alt: a larger one
    """

    image: str
    image_alt: str
    flavor: str
    flavor_alt: str


def tempest(cloud, directory, nodes) -> str:
    """The configuration.

    What a driver should have is on, so that its tests fail if it is not
    there; skipped.yaml says why the rest is off.

    :param directory: where it runs
    :param nodes: how many there are
    """
    return config.ini({
        'DEFAULT': {'log_file': directory / 'tempest.log',
                    'use_stderr': 'false'},
        'oslo_concurrency': {'lock_path': directory / 'locks'},
        'auth': {
            'use_dynamic_credentials': 'true',
            # The network service is a stub.
            'create_isolated_networks': 'false',
            'admin_username': 'admin', 'admin_project_name': 'admin',
            'admin_password': config.PASSWORD,
            'admin_domain_name': 'Default'},
        'identity': {'uri_v3': config.url('keystone') + '/v3',
                     'auth_version': 'v3', 'region': 'lab'},
        # Cinder does so by default; the tests of roles ask for it.
        'enforce_scope': {'cinder': 'true'},
        'service_available': {
            'cinder': 'true', 'glance': 'true', 'nova': 'true',
            # Without it every class that boots a server is left out, whether
            # that server needs a network or not.
            'neutron': 'true', 'swift': 'false', 'horizon': 'false',
            'barbican': 'true'},
        # The guest has no network.
        'validation': {'run_validation': 'false'},
        'network-feature-enabled': {'api_extensions': ''},
        'compute': {
            'image_ref': cloud.image, 'image_ref_alt': cloud.image_alt,
            'flavor_ref': cloud.flavor, 'flavor_ref_alt': cloud.flavor_alt,
            'min_compute_nodes': nodes, 'hypervisor_type': 'QEMU',
            'max_microversion': 'latest'},
        'compute-feature-enabled': dict(_switches(
            on=('live_migration', 'volume_backed_live_migration',
                'block_migration_for_live_migration',
                'live_migrate_back_and_forth', 'resize', 'shelve',
                'snapshot', 'attach_encrypted_volume'),
            off=('metadata_service', 'config_drive', 'interface_attach',
                 'vnc_console', 'volume_multiattach'))),
        'volume': {
            'backend_names': ','.join(BACKENDS), 'storage_protocol': 'iSCSI',
            'vendor_name': 'Open Source', 'backup_driver': 'posix',
            'max_microversion': 'latest',
            # Five minutes by default, which a driver that lacks something
            # costs each of some tests.
            'build_timeout': 180,
            'manage_volume_ref': 'source-name,volume-%s',
            'manage_snapshot_ref': 'source-name,_snapshot-%s'},
        'volume-feature-enabled': dict(
            _switches(
                on=('multi_backend', 'snapshot', 'clone', 'manage_volume',
                    'manage_snapshot', 'extend_volume_with_snapshot',
                    'extend_attached_volume',
                    'extend_attached_encrypted_volume', 'volume_revert',
                    'concurrency_tests', 'backup'),
                off=('replication', 'consistency_group'))),
    })


def _switches(on, off):
    return dict({name: 'true' for name in on},
                **{name: 'false' for name in off})
