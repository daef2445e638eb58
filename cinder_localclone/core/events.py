# SPDX-License-Identifier: Apache-2.0
"""The stable lines in a service's log.

Each line begins with an id and has named facts. Ids and names of facts keep
their meaning; texts may be improved. The facts are also in the record's
``extra``, for oslo.log's JSON formatter. Each line is counted for
``cinder-localclone metrics``. Lines without an id are for debugging, and may
change.
"""

import collections
from collections.abc import Iterator
import contextlib
import dataclasses
import threading
import typing

from oslo_log import log as logging

from cinder_localclone.core import exceptions

LOG = logging.getLogger(__name__)

#: The beginning of each id.
PREFIX = 'localclone-'


@dataclasses.dataclass(frozen=True)
class Event:
    """A line of the log.

    :param number: the number in its id
    :param name: its name in the metrics
    :param level: info, warning or error
    :param text: with ``%(fact)s`` for each fact
    """

    number: int
    name: str
    level: str
    text: str

    @property
    def id(self) -> str:
        """The beginning of the line."""
        return '%s%d' % (PREFIX, self.number)


def _info(number: int, name: str, text: str) -> Event:
    return Event(number, name, 'info', text)


def _warning(number: int, name: str, text: str) -> Event:
    return Event(number, name, 'warning', text)


def _error(number: int, name: str, text: str) -> Event:
    return Event(number, name, 'error', text)


# -- moves

MOVE_BEGUN = _info(
    101, 'move_begun', 'The move of volume %(volume)s from %(source)s to '
    '%(destination)s begins (asked for by: %(asked_by)s; move record '
    '%(record)s).')
MOVE_COMMITTED = _info(
    102, 'move_committed', 'The home of volume %(volume)s is %(destination)s '
                           'now; its data will be copied from %(source)s '
                           '(asked for by: %(asked_by)s; move record '
                           '%(record)s).')
MOVE_COMPLETED = _info(
    103, 'move_completed', 'Volume %(volume)s is fully copied to '
    '%(destination)s; the source on %(source)s can be removed (asked for by: '
    '%(asked_by)s; move record %(record)s).')
MOVE_ROLLED_BACK = _warning(
    104, 'move_rolled_back', 'The move of volume %(volume)s from %(source)s '
    'to %(destination)s is rolled back: the volume stays on the source (asked '
    'for by: %(asked_by)s; move record %(record)s).')
SOURCE_REMOVED = _info(
    105, 'source_removed', 'A move of volume %(volume)s from this node has '
    'ended: the source on this node was removed.')
DESTINATION_REMOVED = _info(
    106, 'destination_removed', 'The failed move of volume %(volume)s was '
    'rolled back: all its devices and LVs on this node were removed.')
NOT_ROLLED_BACK = _error(
    107, 'move_not_rolled_back', 'The failed move of volume %(volume)s could '
                                 'not be rolled back. The next periodic check '
                                 'tries again.')
DESTINATION_LEFT = _warning(
    108, 'destination_left', 'The move of volume %(volume)s has failed; the '
    'destination %(host)s will remove its devices and LVs of the move later: '
    '%(error)s')
LIVE_GIVEN_UP = _info(
    109, 'live_migration_given_up', 'The live migration of volume %(volume)s '
    'to this node was cancelled: its move is rolled back.')
SOURCE_LEFT = _info(
    110, 'source_detached', 'Volume %(volume)s is no longer attached to this '
                            'node: %(host)s may copy it.')
DEFERRED_MOVE_BEGUN = _info(
    111, 'deferred_move_begun',
    'Volume %(volume)s moves to the node of its instance, %(host)s.')
DEFERRED_MOVE_FAILED = _warning(
    112, 'deferred_move_failed',
    'Volume %(volume)s could not be moved to the node of its instance, '
    '%(host)s. The instance continues to use the volume over the network. The '
    'next try is in %(seconds)d s: %(error)s')

# -- copies

COPYING = _info(
    201, 'copying', 'Volume %(volume)s is being copied from %(source)s: '
    '%(progress)s.')
CLONE_FAILED = _error(
    202, 'clone_failed', 'The clone of volume %(volume)s is in mode '
                         '"%(mode)s": its metadata or its disk failed. The '
                         'source is kept. Repair the disk. The clone is '
                         'rebuilt as soon as the volume is not in use: stop '
                         'its instance.')
COPYING_FAILS = _error(
    203, 'copying_fails', 'Copying volume %(volume)s fails: the source was '
    'read, but no region was copied. See dmesg for the failing disk. The '
    'source is kept; copying is tried again in %(seconds).0f s.')
STALLED = _warning(
    204, 'stalled', 'The copy of volume %(volume)s from %(source)s has made '
    'no progress for %(seconds)s s: other copies come first.')
COPIED_AGAIN = _error(
    205, 'copied_again', 'The thin pool of this node has lost %(size)d KiB of '
                         'the copied data of volume %(volume)s: they read as '
                         'zeros. %(copied)d KiB were copied from %(source)s '
                         'again, as they were when the volume moved. The rest '
                         'was overwritten meanwhile, at least in part, or '
                         'could not be copied now. Other writes to this node '
                         'may be lost as well: see dmesg, and check the file '
                         'systems.')
NOT_COMPARED = _warning(
    206, 'not_compared', 'The driver can\'t tell whether the thin pool of '
    'this node has lost data of the copy of volume %(volume)s, or can\'t copy '
    'lost data again. It tries again for at most %(seconds)d s. Then the copy '
    'continues or ends, and its source is removed. Only a known loss keeps '
    'the source until an operator accepts the loss: %(error)s')
UNCOMPARED = _error(
    207, 'uncompared', 'Volume %(volume)s counts as fully copied from '
    '%(source)s, and its source may be removed, although data may be missing. '
    'If a thin pool of this node has failed meanwhile (see dmesg), check the '
    'file systems of the volume: %(error)s')
ACCEPTED = _warning(
    208, 'accepted', 'The copy of volume %(volume)s from %(source)s ends '
                     'without the missing data: an operator has accepted its '
                     'loss. The source is removed.')

# -- connections

REQUESTED = _info(
    301, 'requested', 'Volume %(volume)s requested by host %(host)s: decision '
    '%(decision)s.')
NOT_DONE = _warning(
    302, 'not_done', 'The request for %(what)s %(uuid)s was not carried out '
    '(%(cause)s): %(error)s')
EXPORTS_DIFFER = _error(
    303, 'exports_differ', 'The exports of volume %(volume)s could not be '
    'brought in line with its attachments, will retry: %(error)s')
NOT_PASSED = _error(
    304, 'not_passed', 'The remote attachment of volume %(volume)s could not '
                       'be restored, will retry: %(error)s')
EXPORTED_AGAIN = _info(
    305, 'exported_again', 'Volume %(volume)s is exported to %(initiator)s '
    'again.')

# -- a node

NOT_READY = _error(
    401, 'not_ready', 'This node can\'t be the destination of a move: '
    '%(problem)s. Run "cinder-localclone doctor".')
OUTAGE = _error(
    402, 'outage', 'This node can take no volumes: %(problem)s')
NOT_RECONCILED = _error(
    403, 'not_reconciled', 'Reconciling volume %(volume)s failed, will '
    'retry: %(error)s')
PERIODIC_FAILED = _error(
    404, 'periodic_work_failed', 'Periodic work failed; it is tried again in '
    '%(seconds)s s.')
ENDED_FOR_DEAD = _warning(
    405, 'ended_for_a_dead_service', 'The volume service of this node stopped '
    'during an operation on volume %(volume)s. The status of the volume is '
    '"%(status)s" now.')
HOME_CORRECTED = _warning(
    407, 'home_corrected', 'Cinder had recorded %(host)s as the home of '
    'volume %(volume)s, but its data is on this node. The driver has '
    'corrected the record.')
DELETE_SENT_AGAIN = _warning(
    406, 'delete_sent_again', 'The request to delete volume %(volume)s has '
    'not reached this node, its home: the request is sent again.')

# -- encryption

REENCRYPTION_BEGINS = _info(
    501, 'reencryption_begun', 'The re-encryption of volume %(volume)s is '
                               'about to begin: %(cipher)s, %(bits)d bits.')
REENCRYPTION_GOES_ON = _info(
    502, 'reencryption_goes_on', 'The re-encryption of volume %(volume)s '
    'continues on this node.')
REENCRYPTION_ENDED = _info(
    503, 'reencryption_ended', 'The re-encryption of volume %(volume)s has '
    'ended: %(cipher)s, %(bits)d bits.')
REENCRYPTION_STOPPED = _error(
    504, 'reencryption_stopped', 'The re-encryption of volume %(volume)s has '
                                 'stopped, will retry: %(error)s')
REENCRYPTION_NOT_BEGUN = _error(
    506, 'reencryption_not_begun', 'The re-encryption of volume %(volume)s '
    'has not begun: its header and its data are unchanged. See the log of the '
    're-encryption for the cause, and start it again.')
NOT_OPEN = _error(
    505, 'not_open', 'The crypt device or header guard of volume %(volume)s '
                     'on this node could not be restored, will retry: '
                     '%(error)s')


def all_events() -> Iterator[Event]:
    """Return all events in the order of their numbers."""
    found = [each for each in globals().values() if isinstance(each, Event)]
    return iter(sorted(found, key=lambda each: each.number))


#: How often each event was logged, and each cause was reported to the owner of
#: a volume, since the start of this process.
_said: collections.Counter[str] = collections.Counter()
_refused: collections.Counter[str] = collections.Counter()
_counting = threading.Lock()


def say(event: Event, exc_info: bool = False, **facts: typing.Any) -> None:
    """Write an event to the log, and count it.

    :param exc_info: whether to add the traceback of the current exception
    :param facts: the facts in the text of the event
    """
    with _counting:
        _said[event.name] += 1
    plain = {name: fact if isinstance(fact, (str, int, float)) else str(fact)
             for name, fact in facts.items()}
    getattr(LOG, event.level)(
        '[%s] %s' % (event.id, event.text), facts, exc_info=exc_info,
        extra={'localclone': dict(plain, id=event.id, name=event.name)})


def failed(event: Event, error: Exception, **facts: typing.Any) -> None:
    """Write an event about an error to the log, and count it.

    The traceback is added unless the error is the driver's own.
    """
    say(event, exc_info=exceptions.is_unexpected(error), error=error, **facts)


@contextlib.contextmanager
def failure_logged(event: Event, **facts: typing.Any) -> Iterator[None]:
    """Log an error in the block as an event, and continue after the block."""
    try:
        yield
    except Exception as exc:  # of rtslib, and of configfs, too
        failed(event, exc, **facts)


def refused(cause: str) -> None:
    """Count the cause of a refused or failed request.

    :param cause: a key of :data:`.user_messages.MESSAGES`
    """
    with _counting:
        _refused[cause.lower()] += 1


def counts() -> dict[str, dict[str, int]]:
    """Return the counters of events and of refusals, by name.

    Every event has a counter, also at 0: a counter that begins at 1 hides the
    first occurrence from rate functions.
    """
    with _counting:
        return {'events': {each.name: _said[each.name]
                           for each in all_events()},
                'refusals': dict(_refused)}
