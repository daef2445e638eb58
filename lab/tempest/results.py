# SPDX-License-Identifier: Apache-2.0
"""What tests say: outcomes, failures by their causes, a table. Pure."""

import collections
import dataclasses
import re

PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped'
#: What is run, each a row of the table.
SUITES = ('tempest.api.volume', 'cinder_tempest_plugin',
          'tempest.api.compute.admin.test_live_migration',
          'tempest.api.compute.volumes')
#: Of a cause: no more is needed to tell one from another.
LENGTH = 400
ENDED = 'its process ended before it did'
_STATUSES = {'success': PASSED, 'xfail': PASSED, 'skip': SKIPPED}
_OF_CLASS = re.compile(r'(setUp|tearDown)(?:Class|Module) \((.*)\)$')
_VARYING = (
    # Before ids: some names end in one.
    (re.compile(r'\btempest-[\w-]+'), 'NAME'),
    (re.compile(r'\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b'), 'ID'),
    (re.compile(r'\b\d+(\.\d+)? s\b'), 'N s'),
    (re.compile(r'\b\d{9,}\b'), 'TIME'))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one test.

    :ivar cause: why it failed or was skipped
    """

    name: str
    status: str
    seconds: float = 0
    cause: str = ''


def name(test_id) -> str:
    """Of a test, without its idempotent id and attributes."""
    return test_id.partition('[')[0]


def suite(test) -> str | None:
    """The suite that a test, by its name, belongs to."""
    return next((each for each in SUITES
                 if (test + '.').startswith(each + '.')), None)


def outcome(test_id, status, seconds, details) -> Outcome:
    """Of what the stream of results has of a test.

    :param status: as subunit says
    :param details: texts by their names
    """
    status = _STATUSES.get(status, FAILED)
    return Outcome(name(test_id), status, seconds,
                   '' if status == PASSED
                   else details.get('reason', '').strip()
                   if status == SKIPPED
                   else cause(next((text for title, text in details.items()
                                    if title.startswith('traceback')), '')))


def cause(traceback) -> str:
    """The exception of the first of several tracebacks, without what varies.

    >>> cause('Traceback (most recent call last):\\n  File "x"\\nE: no 3')
    'E: no 3'
    """
    lines = iter(traceback.splitlines())
    for line in lines:
        if line.startswith('Traceback'):
            break
    said = []
    for line in lines:
        if said and (line.startswith(('Traceback', '  File "'))
                     or not line.strip()):
            break
        if said or not line.startswith(' '):
            if line.strip():
                said.append(line.strip())
    return without_ids(' '.join(said) or ENDED)


def without_ids(text) -> str:
    """What is left when what varies from run to run is named, and cut."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text if len(text) <= LENGTH else text[:LENGTH] + '...'


def of_all(tests, told) -> list:
    """One outcome for each test that was to run.

    What befell a class befell each of its tests that has none of its own. A
    class that could not be cleaned up is a failure beside them.

    :param tests: their names
    :param told: outcomes, some of classes
    """
    own, classes, more = {}, {}, []
    for each in told:
        found = _OF_CLASS.match(each.name)
        if not found:
            own[each.name] = each
        elif found.group(1) == 'setUp':
            classes[found.group(2)] = each
        elif each.status == FAILED:
            more.append(dataclasses.replace(
                each, name=found.group(2) + '.tearDownClass'))
    lost = Outcome('', FAILED, 0, ENDED)
    return [own.get(test) or dataclasses.replace(
        classes.get(test.rpartition('.')[0], lost), name=test, seconds=0)
        for test in tests] + more


def by_cause(outcomes, status) -> list:
    """[(cause, names)], the most frequent first."""
    found = collections.defaultdict(list)
    for each in outcomes:
        if each.status == status:
            found[each.cause].append(each.name)
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def rows(outcomes) -> list:
    """(suite, tests, passed, failed, skipped) of each, and of all."""
    counts = {each: collections.Counter() for each in SUITES}
    for each in outcomes:
        counts[suite(each.name)][each.status] += 1
    counts['all'] = sum(counts.values(), collections.Counter())
    return [(title, sum(counter.values()), *(
        counter[status] for status in (PASSED, FAILED, SKIPPED)))
        for title, counter in counts.items() if counter]
