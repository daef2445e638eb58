# SPDX-License-Identifier: Apache-2.0
"""Secrets, header backups and sealed keys without a volume.

The deletion of a volume removes its secret and its header backups. If the key
manager did not answer, or the backup was on another node, the operator's
command finds them by their names.

A node keeps sealed keys only of volumes that are in use there. A boot opens
volumes without their locks, so it may seal a key just after the volume service
has closed the volume, or the volume has moved away.
"""

from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import functools
import typing

from oslo_log import log as logging

from cinder_localclone.core import attachments
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import unlock

SECRET, BACKUP = 'secret', 'header backup'

LOG = logging.getLogger(__name__)


class Records(typing.Protocol):
    """What the database knows; see :mod:`.secrets`."""

    def secrets_of_all(self) -> set[str]:
        """References that any row names, whatever its backend."""

    def volumes_known(self, volume_ids: Collection[str]
                      ) -> tuple[set[str], set[str]]:
        """Ids of those that are there, and of those that were deleted."""


class Keys(typing.Protocol):
    """The key manager; see :mod:`.key_manager`."""

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


def remove(keys: Keys, crypt: crypt_interfaces.Crypt, left: Left) -> None:
    """Remove one of them.

    :raises LocalCloneError: if that fails; another run may succeed
    """
    if left.kind == SECRET:
        keys.release(left.name, 'volumes', left.volume_id)
        keys.remove(left.name, left.volume_id)
    else:
        crypt.drop_backups(left.volume_id)


def sweep_sealed_keys(node: Node) -> None:
    """Remove the keys of volumes that nobody uses here.

    A volume that fails does not stop the others; the next look tries again.
    """
    try:
        kept = node.crypt.sealed_volumes()
        unused = kept and kept - _in_use(node, kept)
    except exceptions.LocalCloneError as exc:
        LOG.error('This node removed no kept keys: it could not find out '
                  'which of them are still in use, will retry: %s',
                  exc)
        return
    for volume_id in sorted(unused):
        nodes.attempt(
            node, volume_id, functools.partial(_look_at, node, volume_id),
            functools.partial(events.failed, events.NOT_RECONCILED,
                              volume=volume_id))


def _look_at(node: Node, volume_id: str) -> None:
    volume = node.records.volume(volume_id)
    if ((volume is None or not _may_have_to_be_opened(node, volume))
            and not _in_use(node, {volume_id})):
        node.crypt.forget_sealed(volume_id)


def _may_have_to_be_opened(node: Node, volume: objects.Volume) -> bool:
    if not names.same_backend(volume.host, node.host):
        # Another service on this node may keep its keys there, too.
        return attachments.may_be_attached(volume) or any(
            node.is_at(each.connector, node.host)
            for each in volume.volume_attachment)
    if rows.is_home(volume, node.host):
        return devices.is_wanted(node, volume) is not False
    return nodes.connection_to(node, volume, node.host) is not None


def _in_use(node: Node, volume_ids: Iterable[str]) -> set[str]:
    """Those that are open on this node, or that a boot would open."""
    present = node.handles.survey()
    opened = unlock.known(present, node.crypt.passed())
    return {volume_id for volume_id in volume_ids
            if volume_id in opened or present.crypt(volume_id)}
