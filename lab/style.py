# SPDX-License-Identifier: Apache-2.0
"""``make style``: style and types, as ``tox -e pep8`` checks them."""

import os
import pathlib
import subprocess
import sys

from lab.core import install
from lab.core import process

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: Seconds: for building the hooks' venvs from PyPI, once, and for the checks.
LIMIT = 1200


def main() -> int:
    """Check all files that git knows; the exit code."""
    try:
        venv = install.style_venv(print)
    except process.LabError as exc:
        print(exc, file=sys.stderr)
        return 1
    try:
        return subprocess.run(
            [venv / 'bin/pre-commit', 'run', '--all-files', '--color=never'],
            cwd=ROOT, timeout=LIMIT, env=dict(
                os.environ, PRE_COMMIT_HOME=str(
                    install.cache_directory() / 'pre-commit'),
                PATH='%s/bin:%s' % (venv, os.environ['PATH']))).returncode
    except subprocess.TimeoutExpired:
        print('not done within %d s' % LIMIT, file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main())
