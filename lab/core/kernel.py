# SPDX-License-Identifier: Apache-2.0
"""The kernel that nodes run: user-mode Linux.

Debian 13's (Linux 6.12) starts processes about twice as fast as Debian 12's
(Linux 6.1). It runs here with the C library it was built for; both are only
taken out of their packages.
"""

import os
import pathlib
import shutil

from lab.core import install
from lab.core import process

#: The release of Debian whose kernel is taken.
NEWER = 'trixie'
#: Asks for another: "own" for Debian 12's, or a directory with linux.uml and
#: modules/VERSION.
CHOICE = 'LOCALCLONE_LAB_KERNEL'
OWN = {'binary': '/usr/bin/linux.uml', 'modules': '/usr/lib/uml/modules'}


def choose(progress) -> dict:
    """Debian 13's kernel; Debian 12's if that cannot be had.

    :returns: binary; modules: what its nodes see as /lib/modules
    """
    choice = os.environ.get(CHOICE)
    if choice == 'own':
        return OWN
    try:
        path = pathlib.Path(choice) if choice else install.template(
            'kernel', NEWER.encode(), _take_out, progress)
    except (process.LabError, OSError) as exc:
        progress('Nodes run Debian 12\'s own kernel, which is slower: there '
                 'is no newer one to be had (%s)' % exc)
        return OWN
    return {'binary': str(path / 'linux.uml'),
            'modules': str(path / 'modules')}


def _take_out(path):
    """Fill a directory with the newer kernel, its modules and libc."""
    work = path / 'work'
    work.mkdir()
    options = _beside(work)
    process.run('apt-get', '-qq', *options, 'update', timeout=600)
    install.take_apart(work, 'user-mode-linux', 'libc6', options=options)
    libraries = path / 'libraries'
    (work / 'usr/bin/linux.uml').rename(path / 'linux.uml')
    (work / 'usr/lib/uml/modules').rename(path / 'modules')
    (work / 'usr/lib/x86_64-linux-gnu').rename(libraries)
    process.run('patchelf', '--set-rpath', str(libraries),
                '--set-interpreter', str(libraries / 'ld-linux-x86-64.so.2'),
                str(path / 'linux.uml'))
    process.run(str(path / 'linux.uml'), '--version', timeout=20)
    shutil.rmtree(work)


def _beside(work):
    """Options of apt: NEWER alone, beside what apt knows of this machine."""
    (work / 'sources.list').write_text('deb %s %s main\n' % (
        _mirror(), NEWER))
    for name in ('lists', 'cache'):
        (work / name).mkdir()
    return ('-o', 'APT::Sandbox::User=root',
            '-o', 'Dir::Etc::SourceList=%s' % (work / 'sources.list'),
            '-o', 'Dir::Etc::SourceParts=-',
            '-o', 'Dir::State::Lists=%s' % (work / 'lists'),
            '-o', 'Dir::State::Status=/dev/null',
            '-o', 'Dir::Cache=%s' % (work / 'cache'))


def _mirror():
    """Where this machine has Debian 12 from."""
    for _attempt in range(2):
        found = process.run(
            'apt-get', 'indextargets', '--format', '$(SITE)',
            'Codename: bookworm', 'Created-By: Packages', 'Component: main')
        if found.strip():
            return found.split()[0]
        process.run('apt-get', 'update', '-qq', timeout=600)
    raise process.LabError('apt has no source of Debian 12 (bookworm)')
