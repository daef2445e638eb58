# SPDX-License-Identifier: Apache-2.0
"""``make faults``: run the matrix, show it, exit non-zero if a cell fails."""

import argparse
import os
import re
import sys
import time

from lab.core import process
from lab.faults import environment as environments
from lab.faults import matrix as matrices
from lab.faults import thrasher
from lab import lab as labs


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
    top.add_argument('--width', type=int, default=8, help='how many cells '
                     'share a fault (default 8)')
    top.add_argument('--seed', type=int, help='run the random thrasher')
    top.add_argument('--minutes', type=float,
                     help='how long it goes on (default 20)')
    top.add_argument('--keep', action='store_true',
                     help='leave the lab up afterwards')
    return top


def main(argv=None):
    """Run or show what is asked for; the exit code."""
    options = parser().parse_args(argv)
    began = time.monotonic()

    def say(text):
        print('%7.1f s  %s' % (time.monotonic() - began, text), flush=True)
    lab = labs.Lab(options.name)
    environment = environments.Environment(lab, say)
    matrix = matrices.Matrix(environment, options.resume, say)
    try:
        if options.list and matrix.steps:
            return show(matrix, options)
        lab.claim.take()
        environment.up()
        matrix.empty_pool()
        if options.seed is not None or options.minutes:
            return thrasher.run(environment, options.seed,
                                options.minutes or 20, say)
        matrix.discover()
        if options.list:
            return show(matrix, options)
        matrix.run(wanted(matrix, options), options.width)
        print(matrix.table())
        return int(any(not each.ok for each in matrix.verdicts.values()))
    except process.LabError as exc:
        print('faults: %s' % exc, file=sys.stderr)
        return 1
    finally:
        ours = lab.claim.holder == os.getpid()
        if ours and lab.is_up and not options.keep:
            lab.down(keep_logs=True)


def wanted(matrix, options):
    """The cells that were asked for."""
    cells = [cell for cell in matrices.all_cells(matrix.steps)
             if re.search(options.only, str(cell))]
    if not cells:
        raise process.LabError('no cell matches "%s"' % options.only)
    return cells


def show(matrix, options):
    """Print the cells that were asked for."""
    for cell in wanted(matrix, options):
        print(cell)
    return 0


if __name__ == '__main__':
    sys.exit(main())
