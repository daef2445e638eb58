# SPDX-License-Identifier: Apache-2.0
"""What Cinder's API says of a server's volumes and of the nodes.

By python-cinderclient, which Nova itself requires.
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

#: The first version of the API that has attachments.
MICROVERSION = '3.27'
#: Most volumes of one server that are asked for.
MOST_VOLUMES = 32
#: Attachments that are none any more.
_OVER = ('detached', 'deleted')

_Record: typing.TypeAlias = Mapping[str, typing.Any]


class NoLogin(Exception):
    """nova.conf has no login for Cinder."""

    def __init__(self) -> None:
        super().__init__(
            'nova.conf of the scheduler has neither [%s] auth_type nor '
            '[%s] auth_type' % (options.GROUP, options.CINDER))


class BlockStorage:
    """Cinder's API, as Nova's own section ``[cinder]`` says where it is.

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
        """The nodes of all backends of this driver."""
        return backends(
            _records(self._client.pools.list(detailed=True)),
            _records(self._client.services.list(binary='cinder-volume')))

    def volumes(self, server: str, project: str
                ) -> typing.Iterator[placement.Volume]:
        """The volumes of a server, whichever backends they are on.

        Those of its own project: with Cinder anybody can reserve a volume
        for a server of any id, and would have a say in where that goes.
        """
        for volume_id in attached(_records(self._client.attachments.list(
                search_opts={'all_tenants': 1, 'project_id': project,
                             'instance_id': server}))):
            try:
                yield volume(self._client.volumes.get(volume_id).to_dict())
            except errors.NotFound:
                pass


def _records(resources: Iterable[typing.Any]) -> list[_Record]:
    """Return what the API has said of them, as it was said."""
    return [each.to_dict() for each in resources]


def attached(attachments: Iterable[_Record]) -> list[str]:
    """The ids of volumes, of so many as are asked for."""
    return sorted({each['volume_id'] for each in attachments
                   if each['status'] not in _OVER})[:MOST_VOLUMES]


def volume(record: _Record) -> placement.Volume:
    """A volume, of its record."""
    home, _at, backend = (record.get('os-vol-host-attr:host') or ''
                          ).partition('#')[0].partition('@')
    return placement.Volume(
        record['id'], record['size'], home, backend,
        stays=bool(record.get('group_id')),
        encrypted=bool(record.get('encrypted')))


def backends(pools: Iterable[_Record], services: Iterable[_Record]
             ) -> placement.Backends:
    """The nodes of this driver's backends, by what is reported of them.

    The pools tell which backends these are. A pool that says nothing of
    moves is of a node whose driver is older.
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
    """Free room in GiB; None for Cinder's words for no number."""
    try:
        return float(free)
    except (TypeError, ValueError):
        return None
