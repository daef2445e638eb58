# SPDX-License-Identifier: Apache-2.0
"""The process that re-encrypts a volume: it outlives the volume service.

It begins as ``cinder-localclone encryption run``, which asks for the key, and
then is cryptsetup itself, so whoever ends it (SIGTERM) has that pause. It is
never killed: what it has suspended then stays suspended, and a guest's I/O
with it. Where systemd runs the node it is a unit of its own, else a session
of its own. It is found by its command line; as any process can write any
command line over its own, it has to be root's in every respect, and in that
unit where systemd runs the node.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import typing

import psutil
import tenacity

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import process

#: Where systemd has its sockets if it runs the node.
SYSTEMD = '/run/systemd/system'
#: Whose these processes are.
OWNER = 0
#: The inode of the first PID namespace (PROC_PID_INIT_INO of the kernel).
HOSTS_NAMESPACE = 0xEFFFFFFC
#: Where what such a process says goes; gone after a boot, as it is.
DIRECTORY = '/run/localclone'
#: A unit that does not end when it is asked to is left alone.
PROPERTIES = ('Type=exec', 'KillSignal=SIGTERM', 'SendSIGKILL=no',
              'TimeoutStopSec=300', 'OOMScoreAdjust=-1000', 'LimitCORE=0',
              'Nice=10',
              'IOSchedulingClass=idle')
#: The end of its command line before it is cryptsetup.
WORDS = ['encryption', 'run']
#: Seconds until a process that was started has its command line.
SEEN = 5
#: Seconds between two lines of progress.
FREQUENCY = 5
#: How much of the end of what it has said is read.
_TAIL = 4096


def is_run(argv: Sequence[str], volume_id: str) -> bool:
    """Whether a command line is that of a volume's re-encryption. Pure."""
    return list(argv[-3:]) == [*WORDS, volume_id] or (
        'reencrypt' in argv and names.crypt(volume_id) in argv)


def volume_of(argv: Sequence[str]) -> str | None:
    """The volume that a command line re-encrypts. Pure."""
    words = argv[-1:] if list(argv[-3:-1]) == WORDS else [
        names.volume_of_crypt_name(word) for word in argv] if (
            'reencrypt' in argv) else []
    return next((word for word in words if word and names.is_id(word)), None)


def is_in_unit(cgroups: str, volume_id: str) -> bool:
    """Whether a process is in the unit of a volume's re-encryption. Pure.

    :param cgroups: /proc/<pid>/cgroup
    """
    unit = '/system.slice/' + names.reencryption_unit(volume_id)
    return any(line.endswith(unit) for line in cgroups.splitlines())


def is_by_systemd() -> bool:
    """Whether systemd runs what this process can see, and starts units."""
    return bool(os.path.isdir(SYSTEMD) and shutil.which('systemd-run')
                and psutil.Process(1).name() == 'systemd')


@privsep.entrypoint
def obstacle() -> str:
    """Say why nothing can be re-encrypted here; '' if it can.

    Allows: tells whether systemd runs the node.

    When a container ends, the kernel kills all that is in its PID namespace,
    by SIGKILL; and of a unit of the host nothing is seen from there.
    """
    if is_by_systemd() or _namespace() == HOSTS_NAMESPACE:
        return ''
    return ('cinder-volume runs in a container with its own PID namespace. '
            'When that container ends, the re-encryption is killed and '
            'guests\' I/O stays suspended; run the container in the host\'s '
            'PID namespace')


def _namespace() -> int:
    return os.stat(os.path.join(psutil.PROCFS_PATH, 'self/ns/pid')).st_ino


def _argv(process: psutil.Process) -> list[str]:
    """Return the command line of a process; none of one that has ended."""
    try:
        return list(process.cmdline())
    except (psutil.Error, OSError):
        return []


def _is_owned(process: psutil.Process) -> bool:
    """Return whether a process is of one user alone.

    The owner of its directory does not tell: that is root as well for any
    process that has made itself undumpable.
    """
    return set(process.uids()) == {OWNER}


def _cgroups(pid: int) -> str:
    """Return /proc/<pid>/cgroup, which psutil does not read."""
    return pathlib.Path(psutil.PROCFS_PATH, str(pid), 'cgroup').read_text()


def _runs(process: psutil.Process, volume_id: str, by_systemd: bool) -> bool:
    """Whether a process is what re-encrypts a volume, or is about to."""
    try:
        return (is_run(_argv(process), volume_id) and _is_owned(process)
                and (not by_systemd
                     or is_in_unit(_cgroups(process.pid), volume_id)))
    except (psutil.Error, OSError):  # it has ended
        return False


def processes(volume_id: str) -> list[int]:
    """The ids of those that re-encrypt a volume, or are about to.

    Only those of the PID namespace of this process are seen.
    """
    privsep.require(names.is_id(volume_id), volume_id)
    by_systemd = is_by_systemd()
    return [each.pid for each in psutil.process_iter()
            if _runs(each, volume_id, by_systemd)]


def _file(volume_id: str, kind: str) -> str:
    return os.path.join(DIRECTORY, 'reencrypt-%s.%s' % (volume_id, kind))


# -- start

@privsep.entrypoint
def start(volume_id: str, backend: str, timeout: float) -> None:
    """Have a volume re-encrypted whose header says how; unless it is.

    Allows: starts the re-encryption of any volume, as its header says, with
    the configuration files of the daemon itself. Where systemd runs the node
    the process has all capabilities.

    The process reads the configuration files that this one was started with.

    :param backend: the section of the backend
    :raises CannotReencrypt: if the end of this service would kill it
    :raises Foreign: if those files have no such section
    """
    privsep.require(configuration.has(backend), backend)
    if processes(volume_id):
        return
    problem = obstacle()
    if problem:
        raise encryption_exceptions.CannotReencrypt(
            volume=volume_id, reason=problem)
    os.makedirs(DIRECTORY, mode=0o700, exist_ok=True)
    _forget(volume_id)
    argv = command(volume_id, configuration.files(), backend)
    if is_by_systemd():
        _start_unit(volume_id, argv, timeout)
    else:
        _start_session(volume_id, argv)
    # The kernel tells that a program was begun before its command line is to
    # be seen: who looks for the process in between would find none.
    tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda found: not found),
        stop=tenacity.stop_after_delay(SEEN), wait=tenacity.wait_fixed(0.02),
        retry_error_callback=lambda _state: None)(processes, volume_id)


def command(volume_id: str, config_files: Iterable[str], backend: str
            ) -> list[str]:
    """What is started."""
    return [sys.executable, '-m', 'cinder_localclone.cmd.main',
            *(word for path in config_files
              for word in ('--config-file', path)),
            '--backend', backend, *WORDS, volume_id]


def _start_unit(volume_id: str, argv: list[str], timeout: float) -> None:
    path = os.environ.get('PYTHONPATH')
    process.run(
        'systemd-run', '--quiet', '--collect',
        '--unit', names.reencryption_unit(volume_id),
        *('--property=' + each for each in PROPERTIES),
        '--property=StandardOutput=file:' + _file(volume_id, 'json'),
        *['--setenv=PYTHONPATH=%s' % path] * bool(path), *argv,
        timeout=timeout)


def _start_session(volume_id: str, argv: list[str]) -> None:
    with open(_file(volume_id, 'json'), 'wb') as output, open(
            _file(volume_id, 'log'), 'wb') as errors:
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output,
                         stderr=errors, cwd='/', start_new_session=True)


def _forget(volume_id: str) -> None:
    for kind in ('json', 'log'):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_file(volume_id, kind))


def become_cryptsetup(volume_id: str, key: bytes, resilience: str,
                      zone: int) -> typing.NoReturn:
    """Go on as cryptsetup, in this very process.

    :param key: goes through a pipe: it is in no file and on no command line
    :param resilience: how it outlives a power cut, as its header says
    :param zone: MiB that are encrypted anew at one time
    """
    pathlib.Path('/proc/self/oom_score_adj').write_text('-1000')
    reading, writing = os.pipe()
    with open(writing, 'wb') as pipe:
        pipe.write(key)
    os.dup2(reading, 0)
    os.close(reading)
    argv = ['nice', '-n', '10', 'ionice', '-c', '3',
            *resuming(volume_id, resilience, zone)]
    os.execvpe(argv[0], argv, dict(os.environ, LC_ALL='C'))


def resuming(volume_id: str, resilience: str, zone: int) -> list[str]:
    """The command line of the process in the end."""
    return ['cryptsetup', 'reencrypt', '--batch-mode', '--resume-only',
            '--active-name', names.crypt(volume_id), '--key-file', '-',
            *cryptsetup_cli.going_on(resilience, zone), '--progress-json',
            '--progress-frequency', str(FREQUENCY),
            names.handle_path(volume_id)]


# -- stop, and look

@privsep.entrypoint
def stop(volume_id: str, seconds: float) -> bool:
    """Have it pause, after the part that it is at work on.

    Allows: ends the re-encryption of any volume for now (SIGTERM).

    :returns: whether there is none any more
    """
    return not _stop([volume_id], seconds)


@privsep.entrypoint
def stop_sessions(seconds: float) -> list[str]:
    """Have all pause that are no units: they may not outlive the service.

    Allows: ends all re-encryptions for now (SIGTERM) where systemd does not
    run the node.

    :returns: volumes of which one goes on
    """
    return [] if is_by_systemd() else _stop(running(), seconds)


def _stop(volume_ids: Iterable[str], seconds: float) -> list[str]:
    """Have some pause, and return those that have not in time."""
    deadline = time.monotonic() + seconds
    told: set[int] = set()

    def stop_some(left: list[str]) -> list[str]:
        for volume_id in list(left):
            found = processes(volume_id)
            if not found:
                _forget(volume_id)
                left.remove(volume_id)
            for pid in found:
                if pid not in told and time.monotonic() <= deadline:
                    _terminate(pid, volume_id)
                    told.add(pid)
        return left
    left: list[str] = tenacity.Retrying(
        retry=tenacity.retry_if_result(bool),
        stop=tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_fixed(0.1),
        retry_error_callback=lambda state: state.outcome.result())(
            stop_some, list(volume_ids))
    return left


def _terminate(pid: int, volume_id: str) -> None:
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        descriptor = os.pidfd_open(pid)
        try:
            # Not another one of its id.
            if _runs(psutil.Process(pid), volume_id, is_by_systemd()):
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        finally:
            os.close(descriptor)


@privsep.entrypoint
def is_running(volume_id: str) -> bool:
    """Whether a volume is being re-encrypted, or is about to be.

    Allows: tells whether a volume is being re-encrypted.
    """
    return bool(processes(volume_id))


@privsep.entrypoint
def running() -> list[str]:
    """The ids of all volumes that are being re-encrypted on this node.

    Allows: lists the volumes that are being re-encrypted.
    """
    by_systemd = is_by_systemd()
    found = ((each, volume_of(_argv(each))) for each in psutil.process_iter())
    return sorted({volume_id for each, volume_id in found
                   if volume_id and _runs(each, volume_id, by_systemd)})


@privsep.entrypoint
def said(volume_id: str) -> str:
    """The end of what it has said of its progress; '' if nothing.

    Allows: reads the progress of the re-encryption of any volume.
    """
    privsep.require(names.is_id(volume_id), volume_id)
    try:
        with open(_file(volume_id, 'json'), 'rb') as output:
            output.seek(max(0, os.fstat(output.fileno()).st_size - _TAIL))
            return output.read().decode(errors='replace')
    except OSError:
        return ''
