# SPDX-License-Identifier: Apache-2.0
"""``make docs``: build the documentation in a venv of its own.

The pages show what the command prints, made by its own code: so the package's
requirements are needed, but neither a lab nor its Debian packages.
"""

import os
import pathlib
import shutil
import sys

from lab.core import install
from lab.core import process

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / 'lab/core/constraints.txt'
REQUIREMENTS = (ROOT / 'requirements.txt', ROOT / 'doc/requirements.txt')
#: Has the entry points by which the page of the options finds them.
PROJECT = ROOT / 'pyproject.toml'
#: Sources, and where the pages go.
BOOKS = (('doc/source', 'doc/build/html'),
         ('releasenotes/source', 'releasenotes/build/html'))


def _fill(venv):
    process.run('/usr/bin/python3', '-m', 'venv', str(venv), timeout=120)
    process.run(str(venv / 'bin/pip'), 'install', '-q',
                '--disable-pip-version-check', '-c', str(CONSTRAINTS),
                *[word for path in REQUIREMENTS for word in ('-r', str(path))],
                timeout=1800)
    # For its entry points: the code is that of this checkout.
    process.run(str(venv / 'bin/pip'), 'install', '-q',
                '--disable-pip-version-check', '--no-deps', str(ROOT),
                timeout=600)


def build() -> list[pathlib.Path]:
    """Build all books.

    :returns: the first page of each
    :raises LabError: with the messages of pip or sphinx
    """
    install.basics('python3-venv', 'git')  # reno reads notes with git
    venv = install.template('docs', b''.join(
        path.read_bytes() for path in (CONSTRAINTS, PROJECT, *REQUIREMENTS)),
        _fill, print)
    for source, target in BOOKS:
        process.run(str(venv / 'bin/python'), '-m', 'sphinx', '-E', '-W', '-q',
                    '-b', 'html', source, target, cwd=ROOT, timeout=600,
                    env=dict(os.environ, PYTHONPATH=str(ROOT)))
    return [ROOT / target / 'index.html' for _source, target in BOOKS]


def main() -> int:
    """Build, and say where the pages are."""
    try:
        pages = build()
    except process.LabError as exc:
        print(exc, file=sys.stderr)
        return 1
    if not shutil.which('dot'):
        print('Built without drawings (apt install graphviz).')
    print(*['Built: %s' % page for page in pages], sep='\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
