# SPDX-License-Identifier: Apache-2.0
"""What re-encrypts the volumes of one backend on this node.

A process for each; see :mod:`.privileged.runner`.
"""

from oslo_log import log as logging

from cinder_localclone.luks import progress
from cinder_localclone.privileged import runner

LOG = logging.getLogger(__name__)

#: Seconds that a re-encryption gets to pause: those who wait for that have an
#: answer to give before localclone_peer_timeout.
STOPPING = 20


class Runner:
    """:class:`.crypt_ports.Runner`, in processes that outlive this one.

    :param backend: section of the backend
    :param timeout: limit of each command, seconds
    :param resilience: how a run outlives a power cut, unless asked otherwise
    """

    def __init__(self, backend: str, timeout: float, resilience: str):
        self.backend = backend
        self.timeout = timeout
        self.resilience = resilience
        self._ends = False

    def obstacle(self) -> str:
        """Say why nothing can be re-encrypted on this node; '' if it can."""
        return runner.obstacle()

    def start(self, volume_id: str) -> None:
        """Have a volume re-encrypted; its header says how.

        Not while the service ends: its next start has it go on.

        :raises CannotReencrypt: if the end of the service would kill it
        """
        if self._ends:
            return
        runner.start(volume_id, self.backend, self.timeout)

    def stop(self, volume_id: str) -> bool:
        """Have that pause; whether it has, within a limited time."""
        return runner.stop(volume_id, STOPPING)

    def end(self) -> None:
        """Have all pause that may be killed when the service has ended.

        Where systemd runs the node they are units, which outlive it.
        """
        self._ends = True
        for volume_id in runner.stop_sessions(STOPPING):
            LOG.error('The re-encryption of volume %(volume)s has not paused '
                      'within %(seconds)d s. If it is killed now, I/O of the '
                      'volume stays suspended.', {
                          'volume': volume_id, 'seconds': STOPPING})

    def is_running(self, volume_id: str) -> bool:
        """Whether a volume is being re-encrypted, or is about to be."""
        return runner.is_running(volume_id)

    def progress(self, volume_id: str) -> progress.Progress | None:
        """What was said last of how far it is."""
        return progress.last(runner.said(volume_id))
