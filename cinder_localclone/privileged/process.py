# SPDX-License-Identifier: Apache-2.0
"""Running a command with a time limit that holds, whatever it waits for."""

import os
import signal
import subprocess

from cinder_localclone import exceptions


def run(*argv: str, timeout: float, ok: tuple[int, ...] = (0,),
        stdin: bytes | None = None, grace: float = 0) -> str:
    """Run a command and return what it printed.

    A command that hangs in the kernel cannot be killed; it is then left
    behind rather than waited for, so that the caller is never held up.

    :param timeout: limit in seconds
    :param grace: for a command that must not be killed halfway: seconds more
        that it gets when it was asked to end (SIGTERM); what goes on after
        that is left behind. 0: it is killed at the limit
    :param ok: exit codes that are no failure
    :returns: standard output
    :raises CommandFailed: on another exit code, with the end of stderr
    :raises CommandTimeout: when the limit is reached
    """
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=dict(os.environ, LC_ALL='C', LVM_SUPPRESS_FD_WARNINGS='1'),
        start_new_session=True)
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM if grace else signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=grace or 1)
        except subprocess.TimeoutExpired:
            pass
        if process.returncode is None or process.returncode < 0:
            raise exceptions.CommandTimeout(
                command=' '.join(argv), seconds=timeout)
    if process.returncode not in ok:
        raise exceptions.CommandFailed(
            command=' '.join(argv), code=process.returncode,
            stderr=err.decode(errors='replace').strip()[-500:])
    return out.decode(errors='replace')


def run_unless(done: str, *argv: str, timeout: float, grace: float = 0
               ) -> bool:
    """Run a command whose work may be done already.

    Asking first would cost a command more, each time.

    :param done: what it says on stderr if so
    :param timeout: limit in seconds
    :param grace: as :func:`run`
    :returns: whether it did anything
    :raises CommandFailed: if it failed for another reason
    :raises CommandTimeout: when the limit is reached
    """
    try:
        run(*argv, timeout=timeout, grace=grace)
    except exceptions.CommandFailed as exc:
        if done in str(exc):
            return False
        raise
    return True
