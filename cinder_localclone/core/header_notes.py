# SPDX-License-Identifier: Apache-2.0
"""Names of a node's notes about the encrypted volumes that it opens."""

from collections.abc import Iterable
import hashlib
import re

from cinder_localclone.core import lvm_tags
from cinder_localclone.core import names

_REMOTE, _KEEPS = lvm_tags.REMOTE.text, lvm_tags.KEEPS.text
_SEALED = '.cred'
#: The characters allowed in the value of a tag.
_VALUE = re.compile(r'[A-Za-z0-9_+.\-/=!:#&]+')


def remote_tag(volume_id: str, luks: str, key: str) -> str:
    """Return the volume group's tag for a remotely attached volume.

    :param luks: the UUID in its header
    :param key: reference of its secret
    """
    return '%s%s=%s:%s' % (_REMOTE, volume_id, luks, key)


def parse_remote_tags(tags: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the remotely attached volumes in a volume group's tags.

    :returns: UUIDs of headers and references of secrets, by volume id
    """
    found = {}
    for tag in tags:
        volume_id, _equals, known = tag.removeprefix(_REMOTE).partition('=')
        luks, _colon, key = known.partition(':')
        if tag.startswith(_REMOTE) and names.is_id(volume_id):
            found[volume_id] = luks, key
    return found


def sealed_key_file(volume_id: str) -> str:
    """Return the file name of a volume's sealed key."""
    return volume_id + _SEALED


def volume_of_sealed(file: str) -> str:
    """Return the volume id in the file name of a sealed key; '' if none."""
    volume_id = file.removesuffix(_SEALED)
    return volume_id if file != volume_id and names.is_id(volume_id) else ''


def sealed_key(volume_id: str, key: str) -> str:
    """Return the credential name for sealing a volume's key.

    :param key: reference of the secret
    """
    return 'localclone-%s-%s' % (
        volume_id, hashlib.sha256(key.encode()).hexdigest()[:16])


def directory_tags(backend: str, paths: Iterable[str]) -> set[str]:
    """Return the volume group's tags for a backend's key directories.

    :param backend: its section
    :param paths: of directories. A path with a character not allowed in a tag
        is left out
    """
    return {'%s%s=%s' % (_KEEPS, backend, path) for path in paths
            if _VALUE.fullmatch(path) and _VALUE.fullmatch(backend)}


def parse_directory_tags(backend: str, tags: Iterable[str]) -> set[str]:
    """Return the paths of a backend's present and former key directories.

    :param backend: its section
    :param tags: of the volume group
    """
    begin = '%s%s=' % (_KEEPS, backend)
    return {tag.removeprefix(begin) for tag in tags if tag.startswith(begin)}
