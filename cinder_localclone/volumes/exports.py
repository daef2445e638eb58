# SPDX-License-Identifier: Apache-2.0
"""Exports of this node's volumes to other nodes and hosts.

Guests wait for them, so making an export needs this node alone: no peer, no
key manager and no other volume. If an export fails, the others are still made.
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
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import devices
from cinder_localclone.moves import source
from cinder_localclone.volumes import quick_check

LOG = logging.getLogger(__name__)

#: An error that all volumes may share, the target included. Each attempt waits
#: until its time limit.
_SHARED = exceptions.CommandTimeout
#: Errors with a lasting cause: only the sweep of the whole node tries again.
_LASTING = exceptions.MissingData, exceptions.NotPossible


class Exporting:
    """Makes and ends the exports of attachments and moves."""

    def __init__(self, node: Node) -> None:
        self._node = node
        #: Errors of volumes with missing exports, by volume id, the latest
        #: attempt last. None: other work held the volume's lock.
        self._failed: dict[str, Exception | None] = {}
        #: Errors of a volume's exports at its last check, by volume id.
        self._differing: dict[str, str] = {}

    def troubles(self) -> list[str]:
        """Return the reasons why exports differ from the attachments."""
        return ['the exports of volume %s: %s' % each
                for each in sorted(self._differing.items())]

    # -- local work

    def sweep(self, volume_ids: Iterable[str]) -> set[str]:
        """Make the missing exports of these volumes, if the data is local.

        Errors are logged, and :meth:`try_again` tries again.

        :returns: the volumes with an error, passing or lasting; not a volume
            whose lock was taken
        """
        failed = set()
        for volume_id in volume_ids:
            self._try(volume_id)
            if volume_id in self._differing:
                failed.add(volume_id)
        return failed

    def forget_all_but(self, volume_ids: Iterable[str]) -> None:
        """Forget the errors of all volumes except these."""
        self._differing = {key: what for key, what in self._differing.items()
                           if key in set(volume_ids)}

    def try_again(self) -> None:
        """Try the failed volumes again, until an error all volumes may share.

        For example, the target may hang.
        """
        for volume_id in list(self._failed):
            if isinstance(self._try(volume_id), _SHARED):
                return

    def _try(self, volume_id: str) -> Exception | None:
        """Make the exports of a volume; return its passing error, if any."""
        self._begin(volume_id)
        try:
            with self._node.try_lock(volume_id), self._noting(volume_id):
                self._export(volume_id)
        except exceptions.Busy:  # other work may have its lock
            self._failed[volume_id] = None
        return self._failed.get(volume_id)

    def _begin(self, volume_id: str) -> None:
        """Forget the errors of a volume."""
        self._failed.pop(volume_id, None)
        self._differing.pop(volume_id, None)

    @contextlib.contextmanager
    def _noting(self, volume_id: str) -> Iterator[None]:
        """Log an error of a volume's exports, and note it for later."""
        try:
            yield
        except Exception as exc:  # rtslib and configfs raise other types
            if not isinstance(exc, _LASTING):
                self._failed[volume_id] = exc
            self._differing[volume_id] = str(exc)
            events.failed(events.EXPORTS_DIFFER, exc, volume=volume_id)

    def _export(self, volume_id: str) -> None:
        volume = self._node.volumes.volume(volume_id)
        move = self._node.moves.move_of(volume_id)
        if move and move.source == self._node.host:
            self.make_for_source(move, volume)
        elif (volume is not None and volume.home == self._node.host
              and self._wanted(volume, move)
              and self._has_handle(volume, move)):
            self.export(volume, move)

    def _wanted(self, volume: Volume, move: state.Move | None
                ) -> list[attachments.Connection]:
        return attachments.to_export(volume, move, nodes.exporter(self._node))

    def _lost(self, volume: Volume, move: state.Move | None
              ) -> list[attachments.Connection]:
        found = attachments.with_stale_export(volume, move,
                                              nodes.exporter(self._node))
        # After a deferred move to this node, the attachment may still record
        # the remote connection.
        own = found and nodes.connection_to(
            self._node, volume, self._node.host)
        return [each for each in found if each != own]

    def _has_handle(self, volume: Volume, move: state.Move | None) -> bool:
        """Ensure a volume's handle; return whether it can be exported.

        Does nothing and returns False if this needs another node or another
        lock.
        """
        left_alone = (quick_check.is_being_deleted if move
                      else quick_check.is_left_alone)
        if volume.visible_id or left_alone(volume, self._node.handles.survey):
            return False  # a copy of Cinder's migration needs another lock
        handles = self._node.handles
        if move and move.phase is not state.Phase.COMPLETING:
            return survey.Survey({}, handles.devices(survey.names_of(
                volume.id, move.move_id))).is_handle_on_clone(move)
        if move:
            ensure_handle_on_all(self._node, move)
        else:
            ensure_handle_at_rest(self._node, volume, handles.survey())
        return True

    def make_for_source(self, move: state.Move, volume: Volume | None) -> bool:
        """Make the devices and the exports of a move's source.

        :returns: whether the handle stays, for an instance here or elsewhere
        :raises LocalCloneError: the first error of its devices; errors of
            exports are logged, and tried again
        """
        # A guest back on this node uses the volume remotely, from its new
        # home.
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

    def _export_handle(self, move: state.Move, volume: Volume | None) -> None:
        """Make the handle at the source, and its exports.

        :param volume: its row, if other hosts use the handle; else None
        """
        if not move.keeps_handle and self._has_foreign_handle(move):
            return  # attached here, but not recorded yet
        self._node.handles.ensure_handle_on_lv(
            move.volume_id, move.source_lv, move.size_bytes)
        if volume is not None:
            with self._noting(move.volume_id):
                self.export(volume, move)

    def _has_foreign_handle(self, move: state.Move) -> bool:
        """Return whether the handle is on a disk of another node.

        LVM is only asked if the handle is not on the source LV.
        """
        name = names.handle(move.volume_id)
        handle = self._node.handles.devices([name]).get(name)
        return bool(handle and not survey.is_on(
            handle, self._node.lvm.number_of(move.source_lv))) and (
                self._node.handles.survey().is_handle_foreign(move.volume_id))

    # -- a volume whose lock is held

    def export(self, volume: Volume, move: state.Move | None) -> None:
        """Make the exports that the volume's attachments name.

        The handle must exist. A reboot ends exports.

        :param move: the volume's move, if it has any
        :raises Exception: the first error, after all exports were tried;
            rtslib and configfs raise other types, too
        """
        _do_all(volume.id, [
            *(functools.partial(self._export_again, volume, each)
              for each in self._wanted(volume, move)),
            *(functools.partial(_refuse, volume, each)
              for each in self._lost(volume, move))])

    def reconcile(self, volume: Volume, move: state.Move | None) -> None:
        """Make the exports that the attachments name, and withdraw all others.

        A lost detach leaves an export behind. Because guests wait for a
        missing export, it is tried again later even if this call fails.

        :raises Exception: as :meth:`export`
        """
        self._failed.pop(volume.id, None)
        try:
            self.export(volume, move)
        except Exception as exc:
            if not isinstance(exc, _LASTING):
                self._failed[volume.id] = exc
            raise
        finally:
            self._withdraw_unnamed(volume, move)

    def try_to_reconcile(self, volume: Volume, move: state.Move | None
                         ) -> None:
        """Make and withdraw exports; log errors, and note them for later."""
        self.try_to_export(volume, move)
        self.try_to_withdraw(volume, move)

    def try_to_export(self, volume: Volume, move: state.Move | None) -> None:
        """As :meth:`export`, but log errors, and note them for later."""
        self._begin(volume.id)
        with self._noting(volume.id):
            self.export(volume, move)

    def try_to_withdraw(self, volume: Volume, move: state.Move | None) -> None:
        """Withdraw all exports that no attachment names; log errors."""
        with events.failure_logged(
                events.EXPORTS_DIFFER, volume=volume.id):
            self._withdraw_unnamed(volume, move)

    def _export_again(self, volume: Volume, to: attachments.Connection
                      ) -> None:
        portal = self._node.exports.portal_for(to.portal)
        if self._node.exports.export_again(
                volume.handle_id, to.initiator,
                dict(to.properties, target_portal=portal),
                devices.ensure_exported_path(self._node, volume)):
            events.say(events.EXPORTED_AGAIN, volume=volume.id,
                       initiator=to.initiator)
        if portal != to.portal:
            # The node that uses it logs in to this address at its next check.
            self._node.attachments.readdress(volume.id, to.iqn, portal)

    def _withdraw_unnamed(self, volume: Volume,
                          move: state.Move | None) -> None:
        node, handle_id = self._node, volume.handle_id
        unnamed = nodes.unnamed_exports(node, volume, move)
        if unnamed and attachments.names_all_users(volume):
            # After a deferred move the source needs no export any more.
            left = bool(move and move.is_deferred and move.committed
                        and move.source == node.host)
            node.exports.withdraw_unnamed(handle_id, unnamed, at_once=left
                                          or attachments.is_idle(volume))
        if not volume.visible_id:  # its lock is held
            # Also after an export that ended before the service was killed.
            node.handles.remove_export_device(handle_id)

    # -- quick check

    def needs_work(self, volume: Volume, remote: set[str],
                   unfinished: Callable[[], set[str]]) -> bool:
        """Return whether an export of a volume at rest needs work.

        :param remote: iSCSI names of its exports
        :param unfinished: returns the iSCSI names of this node's incomplete
            exports
        """
        found, portal_for = self._wanted(volume, None), (
            self._node.exports.portal_for)
        wanted = {each.iqn for each in found}
        return bool(wanted - remote or wanted and wanted & unfinished()
                    or any(portal_for(each.portal) != each.portal
                           for each in found)
                    or self._lost(volume, None))

    def differ(self, volume: Volume, remote: set[str],
               unfinished: Callable[[], set[str]],
               present: survey.Survey, tried: bool = False) -> bool:
        """Return whether a volume's exports differ from its attachments.

        :param remote: as for :meth:`needs_work`
        :param unfinished: as for :meth:`needs_work`
        :param present: the devices and LVs of this node
        :param tried: whether making its missing exports has just failed
        """
        device = present.export_device(volume.handle_id)
        return bool(
            device and not device.opened  # its export has ended
            or attachments.exports_without_attachment(
                volume, None, nodes.exporter(self._node),
                remote)
            or not tried and self.needs_work(volume, remote, unfinished))


def ensure_handle_at_rest(node: Node, volume: Volume,
                          present: survey.Survey) -> None:
    """Ensure that the handle of a volume at rest is on its whole LV.

    :param present: the devices and LVs of this node
    :raises MissingData: if its LV is gone, or its copy was never completed
    """
    check_no_lost_record(node, volume, present)
    node.handles.ensure_handle_on_lv(
        volume.id, volume.name, volume.backing_bytes(), present.lvs)


def ensure_handle_on_all(node: Node, move: state.Move) -> None:
    """Ensure that the handle is on the LV, after the copy is complete."""
    node.handles.ensure_handle_on_lv(
        move.volume_id, move.destination_lv, move.volume_bytes)


def _refuse(volume: Volume, to: attachments.Connection) -> None:
    """Explain how to repair an export at an address that is gone.

    :raises NotPossible: always
    """
    raise exceptions.NotPossible(
        volume=volume.id, reason='%s uses it at %s, an address which the node '
        'has lost. Give the node this address again, or detach the volume '
        'from the host and attach it again.' % (
            to.initiator, to.portal))


def _do_all(volume_id: str, parts: Iterable[Callable[[], Any]]) -> None:
    """Call all functions, even if some fail.

    :raises Exception: the first error
    """
    failure: Exception | None = None
    for part in parts:
        try:
            part()
        except Exception as exc:
            if failure:
                LOG.error('Another export of volume %(volume)s has failed, '
                          'too: %(error)s',
                          {'volume': volume_id, 'error': exc})
            failure = failure or exc
    if failure:
        raise failure


def check_no_lost_record(node: Node, volume: Volume, present: survey.Survey
                         ) -> None:
    """Check that no metadata LV of a lost move record is left.

    Otherwise some regions may still be at an unknown source.

    :param present: the devices and LVs of this node
    :raises MissingData: if a metadata LV is left
    """
    if present.metadata(volume.name_id):
        raise exceptions.MissingData(
            what='The move record', volume=volume.id, host=node.host)
