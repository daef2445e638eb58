# SPDX-License-Identifier: Apache-2.0
"""``make sbom``: what a node gets with the package, as CycloneDX's JSON.

The package's requirements, as the lab has them, are installed into a venv of
their own, and nothing else is. The same constraints make the same file.
"""

import json
import os
import pathlib
import sys

from cinder_localclone.core import version
from lab.core import install
from lab.core import process

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = ROOT / 'sbom.json'
CONSTRAINTS = ROOT / 'lab/core/constraints.txt'
REQUIREMENTS = ROOT / 'requirements.txt'
TOOL = 'cyclonedx-bom==7.5.0'
PACKAGES = {'python3-venv': '/usr/share/python-wheels'}


def _venv(path, *words):
    process.run('/usr/bin/python3', '-m', 'venv', str(path), timeout=120)
    process.run(str(path / 'bin/python'), '-m', 'pip', 'install', '-q',
                '--disable-pip-version-check', *words, timeout=1800)


def _fill(directory):
    _venv(directory / 'node', '-c', str(CONSTRAINTS), '-r',
          str(REQUIREMENTS))
    # It came with the venv, and runs on no node.
    process.run(str(directory / 'node/bin/python'), '-m', 'pip', 'uninstall',
                '-q', '-y', 'pip', timeout=120)
    _venv(directory / 'tool', TOOL)


def build() -> pathlib.Path:
    """Write it.

    :returns: where it is
    :raises LabError: with the messages of pip or the tool
    """
    missing = [name for name, path in PACKAGES.items()
               if not os.path.exists(path)]
    if missing:
        process.run('apt-get', 'update', '-qq', timeout=600)
        process.run('apt-get', 'install', '-y', '-qq',
                    '--no-install-recommends', *missing, timeout=600)
    made = install.template('sbom', b''.join((
        TOOL.encode(), CONSTRAINTS.read_bytes(), REQUIREMENTS.read_bytes())),
        _fill, print)
    process.run(
        str(made / 'tool/bin/cyclonedx-py'), 'environment',
        '--output-reproducible', '--pyproject', str(ROOT / 'pyproject.toml'),
        '--output-format', 'JSON', '--output-file', str(TARGET),
        str(made / 'node/bin/python'), timeout=300)
    # The tool knows only the name: the build adds the version.
    bill = json.loads(TARGET.read_text())
    bill['metadata']['component']['version'] = version.VERSION
    TARGET.write_text(json.dumps(bill, indent=2) + '\n')
    return TARGET


def main() -> int:
    """Write it, and say where it is."""
    try:
        print('Written: %s' % build())
    except process.LabError as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
