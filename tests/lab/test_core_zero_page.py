# SPDX-License-Identifier: Apache-2.0
"""The page of zeroes of a node's kernel, shared with its disks' servers."""

import _socket
import mmap
import os
import pathlib
import socket
import struct
import subprocess
import time

import ddt
import fixtures
import testtools

from lab.core import zero_page

BASE = 0x60000000
VALUE = BASE + 0x3000
GET_FEATURES = 1


def image(exported=None, name=b'empty_zero_page', of=BASE):
    """A kernel image: one segment with symbols' names and their table.

    :param exported: the address that the table has for the name; None: the
        name is not in the table
    """
    names = 64 + 56
    table = names + 64
    data = struct.pack('<6s10xHHIQQQIHHHHHH', b'\x7fELF\x02\x01', 2, 62, 1,
                       of, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    data += struct.pack('<IIQQQQQQ', 1, 5, 0, of, of, 0x4000, 0x4000, 4096)
    data += b'\0other\0'
    at = of + len(data)
    data = (data + name + b'\0').ljust(table, b'\0')
    data += struct.pack('<QQQ', of + 0x1000, of + names + 1, 0)
    if exported is not None:
        data += struct.pack('<QQQ', exported, at, 0)
    return data.ljust(0x4000, b'\0')


@ddt.ddt
class AddressTest(testtools.TestCase):

    def address(self, content):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'uml'
        path.write_bytes(content)
        return zero_page.address(path)

    def test_is_that_of_the_exported_symbol(self):
        self.assertEqual(0x3000, self.address(image(VALUE)))

    def test_another_kernel_is_loaded_elsewhere(self):
        self.assertEqual(0x2000, self.address(
            image(0x10002000, of=0x10000000)))

    @ddt.data(
        image(),  # the name alone
        image(VALUE, name=b'empty_zero_page_pfn'),
        image(VALUE, name=b'my_empty_zero_page'),
        image(VALUE + 8),  # a variable, as in older kernels
        image(BASE - 0x1000), image(BASE + 0x4000))  # not in the image
    def test_there_is_none(self, content):
        self.assertIsNone(self.address(content))

    @ddt.data(
        (b'', 'empty'),
        (b'#!/bin/sh\nexit 0\n', 'header of a 64-bit ELF file'),
        (b'\x7fELF\x01\x01' + image(VALUE)[6:], 'a 64-bit ELF file'),
        (image(VALUE)[:50], 'is no kernel image'),
        (image(VALUE)[:100], 'is no kernel image'),
        (image(VALUE)[:32] + b'\xff' * 8 + image(VALUE)[40:],
         'is no kernel image'),
        (image(VALUE)[:64] + b'\4' + image(VALUE)[65:], 'nothing of it'))
    @ddt.unpack
    def test_broken(self, content, reason):
        self.assertIn(reason, str(self.assertRaises(
            ValueError, self.address, content)))


class ForwardTest(testtools.TestCase):
    """Between a kernel and a server; here, both ends are the test's.

    Their sockets are the C library's own: eventlet has made others of
    Python's in this process.
    """

    def forward(self, content=None):
        """Start it.

        :param content: of the kernel's image
        :returns: the kernel's and the server's end
        """
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (path / 'uml').write_bytes(content or image(VALUE))
        listener = self.socket()
        listener.bind(str(path / 'server'))
        listener.listen(1)
        self.errors = path / 'errors'
        with self.errors.open('w') as errors:
            self.forwarder = subprocess.Popen(zero_page.command(
                path / 'uml', path / 'socket', path / 'server'),
                stderr=errors)
        self.addCleanup(self.forwarder.wait)
        self.addCleanup(self.forwarder.kill)
        deadline = time.monotonic() + 20
        while not (path / 'socket').exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        kernel = self.socket()
        kernel.connect(str(path / 'socket'))
        fd, _address = listener._accept()
        return kernel, self.socket(fd)

    def socket(self, fd=None):
        made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        made.settimeout(20)
        self.addCleanup(made.close)
        return made

    def memory(self, content):
        fd = os.memfd_create('memory')
        self.addCleanup(os.close, fd)
        os.write(fd, content)
        return fd

    def table(self, regions=1, flags=0x9):
        """A message, and its descriptors."""
        body = zero_page.TABLE.pack(regions, 0) + b''.join(
            zero_page.REGION.pack(0x800000 * number, 4096, number, 0)
            for number in range(regions))
        fds = [self.memory(b'%d' % number) for number in range(regions)]
        return zero_page.HEADER.pack(
            zero_page.SET_MEM_TABLE, flags, len(body)) + body, fds

    def received(self, sock):
        found = zero_page.receive(sock)
        if found:
            for fd in found[1]:
                self.addCleanup(os.close, fd)
        return found

    def test_a_page_of_zeroes_is_added(self):
        kernel, server = self.forward()
        sent, fds = self.table()
        socket.send_fds(kernel, [sent], fds)
        message, arrived = self.received(server)
        request, flags, size = zero_page.HEADER.unpack_from(message)
        self.assertEqual((zero_page.SET_MEM_TABLE, 9, 8 + 2 * 32),
                         (request, flags, size))
        self.assertEqual(12 + size, len(message))
        self.assertEqual((2, 0), zero_page.TABLE.unpack_from(message, 12))
        self.assertEqual(sent[20:], message[20:20 + 32])
        self.assertEqual((0x3000, 4096, 0x3000, 0),
                         zero_page.REGION.unpack_from(message, 52))
        self.assertEqual(2, len(arrived))
        self.assertEqual(b'0', os.pread(arrived[0], 10, 0))
        with mmap.mmap(arrived[1], 4096) as page:
            self.assertEqual(bytes(4096), page[:])

    def test_a_full_table_stays_as_it_is(self):
        kernel, server = self.forward()
        sent, fds = self.table(zero_page.MAX_REGIONS)
        socket.send_fds(kernel, [sent], fds)
        message, arrived = self.received(server)
        self.assertEqual(sent, message)
        self.assertEqual([b'%d' % number for number in range(8)],
                         [os.pread(fd, 10, 0) for fd in arrived])

    def test_a_kernel_without_the_symbol_is_only_forwarded(self):
        kernel, server = self.forward(image())
        sent, fds = self.table()
        socket.send_fds(kernel, [sent], fds)
        message, arrived = self.received(server)
        self.assertEqual((sent, 1), (message, len(arrived)))
        self.assertEqual(b'0', os.pread(arrived[0], 10, 0))

    def test_all_else_passes_both_ways(self):
        kernel, server = self.forward()
        asked = zero_page.HEADER.pack(GET_FEATURES, 1, 0)
        answer = zero_page.HEADER.pack(GET_FEATURES, 5, 8) + bytes(range(8))
        fd = self.memory(b'call')
        for _time in range(2):
            # Two in one piece, and one in two.
            kernel.sendall(asked + asked)
            self.assertEqual((asked, []), self.received(server))
            self.assertEqual((asked, []), self.received(server))
            server.sendall(answer[:5])
            server.sendall(answer[5:])
            self.assertEqual((answer, []), self.received(kernel))
            socket.send_fds(server, [answer], [fd])
            message, arrived = self.received(kernel)
            self.assertEqual((answer, b'call'), (
                message, os.pread(arrived[0], 10, 0)))

    def test_both_are_gone_when_one_is(self):
        for end in (0, 1):
            ends = self.forward()
            ends[end].close()
            self.assertIsNone(zero_page.receive(ends[1 - end]))
            self.assertEqual(0, self.forwarder.wait(20))

    def test_what_is_not_of_the_protocol_ends_it(self):
        kernel, server = self.forward()
        kernel.sendall(b'GET / HTTP/1.1\r\n\r\n')
        self.assertIsNone(zero_page.receive(server))
        self.assertEqual(1, self.forwarder.wait(20))
        self.assertIn("not vhost-user: b'GET / HTTP/1",
                      self.errors.read_text())

    def test_no_descriptor_stays(self):
        kernel, server = self.forward()
        sent, fds = self.table()

        def open_files():
            # It has closed the former ones when this one has passed.
            kernel.sendall(zero_page.HEADER.pack(GET_FEATURES, 1, 0))
            zero_page.receive(server)
            return len(os.listdir('/proc/%d/fd' % self.forwarder.pid))
        before = open_files()
        for _time in range(5):
            socket.send_fds(kernel, [sent], fds)
            self.received(server)
        self.assertEqual(before, open_files())
