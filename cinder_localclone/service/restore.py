# SPDX-License-Identifier: Apache-2.0
"""Restoring this node's stacks at boot, from local facts alone.

Before Nova starts guests their volumes must be there, though neither the
database nor a peer may answer yet. What there is to restore is in the tags of
the logical volumes; how to log in to a source is in the iSCSI initiator's own
records, CHAP secret included. Nothing is created, and nothing is copied: that
is the volume service's to decide.
"""

from collections.abc import Collection, Mapping

from oslo_log import log as logging

from cinder_localclone.core import boot_plan
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.interfaces import storage
from cinder_localclone.core import names
from cinder_localclone.storage import iscsi_initiator

LOG = logging.getLogger(__name__)


def restore(lvm: storage.Lvm, handles: storage.Handles,
            clones: storage.Clones, sessions_: iscsi_initiator.Sessions
            ) -> list[tuple[boot_plan.Local, str]]:
    """Restore all that can be; one that fails does not stop the others.

    A volume that has a handle is left alone, but for the guard that its LV's
    tags ask for: the volume service may be at work on it. A boot takes no
    locks, so a handle that has appeared meanwhile is not swapped either.

    :returns: each volume with what is wrong with it, '' if nothing is; none
        that is newborn
    """
    present = handles.survey()
    here = [local for local in boot_plan.plan(present) if local.reason
            != boot_plan.UNCOMMITTED]
    here += _passed(sessions_, {local.volume_id for local in here})
    outcome = []
    for local in here:
        problem = local.reason
        has_handle = present.handle(local.volume_id) is not None
        if not problem and (local.header or not has_handle):
            try:
                if not has_handle:
                    _restore(lvm, handles, clones, sessions_, local,
                             present.lvs)
                _guard(handles, local)
            except exceptions.LocalCloneError as exc:
                problem = str(exc)
            except Exception as exc:
                LOG.exception('Volume %s was not restored.', local.volume_id)
                problem = '%s: %s' % (type(exc).__name__, exc)
        outcome.append((local, problem))
    return outcome


def _passed(sessions_: iscsi_initiator.Sessions, here: Collection[str]
            ) -> list[boot_plan.Local]:
    """What is passed through here, by the initiator's records.

    Not what this node has itself by now.
    """
    try:
        recorded = sessions_.recorded_remotes()
    except exceptions.LocalCloneError as exc:
        LOG.error('The records of the iSCSI initiator can\'t be read: %s',
                  exc)
        return []
    return [boot_plan.Local(volume_id, '', 0, remote=iqn)
            for volume_id, iqn in sorted(recorded.items())
            if volume_id not in here]


def _restore(lvm: storage.Lvm, handles: storage.Handles,
             clones: storage.Clones, sessions_: iscsi_initiator.Sessions,
             local: boot_plan.Local,
             lvs: Mapping[str, lvm_reports.LogicalVolume]) -> None:
    move = local.move
    if local.remote:
        handles.ensure_handle_on_disk(
            local.volume_id, sessions_.remote_from_records(
                local.volume_id, local.remote), swaps=False)
        return
    if move is None:
        handles.ensure_handle_on_lv(local.volume_id, local.lv, local.size,
                                    lvs, swaps=False)
        return
    for lv in (local.lv, names.metadata_lv(move.move_id)):
        lvm.activate(lv)
    disk = sessions_.login_from_records(move)
    clones.ensure_clone(move, disk)
    handles.ensure_handle_on_clone(move, swaps=False)


def _guard(handles: storage.Handles, local: boot_plan.Local) -> None:
    """What a guest gets of a volume that Nova encrypts.

    Of what is passed through here only its own first sectors tell. What
    turns out to be another kind of volume has another path; the volume
    service's first look removes the guard.
    """
    header = local.header
    if local.remote:
        try:
            header = handles.header_sectors(local.volume_id)
        except (encryption_exceptions.HeaderDamaged, FileNotFoundError):
            return  # without cryptsetup nothing here was ever encrypted
    if header:
        handles.ensure_guard(local.volume_id, header)
        handles.ensure_link(local.volume_id, names.guard(local.volume_id))
