# SPDX-License-Identifier: Apache-2.0
"""A command that brings a lab up, acts in it and reports on that."""

import argparse
import os
import signal
import sys
import time

from lab.core import process
from lab.core import report as reports
from lab import lab as labs


def _size(text):
    if not 1 <= int(text) <= 16:
        raise argparse.ArgumentTypeError('must be 1 to 16')
    return int(text)


class Command:
    """One of them.

    :param name: of the command, for its errors
    :param module: that is run as it
    :param title: of the table
    :param words: that it begins with
    :param lab_name: what the lab is called unless asked otherwise
    :param parts: what the lab has besides (nova, keys), and its options
    """

    def __init__(self, name, module, title, description, lab_name,
                 words=(), **parts):
        self.name = name
        self.module = module
        self.words = words
        self.title = title
        self.parts = parts
        self.parser = argparse.ArgumentParser(
            prog=' '.join(('python3 -m', module, *words)),
            description=description)
        self.parser.add_argument('--name', default=lab_name,
                                 help='name of the lab')
        self.parser.add_argument('--keep', action='store_true',
                                 help='leave the lab up afterwards')
        self.parser.add_argument(
            '--use', action='store_true', help='use the lab of that name as '
            'it is, and leave it up')

    def add_size(self, of_what):
        """The command takes ``--size``."""
        self.parser.add_argument(
            '--size', type=_size, default=2, metavar='GIB',
            help='size of the %s (1 to 16, default 2)' % of_what)

    def main(self, act):
        """Run it.

        :param act: ``act(lab, options, report)``: steps and checks
        :returns: the command's exit code
        """
        options = self.parser.parse_args()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        lab = labs.Lab(options.name)
        lab.settings.update(self.parts)
        try:
            lab.install(progress=lambda text: print(text, flush=True))
            if sys.prefix != str(lab.venv):  # rich and the like are there
                os.execv(lab.python, [str(lab.python), '-m', self.module,
                                      *self.words, *sys.argv[1:]])
            return self._run(lab, options, act)
        except process.LabError as exc:
            print('%s: %s' % (self.name, exc), file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print('interrupted', file=sys.stderr)
            return 130

    def _run(self, lab, options, act):
        from rich.console import Console
        report = reports.Report(Console(width=reports.WIDTH), self.title)
        began = time.monotonic()
        if options.use:
            lab.claim.take()
        else:
            lab.down()
            lab.up(progress=lambda text: print(text, flush=True),
                   **self.parts)
            report.step('lab up', time.monotonic() - began,
                        'two nodes, OpenStack'
                        + ' with Nova' * bool(self.parts.get('nova'))
                        + ' and Barbican' * bool(self.parts.get('keys')))
        try:
            act(lab, options, report)
        except Exception as exc:
            report.check('all of it ran to its end', False, str(exc)[:500])
        finally:
            if options.keep or options.use:
                print('the lab is up: python3 -m lab --name %s status'
                      % lab.name)
            else:
                lab.down(keep_logs=bool(report.failed))
        report.step('all of it', time.monotonic() - began)
        report.show()
        if report.failed:
            print('%d checks FAILED; logs: %s' % (report.failed, lab.logs))
        return int(bool(report.failed))
