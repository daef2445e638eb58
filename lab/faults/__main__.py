# SPDX-License-Identifier: Apache-2.0
"""``make faults``: run the matrix and show it.

The exit code is not zero if a cell fails or was not reached.
"""

import argparse
import os
import re
import signal
import sys
import time

from lab.core import process
from lab.core import source
from lab.faults import environment as environments
from lab.faults import matrix as matrices
from lab.faults import plan
from lab.faults import results as result
from lab.faults import thrasher
from lab.faults import work as works
from lab import lab as labs


#: Cells that share a fault.
WIDTH = 16
#: More labs than that were never tried.
MOST_LABS = 4
#: Memory that a lab may take, GiB.
LAB_GIB = 4


def parser():
    """The parser of the command line."""
    top = argparse.ArgumentParser(
        prog='python3 -m lab.faults', description='Runs operations on volumes '
        'with a fault at each of their steps, on real kernels, and checks '
        'what the driver promises.')
    top.add_argument('--name', default='faults', help='of the lab')
    top.add_argument('--list', action='store_true',
                     help='show the cells, run none')
    top.add_argument('--only', metavar='REGEX', default='',
                     help='cells like "move / source commit / cut both"')
    top.add_argument('--resume', metavar='FILE', help='keep steps and '
                     'verdicts here (JSON); what holds is not run again')
    top.add_argument('--labs', type=int, default=room_for(), help='so many '
                     'labs side by side (default here %(default)s)')
    top.add_argument('--width', type=int, default=WIDTH, help='how many '
                     'cells share a fault (default %(default)s)')
    top.add_argument('--stop-after', type=float, metavar='MINUTES',
                     help='begin no more cells then; --resume goes on')
    top.add_argument('--seed', type=int, help='run the random thrasher')
    top.add_argument('--minutes', type=float,
                     help='how long it goes on (default 20)')
    top.add_argument('--keep', action='store_true',
                     help='leave the lab up afterwards')
    return top


def room_for():
    """So many labs keep this machine busy: each waits half of the time."""
    memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
    return max(1, min(MOST_LABS, len(os.sched_getaffinity(0)) + 1,
                      memory // (LAB_GIB << 30)))


def main(argv=None):
    """Run or show what is asked for; the exit code."""
    options = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    results = result.Results(options.resume)
    if options.list and results.steps:
        return show(results, options)
    options.thrash = options.seed is not None or bool(options.minutes)
    names = [options.name + ('-%d' % number if number > 1 else '')
             for number in range(1, 2 if options.thrash else options.labs + 1)]

    def environment(name):
        mark = name + ': ' if len(names) > 1 else ''

        def say(text):
            print('%7.1f s  %s%s' % (time.monotonic() - began, mark, text),
                  flush=True)
        return environments.Environment(labs.Lab(name), say)
    try:
        return run([environment(name) for name in names], results, options)
    except process.LabError as exc:
        print('faults: %s' % exc, file=sys.stderr)
        return 1


def run(used, results, options):
    """Bring labs up, run in them what is asked for, take them down."""
    try:
        for each in used:
            each.lab.claim.take()
        process.in_parallel([each.up for each in used])
        if options.thrash:
            return thrasher.run(used[0], options.seed,
                                options.minutes or 20, used[0].say)
        lab = used[0].lab
        results.begin(commit=source.commit_of(lab.repo), labs=len(used),
                      kernel=lab.settings['kernel']['release'])
        matrix = matrices.Matrix(used, results)
        matrix.discover()
        if options.list:
            return show(results, options)
        matrix.run(works.Work([
            cell for cell in wanted(results, options)
            if not results.holds(cell)], options.width,
            options.stop_after and options.stop_after * 60))
        print(results.table())
        return exit_code(results)
    finally:
        for each in used:
            ours = each.lab.claim.holder == os.getpid()
            if ours and not (options.keep and each.lab.is_up):
                each.lab.down(keep_logs=True)


def exit_code(results):
    """0 if all holds: what was not reached proves nothing."""
    return int(bool(results.failed or results.unreached))


def wanted(results, options):
    """The cells that were asked for."""
    cells = [cell for cell in plan.all_cells(results.steps)
             if re.search(options.only, str(cell))]
    if not cells:
        raise process.LabError('no cell matches "%s"' % options.only)
    return cells


def show(results, options):
    """Print the cells that were asked for."""
    for cell in wanted(results, options):
        print(cell)
    return 0


if __name__ == '__main__':
    process.end_with(main)
