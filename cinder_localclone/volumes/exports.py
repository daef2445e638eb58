# SPDX-License-Identifier: Apache-2.0
"""What other nodes, and hosts, have of this node's volumes: their exports.

Guests wait for them. So what is offered here is local: it waits for no peer,
no key manager and no other volume, and trouble with one export keeps no
other from being made.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import functools
from typing import Any

from oslo_log import log as logging

from cinder_localclone.core import attachments
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.encryption import devices
from cinder_localclone.moves import source
from cinder_localclone.volumes import quick_check

LOG = logging.getLogger(__name__)

#: What may be the matter with all volumes, and is waited for each time: of
#: the target, too.
_SHARED = exceptions.CommandTimeout
#: What does not pass by itself: only the looks at the whole node try again.
_LASTING = exceptions.MissingData, exceptions.NotPossible


class Exporting:
    """Makes, and ends, the exports that attachments and moves name."""

    def __init__(self, node: Node) -> None:
        self._node = node
        #: What was the matter with volumes of which not all is offered, by
        #: id, the one that was tried last at the end; None if another had
        #: its lock.
        self._unsettled: dict[str, Exception | None] = {}
        #: What was the matter with exports of a volume when that was last
        #: looked at, by its id.
        self._differing: dict[str, str] = {}

    def troubles(self) -> list[str]:
        """Return what keeps exports from being as attachments say."""
        return ['the exports of volume %s: %s' % each
                for each in sorted(self._differing.items())]

    # -- what is local

    def sweep(self, volume_ids: Iterable[str]) -> set[str]:
        """What others have of these volumes is offered, as far as it is here.

        What fails is told, and tried again by :meth:`try_again`.

        :returns: those that are to be tried again
        """
        return {volume_id for volume_id in volume_ids
                if self._try(volume_id)}

    def forget_all_but(self, volume_ids: Iterable[str]) -> None:
        """Say nothing more of volumes that have nothing here any more."""
        self._differing = {key: what for key, what in self._differing.items()
                           if key in set(volume_ids)}

    def try_again(self) -> None:
        """The same for those that failed, until one fails that all may have.

        Such as a target that hangs.
        """
        for volume_id in list(self._unsettled):
            if isinstance(self._try(volume_id), _SHARED):
                return

    def _try(self, volume_id: str) -> Exception | None:
        """:returns: what is the matter, if something is"""
        self._begin(volume_id)
        try:
            with self._node.try_lock(volume_id), self._noting(volume_id):
                self._export(volume_id)
        except exceptions.Busy:  # with something else, perhaps
            self._unsettled[volume_id] = None
        return self._unsettled.get(volume_id)

    def _begin(self, volume_id: str) -> None:
        """Nothing is known to be the matter with a volume."""
        self._unsettled.pop(volume_id, None)
        self._differing.pop(volume_id, None)

    @contextlib.contextmanager
    def _noting(self, volume_id: str) -> Iterator[None]:
        """What fails is told, and tried again."""
        try:
            yield
        except Exception as exc:  # of rtslib, and of configfs, too
            if not isinstance(exc, _LASTING):
                self._unsettled[volume_id] = exc
            self._differing[volume_id] = str(exc)
            events.failed(events.EXPORTS_DIFFER, exc, volume=volume_id)

    def _export(self, volume_id: str) -> None:
        volume = self._node.volumes.volume(volume_id)
        move = self._node.moves.move_of(volume_id)
        if move and move.source == self._node.host:
            self.as_source(move, volume)
        elif (volume is not None and rows.is_home(volume, self._node.host)
              and self._wanted(volume, move)
              and self._has_handle(volume, move)):
            self.export(volume, move)

    def _wanted(self, volume: objects.Volume, move: state.Move | None
                ) -> list[attachments.Connection]:
        return attachments.wanted(volume, move, nodes.as_told(self._node))

    def _lost(self, volume: objects.Volume, move: state.Move | None
              ) -> list[attachments.Connection]:
        found = attachments.lost(volume, move, nodes.as_told(self._node))
        # What has just come here, its attachment may still say.
        own = found and nodes.connection_to(
            self._node, volume, self._node.host)
        return [each for each in found if each != own]

    def _has_handle(self, volume: objects.Volume, move: state.Move | None
                    ) -> bool:
        """Whether a volume's handle, if need be made now, is on what is here.

        Not if that needs more than this node has.
        """
        left_alone = (quick_check.is_being_deleted if move
                      else quick_check.is_left_alone)
        if rows.visible_id(volume) or left_alone(
                volume, self._node.handles.survey):
            return False  # what Cinder copies into needs another lock, too
        handles = self._node.handles
        if move and move.phase is not state.Phase.COMPLETING:
            return survey.Survey({}, handles.devices(survey.names_of(
                volume.id, move.move_id))).handle_is_on_clone(move)
        if move:
            ensure_handle_on_all(self._node, move)
        else:
            ensure_handle_at_rest(self._node, volume, handles.survey())
        return True

    def as_source(self, move: state.Move, volume: objects.Volume | None
                  ) -> bool:
        """What others have through the source of a move.

        :returns: whether the handle stays, for an instance here or elsewhere
        :raises LocalCloneError: the first of its devices that can't be made;
            trouble with exports is told, and tried again
        """
        # A guest that has come back has it from where the volume has gone.
        is_exported = bool(volume is not None and self._wanted(volume, move)
                           and not nodes.connection_to(
            self._node, volume, self._node.host))
        stays = move.keeps_handle or is_exported
        parts = list[Callable[[], Any]]()
        self._begin(move.volume_id)
        if move.committed:
            parts.append(functools.partial(self._export_source, move))
        if stays:
            parts.append(functools.partial(
                self._export_handle, move, volume if is_exported else None))
        _do_all(move.volume_id, parts)
        return stays

    def _export_source(self, move: state.Move) -> None:
        self._node.handles.ensure_source(move)
        with self._noting(move.volume_id):
            source.export(self._node, move)

    def _export_handle(self, move: state.Move, volume: objects.Volume | None
                       ) -> None:
        """:param volume: its row, if others have it through its handle"""
        if not move.keeps_handle and self._has_foreign_handle(move):
            return  # attached here, but not recorded yet
        self._node.handles.ensure_handle_on_lv(
            move.volume_id, move.source_lv, move.size_bytes)
        if volume is not None:
            with self._noting(move.volume_id):
                self.export(volume, move)

    def _has_foreign_handle(self, move: state.Move) -> bool:
        """LVM is only asked if the handle is not where it should be."""
        name = names.handle(move.volume_id)
        handle = self._node.handles.devices([name]).get(name)
        return bool(handle and not survey.is_on(
            handle, self._node.lvm.number_of(move.source_lv))) and (
                self._node.handles.survey().is_handle_foreign(move.volume_id))

    # -- one volume, whose lock is held

    def export(self, volume: objects.Volume, move: state.Move | None) -> None:
        """Serve the hosts whose attachments say so; the handle is here.

        A reboot ends exports.

        :param move: the volume's move, if one is under way
        :raises Exception: the first that one of them has failed with; of
            rtslib and of configfs, too
        """
        _do_all(volume.id, [
            *(functools.partial(self._export_again, volume, each)
              for each in self._wanted(volume, move)),
            *(functools.partial(_refuse, volume, each)
              for each in self._lost(volume, move))])

    def settle(self, volume: objects.Volume, move: state.Move | None) -> None:
        """Serve the hosts whose attachments say so, and no others.

        A detach that was lost leaves an export behind. Guests wait for what
        can't be offered: it is tried again, whoever has asked.

        :raises Exception: as :meth:`export`
        """
        self._unsettled.pop(volume.id, None)
        try:
            self.export(volume, move)
        except Exception as exc:
            if not isinstance(exc, _LASTING):
                self._unsettled[volume.id] = exc
            raise
        finally:
            self._withdraw_unnamed(volume, move)

    def try_to_reconcile(self, volume: objects.Volume, move: state.Move | None
                         ) -> None:
        """The same; what fails is told, and tried again."""
        self.try_to_export(volume, move)
        self.try_to_withdraw(volume, move)

    def try_to_export(self, volume: objects.Volume, move: state.Move | None
                      ) -> None:
        """As :meth:`export`; what fails is told, and tried again."""
        self._begin(volume.id)
        with self._noting(volume.id):
            self.export(volume, move)

    def try_to_withdraw(self, volume: objects.Volume, move: state.Move | None
                        ) -> None:
        """Serve no others; what fails is told."""
        with events.failure_logged(
                events.EXPORTS_DIFFER, volume=volume.id):
            self._withdraw_unnamed(volume, move)

    def _export_again(self, volume: objects.Volume, to: attachments.Connection
                      ) -> None:
        portal = self._node.exports.portal_for(to.portal)
        if self._node.exports.export_again(
                rows.handle_id(volume), to.initiator,
                dict(to.properties, target_portal=portal),
                devices.exported_path(self._node, volume)):
            events.say(events.EXPORTED_AGAIN, volume=volume.id,
                       initiator=to.initiator)
        if portal != to.portal:
            # The node that uses it logs in there with its next check.
            self._node.attachments.readdress(volume.id, to.iqn, portal)

    def _withdraw_unnamed(self, volume: objects.Volume,
                          move: state.Move | None) -> None:
        node, handle_id = self._node, rows.handle_id(volume)
        unnamed = nodes.unnamed_exports(node, volume, move)
        if unnamed and attachments.by_attachment(
                volume, rows.is_migrated_by_cinder(volume)):
            # Of what has followed its instance nothing is offered any more.
            left = bool(move and move.is_deferred and move.committed
                        and move.source == node.host)
            node.exports.withdraw_unnamed(handle_id, unnamed, at_once=left
                                          or attachments.is_idle(volume))
        if not rows.visible_id(volume):  # of which the lock is held
            # Also of an export that has ended before this service was killed.
            node.handles.remove_export_device(handle_id)

    # -- at a glance

    def lacks(self, volume: objects.Volume, remote: set[str],
              unfinished: Callable[[], set[str]]) -> bool:
        """Whether a volume at rest is not offered to all that have it.

        :param remote: iSCSI names of the exports that it has
        :param unfinished: says which of all serve nobody
        """
        found, portal_for = self._wanted(volume, None), (
            self._node.exports.portal_for)
        wanted = {each.iqn for each in found}
        return bool(wanted - remote or wanted and wanted & unfinished()
                    or any(portal_for(each.portal) != each.portal
                           for each in found)
                    or self._lost(volume, None))

    def differ(self, volume: objects.Volume, remote: set[str],
               unfinished: Callable[[], set[str]],
               present: survey.Survey, tried: bool = False) -> bool:
        """Whether it has other exports than its attachments name.

        :param present: what there is on this node
        :param tried: whether what it lacks was just tried, in vain
        """
        device = present.export_device(rows.handle_id(volume))
        return bool(
            device and not device.opened  # its export has ended
            or attachments.unnamed(volume, None, nodes.as_told(self._node),
                                   remote)
            or not tried and self.lacks(volume, remote, unfinished))


def ensure_handle_at_rest(node: Node, volume: objects.Volume,
                          present: survey.Survey) -> None:
    """The handle of a volume that does not move is on all of its LV.

    :param present: what there is on this node
    :raises MissingData: if its LV is gone, or was still being copied to
    """
    check_arrived(node, volume, present)
    node.handles.ensure_handle_on_lv(
        volume.id, volume.name, rows.backing_bytes(volume), present.lvs)


def ensure_handle_on_all(node: Node, move: state.Move) -> None:
    """The handle of a volume whose copy is complete is on its LV."""
    node.handles.ensure_handle_on_lv(
        move.volume_id, move.destination_lv, move.volume_bytes)


def _refuse(volume: objects.Volume, to: attachments.Connection) -> None:
    """Say of what no node can make any more how it can be mended.

    :raises NotPossible: always
    """
    raise exceptions.NotPossible(
        volume=volume.id, reason='%s uses it at %s, an address that this node '
        'does not have any more. Give the node that address again, or detach '
        'the volume from that host and attach it again.' % (
            to.initiator, to.portal))


def _do_all(volume_id: str, parts: Iterable[Callable[[], Any]]) -> None:
    """One that fails keeps no other from being done.

    :raises Exception: the first
    """
    failure: Exception | None = None
    for part in parts:
        try:
            part()
        except Exception as exc:
            if failure:
                LOG.error('Another export of volume %(volume)s is not as it '
                          'should be, either: %(error)s',
                          {'volume': volume_id, 'error': exc})
            failure = failure or exc
    if failure:
        raise failure


def check_arrived(node: Node, volume: objects.Volume,
                  present: survey.Survey) -> None:
    """Nothing is left of a move to here whose record is gone.

    Of such a volume regions may still be at a source that nothing names.

    :param present: what there is on this node
    :raises MissingData: if there is
    """
    if present.metadata(volume.name_id):
        raise exceptions.MissingData(
            what='The move record', volume=volume.id, host=node.host)
