# SPDX-License-Identifier: Apache-2.0
"""What Nova's scheduler loads: a filter and a weigher."""

from collections.abc import Callable
import functools
import typing

import nova.conf
from nova.scheduler import filters
from nova.scheduler import utils
from nova.scheduler import weights
from oslo_log import log as logging

from cinder_localclone.nova import block_storage
from cinder_localclone.nova import knowledge
from cinder_localclone.nova import options
from cinder_localclone.nova import placement

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_T = typing.TypeVar('_T')

options.register(CONF)


@functools.cache
def _knowledge() -> knowledge.Knowledge:
    """One for both; made when it is first asked, in the worker's process."""
    own = CONF[options.GROUP]
    return knowledge.Knowledge(
        block_storage.BlockStorage(CONF), knowledge.Limits(
            own.timeout, own.retry_interval, own.cache_time), own.hosts)


def _consider(spec: typing.Any, ask: Callable[[placement.Outlook], _T],
              otherwise: _T) -> _T:
    """What is known for a request, asked for something.

    It never fails: it is advice, and scheduling goes on without.
    """
    try:
        if not spec.instance_uuid or not spec.project_id:
            return otherwise
        request = getattr(spec._context, 'request_id', None) or ''
        outlook = _knowledge().outlook(
            request, spec.instance_uuid, spec.project_id)
        return ask(outlook) if outlook else otherwise
    except Exception:
        LOG.debug('It is not known where a server\'s volumes are.',
                  exc_info=True)
        return otherwise


class LocalCloneFilter(filters.BaseHostFilter):
    """Hosts that can't take the server's volumes do not pass.

    The home of all of them always does.
    """

    def host_passes(self, host_state: typing.Any, spec_obj: typing.Any
                    ) -> bool:
        """Whether nothing is known that keeps the volumes from the host."""
        refusal = _consider(
            spec_obj, lambda outlook: outlook.refusal(host_state.host), '')
        if refusal:
            LOG.debug('%(host)s can\'t take the volumes of server '
                      '%(server)s: %(why)s', {
                          'host': host_state.host, 'why': refusal,
                          'server': spec_obj.instance_uuid})
        return not refusal


class LocalCloneWeigher(weights.BaseHostWeigher):
    """The home of a server's volumes comes first, then where they can move.

    Without local volumes, or if nothing is known, all hosts weigh the same.
    """

    minval = 0.0
    maxval = 1.0

    def weight_multiplier(self, host_state: typing.Any) -> float:
        """The option's, or that of the host's aggregates."""
        multiplier: float = utils.get_weight_multiplier(
            host_state, 'localclone_weight_multiplier',
            CONF[options.GROUP].weight_multiplier)
        return multiplier

    def _weigh_object(self, host_state: typing.Any, request_spec: typing.Any
                      ) -> float:
        return _consider(
            request_spec, lambda outlook: outlook.weight(host_state.host),
            0.0)
