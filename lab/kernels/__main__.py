# SPDX-License-Identifier: Apache-2.0
"""Run ``make kernels``."""

import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from lab.core import kernel as kernels
from lab.core import process
from lab.core import report as reports
from lab.kernels import machine
from lab.kernels import root as roots

OK = 'ok '
#: Seconds for two nodes without KVM, and two moves between them.
MOVE_TIMEOUT = 2 * 3600


class Plain:
    """A console for :class:`.report.Report`, without the lab's venv."""

    @staticmethod
    def print(text, **_how):
        """Print a line."""
        print(text, flush=True)


def _boot(root, kernel, work, report, seed):
    """Clone, hydrate, cut the power, hydrate, cut over; check the content."""
    report.part = 'Linux ' + root.version(kernel)
    work.mkdir()
    with report.doing('initrd of ' + kernel):
        boot = root.pack(kernel)
    node = machine.Machine(boot, work, seed)
    for phase, end in ((1, 'cut'), (2, 'done')):
        with report.doing('boot %d' % phase) as row:
            lines = node.run(phase)
            row.detail = '; '.join(
                line for line in lines if not line.startswith(OK)
                and line != end)
            if end not in lines:
                raise process.LabError(
                    row.detail or 'it has not come to its end')
        for line in lines:
            if line.startswith(OK):
                report.check(line.removeprefix(OK), True)
    wrong = node.differences()
    report.check('content of the destination, by the host', not wrong,
                 '; '.join(map(str, wrong[:5])))


def _release(release, work, report, seed, export, move):
    """The package on a release, before and after an update of its kernel."""
    report.part = release.name
    with report.doing('root file system'):
        root = roots.Root(release, work, report.say)
    old = root.kernels()[-1]
    report.check('kernel %s (%s): stock, without dm-clone' % (
        old, root.version(old)), '=' not in root.configured(old),
        root.configured(old))
    with report.doing('the package is built'):
        package = root.build_package()
    with report.doing('it is installed, and builds the module'):
        root.install(package)
    _check_module(root, old, report)
    _boot(root, old, work / 'old', report, seed)
    report.part = release.name
    # A module that can't be built must not stop the packages of the kernel.
    with report.doing('update of the kernel, without its source'):
        root.update(*(each for each in roots.KERNEL if each != roots.SOURCE))
    new = root.kernels()[-1]
    report.check('another kernel: %s (%s)' % (new, root.version(new)),
                 new != old)
    status = root.status(new)
    report.check('%s: the missing source is named' % new,
                 'MISSING  linux-source-' in status, status)
    with report.doing('its source arrives'):
        root.update(roots.SOURCE)
    _check_module(root, new, report)
    _boot(root, new, work / 'new', report, seed + 1)
    report.part = release.name
    if export or move:
        with report.doing('kernel and modules for a lab') as row:
            row.detail = str(root.export(new, export or work / 'export'))
        if move:
            report.part = 'Linux ' + root.version(new)
            _move(pathlib.Path(row.detail), report)


def _move(kernel, report):
    """A whole move between two nodes with a kernel; it prints its table."""
    began = time.monotonic()
    try:
        code = subprocess.run(
            [sys.executable, '-m', 'lab.kernels.move'], timeout=MOVE_TIMEOUT,
            env=dict(os.environ, **{kernels.CHOICE: str(kernel)})).returncode
    except subprocess.TimeoutExpired:
        code = 'not done within %d s' % MOVE_TIMEOUT
    report.check('a whole move between two nodes, by its digest', code == 0,
                 '%.0f s' % (time.monotonic() - began) if code == 0
                 else 'exit code: %s' % code)


def _check_module(root, kernel, report):
    found = root.module(kernel)
    report.check('%s: the module is built' % kernel,
                 '/updates/dkms/' in found.get('filename', ''),
                 found.get('filename') or root.status(kernel))
    report.check('%s: it is signed' % kernel, bool(found.get('signer')),
                 found.get('signer', ''))


def main() -> int:
    """Run the suite; its exit code."""
    parser = argparse.ArgumentParser(
        prog='python3 -m lab.kernels', description='Build dm-clone for the '
        'stock kernels of Debian 12 and 13 with cinder-localclone-dkms, boot '
        'them under QEMU without KVM, and clone there.')
    parser.add_argument('--only', default='', metavar='REGEX',
                        help='releases like it, "Debian 12"')
    parser.add_argument('--seed', type=int, help='of the content')
    parser.add_argument(
        '--export', type=pathlib.Path, metavar='DIR', help='leave each '
        'updated kernel with its modules there, for the nodes of a lab '
        '(LOCALCLONE_LAB_KERNEL=DIR/VERSION)')
    parser.add_argument(
        '--move', action='store_true', help='then move a volume between two '
        'nodes of a lab with each updated kernel')
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = options.seed or random.randrange(1 << 31)
    report = reports.Report(Plain, 'dm-clone on stock kernels (seed %d)'
                            % seed)
    began = time.monotonic()
    try:
        roots.needs()
        for release in roots.RELEASES:
            if re.search(options.only, release.name):
                with tempfile.TemporaryDirectory(
                        prefix='lc-kernels-', dir='/var/tmp') as directory:
                    try:
                        _release(release, pathlib.Path(directory), report,
                                 seed, options.export, options.move)
                    except reports.Failed:
                        pass
    except process.LabError as exc:
        print('make kernels: %s' % exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130
    report.step('all of it', time.monotonic() - began)
    report.show()
    return int(bool(report.failed) or not report.rows[:-1])


if __name__ == '__main__':
    sys.exit(main())
