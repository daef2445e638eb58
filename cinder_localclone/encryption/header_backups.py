# SPDX-License-Identifier: Apache-2.0
"""Backups of headers follow their volumes.

One is made where a volume is created. A look sees to the rest: a volume that
is at rest at its home has one there, of the header that it has, however both
have come; and what a node has left of one goes when the new home says that it
has its own.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import functools

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import pinning
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import rotate

LOG = logging.getLogger(__name__)

#: Of how many volumes a look asks their new homes; and of how many it compares
#: the backup with the header.
ASKED = COMPARED = 20


class Sweep:
    """Makes the backups that are missing here, and those that are not right.

    One that is here may be of a header that the volume has no more: it was
    somewhere else meanwhile, or was reverted. Then it has another LV than
    before, so each LV is looked at once; and again if its backup was away, or
    if it is marked, because a key has gone.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        #: Volumes, with their LVs and keys, whose backups were right.
        self._right: set[tuple[str, ...]] = set()
        #: Where these backups were.
        self._place: tuple[int, int] | None = None
        #: Those that were compared last, and those whose homes were asked.
        self._compared: list[str] = []
        self._asked: list[str] = []

    def sweep(self) -> None:
        """One volume that fails does not stop the others."""
        node = self._node
        if not node.crypt.keeps_backups():
            return
        place, there = (node.crypt.backup_space(),
                        set(node.crypt.backed_up_volumes()))
        # What comes back may be of before: their disk was away, say.
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

    def _next(self, volumes: Iterable[objects.Volume],
              lvs: Mapping[str, lvm_reports.LogicalVolume]) -> list[str]:
        """Those that it is the turn of to be compared."""
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
                          pinning.of_row(rows.recorded(volume)))
            if not header.reencryption:  # it could not be restored
                node.crypt.back_up(volume_id)

    def _compare(self, volume_id: str) -> None:
        node = self._node
        volume = _settled(node, volume_id)
        recorded = rows.recorded(volume) if volume else None
        if (volume is None or recorded is None
                or node.exports.remote().get(volume_id)):
            return
        header = node.crypt.header(volume_id)
        pinning.check(volume_id, header, pinning.of_row(recorded))
        if header.reencryption:
            return  # what comes after its end sees to it
        if (rotate.is_outdated(node.lvm.lvs().get(volume.name))
                or not _is_right(node, volume_id, header)):
            # Never by a header that is not the volume's own.
            if recorded.key not in (each.key for each in header.opened_by(
                    luks_header.Role.VOLUME)):
                return
            rotate.renew_backup(node, volume)
            LOG.info('The header backup of volume %s did not match the '
                     'header; a new backup was made.',
                     volume_id)
        self._right.add(_known(volume))


def _turn(ids: Iterable[str], before: list[str], most: int) -> list[str]:
    """Those whose turn it is, after those before.

    :param most: so many at a time
    """
    left, last = sorted(ids), before[-1] if before else ''
    return ([each for each in left if each > last]
            + [each for each in left if each <= last])[:most]


def _known(volume: objects.Volume) -> tuple[str, ...]:
    """What changes when the backups of a volume's header may be wrong."""
    return volume.id, volume.name, volume.provider_id or ''


def _is_right(node: Node, volume_id: str, header: luks_header.Header
              ) -> bool:
    """Whether the backup of a volume's header is of this one."""
    try:
        return not any(headers.wrong_with_backup(
            node, volume_id, header))
    except exceptions.LocalCloneError:  # it can't be read
        return False


def _is_encrypted(volume: objects.Volume) -> bool:
    """Whether there may be a backup; not known of what is not understood."""
    try:
        return bool(rows.recorded(volume))
    except exceptions.NotPossible:
        return False


def _attempt(node: Node, volume_id: str,
             act: Callable[[str], None]) -> None:
    nodes.attempt(
        node, volume_id, functools.partial(act, volume_id),
        lambda exc: LOG.warning(
            'The backup of the header of volume %(volume)s does not follow it '
            'yet, will retry: %(error)s', {'volume': volume_id, 'error': exc},
            exc_info=exceptions.is_unexpected(exc)))


def _settled(node: Node, volume_id: str) -> objects.Volume | None:
    """A volume that is at home here, all of it, and has a header."""
    volume = node.volumes.volume(volume_id)
    if (volume is not None and rows.is_home(volume, node.host)
            and volume.status not in statuses.WITHOUT_HEADER
            and node.moves.move_of(volume_id) is None
            and not rows.visible_id(volume)
            and node.handles.survey().handle(volume_id)):
        return volume
    return None


def _drop(node: Node, volume_id: str) -> None:
    """Of one that has no row, "encryption shred" sees to what is left."""
    volume = node.volumes.volume(volume_id)
    if (volume is None or not volume.host or rows.is_home(volume, node.host)
            or node.moves.move_of(volume_id) is not None):
        return
    home = names.service_host(volume.host)
    if rpc.at(home, has_backup, node, volume_id):
        node.crypt.drop_backups(volume_id)
        LOG.info('The header backup of volume %(volume)s is on %(host)s now; '
                 'the backup on this node was removed.',
                 {'volume': volume_id, 'host': home})


@rpc.method('has_header_backup', rpc.HOME, prompt=True)
def has_backup(node: Node, volume_id: str) -> bool:
    """Return whether a node has a backup of the header of a volume."""
    return volume_id in node.crypt.backed_up_volumes()
