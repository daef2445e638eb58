# SPDX-License-Identifier: Apache-2.0
"""Nodes on a stock kernel, instead of user-mode Linux.

The machine is QEMU's, without KVM: it is slower by a factor of about ten. Its
root is this machine's, as with user-mode Linux, but over 9p.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

from lab.core import process

HERE = pathlib.Path(__file__).parent
#: How much longer a node takes for everything.
SLOWER = 8
#: What the first process needs before it has a root.
MODULES = ('virtio_pci', 'virtio_blk', 'virtio_net', '9pnet_virtio', '9p')


def is_one(path: pathlib.Path) -> bool:
    """Whether a directory has a stock kernel: vmlinuz and modules/VERSION."""
    return (path / 'vmlinuz').exists()


def kernel(path: pathlib.Path, into: pathlib.Path) -> dict:
    """What nodes need of a stock kernel, as ``kernel.choose`` returns it.

    :param into: a directory for the initrd
    :raises LabError: if the directory has not one version of modules
    """
    versions = os.listdir(path / 'modules')
    if len(versions) != 1:
        raise process.LabError('%s: not one version: %s' % (
            path / 'modules', ', '.join(sorted(versions)) or 'none'))
    _pack(path, versions[0], into / 'initrd')
    return {'binary': str(path / 'vmlinuz'), 'release': versions[0],
            'modules': str(path / 'modules'), 'seccomp': False,
            'initrd': str(into / 'initrd')}


def _pack(path, version, target):
    """Make the initrd."""
    with tempfile.TemporaryDirectory(prefix='lc-initrd-') as directory:
        tree = pathlib.Path(directory)
        (tree / 'bin').mkdir()
        (tree / 'lib').mkdir()
        for program in ('busybox', 'kmod'):
            _copy(pathlib.Path(shutil.which(program) or '/missing'),
                  tree / 'bin' / program)
            linked = subprocess.run(
                ['ldd', tree / 'bin' / program], text=True,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            for word in linked.split():
                if word.startswith('/'):
                    _copy(pathlib.Path(word), tree / word.lstrip('/'))
        (tree / 'bin/modprobe').symlink_to('kmod')
        (tree / 'bin/sh').symlink_to('busybox')
        base = tree / 'base/lib'
        base.mkdir(parents=True)
        (base / 'modules').symlink_to(path / 'modules')
        for name in MODULES:
            shown = process.run('modprobe', '-d', str(base.parent), '-S',
                                version, '-D', name, check=False)
            for word in shown.split():
                if word.startswith('/'):
                    _copy(pathlib.Path(word), tree / 'lib/modules' /
                          pathlib.Path(word).relative_to(base / 'modules'))
        shutil.rmtree(tree / 'base')
        for each in (path / 'modules' / version).glob('modules.*'):
            if each.name.startswith(('modules.builtin', 'modules.order')):
                _copy(each, tree / 'lib/modules' / version / each.name)
        process.run('depmod', '-b', str(tree), version)
        _copy(HERE / 'stock_init.sh', tree / 'init')
        (tree / 'init').chmod(0o755)
        process.run('sh', '-c', 'cd "$0" && find . | busybox cpio -o -H newc '
                    '| gzip -1 >"$1"', directory, str(target))


def _copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def command(node, words, memory, disks) -> list[str]:
    """What starts the machine of a node.

    :param words: for the kernel's command line
    :param memory: as QEMU has it
    :param disks: words of -blockdev, the disks in their order
    """
    stock, state = node.lab.settings['kernel'], node.lab.directory.parent
    shares = [word for tag, path in (('root', '/'), ('state', state))
              for word in ('-virtfs', 'local,path=%s,mount_tag=%s,'
                           'security_model=none,multidevs=remap' % (
                               path, tag))]
    return [
        'qemu-system-x86_64', '-accel', 'tcg', '-cpu', 'max', '-smp', '1',
        '-m', memory, '-nodefaults', '-no-user-config', '-display', 'none',
        '-no-reboot', '-serial', 'stdio', '-kernel', stock['binary'],
        '-initrd', stock['initrd'], '-append', ' '.join((
            'console=ttyS0', 'quiet', 'panic=-1', 'lc_state=%s' % state,
            'lc_init=%s' % (HERE / 'node_init.sh'), *words)),
        '-netdev', 'tap,id=net,ifname=%s,script=no,downscript=no' % node.tap,
        '-device', 'virtio-net-pci,netdev=net,mac=02:00:00:00:00:%s'
        % node.address[-2:], *shares,
        *[word for number, disk in enumerate(disks) for word in (
            '-blockdev', 'node-name=d%d,%s' % (number, disk),
            '-device', 'virtio-blk-pci,drive=d%d' % number)]]
