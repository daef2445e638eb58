# SPDX-License-Identifier: Apache-2.0
"""What runs in front of somebody: a lab, steps and checks, a table."""

import argparse
import os
import signal
import sys
import time

import lab as labs
from lab.core import look
from lab.core import process


class Report:
    """Steps with their times, checks with their verdicts."""

    def __init__(self, console, title):
        self.console = console
        self.title = title
        self.rows = []

    def step(self, what, seconds, detail=''):
        """Something was done, in so many seconds."""
        self.rows.append((what, '%.1f s' % seconds, detail, None))
        self.console.print('[bold]%s[/] %.1f s %s' % (what, seconds, detail))

    def check(self, what, good, detail=''):
        """Something holds, or not."""
        self.rows.append((what, '', str(detail), bool(good)))
        self.console.print('  %s %s %s' % (
            '[green]ok[/]' if good else '[red]FAILED[/]', what, detail))

    def copying_to(self, node):
        """Progress bars of the copies to a node (rich.progress)."""
        from rich import progress as bars
        return bars.Progress(
            bars.TextColumn('  copying to ' + node.name),
            bars.BarColumn(), bars.TaskProgressColumn(),
            bars.TransferSpeedColumn(), bars.TimeRemainingColumn(),
            console=self.console)

    def watch_copies(self, node, seconds):
        """Progress until nothing is copied to a node any more.

        :returns: how fast that was, in words
        """
        began, copied = time.monotonic(), {}
        with self.copying_to(node) as bar:
            tasks = {}
            while time.monotonic() - began < seconds:
                clones = look.clones(node)
                for name, (hydrated, regions, size) in clones.items():
                    if name not in tasks:
                        tasks[name] = bar.add_task(name)
                        copied[name] = [hydrated * size, 0]
                    copied[name][1] = hydrated * size
                    bar.update(tasks[name], completed=hydrated * size,
                               total=regions * size)
                if not clones:
                    break
                last = time.monotonic()
                time.sleep(1)
        if not copied:
            return 'copied before it could be watched'
        moved = sum(end - start for start, end in copied.values())
        return '%.0f MiB/s' % (moved / 2**20 / max(1, last - began))

    @property
    def failed(self):
        """How many checks failed."""
        return sum(row[3] is False for row in self.rows)

    def table(self):
        """Print all of it once more, as a table."""
        from rich.table import Table
        table = Table(title=self.title)
        for column in ('step or check', 'time', 'detail', ''):
            table.add_column(column)
        for what, seconds, detail, good in self.rows:
            table.add_row(what, seconds, detail, {
                None: '', True: '[green]ok[/]', False: '[red]FAILED[/]',
            }[good])
        self.console.print(table)


def _size(text):
    if not 1 <= int(text) <= 16:
        raise argparse.ArgumentTypeError('must be 1 to 16')
    return int(text)


class Show:
    """A command that brings a lab up, acts in it and shows how it went.

    :param name: of the command below ``lab/``
    :param module: that is run as it
    :param title: of the table
    :param lab_name: what the lab is called unless asked otherwise
    :param report: what the steps and checks go to
    :param parts: what the lab has besides (nova, keys), and its options
    """

    def __init__(self, name, module, title, description, lab_name,
                 report=Report, **parts):
        self.name = name
        self.module = module
        self.title = title
        self.report = report
        self.parts = parts
        self.parser = argparse.ArgumentParser(prog='python3 -m ' + module,
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
                                      *sys.argv[1:]])
            return self._run(lab, options, act)
        except process.LabError as exc:
            print('%s: %s' % (self.name, exc), file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print('interrupted', file=sys.stderr)
            return 130

    def _run(self, lab, options, act):
        from rich.console import Console
        report = self.report(Console(width=120), self.title)
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
        report.table()
        if report.failed:
            print('%d checks FAILED; logs: %s' % (report.failed, lab.logs))
        return int(bool(report.failed))
