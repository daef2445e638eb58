# SPDX-License-Identifier: Apache-2.0
"""Sets of Cinder's statuses, each with its purpose. Pure.

No other module has a set of statuses of its own. Where two sets differ in a
member, the comment has the reason. The files named write the status in
Cinder's source.
"""

#: A volume without any request at work, and without any attachment.
FREE = 'available'
#: A volume held by a move: Cinder's API refuses all other work on it. Cinder
#: itself sets this status for ``--lock-volume`` (volume/api.py).
HELD = 'maintenance'

# -- the stages of a volume's life

#: No user has the volume yet. While Cinder fills it with an image it is
#: "downloading", also after a failure, until it is created again
#: (volume/flows/api/create_volume.py, volume/flows/manager/create_volume.py).
BEING_CREATED = frozenset(('creating', 'downloading'))
#: The volume is being deleted, or a delete has failed: its LV may be gone
#: (volume/api.py, volume/manager.py).
BEING_DELETED = frozenset(('deleting', 'error_deleting'))
#: An unmanage is under way, or has failed: the LV may belong to another
#: program by now (volume/api.py, volume/manager.py).
BEING_UNMANAGED = frozenset(('unmanaging', 'error_unmanaging'))
#: A manage is under way, or has failed, or the failed volume is being deleted:
#: the LV in the row may not exist (volume/flows/api/manage_existing.py,
#: volume/flows/manager/manage_existing.py, volume/api.py).
BEING_MANAGED = frozenset((
    'managing', 'error_managing', 'error_managing_deleting'))
#: Between Cinder and another owner, either way: the driver leaves the LV, its
#: handle and its exports alone.
CHANGING_OWNER = BEING_MANAGED | BEING_UNMANAGED
#: A node is not compared with such a row: its devices need not be complete.
#: "error" is left by a failed creation (volume/flows/common.py), and by the
#: removal of a forgotten node (this driver).
NOT_COMPARED = BEING_CREATED | BEING_DELETED | CHANGING_OWNER | {'error'}

# -- uncommitted LVs

#: The row does not say whether Cinder has taken the volume: an attempt may
#: have left an LV, and so may an unfinished revert (volume/manager.py).
MAYBE_UNCOMMITTED = BEING_CREATED | {'reverting', 'error'}
#: No user gets the volume. During a delete no user does either, but the row
#: names the LV that Cinder has taken. So "deleting" is not in the set above.
NOT_GIVEN_OUT = MAYBE_UNCOMMITTED | {'deleting'}

# -- the users of a volume

#: Nova connects the volume. In other statuses (backing-up, downloading,
#: maintenance, ...) Cinder itself reads or writes it from any node. This is
#: never a reason to move (volume/api.py, db/api.py).
USED_BY_NOVA = frozenset(('reserved', 'attaching', 'in-use'))
#: Each user of the volume has an attachment. In other statuses Cinder itself
#: reads or writes without an attachment.
BY_ATTACHMENT = USED_BY_NOVA | {
    FREE, 'detaching', 'extending', 'error_extending', 'awaiting-transfer'}
#: A host without an attachment has no access to the volume. "attaching" is not
#: here: the client may have no attachment yet. "error" is here: no request is
#: at work, but a remote attachment may still be needed.
UNUSED_WITHOUT_ATTACHMENT = BY_ATTACHMENT - {'attaching'} | {'error'}
#: No host has the volume, and an operator may restore its header
#: (volume/api.py, volume/flows/common.py; for "maintenance" see :data:`HELD`).
DETACHED = frozenset((FREE, 'error', HELD))
#: Only a guest uses the volume: a re-encryption may begin or continue.
ONLY_A_GUEST = frozenset((FREE, 'in-use'))

# -- Cinder's own reads and writes

#: Cinder writes the entire volume, also its header if Nova encrypts it
#: (volume/flows/manager/create_volume.py, backup/api.py).
WRITTEN_BY_CINDER = frozenset(('downloading', 'restoring-backup'))
#: A backup may be written to the volume; "creating" if it is created from the
#: backup (backup/api.py).
RESTORED = frozenset(('creating', 'restoring-backup'))
#: An extension may reach the driver: of a volume, or of a new volume larger
#: than its source (volume/api.py).
EXTENDED = BEING_CREATED | {'extending'}

# -- headers of volumes that this driver encrypts

#: The volume has no header to back up yet, or loses it: also by a failed
#: creation ("error") or a revert. :data:`BEING_UNMANAGED` is not here: an
#: unmanage of an encrypted volume is refused, and its header stays.
WITHOUT_HEADER = BEING_CREATED | BEING_DELETED | BEING_MANAGED | {
    'error', 'reverting'}
#: No key may be added, changed or removed: the volume may get another header
#: at any moment, or be removed. "error" is not here: an operator restores the
#: header of these volumes, see :data:`DETACHED`.
HEADER_CHANGES = BEING_CREATED | BEING_DELETED | CHANGING_OWNER | {
    'reverting', 'restoring-backup'}

# -- statuses lost with a service

#: Only the service at work on the volume ends the status, so the status stays
#: if this service dies (volume/api.py sets, volume/manager.py ends it).
LOST_WITH_SERVICE = frozenset(('extending', 'reverting', 'retyping'))
#: With these statuses a service other than the home's may have been at work:
#: the service of the former home. A revert was complete when the home changed,
#: except for its row. An extension continues by a call of the home.
LOST_WITH_ANOTHER_SERVICE = LOST_WITH_SERVICE - {'retyping'}

# -- Cinder's own migration

#: Cinder's manager asks the driver to migrate a volume: available, locked, or
#: during a change of its type (volume/api.py).
MIGRATED = frozenset((FREE, HELD, 'retyping'))
#: Short-lived values of ``migration_status``, before and after the copy of
#: Cinder's own migration (volume/api.py, volume/manager.py).
MIGRATION_SHORT_STEPS = frozenset(('starting', 'completing'))
#: Values of ``migration_status`` of a volume without a migration by Cinder.
NO_MIGRATION = frozenset((None, '', 'none', 'success', 'error'))

# -- snapshots

#: The snapshot can be read, so its LV must exist (volume/manager.py,
#: backup/api.py).
SNAPSHOT_READABLE = frozenset(('available', 'backing-up'))
#: The snapshot's owner no longer has it: it was lost with its node (this
#: driver), or is being deleted (volume/api.py).
SNAPSHOT_GIVEN_UP = frozenset(('error', 'deleting'))
