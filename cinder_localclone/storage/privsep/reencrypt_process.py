# SPDX-License-Identifier: Apache-2.0
"""The process that re-encrypts a volume: it outlives the volume service.

It begins as ``cinder-localclone reencryption run``, which gets the key, and
then executes cryptsetup itself. SIGTERM pauses the re-encryption. The process
is never killed: devices suspended by it would stay suspended, and a guest's
I/O with them. On a node run by systemd it is a unit of its own, otherwise a
session of its own. It is found by its command line. Any process can overwrite
its own command line, so the process must also have only root's user ids, and
be in its unit on a node run by systemd.

A container in the host's PID namespace has the unit started by the host's
systemd. The unit enters the mount namespace of the container, whose files the
process needs until it executes cryptsetup.
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
from cinder_localclone.storage.privsep import container
from cinder_localclone.storage.privsep import process

#: Directory of systemd's sockets on a node run by systemd.
SYSTEMD = '/run/systemd/system'
#: User id of these processes.
OWNER = 0
#: The remedy for a /proc without process 1.
SHOW = ('Mount /proc without hidepid, and run cinder-volume without '
        'ProtectProc')
#: Directory of the processes' output; like the processes, it is gone after a
#: boot.
DIRECTORY = '/run/localclone'
#: Enters the mount namespace of a container; on the host and in images.
NSENTER = '/usr/bin/nsenter'
#: Properties of a unit. If it does not end after SIGTERM, systemd leaves it
#: alone.
PROPERTIES = ('Type=exec', 'KillSignal=SIGTERM', 'SendSIGKILL=no',
              'TimeoutStopSec=300', 'OOMScoreAdjust=-1000', 'LimitCORE=0',
              'Nice=10',
              'IOSchedulingClass=idle')
#: Words before the volume id in the first command line of the process. Later
#: the process has the command line of cryptsetup.
WORDS = ['reencryption', 'run']
#: Seconds to wait until a new process shows its command line. :func:`start`
#: returns then, whether the process is visible or not.
SEEN = 5
#: Seconds between progress reports.
FREQUENCY = 5
#: Bytes read from the end of the output.
_TAIL = 4096


def is_run(argv: Sequence[str], volume_id: str) -> bool:
    """Return whether a command line re-encrypts a volume. Pure.

    It is the first command line of the process, or later the command line of
    nice, ionice or cryptsetup.
    """
    return list(argv[-3:]) == [*WORDS, volume_id] or (
        'reencrypt' in argv and names.crypt(volume_id) in argv)


def volume_of(argv: Sequence[str]) -> str | None:
    """Return the volume that a command line re-encrypts, or None. Pure."""
    words = argv[-1:] if list(argv[-3:-1]) == WORDS else [
        names.volume_of_crypt_name(word) for word in argv] if (
            'reencrypt' in argv) else []
    return next((word for word in words if word and names.is_id(word)), None)


def is_in_unit(cgroups: str, volume_id: str) -> bool:
    """Return whether a process is in the re-encryption unit of a volume.

    Pure.

    :param cgroups: contents of /proc/<pid>/cgroup
    """
    unit = '/system.slice/' + names.reencryption_unit(volume_id)
    return any(line.endswith(unit) for line in cgroups.splitlines())


def is_by_systemd() -> bool:
    """Return whether systemd runs this PID namespace, and can start units.

    It is false if this process can't see process 1.
    """
    if not (os.path.isdir(SYSTEMD) and shutil.which('systemd-run')):
        return False
    try:
        return bool(psutil.Process(1).name() == 'systemd')
    except psutil.Error:
        return False


@privsep.entrypoint
def obstacle() -> str:
    """Say why this node can't re-encrypt volumes; '' if it can.

    Allows: tells whether systemd runs the node.

    If this node is a container with a PID namespace of its own, it can't. When
    the container ends, the kernel kills all processes of the namespace by
    SIGKILL. A unit of the host's systemd would survive, but the container
    could not see its process. In the host's PID namespace the container's
    engine kills all processes of the container, but not a unit of the host.

    If the daemon can't see process 1, it can't see the process of a unit
    either, and this node may be such a container.
    """
    by_systemd, here = is_by_systemd(), _isolation()
    if 'pid' in here.own and not by_systemd:
        return ('cinder-volume runs in a container with its own PID '
                'namespace. When the container ends, the re-encryption is '
                'killed and guests\' I/O stays suspended. Run the container '
                'in the host\'s PID namespace')
    if here.has_own_root is None:
        return ('it is not known whether cinder-volume runs in a container: '
                '/proc does not show process 1. When a container ends, the '
                're-encryption is killed and guests\' I/O stays suspended. '
                + SHOW)
    if by_systemd or not here.has_own_root:
        return ''
    return ('cinder-volume runs in a container without systemd-run. When the '
            'container ends, its engine kills the re-encryption, and guests\' '
            'I/O stays suspended. Install systemd-run in the image: the '
            'host\'s systemd then runs the re-encryption')


def _isolation() -> container.Isolation:
    return container.isolation(psutil.PROCFS_PATH)


def _argv(process: psutil.Process) -> list[str]:
    """Return the command line of a process; [] if the process has ended."""
    try:
        return list(process.cmdline())
    except (psutil.Error, OSError):
        return []


def _is_owned(process: psutil.Process) -> bool:
    """Return whether all user ids of a process are root's.

    The owner of its /proc directory is no proof: any process which has made
    itself undumpable has a directory owned by root.
    """
    return set(process.uids()) == {OWNER}


def _cgroups(pid: int) -> str:
    """Return /proc/<pid>/cgroup, which psutil does not read."""
    return pathlib.Path(psutil.PROCFS_PATH, str(pid), 'cgroup').read_text()


def _runs(process: psutil.Process, volume_id: str, by_systemd: bool) -> bool:
    """Return whether a process re-encrypts a volume, or is about to."""
    try:
        return (is_run(_argv(process), volume_id) and _is_owned(process)
                and (not by_systemd
                     or is_in_unit(_cgroups(process.pid), volume_id)))
    except (psutil.Error, OSError):  # it has ended
        return False


def processes(volume_id: str) -> list[int]:
    """Return the ids of processes that re-encrypt a volume, or are about to.

    For callers in the privileged daemon; see also :func:`is_running`. Only
    processes in this PID namespace are visible.

    :raises HeaderInUse: if a process may be hidden. The output of a
        re-encryption remains until the daemon has seen its end
    """
    found = _visible(volume_id)
    if (not found and os.path.exists(_file(volume_id, 'json'))
            and _isolation().has_own_root is None):
        raise encryption_exceptions.HeaderInUse(
            path=names.handle_path(volume_id), reason='a re-encryption was '
            'started, and it is not known whether it has ended: /proc does '
            'not show process 1, and may hide the re-encryption. %s' % SHOW)
    return found


def _visible(volume_id: str) -> list[int]:
    privsep.require(names.is_id(volume_id), volume_id)
    by_systemd = is_by_systemd()
    return [each.pid for each in psutil.process_iter()
            if _runs(each, volume_id, by_systemd)]


def _file(volume_id: str, kind: str) -> str:
    return os.path.join(DIRECTORY, 'reencrypt-%s.%s' % (volume_id, kind))


# -- start

@privsep.entrypoint
def start(volume_id: str, backend: str, timeout: float) -> None:
    """Start the re-encryption of a volume, unless it is running.

    Allows: starts the re-encryption of any volume, as its header says, with
    the configuration files of the daemon itself. Where systemd runs the node
    the process has all capabilities.

    The volume's header has the parameters. The process reads the configuration
    files given to this daemon at its start.

    :param backend: section of the backend
    :raises CannotReencrypt: if there is an :func:`obstacle`
    :raises Foreign: if the configuration files have no such section
    """
    privsep.require(configuration.has(backend), backend)
    if processes(volume_id):
        return
    problem = obstacle()
    if problem:
        raise encryption_exceptions.CannotReencrypt(
            volume=volume_id, reason=problem)
    os.makedirs(DIRECTORY, mode=0o700, exist_ok=True)
    _remove_output(volume_id)
    argv = command(volume_id, configuration.files(), backend)
    if is_by_systemd():
        _start_unit(volume_id, argv, timeout)
    else:
        _start_session(volume_id, argv)
    # The kernel reports the start of a program before its command line is
    # visible. A search for the process in between would find none.
    tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda found: not found),
        stop=tenacity.stop_after_delay(SEEN), wait=tenacity.wait_fixed(0.02),
        retry_error_callback=lambda _state: None)(processes, volume_id)


def command(volume_id: str, config_files: Iterable[str], backend: str
            ) -> list[str]:
    """Return the first command line of the process.

    It ends in a call of :func:`become_cryptsetup`.
    """
    return [sys.executable, '-m', 'cinder_localclone.cmd.main',
            *(word for path in config_files
              for word in ('--config-file', path)),
            '--backend', backend, *WORDS, volume_id]


def _start_unit(volume_id: str, argv: list[str], timeout: float) -> None:
    path = os.environ.get('PYTHONPATH')
    if _isolation().has_own_root:  # the host has not these files
        argv = [NSENTER, '--mount=/proc/%d/ns/mnt' % os.getpid(), *argv]
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


def _remove_output(volume_id: str) -> None:
    """Remove the output of an ended re-encryption."""
    for kind in ('json', 'log'):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_file(volume_id, kind))


def become_cryptsetup(volume_id: str, key: bytes, resilience: str,
                      zone: int) -> typing.NoReturn:
    """Execute cryptsetup in place of this process.

    :param key: sent through a pipe: it is in no file and on no command line
    :param resilience: protection against power cuts, as in the volume's header
    :param zone: MiB re-encrypted at a time
    """
    pathlib.Path('/proc/self/oom_score_adj').write_text('-1000')
    reading, writing = os.pipe()
    with open(writing, 'wb') as pipe:
        pipe.write(key)
    os.dup2(reading, 0)
    os.close(reading)
    argv = ['nice', '-n', '10', 'ionice', '-c', '3',
            *resume_command(volume_id, resilience, zone)]
    os.execvpe(argv[0], argv, dict(os.environ, LC_ALL='C'))


def resume_command(volume_id: str, resilience: str, zone: int) -> list[str]:
    """Return the command line of cryptsetup that continues a re-encryption."""
    return ['cryptsetup', 'reencrypt', '--batch-mode', '--resume-only',
            '--active-name', names.crypt(volume_id), '--key-file', '-',
            *cryptsetup_cli.resume_options(resilience, zone),
            '--progress-json',
            '--progress-frequency', str(FREQUENCY),
            names.handle_path(volume_id)]


# -- stop, and check

@privsep.entrypoint
def stop(volume_id: str, seconds: float) -> bool:
    """Pause a re-encryption after its present zone, and remove its output.

    Allows: ends the re-encryption of any volume for now (SIGTERM).

    :param seconds: how long to wait for its end
    :returns: whether no process is left
    :raises HeaderInUse: if a process may be hidden; see :func:`processes`
    """
    processes(volume_id)
    return not _stop([volume_id], seconds)


@privsep.entrypoint
def stop_sessions(seconds: float) -> list[str]:
    """Pause all re-encryptions that are not units of systemd.

    Allows: ends all re-encryptions for now (SIGTERM) where systemd does not
    run the node.

    The end of the service may kill them, for example with its container.

    :param seconds: how long to wait for their end
    :returns: volumes whose re-encryption continues
    """
    return [] if is_by_systemd() else _stop(running(), seconds)


def _stop(volume_ids: Iterable[str], seconds: float) -> list[str]:
    """Pause re-encryptions, and return the volumes not paused in time.

    Each process gets SIGTERM only once.
    """
    deadline = time.monotonic() + seconds
    told: set[int] = set()

    def stop_some(left: list[str]) -> list[str]:
        for volume_id in list(left):
            found = _visible(volume_id)
            if not found:
                _remove_output(volume_id)
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
    """Send SIGTERM to a process, if it still re-encrypts a volume."""
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        descriptor = os.pidfd_open(pid)
        try:
            # Another process may have the id by now.
            if _runs(psutil.Process(pid), volume_id, is_by_systemd()):
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        finally:
            os.close(descriptor)


@privsep.entrypoint
def is_running(volume_id: str) -> bool:
    """Return whether a volume is being re-encrypted, or is about to be.

    Allows: tells whether a volume is being re-encrypted.

    :raises HeaderInUse: if a process may be hidden; see :func:`processes`
    """
    return bool(processes(volume_id))


@privsep.entrypoint
def running() -> list[str]:
    """Return the ids of all volumes being re-encrypted on this node.

    Allows: lists the volumes that are being re-encrypted.
    """
    by_systemd = is_by_systemd()
    found = ((each, volume_of(_argv(each))) for each in psutil.process_iter())
    return sorted({volume_id for each, volume_id in found
                   if volume_id and _runs(each, volume_id, by_systemd)})


@privsep.entrypoint
def progress_output(volume_id: str) -> str:
    """Return the end of a re-encryption's progress output; '' if none.

    Allows: reads the progress of the re-encryption of any volume.

    The output is JSON, a line for each report. The first line may be cut off.
    """
    privsep.require(names.is_id(volume_id), volume_id)
    try:
        with open(_file(volume_id, 'json'), 'rb') as output:
            output.seek(max(0, os.fstat(output.fileno()).st_size - _TAIL))
            return output.read().decode(errors='replace')
    except OSError:
        return ''
