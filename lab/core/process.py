# SPDX-License-Identifier: Apache-2.0
"""Processes of a lab: started in its network namespace, ended by id."""

import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

CLONE_NEWNET = 0x40000000
#: How much longer everything may take: slow nodes raise it.
patience = 1
_libc = ctypes.CDLL(None, use_errno=True)


class LabError(Exception):
    """Something in the lab went wrong; the text says what to read."""


def enter_namespace(name: str) -> None:
    """Move this thread (and what it starts) into a network namespace."""
    handle = os.open('/run/netns/' + name, os.O_RDONLY)
    try:
        if _libc.setns(handle, CLONE_NEWNET):
            raise LabError('cannot enter network namespace %s: %s' % (
                name, os.strerror(ctypes.get_errno())))
    finally:
        os.close(handle)


@contextlib.contextmanager
def uninterrupted():
    """What is done in here is done to its end: ctrl-C, twice, is heard once.

    Only the main thread is ever interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN)
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(*argv, timeout=120, check=True, **kwargs):
    """Run a host command; its output is kept and shown if it fails."""
    try:
        done = subprocess.run(
            argv, timeout=timeout, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kwargs)
    except subprocess.TimeoutExpired:
        raise LabError('%s did not end within %s s' % (
            ' '.join(argv), timeout))
    if check and done.returncode:
        raise LabError('%s failed:\n%s' % (
            ' '.join(argv), done.stdout[-3000:]))
    return done.stdout


def wait_for(what, check, timeout, log=None, every=0.3):
    """Poll until ``check()`` is true; its value. A clear error if never."""
    timeout *= patience
    deadline = time.monotonic() + timeout
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            tail = ''
            if log and os.path.exists(log):
                with open(log, errors='replace') as lines:
                    tail = '\n  | '.join(
                        [''] + [x.rstrip() for x in lines][-12:])
            raise LabError('timed out after %d s waiting for %s%s%s' % (
                timeout, what, '; see %s' % log if log else '', tail))
        time.sleep(every)


def end_with(main):
    """Run a command and end this process at once, with its exit code.

    Nothing waits for threads that wait in a lab that is gone.
    """
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 2
    sys.stdout.flush()
    os._exit(code)


def in_parallel(calls, most=None):
    """Run all; the first error is raised when all have ended.

    :param most: how many at a time; None: all
    :returns: their results, in their order
    """
    calls = list(calls)
    with concurrent.futures.ThreadPoolExecutor(
            most or max(1, len(calls))) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]


def _started(pid):
    """The start time of a process in clock ticks; None if it is gone."""
    try:
        with open('/proc/%d/stat' % pid) as stat:
            fields = stat.read().rpartition(') ')[2].split()
        return None if fields[0] == 'Z' else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def group(number) -> set[int]:
    """The living processes of a process group."""
    pids = set()
    for name in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/stat' % name) as stat:
                state, _parent, its_group = stat.read().rpartition(
                    ') ')[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_group) == number and state != 'Z':
            pids.add(int(name))
    return pids


class Processes:
    """What a lab has started, remembered in files across commands."""

    def __init__(self, directory: pathlib.Path, namespace: str):
        self.directory = directory
        self.namespace = namespace

    def start(self, name, argv, log, env=None, cwd=None):
        """Start a process in its own session, in the lab's namespace."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(log, 'ab') as output:
            process = subprocess.Popen(
                [str(word) for word in argv], stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
                env=dict(os.environ, **(env or {})), cwd=cwd,
                preexec_fn=lambda: enter_namespace(self.namespace))
        (self.directory / name).write_text('%d %s' % (
            process.pid, _started(process.pid)))
        return process

    def pid(self, name):
        """The id of a process that still runs; None otherwise."""
        try:
            pid, started = (self.directory / name).read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return int(pid) if _started(int(pid)) == started else None

    def signal(self, name, number):
        """Send a signal to a process of that name, if it lives; its id."""
        pid = self.pid(name)
        if pid:
            try:
                os.killpg(pid, number)
            except ProcessLookupError:
                pass
        return pid

    def kill(self, name):
        """SIGKILL a process group and wait until it is gone."""
        pid = self.signal(name, signal.SIGKILL)
        if pid:
            wait_for('%s to end' % name, lambda: reap(pid), 20, every=0.05)
        (self.directory / name).unlink(missing_ok=True)

    def stop(self, name, timeout=15):
        """SIGTERM, then SIGKILL."""
        pid = self.signal(name, signal.SIGTERM)
        if pid:
            try:
                wait_for(name, lambda: reap(pid), timeout, every=0.05)
            except LabError:
                pass
        self.kill(name)

    def stop_all(self):
        """End everything of this lab, children and strays included."""
        for name in sorted(os.listdir(self.directory)
                           if self.directory.is_dir() else ()):
            self.signal(name, signal.SIGKILL)
        # Whatever else lives in the namespace was started by one of them.
        for _attempt in range(50):
            listed = subprocess.run(
                ['ip', 'netns', 'pids', self.namespace],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True).stdout.split()
            pids = [int(pid) for pid in listed if int(pid) != os.getpid()]
            alive = [pid for pid in pids if not reap(pid)]
            if not alive:
                return
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.1)


def reap(pid):
    """Whether a process has ended; collects it if it was our child."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    return _started(pid) is None
