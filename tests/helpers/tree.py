# SPDX-License-Identifier: Apache-2.0
"""The source of this repository."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = 'cinder_localclone'


def modules(directory):
    """(name within the directory, path) of all modules in it."""
    for path in sorted((ROOT / directory).rglob('*.py')):
        parts = path.relative_to(ROOT / directory).with_suffix('').parts
        yield '.'.join(part for part in parts if part != '__init__'), path
