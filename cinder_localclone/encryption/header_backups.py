# SPDX-License-Identifier: Apache-2.0
"""Keep header backups on the homes of their volumes.

A backup is made when a volume is created. The sweep does the rest. It makes
missing and outdated backups of volumes at rest on this node. It removes
backups of moved volumes after the new home has confirmed its own backup.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import functools

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import pinning
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import rotate

LOG = logging.getLogger(__name__)

#: The number of volumes in a sweep: of backups for which new homes are asked,
#: and of backups compared with headers.
ASKED = COMPARED = 20


class Sweep:
    """Makes missing backups, and replaces wrong backups.

    A backup may be older than the header if the volume was on another node
    meanwhile, or was reverted. Both give the volume another LV, so each LV is
    compared once. It is compared again if its backup was missing, or if its LV
    is marked because a key was removed.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        #: Volumes, with their LVs and keys, with correct backups.
        self._right: set[tuple[str, ...]] = set()
        #: The file system of these backups.
        self._place: tuple[int, int] | None = None
        #: The volumes compared last, and the volumes with homes asked last.
        self._compared: list[str] = []
        self._asked: list[str] = []

    def sweep(self) -> None:
        """Make, compare and remove backups; an error stops a single volume."""
        node = self._node
        if not node.crypt.keeps_backups():
            return
        place, there = (node.crypt.backup_space(),
                        set(node.crypt.backed_up_volumes()))
        # A backup directory that returns may hold older backups.
        self._right = {each for each in self._right if each[0] in there
                       and place == self._place}
        self._place = place
        home = {volume.id: volume
                for volume in node.volumes.volumes_of(node.host)
                if _is_encrypted(volume)}
        for volume_id in sorted(home.keys() - there):
            _attempt(node, volume_id, self._make)
        lvs = node.lvm.lvs() if home else {}
        for volume_id in self._next(
                (volume for volume_id, volume in home.items()
                 if volume_id in there), lvs):
            _attempt(node, volume_id, self._compare)
        self._asked = _turn(there - home.keys(), self._asked, ASKED)
        for volume_id in self._asked:
            _attempt(node, volume_id,
                     lambda each: _drop(node, each))

    def _next(self, volumes: Iterable[Volume],
              lvs: Mapping[str, lvm_reports.LogicalVolume]) -> list[str]:
        """Return the next volumes to compare."""
        self._compared = _turn((
            volume.id for volume in volumes
            if (_known(volume) not in self._right
                or rotate.is_outdated(lvs.get(volume.name)))
            and volume.status not in statuses.WITHOUT_HEADER),
            self._compared, COMPARED)
        return self._compared

    def _make(self, volume_id: str) -> None:
        node = self._node
        volume = _settled(node, volume_id)
        if volume:
            header = node.crypt.header(volume_id)
            pinning.check(volume_id, header,
                          pinning.recorded_in_row(volume.encryption))
            if not header.reencryption:  # can't be restored
                node.crypt.back_up(volume_id)

    def _compare(self, volume_id: str) -> None:
        node = self._node
        volume = _settled(node, volume_id)
        recorded = volume.encryption if volume else None
        if (volume is None or recorded is None
                or node.exports.remote().get(volume_id)):
            return
        header = node.crypt.header(volume_id)
        pinning.check(volume_id, header, pinning.recorded_in_row(recorded))
        if header.reencryption:
            return  # a backup is made after the re-encryption
        if (rotate.is_outdated(node.lvm.lvs().get(volume.name))
                or not _is_right(node, volume_id, header)):
            # Never from a header that is not the volume's own.
            own = header.tokens_with_role(luks_header.Role.VOLUME)
            if recorded.key not in (each.key for each in own):
                return
            rotate.renew_backup(node, volume)
            LOG.info('The header backup of volume %s did not match the '
                     'header; a new backup was made.',
                     volume_id)
        self._right.add(_known(volume))


def _turn(ids: Iterable[str], before: list[str], most: int) -> list[str]:
    """Return the IDs after the last batch, then from the beginning.

    :param most: maximum number of IDs
    """
    left, last = sorted(ids), before[-1] if before else ''
    return ([each for each in left if each > last]
            + [each for each in left if each <= last])[:most]


def _known(volume: Volume) -> tuple[str, ...]:
    """Return the values that change when a backup may become wrong."""
    return volume.id, volume.name, volume.provider_id or ''


def _is_right(node: Node, volume_id: str, header: luks_header.Header
              ) -> bool:
    """Return whether the backup of a volume matches its header."""
    try:
        return not any(headers.backup_problems(
            node, volume_id, header))
    except exceptions.LocalCloneError:  # the backup can't be read
        return False


def _is_encrypted(volume: Volume) -> bool:
    """Return whether a volume may have a backup; False if unreadable."""
    try:
        return bool(volume.encryption)
    except exceptions.NotPossible:
        return False


def _attempt(node: Node, volume_id: str,
             act: Callable[[str], None]) -> None:
    nodes.attempt(
        node, volume_id, functools.partial(act, volume_id),
        lambda exc: LOG.warning(
            'The header backup of volume %(volume)s was not updated, will '
            'retry: %(error)s', {'volume': volume_id, 'error': exc},
            exc_info=exceptions.is_unexpected(exc)))


def _settled(node: Node, volume_id: str) -> Volume | None:
    """Return a volume at rest on this node if it has a header."""
    volume = node.volumes.volume(volume_id)
    if (volume is not None and volume.home == node.host
            and volume.status not in statuses.WITHOUT_HEADER
            and node.moves.move_of(volume_id) is None
            and not volume.visible_id
            and node.handles.survey().handle(volume_id)):
        return volume
    return None


def _drop(node: Node, volume_id: str) -> None:
    """Remove the backup of a moved volume if its new home has a backup.

    "encryption leftover remove" removes the backups of volumes without a row.
    """
    volume = node.volumes.volume(volume_id)
    if (volume is None or not volume.host or volume.home == node.host
            or node.moves.move_of(volume_id) is not None
            or volume.name in node.lvm.lvs()):  # the row may be wrong
        return
    home = volume.home
    if rpc.call_at(home, has_backup, node, volume_id):
        node.crypt.drop_backups(volume_id)
        LOG.info('The header backup of volume %(volume)s is on %(host)s now; '
                 'the backup on this node was removed.',
                 {'volume': volume_id, 'host': home})


@rpc.method('has_header_backup', rpc.HOME, prompt=True)
def has_backup(node: Node, volume_id: str) -> bool:
    """Return whether this node has a header backup of a volume."""
    return volume_id in node.crypt.backed_up_volumes()
