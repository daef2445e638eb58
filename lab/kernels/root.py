# SPDX-License-Identifier: Apache-2.0
"""The root file system of a node, with a stock kernel that lacks dm-clone.

It is a release of Debian as its first installation has it, kept in the cache;
each run works on a layer of its own above it. Commands run there in mount and
process namespaces of their own: they end with the command, and leave no mount
behind.
"""

import dataclasses
import os
import pathlib
import shlex
import shutil
import subprocess

from lab.core import install
from lab.core import kernel as kernels
from lab.core import process

HERE = pathlib.Path(__file__).parent
PACKAGE = HERE.parents[1] / 'packaging/dkms'
#: Seconds for apt, which downloads up to 400 MB.
APT_TIMEOUT = 1800
#: Seconds for the build of a module, most of them to unpack the source.
BUILD_TIMEOUT = 900
#: What a node has before: the tools of this suite, and DKMS.
TOOLS = ('busybox-static', 'cpio', 'debhelper', 'dkms', 'dmsetup', 'dpkg-dev',
         'gcc', 'kmod', 'libc6-dev', 'make', 'mokutil', 'openssl', 'xz-utils')
SOURCE = 'linux-source'
KERNEL = ('linux-image-amd64', 'linux-headers-amd64', SOURCE)
#: In a process namespace of its own: all that it has started ends with it.
ENTER = ('unshare', '--mount', '--pid', '--fork', '--kill-child', 'sh', '-ec')
APT = ('apt-get', '-y', '-qq', '--no-install-recommends',
       '-o', 'APT::Sandbox::User=root', '-o', 'Dpkg::Use-Pty=0')


@dataclasses.dataclass(frozen=True)
class Release:
    """A release of Debian.

    :param codename: as in apt's sources
    :param name: of the row in the driver's table of kernels
    """

    codename: str
    name: str


RELEASES = (Release('bookworm', 'Debian 12'), Release('trixie', 'Debian 13'))


def _sources(release, mirror, *suites):
    return ''.join('deb %s%s %s%s main\n' % (
        mirror, '-security' if suite else '', release.codename, suite)
        for suite in suites)


def _fill(path, release, mirror):
    """Make the root of a node, with the kernel of the point release."""
    root = path / 'root'
    process.run('debootstrap', '--variant=minbase', release.codename,
                str(root), mirror, timeout=APT_TIMEOUT)
    (root / 'etc/apt/sources.list').write_text(_sources(release, mirror, ''))
    (root / 'usr/sbin/policy-rc.d').write_text('#!/bin/sh\nexit 101\n')
    (root / 'usr/sbin/policy-rc.d').chmod(0o755)
    # This suite makes its own.
    (root / 'etc/initramfs-tools').mkdir(parents=True, exist_ok=True)
    (root / 'etc/initramfs-tools/update-initramfs.conf').write_text(
        'update_initramfs=no\n')
    shutil.copy('/etc/resolv.conf', root / 'etc/resolv.conf')
    words = shlex.join([*APT, '-o', 'Dpkg::Options::=--force-confold',
                        'install', *TOOLS, *KERNEL])
    _enter(root, 'mount -t proc proc "$1"/proc',
           'apt-get -qq update; %s; apt-get clean' % words, APT_TIMEOUT)


def _enter(root, mounts, command, timeout):
    """Run a command in a root; what it printed.

    :param mounts: shell: mounts whatever it needs, with the root as $1
    :raises LabError: if it fails or takes longer
    """
    try:
        done = subprocess.run(
            [*ENTER, '%s; exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:'
             '/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive '
             'sh -ec "$2"' % mounts, 'sh', str(root), command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors='replace',
            timeout=timeout)
    except subprocess.TimeoutExpired:
        raise process.LabError('%s: not done within %d s' % (
            command, timeout))
    if done.returncode:
        raise process.LabError('%s: exit code %d\n%s' % (
            command, done.returncode, done.stdout[-3000:]))
    return done.stdout


class Root:
    """A layer above the root file system of a release.

    :param work: a directory; whoever made it removes it
    """

    def __init__(self, release: Release, work: pathlib.Path, progress):
        self.release = release
        self.work = work
        self.mirror = kernels.mirror().rstrip('/')
        words = repr((release, self.mirror, TOOLS, KERNEL)).encode()
        self.template = install.template(
            'stock-' + release.codename, words,
            lambda path: _fill(path, release, self.mirror), progress)
        self.archives = self.template / 'archives'
        self.archives.mkdir(exist_ok=True)
        for name in ('upper', 'layer', 'root', 'upper/out', 'upper/build'):
            (work / name).mkdir()

    def run(self, command: str, timeout: float = BUILD_TIMEOUT) -> str:
        """Run a command there; what it printed.

        :raises LabError: if it fails or takes longer
        """
        mounts = (
            'mount -t overlay overlay -o lowerdir=%s,upperdir=%s,workdir=%s '
            '"$1"; mount -t proc proc "$1"/proc; '
            'mount --bind %s "$1"/var/cache/apt/archives' % (
                self.template / 'root', self.work / 'upper',
                self.work / 'layer', self.archives))
        (self.archives / 'partial').mkdir(exist_ok=True)
        return _enter(self.work / 'root', mounts, command, timeout)

    def kernels(self) -> list[str]:
        """The kernels that are installed, the newest last."""
        return self.run(
            'ls /lib/modules | while read k; do [ -e /boot/vmlinuz-$k ] && '
            'echo $k; done | sort -V').split()

    def version(self, kernel: str) -> str:
        """The version of a kernel's package."""
        return self.run("dpkg-query -W -f '${Version}' linux-image-"
                        + kernel).strip()

    def configured(self, kernel: str) -> str:
        """What the kernel's configuration says of dm-clone."""
        return self.run('grep -w CONFIG_DM_CLONE /boot/config-' + kernel
                        ).strip()

    def build_package(self) -> str:
        """Build the package; its file in the root."""
        shutil.copytree(PACKAGE, self.work / 'upper/build/dkms')
        self.run('cd /build/dkms; dpkg-buildpackage -d -us -uc -b')
        return self.run('ls /build/*.deb').strip()

    def install(self, package: str) -> str:
        """Install the package, as an operator does; what was printed."""
        return self.run('%s install %s' % (shlex.join(APT), package),
                        APT_TIMEOUT)

    def update(self, *packages: str) -> None:
        """Install the updates of packages, as an operator does.

        :raises LabError: if a package is not configured afterwards
        """
        path = self.work / 'upper/etc/apt/sources.list'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_sources(self.release, self.mirror, '', '-security'))
        self.run('apt-get -qq update; %s install %s; test -z "$(dpkg -C)"' % (
            shlex.join([*APT, '-o', 'APT::Keep-Downloaded-Packages=1']),
            ' '.join(packages)), APT_TIMEOUT)

    def module(self, kernel: str) -> dict[str, str]:
        """What modinfo(8) says of the kernel's dm-clone; {} without."""
        text = self.run('modinfo -k %s dm-clone || true' % kernel)
        return {key: value.strip() for key, _colon, value in (
            line.partition(':') for line in reversed(text.splitlines()))
            if 'ERROR' not in key}

    def status(self, kernel: str) -> str:
        """What the package's own command says of a kernel."""
        return self.run('cinder-localclone-dkms %s || true' % kernel)

    def export(self, kernel: str, to: pathlib.Path) -> pathlib.Path:
        """Copy a kernel and its modules; the directory."""
        out = '/out/export/' + kernel
        self.run('mkdir -p %s/modules; cp -a /lib/modules/%s %s/modules/; '
                 'rm -f %s/modules/%s/build %s/modules/%s/source; '
                 'cp /boot/vmlinuz-%s %s/vmlinuz' % (
                     out, kernel, out, out, kernel, out, kernel, kernel, out))
        target = to.resolve() / kernel
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(str(self.work / 'upper') + out, target)
        return target

    def pack(self, kernel: str) -> pathlib.Path:
        """A directory with vmlinuz and an initrd to boot it with."""
        for name in ('pack.sh', 'init.sh'):
            shutil.copy(HERE / name, self.work / 'upper/build' / name)
        out = '/out/' + kernel
        self.run('sh /build/pack.sh %s /build/init.sh %s' % (kernel, out))
        return pathlib.Path(str(self.work / 'upper') + out)


def needs() -> None:
    """Install what this suite needs on this machine.

    :raises LabError: if it is not to be had
    """
    if os.geteuid():
        raise process.LabError('this suite mounts file systems: run it as '
                               'root')
    install.basics('debootstrap', 'qemu-system-x86')
    for program in ('debootstrap', 'qemu-system-x86_64'):
        if not shutil.which(program):
            raise process.LabError('%s is missing' % program)
