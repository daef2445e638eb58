# SPDX-License-Identifier: Apache-2.0
"""What other nodes, and hosts, have of this node's volumes: their exports.

Guests wait for them. So what is done here is local: it waits for no peer,
and trouble with one export keeps no other from being made.
"""

from collections.abc import Callable

from cinder_localclone import events
from cinder_localclone.moves import checks
from cinder_localclone.moves import offering
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import records
from cinder_localclone import rows
from cinder_localclone import served
from cinder_localclone import state
from cinder_localclone import tops


class Serving:
    """Makes, and ends, the exports that attachments and moves name."""

    def __init__(self, node: nodes.Node) -> None:
        self._node = node
        #: Ids of volumes whose exports are not as they should be, the one
        #: that was tried last at the end.
        self._unsettled: dict[str, None] = {}

    def settle(self, volume: ports.Volume, move: state.Move | None) -> None:
        """Serve the hosts whose attachments say so, and no others.

        A reboot ends exports; a detach that was lost leaves one behind.

        :param move: the volume's move, if one is under way
        :raises Exception: the first that one of them has failed with; of
            rtslib and of configfs, too
        """
        node, failures = self._node, list[Exception]()
        for each in served.wanted(volume, move, node.host,
                                  node.exports.portal):
            try:
                self._offer_again(volume, each)
            except Exception as exc:
                failures.append(exc)
        self._withdraw_unnamed(volume, move)
        if failures:
            raise failures[0]

    def _offer_again(self, volume: ports.Volume, to: served.Connection
                     ) -> None:
        if self._node.exports.offer_again(
                rows.handle_id(volume), to.initiator, to.properties,
                tops.served_path(self._node, volume)):
            events.say(events.EXPORTED_AGAIN, volume=volume.id,
                       initiator=to.initiator)

    def _withdraw_unnamed(self, volume: ports.Volume,
                          move: state.Move | None) -> None:
        node, handle_id = self._node, rows.handle_id(volume)
        unnamed = checks.unnamed_exports(node, volume, move)
        if unnamed and served.by_attachment(
                volume, records.is_migrated_by_cinder(volume)):
            # Of what has followed its instance nothing is offered any more.
            left = bool(move and move.follows and move.committed
                        and move.source == node.host)
            node.exports.withdraw_unnamed(
                handle_id, unnamed, at_once=left or served.is_idle(volume))
            node.stack.remove_served(handle_id)

    def try_to_settle(self, volume: ports.Volume, move: state.Move | None
                      ) -> None:
        """The same; what fails is told, and tried again."""
        self._unsettled.pop(volume.id, None)
        with offering.trouble_is_told(volume.id):
            try:
                self.settle(volume, move)
            except Exception:
                self._unsettled[volume.id] = None
                raise

    def try_again(self, converge: Callable[[str], None]) -> None:
        """What could not be settled, until one fails again.

        The others may have the same trouble, such as a target that hangs.
        """
        for volume_id in list(self._unsettled):
            self._unsettled.pop(volume_id, None)
            converge(volume_id)
            if volume_id in self._unsettled:
                return

    def as_source(self, move: state.Move, volume: ports.Volume | None
                  ) -> bool:
        """What others have through the source of a move.

        :returns: whether the handle stays, for an instance here or elsewhere
        :raises LocalCloneError: if there is no device to be offered
        """
        node = self._node
        stays = bool(move.keeps_handle or volume is not None and served.wanted(
            volume, move, node.host, node.exports.portal))
        if stays:
            node.stack.ensure_handle_on_lv(
                move.volume_id, move.source_lv, move.size_bytes)
        if move.committed:
            offering.offer(node, move)
        if volume is not None:
            self.try_to_settle(volume, move if move.committed else None)
        return stays

    def differ(self, volume: ports.Volume, remote: set[str],
               unfinished: Callable[[], set[str]]) -> bool:
        """Whether a volume at rest has other exports than attachments name.

        :param remote: iSCSI names of those that it has
        :param unfinished: says which of all serve nobody
        """
        at = self._node.host, self._node.exports.portal
        wanted = {each.iqn for each in served.wanted(volume, None, *at)}
        return bool(wanted - remote or wanted and wanted & unfinished()
                    or served.unnamed(volume, None, *at, remote))
