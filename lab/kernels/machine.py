# SPDX-License-Identifier: Apache-2.0
"""A machine with a stock kernel: QEMU without KVM, and three disks.

The destination and the metadata are behind a cache that a power cut loses.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from lab.core import process
from lab.kernels import content

CACHE = pathlib.Path(process.__file__).parent / 'volatile_disk.py'
#: Seconds for a boot with all that is done in it.
PHASE_TIMEOUT = 420
METADATA_SIZE = 8 << 20
#: Bytes a second from the source, by phase: at the power cut the copy must be
#: under way.
RATES = {1: 4 << 20, 2: 16 << 20}
MARK = 'lab: '


def said(text: str) -> list[str]:
    """What ``init.sh`` has reported, line by line."""
    return [line[len(MARK):].strip() for line in text.splitlines()
            if line.startswith(MARK)]


@contextlib.contextmanager
def _running(argv, log, cwd=None):
    """A process; it and all that it has started are ended afterwards."""
    with open(log, 'ab') as output:
        started = subprocess.Popen(
            [str(word) for word in argv], stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True, cwd=cwd)
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


class Machine:
    """One of them, on disks that outlive its boots.

    :param boot: a directory with vmlinuz and initrd
    :param work: a directory for the disks; whoever made it removes it
    :param seed: of the source's content
    """

    def __init__(self, boot: pathlib.Path, work: pathlib.Path, seed: int):
        self.boot = boot
        self.work = work
        self.before = content.source(seed)
        (work / 'source').write_bytes(self.before)
        # Another tenant's data must not show.
        (work / 'destination').write_bytes(b'\xee' * content.SIZE)
        with open(work / 'metadata', 'wb') as file:
            file.truncate(METADATA_SIZE)

    def run(self, phase: int) -> list[str]:
        """Boot, and let a phase of ``init.sh`` run to its end or its cut.

        :returns: what it has reported, and for a power cut the bytes lost
        :raises LabError: if it does not end
        """
        console = self.work / ('console-%d' % phase)
        with contextlib.ExitStack() as stack:
            caches = [stack.enter_context(self._cache(name))
                      for name in ('destination', 'metadata')]
            qemu = stack.enter_context(_running(
                self._qemu(phase, console), self.work / 'qemu.log'))
            cut = self._wait(qemu, console)
            if cut:
                os.killpg(qemu.pid, signal.SIGKILL)
                qemu.wait()
            lost = [self._end(cache, name, cut) for cache, name in zip(
                caches, ('destination', 'metadata'))]
        return said(self._text(console)) + ['lost %d bytes of the %s' % each
                                            for each in lost if cut]

    def differences(self) -> list[content.Difference]:
        """Compare the destination with what it must contain."""
        return content.differences(
            self.before, (self.work / 'destination').read_bytes())

    @contextlib.contextmanager
    def _cache(self, name):
        socket = self.work / (name + '.sock')
        socket.unlink(missing_ok=True)
        with _running([sys.executable, '-S', CACHE, '--file',
                       self.work / name, '--socket', socket, '--report',
                       self.work / (name + '.json')],
                      self.work / 'cache.log') as cache:
            process.wait_for('the disk "%s"' % name, socket.exists, 20,
                             every=0.05)
            yield cache

    def _end(self, cache, name, cut):
        report = self.work / (name + '.json')
        report.unlink(missing_ok=True)
        cache.send_signal(signal.SIGUSR1 if cut else signal.SIGTERM)
        try:
            cache.wait(60)
        except subprocess.TimeoutExpired:
            raise process.LabError('the cache of the %s does not end' % name)
        return (json.loads(report.read_text())['lost_bytes'] if cut else 0,
                name)

    def _qemu(self, phase, console):
        def disk(letter, *words):
            return ['-blockdev', ','.join(('node-name=' + letter, *words)),
                    '-device', 'virtio-blk-pci,drive=' + letter]
        return [
            'qemu-system-x86_64', '-accel', 'tcg', '-cpu', 'max', '-smp', '1',
            '-m', '512', '-nodefaults', '-no-user-config', '-nic', 'none',
            '-display', 'none', '-no-reboot', '-serial',
            'file:%s' % console, '-kernel', self.boot / 'vmlinuz', '-initrd',
            self.boot / 'initrd', '-append',
            'console=ttyS0 quiet panic=-1 lc_phase=%d' % phase,
            '-object', 'throttle-group,id=link,x-bps-read=%d' % RATES[phase],
            '-blockdev', 'node-name=image,driver=file,read-only=on,'
            'filename=%s' % (self.work / 'source'),
            *disk('a', 'driver=throttle', 'throttle-group=link',
                  'file=image', 'read-only=on'),
            *[word for letter, name in (('b', 'destination'),
                                        ('c', 'metadata'))
              for word in disk(letter, 'driver=nbd', 'server.type=unix',
                               'server.path=%s' % (
                                   self.work / (name + '.sock')),
                               'discard=unmap')]]

    def _wait(self, qemu, console) -> bool:
        """Wait for the end; True if the power is to be cut."""
        deadline = time.monotonic() + PHASE_TIMEOUT
        while time.monotonic() < deadline:
            over = qemu.poll() is not None
            if 'cut' in said(self._text(console)):
                return True
            if over:
                return False
            time.sleep(0.05)
        raise process.LabError('no end within %d s; its console ends with\n%s'
                               % (PHASE_TIMEOUT,
                                  self._text(console)[-1500:]))

    @staticmethod
    def _text(console):
        return (console.read_text(errors='replace').replace('\r', '')
                if console.exists() else '')
