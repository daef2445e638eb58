# SPDX-License-Identifier: Apache-2.0
"""Attachments in Cinder's database: what they say of pass-through."""

from collections.abc import Callable
from collections.abc import Collection
import json
import types
import typing

from cinder import context as cinder_context
from cinder import exception
from cinder import objects
import sqlalchemy

from cinder_localclone.core import attachments
from cinder_localclone.core import iscsi
from cinder_localclone.core import objects as core_objects
from cinder_localclone.db import clock
from cinder_localclone.db import moves


class AttachmentRecords:
    """The attachments of volumes that are passed through.

    :param is_at: whether a connector belongs to the node of a service host
    """

    def __init__(self, is_at: Callable[[core_objects.Connector, str], bool]):
        self._is_at = is_at

    def passed_to(self, host: str) -> list[core_objects.Volume]:
        """The volumes that a node passes through, by their attachments.

        :param host: its service host
        """
        context = cinder_context.get_admin_context()
        model = moves.models.VolumeAttachment
        with moves.main_context_manager.reader.using(context) as session:
            ids = {row.volume_id for row in session.query(model).filter_by(
                deleted=False).filter(
                    model.connection_info.like(
                        '%%%s%%' % iscsi.PASS))}
        found = []
        for volume_id in sorted(ids):
            try:
                volume = objects.Volume.get_by_id(context, volume_id)
            except exception.VolumeNotFound:
                continue  # it has just gone
            if any(self._passes(each, host)
                   for each in volume.volume_attachment):
                found.append(volume)
        return found

    def any_newer(self, ids: Collection[str], seconds: float) -> bool:
        """Return whether an attachment was made or changed recently.

        By the clock of the database: a node's own may be wrong. The host of
        Cinder's API has stamped when it was made, its home when it was
        changed: one of the two clocks may be behind.

        :param ids: of the attachments; one that is gone does not count
        :param seconds: for less than that
        """
        model = moves.models.VolumeAttachment
        with moves.main_context_manager.reader.using(
                cinder_context.get_admin_context()) as session:
            before = clock.ago(session, seconds)
            return session.query(model.id).filter_by(deleted=False).filter(
                model.id.in_(ids), sqlalchemy.or_(
                    model.created_at > before, model.updated_at > before)
            ).first() is not None

    def end_passing(self, volume_id: str, host: str) -> None:
        """A node does not pass a volume through any more."""
        self._rewrite(
            volume_id, lambda each: self._passes(each, host),
            attachments.without_export)

    def readdress(self, volume_id: str, iqn: str, portal: str) -> None:
        """Record where a volume is served by now under an iSCSI name.

        :param portal: address and port
        """
        self._rewrite(
            volume_id,
            lambda each: (each.connection_info or {}).get(
                'target_iqn') == iqn,
            lambda told: dict(told, target_portal=portal))

    @staticmethod
    @moves.retried
    def _rewrite(volume_id: str,
                 wanted: Callable[[core_objects.Attachment], bool],
                 change: Callable[[dict[str, typing.Any]],
                                  dict[str, typing.Any]]) -> None:
        """Change what attachments of a volume say of its connection.

        One that Cinder has changed before it is locked stays as it is: it
        was detached, or has another connection.

        :param wanted: which ones. It may ask other nodes, so it is called
            while no row is locked
        """
        context = cinder_context.get_admin_context()
        model = moves.models.VolumeAttachment
        with moves.main_context_manager.reader.using(context) as session:
            found = {
                row.id: (row.connector, row.connection_info)
                for row in session.query(model).filter_by(
                    volume_id=volume_id, deleted=False)}
        ids = [each for each, told in found.items()
               if wanted(_attachment(*told))]
        with moves.main_context_manager.writer.using(context) as session:
            for row in session.query(model).filter(
                    model.id.in_(ids)).filter_by(
                        deleted=False).with_for_update():
                if (row.connector, row.connection_info) == found[row.id]:
                    # Not by the object: that makes strings of all values.
                    row.connection_info = json.dumps(
                        change(json.loads(row.connection_info)))

    def _passes(self, attachment: core_objects.Attachment, host: str) -> bool:
        return attachments.passed_to(attachment, self._is_at, host) is not None


def _attachment(connector: str | None, connection_info: str | None
                ) -> core_objects.Attachment:
    """An attachment, by the columns of its row."""
    return types.SimpleNamespace(
        connector=connector and json.loads(connector),
        connection_info=connection_info and json.loads(connection_info))
