# SPDX-License-Identifier: Apache-2.0
"""Ranges of a thin LV that its pool has or has not."""

import contextlib
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.moves import refill as refilling
from cinder_localclone.storage import clones
from cinder_localclone.storage import handles
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import refill
from cinder_localclone.storage.privsep import sysfs
from cinder_localclone.storage.privsep import thin_pool
from tests.helpers import commands
from tests.helpers import specs
from tests.helpers import storage_case

REGION = 1 << 16


class Pool:
    """A thin LV, of blocks of 64 KiB, and how many of them go together."""

    def __init__(self, together):
        self.together, self.data, self.mapped = together, [0] * 384, set()

    def all_holes(self, _group, _lv, _size, unit, _timeout):
        self._check(unit)
        return [[number, 1] for number in range(len(self.data))
                if number // self.together not in self.mapped]

    def _check(self, unit):
        assert unit == REGION, unit

    @contextlib.contextmanager
    def locked_for_writing(self, *_args):
        yield thin_pool.Thin('pool', '/dev/metadata', 7)

    def write(self, _handle, _thin, _path, block, parts, data, _timeout):
        assert block == self.together * REGION, block
        written = []
        for first, length in parts:
            piece, data = data[:length], data[length:]
            if first // block in self.mapped:
                continue
            written.append(first)
            self.mapped.add(first // block)
            for number in range(length // REGION):
                self.data[first // REGION + number] = piece[number * REGION]
        return len(parts), written


@ddt.ddt
class PoolTest(commands.Case):
    """Whatever a pool maps at once: the first write maps all of it."""

    @ddt.data((1, [[0, 3], [5, 1], [9, 1]]),
              (16, [[5, 1], [9, 1]]),  # larger than the source's
              (128, [[0, 128]]),  # more than is written at once
              (3, [[0, 96]]))  # no power of two
    @ddt.unpack
    def test_all_is_copied_again(self, together, missing):
        pool, move = Pool(together), storage_case.MOVE
        clone = names.clone(move.move_id)
        for where, name, what in (
                (thin_pool, 'locked_for_writing', pool.locked_for_writing),
                (thin_pool, 'all_holes', pool.all_holes),
                (thin_pool, 'block_size', lambda *args: together * REGION),
                (dmsetup, 'write_beneath', pool.write),
                (block, 'size', lambda path: 384 * REGION),
                (logical_volumes.Lvm, 'lvs', lambda _lvm: {
                    move.destination_lv: mock.Mock(tags=frozenset())}),
                (handles.Handles, 'devices', lambda _handles, only: {
                    clone: dm_tables.Device(clone, 'u', '253:6', 1, False,
                                            '0 1 clone 253:4 253:5 8:0')}),
                (sysfs, 'number', lambda path: '8:0'),
                (logical_volumes.Lvm, 'mark', lambda *args: None),
                (logical_volumes.Lvm, 'unmark', lambda *args: None),
                (refill, 'forget_read', lambda *args: None),
                (sysfs, 'mapped_name', lambda path: names.mapped_name(
                    'g', move.destination_lv)),
                (process, 'stream', self.stream)):
            self.useFixture(fixtures.MockPatchObject(where, name, what))
        lvm = logical_volumes.Lvm('g', 'g-pool', 'fast', 30, host='b@l')
        here = handles.Handles(lvm)
        node = specs.node(host='b@l', compare_wait=60, lvm=lvm, handles=here,
                          clones=clones.Clones(lvm, here))
        node.services.alive_by_host.return_value = {move.source: True}
        node.sessions.attach.return_value = '/dev/sda'
        has = {number for start, count in missing
               for number in range(start, start + count)}
        node.peers.holes.return_value = [
            [number, 1] for number in range(384) if number not in has]
        self.assertTrue(refilling.Comparison(node).ensure_whole(move))
        self.assertEqual([], [number for number in has if pool.data[number]
                              != 1 + number % 250])

    def stream(self, take, *argv, timeout):
        words = dict(word.split('=') for word in argv[1:])
        first = int(words['skip']) // REGION
        take(b''.join(bytes([1 + number % 250]) * REGION for number in range(
            first, first + int(words['count']) // REGION)))
