# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone abort`` and ``resume``: settle a move by hand."""

import argparse

from cinder_localclone.cmd import base
from cinder_localclone import state


class Settle(base.VolumeCommand):
    """Base of the two: one call to the node that decides."""

    method = ''
    done = ''

    @staticmethod
    def decides(move: state.Move) -> str:
        """The service host that is asked."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The one row of the table."""
        backend = self.app.backend()
        _volume, move = backend.volume(parsed_args.volume)
        if move is None:
            raise base.CommandError(
                'Volume %s is not moving: it has no move. Nothing was '
                'changed.' % parsed_args.volume)
        host = self.decides(move)
        getattr(backend.peers, self.method)(
            backend.context, host, parsed_args.volume)
        return ('Volume', 'Where', 'What'), [
            (parsed_args.volume, host, self.done)]


class Abort(Settle):
    """Roll a move back, if that loses nothing.

    A move that is not committed, or a live move whose guest never left the
    source. Refused if the destination has the volume open or was written to.
    """

    method = 'abort'
    done = 'rolled back to its source; the destination is being cleaned up'

    @staticmethod
    def decides(move: state.Move) -> str:
        """Whoever has the volume now."""
        return move.destination if move.committed else move.source


class Resume(Settle):
    """Let the copy of a live move begin, although the source is attached.

    For a live migration whose detach of the source was lost. Refused while
    anything has the volume open on the source.
    """

    method = 'resume'
    done = 'the move continues'

    @staticmethod
    def decides(move: state.Move) -> str:
        """The source, which knows whether the volume is open there."""
        return (move.source if move.phase is state.Phase.STARTING
                else move.destination)
