# SPDX-License-Identifier: Apache-2.0
"""What a user asks of a volume, and what they ask again after a fault.

An operation is prepared, run (the requests, each of which may fail) and
settled: whatever was refused or lost is asked again, as Nova or its user
would, until the goal is reached. Then every byte is proven.
"""

from lab.scenarios import encrypted
from lab.scenarios import extending
from lab.scenarios import following
from lab.scenarios import images
from lab.scenarios import leaving
from lab.scenarios import moves
from lab.scenarios import operation

MOVING = operation.MOVING
Operation = operation.Operation
Move = moves.Move
Completion = moves.Completion

OPERATIONS = {each.name: each for each in (
    moves.Move, moves.Completion, moves.LiveMove, moves.LiveMoveRolledBack,
    moves.DeleteWhileMoving, moves.MoveBack, images.TakeSnapshot,
    images.DeleteSnapshot, images.FromSnapshot, images.Clone, images.Revert,
    extending.Extend, extending.CompletionOfExtended, leaving.Migrate,
    leaving.Drain, following.Follow, encrypted.CreateEncrypted,
    encrypted.MoveEncrypted, encrypted.LiveMoveEncrypted,
    encrypted.DeleteEncrypted, encrypted.RotateEncrypted,
    encrypted.Reencrypt)}


def move_once(environment, disk, node, destination):
    """Move a volume that no guest uses, and wait for the end of it."""
    move = Move(environment, disk, node, destination)
    move.run()
    move.settle(())
    disk.detach(destination)
