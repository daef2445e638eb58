# SPDX-License-Identifier: Apache-2.0
"""``make operations``: every operation in every situation, as a table."""

import argparse
import os
import signal
import sys
import threading
import time

from lab.core import process
from lab import lab as labs
from lab.operations import environment as environments
from lab.operations import results as result
from lab.operations import run
from lab.operations import table as tables


def parser():
    """The parser of the command line."""
    top = argparse.ArgumentParser(
        prog='python3 -m lab.operations', description='Tries every operation '
        'on volumes in every situation, on real kernels, and compares what '
        'comes of it with lab/operations/table.txt.')
    top.add_argument('--name', default='operations', help='of the lab')
    top.add_argument('--list', action='store_true',
                     help='show the cells, run none')
    top.add_argument('--only', metavar='REGEX', default='',
                     help='cells like "clone / hydrating"')
    top.add_argument('--resume', metavar='FILE', help='keep verdicts here '
                     '(JSON); what holds is not run again')
    top.add_argument('--keep', action='store_true',
                     help='leave the lab up afterwards')
    return top


def main(argv=None):
    """Run or show what is asked for; the exit code."""
    options = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    table = tables.read()
    results = result.Results(table, options.resume)
    cells = table.cells(options.only)
    if not cells:
        print('operations: no cell is like "%s"' % options.only,
              file=sys.stderr)
        return 1
    if options.list:
        for cell in cells:
            print('%-60s %s' % (cell, table.expected[cell].verdict))
        return 0
    began = time.monotonic()

    def say(text):
        print('%7.1f s  %s' % (time.monotonic() - began, text), flush=True)
    environment = environments.Environment(labs.Lab(options.name), say)
    try:
        return act(environment, table, results, cells, options)
    except process.LabError as exc:
        print('operations: %s' % exc, file=sys.stderr)
        return 1


def act(environment, table, results, cells, options):
    """Bring the lab up, run the cells, show, take it down; the exit code."""
    lab = environment.lab
    fine = False
    try:
        lab.claim.take()
        environment.up()
        fine = in_background(lambda: run.run(environment, table, results,
                                             cells))
    finally:
        print(results.text(cells), flush=True)
        if lab.claim.holder == os.getpid() and not (
                options.keep and lab.is_up):
            lab.down(keep_logs=not fine)
            if not fine:
                print('logs: %s' % lab.logs)
    return int(not fine)


def in_background(call):
    """The result of a call that nobody waits for who interrupts."""
    ended = []

    def work():
        try:
            ended.append((call(), None))
        except BaseException as exc:
            ended.append((None, exc))
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    value, error = ended[0]
    if error:
        raise error
    return value


if __name__ == '__main__':
    process.end_with(main)
