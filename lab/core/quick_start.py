# SPDX-License-Identifier: Apache-2.0
"""Processes that start fast in a node, whoever starts them; privsep's helper.

``python -m lab.core.quick_start`` instead of ``privsep-helper``.

A function to be called before exec(2) has Python copy the whole process for
it: in user-mode Linux 0.3 s each time, ten times for a login by os-brick. The
one that oslo.concurrency gives restores a signal, as Python does by itself.
"""

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


def main():
    """privsep-helper, with it."""
    from oslo_privsep import daemon
    install()
    sys.exit(daemon.helper_main())


if __name__ == '__main__':
    main()
