# SPDX-License-Identifier: Apache-2.0
"""Runs commands in a node for the host; standard library only.

One connection, one command. Request: a JSON line {command, timeout, input}.
Answer: frames of a type byte (o, e: output; x: exit code as text) and a
four-byte length. The command's process group is killed when its time is up
or the connection ends.
"""

import base64
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading

PORT = 7000


def frame(kind, data):
    """A piece of an answer, as it is sent."""
    return kind + struct.pack('>I', len(data)) + data


def ended(process, seconds):
    """Whether a process ends in time.

    Not by looking twenty times a second, as subprocess does: of many that run
    for long the node would do little else.
    """
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(1000 * seconds))
    finally:
        os.close(descriptor)


def serve(connection):
    """Run the command that one connection asks for."""
    with connection, connection.makefile('rb') as reader:
        try:
            request = json.loads(reader.readline())
        except ValueError:
            return
        process = subprocess.Popen(
            ['/bin/bash', '-c', request['command']],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True)
        lock = threading.Lock()

        def kill():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

        def send(kind, data):
            try:
                with lock:
                    connection.sendall(frame(kind, data))
            except OSError:
                kill()

        def pump(stream, kind):
            while True:
                data = stream.read1(65536)
                if not data:
                    return
                send(kind, data)

        def watch():  # the host hangs up: end the command
            if not reader.read(1) and process.poll() is None:
                kill()

        def feed():
            try:
                process.stdin.write(base64.b64decode(request['input'] or ''))
                process.stdin.close()
            except OSError:
                pass

        threads = [threading.Thread(target=pump, args=args, daemon=True)
                   for args in ((process.stdout, b'o'),
                                (process.stderr, b'e'))]
        for thread in threads:
            thread.start()
        threading.Thread(target=watch, daemon=True).start()
        threading.Thread(target=feed, daemon=True).start()
        if ended(process, request['timeout']):
            code = process.wait()
        else:
            kill()
            send(b'e', b'time is up\n')
            code = 124
        for thread in threads:
            thread.join(1)
        send(b'x', str(code).encode())


def main():
    """Serve at the address that is given."""
    server = socket.create_server((sys.argv[1], PORT), backlog=64)
    while True:
        connection, _address = server.accept()
        threading.Thread(target=serve, args=(connection,),
                         daemon=True).start()


if __name__ == '__main__':
    main()
