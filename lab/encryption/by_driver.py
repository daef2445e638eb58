# SPDX-License-Identifier: Apache-2.0
"""What only volumes have that the driver encrypts: keys and headers are cared
for.
"""

import json
import time

from lab.core import process
from lab.encryption import chapter
from lab.keys import volumes
from lab.scenarios.requests import must

CIPHER = 'serpent-xts-plain64'
#: Seconds for a re-encryption to end once all is at its new home.
ANEW = 400


class Chapter(chapter.Chapter):
    """These steps come before the last ones, which look for keys."""

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
        self._operator('encryption', 'rotate', self.data)
        new = self.way.key(self.data)
        must(new != old and self._opens(new), 'the new key does not open it')
        must(not self._opens(old), 'the old key opens it')
        self._writes()
        self.header = self._header()
        row.detail = 'the guest went on'

    def anew(self, row):
        home = self._home()
        other = self.n2 if home is self.n1 else self.n1
        must(len(self._ciphers()) == 1, 'it has begun already')
        began = time.monotonic()
        # Parts so small that it lasts until all is done that is done beside
        # it.
        self._operator('encryption', 'reencrypt', self.data, '--cipher',
                       CIPHER, '--zone', '4')
        process.wait_for('it to begin', lambda: len(self._ciphers()) > 1, 60)
        self._writes()
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
        # While it is copied, its LV has not yet got the header.
        return volumes.ciphers(self._home(),
                               '/dev/mapper/localclone-' + self.data)

    def recovery(self, row):
        added, = self._operator('encryption', 'add-recovery-key', self.data)
        key = added['Recovery key'].encode()
        must(self._opens(key), 'the recovery key does not open it')
        self._operator('encryption', 'remove-recovery-key', self.data)
        must(not self._opens(key), 'it opens it still')
        must(self._opens(self.way.key(self.data)), 'the key does not open it')
        self.header = self._header()

    def lost(self, row):
        serial = self.data[:20]
        written = self._written()[serial]
        self.server.detach(self.data)
        before, node = self._header(), self._home()
        self._operator('encryption', 'header-backup', self.data)
        node.run('dd if=/dev/zero of=%s bs=1M count=%d oflag=direct '
                 'conv=notrunc,fsync status=none' % (
                     volumes.backing_path(self.lab, self.data),
                     self.way.header_bytes // volumes.MIB))
        lost = self._header()
        self._given_back()
        must(self._header() == lost, 'something was written to it')
        self._operator('encryption', 'header-restore', self.data)
        must(self._header() == before, 'it is not as it was')
        self._attach_again()
        self._found({serial: written})

    def _opens(self, key):
        return volumes.opens(self._home(), volumes.backing_path(
            self.lab, self.data), key)

    def _operator(self, *words):
        """What the command prints, on the volume's home."""
        done = self._home().operator(*words, '--format', 'json')
        must(not done.returncode, '%s: %s%s' % (
            ' '.join(words), done.stdout[-400:], done.stderr[-400:]))
        return json.loads(done.stdout)
