# SPDX-License-Identifier: Apache-2.0
"""Users, roles and catalogue of the lab's cloud; run once, in its venv.

Words: services beyond the usual ones.
"""

import sys

from keystoneauth1.identity import v3
from keystoneauth1 import session
from openstack import connection

URL = 'http://192.0.2.1:5000/v3'
PASSWORD = 'lab'
SERVICES = (
    ('cinder', 'block-storage', 'http://192.0.2.1:8776/v3'),
    ('cinderv3', 'volumev3', 'http://192.0.2.1:8776/v3'),
    ('glance', 'image', 'http://192.0.2.1:9292'))
MORE = (
    ('nova', 'compute', 'http://192.0.2.1:8774/v2.1'),
    ('placement', 'placement', 'http://192.0.2.1:8778'),
    ('neutron', 'network', 'http://192.0.2.1:9696'),
    ('barbican', 'key-manager', 'http://192.0.2.1:9311'))


def main():
    """Make all of it; the words name services beside Cinder and Glance."""
    cloud = connection.Connection(session=session.Session(auth=v3.Password(
        URL, username='admin', password=PASSWORD, project_name='admin',
        user_domain_id='default', project_domain_id='default')),
        region_name='lab', identity_api_version='3')
    identity = cloud.identity
    roles = {role.name: role for role in identity.roles()}
    projects = {name: identity.create_project(name=name, domain_id='default')
                for name in ('service', 'demo')}
    extra = sys.argv[1:]
    # A user of Nova's is there without Nova, too: tests attach as it does.
    for name in sorted({'cinder', 'glance', 'nova', *extra}):
        user = identity.create_user(name=name, password=PASSWORD,
                                    domain_id='default')
        for role in ('admin', 'service'):
            identity.assign_project_role_to_user(
                projects['service'], user, roles[role])
    demo = identity.create_user(name='demo', password=PASSWORD,
                                domain_id='default')
    identity.assign_project_role_to_user(
        projects['demo'], demo, roles['member'])
    for name, kind, url in SERVICES + tuple(
            service for service in MORE if service[0] in extra):
        service = identity.create_service(name=name, type=kind)
        for interface in ('public', 'internal'):
            identity.create_endpoint(
                service_id=service.id, interface=interface, url=url,
                region_id='lab')


if __name__ == '__main__':
    main()
