# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone metrics``: this node as Prometheus reads it."""

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

#: How long sources are waited for. Prometheus gives up after 10 s unless it
#: is told otherwise, and then has nothing of a node of which one part hangs.
SECONDS = 8


class Reader:
    """Reads all metrics of one backend on this node.

    It is what prometheus_client calls a collector.
    """

    def __init__(self, watch: sources.Watch):
        self._watch = watch

    def collect(self) -> list[figures.Family]:
        """All of them, as they are now."""
        backend = self._watch.backend
        return figures.Figures(
            backend.host, time.time(),
            {'backend': backend.name, 'host': backend.host}).collect(
                self._watch.read(), version.version_string())


def registry(reader: Reader) -> typing.Any:
    """A registry of prometheus_client with these metrics and no others."""
    found = prometheus_client.CollectorRegistry()
    found.register(reader)
    return found


def address(text: str) -> tuple[str, int]:
    """``[ADDRESS:]PORT``; by default it listens on this node alone.

    :raises ArgumentTypeError: if it is none
    """
    where, _colon, port = text.rpartition(':')
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError('"%s" is not [ADDRESS:]PORT' % text)
    return where.strip('[]') or '127.0.0.1', int(port)


def serve(reader: Reader, where: str, port: int) -> None:
    """Answer scrapes until this process is ended.

    :raises CommandError: if the port is taken
    """
    try:
        prometheus_client.start_http_server(
            port, addr=where, registry=registry(reader))
    except OSError as exc:
        raise errors.CommandError('%s:%d can\'t be listened on: %s' % (
            where, port, exc.strerror or exc))
    stay()


def stay() -> None:
    """For as long as this process is wanted; a signal ends it."""
    threading.Event().wait()


class Metrics(base.Words, command.Command):
    """Print the metrics of this node, for Prometheus.

    In the text exposition format; as a file for the node_exporter, or served
    as an exporter. Run it on each node, as root or as Cinder's user. Sources
    that do not answer are left out: localclone_collector_success says which.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with where the metrics go."""
        parser = super().get_parser(prog_name)
        where = parser.add_mutually_exclusive_group()
        where.add_argument(
            '--textfile', metavar='PATH',
            help='replace this file, in a directory of the node_exporter\'s '
                 'textfile collector')
        where.add_argument(
            '--listen', metavar='[ADDRESS:]PORT', type=address,
            help='be an exporter; ADDRESS: by default this node alone')
        parser.add_argument(
            '--seconds', type=float, default=SECONDS, metavar='N',
            help='wait for the sources for at most N seconds; default: %d'
                 % SECONDS)
        parser.add_argument(
            '--doctor-interval', type=float, default=300, metavar='N',
            help='with --listen: make doctor\'s checks every N seconds at '
                 'most; default: 300')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print them, write them or serve them."""
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
    """Replace a file, whole.

    :raises CommandError: if it can't be written
    """
    try:
        prometheus_client.write_to_textfile(path, registry(reader))
    except OSError as exc:
        raise errors.CommandError('%s can\'t be written: %s' % (
            path, exc.strerror or exc))
