# SPDX-License-Identifier: Apache-2.0
"""The kernel's device-mapper as its ioctls show it: bytes, as it packs them.

Written from drivers/md/dm-ioctl.c, without the driver's own packing.
"""

import errno
import os
import struct

import fixtures

from cinder_localclone.storage.privsep import dm_control

HEADER = '=3I7IQ128s129s7x'
LIST_DEVICES, TABLE_STATUS, TARGET_MSG = 0xc138fd02, 0xc138fd0c, 0xc138fd0e
SUSPENDED, TABLE, FULL, UUIDS = 2, 16, 256, 1 << 14


def _aligned(data):
    return data + bytes(-len(data) % 8)


class Kernel(fixtures.Fixture):
    """Answers in place of /dev/mapper/control.

    ``devices``: by name, (uuid, number, open count, suspended, table,
    status), the last two with a line for each target. ``gone``: those that
    vanish once they are listed. ``asked``: requests in short; ``messages``:
    what was sent; ``says_uuids``: false before 5.13.
    """

    says_uuids = True

    def __init__(self):
        self.devices, self.gone, self.asked = {}, set(), []
        self.messages = []

    def _setUp(self):
        self.useFixture(fixtures.MockPatchObject(
            dm_control, '_ioctl', self.ioctl))

    def add(self, name, number='253:9', table='', status='', uuid=None,
            opened=0, suspended=False):
        self.devices[name] = (
            'LOCALCLONE-' + name if uuid is None else uuid, number, opened,
            suspended, table, status)

    def ioctl(self, request, buffer):
        found = struct.unpack_from(HEADER, buffer)
        assert found[:5] == (4, 0, 0, len(buffer), 312), found
        flags, dev = found[7], found[10]
        name = os.fsdecode(found[11].rstrip(b'\0'))
        # Newer ones find no device by both; the rest is for the answer.
        assert not (name and dev) and not any(found[12]), found
        assert not any((*found[5:7], *found[8:10])), found
        if request == LIST_DEVICES:
            self.asked.append('list')
            self._answer(buffer, flags, 0, self._names(
                self.says_uuids and flags & UUIDS), '', 0)
            return
        if not name:
            name = next((each for each, what in self.devices.items()
                         if self._dev(what[1]) == dev), '')
        if name in self.gone or name not in self.devices:
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
        if request == TARGET_MSG:
            self.messages.append((name, bytes(buffer[320:-1]).decode()))
            return
        assert request == TABLE_STATUS, hex(request)
        self.asked.append('%s %s' % (
            'table' if flags & TABLE else 'status', name))
        assert flags & TABLE or flags & 2048, 'a status that commits'
        what = self.devices[name]
        lines = what[4 if flags & TABLE else 5].splitlines()
        self._answer(buffer, flags | SUSPENDED * what[3], len(lines),
                     self._targets(lines), name, self._dev(what[1]))

    @staticmethod
    def _dev(number):
        return os.makedev(*map(int, number.split(':')))

    def _answer(self, buffer, flags, count, data, name, dev):
        full = 312 + len(data) > len(buffer)
        if full:
            flags, data = flags | FULL, b''
        uuid, opened = (self.devices[name][0],
                        self.devices[name][2]) if name else ('', 0)
        struct.pack_into(
            HEADER, buffer, 0, 4, 48, 0, 312 + len(data), 312, count, opened,
            flags, 0, 0, dev, os.fsencode(name), os.fsencode(uuid))
        buffer[312:312 + len(data)] = data

    def _names(self, uuids):
        parts = []
        for name, what in self.devices.items():
            entry = _aligned(struct.pack('=QI', self._dev(what[1]), 0)
                             + os.fsencode(name) + b'\0')
            flag = (1 if what[0] else 2) if uuids else 0
            entry += struct.pack('=2I', 7, flag)
            if flag == 1:
                entry = _aligned(entry + os.fsencode(what[0]) + b'\0')
            parts.append(entry)
        return b''.join(
            entry[:8] + struct.pack('=I', len(entry) if n + 1 < len(parts)
                                    else 0) + entry[12:]
            for n, entry in enumerate(parts))

    @staticmethod
    def _targets(lines):
        data = b''
        for line in lines:
            start, sectors, kind, *words = line.split(' ')
            text = ' '.join(words).encode() + b'\0'
            at_next = len(_aligned(data + bytes(40) + text))
            data = _aligned(data + struct.pack(
                '=QQiI16s', int(start), int(sectors), 0, at_next,
                kind.encode()) + text)
        return data
