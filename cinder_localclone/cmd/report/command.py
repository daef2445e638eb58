# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone report``: one archive for a bug report."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import errno
import glob
import io
import os
import re
import socket
import tarfile
import time

from cinder_localclone.cmd import base
from cinder_localclone.cmd.report import parts
from cinder_localclone.cmd.report import redaction
from cinder_localclone.core import errors
from cinder_localclone.core import version
from cinder_localclone.service import operator as backends

MANIFEST = 'MANIFEST'
#: Errors of a file system without space for a file.
_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG


class Report(base.Command):
    """Write an archive with everything that a bug report needs.

    The archive has the sections of cinder.conf for the backend and the
    services, nodes, volumes, moves and doctor's results, tables of LVM and
    device-mapper, iSCSI sessions, versions, and the last hours of the logs of
    the volume service and the kernel. Run the command as root on the node with
    the problem; for other users some parts are missing. A part that fails is
    named in MANIFEST, with the reason, and does not stop the others. Secrets
    are removed, but names of hosts, addresses and names of volumes remain:
    read the archive before you send it.
    """

    example = 'report --hours 24 --output /root/report.tar.gz'
    changes = 'nothing; it may load kernel modules'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the file and the limits."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            '--output', metavar='PATH', help='a new file, readable only for '
            'you; default: localclone-report-<host>-<time>.tar.gz in the '
            'current directory')
        parser.add_argument(
            '--hours', type=base.number(0, 8784), default=6, metavar='N',
            help='hours of the logs; default: 6')
        parser.add_argument(
            '--seconds', type=base.number(1, 3600), default=60, metavar='N',
            help='time limit of each command of the report; default: 60')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Write the archive and return a row for each part."""
        name = 'localclone-report-%s-%s' % (
            re.sub(r'[^\w.-]', '_', socket.gethostname()),
            time.strftime('%Y%m%dT%H%M%S'))
        path = os.path.abspath(parsed_args.output or name + '.tar.gz')
        files, backend = self._configured()
        known = parts.known_options()
        found, unreadable = parts.options(parts.files_with_secrets(files))
        sources = parts.Sources(
            files, backend, parsed_args.seconds, parsed_args.hours,
            parts.log_file(parts.options(files)[0]), unreadable)
        with _created(path) as file:
            rows = write(file, name, parts.parts(sources, known),
                         redaction.Redaction(redaction.secrets(found, known)))
        print('Written: %s' % path, file=self.app.stderr)
        return ('Part', 'Bytes', 'Result'), rows

    def _configured(self) -> tuple[list[str], str]:
        """Return the configuration files and the section of the backend.

        Without a valid configuration the report has the other parts, but the
        secrets of the files are still removed.
        """
        wanted = self.app.options
        files, backend = list(wanted.config_file or ()), wanted.backend or ''
        if not files and os.path.exists(backends.USUAL):
            files = [backends.USUAL]
        with contextlib.suppress(Exception):
            settings = backends.Settings(wanted.config_file)
            files = list(settings.conf.config_file)
            for directory in settings.conf.config_dir or ():
                files += sorted(glob.glob(os.path.join(
                    glob.escape(directory), '*.conf')))
            backend = backends.Backend(settings, wanted.backend).name
        return files, backend


def write(file: io.BufferedIOBase, directory: str,
          found: Iterable[parts.Part], redacted: redaction.Redaction
          ) -> list[tuple[str, int, str]]:
    """Write an archive, and return its table of contents.

    :param directory: the directory in the archive
    :param found: the parts; an error of one is its result
    :returns: for each part the name, the bytes, and "ok" or the reason
    """
    rows = []
    with tarfile.open(fileobj=file, mode='w:gz') as archive:
        for part in found:
            began, content = time.monotonic(), b''
            try:
                content = redacted(part.read()).encode(errors='replace')
                result = 'ok'
            except Exception as exc:
                result = 'failed: ' + redacted(
                    ' '.join(base.in_words(exc).split()))
            rows.append((part.name, len(content), result))
            if result == 'ok':
                _add(archive, directory, part.name, content)
            took = time.monotonic() - began
            rows[-1] = (*rows[-1][:2], '%s (%.1f s)' % (result, took))
        _add(archive, directory, MANIFEST, manifest(rows).encode(
            errors='replace'))
    return rows


def manifest(rows: Iterable[tuple[str, int, str]]) -> str:
    """Return the text of the MANIFEST."""
    return '\n'.join((
        'cinder-localclone report',
        'version: %s' % version.VERSION,
        'host: %s' % socket.gethostname(),
        'time: %s' % time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
        'Secrets are replaced by %s.' % redaction.HIDDEN, '',
        *('%s, %d bytes: %s' % row for row in rows))) + '\n'


def _add(archive: tarfile.TarFile, directory: str, name: str, content: bytes
         ) -> None:
    info = tarfile.TarInfo('%s/%s' % (directory, name))
    info.size, info.mode, info.mtime = len(content), 0o600, int(time.time())
    archive.addfile(info, io.BytesIO(content))


@contextlib.contextmanager
def _created(path: str) -> Iterator[io.BufferedIOBase]:
    """Open a new file for this user alone; remove it after an error.

    :raises CommandError: if it exists, or can't be created
    """
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL
                         | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise errors.CommandError('%s can\'t be created: %s. Pass --output '
                                  'with the path of a new file.' % (
                                      path, exc.strerror))
    try:
        with os.fdopen(number, 'wb') as file:
            yield file
    except BaseException as exc:
        os.unlink(path)
        if isinstance(exc, OSError) and exc.errno in _FULL:
            raise errors.CommandError(
                '%s can\'t be written: %s. Nothing was kept. Pass --output '
                'with a path on another disk.' % (path, exc.strerror))
        raise
