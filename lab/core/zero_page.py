#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Stands between a node's kernel and its disk's vhost-user server.

Since Linux 7.1 the page of zeroes that the kernel writes from is part of its
own image, which user-mode Linux does not share with a disk's server (see
vhost_user_set_mem_table() in arch/um/drivers/virtio_uml.c): the server says
"invalid address for buffers" and gives the disk up.  This adds a page of
zeroes to the memory that the kernel shares, at that page's address.  Only
the set-up passes through here; requests go from one to the other.

Standard library only: it is started without site-packages.
"""

import argparse
import contextlib
import mmap
import os
import re
import socket
import struct
import threading

SYMBOL = b'empty_zero_page'
PAGE = mmap.PAGESIZE
PT_LOAD = 1

# The vhost-user protocol.
HEADER = struct.Struct('=III')  # request, flags, size of what follows
TABLE = struct.Struct('=II')  # number of regions, padding
REGION = struct.Struct('=QQQQ')  # guest address, size, user address, offset
SET_MEM_TABLE = 5
MAX_REGIONS = 8  # in one table: VHOST_MEMORY_BASELINE_NREGIONS in QEMU
MAX_SIZE = 1 << 16  # of a message; QEMU's own are below 1 KiB


def command(kernel, listen, server):
    """The words that start it; see :func:`main`."""
    return ['/usr/bin/python3', '-S', __file__, '--kernel', kernel,
            '--listen', listen, '--server', server]


def address(path):
    """Where a kernel that has its page of zeroes in its image has it.

    The image is stripped, but modules may use the page: the table of exported
    symbols has its address, followed by that of its name.

    :returns: the physical address; None: it has none there
    :raises ValueError: if it is no 64-bit ELF file, or a broken one
    """
    with open(path, 'rb') as image:
        if not os.fstat(image.fileno()).st_size:
            raise ValueError('%s is empty' % path)
        with mmap.mmap(image.fileno(), 0, prot=mmap.PROT_READ) as data:
            try:
                return _exported(data, _segments(data))
            except (struct.error, OverflowError, ValueError) as exc:
                raise ValueError('%s is no kernel image: %s' % (path, exc))


def _segments(data):
    """What is loaded: (offset in the file, address, length)"""
    if data[:6] != b'\x7fELF\x02\x01':
        raise ValueError('it has no header of a 64-bit ELF file')
    start, = struct.unpack_from('<Q', data, 32)
    size, count = struct.unpack_from('<HH', data, 54)
    found = []
    for number in range(count):
        kind, _flags, offset, virtual, _physical, length = struct.unpack_from(
            '<IIQQQQ', data, start + number * size)
        if kind == PT_LOAD:
            found.append((offset, virtual, length))
    if not found:
        raise ValueError('nothing of it is loaded')
    return found


def _exported(data, segments):
    base = min(start for _offset, start, _length in segments) & -PAGE
    end = max(start + length for _offset, start, length in segments)
    for match in re.finditer(b'\0%s\0' % SYMBOL, data):
        name = match.start() + 1
        for offset, start, length in segments:
            if not offset <= name < offset + length:
                continue
            pointer = struct.pack('<Q', start + name - offset)
            at = data.find(pointer, 8)
            while at >= 0:
                value, = struct.unpack_from('<Q', data, at - 8)
                # In older kernels it is a variable that points to a page of
                # ordinary memory; that is not aligned.
                if base < value < end and not value % PAGE:
                    return value - base
                at = data.find(pointer, at + 1)
    return None


def receive(sock):
    """One message and the descriptors that came with it.

    :returns: (message, list of descriptors); None when the other side is gone
    """
    message, fds = b'', []
    wanted = HEADER.size
    while len(message) < wanted:
        data, more, _flags, _address = socket.recv_fds(
            sock, wanted - len(message), MAX_REGIONS)
        fds += more
        if not data:
            _close(fds)
            return None
        message += data
        if len(message) == HEADER.size:
            wanted += HEADER.unpack(message)[2]
            if wanted > MAX_SIZE:
                _close(fds)
                raise ValueError('not vhost-user: %r' % message)
    return message, fds


def _close(fds):
    for fd in fds:
        os.close(fd)


def add_zeroes(message, fds, where):
    """Add a page of zeroes to a table of shared memory.

    :param fds: the table's descriptors; the page's is added
    :param where: the page is to be: its physical address
    :returns: the new message; the same if no more fits into a table
    """
    request, flags, size = HEADER.unpack_from(message)
    number, padding = TABLE.unpack_from(message, HEADER.size)
    if number >= MAX_REGIONS:
        return message
    page = os.memfd_create('zeroes')
    fds.append(page)
    os.ftruncate(page, PAGE)
    return (HEADER.pack(request, flags, size + REGION.size)
            + TABLE.pack(number + 1, padding)
            + message[HEADER.size + TABLE.size:]
            + REGION.pack(where, PAGE, where, 0))


def forward(source, target, page=None):
    """Pass messages on until one side is gone; then both are.

    :param page: the address of a page of zeroes that tables of memory lack
    """
    try:
        while True:
            received = receive(source)
            if received is None:
                break
            message, fds = received
            try:
                if page and HEADER.unpack_from(message)[0] == SET_MEM_TABLE:
                    message = add_zeroes(message, fds, page)
                _send(target, message, fds)
            finally:
                _close(fds)
    except ConnectionError:
        pass
    finally:
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _send(sock, message, fds):
    sent = socket.send_fds(sock, [message], fds)
    sock.sendall(message[sent:])


def listen(path):
    """A socket at a path that is not there before it can be connected to."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + '.new')
    listener.listen(1)
    os.rename(path + '.new', path)
    return listener


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--kernel', required=True, help='its image')
    parser.add_argument('--listen', required=True, help='socket to make')
    parser.add_argument('--server', required=True, help="the server's socket")
    args = parser.parse_args()
    page = address(args.kernel)
    with listen(args.listen) as listener:
        client, _address = listener.accept()
    server = socket.socket(socket.AF_UNIX)
    server.connect(args.server)
    back = threading.Thread(target=forward, args=(server, client))
    back.start()
    forward(client, server, page)
    back.join()


if __name__ == '__main__':
    main()
