# SPDX-License-Identifier: Apache-2.0
"""Looks for keys where none may be.

Not on the link between services and the key manager, which is TLS elsewhere,
and not in the key manager's own database, which encrypts them.
"""

import base64
import contextlib

from lab.core import capture
from lab.core import process

#: The message bus.
_BUS = 5672

#: The databases of a lab in which no key may be.
_DATABASES = ('cinder', 'nova', 'nova_cell0', 'nova_api', 'keystone',
              'glance')
#: Runs in a node: prints each command line that it sees, once, until it is
#: killed.
_WATCH = '''
import os, time
seen = set()
while True:
    for number in filter(str.isdigit, os.listdir('/proc')):
        for name in 'cmdline', 'environ':
            try:
                with open('/proc/%s/%s' % (number, name), 'rb') as file:
                    words = file.read()
            except OSError:
                continue
            if words and words not in seen:
                seen.add(words)
                os.write(1, words + b'\\n')
    time.sleep(0.2)
'''


def forms(key) -> set[bytes]:
    """All that a key may look like.

    :param key: what opens a volume: hexadecimal digits of a secret
    """
    text = key.lower()
    raw = bytes.fromhex(text.decode())
    found = {text, text.upper(), raw}
    for each in (text, raw):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(each).rstrip(b'='))
    return found


def is_in(data, keys) -> bool:
    """Whether any of these keys is in some bytes, in any form."""
    return any(form in data for key in keys for form in forms(key))


def in_logs(directory, keys):
    """The log files of a directory that have a key."""
    return ['log ' + path.name for path in sorted(directory.iterdir())
            if path.is_file() and is_in(path.read_bytes(), keys)]


def in_databases(lab, keys):
    """The databases that have a key."""
    found = []
    there = set(_sql(lab, 'SHOW DATABASES').split())
    for name in sorted(there.intersection(_DATABASES)):
        dump = process.run(
            'mariadb-dump', '--socket=%s' % _socket(lab), '-uroot',
            '--hex-blob', '--skip-extended-insert', name)
        if is_in(dump.encode(), keys):
            found.append('database ' + name)
    return found


def _sql(lab, statement):
    return process.run('mariadb', '--socket=%s' % _socket(lab), '-uroot',
                       '-N', '-B', '-e', statement)


def _socket(lab):
    return lab.control.directory / 'mysql.sock'


class Listener:
    """Hears what nodes say on the bus and sees what commands they run."""

    def __init__(self, lab):
        self.lab = lab
        self._stack = contextlib.ExitStack()
        self.taps, self.commands = [], []

    def __enter__(self):
        for node in self.lab.nodes.values():
            self.taps.append(self._stack.enter_context(
                capture.Recording(node, _BUS)))
            self.watch(node)
        return self

    def watch(self, node):
        """See the commands of a node, once more after it has booted."""
        self.commands.append((node.name, node.popen(
            ['/usr/bin/python3', '-S', '-c', _WATCH])))

    def __exit__(self, *_exc_info):
        for _name, running in self.commands:
            running.kill()
        self._stack.close()

    def leaks(self, keys):
        """Where a key is that should not, in words."""
        found = ['bus' for tap in self.taps
                 for stream in tap.streams.values()
                 if is_in(bytes(stream), keys)]
        found += ['a command of ' + name
                  for name, running in self.commands if is_in(
                      running.stdout, keys)]
        found += in_logs(self.lab.logs, keys)
        return found + in_databases(self.lab, keys)

    @property
    def heard(self):
        """How much: bytes of the bus, command lines."""
        return (sum(tap.seen for tap in self.taps),
                sum(running.stdout.count(b'\n')
                    for _name, running in self.commands))
