# SPDX-License-Identifier: Apache-2.0
"""Answers of Cinder for the placement of servers, cached briefly."""

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

#: Greatest number of remembered requests, and the seconds to remember them:
#: the time of a request in filters and weighers.
MOST_REQUESTS = 256
REQUEST_TIME = 10.0
#: Greatest number of concurrent calls to Cinder; further requests are placed
#: without Cinder's answer.
MOST_ASKING = 8

_Key: typing.TypeAlias = tuple[str, str]
_T = typing.TypeVar('_T')


class Storage(typing.Protocol):
    """The calls of :class:`.block_storage.BlockStorage`."""

    def backends(self) -> placement.Backends:
        """Return all backends of this driver, with their nodes."""

    def volumes(self, server: str, project: str
                ) -> Iterable[placement.Volume]:
        """Return the volumes of a server that its project owns."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Time limits, from the options of the same names (seconds)."""

    timeout: float
    retry_interval: float
    cache_time: float


class TooLong(Exception):
    """Cinder did not answer within the time limit."""


class Knowledge:
    """Cinder's answers, as far as they come in time.

    :param names: Cinder's host name by Nova's, where they differ
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
        """Return the outlook for a server; None if Cinder can't be asked.

        :param request: id of the request. Its first answer, or the lack of an
            answer, is reused for it, so the request waits only once
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
        except Exception as exc:  # whatever the error, scheduling goes on
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
        """Yield the outlook after each volume, and at the end."""
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
        """Return the last result within the time limit.

        This uses a separate thread: the time limits of the library apply to
        single answers, and do not cover name resolution. A late thread ends
        with its present answer, and then frees its slot.

        A server with very many volumes is placed by the volumes reported in
        time. Their number does not make Cinder unavailable for other servers.

        :raises TooLong: if there is no result in time
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
        except RuntimeError:  # there are too many threads
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
            'Cinder could not be asked for volumes. Servers are placed '
            'without regard to their volumes: %s', str(exc) or repr(exc))

    def _is_back(self) -> None:
        with self._lock:
            was_away, self._away_until = self._away_until is not None, None
        if was_away:
            LOG.info('Cinder answers again. Servers are placed on the nodes '
                     'with their volumes.')
