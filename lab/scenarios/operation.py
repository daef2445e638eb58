# SPDX-License-Identifier: Apache-2.0
"""What all operations on a volume have."""


class Operation:
    """One operation on one volume: prepared, requested, proven.

    There are two kinds, by what may happen meanwhile. While something breaks
    it is asked for until it is done (:mod:`.repeated`); in a situation that
    lasts it is asked for once, and works, waits or is refused
    (:mod:`.once`). Both send the same requests (:mod:`.requests`) and prove
    the same volume (:mod:`.disk`).

    :param disk: the volume
    """

    #: By which it is known.
    name = ''

    def __init__(self, environment, disk):
        self.environment = environment
        self.lab = environment.lab
        self.disk = disk

    def prepare(self):
        """Bring about the state in which it begins."""

    @property
    def request(self):
        """What is asked of Cinder, of those that have one request: one
        :class:`.requests.Request`, always the same.
        """
        raise NotImplementedError('%s has no single request' % self.name)
