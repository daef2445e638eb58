# SPDX-License-Identifier: Apache-2.0
"""Tests say what they need of the machine; without it they are skipped."""

import os
import shutil


def programs(case, *names) -> None:
    """Skip a test unless programs are in PATH.

    :raises unittest.SkipTest: with those that are not
    """
    lacking = [name for name in names if not shutil.which(name)]
    if lacking:
        case.skipTest('needs %s in PATH' % ' and '.join(lacking))


def root(case, why: str) -> None:
    """Skip a test unless root runs it.

    :param why: completes "needs root: ..."
    :raises unittest.SkipTest: with the reason
    """
    if os.geteuid():
        case.skipTest('needs root: ' + why)
