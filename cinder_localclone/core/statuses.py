# SPDX-License-Identifier: Apache-2.0
"""Sets of Cinder's statuses, each under the question that it answers. Pure.

No other module has a set of statuses of its own. Where two sets differ in a
member, the comment says why. Files are those of Cinder's source that write
the status.
"""

#: A volume that no request is at work on, and no host has attached.
FREE = 'available'
#: A volume that a move holds: Cinder's API refuses all other work on it.
#: Cinder itself sets it for ``--lock-volume`` (volume/api.py).
HELD = 'maintenance'

# -- where a volume is in its life

#: No user was given the volume yet. While Cinder fills it with an image it is
#: "downloading", also after that has failed, until it is created again
#: (volume/flows/api/create_volume.py, volume/flows/manager/create_volume.py).
BEING_CREATED = frozenset(('creating', 'downloading'))
#: The volume is being deleted, or a delete has failed: its LV may be gone
#: (volume/api.py, volume/manager.py).
BEING_DELETED = frozenset(('deleting', 'error_deleting'))
#: An unmanage is under way, or has failed: its LV may be another program's
#: (volume/api.py, volume/manager.py).
BEING_UNMANAGED = frozenset(('unmanaging', 'error_unmanaging'))
#: A manage is under way, or has failed, or its failed volume is being
#: deleted: the LV that the row names may not exist
#: (volume/flows/api/manage_existing.py, volume/flows/manager/
#: manage_existing.py, volume/api.py).
BEING_MANAGED = frozenset((
    'managing', 'error_managing', 'error_managing_deleting'))
#: Between Cinder and another owner, either way: the driver leaves the LV, its
#: handle and its exports alone.
CHANGING_OWNER = BEING_MANAGED | BEING_UNMANAGED
#: A node is not compared with such a row: nothing is expected to be right yet,
#: or any more. "error" is what a failed creation leaves
#: (volume/flows/common.py), and a forgotten node (this driver).
NOT_COMPARED = BEING_CREATED | BEING_DELETED | CHANGING_OWNER | {'error'}

# -- uncommitted LVs

#: The row does not say whether Cinder has taken the volume: an attempt may
#: have left an LV, as a revert that has not ended does (volume/manager.py).
MAYBE_UNCOMMITTED = BEING_CREATED | {'reverting', 'error'}
#: No user is given the volume. A delete is one of these, but it says that the
#: row names the LV that Cinder has taken, hence not of the set above.
NOT_GIVEN_OUT = MAYBE_UNCOMMITTED | {'deleting'}

# -- who uses a volume

#: Nova connects the volume. In others (backing-up, downloading, maintenance,
#: ...) Cinder itself reads or writes it, from any node: never a reason to
#: move (volume/api.py, db/api.py).
USED_BY_NOVA = frozenset(('reserved', 'attaching', 'in-use'))
#: Each user of the volume has an attachment. In others Cinder itself reads or
#: writes without one.
BY_ATTACHMENT = USED_BY_NOVA | {
    FREE, 'detaching', 'extending', 'error_extending', 'awaiting-transfer'}
#: A host without an attachment has nothing of the volume. Not "attaching":
#: the client that asked for it may have no attachment yet. But "error":
#: nothing is at work there, whereas a remote attachment may still be needed.
UNUSED_WITHOUT_ATTACHMENT = BY_ATTACHMENT - {'attaching'} | {'error'}
#: No host has the volume, and an operator may restore its header
#: (volume/api.py, volume/flows/common.py; "maintenance" see :data:`HELD`).
DETACHED = frozenset((FREE, 'error', HELD))
#: Nothing but a guest has to do with the volume: a re-encryption may begin
#: or continue.
ONLY_A_GUEST = frozenset((FREE, 'in-use'))

# -- what Cinder does with a volume's bytes

#: Cinder writes all of the volume, its header too if Nova encrypts it
#: (volume/flows/manager/create_volume.py, backup/api.py).
WRITTEN_BY_CINDER = frozenset(('downloading', 'restoring-backup'))
#: A backup may be written to the volume; "creating" if it is made of the
#: backup (backup/api.py).
RESTORED = frozenset(('creating', 'restoring-backup'))
#: An extension may reach the driver: of a volume, or of a new one that is
#: larger than its source (volume/api.py).
EXTENDED = BEING_CREATED | {'extending'}

# -- headers of volumes that this driver encrypts

#: The volume has no header to back up yet, or loses it: a failed creation
#: ("error") and a revert are among them. Not :data:`BEING_UNMANAGED`: an
#: unmanage of an encrypted volume is refused, and its header stays.
WITHOUT_HEADER = BEING_CREATED | BEING_DELETED | BEING_MANAGED | {
    'error', 'reverting'}
#: No key may be added, changed or removed: the volume may get another header
#: at any moment, or go. Not "error": an operator restores the header of such
#: a volume, see :data:`DETACHED`.
HEADER_CHANGES = BEING_CREATED | BEING_DELETED | CHANGING_OWNER | {
    'reverting', 'restoring-backup'}

# -- work that ends with its service

#: Only the service that is at work on the volume ends the status, so it stays
#: if that service dies (volume/api.py sets, volume/manager.py ends it).
LOST_WITH_SERVICE = frozenset(('extending', 'reverting', 'retyping'))
#: Those at which another service than the home's may have been at work: that
#: of the home before. A revert was done when the volume got another home, but
#: for what the row says. With an extension it goes on by asking the home.
LOST_WITH_ANOTHER_SERVICE = LOST_WITH_SERVICE - {'retyping'}

# -- Cinder's own migration

#: Cinder's manager asks the driver to migrate a volume: as it was, locked, or
#: because its type is changed (volume/api.py).
MIGRATED = frozenset((FREE, HELD, 'retyping'))
#: Values of ``migration_status`` before and after the copy of Cinder's own
#: migration (volume/api.py, volume/manager.py): no such value lasts.
MIGRATION_SHORT_STEPS = frozenset(('starting', 'completing'))
#: Values of ``migration_status`` of a volume that Cinder does not migrate.
NO_MIGRATION = frozenset((None, '', 'none', 'success', 'error'))

# -- snapshots

#: The snapshot can be read, so its LV must exist (volume/manager.py,
#: backup/api.py).
SNAPSHOT_READABLE = frozenset(('available', 'backing-up'))
#: The snapshot's owner has it no more: it was lost with its node (this
#: driver), or is being deleted (volume/api.py).
SNAPSHOT_GIVEN_UP = frozenset(('error', 'deleting'))
