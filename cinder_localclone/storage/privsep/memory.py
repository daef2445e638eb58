# SPDX-License-Identifier: Apache-2.0
"""Keys in the memory of a process stay out of swap and of core dumps.

What cryptsetup has of a key it locks by itself; this is for the Python
processes that hand it over.
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
    """Lock the memory of this process, and have no core dump made of it.

    Once for a process. A program that it begins afterwards may be dumped
    again, but for its limit of 0 bytes. What the kernel refuses is logged.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    for risk, act in (
            ('core dumps', lambda: libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)),
            # Only what is used: a thread's stack is 8 MiB of address space.
            ('swap', lambda: libc.mlockall(
                _MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT))):
        if act():
            LOG.warning('Keys in the memory of this process may be written to '
                        '%(risk)s: %(error)s', {
                            'risk': risk,
                            'error': os.strerror(ctypes.get_errno())})
