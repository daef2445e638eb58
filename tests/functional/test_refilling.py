# SPDX-License-Identifier: Apache-2.0
"""What a thin pool has forgotten of a copy is copied again, on real kernels.

A pool forgets when it can't write its metadata (``make faults``, "thin pool
full: metadata"); here it is told to, which it does at once and for certain.
"""

from lab.core import observe
from lab.core import process
from tests.functional import base

#: The thin pool of these labs' nodes, and how many bytes it maps at once.
POOL, BLOCK = 'cinder--volumes-cinder--volumes--pool', 64 << 10
#: Writes to an LV beneath its handle, as the driver does, on a disk that
#: writes the first half of each request, and fails at some; then again.
SCRIPT = '''
import importlib.util, io, os, sys
spec = importlib.util.spec_from_file_location('script', sys.argv[1])
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
control = open('/dev/mapper/control', 'r+b', buffering=0)
handle, thin, pool = [script.Device(control, name) for name in sys.argv[2:5]]
metadata = os.open(sys.argv[5], os.O_RDONLY | os.O_DIRECT)
device = os.open(sys.argv[6], os.O_RDWR | os.O_DIRECT)
number, block, fails = map(int, sys.argv[7:10])
parts = [(number * block, block) for number in (3, 8)]
data = b''.join(bytes([1 + number]) * block for number in range(2))
write, calls = os.pwritev, []

def half(device, memories, first):
    calls.append(first)
    if len(calls) == fails:
        raise OSError(5, 'as asked')
    return write(device, [memories[0][:block // 2]], first)

def refill():
    try:
        return script.refill(handle, pool, metadata, number, device, block,
                             parts, io.BytesIO(data))
    finally:
        pool.message(b'release_metadata_snap')

def mapped():
    return int(thin._status().split()[0])

before = mapped()
os.pwritev = half
try:
    refill()
except OSError as exc:
    print(exc.strerror)
print(mapped() - before)
os.pwritev = write
print(*refill())
print(*refill())
print(mapped() - before)
'''


class RefillingTest(base.LabTest):

    def lv(self, node):
        """The path of the only volume's LV on a node."""
        name, = observe.volume_lvs(node)
        return '/dev/cinder-volumes/' + name

    def forget(self, node, lv, first, blocks):
        node.run('blkdiscard --force --offset %d --length %d %s' % (
            first * BLOCK, blocks * BLOCK, lv))

    def test_what_the_pool_has_forgotten_at_length(self):
        """At the latest when all else is copied; a guest writes meanwhile."""
        volume, attached, expected = self.moving_volume()
        lv, whole = self.lv(self.n2), self.sum_at(self.n2, attached.path, 1)
        process.wait_for('a MiB to be copied', lambda: self.sum_at(
            self.n2, lv, 1) == whole, 60)
        # A service that goes on with a copy sees it at once.
        self.n2.service('kill')
        self.forget(self.n2, lv, 0, 1)
        self.brake('5mbit')
        self.restart(self.n2, 'start')
        process.wait_for('it to be copied again', lambda: self.sum_at(
            self.n2, attached.path, 1) == whole, 90)
        self.assertEqual(1, len(observe.move_records(self.lab)))
        writer = attached.start_writing()
        self.forget(self.n2, lv, 2, 4)
        # The clone takes it for local.
        self.assertNotEqual(whole, self.sum_at(self.n2, attached.path, 1))
        self.assert_moved(volume, attached, expected)
        log = self.n2.service_log()
        for kib in (64, 256):
            self.assertIn('has lost %d KiB of the copied data of volume %s' % (
                kib, volume), log)
            self.assertIn(' %d KiB were copied from node1@localclone' % kib,
                          log)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        attached.detach()

    def test_nothing_is_there_in_part(self):
        """A block that can't be written whole is taken back."""
        attached = self.instance.attach(self.volume(), self.n1)
        lv = self.lv(self.n1)
        mapped = lv[5:].replace('-', '--').replace('/', '-')
        number = self.n1.run('dmsetup table ' + mapped).stdout.split()[-1]
        script = self.lab.repo / (
            'cinder_localclone/storage/privsep/while_suspended.py')
        for fails in (2, 4):  # in the first block, in the second
            zeros = self.sum_at(self.n1, attached.path, 1)
            said = self.n1.run([
                '/usr/bin/python3', '-c', SCRIPT, script,
                attached.path.rpartition('/')[2], mapped, POOL + '-tpool',
                '/dev/mapper/%s_tmeta' % POOL, lv, number, BLOCK,
                fails]).stdout
            self.assertEqual(['as asked', '0', '2 [%d, %d]' % (
                3 * BLOCK, 8 * BLOCK), '2 []', str(2 * BLOCK // 512)],
                said.splitlines())
            written = self.n1.run(
                'for block in 3 8; do dd if=%s bs=64k count=1 skip=$block '
                'iflag=direct status=none | tr -d "\\001\\002" | wc -c; done'
                % attached.path).stdout
            self.assertEqual('0\n0\n', written)
            self.n1.run('blkdiscard --force %s' % lv)
            self.assertEqual(zeros, self.sum_at(self.n1, attached.path, 1))
        attached.detach()
