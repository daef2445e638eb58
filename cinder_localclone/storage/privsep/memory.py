# SPDX-License-Identifier: Apache-2.0
"""Keep keys in the memory of a process out of swap and core dumps.

cryptsetup locks keys in its own memory. This module is for the Python
processes which pass keys to it.
"""

import ctypes
import functools
import os
import resource

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: Of <linux/prctl.h> and <sys/mman.h>.
_PR_SET_DUMPABLE = 4
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4


@functools.cache
def protect() -> None:
    """Lock the memory of this process, and disable its core dumps.

    It acts once in a process. A program executed afterwards may be dumpable
    again, but inherits the size limit of 0 bytes. A refusal by the kernel is
    logged.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    for risk, act in (
            ('core dumps', lambda: libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)),
            # Only used pages: a thread's stack is 8 MiB of address space.
            ('swap', lambda: libc.mlockall(
                _MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT))):
        if act():
            LOG.warning('Keys in the memory of this process may be written to '
                        '%(risk)s: %(error)s', {
                            'risk': risk,
                            'error': os.strerror(ctypes.get_errno())})
