# SPDX-License-Identifier: Apache-2.0
"""Waking copies that the I/O of guests has put to sleep."""

from collections.abc import Callable


class Waker:
    """Prompts the kernel to go on with copies.

    The kernel starts copying regions only while no guest I/O is in flight.
    If there is some when the last region under way is done, it checks again
    up to a second later (COMMIT_PERIOD in drivers/md/dm-clone-target.c), and
    a guest that does nothing but a few synchronous writes slows the copy to a
    twentieth. A message makes it check at once.

    :param send: ``send({shadow id: threshold})`` sends it to clones; returns
        the ids of those that are gone
    """

    def __init__(self, send: Callable[[dict[str, int]], list[str]]):
        self._send = send
        self._thresholds: dict[str, int] = {}

    def watch(self, shadow_id: str, threshold: int, copying: bool) -> None:
        """Note the state of a clone.

        :param threshold: regions that it copies at once
        :param copying: whether it is to be prompted from now on
        """
        if copying:
            self._thresholds[shadow_id] = threshold
        else:
            self._thresholds.pop(shadow_id, None)

    def wake(self) -> bool:
        """Prompt all copies that are under way.

        :returns: whether any of them is still there
        """
        if self._thresholds:
            for shadow_id in self._send(dict(self._thresholds)):
                self._thresholds.pop(shadow_id, None)
        return bool(self._thresholds)
