# SPDX-License-Identifier: Apache-2.0
"""Attachments in Cinder's database: what they say of pass-through."""

from collections.abc import Callable
import json

from cinder import context as cinder_context
from cinder import exception
from cinder import objects

from cinder_localclone import ports
from cinder_localclone import records
from cinder_localclone import served


class AttachmentRecords:
    """The attachments of volumes that are passed through.

    :param is_at: whether a connector belongs to the node of a service host
    """

    def __init__(self, is_at: Callable[[ports.Connector, str], bool]):
        self._is_at = is_at

    def passed_to(self, host: str) -> list[ports.Volume]:
        """The volumes that a node passes through, by their attachments.

        :param host: its service host
        """
        context = cinder_context.get_admin_context()
        model = records.models.VolumeAttachment
        with records.main_context_manager.reader.using(context) as session:
            ids = {row.volume_id for row in session.query(model).filter_by(
                deleted=False).filter(
                    model.connection_info.like('%pass-%'))}
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

    @records.retried
    def end_passing(self, volume_id: str, host: str) -> bool:
        """A node does not pass a volume through any more.

        :returns: whether an attachment said so
        """
        context = cinder_context.get_admin_context()
        volume = objects.Volume.get_by_id(context, volume_id)
        ids = [each.id for each in volume.volume_attachment
               if self._passes(each, host)]
        model = records.models.VolumeAttachment
        with records.main_context_manager.writer.using(context) as session:
            for row in session.query(model).filter(
                    model.id.in_(ids)).with_for_update():
                # Not by the object: that makes strings of all values.
                row.connection_info = json.dumps(served.without_export(
                    json.loads(row.connection_info)))
        return bool(ids)

    @records.retried
    def readdress(self, volume_id: str, iqn: str, portal: str) -> None:
        """Record where a volume is served by now under an iSCSI name.

        :param portal: address and port
        """
        context = cinder_context.get_admin_context()
        volume = objects.Volume.get_by_id(context, volume_id)
        ids = [each.id for each in volume.volume_attachment
               if (each.connection_info or {}).get('target_iqn') == iqn]
        model = records.models.VolumeAttachment
        with records.main_context_manager.writer.using(context) as session:
            for row in session.query(model).filter(
                    model.id.in_(ids)).with_for_update():
                row.connection_info = json.dumps(dict(
                    json.loads(row.connection_info), target_portal=portal))

    def _passes(self, attachment: ports.Attachment, host: str) -> bool:
        return served.passed_to(attachment, self._is_at, host) is not None
