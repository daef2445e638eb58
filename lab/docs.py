# SPDX-License-Identifier: Apache-2.0
"""``make docs``: build the documentation in a venv of the cache."""

import os
import sys

import lab as labs
from lab.core import install
from lab.core import process


def main():
    lab = labs.Lab('install')
    try:
        lab.install()
        install.packages(print, more={'graphviz': '/usr/bin/dot'})
        process.run(str(lab.venv / 'bin/pip'), 'install', '-q', '-r',
                    'doc/requirements.txt', '-c',
                    str(install.HERE / 'constraints.txt'), timeout=600,
                    cwd=lab.repo)
        for source, target in (('doc/source', 'doc/build/html'),
                               ('releasenotes/source',
                                'releasenotes/build/html')):
            print(process.run(
                str(lab.python), '-m', 'sphinx', '-W', '-q', '-b', 'html',
                source, target, cwd=lab.repo, timeout=600, env=dict(
                    os.environ, PYTHONPATH=str(lab.repo))) or target)
    except process.LabError as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
