# SPDX-License-Identifier: Apache-2.0
"""Processes that start fast in a node, whoever starts them; privsep's helper.

``python -S lab/core/quick_start.py`` instead of ``privsep-helper``: it is a
fork of a process that has imported what it needs, where there is one
(:mod:`lab.core.preloaded`).

A function to be called before exec(2) has Python copy the whole process for
it: in user-mode Linux 0.3 s each time, ten times for a login by os-brick. The
one that oslo.concurrency gives restores a signal, as Python does by itself.
"""

import os
import subprocess
import sys
import types


class Popen(subprocess.Popen):
    """Without the function before exec(2), if it does nothing else."""

    def __init__(self, *args, preexec_fn=None, **kwargs):
        needed = getattr(preexec_fn, 'args', (preexec_fn,)) != (None,)
        super().__init__(
            *args, preexec_fn=preexec_fn if needed else None, **kwargs)


def install():
    """Have oslo.concurrency start its processes so, in this process."""
    from oslo_concurrency import processutils
    names = dict(vars(processutils.subprocess), Popen=Popen)
    processutils.subprocess = types.SimpleNamespace(**names)


def look_seldom():
    """Have a service that is started in this process rest when it has nothing.

    oslo.service looks for processes that have ended a hundred times a second:
    in user-mode Linux a sixth of a processor for each node.
    """
    from cinder import service
    make = service.process_launcher

    def process_launcher():
        launcher = make()
        launcher.wait_interval = 0.5
        return launcher
    service.process_launcher = process_launcher


def main():
    """privsep-helper, with it."""
    from oslo_privsep import daemon
    install()
    sys.exit(daemon.helper_main())


def fork_or_start():
    """privsep-helper, as a fork if that can be; without site-packages."""
    import preloaded  # which lies beside this file
    code = preloaded.helper(sys.argv[1:])
    if code is None:
        os.execv(sys.executable, [
            sys.executable, '-m', preloaded.HELPER, *sys.argv[1:]])
    sys.exit(code)


if __name__ == '__main__':
    fork_or_start() if sys.flags.no_site else main()
