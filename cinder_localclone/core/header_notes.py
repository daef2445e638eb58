# SPDX-License-Identifier: Apache-2.0
"""What a node notes of the encrypted volumes that it opens, by name."""

from collections.abc import Iterable
import hashlib
import re

from cinder_localclone.core import lvm_tags
from cinder_localclone.core import names

_REMOTE, _KEEPS = lvm_tags.REMOTE.text, lvm_tags.KEEPS.text
_SEALED = '.cred'
#: What the value of a tag may have.
_VALUE = re.compile(r'[A-Za-z0-9_+.\-/=!:#&]+')


def remote(volume_id: str, luks: str, key: str) -> str:
    """The tag of a volume group for a volume that is passed through.

    :param luks: the UUID in its header
    :param key: reference of its secret
    """
    return '%s%s=%s:%s' % (_REMOTE, volume_id, luks, key)


def known_of_remote(tags: Iterable[str]) -> dict[str, tuple[str, str]]:
    """What the tags of a volume group say of what is passed through.

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
    """The file that has the key of a volume, sealed."""
    return volume_id + _SEALED


def volume_of_sealed(file: str) -> str:
    """The volume whose sealed key a file has; '' if it is no such file."""
    volume_id = file.removesuffix(_SEALED)
    return volume_id if file != volume_id and names.is_id(volume_id) else ''


def sealed_key(volume_id: str, key: str) -> str:
    """The name that it is sealed under.

    :param key: reference of the secret that it is made of
    """
    return 'localclone-%s-%s' % (
        volume_id, hashlib.sha256(key.encode()).hexdigest()[:16])


def directories(backend: str, paths: Iterable[str]) -> set[str]:
    """Return the tags of a volume group for where a backend keeps keys.

    :param backend: its section
    :param paths: of directories; one that no tag can have is left out
    """
    return {'%s%s=%s' % (_KEEPS, backend, path) for path in paths
            if _VALUE.fullmatch(path) and _VALUE.fullmatch(backend)}


def known_directories(backend: str, tags: Iterable[str]) -> set[str]:
    """Return the paths in such tags: where a backend keeps keys, or has."""
    begin = '%s%s=' % (_KEEPS, backend)
    return {tag.removeprefix(begin) for tag in tags if tag.startswith(begin)}
