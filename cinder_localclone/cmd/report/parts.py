# SPDX-License-Identifier: Apache-2.0
"""The contents of a report: each part is a file of the archive."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import datetime
import errno
import functools
import importlib
from importlib import metadata
import io
import json
import os
import platform
import re
import stat
import sys
import typing

from oslo_config import cfg
from oslo_utils import units

from cinder_localclone.cmd import base
from cinder_localclone.cmd.report import redaction
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core import version
from cinder_localclone.service import operator as backends
from cinder_localclone.storage import prerequisites

#: Sub-commands whose JSON is a part.
COMMANDS = ('node list', 'volume list', 'move list', 'doctor')
#: Files with the output of a command. Without an option, "dmsetup table" does
#: not show the keys of crypt devices.
OUTPUTS = {
    'lvm/pvs.txt': ('pvs', '--units', 'b', '-o', '+pv_tags'),
    'lvm/vgs.txt': ('vgs', '--units', 'b', '-o', '+vg_extent_size,vg_tags'),
    'lvm/lvs.txt': ('lvs', '--all', '--units', 'b', '-o',
                    '+lv_tags,lv_kernel_major,lv_kernel_minor,devices'),
    'device-mapper/table.txt': ('dmsetup', 'table'),
    'device-mapper/status.txt': ('dmsetup', 'status', '--noflush'),
    'device-mapper/tree.txt': ('dmsetup', 'ls', '--tree'),
    'device-mapper/info.txt': ('dmsetup', 'info', '-c'),
    'iscsi-sessions.txt': ('iscsiadm', '--mode', 'session'),
    'block-devices.txt': ('lsblk', '--output', 'NAME,MAJ:MIN,TYPE,SIZE,RO,'
                          'LOG-SEC,MODEL'),
}
#: The volume service's unit in packages and DevStack, and the driver's units.
UNITS = ('cinder-volume', 'openstack-cinder-volume', 'devstack@c-vol',
         'cinder-localclone-*', 'localclone-reencrypt-*')
#: Lines of the kernel's log.
KERNEL = re.compile(r'device-mapper|\bdm-\d|iscsi|target_core|localclone|'
                    r'I/O error|hung_task|blocked for more')
#: Versions of commands.
VERSIONS = (('lvm', 'version'), ('dmsetup', 'version'), ('dmsetup', 'targets'),
            ('cryptsetup', '--version'), ('iscsiadm', '--version'),
            ('systemctl', '--version'))
#: Installed Python packages.
PACKAGES = ('cinder', 'os-brick', 'nova', 'castellan', 'oslo.messaging',
            'oslo.privsep', 'oslo.db', 'SQLAlchemy', 'eventlet', 'taskflow')
#: Modules of Cinder with options of the volume service.
OF_CINDER = ('cinder.common.config', 'cinder.coordination', 'cinder.db.api',
             'cinder.service', 'cinder.volume.driver',
             'cinder.volume.drivers.lvm')
#: Sections of cinder.conf besides the backend's.
SECTIONS = ('DEFAULT', 'backend_defaults', 'database', 'coordination',
            'key_manager', 'barbican', 'keystone_authtoken', 'nova',
            'oslo_concurrency', 'oslo_messaging_rabbit',
            'oslo_messaging_notifications', 'privsep')
#: Directories of Cinder's configuration. Secrets of a file that the command
#: does not read, such as cinder-volume.conf, may be in the service's log.
USUAL = '/etc/cinder', '/usr/share/cinder'
#: Bytes at the end of a log file, and of the output of a command, at most.
LOG_BYTES = 16 * units.Mi
#: Characters of a reason, at most.
_REASON = 500
_BOUNDED = '("$@" 2>&1; printf "\\n%%s" $?) | tail -c %d'
_TIME = re.compile(r'(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)')


@dataclasses.dataclass(frozen=True)
class Part:
    """A file of the archive.

    :param read: returns its text; raises any error if it can't
    """

    name: str
    read: Callable[[], str]


@dataclasses.dataclass(frozen=True)
class Sources:
    """The node that a report is about.

    :param files: Cinder's configuration files
    :param backend: the section of the backend; '' if it is not known
    :param seconds: the time limit of each command
    :param hours: the hours of the logs
    :param log_file: the volume service's log file; '' for none
    :param unreadable: configuration whose secrets are not known
    """

    files: Sequence[str]
    backend: str
    seconds: float
    hours: float
    log_file: str = ''
    unreadable: Sequence[str] = ()

    def command(self, *argv: str) -> str:
        """Return the output of a command, with its errors in place.

        :raises CommandError: if it fails, with its output
        """
        text, code = self.run(*argv)
        if code:
            raise errors.CommandError('exit code %d: %s' % (
                code, _in_a_line(text)))
        return text

    def run(self, *argv: str) -> tuple[str, int]:
        """Return the end of the output of a command, and its exit code.

        :raises CommandError: after the time limit
        """
        try:
            text, _code = prerequisites.run(
                'sh', '-c', _BOUNDED % LOG_BYTES, 'sh', *argv,
                timeout=self.seconds)
        except exceptions.CommandTimeout:
            raise errors.CommandError('"%s" did not end within %g s.' % (
                _in_a_line(' '.join(argv)), self.seconds)) from None
        text, _newline, code = text.rpartition('\n')
        if len(text) > LOG_BYTES // 2 and len(text.encode()) + 8 > LOG_BYTES:
            # Half a secret would not be found.
            text = text.partition('\n')[2]
        return text, int(code)

    def check_secrets(self) -> None:
        """Check that the secrets of the configuration are known.

        :raises CommandError: if a file can't be read
        """
        if self.unreadable:
            raise errors.CommandError(
                'The secrets in this log can\'t be removed, because %s can\'t '
                'be read. Run the command with sudo.' % ', '.join(
                    self.unreadable))


def _in_a_line(text: str) -> str:
    """Return the beginning of a text, in a line."""
    return ' '.join(text[:8 * _REASON].split())[:_REASON]


def parts(sources: Sources, known: dict[str, bool]) -> Iterator[Part]:
    """Yield all parts.

    :param known: see :func:`known_options`
    """
    yield Part('versions.txt', lambda: _versions(sources))
    yield Part('cinder.conf', lambda: _configuration(sources, known))
    for words in COMMANDS:
        yield Part(words.replace(' ', '-') + '.json',
                   functools.partial(_own, sources, words))
    for name, argv in OUTPUTS.items():
        yield Part(name, functools.partial(sources.command, *argv))
    yield Part('log/journal.txt', lambda: _journal(sources))
    yield Part('log/kernel.txt', lambda: _kernel(sources))
    if sources.log_file:
        yield Part('log/' + os.path.basename(sources.log_file),
                   lambda: _log(sources))


def known_options() -> dict[str, bool]:
    """Return the names of known options: whether they are secrets.

    An option of several sections is a secret if one of them says so.
    """
    known: dict[str, bool] = {}
    for option in _definitions():
        for name in (option.dest, *(
                each.name for each in option.deprecated_opts)):
            if name:
                name = name.replace('-', '_')
                known[name] = known.get(name, False) or option.secret
    return known


def _definitions() -> Iterator[cfg.Opt]:
    yield from backends.NODE_OPTS
    yield from backends.SECTION_OPTS
    for entry in metadata.entry_points(group='oslo.config.opts'):
        # Cinder's own entry imports all drivers, which need more packages.
        if entry.name != 'cinder':
            with contextlib.suppress(Exception):
                for _group, found in entry.load()():
                    yield from found
    for name in OF_CINDER:
        with contextlib.suppress(Exception):
            for value in list(vars(importlib.import_module(name)).values()):
                if isinstance(value, list | tuple):
                    yield from (each for each in value
                                if isinstance(each, cfg.Opt))


def files_with_secrets(files: Sequence[str]) -> list[str]:
    """Return the files in use, and Cinder's other files on this node.

    :param files: the paths of the files in use
    """
    found = list(files)
    for directory in USUAL:
        for path in _listed(directory):
            found += _listed(path) if path.endswith('conf.d') else [path]
    return [path for path in dict.fromkeys(found) if path in (
        *files, *USUAL) or path.endswith(('.conf', 'conf.d'))]


def _listed(directory: str) -> list[str]:
    """Return the paths in a directory; itself, if it can't be read."""
    try:
        return sorted(os.path.join(directory, name)
                      for name in os.listdir(directory))
    except PermissionError:
        return [directory]
    except OSError:
        return []


def options(files: Sequence[str]) -> tuple[list[redaction.Option], list[str]]:
    """Return the options of configuration files, and the unreadable files.

    A file or directory that does not exist has no options.

    :param files: their paths
    """
    found: list[redaction.Option] = []
    unreadable = []
    for path in files:
        try:
            with _regular(path) as file:
                # Not the encoding of the terminal: logs have UTF-8.
                found += redaction.options(file.read(LOG_BYTES).decode(
                    errors='replace'))
        except FileNotFoundError:
            pass
        except (OSError, errors.CommandError):
            unreadable.append(path)
    return found, unreadable


def _regular(path: str, flags: int = 0) -> io.BufferedReader:
    """Open a regular file to read it; anything else could block.

    :param flags: further flags of open(2)
    :raises CommandError: if it is no regular file
    """
    try:
        number = os.open(path, flags | os.O_RDONLY | os.O_NONBLOCK
                         | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise errors.CommandError('%s is a symbolic link.' % path)
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise errors.CommandError('%s is no regular file.' % path)
    return os.fdopen(number, 'rb')


def _configuration(sources: Sources, known: dict[str, bool]) -> str:
    if not sources.files:
        raise errors.CommandError('There is no cinder.conf.')
    for path in sources.files:
        with open(path):  # raises what :func:`options` leaves out
            pass
    return redaction.shown(options(sources.files)[0], (
        *SECTIONS, *filter(None, [sources.backend])), known)


def _own(sources: Sources, words: str) -> str:
    """Return the JSON of a sub-command, in a process with a time limit."""
    # -P: root may be in a directory where others can write modules.
    argv = [sys.executable, '-P', '-W', 'ignore', '-m',
            'cinder_localclone.cmd.main']
    for path in sources.files:
        argv += ['--config-file', path]
    if sources.backend:
        argv += ['--backend', sources.backend]
    text, _code = sources.run(*argv, '--json', *words.split())
    for begin in re.finditer(r'^\[', text, re.MULTILINE):
        # A library may print a warning before or after the list.
        with contextlib.suppress(ValueError):
            _list, end = json.JSONDecoder().raw_decode(text, begin.start())
            return text[begin.start():end] + '\n'
    raise errors.CommandError(_in_a_line(text) or 'no output')


def _versions(sources: Sources) -> str:
    """Return versions; a missing command is said in its place."""
    said = ['cinder-localclone %s' % version.VERSION,
            'Python %s' % platform.python_version(),
            'kernel %s %s' % (platform.release(), platform.version())]
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
        said.append('distribution %s' % release['PRETTY_NAME'])
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            said.append('%s %s' % (name, metadata.version(name)))
    for argv in VERSIONS:
        try:
            text = sources.command(*argv)
        except Exception as exc:
            text = base.in_words(exc)
        said += ['', '$ ' + ' '.join(argv), text.rstrip()]
    return '\n'.join(said) + '\n'


def _journal(sources: Sources) -> str:
    sources.check_secrets()
    return sources.command(
        'journalctl', '--no-pager', '--output', 'short-iso',
        '--since', '-%ds' % (3600 * sources.hours),
        *(word for unit in UNITS for word in ('--unit', unit)))


def _kernel(sources: Sources) -> str:
    text = sources.command(
        'journalctl', '--no-pager', '--dmesg', '--output', 'short-iso',
        '--since', '-%ds' % (3600 * sources.hours))
    return '\n'.join(
        line for line in text.splitlines() if KERNEL.search(line)) + '\n'


def _log(sources: Sources) -> str:
    """Return the last hours of the log file.

    Cinder's user can replace the file: a link could lead to a secret of root,
    and a pipe would never end.

    :raises CommandError: if it is a link, or no regular file
    """
    sources.check_secrets()
    with _regular(sources.log_file, os.O_NOFOLLOW) as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - LOG_BYTES))
        text = file.read().decode(errors='replace')
    return since(text, datetime.datetime.now() - datetime.timedelta(
        hours=sources.hours))


def since(text: str, begin: datetime.datetime) -> str:
    """Return the lines of a log from a time on.

    Lines without a time, such as a traceback, belong to the line before.
    """
    wanted, lines, first = False, [], begin.isoformat(' ', 'seconds')
    for line in text.splitlines():
        found = _TIME.match(line)
        if found:
            wanted = found[1].replace('T', ' ') >= first
        if wanted:
            lines.append(line)
    return '\n'.join(lines) + '\n'


def log_file(found: Sequence[redaction.Option]) -> str:
    """Return the path of the volume service's log file, or ''.

    :param found: options of the configuration
    """
    named: dict[str, typing.Any] = {
        each.name.replace('-', '_'): each.value for each in found
        if each.section == 'DEFAULT'}
    directory, name = named.get('log_dir', ''), named.get('log_file', '')
    if name:
        return str(os.path.join(directory, name))
    for name in ('cinder-volume.log', 'volume.log'):
        path = os.path.join(directory or '/var/log/cinder', name)
        if os.path.exists(path):
            return path
    return ''
