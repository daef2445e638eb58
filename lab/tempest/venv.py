# SPDX-License-Identifier: Apache-2.0
"""Tempest from PyPI, in a venv of its own: it shares nothing with a cloud."""

import pathlib

from lab.core import install
from lab.core import process

CONSTRAINTS = pathlib.Path(__file__).with_name('constraints.txt')
REQUIREMENTS = ('tempest', 'cinder-tempest-plugin')


def path(progress) -> pathlib.Path:
    """The venv, built once for what it is made of."""
    return install.template(
        'tempest', CONSTRAINTS.read_bytes() + ' '.join(REQUIREMENTS).encode(),
        _build, progress)


def _build(directory):
    process.run('/usr/bin/python3', '-m', 'venv', str(directory),
                timeout=120)
    process.run(
        str(directory / 'bin/pip'), 'install', '-q',
        '--disable-pip-version-check', '-c', str(CONSTRAINTS), *REQUIREMENTS,
        timeout=1200)
