# SPDX-License-Identifier: Apache-2.0
"""The steps for volumes encrypted by the driver: keys and headers."""

import json
import time

from lab.core import process
from lab.encryption import chapter
from lab.guest import console as guest_console
from lab.keys import volumes
from lab.scenarios.requests import must

CIPHER = 'serpent-xts-plain64'
#: Seconds for a re-encryption to end after a move.
ANEW = 400


class Chapter(chapter.Chapter):
    """The steps of a chapter, and more before its last steps."""

    STEPS = {
        **{name: what for name, what in chapter.Chapter.STEPS.items()
           if name not in chapter.LAST},
        'rotate': 'the key is replaced in use: the old one opens nothing',
        'anew': 'another data key and cipher in use, through a live migration',
        'recovery': 'a recovery key opens it, until it is removed',
        'lost': 'the header is lost: attach refused; it is restored',
        **{name: chapter.Chapter.STEPS[name] for name in chapter.LAST}}

    def rotate(self, row):
        old = self.way.key(self.data)
        must(self._opens(old), 'control: the key does not open it')
        self._operator('encryption', 'key', 'rotate', self.data)
        new = self.way.key(self.data)
        must(new != old and self._opens(new), 'the new key does not open it')
        must(not self._opens(old), 'the old key opens it')
        self._writes()
        self.header = self._header()
        row.detail = 'the guest went on'

    def anew(self, row):
        must(len(self._ciphers()) == 1, 'it has begun already')
        began = time.monotonic()
        # Small zones: the re-encryption lasts longer than the migration.
        self._operator('reencryption', 'start', self.data, '--cipher',
                       CIPHER, '--zone', '4')
        process.wait_for('it to begin', lambda: len(self._ciphers()) > 1, 60)
        self._writes()
        other = self.server.other_node
        self.server.migrate(other)
        must(len(self._ciphers()) > 1, 'control: it had ended before')
        self._moved_to(other)
        process.wait_for('it to end', lambda: self._ciphers() == [CIPHER],
                         ANEW, every=2)
        row.detail = 'the guest went on; %.0f s in all' % (
            time.monotonic() - began)
        self._writes()
        must(self._opens(self.way.key(self.data)), 'its key does not open it')
        self.header = self._header()

    def _ciphers(self):
        # During a copy the destination LV has no header yet.
        return volumes.ciphers(self._home(),
                               '/dev/mapper/localclone-' + self.data)

    def recovery(self, row):
        added, = self._operator(
            'encryption', 'recovery', 'key', 'add', self.data)
        key = added['Recovery key'].encode()
        must(self._opens(key), 'the recovery key does not open it')
        self._operator('encryption', 'recovery', 'key', 'remove', self.data)
        must(not self._opens(key), 'it opens it still')
        must(self._opens(self.way.key(self.data)), 'the key does not open it')
        self.header = self._header()

    def lost(self, row):
        serial = guest_console.serial(self.data)
        written = self.server.written()[serial]
        self.server.detach(self.data)
        before, node = self._header(), self._home()
        self._operator('encryption', 'header', 'save', self.data)
        node.run('dd if=/dev/zero of=%s bs=1M count=%d oflag=direct '
                 'conv=notrunc,fsync status=none' % (
                     volumes.backing_path(self.lab, self.data),
                     self.way.header_bytes // volumes.MIB))
        lost = self._header()
        self._given_back()
        must(self._header() == lost, 'something was written to it')
        self._operator('encryption', 'header', 'restore', self.data)
        must(self._header() == before, 'it is not as it was')
        self._attach_again()
        self._found({serial: written})

    def _opens(self, key):
        return volumes.opens(self._home(), volumes.backing_path(
            self.lab, self.data), key)

    def _operator(self, *words):
        """Run an operator's command on the volume's home; its output."""
        done = self._home().operator(*words, '--format', 'json')
        must(not done.returncode, '%s: %s%s' % (
            ' '.join(words), done.stdout[-400:], done.stderr[-400:]))
        return json.loads(done.stdout)
