# SPDX-License-Identifier: Apache-2.0
"""Volumes of servers, and nodes, as Cinder's API reports them.

Uses python-cinderclient; Nova itself requires it.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import functools
import typing

from cinderclient import client
from cinderclient import exceptions as errors
from keystoneauth1 import loading

from cinder_localclone.nova import options
from cinder_localclone.nova import placement

#: The first API version with attachments.
MICROVERSION = '3.27'
#: Greatest number of volumes to read for a server.
MOST_VOLUMES = 32
#: Statuses of ended attachments.
_OVER = ('detached', 'deleted')

_Record: typing.TypeAlias = Mapping[str, typing.Any]


class NoLogin(Exception):
    """nova.conf has no login for Cinder."""

    def __init__(self) -> None:
        super().__init__(
            'nova.conf of the scheduler has neither [%s] auth_type nor '
            '[%s] auth_type' % (options.GROUP, options.CINDER))


class BlockStorage:
    """Cinder's API, at the address in Nova's own section ``[cinder]``.

    :param conf: Nova's configuration
    """

    def __init__(self, conf: typing.Any):
        self._conf = conf

    @functools.cached_property
    def _client(self) -> typing.Any:
        conf = self._conf
        own = conf[options.GROUP]
        auth = loading.load_auth_from_conf_options(
            conf, options.GROUP if own.auth_type or own.auth_section
            else options.CINDER)
        if auth is None:
            raise NoLogin()
        session = loading.load_session_from_conf_options(
            conf, options.CINDER, auth=auth, timeout=own.timeout)
        cinder = conf[options.CINDER]
        kind, name, interface = cinder.catalog_info.split(':')
        template = cinder.endpoint_template
        # No retries: scheduling waits.
        return client.Client(
            MICROVERSION, session=session, service_type=kind,
            service_name=name or None, interface=interface,
            region_name=cinder.os_region_name,
            endpoint_override=template and template % {
                'project_id': session.get_project_id()},
            connect_retries=0)

    def backends(self) -> placement.Backends:
        """Return all backends of this driver, with their nodes."""
        return backends(
            _records(self._client.pools.list(detailed=True)),
            _records(self._client.services.list(binary='cinder-volume')))

    def volumes(self, server: str, project: str
                ) -> typing.Iterator[placement.Volume]:
        """Yield the volumes of a server, on any backend.

        Only volumes of the server's project count: any user of Cinder can
        reserve a volume for any server id, and would influence the server's
        placement.
        """
        for volume_id in attached(_records(self._client.attachments.list(
                search_opts={'all_tenants': 1, 'project_id': project,
                             'instance_id': server}))):
            try:
                yield volume(self._client.volumes.get(volume_id).to_dict())
            except errors.NotFound:
                pass


def _records(resources: Iterable[typing.Any]) -> list[_Record]:
    """Return the unchanged answers of the API."""
    return [each.to_dict() for each in resources]


def attached(attachments: Iterable[_Record]) -> list[str]:
    """Return the ids of attached volumes, at most :data:`MOST_VOLUMES`."""
    return sorted({each['volume_id'] for each in attachments
                   if each['status'] not in _OVER})[:MOST_VOLUMES]


def volume(record: _Record) -> placement.Volume:
    """Return a volume from its API record."""
    home, _at, backend = (record.get('os-vol-host-attr:host') or ''
                          ).partition('#')[0].partition('@')
    return placement.Volume(
        record['id'], record['size'], home, backend,
        stays=bool(record.get('group_id')),
        encrypted=bool(record.get('encrypted')))


def backends(pools: Iterable[_Record], services: Iterable[_Record]
             ) -> placement.Backends:
    """Return the nodes of this driver's backends from their reports.

    The pools identify the backends. A pool without localclone_destination
    belongs to a node with an older driver.
    """
    reported = {each['name'].partition('#')[0]: each['capabilities']
                for each in pools}
    ours: dict[str, dict[str, placement.Node]] = {
        host.partition('@')[2]: {} for host, pool in reported.items()
        if 'localclone_destination' in pool}
    for service in services:
        host, _at, backend = service['host'].partition('@')
        if backend in ours:
            pool = reported.get(service['host'], {})
            ours[backend][host] = placement.Node(
                service['state'] == 'up', _number(
                    pool.get('free_capacity_gb')),
                '' if pool.get('localclone_destination', True)
                else pool.get('localclone_problems')
                or 'no volume can move there',
                pool.get('localclone_sector_size'))
    return {name: placement.Backend(nodes) for name, nodes in ours.items()}


def _number(free: typing.Any) -> float | None:
    """Return the free space in GiB; None if Cinder reports no number."""
    try:
        return float(free)
    except (TypeError, ValueError):
        return None
