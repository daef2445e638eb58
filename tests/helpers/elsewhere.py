# SPDX-License-Identifier: Apache-2.0
"""Tests that want a process which Eventlet has left alone.

Other tests have it change pipes, threads and clocks, for what is forked, too.
"""

import functools
import pathlib
import subprocess
import sys

from eventlet import patcher


@functools.cache
def _run(name):
    found = subprocess.run(
        [sys.executable, '-W', 'ignore', '-m', 'testtools.run', name],
        cwd=pathlib.Path(__file__).resolve().parents[2], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
    return found.returncode, found.stdout


def skip(case, name: str) -> None:
    """Skip a test if it was to be run elsewhere; it was, and has succeeded.

    :param name: of a module or a class that it belongs to: all tests of that
        are run together, once
    :raises AssertionError: with what was said, if one of them has failed
    :raises unittest.SkipTest: if none has
    """
    if patcher.is_monkey_patched('socket'):
        code, said = _run(name)
        case.assertEqual(0, code, said)
        case.skipTest('it was run in another process, and succeeded')
