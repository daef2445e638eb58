# SPDX-License-Identifier: Apache-2.0
"""Secrets and backups of headers that have outlived their volumes.

A volume's end removes both. What it could not remove, because the key manager
did not answer or the backup was on another node, is found by its name.
"""

from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import typing

from cinder_localclone import crypt_ports

SECRET, BACKUP = 'secret', 'header backup'


class Records(typing.Protocol):
    """What the database knows; see :mod:`.secret_records`."""

    def secrets_of_all(self) -> set[str]:
        """References that any row names, whatever its backend."""

    def volumes_known(self, volume_ids: Collection[str]
                      ) -> tuple[set[str], set[str]]:
        """Ids of those that are there, and of those that were deleted."""


class Keys(typing.Protocol):
    """The key manager; see :mod:`.keys`."""

    def of_volumes(self) -> list[tuple[str, str]]:
        """References of secrets, each with the id of its volume."""

    def release(self, key: str, kind: str, resource_id: str) -> None:
        """A volume uses a secret no more."""

    def remove(self, key: str, volume_id: str = '') -> None:
        """Delete a secret."""


@dataclasses.dataclass(frozen=True)
class Left:
    """Something whose volume is gone.

    :param kind: a secret, or the backups of a header
    :param name: the reference of the secret; '' of backups
    :param known: whether this database knows that the volume was deleted. Of
        one that it does not know, another cloud may know more
    """

    kind: str
    name: str
    volume_id: str
    known: bool


def find(records: Records, keys: Keys | None, backups: Iterable[str] = ()
         ) -> list[Left]:
    """All that is left.

    The database is asked last: what a volume needs it has a row for before.

    :param keys: None: secrets are not looked for
    :param backups: ids of the volumes of whose headers this node has any
    """
    listed = [(SECRET, key, volume_id) for key, volume_id in (
        keys.of_volumes() if keys else ())]
    listed += [(BACKUP, '', volume_id) for volume_id in sorted(backups)]
    if not listed:
        return []
    there, deleted = records.volumes_known(
        {volume_id for _kind, _name, volume_id in listed})
    in_use = records.secrets_of_all()
    return [Left(kind, name, volume_id, volume_id in deleted)
            for kind, name, volume_id in listed
            if volume_id not in there and name not in in_use - {''}]


def remove(keys: Keys, crypt: crypt_ports.Crypt, left: Left) -> None:
    """Remove one of them.

    :raises LocalCloneError: if that fails; another run may succeed
    """
    if left.kind == SECRET:
        keys.release(left.name, 'volumes', left.volume_id)
        keys.remove(left.name, left.volume_id)
    else:
        crypt.drop_backups(left.volume_id)
