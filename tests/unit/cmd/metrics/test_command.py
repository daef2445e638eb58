# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads of a node."""

import argparse
import io
import json
import os
import pathlib
import socket
import stat
import subprocess
import sys
import types
from unittest import mock
import urllib.request

import ddt
import fixtures
from prometheus_client import parser
import testtools

from cinder_localclone.cmd import main
from cinder_localclone.cmd.metrics import command as metrics_command
from cinder_localclone.cmd.metrics import figures
from cinder_localclone.cmd.metrics import sources
from cinder_localclone.core import errors
from tests.helpers.inventory_rows import answers
from tests.helpers.inventory_rows import B
from tests.helpers.inventory_rows import database
from tests.helpers.inventory_rows import moving
from tests.helpers.inventory_rows import row
from tests.helpers.inventory_rows import V1


def reader():
    """Of one move and two events."""
    backend = types.SimpleNamespace(name='l', host=B)
    return metrics_command.Reader(types.SimpleNamespace(
        backend=backend, read=lambda: answers(
            database=database([moving()], [row(V1)]), service={
                'events': {'stalled': 2}, 'refusals': {}, 'copies': {}})))


def scrape():
    """Serve what there is, read it over HTTP, print it."""
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]

    def read():
        with urllib.request.urlopen(
                'http://127.0.0.1:%d/metrics' % port, timeout=30) as said:
            print(said.read().decode())
    with mock.patch.object(metrics_command, 'stay', read):
        metrics_command.serve(reader(), '127.0.0.1', port)


@ddt.ddt
class CommandTest(testtools.TestCase):

    @ddt.data(('9100', ('127.0.0.1', 9100)), (':1', ('127.0.0.1', 1)),
              ('0.0.0.0:9', ('0.0.0.0', 9)), ('[::]:9', ('::', 9)))
    @ddt.unpack
    def test_address(self, text, expected):
        self.assertEqual(expected, metrics_command.address(text))

    @ddt.data('', 'x', '0', '65536', 'host', 'host:')
    def test_what_is_no_address(self, text):
        self.assertRaises(
            argparse.ArgumentTypeError, metrics_command.address, text)

    def test_exported(self):
        """By the library, over HTTP, the same as in a file."""
        # Not where another test may have made its threads green ones.
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c',
             'from tests.unit.cmd.metrics import test_command as here; '
             'here.scrape()'],
            stdout=subprocess.PIPE, text=True, timeout=120,
            cwd=pathlib.Path(__file__).parents[4])
        for line in ('localclone_moves{backend="l",host="b@l",'
                     'phase="migrating"} 1.0',
                     'localclone_events_total{backend="l",event="stalled",'
                     'host="b@l"} 2.0',
                     '# TYPE localclone_events_total counter'):
            self.assertIn(line, done.stdout)

    def test_port_that_is_taken(self):
        with socket.create_server(('127.0.0.1', 0)) as taken:
            error = self.assertRaises(
                errors.CommandError, metrics_command.serve, reader(),
                '127.0.0.1', taken.getsockname()[1])
        self.assertIn('Can\'t listen on', str(error))

    def run_command(self, *words):
        app = main.LocalClone()
        app.backend = mock.Mock(return_value=mock.Mock(host=B))
        app.backend.return_value.name = 'l'
        app.stdout = io.StringIO()
        app.options = argparse.Namespace(json='--json' in words, debug=True)
        self.useFixture(fixtures.MockPatchObject(sources.Watch, 'prepare'))
        self.useFixture(fixtures.MockPatchObject(
            sources.Watch, 'read', return_value=answers(
                database=database([moving()], [row(V1)]))))
        command = metrics_command.Metrics(app, None)
        command.run(command.get_parser('metrics').parse_args(
            [word for word in words if word != '--json']))
        return app.stdout.getvalue()

    def test_printed(self):
        text = self.run_command()
        self.assertIn('localclone_moves{backend="l",host="b@l",'
                      'phase="migrating"} 1.0\n', text)
        self.assertNotIn('localclone_capacity_bytes', text)  # no LVM
        self.assertIn({'Name': 'localclone_volumes', 'Value': 1.0,
                       'Labels': {'backend': 'l', 'host': B}},
                      json.loads(self.run_command('--json')))

    def test_written(self):
        directory = self.useFixture(fixtures.TempDir()).path
        path = os.path.join(directory, 'x.prom')
        for _time in range(2):
            self.assertEqual('', self.run_command('--textfile', path))
            self.assertEqual(
                [1.0], [sample.value for family in
                        parser.text_string_to_metric_families(
                            pathlib.Path(path).read_text())
                        for sample in family.samples
                        if sample.name == 'localclone_volumes'])
        # The node_exporter is another user.
        self.assertEqual(0o644, stat.S_IMODE(os.stat(path).st_mode))
        self.assertEqual(['x.prom'], os.listdir(directory))

    def test_a_file_that_cannot_be_replaced_stays(self):
        directory = self.useFixture(fixtures.TempDir()).path
        path = os.path.join(directory, 'x.prom')
        pathlib.Path(path).write_text('before')
        self.useFixture(fixtures.MockPatch(
            'prometheus_client.exposition.os.rename', side_effect=OSError))
        self.assertRaises(errors.CommandError, self.run_command,
                          '--textfile', path)
        self.assertEqual('before', pathlib.Path(path).read_text())
        self.assertEqual(['x.prom'], os.listdir(directory))

    def test_where_nothing_can_be_written(self):
        path = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'none', 'x.prom')
        error = self.assertRaises(errors.CommandError, self.run_command,
                                  '--textfile', path)
        self.assertEqual('%s can\'t be written: No such file or directory'
                         % path, str(error))

    def test_objects(self):
        found = list(figures.as_objects(reader().collect()))
        self.assertIn({'Name': 'localclone_moves',
                       'Labels': {'backend': 'l', 'host': B,
                                  'phase': 'migrating'},
                       'Value': 1.0}, json.loads(json.dumps(found)))
