# SPDX-License-Identifier: Apache-2.0
"""What goes over a node's link, as somebody with a tap on it sees it."""

import collections
import ctypes
import socket
import struct
import threading

from lab.core import process

#: Of which packets go to and from a disk that is imported by iSCSI.
ISCSI = 3260
_ALL = 0x0003  # ETH_P_ALL
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
_IP_HEADER = slice(14, 34)


class _Tap:
    """Sees what a node sends and receives by TCP.

    :param node: whose link is tapped
    :param port: from or to which
    """

    def __init__(self, node, port):
        self.seen = 0
        self._node = node
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_exc_info):
        self._over.set()
        self._thread.join()

    def _look(self):
        process.enter_namespace(self._node.lab.namespace)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                           socket.htons(_ALL)) as tap:
            tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
            _take_only(tap, self._port)
            tap.bind((self._node.tap, 0))
            tap.settimeout(0.2)
            while not self._over.is_set():
                try:
                    packet = tap.recv(1 << 17)
                except socket.timeout:
                    continue
                if self._is_wanted(packet):
                    self.seen += len(packet)
                    self._take(packet)

    def _is_wanted(self, packet):
        return is_of_port(packet, self._port)

    def _take(self, packet):
        raise NotImplementedError()


class Capture(_Tap):
    """Looks for some bytes in what a node sends and receives by iSCSI.

    A block that crosses from one packet to the next is not found: look for
    what is in many.

    :param wanted: these bytes
    """

    def __init__(self, node, wanted):
        super().__init__(node, ISCSI)
        self.found = 0
        self._wanted = wanted

    def _take(self, packet):
        self.found += self._wanted in packet


class Recording(_Tap):
    """Keeps what a node says and hears, for what is not known yet.

    ``streams``: the bytes of each direction of each connection.
    """

    def __init__(self, node, port):
        super().__init__(node, port)
        self.streams = collections.defaultdict(bytearray)

    def _take(self, packet):
        between, data = payload(packet)
        self.streams[between] += data


class Link(_Tap):
    """Looks for some bytes in all that may carry iSCSI, also encrypted.

    ``found``: packets that have them. ``clear``, ``encrypted``: bytes of
    packets of TCP from or to the port of iSCSI, and of ESP.

    :param wanted: these bytes
    """

    #: How many packets of ESP to a node are kept, the last.
    KEPT = 50
    #: Added to the number of a changed packet: it is one that is yet to come.
    AHEAD = 5000

    def __init__(self, node, wanted):
        super().__init__(node, ISCSI)
        self.found = self.clear = self.encrypted = 0
        self._wanted = wanted
        self._last = collections.deque(maxlen=self.KEPT)

    def _is_wanted(self, packet):
        return is_of_port(packet, self._port) or is_esp(packet)

    def _take(self, packet):
        self.found += self._wanted in packet
        if is_esp(packet):
            self.encrypted += len(packet)
            if packet[30:34] == socket.inet_aton(self._node.address):
                self._last.append(packet)
        else:
            self.clear += len(packet)

    def start_anew(self):
        """Keep only packets of ESP that come from now on.

        A packet that the link has damaged, sent again, is not a repeated one:
        the node refuses it for its content.
        """
        self._last.clear()

    @property
    def kept(self):
        """How many packets of ESP to the node are kept."""
        return len(self._last)

    def send_again(self, change=False):
        """Send the node the last packets of ESP that it has got.

        :param change: send each with another byte and as the next one; else
            just as they were
        :returns: how many were sent
        """
        packets = [changed(each, self.AHEAD) if change else each
                   for each in list(self._last)]

        def send():
            process.enter_namespace(self._node.lab.namespace)
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as tap:
                tap.bind((self._node.tap, 0))
                for packet in packets:
                    tap.send(packet)
        thread = threading.Thread(target=send)
        thread.start()
        thread.join()
        return len(packets)


def is_esp(packet) -> bool:
    """Whether an Ethernet packet is one of ESP (RFC 4303)."""
    return packet[12:14] == b'\x08\x00' and len(packet) > 54 and (
        packet[_IP_HEADER][9] == socket.IPPROTO_ESP)


def changed(packet, ahead):
    """Return a packet of ESP with one byte of its ciphertext changed.

    :param ahead: added to its sequence number
    """
    start = _tcp(packet)
    number, = struct.unpack_from('!I', packet, start + 4)
    other = bytearray(packet)
    struct.pack_into('!I', other, start + 4, number + ahead & 0xffffffff)
    other[start + 20] ^= 0x55
    return bytes(other)


def _take_only(tap, port):
    """The kernel spares us the other packets (classic BPF)."""
    program = ctypes.create_string_buffer(b''.join(
        struct.pack('=HBBI', *each) for each in (
            (0x28, 0, 0, 12),         # EtherType
            (0x15, 0, 9, 0x0800),     # IPv4, or none
            (0x30, 0, 0, 23),         # protocol
            (0x15, 6, 0, socket.IPPROTO_ESP),
            (0x15, 0, 6, socket.IPPROTO_TCP),
            (0xb1, 0, 0, 14),         # length of the IP header
            (0x48, 0, 0, 14),         # source port
            (0x15, 2, 0, port),
            (0x48, 0, 0, 16),         # destination port
            (0x15, 0, 1, port),
            (0x06, 0, 0, 1 << 18),    # all of it
            (0x06, 0, 0, 0))))        # none of it
    tap.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack(
        'HP', len(program) // 8, ctypes.addressof(program)))


def is_of_port(packet, port) -> bool:
    """Whether an Ethernet packet is one of TCP from or to a port."""
    if packet[12:14] != b'\x08\x00' or len(packet) < 38 or (
            packet[_IP_HEADER][9] != socket.IPPROTO_TCP):
        return False
    return port in struct.unpack_from('!HH', packet, _tcp(packet))


def payload(packet):
    """Who talks to whom, and the bytes, of an Ethernet packet of TCP."""
    start = _tcp(packet)
    length, = struct.unpack_from('!H', packet, 16)
    data = start + (packet[start + 12] >> 4) * 4
    return (packet[26:34], packet[start:start + 4]), packet[
        data:14 + length if length else len(packet)]


def _tcp(packet):
    """Where its TCP header begins."""
    return 14 + (packet[14] & 0x0f) * 4
