# SPDX-License-Identifier: Apache-2.0
"""What is known for placing a server: asked for once, and never for long."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import threading
import time
import typing

from oslo_log import log as logging

from cinder_localclone.nova import placement

LOG = logging.getLogger(__name__)

#: Most requests that are remembered, and for how many seconds: as long as one
#: is on its way through filters and weighers.
MOST_REQUESTS = 256
REQUEST_TIME = 10.0
#: Most that ask Cinder at one time; what comes beyond that goes without.
MOST_ASKING = 8

_Key: typing.TypeAlias = tuple[str, str]
_T = typing.TypeVar('_T')


class Storage(typing.Protocol):
    """As :class:`.block_storage.BlockStorage`."""

    def backends(self) -> placement.Backends:
        """The nodes of all backends of this driver."""

    def volumes(self, server: str, project: str
                ) -> Iterable[placement.Volume]:
        """The volumes of a server that are its project's."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """As the options of the same names."""

    timeout: float
    retry_interval: float
    cache_time: float


class TooLong(Exception):
    """Cinder takes longer than scheduling may wait."""


class Knowledge:
    """What Cinder says, as far as it says it in time.

    :param names: Cinder's name of a host, by Nova's, where they differ
    """

    def __init__(self, storage: Storage, limits: Limits,
                 names: Mapping[str, str],
                 clock: Callable[[], float] = time.monotonic):
        self._storage = storage
        self._limits = limits
        self._names = names
        self._clock = clock
        self._lock = threading.Lock()
        self._asking = threading.BoundedSemaphore(MOST_ASKING)
        self._requests: collections.OrderedDict[
            _Key, tuple[float, placement.Outlook | None]] = (
                collections.OrderedDict())
        self._backends: tuple[float, placement.Backends] | None = None
        self._away_until: float | None = None

    def outlook(self, request: str, server: str, project: str
                ) -> placement.Outlook | None:
        """What is known for a server; None if Cinder can't be asked.

        :param request: its id; what was asked for one is kept for it, even
            that there was no answer: it waits once
        """
        key, now = (request, server), self._clock()
        with self._lock:
            known = self._requests.get(key)
            if known and now - known[0] < REQUEST_TIME:
                return known[1]
            if self._away_until is not None and now < self._away_until:
                return None
        if not self._asking.acquire(blocking=False):
            return None
        found = None
        try:
            found = self._in_time(lambda: self._ask(server, project))
        except Exception as exc:  # whatever it is, scheduling goes on
            self._is_away(exc)
        else:
            self._is_back()
        with self._lock:
            self._requests[key] = self._clock(), found
            while len(self._requests) > MOST_REQUESTS:
                self._requests.popitem(last=False)
        return found

    def _ask(self, server: str, project: str
             ) -> Iterator[placement.Outlook]:
        """What is known after each volume, and in the end."""
        backends = self._known_backends()
        volumes: tuple[placement.Volume, ...] = ()
        if backends:
            for volume in self._storage.volumes(server, project):
                if volume.backend in backends:
                    volumes += (volume,)
                yield placement.Outlook(volumes, backends, self._names)
        yield placement.Outlook(volumes, backends, self._names)

    def _known_backends(self) -> placement.Backends:
        known = self._backends
        if known and self._clock() - known[0] < self._limits.cache_time:
            return known[1]
        backends = self._storage.backends()
        self._backends = self._clock(), backends
        return backends

    def _in_time(self, ask: Callable[[], Iterable[_T]]) -> _T:
        """The last result of asking that there is in time.

        In a thread of its own: the library's time limits are those of single
        answers, and none is of looking up a name. A thread that is late ends
        with the answer it waits for, and gives back its turn.

        A server with very many volumes is placed by those that were told of
        in time. That Cinder has not told of all of them does not make it
        away for others.

        :raises TooLong: if there is none in time
        """
        results: list[_T] = []
        error: list[Exception] = []
        done, late = threading.Event(), threading.Event()

        def work() -> None:
            try:
                for each in ask():
                    results.append(each)
                    if late.is_set():
                        break
            except Exception as exc:
                error.append(exc)
            finally:
                self._asking.release()
                done.set()
        try:
            threading.Thread(target=work, daemon=True,
                             name='localclone-placement').start()
        except RuntimeError:  # there are too many
            self._asking.release()
            raise
        if not done.wait(self._limits.timeout):
            late.set()
            if not results:
                raise TooLong(
                    'no answer within %g s' % self._limits.timeout)
        elif error:
            raise error[0]
        return results[-1]

    def _is_away(self, exc: Exception) -> None:
        with self._lock:
            first = self._away_until is None
            self._away_until = self._clock() + self._limits.retry_interval
        (LOG.warning if first else LOG.debug)(
            'Servers are placed without regard to where their volumes are: '
            'Cinder can\'t be asked: %s', str(exc) or repr(exc))

    def _is_back(self) -> None:
        with self._lock:
            was_away, self._away_until = self._away_until is not None, None
        if was_away:
            LOG.info('Cinder answers again: servers are placed where their '
                     'volumes are.')
