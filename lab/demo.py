# SPDX-License-Identifier: Apache-2.0
"""The demo: a volume with real data follows its instance, and back."""

import argparse
import os
import sys
import time

import lab as labs
from lab import instance as instances
from lab import look
from lab import process


class Report:
    """Steps with their times, checks with their verdicts."""

    def __init__(self, console, title='A volume follows its instance'):
        self.console = console
        self.title = title
        self.rows = []

    def step(self, what, seconds, detail=''):
        self.rows.append((what, '%.1f s' % seconds, detail, None))
        self.console.print('[bold]%s[/] %.1f s %s' % (what, seconds, detail))

    def check(self, what, good, detail=''):
        self.rows.append((what, '', str(detail), bool(good)))
        self.console.print('  %s %s %s' % (
            '[green]ok[/]' if good else '[red]FAILED[/]', what, detail))

    @property
    def failed(self):
        return sum(row[3] is False for row in self.rows)

    def table(self):
        from rich.table import Table
        table = Table(title=self.title)
        for column in ('step or check', 'time', 'detail', ''):
            table.add_column(column)
        for what, seconds, detail, good in self.rows:
            table.add_row(what, seconds, detail, {
                None: '', True: '[green]ok[/]', False: '[red]FAILED[/]',
            }[good])
        self.console.print(table)


class Demo:
    def __init__(self, lab, size, report):
        self.lab = lab
        self.size = size
        self.report = report
        self.n1, self.n2 = lab.nodes['node1'], lab.nodes['node2']

    def run(self):
        began = time.monotonic()
        volume = instances.create_volume(
            self.lab.cinder('demo'), self.size, node='node1')
        self.report.step('volume of %d GiB created' % self.size,
                         time.monotonic() - began, 'home: node1')
        instance = instances.Instance(self.lab)
        for node in (self.n1, self.n2):
            instance.connector(node)
        attached = instance.attach(volume, self.n1)
        self.report.step('attached on node1', attached.seconds,
                         'local, ' + attached.path)
        sums = self.fill(attached)
        attached.detach()
        attached = self.follow(instance, volume, self.n1, self.n2, sums)
        attached.detach()
        attached = self.follow(instance, volume, self.n2, self.n1, sums)
        attached.detach()
        self.lab.cinder('demo').delete(
            '/volumes/' + volume).raise_for_status()
        process.wait_for('the volume to go', lambda: not any(
            look.volume_lvs(node) for node in (self.n1, self.n2)), 60)
        self.report.check('deleted, no LV left on either node', True)

    def fill(self, attached):
        """A file system with files on it; their checksums."""
        began = time.monotonic()
        out = attached.node.run(
            'set -e; mkfs.ext4 -q -E lazy_itable_init=1,nodiscard %s 128M; '
            'mkdir -p /tmp/m; mount %s /tmp/m; '
            'for i in 1 2 3; do head -c 20M /dev/urandom >/tmp/m/f$i; done; '
            'sync; cd /tmp/m; sha256sum f1 f2 f3; cd /; umount /tmp/m'
            % (attached.path, attached.path), timeout=180).stdout
        self.report.step('file system with 3 files, 60 MiB',
                         time.monotonic() - began)
        return out

    def read_back(self, node, path):
        return node.run(
            'set -e; mkdir -p /tmp/m; mount %s /tmp/m; cd /tmp/m; '
            'sha256sum f1 f2 f3; cd /; umount /tmp/m' % path,
            timeout=180).stdout

    def follow(self, instance, volume, old, new, sums):
        """Attach on another node; watch the copy; prove the data."""
        attached = instance.attach(volume, new)
        self.report.step('attached on %s' % new.name, attached.seconds,
                         'usable while it is copied')
        began = time.monotonic()
        good = self.read_back(new, attached.path) == sums
        progress = look.clone_progress(new)
        self.report.check(
            'files right on %s before all is copied' % new.name,
            good and progress and progress[0] < progress[1],
            '%d of %d regions local' % progress[:2] if progress else
            'copied already: use a larger SIZE')
        writer = attached.start_writing()
        self.watch(new)
        look.wait_moved(self.lab, volume)
        self.report.step('copied and cut over', time.monotonic() - began,
                         'under synchronous writes')
        time.sleep(2)
        self.report.check('the guest still writes after the cut-over',
                          writer.running)
        attached.stop_writing(writer)
        verdict = attached.verify(writer.stdout)
        self.report.check('every acknowledged write is there',
                          verdict.endswith(' 0 bad'), verdict)
        self.report.check('files right on %s, all local' % new.name,
                          self.read_back(new, attached.path) == sums)
        rest = (look.leftovers(old, volume)
                + look.leftovers(new, None) + look.volume_lvs(old)
                + look.shadows(self.lab))
        self.report.check('source gone on %s: LV, export, session, shadow'
                          % old.name, not rest, rest or '')
        self.report.check('home is %s' % new.name, instances.home(
            self.lab, volume) == new.name)
        return attached

    def watch(self, node):
        """A progress bar until the clone is gone."""
        from rich import progress as bars
        with bars.Progress(
                bars.TextColumn('  copying to ' + node.name),
                bars.BarColumn(), bars.TaskProgressColumn(),
                bars.TransferSpeedColumn(), bars.TimeRemainingColumn(),
                console=self.report.console) as bar:
            task = bar.add_task('copy', total=None)
            deadline = time.monotonic() + 120 + 60 * self.size
            while time.monotonic() < deadline:
                found = look.clone_progress(node)
                if found is None:
                    return
                hydrated, regions, size = found
                bar.update(task, completed=hydrated * size,
                           total=regions * size)
                time.sleep(1)
        raise process.LabError('the copy did not end; see %s' % (
            self.lab.logs))


def main():
    parser = argparse.ArgumentParser(
        prog='lab/demo', description='Bring up two real nodes, move a '
        'volume with data from one to the other and back, prove every step.')
    parser.add_argument('--name', default='demo', help='name of the lab')
    parser.add_argument('--size', type=int, default=2, metavar='GIB',
                        help='size of the volume (1 to 16, default 2)')
    parser.add_argument('--keep', action='store_true',
                        help='leave the lab up afterwards')
    options = parser.parse_args()
    if not 1 <= options.size <= 16:
        parser.error('--size must be 1 to 16')
    lab = labs.Lab(options.name)
    try:
        lab.install(progress=lambda text: print(text, flush=True))
        if sys.prefix != str(lab.venv):  # rich and the like are there
            os.execv(lab.python, [str(lab.python), '-m', 'lab.demo',
                                  *sys.argv[1:]])
        return demo(lab, options)
    except process.LabError as exc:
        print('demo: %s' % exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130


def demo(lab, options):
    from rich.console import Console
    report = Report(Console(width=110))
    began = time.monotonic()
    if lab.directory.exists():
        lab.down()
    lab.up(progress=lambda text: print(text, flush=True))
    report.step('lab up', time.monotonic() - began, 'two nodes, OpenStack')
    try:
        Demo(lab, options.size, report).run()
    except Exception as exc:
        report.check('the demo ran to its end', False, str(exc)[:500])
    finally:
        if options.keep:
            print('the lab is up: lab/lab --name %s status' % lab.name)
        else:
            lab.down(keep_logs=bool(report.failed))
    report.step('all of it', time.monotonic() - began)
    report.table()
    if report.failed:
        print('%d checks FAILED; logs: %s' % (report.failed, lab.logs))
    return int(bool(report.failed))


if __name__ == '__main__':
    sys.exit(main())
