# SPDX-License-Identifier: Apache-2.0
"""The version of the package, for the command and for Cinder."""

from importlib import metadata

#: Version of a checkout not installed; the same as in ``setup.cfg``.
UNINSTALLED = '0.1.0'


def version_string() -> str:
    """Return the version of the installed package."""
    try:
        return metadata.version('cinder-localclone')
    except metadata.PackageNotFoundError:
        return UNINSTALLED
