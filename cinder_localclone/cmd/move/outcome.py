# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone move abort`` and ``complete``: end a live move.

An operator decides where the instance is, because its live migration was
interrupted: back to the source, or on to the destination.
"""

import argparse

from cinder_localclone.cmd import base
from cinder_localclone.core import state


class _Outcome(base.VolumeCommand):
    """Base of the sub-commands: a call to the deciding node."""

    method = ''
    done = ''

    @staticmethod
    def deciding_host(move: state.Move) -> str:
        """Return the service host to call."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the row of the table."""
        backend = self.app.backend()
        host = self.deciding_host(base.move_of(backend, parsed_args.volume))
        backend.call(host, self.method, parsed_args.volume)
        return ('Volume', 'Where', 'What'), [
            (parsed_args.volume, host, self.done)]


class Abort(_Outcome):
    """Roll a move back, if no data is lost.

    The move must be uncommitted, or a live move with its guest still on the
    source (phase "starting"). Refused, without any change, if the volume is
    open on the destination or was written there, or if the copy has begun.
    """

    example = 'move abort data'
    changes = 'records and devices of the move'
    method = 'abort'
    done = 'rolled back to its source; the destination is being cleaned up'

    @staticmethod
    def deciding_host(move: state.Move) -> str:
        """Return the current home of the volume."""
        return move.destination if move.committed else move.source


class Complete(_Outcome):
    """Complete a live move, if the detach from its source was lost.

    Run the command if the live migration has ended on the destination, but
    Cinder still has the attachment of the source. The source then counts as
    detached, and the copy starts. Refused while the volume is open on the
    source. In other phases the command acts as "volume repair" on the
    destination.
    """

    example = 'move complete data'
    changes = 'records and devices of the move'

    method = 'resume'
    done = 'the move continues'

    @staticmethod
    def deciding_host(move: state.Move) -> str:
        """Return the source, which knows whether the volume is open there."""
        return (move.source if move.phase is state.Phase.STARTING
                else move.destination)
