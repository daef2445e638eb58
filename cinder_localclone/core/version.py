# SPDX-License-Identifier: Apache-2.0
"""The version: the one that pip says, for the command and for Cinder."""

from importlib import metadata

#: Of a checkout that was not installed; the same as in ``setup.cfg``.
UNINSTALLED = '0.1.0'


def version_string() -> str:
    """The version of the installed package."""
    try:
        return metadata.version('cinder-localclone')
    except metadata.PackageNotFoundError:
        return UNINSTALLED
