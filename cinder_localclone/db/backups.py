# SPDX-License-Identifier: Apache-2.0
"""Backups in Cinder's database."""

from cinder import exception as cinder_exception
from cinder import objects
from cinder.objects import fields
from cinder.volume import volume_utils

from cinder_localclone.core import objects as core_objects
from cinder_localclone.db import base

_BACKING_UP = 'backing-up'


@base.retried
def end(backup: core_objects.Backup, error: Exception) -> None:
    """Set a backup that could not begin to error, and free its source.

    Cinder asks its volume manager by a cast (get_backup_device in
    volume/manager.py), so an error there reaches no caller. This function
    repeats the error handling of the backup manager (create_backup in
    backup/manager.py).

    :param backup: the backup
    :param error: the reason, recorded with the backup
    """
    admin = base.admin()
    try:
        if backup.snapshot_id:
            snapshot = objects.Snapshot.get_by_id(admin, backup.snapshot_id)
            if snapshot.status == _BACKING_UP:
                snapshot.status = fields.SnapshotStatus.AVAILABLE
                snapshot.save()
        else:
            volume = objects.Volume.get_by_id(admin, backup.volume_id)
            if volume.status == _BACKING_UP:
                volume.status = volume.previous_status
                volume.previous_status = 'error_backing-up'
                volume.save()
    except cinder_exception.NotFound:
        pass  # the source was deleted by force
    volume_utils.update_backup_error(backup, str(error))
