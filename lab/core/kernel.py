# SPDX-License-Identifier: Apache-2.0
"""The kernel that nodes run: user-mode Linux.

Newer ones than Debian 12's (Linux 6.1) start processes faster: Debian 13's
(Linux 6.12) in about half the time, and Linux 7, which traps system calls by
seccomp instead of ptrace, in half of that. They run here with the C library
that they were built for; both are only taken out of their packages. A kernel
is used only if it boots here and its disk works.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from lab.core import install
from lab.core import process
from lab.core import stock
from lab.core import zero_page

#: Releases of Debian whose kernels are tried, the best first.
NEWER = ('forky', 'trixie')
#: Asks for another: "own" for Debian 12's, or a directory with linux.uml and
#: modules/VERSION; with vmlinuz instead for a stock kernel, which QEMU boots.
CHOICE = 'LOCALCLONE_LAB_KERNEL'
OWN = {'binary': '/usr/bin/linux.uml', 'modules': '/usr/lib/uml/modules'}
#: What was found out about a kernel, in the cache.
REPORT = 'report.json'
#: Seconds for which a kernel that could not be had, or did not work, is not
#: tried again.
FORGET = 24 * 3600
#: Seconds that a kernel may take to boot and use its disk (it takes 2).
PROBE_TIMEOUT = 60


def choose(progress) -> dict:
    """The best kernel that works; Debian 12's if no other can be had.

    :returns: binary; modules: what its nodes see as /lib/modules; release:
        its version; seccomp: whether it needs no ptrace
    :raises LabError: if the one that $LOCALCLONE_LAB_KERNEL names does not
        work
    """
    choice = os.environ.get(CHOICE)
    if choice and choice != 'own':
        return _given(pathlib.Path(choice).resolve(), progress)
    for release in NEWER if choice != 'own' else ():
        try:
            return _newer(release, progress)
        except (process.LabError, OSError) as exc:
            progress('the kernel of Debian %s is not used: %s' % (
                release, exc))
    if choice != 'own':
        progress("nodes run Debian 12's own kernel, which is slower")
    return dict(OWN, seccomp=False, release=process.run(
        OWN['binary'], '--version', timeout=20).strip())


def _newer(release, progress):
    """The kernel of a release of Debian.

    :raises LabError: if it cannot be had or does not work
    """
    def take_out(path):
        _take_out(path, release)
        return path
    return _reported(release, take_out, progress)


def _given(path, progress):
    """The kernel in a directory, which stays as it is."""
    if stock.is_one(path):
        install.basics('qemu-system-x86', 'busybox-static')
        image = (path / 'vmlinuz').stat()
        return stock.kernel(path, install.template(
            'initrd', repr((path, image.st_mtime_ns)).encode(),
            lambda _path: None, progress))
    try:
        binary = (path / 'linux.uml').stat()
        return _reported('%s %d %d' % (
            path, binary.st_mtime_ns, binary.st_size), lambda _path: path,
            progress)
    except (process.LabError, OSError) as exc:
        raise process.LabError('%s=%s: %s' % (CHOICE, path, exc))


def _reported(which, get, progress):
    """What a kernel can do; found out once, also that it does not work.

    :param which: names it for the cache
    :param get: called with a directory of the cache; where the kernel is
    """
    def build(path):
        try:
            kernel = get(path)
            report = dict(_probe(kernel), binary=str(kernel / 'linux.uml'),
                          modules=str(kernel / 'modules'))
        except (process.LabError, OSError) as exc:
            shutil.rmtree(path)
            path.mkdir()
            report = {'failed': str(exc)}
        (path / REPORT).write_text(json.dumps(report))

    def forgotten(path):
        report = path / REPORT
        return 'failed' in json.loads(report.read_text()) and (
            time.time() - report.stat().st_mtime > FORGET)
    code = b''.join((install.HERE / name).read_bytes() for name in (
        'kernel.py', 'kernel_probe.sh', 'zero_page.py'))
    path = install.template('kernel', which.encode() + code, build, progress,
                            stale=forgotten)
    report = json.loads((path / REPORT).read_text())
    if 'failed' in report:
        raise process.LabError('%s (more in %s; tried again a day later)' % (
            report['failed'].partition('\n')[0], path / REPORT))
    return report


def _probe(kernel):
    """Boot a kernel with a disk, as nodes do.

    :param kernel: its directory
    :returns: release, seccomp
    :raises LabError: with what it printed, if it does not work
    """
    with tempfile.TemporaryDirectory(prefix='lc-kernel-') as directory:
        work = pathlib.Path(directory)
        with open(work / 'disk', 'wb') as image:
            image.truncate(64 << 20)
        with open(work / 'output', 'wb') as output, _running([
                'qemu-storage-daemon', '--blockdev',
                'driver=file,node-name=a,filename=%s' % (work / 'disk'),
                '--export', 'type=vhost-user-blk,id=e,node-name=a,addr.type='
                'unix,addr.path=%s,writable=on' % (work / 'server')],
                work / 'server', output), _running(
                zero_page.command(
                    kernel / 'linux.uml', work / 'socket', work / 'server'),
                work / 'socket', output), _running(
                [kernel / 'linux.uml', 'mem=256M', 'seccomp=auto',
                 'umid=probe', 'uml_dir=%s' % work,
                 'con=null', 'con0=null,fd:1', 'rw',
                 'virtio_uml.device=%s:2:1' % (work / 'socket'),
                 'rootfstype=hostfs', 'rootflags=/',
                 'init=%s' % (install.HERE / 'kernel_probe.sh'),
                 'lc_modules=%s' % (kernel / 'modules')],
                None, output) as booted:
            try:
                booted.wait(PROBE_TIMEOUT)
            except subprocess.TimeoutExpired:
                pass
        said = (work / 'output').read_text(errors='replace')
    return read(said)


def read(said):
    """What the output of a kernel that is tried says: release, seccomp."""
    works = '\nlab: this kernel works: '
    if works not in said:
        raise process.LabError('it does not work here\n%s' % said[-2000:])
    return {'release': said.partition(works)[2].split()[0],
            'seccomp': 'seccomp filters can be installed...OK' in said}


@contextlib.contextmanager
def _running(argv, path, output):
    """A process; it and all that it has started are ended afterwards.

    :param path: wait until it has made this
    """
    started = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        start_new_session=True, env=dict(os.environ, TMPDIR='/dev/shm'))

    def made():
        return path.exists() or started.poll() is not None
    try:
        if path:
            process.wait_for(path.name, made, 20, every=0.05)
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def _take_out(path, release):
    """Fill a directory with a newer kernel, its modules and libc."""
    work = path / 'work'
    work.mkdir()
    options = _beside(work, release)
    process.run('apt-get', '-qq', *options, 'update', timeout=600)
    install.take_apart(work, 'user-mode-linux', 'libc6', options=options)
    libraries = path / 'libraries'
    (work / 'usr/bin/linux.uml').rename(path / 'linux.uml')
    (work / 'usr/lib/uml/modules').rename(path / 'modules')
    (work / 'usr/lib/x86_64-linux-gnu').rename(libraries)
    process.run('patchelf', '--set-rpath', str(libraries),
                '--set-interpreter', str(libraries / 'ld-linux-x86-64.so.2'),
                str(path / 'linux.uml'))
    process.run(str(path / 'linux.uml'), '--version', timeout=20)
    shutil.rmtree(work)


def _beside(work, release):
    """Options of apt: a release alone, beside what this machine has."""
    (work / 'sources.list').write_text('deb %s %s main\n' % (
        mirror(), release))
    for name in ('lists', 'cache'):
        (work / name).mkdir()
    return ('-o', 'APT::Sandbox::User=root',
            '-o', 'Dir::Etc::SourceList=%s' % (work / 'sources.list'),
            '-o', 'Dir::Etc::SourceParts=-',
            '-o', 'Dir::State::Lists=%s' % (work / 'lists'),
            '-o', 'Dir::State::Status=/dev/null',
            '-o', 'Dir::Cache=%s' % (work / 'cache'))


def mirror():
    """Where this machine has Debian 12 from."""
    for _attempt in range(2):
        found = process.run(
            'apt-get', 'indextargets', '--format', '$(SITE)',
            'Codename: bookworm', 'Created-By: Packages', 'Component: main')
        if found.strip():
            return found.split()[0]
        process.run('apt-get', 'update', '-qq', timeout=600)
    raise process.LabError('apt has no source of Debian 12 (bookworm)')
