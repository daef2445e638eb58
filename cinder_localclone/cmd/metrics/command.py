# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone metrics``: the metrics of this node for Prometheus."""

import argparse
import json
import threading
import time
import typing

from cliff import command
import prometheus_client

from cinder_localclone.cmd import base
from cinder_localclone.cmd.metrics import figures
from cinder_localclone.cmd.metrics import sources
from cinder_localclone.core import errors
from cinder_localclone.core import version

#: The time limit for all sources. Prometheus gives up after 10 s by default,
#: and would then lose all metrics of a node with a single hanging source.
SECONDS = 8


class Reader:
    """Reads all metrics of a backend on this node.

    This is a collector of prometheus_client.
    """

    def __init__(self, watch: sources.Watch):
        self._watch = watch

    def collect(self) -> list[figures.Family]:
        """Read and return all metrics."""
        backend = self._watch.backend
        return figures.Figures(
            backend.host, time.time(),
            {'backend': backend.name, 'host': backend.host}).collect(
                self._watch.read(), version.VERSION)


def registry(reader: Reader) -> typing.Any:
    """Return a registry of prometheus_client with these metrics only."""
    found = prometheus_client.CollectorRegistry()
    found.register(reader)
    return found


def address(text: str) -> tuple[str, int]:
    """Parse ``[ADDRESS:]PORT``; by default only this node can connect.

    :raises ArgumentTypeError: if the text is invalid
    """
    where, _colon, port = text.rpartition(':')
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError('"%s" is not [ADDRESS:]PORT' % text)
    return where.strip('[]') or '127.0.0.1', int(port)


def serve(reader: Reader, where: str, port: int) -> None:
    """Answer scrapes until this process ends.

    :raises CommandError: if the port is in use
    """
    try:
        prometheus_client.start_http_server(
            port, addr=where, registry=registry(reader))
    except OSError as exc:
        raise errors.CommandError('Can\'t listen on %s:%d: %s' % (
            where, port, exc.strerror or exc))
    stay()


def stay() -> None:
    """Wait until a signal ends this process."""
    threading.Event().wait()


class Metrics(base.Words, command.Command):
    """Print the metrics of this node, for Prometheus.

    The output has the text exposition format. It is printed, written to a file
    for the node_exporter, or exported over HTTP. Run the command on each node,
    as root or as Cinder's user. Sources that do not answer are left out: see
    localclone_collector_success.
    """

    example = 'metrics --listen 192.0.2.11:9837'
    changes = 'nothing; it may load kernel modules'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the destination of the metrics."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        where = parser.add_mutually_exclusive_group()
        where.add_argument(
            '--textfile', metavar='PATH',
            help='replace this file, whose name must end in .prom, for the '
                 'textfile collector of the node_exporter')
        where.add_argument(
            '--listen', metavar='[ADDRESS:]PORT', type=address,
            help='export the metrics over HTTP; default ADDRESS: 127.0.0.1, '
                 'so only this node can connect')
        parser.add_argument(
            '--seconds', type=base.seconds, default=SECONDS, metavar='N',
            help='wait for the sources for at most N seconds; default: %d'
                 % SECONDS)
        parser.add_argument(
            '--doctor-interval', type=base.seconds, default=300, metavar='N',
            help='with --listen: minimum seconds between two runs of '
                 'doctor\'s checks; default: 300')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print, write or export the metrics."""
        watch = sources.Watch(self.app.backend(), parsed_args.seconds,
                              parsed_args.doctor_interval)
        watch.prepare()
        reader = Reader(watch)
        if parsed_args.listen:
            serve(reader, *parsed_args.listen)
            return
        if parsed_args.textfile:
            _write(parsed_args.textfile, reader)
        elif self.app.options.json:
            print(json.dumps(list(figures.as_objects(reader.collect())),
                             indent=2), file=self.app.stdout)
        else:
            self.app.stdout.write(prometheus_client.generate_latest(
                registry(reader)).decode())


def _write(path: str, reader: Reader) -> None:
    """Replace a file atomically.

    :raises CommandError: if the file can't be written
    """
    try:
        prometheus_client.write_to_textfile(path, registry(reader))
    except OSError as exc:
        raise errors.CommandError('%s can\'t be written: %s' % (
            path, exc.strerror or exc))
