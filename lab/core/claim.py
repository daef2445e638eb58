# SPDX-License-Identifier: Apache-2.0
"""One process at a time uses a lab; no two take it from each other."""

import fcntl
import os
import pathlib

from lab.core import process


class Claim:
    """Held by one process, by :func:`fcntl.flock`: it ends with that.

    :param path: of a file that names the process
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._held = None

    def take(self) -> None:
        """Hold it; once more is fine.

        :raises LabError: names the living process that holds it
        """
        while self._held is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = open(self.path, 'a+')
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Who held it may just have removed the file.
                if os.fstat(file.fileno()).st_nlink:
                    file.truncate(0)
                    file.write('%d (%s)' % (os.getpid(), _words()))
                    file.flush()
                    self._held = file
            except BlockingIOError:
                raise process.LabError(
                    'lab "%s" is in use by process %s: end that first, or '
                    'choose another name (--name, or LAB= of make)' % (
                        self.path.stem, self.path.read_text()))
            finally:
                if self._held is not file:
                    file.close()

    def drop(self) -> None:
        """Let go; nothing of it stays."""
        if self._held:
            self.path.unlink(missing_ok=True)
            self._held.close()
            self._held = None

    @property
    def holder(self):
        """The id of the living process that holds it; None: nobody."""
        try:
            with open(self.path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(self.path.read_text().partition(' ')[0])
        except FileNotFoundError:
            pass
        return None


def _words():
    words = pathlib.Path('/proc/self/cmdline').read_bytes().split(b'\0')
    return b' '.join(words).decode(errors='replace').strip()[:200]
