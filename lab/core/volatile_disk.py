#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A disk with a volatile write cache, served over NBD on a unix socket.

A write is acknowledged once it is in memory.  A flush, or a write with FUA,
puts it into the backing file and syncs that.  On SIGUSR1 (the power cut) a
random part of what was not flushed is written out, the rest is lost, and
the server exits.  SIGTERM writes everything out first.

The cache is a private anonymous mapping as large as the disk (only touched
pages cost memory) plus one byte per sector that says whether the sector is
dirty, so a write is received straight into its place.
"""

import argparse
import ctypes
import errno
import json
import mmap
import os
import random
import signal
import socket
import struct
import sys

SECTOR = 512
# What a power cut keeps or loses as a whole: a drive tears between
# sectors, but the file systems and LVM here all write 4 KiB blocks, and a
# torn block shows nothing that a lost neighbour does not.
ATOM = 4096
PAGE = mmap.PAGESIZE
MAP_NORESERVE = 0x4000
PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
LARGEST_REQUEST = 32 << 20

NBD_MAGIC = 0x4e42444d41474943
OPTION_MAGIC = 0x49484156454F5054
REPLY_OPTION_MAGIC = 0x3e889045565a9
REQUEST_MAGIC = 0x25609513
REPLY_MAGIC = 0x67446698
OPT_EXPORT_NAME, OPT_ABORT, OPT_INFO, OPT_GO = 1, 2, 6, 7
REP_ACK, REP_INFO, REP_ERR_UNSUP = 1, 3, (1 << 31) | 1
INFO_EXPORT = 0
# has flags, flush, FUA, trim, write zeroes
FLAGS = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6
CMD_READ, CMD_WRITE, CMD_DISC, CMD_FLUSH, CMD_TRIM, CMD_ZEROES = (
    0, 1, 2, 3, 4, 6)
CMD_FLAG_FUA = 1 << 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int,
                            ctypes.c_int64, ctypes.c_int64]


class Gone(Exception):
    """The client closed the connection."""


class VolatileDisk:
    """The backing file and the writes that are not in it yet."""

    def __init__(self, path, cache_limit):
        self.fd = os.open(path, os.O_RDWR)
        self.size = os.fstat(self.fd).st_size
        anonymous = (mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        self.cache = mmap.mmap(-1, self.size, flags=anonymous)
        self.view = memoryview(self.cache)
        self.dirty = mmap.mmap(-1, self.size // SECTOR, flags=anonymous)
        self.extents = []       # (offset, length) of writes, oldest first
        self.cached = 0         # sum of their lengths
        self.cache_limit = cache_limit

    def is_clean(self, offset, length):
        """Whether the file has all of a range."""
        first, last = self._sectors(offset, length)
        return self.dirty.find(b'\1', first, last) < 0

    @staticmethod
    def _sectors(offset, length):
        return offset // SECTOR, (offset + length) // SECTOR

    def written(self, offset, length):
        """Take note of a write that was received into the cache."""
        first, last = self._sectors(offset, length)
        self.dirty[first:last] = b'\1' * (last - first)
        self.extents.append((offset, length))
        self.cached += length
        if self.cached > self.cache_limit:
            self._evict()

    def _evict(self):
        """A full cache writes its oldest half out, as drives do."""
        done = 0
        while self.cached > self.cache_limit // 2:
            offset, length = self.extents[done]
            self.write_out(offset, length)
            self.cached -= length
            done += 1
        del self.extents[:done]

    def _dirty_runs(self, offset, length):
        position, end = self._sectors(offset, length)
        while True:
            position = self.dirty.find(b'\1', position, end)
            if position < 0:
                return
            stop = self.dirty.find(b'\0', position, end)
            stop = end if stop < 0 else stop
            yield position, stop
            position = stop

    def write_out(self, offset, length):
        """Put the dirty sectors of a range into the file."""
        for first, last in self._dirty_runs(offset, length):
            start, stop = first * SECTOR, last * SECTOR
            while start < stop:
                start += os.pwrite(self.fd, self.view[start:stop], start)
            self.dirty[first:last] = bytes(last - first)
        self._release(offset, length)

    def _release(self, offset, length):
        """Give the memory of pages back that hold nothing dirty."""
        first = -(-offset // PAGE) * PAGE
        last = (offset + length) // PAGE * PAGE
        if last > first:
            self.cache.madvise(mmap.MADV_DONTNEED, first, last - first)

    def flush(self):
        """All that was written is in the file, for good."""
        for offset, length in self.extents:
            self.write_out(offset, length)
        self.extents = []
        self.cached = 0
        os.fdatasync(self.fd)

    def read(self, offset, length):
        """What the client must see: the file, overlaid with the cache."""
        data = bytearray(os.pread(self.fd, length, offset))
        data.extend(bytes(length - len(data)))
        for first, last in self._dirty_runs(offset, length):
            start, stop = first * SECTOR, last * SECTOR
            data[start - offset:stop - offset] = self.view[start:stop]
        return data

    def punch(self, offset, length):
        """Discard or zero a range at once: early write-out is allowed."""
        if _libc.fallocate(self.fd, PUNCH_HOLE_KEEP_SIZE, offset, length):
            raise OSError(ctypes.get_errno(), 'fallocate')
        first, last = self._sectors(offset, length)
        self.dirty[first:last] = bytes(last - first)

    def power_cut(self, rng):
        """Keep a random part of what is dirty; return what happened."""
        keep_chance = rng.random()
        kept = lost = 0
        for offset, length in self.extents:
            for start in range(offset - offset % ATOM, offset + length, ATOM):
                size = min(ATOM, self.size - start)
                dirty = sum(last - first for first, last
                            in self._dirty_runs(start, size)) * SECTOR
                if not dirty:
                    continue
                if rng.random() < keep_chance:
                    self.write_out(start, size)
                    kept += dirty
                else:
                    first, last = self._sectors(start, size)
                    self.dirty[first:last] = bytes(last - first)
                    lost += dirty
        return {'kept_bytes': kept, 'lost_bytes': lost}


class Connection:
    """One NBD client."""

    def __init__(self, sock, disk):
        self.sock = sock
        self.disk = disk

    def _receive(self, length):
        data = bytearray(length)
        self._receive_into(memoryview(data))
        return data

    def _receive_into(self, view):
        while view:
            count = self.sock.recv_into(view)
            if not count:
                raise Gone()
            view = view[count:]

    def negotiate(self):
        """NBD's handshake.

        :raises Gone: if the client does not go on
        """
        self.sock.sendall(struct.pack('>QQH', NBD_MAGIC, OPTION_MAGIC, 3))
        no_zeroes = struct.unpack('>I', self._receive(4))[0] & 2
        export = struct.pack('>QH', self.disk.size, FLAGS)
        while True:
            _magic, option, length = struct.unpack('>QII', self._receive(16))
            self._receive(length)
            if option == OPT_EXPORT_NAME:
                self.sock.sendall(export + (b'' if no_zeroes
                                            else bytes(124)))
                return
            if option in (OPT_GO, OPT_INFO):
                self._option_reply(option, REP_INFO,
                                   struct.pack('>H', INFO_EXPORT) + export)
                self._option_reply(option, REP_ACK)
                if option == OPT_GO:
                    return
            elif option == OPT_ABORT:
                self._option_reply(option, REP_ACK)
                raise Gone()
            else:
                self._option_reply(option, REP_ERR_UNSUP)

    def _option_reply(self, option, kind, data=b''):
        self.sock.sendall(struct.pack('>QIII', REPLY_OPTION_MAGIC, option,
                                      kind, len(data)) + data)

    def serve(self):
        """Answer requests until the client goes.

        :raises Gone: then
        """
        handlers = {CMD_READ: self._read, CMD_WRITE: self._write,
                    CMD_FLUSH: self._flush, CMD_TRIM: self._punch,
                    CMD_ZEROES: self._punch}
        while True:
            magic, flags, command, handle, offset, length = struct.unpack(
                '>IHHQQI', self._receive(28))
            if magic != REQUEST_MAGIC or command == CMD_DISC:
                raise Gone()
            handler = handlers.get(command)
            if handler is None or (command != CMD_FLUSH
                                   and not self._sane(offset, length,
                                                      command)):
                if command == CMD_WRITE:
                    raise Gone()        # its data follows; cannot resync
                self._reply(handle, errno.EINVAL)
                continue
            handler(handle, offset, length, flags & CMD_FLAG_FUA)

    def _sane(self, offset, length, command):
        return (length and offset + length <= self.disk.size
                and offset % SECTOR == 0 and length % SECTOR == 0
                and (command not in (CMD_READ, CMD_WRITE)
                     or length <= LARGEST_REQUEST))

    def _reply(self, handle, error=0):
        self.sock.sendall(struct.pack('>IIQ', REPLY_MAGIC, error, handle))

    def _read(self, handle, offset, length, _fua):
        if not self.disk.is_clean(offset, length):
            data = self.disk.read(offset, length)
            self._reply(handle)
            self.sock.sendall(data)
            return
        self._reply(handle)
        while length:
            count = os.sendfile(self.sock.fileno(), self.disk.fd, offset,
                                length)
            if not count:
                raise Gone()
            offset += count
            length -= count

    def _write(self, handle, offset, length, fua):
        self._receive_into(self.disk.view[offset:offset + length])
        self.disk.written(offset, length)
        if fua:
            self.disk.write_out(offset, length)
            os.fdatasync(self.disk.fd)
        self._reply(handle)

    def _flush(self, handle, _offset, _length, _fua):
        self.disk.flush()
        self._reply(handle)

    def _punch(self, handle, offset, length, fua):
        self.disk.punch(offset, length)
        if fua:
            os.fdatasync(self.disk.fd)
        self._reply(handle)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--file', required=True, help='backing file')
    parser.add_argument('--socket', required=True, help='unix socket')
    parser.add_argument('--report', required=True,
                        help='where a power cut writes what was lost (JSON)')
    parser.add_argument('--cache-mib', type=int, default=256,
                        help='write out early beyond this (default: 256)')
    parser.add_argument('--seed', type=int,
                        help='seed of the random loss (default: random)')
    args = parser.parse_args()
    disk = VolatileDisk(args.file, args.cache_mib << 20)

    def on_power_cut(_signum, _frame):
        seed = (args.seed if args.seed is not None
                else random.SystemRandom().getrandbits(32))
        result = disk.power_cut(random.Random(seed))
        with open(args.report, 'w') as report:
            json.dump(dict(result, seed=seed), report)
        os._exit(0)

    def on_term(_signum, _frame):
        disk.flush()
        os._exit(0)

    signal.signal(signal.SIGUSR1, on_power_cut)
    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(args.socket)
    listener.listen(1)
    while True:
        sock, _address = listener.accept()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
        connection = Connection(sock, disk)
        try:
            connection.negotiate()
            connection.serve()
        except (Gone, ConnectionError, BrokenPipeError):
            sock.close()


if __name__ == '__main__':
    sys.exit(main())
