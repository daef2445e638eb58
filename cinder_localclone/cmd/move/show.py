# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone move show``: the moves of a volume."""

import argparse
from collections.abc import Iterator
import typing

from cinder_localclone.cmd import base
from cinder_localclone.cmd.move import listing
from cinder_localclone.core import errors
from cinder_localclone.core import state


class Show(base.VolumeCommand):
    """Show the move of a volume, with its progress and its records.

    Ended moves with a pending cleanup follow. "volume show" compares the
    devices on the nodes with the records.
    """

    example = 'move show data'

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return a row for each value."""
        backend = self.app.backend()
        backend.volume(parsed_args.volume)  # raises, if there is none
        found = listing.with_rows(
            backend, lambda move: move.volume_id == parsed_args.volume)
        if not found:
            raise errors.CommandError(
                'Volume %s is not moving.' % parsed_args.volume)
        return ('Field', 'Value'), [
            each for move, row in found for each in (
                *row.items(), *_records(move))]


def _records(move: state.Move) -> Iterator[tuple[str, typing.Any]]:
    yield 'Committed', move.committed
    yield 'Source LV', move.source_lv
    yield 'Destination LV', move.destination_lv
    yield 'Region KiB', move.token.geometry.region_sectors // 2
    yield 'Record', move.move_id
