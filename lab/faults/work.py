# SPDX-License-Identifier: Apache-2.0
"""What is left to be run, for all labs; and how fast it goes."""

import threading
import time

from lab.faults import plan


class Work:
    """Batches, and once more the cells whose steps did not occur.

    :param wanted: cells
    :param width: of a batch
    :param seconds: after which no batch begins; None: all are run
    """

    def __init__(self, wanted, width, seconds=None):
        self.width = width
        self.seconds = seconds
        self.total = len(wanted)
        self.done = 0
        self._left = plan.batches(wanted, width)
        self._again = []
        self._tried = set()
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def take(self):
        """The next batch; None: there is none, or no time for it."""
        with self._lock:
            if self.seconds is not None and (
                    time.monotonic() - self._began >= self.seconds):
                return None
            if not self._left:
                self._left = plan.batches(self._again, self.width)
                self._again = []
            return self._left.pop(0) if self._left else None

    def note(self, verdicts):
        """Note what came of a batch; a line that tells how it goes."""
        with self._lock:
            for verdict in verdicts:
                if verdict.reached or verdict.cell in self._tried:
                    self.done += 1
                else:
                    self._tried.add(verdict.cell)
                    self._again.append(verdict.cell)
            return self._line(time.monotonic() - self._began)

    def _line(self, seconds):
        rate = self.done * 60 / seconds if seconds else 0
        left = self.total - self.done
        return '%d of %d cells, %.1f a minute%s' % (
            self.done, self.total, rate,
            ', about %.0f minutes left' % (left / rate)
            if rate and left else '')
