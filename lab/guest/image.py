# SPDX-License-Identifier: Apache-2.0
"""The guest's disk image: a boot loader, Debian's kernel, one program.

The program (guest.c) is the whole of the guest's user space, so the image
is a FAT file system of 32 MiB that SYSLINUX boots, without partitions.
"""

import os
import pathlib
import shutil
import stat
import subprocess

from lab.core import install
from lab.core import process

HERE = pathlib.Path(__file__).parent
NAME = 'guest'
#: A flavour to resize to.
LARGER = 'guest-larger'
SIZE = 32 << 20
MEMORY_MIB = 192
KERNEL = 'linux-image-cloud-amd64'
MODULES = ('virtio_pci', 'virtio_blk')
#: Nothing to wait for, nothing to probe: software emulation is slow.
COMMAND_LINE = ('console=ttyS0 quiet panic=-1 mitigations=off nokaslr '
                'no_timer_check audit=0 random.trust_cpu=on')


def path(progress) -> pathlib.Path:
    """The image, built once."""
    inputs = b''.join((HERE / name).read_bytes()
                      for name in ('guest.c', 'image.py'))
    return install.template('guest', inputs, _build, progress) / 'guest.raw'


def register(lab, image) -> None:
    """Make image and flavour known to a lab's cloud."""
    glance = lab.client('glance')
    made = glance.post('/images', json={
        'name': NAME, 'disk_format': 'raw', 'container_format': 'bare',
        'visibility': 'public', 'min_disk': 1,
    }).raise_for_status().json()['id']
    glance.request(
        'PUT', '/images/%s/file' % made, image.read_bytes(),
        {'Content-Type': 'application/octet-stream'}).raise_for_status()
    for name, memory in ((NAME, MEMORY_MIB), (LARGER, MEMORY_MIB + 32)):
        lab.client('nova').post('/flavors', json={'flavor': {
            'name': name, 'ram': memory, 'vcpus': 1, 'disk': 0,
        }}).raise_for_status()


def _build(directory):
    work = directory / 'work'
    work.mkdir()
    kernel, modules = _kernel(work)
    process.run('gcc', '-static', '-O2', '-Wall', '-Werror', '-o',
                str(work / 'init'), str(HERE / 'guest.c'))
    entries = [('dev', stat.S_IFDIR | 0o755, b''),
               ('sys', stat.S_IFDIR | 0o755, b''),
               ('modules', stat.S_IFDIR | 0o755, b''),
               ('init', stat.S_IFREG | 0o755,
                (work / 'init').read_bytes())]
    for module in modules:
        entries.append(('modules/' + module.name, stat.S_IFREG | 0o644,
                        module.read_bytes()))
    entries.append(('modules/order', stat.S_IFREG | 0o644, ''.join(
        '/modules/%s\n' % module.name for module in modules).encode()))
    (work / 'initrd').write_bytes(archive(entries))
    (work / 'syslinux.cfg').write_text(
        'SERIAL 0 115200\nDEFAULT guest\nPROMPT 0\nLABEL guest\n'
        '  KERNEL kernel\n  INITRD initrd\n  APPEND %s\n' % COMMAND_LINE)
    shutil.copy(kernel, work / 'kernel')
    image = str(directory / 'guest.raw')
    with open(image, 'wb') as empty:
        empty.truncate(SIZE)
    quiet = dict(os.environ, MTOOLS_SKIP_CHECK='1')
    process.run('mformat', '-i', image, '-T', str(SIZE // 512), '-h', '16',
                '-s', '63', '::', env=quiet)
    process.run('mcopy', '-i', image, *[
        str(work / name) for name in ('kernel', 'initrd', 'syslinux.cfg')],
        '::', env=quiet)
    process.run('syslinux', '--install', image, env=quiet)
    shutil.rmtree(work)


def _kernel(work):
    """Debian's kernel for virtual machines: (its file, modules in order).

    Taken from its package, which is not installed: nothing of this machine
    boots it.
    """
    process.run('apt-get', 'update', '-qq', timeout=600)
    depends = process.run('apt-cache', 'depends', '--important', KERNEL)
    package = next(line.split()[-1] for line in depends.splitlines()
                   if 'Depends: linux-image-' in line)
    root = work / 'kernel-package'
    root.mkdir()
    install.take_apart(root, package)
    version = package.removeprefix('linux-image-')
    process.run('depmod', '-b', str(root), version)
    names = []
    for name in MODULES:
        for line in subprocess.run(
                ['modprobe', '-d', str(root), '-S', version,
                 '--show-depends', name], check=True, text=True,
                stdout=subprocess.PIPE, timeout=60).stdout.splitlines():
            words = line.split()
            if words[0] == 'insmod' and words[1] not in names:
                names.append(words[1])
    return (root / 'boot' / ('vmlinuz-' + version),
            [pathlib.Path(name) for name in names])


def archive(entries) -> bytes:
    """An initramfs: a cpio archive of the "newc" kind.

    :param entries: (name, mode, content)
    """
    def pad(data):
        return data + bytes(-len(data) % 4)
    result = b''
    for number, (name, mode, data) in enumerate(
            entries + [('TRAILER!!!', 0, b'')], 1):
        encoded = name.encode() + b'\0'
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0,
                  len(encoded), 0)
        result += pad(b'070701' + b''.join(
            b'%08X' % field for field in fields) + encoded) + pad(data)
    return result
