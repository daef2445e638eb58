# SPDX-License-Identifier: Apache-2.0
"""The only layer that runs privileged commands: privsep entry points.

Each entry point is narrow and typed, and each command has a time limit.
The daemon runs with the capabilities below and nothing else; its thread pool
is wide so that one command that hangs on a dead device holds up no other.
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
    """Run a function in the privileged daemon, whoever calls it.

    Arguments and results travel as msgpack: plain values only. privsep's own
    decorator, without the loss of the function's type.
    """
    return typing.cast(Callable[_Parameters, _Result],
                       default.entrypoint(function))


def require(own: object, name: str) -> None:
    """Change what is the driver's own, and nothing else, whoever asks.

    :param own: whether it is, by its name
    :raises Foreign: if it is not
    """
    if not own:
        raise exceptions.Foreign(name=name)
