# SPDX-License-Identifier: Apache-2.0
"""skipped.yaml: the tests that cannot run in a lab, each with the reason."""

import collections
import pathlib
import re

PATH = pathlib.Path(__file__).with_suffix('.yaml')


def read(text) -> dict:
    """{regular expression: reason}, of what the file says.

    :raises ValueError: if an entry lacks its reason or its tests, or if one
        is there twice
    """
    import yaml
    reasons = {}
    for entry in yaml.safe_load(text) or ():
        if set(entry) != {'reason', 'tests'} or not all(entry.values()):
            raise ValueError('an entry has a reason and tests: %s' % entry)
        for pattern in entry['tests']:
            if pattern in reasons:
                raise ValueError('twice: %s' % pattern)
            reasons[pattern] = ' '.join(entry['reason'].split())
    return reasons


def reason(reasons, name) -> str | None:
    """Why a test cannot run; None if it can."""
    return next((reasons[pattern] for pattern in reasons
                 if re.match(pattern, name)), None)


def unknown(reasons, names) -> list:
    """What matches none of all tests: it is to be taken off the list."""
    return [pattern for pattern in reasons
            if not any(re.match(pattern, name) for name in names)]


def by_reason(reasons, names) -> dict:
    """The tests that cannot run: {reason: names}"""
    found = collections.defaultdict(list)
    for name in names:
        why = reason(reasons, name)
        if why:
            found[why].append(name)
    return dict(found)
