# SPDX-License-Identifier: Apache-2.0
"""What a volume service does, and when: runs in its place in a node.

``python -m lab.bench.timeline FILE PROGRAM ...`` writes a line for all that
the driver waits for: a JSON list of begin, end (seconds, by the clock) and
what it was: a privileged call ('lvm.activate'), 'database', 'driver' for a
request to it as a whole.
"""

import dataclasses
import functools
import importlib
import json
import pkgutil
import sys
import time

#: Methods that answer Cinder's request; and another node's.
REQUESTS = {
    'driver.driver.LocalCloneDriver': ('initialize_connection',)}
OF_PEERS = ('prepare', 'holes')


def timed(note, what, function):
    """A function that notes how long it takes."""
    @functools.wraps(function)
    def noted(*args, **kwargs):
        began = time.time()
        try:
            return function(*args, **kwargs)
        finally:
            note(began, what)
    return noted


def install(note):
    """Have the driver in this process note what it waits for."""
    from sqlalchemy import engine
    from sqlalchemy import event
    package = importlib.import_module('cinder_localclone.storage.privsep')
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(
            '%s.%s' % (package.__name__, found.name))
        for name, function in list(vars(module).items()):
            if isinstance(function, functools.partial):  # privsep's doing
                setattr(module, name, timed(
                    note, '%s.%s' % (found.name, name), function))
    for where, names in REQUESTS.items():
        module, _dot, kind = where.rpartition('.')
        found = getattr(importlib.import_module(
            'cinder_localclone.' + module), kind)
        for name in names:
            setattr(found, name, timed(note, 'driver', getattr(found, name)))
    methods = importlib.import_module('cinder_localclone.core.rpc').METHODS
    for name in OF_PEERS:
        methods[name] = dataclasses.replace(methods[name], function=timed(
            note, 'driver', methods[name].function))

    def begin(_connection, _cursor, _text, _values, context, _many):
        context.began = time.time()

    def end(_connection, _cursor, _text, _values, context, _many):
        note(context.began, 'database')
    event.listen(engine.Engine, 'before_cursor_execute', begin)
    event.listen(engine.Engine, 'after_cursor_execute', end)


def shares(lines, began, ended, order):
    """How long each thing was what everybody waited for. Pure.

    :param lines: (begin, end, what) of all services
    :param order: of two things at once, the one that is here first counts
    :returns: {what: seconds}; None for what was none of them
    """
    lines = [(max(first, began), min(last, ended), what)
             for first, last, what in lines if what in order]
    moments = sorted({began, ended}.union(*(
        (first, last) for first, last, _what in lines if first < last)))
    found = dict.fromkeys([*order, None], 0)
    for first, last in zip(moments, moments[1:]):
        at_work = {what for since, until, what in lines
                   if since <= first and last <= until}
        found[next((what for what in order if what in at_work),
                   None)] += last - first
    return found


def main():
    path, program = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    # In this order, as in lab.faults.stepping.
    from cinder.cmd import volume
    from cinder import objects
    objects.register_all()

    def note(began, what):
        with open(path, 'a') as file:
            file.write(json.dumps([began, time.time(), what]) + '\n')
    install(note)
    sys.exit(volume.main())


if __name__ == '__main__':
    main()
