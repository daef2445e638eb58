# SPDX-License-Identifier: Apache-2.0
"""What a user asks of a volume, and asks again after a fault.

Used by the matrix of faults, which stops the services at each step of an
operation: ``moves``, ``images`` (snapshots, volumes that are made of them or
of volumes, going back), ``extending``, ``leaving`` (Cinder's migration, a
drain), ``following``, ``encrypted``, and ``third_party`` with a host that does
not run the backend.
"""

from lab.scenarios.repeated import deferred
from lab.scenarios.repeated import encrypted
from lab.scenarios.repeated import extending
from lab.scenarios.repeated import images
from lab.scenarios.repeated import leaving
from lab.scenarios.repeated import moves

#: By name, in the order in which the matrix shows them.
OPERATIONS = {each.name: each for each in (
    moves.Move, moves.Completion, moves.LiveMove, moves.LiveMoveRolledBack,
    moves.DeleteWhileMoving, moves.MoveBack, images.TakeSnapshot,
    images.DeleteSnapshot, images.FromSnapshot, images.Clone, images.Revert,
    extending.Extend, extending.CompletionOfExtended, leaving.Migrate,
    leaving.Drain, deferred.DeferredMove, encrypted.CreateEncrypted,
    encrypted.MoveEncrypted, encrypted.LiveMoveEncrypted,
    encrypted.DeleteEncrypted, encrypted.RotateEncrypted,
    encrypted.Reencrypt)}
