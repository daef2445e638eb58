# SPDX-License-Identifier: Apache-2.0
"""Run commands with a time limit, even if they hang in the kernel."""

from collections.abc import Callable
from collections.abc import Iterator
from concurrent import futures
import contextlib
import fcntl
import functools
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import threading
import time
import typing

import tenacity

from cinder_localclone.core import exceptions

_Result = typing.TypeVar('_Result')


def run(*argv: str, timeout: float, ok: tuple[int, ...] = (0,),
        stdin: bytes | None = None, grace: float = 0, dying: float = 1,
        secret: str = '', pass_fds: tuple[int, ...] = ()) -> str:
    """Run a command and return its output.

    A command blocked in the kernel can't be killed. It is left behind, so the
    caller is never held up.

    :param timeout: limit in seconds
    :param grace: for a command which must not be killed: seconds for it to end
        after SIGTERM at the limit. Afterwards it is left behind. 0: kill the
        command at the limit
    :param dying: seconds to wait for a killed command
    :param ok: exit codes without an error
    :param stdin: data for standard input
    :param secret: text to mask in errors
    :param pass_fds: file descriptors inherited by the command
    :returns: standard output
    :raises CommandFailed: on another exit code, with the end of stderr
    :raises CommandTimeout: when the limit is reached
    """
    process = _start(
        *argv, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stderr=subprocess.PIPE, pass_fds=pass_fds)
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM if grace else signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=grace or dying)
        except subprocess.TimeoutExpired:
            pass
        if process.returncode is None or process.returncode < 0:
            # subprocess's own exception would show all of argv.
            raise exceptions.CommandTimeout(
                command=_shown(' '.join(argv), secret),
                seconds=timeout) from None
    if process.returncode not in ok:
        raise _failed(argv, process.returncode, err, secret)
    return out.decode(errors='replace')


def _start(*argv: str, stdin: int, stderr: typing.Any,
           pass_fds: tuple[int, ...] = ()) -> 'subprocess.Popen[bytes]':
    return subprocess.Popen(
        argv, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr,
        env=dict(os.environ, LC_ALL='C', LVM_SUPPRESS_FD_WARNINGS='1'),
        start_new_session=True, pass_fds=pass_fds)


def _failed(argv: tuple[str, ...], code: int, err: bytes, secret: str = ''
            ) -> exceptions.CommandFailed:
    said = err.decode(errors='replace').strip()
    return exceptions.CommandFailed(
        command=_shown(' '.join(argv), secret), code=code,
        stderr=_shown(said, secret)[-500:])


def _shown(text: str, secret: str) -> str:
    return text.replace(secret, '***') if secret else text


def stream(take: Callable[[bytes], None], *argv: str, timeout: float,
           pass_fds: tuple[int, ...] = ()) -> None:
    """Run a command which only reads, and may print very much.

    :param take: function called with each piece of the output, within the time
        limit
    :param timeout: limit in seconds
    :param pass_fds: as in :func:`run`
    :raises CommandFailed: on an exit code other than 0
    :raises CommandTimeout: when the limit is reached
    """
    deadline = time.monotonic() + timeout
    with contextlib.ExitStack() as opened:
        errors = opened.enter_context(tempfile.TemporaryFile())
        selector = opened.enter_context(selectors.DefaultSelector())
        process = _start(*argv, stdin=subprocess.DEVNULL, stderr=errors,
                         pass_fds=pass_fds)
        output = typing.cast(typing.IO[bytes], process.stdout)
        try:
            selector.register(output, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise exceptions.CommandTimeout(
                        command=' '.join(argv), seconds=timeout)
                piece = os.read(output.fileno(), 1 << 18)
                if not piece:
                    break
                take(piece)
            process.wait(1)
        except subprocess.TimeoutExpired:
            raise exceptions.CommandTimeout(
                command=' '.join(argv), seconds=timeout)
        finally:
            output.close()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
        if process.returncode:
            errors.seek(0)
            raise _failed(argv, process.returncode, errors.read())


def in_thread(act: Callable[[], _Result]) -> 'futures.Future[_Result]':
    """Begin work in a thread of its own.

    Nothing can end the thread if it hangs in the kernel.
    """
    work: futures.Future[_Result] = futures.Future()
    threading.Thread(target=_work, args=(work, act), daemon=True).start()
    return work


def _work(work: futures.Future[typing.Any], act: Callable[[], typing.Any]
          ) -> None:
    try:
        work.set_result(act())
    except BaseException as exc:
        work.set_exception(exc)


def has_ended(work: futures.Future[typing.Any], timeout: float) -> bool:
    """Return whether work ends in time, with or without an error.

    This is not ``result(timeout)``: the work itself may raise a TimeoutError.
    """
    return work in futures.wait([work], timeout).done


def within(timeout: float, what: str, act: Callable[[], _Result],
           undo: Callable[[_Result], typing.Any] | None = None) -> _Result:
    """Run a function with a time limit, in a thread.

    If the function hangs, its thread is left behind.

    :param timeout: limit in seconds
    :param what: description of the function, for errors
    :param act: the function
    :param undo: function called with a result that comes after the limit
    :returns: the function's result
    :raises CommandTimeout: when the limit is reached
    """
    work = in_thread(act)
    if not has_ended(work, timeout):
        if undo:
            work.add_done_callback(functools.partial(_undo, undo))
        raise exceptions.CommandTimeout(command=what, seconds=timeout)
    return work.result()


def _undo(undo: Callable[[_Result], typing.Any],
          late: 'futures.Future[_Result]') -> None:
    if not late.exception():
        undo(late.result())


@contextlib.contextmanager
def locked(path: str, what: str, timeout: float) -> Iterator[int]:
    """Lock a device (flock(2)).

    Every process with the descriptor keeps the lock: a command that inherits
    it keeps the lock until it ends.

    :param path: path of the device
    :param what: description of the device, for errors
    :param timeout: how long to wait for other holders, seconds
    :returns: descriptor with the lock
    :raises Busy: if other holders take too long
    """
    device = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            tenacity.Retrying(
                retry=tenacity.retry_if_exception_type(BlockingIOError),
                stop=tenacity.stop_after_delay(timeout),
                wait=tenacity.wait_fixed(0.05))(
                    fcntl.flock, device, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except tenacity.RetryError:
            raise exceptions.Busy(what=what, host=socket.gethostname(),
                                  seconds=timeout) from None
        yield device
    finally:
        os.close(device)


def run_unless(done: str, *argv: str, timeout: float, grace: float = 0
               ) -> bool:
    """Run a command, unless its work is done already.

    The command itself tells: a check beforehand would cost another command
    each time.

    :param done: text in the command's stderr if the work is done already
    :param timeout: limit in seconds
    :param grace: as in :func:`run`
    :returns: whether the command did anything
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
