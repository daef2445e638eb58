# SPDX-License-Identifier: Apache-2.0
"""The filter and the weigher for Nova's scheduler."""

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
    """Return the object shared by filter and weigher.

    It is created at the first call, in the worker's process.
    """
    own = CONF[options.GROUP]
    return knowledge.Knowledge(
        block_storage.BlockStorage(CONF), knowledge.Limits(
            own.timeout, own.retry_interval, own.cache_time), own.hosts)


def _consider(spec: typing.Any, ask: Callable[[placement.Outlook], _T],
              otherwise: _T) -> _T:
    """Ask the outlook of a request a question.

    :param spec: the request
    :param ask: returns the answer from the outlook
    :param otherwise: the answer without an outlook, or after any error:
        scheduling must go on
    """
    try:
        if not spec.instance_uuid or not spec.project_id:
            return otherwise
        request = getattr(spec._context, 'request_id', None) or ''
        outlook = _knowledge().outlook(
            request, spec.instance_uuid, spec.project_id)
        return ask(outlook) if outlook else otherwise
    except Exception:
        LOG.debug('The volumes of a server could not be found.',
                  exc_info=True)
        return otherwise


class LocalCloneFilter(filters.BaseHostFilter):
    """Reject hosts that can't take the server's volumes.

    The home of all volumes always passes.
    """

    def host_passes(self, host_state: typing.Any, spec_obj: typing.Any
                    ) -> bool:
        """Return whether no known reason keeps the volumes from the host."""
        refusal = _consider(
            spec_obj, lambda outlook: outlook.refusal(host_state.host), '')
        if refusal:
            LOG.debug('%(host)s can\'t take the volumes of server '
                      '%(server)s: %(why)s', {
                          'host': host_state.host, 'why': refusal,
                          'server': spec_obj.instance_uuid})
        return not refusal


class LocalCloneWeigher(weights.BaseHostWeigher):
    """Prefer the home of a server's volumes, then their possible new homes.

    Without local volumes, or without data, all hosts weigh the same.
    """

    minval = 0.0
    maxval = 1.0

    def weight_multiplier(self, host_state: typing.Any) -> float:
        """Return the multiplier from the option or the host's aggregates."""
        multiplier: float = utils.get_weight_multiplier(
            host_state, 'localclone_weight_multiplier',
            CONF[options.GROUP].weight_multiplier)
        return multiplier

    def _weigh_object(self, host_state: typing.Any, request_spec: typing.Any
                      ) -> float:
        return _consider(
            request_spec, lambda outlook: outlook.weight(host_state.host),
            0.0)
