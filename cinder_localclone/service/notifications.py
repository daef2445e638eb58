# SPDX-License-Identifier: Apache-2.0
"""The milestones of a move: in the log, and as Cinder's notifications.

Notifications are sent where Cinder sends its own
(``[oslo_messaging_notifications] driver``), as ``volume.move.begin``,
``.commit``, ``.complete`` and ``.roll_back``. Nothing depends on them, so a
failed notification is lost. They contain no connections, because connections
have credentials.
"""

import typing

from cinder import context as cinder_context
from cinder import rpc
from oslo_log import log as logging

from cinder_localclone.core import events
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume

LOG = logging.getLogger(__name__)

#: The number of retries while the bus is away. By default the bus retries
#: until it is back, and a move would wait.
RESENDS = 1
LINES = {state.Milestone.BEGUN: events.MOVE_BEGUN,
         state.Milestone.COMMITTED: events.MOVE_COMMITTED,
         state.Milestone.COMPLETED: events.MOVE_COMPLETED,
         state.Milestone.ROLLED_BACK: events.MOVE_ROLLED_BACK}


def event_type(milestone: state.Milestone) -> str:
    """Return the event type of a notification."""
    return 'volume.move.' + milestone.value


def payload(move: state.Move, volume: Volume | None) -> dict[str, typing.Any]:
    """Return the payload of a notification. Pure.

    The fields of the volume are as in Cinder's own notifications.

    :param volume: None if the volume does not exist any more
    """
    said: dict[str, typing.Any] = {
        'volume_id': move.volume_id, 'move_id': move.move_id,
        'source_host': move.source, 'destination_host': move.destination,
        'asked_by': move.asked_by.value, 'size': move.size_gib}
    if volume is not None:
        said.update(
            tenant_id=volume.project_id, user_id=volume.user_id,
            display_name=volume.display_name, status=volume.status,
            host=volume.host, availability_zone=volume.availability_zone,
            volume_type=volume.volume_type_id, size=volume.size)
    return said


class Notices:
    """Reports the milestones of moves.

    :param host: this service's host, without pool
    """

    def __init__(self, host: str, volumes: records.Volumes):
        self._host = host
        self._volumes = volumes

    def tell(self, milestone: state.Milestone, move: state.Move) -> None:
        """Report a milestone of a move; raise nothing."""
        try:
            events.say(LINES[milestone], volume=move.volume_id,
                       source=move.source, destination=move.destination,
                       asked_by=move.asked_by.value, record=move.move_id)
            self._notify(milestone, move)
        except Exception as exc:  # an error of any kind must not stop the move
            LOG.warning('No notification was sent of a move of volume '
                        '%(volume)s: %(error)s',
                        {'volume': move.volume_id, 'error': exc})

    def _notify(self, milestone: state.Milestone, move: state.Move) -> None:
        notifier = rpc.get_notifier('volume', self._host)
        if not notifier:  # notifications are disabled
            return
        notifier.prepare(retry=RESENDS).info(
            cinder_context.get_admin_context(), event_type(milestone),
            payload(move, self._volumes.volume(move.volume_id)))
