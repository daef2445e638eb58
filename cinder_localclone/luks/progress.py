# SPDX-License-Identifier: Apache-2.0
"""How far a re-encryption is, by ``cryptsetup --progress-json``.

One JSON object a line, whose numbers are strings (cryptsetup 2.5 and later).
It is for people to look at: what is done for good the header says.
"""

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Progress:
    """The last that was said.

    :param done: bytes, before this run, too
    :param total: bytes
    :param rate: bytes a second, of this run
    :param seconds_left: at this rate
    """

    done: int
    total: int
    rate: int
    seconds_left: float

    @property
    def percent(self) -> float:
        """How much is done."""
        return 100 * self.done / self.total if self.total else 100.0


def last(text: str) -> Progress | None:
    """The last line of it that is complete; None if there is none.

    What else is said is left out: cryptsetup also prints words, and its last
    line may be half written.
    """
    for line in reversed(text.splitlines()):
        progress = _parse(line)
        if progress:
            return progress
    return None


def _parse(line: str) -> Progress | None:
    try:
        said = json.loads(line)
        return Progress(
            done=int(said['device_bytes']), total=int(said['device_size']),
            rate=int(said['speed']), seconds_left=int(said['eta_ms']) / 1000)
    except (KeyError, TypeError, ValueError):
        return None
