# SPDX-License-Identifier: Apache-2.0
"""What the volume services raised while a test ran. Pure, but for reading.

Cinder's API only says that a volume is in error.
"""

import re
import time

from lab.tempest import results

#: What is told of one test.
MOST = 3
#: Of a service that ends its work just after the test.
LATER = 1
_LINE = re.compile(r'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\S* \d+ ERROR \S+ (.*)')
_FRAME = re.compile(r'  File ".*", line \d+, in (\w+)')
_EXCEPTION = re.compile(r'[A-Za-z_][\w.]*(: .*)?$')


def raised(log, began, ended) -> list:
    """Exceptions, each once, with the functions that raised them.

    :param began: as logs have times; they sort like texts
    """
    found, function = [], None
    for line in log.splitlines():
        match = _LINE.match(line)
        if not match or not began <= match.group(1) <= ended:
            continue
        text = match.group(2)
        frame = _FRAME.match(text)
        if frame:
            function = frame.group(1)
        elif function and _EXCEPTION.match(text):
            said = '%s: %s' % (function, results.without_ids(text))
            if said not in found:
                found.append(said)
            function = None
    return found


def of_nodes(directory, ended, seconds) -> list:
    """What the volume services of all nodes raised, with their names.

    :param directory: of the logs
    :param ended: when the test ended, in seconds since the epoch
    :param seconds: that it took
    """
    first, last = (time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(when))
                   for when in (ended - seconds, ended + LATER))
    return ['%s: %s' % (path.name.removesuffix('.log'), each)
            for path in sorted(directory.glob('node*.cinder-*.log'))
            for each in raised(path.read_text(errors='replace'), first,
                               last)[:MOST]]
