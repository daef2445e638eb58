# SPDX-License-Identifier: Apache-2.0
"""Which tests have passed: a file that a run goes on with."""

import json
import pathlib

from lab.tempest import results


class Kept:
    """The tests that need not run again.

    :param path: of the file; None: nothing is kept
    """

    def __init__(self, path):
        self._path = path and pathlib.Path(path)
        self._seconds = {}
        if self._path and self._path.exists():
            self._seconds = json.loads(self._path.read_text())

    def outcomes(self, names) -> list:
        """The outcomes of those of the tests that have passed."""
        return [results.Outcome(each, results.PASSED, self._seconds[each])
                for each in names if each in self._seconds]

    def keep(self, outcome) -> None:
        """Note what has just been told, if it passed."""
        if self._path and outcome.status == results.PASSED:
            self._seconds[outcome.name] = outcome.seconds
            self._path.write_text(json.dumps(self._seconds, indent=1))
