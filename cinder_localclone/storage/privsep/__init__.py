# SPDX-License-Identifier: Apache-2.0
"""privsep entry points: the only layer which runs privileged commands.

Each entry point is narrow and typed, and each command has a time limit. The
daemon has only the capabilities below. Its thread pool is wide, so a command
blocked by a dead device does not delay other commands.
"""

from collections.abc import Callable
import typing

from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import priv_context

from cinder_localclone.core import exceptions

_Parameters = typing.ParamSpec('_Parameters')
_Result = typing.TypeVar('_Result')

default = priv_context.PrivContext(
    'cinder_localclone',
    cfg_section='localclone_privileged',
    pypath=__name__ + '.default',
    # LVM locks its memory and raises its priority while devices are
    # suspended; modprobe needs SYS_MODULE, /sys and configfs DAC_OVERRIDE,
    # iscsiadm's socket to iscsid NET_ADMIN.
    capabilities=[
        capabilities.CAP_SYS_ADMIN, capabilities.CAP_DAC_OVERRIDE,
        capabilities.CAP_DAC_READ_SEARCH, capabilities.CAP_FOWNER,
        capabilities.CAP_CHOWN, capabilities.CAP_MKNOD,
        capabilities.CAP_IPC_LOCK, capabilities.CAP_SYS_NICE,
        capabilities.CAP_SYS_RESOURCE, capabilities.CAP_SYS_MODULE,
        capabilities.CAP_NET_ADMIN, capabilities.CAP_SYS_RAWIO,
    ],
)
cfg.CONF.set_default('thread_pool_size', 16, group='localclone_privileged')


def entrypoint(function: Callable[_Parameters, _Result]
               ) -> Callable[_Parameters, _Result]:
    """Register a function to run in the privileged daemon.

    Arguments and results travel as msgpack: plain values only. This wraps
    privsep's own decorator, which would lose the function's type.
    """
    return typing.cast(Callable[_Parameters, _Result],
                       default.entrypoint(function))


def require(own: object, name: str) -> None:
    """Refuse a name that is not the driver's own.

    :param own: true if the name is the driver's
    :param name: name or path, for the error
    :raises Foreign: if ``own`` is false
    """
    if not own:
        raise exceptions.Foreign(name=name)
