# SPDX-License-Identifier: Apache-2.0
"""What the doctor asks the node itself."""

import socket

import psutil
import testtools

from cinder_localclone.storage import prerequisites


class ListeningTest(testtools.TestCase):

    def test_programs_at_a_port(self):
        with socket.create_server(('127.0.0.1', 0)) as server, \
                socket.create_server(('127.0.0.1', 0)) as other:
            port = server.getsockname()[1]
            with socket.create_connection(('127.0.0.1', port)), \
                    server.accept()[0]:
                self.assertEqual([psutil.Process().name()],
                                 prerequisites.programs_listening(port))
                server.close()  # the connection stays
                self.assertEqual([], prerequisites.programs_listening(port))
            self.assertNotEqual(port, other.getsockname()[1])

    def test_a_socket_of_the_kernel(self):
        with socket.create_server(('127.0.0.1', 0)) as server:
            found = [each._replace(pid=None)
                     for each in psutil.net_connections('tcp')]
            self.patch(psutil, 'net_connections', lambda kind: found)
            self.assertEqual([], prerequisites.programs_listening(
                server.getsockname()[1]))
