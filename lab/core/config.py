# SPDX-License-Identifier: Apache-2.0
"""The configuration files of the lab, as text. Pure.

The control plane is at 192.0.2.1 in the lab's own network namespace, which
nothing else reaches; its passwords are therefore no secret.
"""

import pathlib

CONTROL = '192.0.2.1'
PASSWORD = 'lab'
PORTS = {'keystone': 5000, 'cinder': 8776, 'glance': 9292, 'nova': 8774,
         'placement': 8778, 'neutron': 9696, 'barbican': 9311}
BUS = 'rabbit://guest:guest@%s:5672/' % CONTROL


def url(service: str) -> str:
    return 'http://%s:%d' % (CONTROL, PORTS[service])


def database(name: str) -> str:
    return 'mysql+pymysql://%s:%s@%s/%s?charset=utf8' % (
        name, PASSWORD, CONTROL, name)


def ini(sections: dict) -> str:
    """A configuration file; lists become repeated options."""
    lines = []
    for section, values in sections.items():
        lines.append('[%s]' % section)
        for key, value in values.items():
            for one in value if isinstance(value, list) else [value]:
                lines.append('%s = %s' % (key, one))
    return '\n'.join(lines) + '\n'


def service_auth(user):
    """The options by which one service logs in to use another."""
    return {'auth_url': url('keystone'), 'auth_type': 'password',
            'project_domain_id': 'default', 'user_domain_id': 'default',
            'project_name': 'service', 'username': user,
            'password': PASSWORD}


def authtoken(user):
    """The options by which an API checks whom it serves."""
    return dict(service_auth(user), www_authenticate_uri=url('keystone'),
                service_token_roles='service',
                service_token_roles_required='true')


def key_manager() -> dict:
    """The sections by which a service reads its users' secrets."""
    return {
        'key_manager': {'backend': 'barbican'},
        'barbican': {'auth_endpoint': url('keystone') + '/v3',
                     'barbican_endpoint': url('barbican') + '/',
                     'barbican_api_version': 'v1'}}


def _own_secrets(user):
    """Likewise, and by which it has secrets of its own."""
    sections = key_manager()
    sections['key_manager'].update({
        'auth_type': 'keystone_password', 'auth_url': url('keystone') + '/v3',
        'username': user, 'password': PASSWORD, 'project_name': 'service',
        'user_domain_name': 'Default', 'project_domain_name': 'Default'})
    return sections


def keystone(directory) -> str:
    return ini({
        'DEFAULT': {'use_stderr': 'true'},
        'database': {'connection': database('keystone'),
                     'max_pool_size': 5},
        'token': {'provider': 'fernet', 'expiration': 86400},
        'fernet_tokens': {'key_repository': directory / 'fernet-keys'},
        'fernet_receipts': {'key_repository': directory / 'fernet-keys'},
        'credential': {'key_repository': directory / 'credential-keys'},
    })


def glance(directory, state) -> str:
    return ini({
        'DEFAULT': {'use_stderr': 'true', 'enabled_backends': 'files:file'},
        'database': {'connection': database('glance')},
        'keystone_authtoken': authtoken('glance'),
        'paste_deploy': {'flavor': 'keystone', 'config_file':
                         directory / 'glance-api-paste.ini'},
        'glance_store': {'default_backend': 'files'},
        'files': {'filesystem_store_datadir': state / 'images'},
        'os_glance_staging_store': {
            'filesystem_store_datadir': state / 'staging'},
        'os_glance_tasks_store': {
            'filesystem_store_datadir': state / 'tasks'},
    })


def _cinder(venv, state, debug):
    return {
        'DEFAULT': {
            'transport_url': BUS, 'auth_strategy': 'keystone',
            'state_path': state, 'debug': debug,
            'api_paste_config': venv / 'etc/cinder/api-paste.ini',
            'resource_query_filters_file':
                venv / 'etc/cinder/resource_filters.json',
            'rootwrap_config': venv / 'etc/cinder/rootwrap.conf',
            'glance_api_servers': url('glance'),
            'default_volume_type': 'localclone',
            'rpc_response_timeout': 60, 'report_interval': 5,
            'service_down_time': 30, 'periodic_fuzzy_delay': 0,
            'scheduler_driver_init_wait_time': 1, 'use_stderr': 'true',
            'default_log_levels': 'amqp=WARN,amqplib=WARN,sqlalchemy=WARN,'
            'oslo.messaging=INFO,oslo_messaging=INFO,stevedore=WARN,'
            'keystoneauth=WARN,taskflow=WARN,urllib3=WARN,'
            'oslo.privsep.daemon=INFO,oslo_service=INFO',
        },
        'database': {'connection': database('cinder'), 'max_pool_size': 5},
        'keystone_authtoken': authtoken('cinder'),
        # Who tells Nova, if there is one, that a volume is imaged anew.
        'nova': dict(service_auth('cinder'), region_name='lab'),
        'oslo_concurrency': {'lock_path': '%s/locks' % state},
        'coordination': {'backend_url': 'file://%s/coordination' % state},
    }


def cinder_control(venv, state, debug=False, extra=None, keys=False) -> str:
    """For cinder-api and cinder-scheduler.

    :param extra: more options of the section DEFAULT
    :param keys: whether the lab has a key manager
    """
    sections = _cinder(venv, state, debug)
    sections['DEFAULT'].update({
        'host': 'control', 'osapi_volume_workers': 1,
        'osapi_volume_extension': [
            'cinder.api.contrib.standard_extensions',
            'cinder_localclone.service.messages.load']})
    sections['DEFAULT'].update(extra or {})
    # Without one, for volumes of encrypted types that nothing decrypts.
    sections.update(key_manager() if keys else {'key_manager': {
        'backend': 'cinder.keymgr.conf_key_mgr.ConfKeyManager',
        'fixed_key': '0' * 64}})
    return ini(sections)


def cinder_volume(node, address, venv, path, backend, extra=None,
                  debug=False, keys=False) -> str:
    """For the volume service of one backend on one node.

    :param path: of the file that this will be
    :param backend: 'localclone', or 'stock' for Cinder's own LVM driver
    :param extra: more options of the backend section
    :param keys: whether the lab has a key manager
    """
    sections = _cinder_on_node(node, address, venv, debug, backend)
    sections.update(_own_secrets('cinder') if keys else {})
    sections['DEFAULT']['enabled_backends'] = backend
    sections[backend] = _backend(backend, address, extra)
    sections.update(_quick_helpers(venv, path))
    return ini(sections)


def cinder_before_driver(node, address, venv, helpers_of=None,
                         rootwrap=None) -> str:
    """Return the configuration of a node on which no backend is set up yet.

    :param helpers_of: the path of the file that this will be, if privileged
        helpers start fast (:mod:`.quick_start`); None: by rootwrap, as on
        any other node
    :param rootwrap: the path of rootwrap's configuration, if it isn't that
        of the lab's venv
    """
    sections = _cinder_on_node(node, address, venv, False, 'localclone')
    if rootwrap:
        sections['DEFAULT']['rootwrap_config'] = rootwrap
    if helpers_of:
        sections.update(_quick_helpers(venv, helpers_of))
    return ini(sections)


def _cinder_on_node(node, address, venv, debug, backend):
    sections = _cinder(venv, '/run/cinder/' + backend, debug)
    sections['DEFAULT'].update({'host': node, 'my_ip': address})
    return sections


def _backend(backend, address, extra):
    """The section of a backend."""
    section = {
        'volume_backend_name': backend, 'lvm_type': 'thin',
        'target_ip_address': address,
        'target_prefix': 'iqn.2026-11.org.example:'}
    if backend == 'localclone':
        section.update({
            'volume_driver': 'cinder_localclone.driver.LocalCloneDriver',
            'volume_group': 'cinder-volumes'})
    else:
        section.update({
            'volume_driver': 'cinder.volume.drivers.lvm.LVMVolumeDriver',
            'volume_group': 'stock-volumes', 'target_helper': 'lioadm'})
    section.update(extra or {})
    return section


def _quick_helpers(venv, path):
    """The sections that start privileged helpers fast."""
    helper = '%s/bin/python -S %s --config-file %s' % (
        venv, pathlib.Path(__file__).with_name('quick_start.py'), path)
    return {name: {'helper_command': helper} for name in (
        'cinder_sys_admin', 'privsep_osbrick', 'localclone_privileged',
        'localclone_secrets')}


def rabbitmq() -> str:
    return ('loopback_users.guest = false\n'
            'listeners.tcp.1 = %s:5672\n'
            'disk_free_limit.absolute = 50MB\n' % CONTROL)
