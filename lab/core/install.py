# SPDX-License-Identifier: Apache-2.0
"""What the lab needs on this machine: packages, and a venv in a cache."""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import shutil
import sys

from lab.core import node
from lab.core import process

HERE = pathlib.Path(__file__).parent
PACKAGES = {  # Debian package: something it brings
    'user-mode-linux': '/usr/bin/linux.uml', 'patchelf': '/usr/bin/patchelf',
    'qemu-system-common': '/usr/bin/qemu-storage-daemon',
    'mariadb-server': '/usr/sbin/mariadbd',
    'rabbitmq-server': '/usr/lib/rabbitmq/bin/rabbitmq-server',
    'lvm2': '/usr/sbin/lvm', 'dmsetup': '/usr/sbin/dmsetup',
    'thin-provisioning-tools': '/usr/sbin/thin_check',
    'cryptsetup-bin': '/usr/sbin/cryptsetup',
    'open-iscsi': '/usr/sbin/iscsiadm', 'kmod': '/usr/sbin/modprobe',
    'udev': '/lib/systemd/systemd-udevd', 'iproute2': '/usr/sbin/ip',
    'e2fsprogs': '/usr/sbin/mkfs.ext4', 'xfsprogs': '/usr/sbin/mkfs.xfs',
    'fio': '/usr/bin/fio', 'python3-venv': '/usr/share/python-wheels',
    'python3-dev': '/usr/include/python3.11/Python.h',
    'gcc': '/usr/bin/gcc', 'libffi-dev': '/usr/include/x86_64-linux-gnu/'
    'ffi.h', 'util-linux': '/usr/bin/setsid', 'git': '/usr/bin/git',
    'strace': '/usr/bin/strace',
}
#: Only for a lab with Nova.
NOVA_PACKAGES = {
    'libvirt-daemon': '/usr/sbin/libvirtd',
    'libvirt-clients': '/usr/bin/virsh',
    'libvirt-dev': '/usr/include/libvirt/libvirt.h',
    'pkg-config': '/usr/bin/pkg-config',
    'dbus-daemon': '/usr/bin/dbus-daemon',
    'qemu-system-x86': '/usr/bin/qemu-system-x86_64',
    'qemu-utils': '/usr/bin/qemu-img',
    'libc6-dev': '/usr/lib/x86_64-linux-gnu/libc.a',
    'syslinux': '/usr/bin/syslinux', 'mtools': '/usr/bin/mcopy',
    # Nova's cold migration: a client; a server that apt does not start.
    'openssh-client': '/usr/bin/ssh', 'dropbear-bin': '/usr/sbin/dropbear',
    'openssh-sftp-server': '/usr/lib/sftp-server',
}
REQUIREMENTS = (
    'cinder', 'keystone', 'glance', 'python-openstackclient',
    'openstacksdk', 'os-brick', 'PyMySQL', 'uWSGI', 'python-memcached',
    'rtslib-fb', 'rich', 'stestr', 'ddt', 'taskflow', 'fixtures',
    'testtools', 'oslotest', 'setuptools<81')
#: What some labs have besides.
ADDITIONS = {'nova': ('nova', 'openstack-placement', 'libvirt-python'),
             'keys': ('barbican',)}
#: Of the unit tests, which "tox" installs as well.
UNIT_REQUIREMENTS = (HERE.parents[1] / 'requirements.txt',
                     HERE.parents[1] / 'test-requirements.txt')
PRE_COMMIT = 'pre-commit==4.7.0'
#: Of the environment: a release of Cinder ("28"), and a Python that is here,
#: in place of constraints.txt's and Debian's.
CINDER = 'LOCALCLONE_LAB_CINDER'
PYTHON = 'LOCALCLONE_LAB_PYTHON'


def cache_directory() -> pathlib.Path:
    """Return where venvs and templates are kept; users have their own."""
    given = os.environ.get('LOCALCLONE_LAB_CACHE')
    if given:
        return pathlib.Path(given)
    if not os.geteuid():
        return pathlib.Path('/var/cache/localclone-lab')
    return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser(
        '~/.cache')) / 'localclone-lab'


def check() -> None:
    """:raises LabError: with all that this machine lacks and apt can't mend"""
    lacks = node.missing()
    if lacks:
        raise process.LabError(
            'This machine cannot run the lab:\n  - ' + '\n  - '.join(lacks))


@contextlib.contextmanager
def _locked(name):
    """Two labs that start at once build the cache one after the other."""
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise process.LabError(
            'cannot create the cache directory: %s; set LOCALCLONE_LAB_CACHE '
            'to another' % exc)
    with open(directory / (name + '.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def packages(progress, *, nova=False, more=()) -> None:
    """Install Debian's packages without starting their daemons.

    :param more: packages, each with a path that shows it is there
    """
    wanted = dict(PACKAGES, **(NOVA_PACKAGES if nova else {}), **dict(more))
    lacking = [name for name, path in wanted.items()
               if not os.path.exists(path)]
    if lacking:
        with _locked('apt'):
            progress('apt: %s' % ' '.join(lacking))
            policy = pathlib.Path('/usr/sbin/policy-rc.d')
            ours = not policy.exists()
            if ours:
                policy.write_text('#!/bin/sh\nexit 101\n')
                policy.chmod(0o755)
            try:
                process.run('apt-get', 'update', '-qq', timeout=600)
                process.run(
                    'apt-get', 'install', '-y', '-qq',
                    '--no-install-recommends', *lacking, timeout=1800,
                    env=dict(os.environ, DEBIAN_FRONTEND='noninteractive'))
            finally:
                if ours:
                    policy.unlink()
    # Where nodes mount their kernel's modules; not on a container's root.
    os.makedirs('/lib/modules', exist_ok=True)
    if nova:  # likewise, a file system in a node's memory
        os.makedirs('/var/cache/libvirt', exist_ok=True)


def basics(*names) -> None:
    """Install what a command without a lab needs.

    Only root on Debian can: for others it has to be there.

    :param names: 'python3-venv', 'git', 'debootstrap', 'qemu-system-x86' or
        'busybox-static'
    """
    there = {'python3-venv': importlib.util.find_spec('ensurepip'),
             'git': shutil.which('git'),
             'debootstrap': shutil.which('debootstrap'),
             'qemu-system-x86': shutil.which('qemu-system-x86_64'),
             'busybox-static': shutil.which('busybox')}
    lacking = [name for name in names if not there[name]]
    if lacking and not os.geteuid() and shutil.which('apt-get'):
        with _locked('apt'):
            process.run('apt-get', 'update', '-qq', timeout=600)
            process.run('apt-get', 'install', '-y', '-qq',
                        '--no-install-recommends', *lacking, timeout=600)


def take_apart(directory, *names, options=()) -> None:
    """Fill a directory with what Debian packages hold; none is installed.

    :param options: of apt-get
    """
    # As root, without apt's own user: it may not enter the directory.
    process.run('apt-get', '-qq', '-o', 'APT::Sandbox::User=root', *options,
                'download', *names, cwd=directory, timeout=600)
    for package in sorted(directory.glob('*.deb')):
        process.run('dpkg-deb', '-x', str(package), str(directory))


def _of_release() -> str:
    """What the release of Cinder that is asked for has in place of the other
    constraints; nothing if they are its own.

    :raises LabError: if it is not one that is known here
    """
    release = os.environ.get(CINDER)
    ours = (HERE / 'constraints.txt').read_text()
    if not release or '\ncinder==%s.' % release in ours:
        return ''
    path = HERE / ('constraints_cinder%s.txt' % release)
    if not path.exists():
        raise process.LabError('%s=%s: there is no %s' % (
            CINDER, release, path.name))
    return path.read_text()


def venv(progress, additions=()) -> pathlib.Path:
    """The venv with OpenStack, built once for each set of requirements.

    Additions come into it when first asked for: what is there already stays
    as it is, so labs that run from it do not notice. The environment may ask
    for another release of Cinder, and another Python.

    :param additions: of :data:`ADDITIONS`
    """
    python = _python('/usr/bin/python3')
    instead = _of_release()
    digest = hashlib.sha256(b''.join((
        (HERE / 'constraints.txt').read_bytes(),
        ' '.join(REQUIREMENTS).encode(), instead.encode(),
        os.environ.get(PYTHON, '').encode()))).hexdigest()[:12]
    with _locked('venv-' + digest) as directory:
        path = directory / ('venv-' + digest)
        if not (path / 'complete').exists():
            progress('OpenStack from PyPI into %s (minutes, once)' % path)
            shutil.rmtree(path, ignore_errors=True)
            process.run(python, '-m', 'venv', str(path), timeout=120)
            pip = _pip(path, instead)
            process.run(*pip, 'wheel', 'setuptools>=77,<81', timeout=300)
            process.run(*pip, *REQUIREMENTS, timeout=2400)
            (path / 'complete').touch()
        for name in additions:
            _add(name, path, instead, progress)
        return path


def _python(usual):
    """The interpreter that the environment asks for; else the usual one.

    :raises LabError: if it is not here
    """
    python = os.environ.get(PYTHON, usual)
    if PYTHON in os.environ and not shutil.which(python):
        raise process.LabError('%s=%s: it is not here' % (PYTHON, python))
    return python


def unit_venv(progress) -> pathlib.Path:
    """Return the venv of the unit tests, built once for its requirements.

    It needs neither root nor a Debian package. Its interpreter is this one,
    unless the environment asks for another.

    :raises LabError: if it cannot be built
    """
    python, instead = _python(sys.executable), _of_release()
    version = process.run(python, '--version', timeout=60)
    basics('python3-venv')

    def build(path):
        process.run(python, '-m', 'venv', str(path), timeout=120)
        # Another release wants the Nova of its time, which pip finds.
        pip = _pip(path, instead, *(
            () if instead else ('constraints_nova.txt',)))
        process.run(*pip, 'wheel', 'setuptools>=77,<81', timeout=300)
        process.run(*pip, *[word for each in UNIT_REQUIREMENTS
                            for word in ('-r', str(each))], timeout=2400)
    return template('unit', b''.join((
        version.encode(), instead.encode(),
        *[path.read_bytes() for path in (
            HERE / 'constraints.txt', HERE / 'constraints_nova.txt',
            *UNIT_REQUIREMENTS)])), build, progress)


def style_venv(progress) -> pathlib.Path:
    """Return the venv with pre-commit, whose hooks have venvs of their own.

    :raises LabError: if it cannot be built
    """
    basics('python3-venv', 'git')

    def build(path):
        process.run(sys.executable, '-m', 'venv', str(path), timeout=120)
        process.run(str(path / 'bin/pip'), 'install', '-q',
                    '--disable-pip-version-check', PRE_COMMIT, timeout=600)
    return template('style', (PRE_COMMIT + sys.version).encode(), build,
                    progress)


def _pip(path, instead, *more):
    """Words that have pip install what constraints allow.

    :param instead: lines that stand for those of the same packages
    :param more: files, besides constraints.txt
    """
    texts = [(HERE / name).read_text() for name in ('constraints.txt', *more)]
    pins = {line.partition('==')[0]: line
            for text in (*texts, instead) for line in text.splitlines()}
    held = path / 'constraints.txt'
    held.write_text('\n'.join(pins.values()) + '\n')
    return [str(path / 'bin/pip'), 'install', '-q',
            '--disable-pip-version-check', '-c', str(held)]


def _add(name, path, instead, progress):
    constraints = 'constraints_%s.txt' % name
    wanted = ADDITIONS[name]
    done = path / ('complete-%s-%s' % (name, hashlib.sha256(
        (HERE / constraints).read_bytes() + ' '.join(wanted).encode()
    ).hexdigest()[:12]))
    if not done.exists():
        progress('%s from PyPI (minutes, once)' % ', '.join(wanted))
        process.run(*_pip(path, instead, constraints), *wanted, timeout=2400)
        done.touch()


def template(name: str, inputs: bytes, build, progress,
             stale=lambda path: False) -> pathlib.Path:
    """A directory built once for its inputs, to be copied from.

    :param build: called with the directory to fill
    :param stale: called with it; whether it must be built again
    """
    digest = hashlib.sha256(inputs).hexdigest()[:12]
    with _locked(name) as directory:
        path = directory / ('%s-%s' % (name, digest))
        if not (path / 'complete').exists() or stale(path):
            progress('making the %s template (once)' % name)
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            build(path)
            (path / 'complete').touch()
        return path
