# SPDX-License-Identifier: Apache-2.0
"""A process that runs classes of functional tests as it is told.

It reads a line of JSON for each class: the kind of lab and the ids of tests.
It answers each with a line when the tests have ended. What they report goes
to another pipe, as subunit.
"""

import json
import os
import sys
import unittest

import subunit
from subunit import test_results
import testtools

#: The exit code of a process that was interrupted.
INTERRUPTED = 130


def main(control, report):
    """Run what is asked for until there is no more.

    :param control: file descriptor of the socket to who asks
    :param report: of the pipe for subunit
    """
    from tests.functional import base
    with os.fdopen(int(report), 'wb', 0) as stream, os.fdopen(
            int(control), 'r+b', 0) as asked:
        result = test_results.AutoTimingTestResultDecorator(
            testtools.ExtendedToStreamDecorator(
                subunit.StreamResultToBytes(stream)))
        result.startTestRun()
        lab = None
        for line in asked:
            job = json.loads(line)
            if lab not in (None, job['lab']):
                base.end_lab(lab)
            lab = job['lab']
            unittest.TestSuite(
                unittest.defaultTestLoader.loadTestsFromName(name)
                for name in job['tests']).run(result)
            base.forget_failed_labs()
            asked.write(b'done\n')
        result.stopTestRun()


if __name__ == '__main__':
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:  # what is registered takes its labs down
        sys.exit(INTERRUPTED)
