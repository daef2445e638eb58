# SPDX-License-Identifier: Apache-2.0
"""All tests. Discovery from here finds the tests without root and lab.

``unit`` mirrors the package, ``scenarios`` has episodes of several of its
modules, ``lab`` what tests the lab, the documentation and the installers;
``world`` simulates nodes, ``helpers`` is what tests share.
"""

import pathlib

HERE = pathlib.Path(__file__).resolve().parent
#: Packages of tests for which neither root nor a lab is needed.
UNIT = ('unit', 'scenarios', 'lab')


def modules() -> list[str]:
    """Return the names of all modules of these tests."""
    return ['.'.join(path.relative_to(HERE.parent).with_suffix('').parts)
            for package in UNIT
            for path in sorted((HERE / package).rglob('test_*.py'))]


def load_tests(loader, tests, pattern):
    """Have discovery leave the functional tests out; see :mod:`unittest`."""
    for package in UNIT:
        tests.addTests(loader.discover(
            str(HERE / package), pattern or 'test*.py', str(HERE.parent)))
    return tests
