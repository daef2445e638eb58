# SPDX-License-Identifier: Apache-2.0
"""Restore this node's device stacks at boot, from local facts alone.

Volumes must exist before Nova starts guests, even if neither the database nor
a peer answers yet. The tags of the logical volumes tell which volumes to
restore. The iSCSI initiator's own records contain the logins to the sources,
with their CHAP secrets. Nothing is created or copied: the volume service
decides about this later.
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
    """Restore all volumes; an error stops one volume only.

    A volume with a handle is unchanged, except for a header guard in the tags
    of its LV: the volume service may be acting on it. A boot takes no locks,
    so a handle created meanwhile is not reloaded either.

    :returns: each volume with its problem, or ''; without uncommitted LVs
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
    """Return the remotely attached volumes by the initiator's records.

    Volumes with an LV on this node are left out.
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
    """Create the header guard of a volume that Nova encrypts.

    A remotely attached volume is recognised by its own first sectors. If these
    belong to another kind of volume, the first sweep of the volume service
    removes the guard.
    """
    header = local.header
    if local.remote:
        try:
            header = handles.header_sectors(local.volume_id)
        except (encryption_exceptions.HeaderDamaged, FileNotFoundError):
            return  # without cryptsetup, no volume here is encrypted
    if header:
        handles.ensure_guard(local.volume_id, header)
        handles.ensure_link(local.volume_id, names.guard(local.volume_id))
