# SPDX-License-Identifier: Apache-2.0
"""Decide how a volume is connected: a pure function over plain values."""

from collections.abc import Sequence
import dataclasses
import enum

from cinder_localclone.core import exceptions
from cinder_localclone.core import state
from cinder_localclone.core import statuses


class Verdict(str, enum.Enum):
    """How a volume is connected."""

    LOCAL = 'local'
    MOVE = 'move'
    LIVE_MOVE = 'live-move'
    REMOTE_ATTACHMENT = 'remote attachment'
    REMOTE = 'remote'
    REFUSE = 'refuse'


@dataclasses.dataclass(frozen=True)
class Attachment:
    """An attachment of the volume.

    :param instance: instance UUID; None for Cinder's own attachments
    :param host: host in its connector; None before it is connected
    """

    instance: str | None
    host: str | None


@dataclasses.dataclass(frozen=True)
class Request:
    """The input of a decision.

    :param status: the volume's status
    :param home: service host of the volume's home
    :param node: service host of the connecting node; None for a host without
        this backend
    :param connector_host: the connecting host's name, if known
    :param initiator: the connecting host's iSCSI name, if it has any
    :param attachments: all attachments, the connecting attachment included
    :param move: the volume's move; None if it has no unfinished move
    :param pinned: the reason why the volume must stay on its home, if any
    :param by_cinder: whether Cinder's own migration or retype uses the volume
    :param remote_error: raised instead of exporting the volume to a host
        outside this backend for an instance. Such a host could write to an
        encrypted volume without bounds
    :param cold_error: raised instead of letting two nodes use the volume: only
        its home opens an authenticated volume
    """

    status: str
    home: str
    node: str | None
    connector_host: str | None
    initiator: str | None
    attachments: Sequence[Attachment] = ()
    move: state.Move | None = None
    pinned: str | None = None
    by_cinder: bool = False
    remote_error: type[exceptions.Refused] | None = None
    cold_error: type[exceptions.Refused] | None = None


@dataclasses.dataclass(frozen=True)
class Decision:
    """How a volume is connected, and why.

    :param reason: in words, if the verdict needs a reason
    :param error: raised for a refused connection
    """

    verdict: Verdict
    reason: str = ''
    error: type[exceptions.Refused] = exceptions.Refused

    def __str__(self) -> str:
        return self.verdict.value + (
            ' (%s)' % self.reason.rstrip('.') if self.reason else '')


#: The statuses in which no host gets the volume, with the operation in
#: progress. Its LV may be gone already, or belong to another owner; and an
#: export would keep the LV in use.
GOING = {**dict.fromkeys(statuses.BEING_DELETED, 'deleted'),
         **dict.fromkeys(statuses.BEING_UNMANAGED, 'unmanaged')}


def decide(request: Request) -> Decision:
    """Decide how a volume is connected."""
    found = _decide(request)
    if request.cold_error and found.verdict in (
            Verdict.LIVE_MOVE, Verdict.REMOTE_ATTACHMENT):
        return Decision(
            Verdict.REFUSE, 'it is authenticated: it moves only while it is '
            'detached%s.' % (', and %s' % found.reason.rstrip('.')
                             if found.reason else ''), request.cold_error)
    return found


def _decide(request: Request) -> Decision:
    """Decide for a volume that two nodes may use at the same time.

    Only attachments show a live migration, never the status: a second
    attachment of the same instance while its first attachment, on another
    host, has a connector.
    """
    if request.status in GOING:
        return Decision(
            Verdict.REFUSE, 'it is being %s.' % GOING[request.status])
    elsewhere = [a for a in request.attachments
                 if a.host and a.host != request.connector_host]
    mine = {a.instance for a in request.attachments
            if a.instance and a.host in (None, request.connector_host)}
    by_instance = mine and request.status in statuses.USED_BY_NOVA
    if by_instance and any(a.instance not in mine for a in elsewhere):
        return Decision(
            Verdict.REFUSE, 'it is attached to another instance on %s.'
            % elsewhere[0].host, exceptions.AttachedElsewhere)
    if request.by_cinder and not by_instance and request.move:
        # Cinder gives the rows another home after its copy. Neither end of the
        # move would find them again.
        return _under_way(request.move)
    if request.move and request.move.phase is state.Phase.STARTING:
        # Without the other attachment the live migration has ended, but its
        # guest may still write at the source.
        left = request.move.committed and not elsewhere
        if left or not by_instance:
            return _under_way(request.move)
    if request.node == request.home:
        return Decision(Verdict.LOCAL)
    if request.node is None:
        return _remotely(request, 'the host does not run this backend')
    if not by_instance:
        return _remotely(request, 'the connection is not for an instance')
    if request.move:
        return _during_move(request, request.move)
    if request.pinned:
        return _through_here(request, request.pinned)
    return Decision(Verdict.LIVE_MOVE if elsewhere else Verdict.MOVE)


def _during_move(request: Request, move: state.Move) -> Decision:
    if move.committed and move.phase is not state.Phase.STARTING:
        # The home already provides every byte, locally or through its clone. A
        # second clone above it would double the sources that may fail.
        return _through_here(request, 'it is still being moved to its home')
    return _under_way(move)


def _under_way(move: state.Move) -> Decision:
    return Decision(Verdict.REFUSE, under_way(move), exceptions.MoveUnderWay)


def under_way(move: state.Move) -> str:
    """Return the reason why a moving volume can't be connected, in words."""
    return ('it is being moved (%s); try again when the move has ended.'
            % move.display_phase)


def _through_here(request: Request, reason: str) -> Decision:
    # On this node the copy of Cinder's migration may have the handle's name.
    return _remotely(request, reason, Verdict.REMOTE if request.by_cinder
                     else Verdict.REMOTE_ATTACHMENT)


def _remotely(request: Request, reason: str,
              how: Verdict = Verdict.REMOTE) -> Decision:
    if (how is Verdict.REMOTE and request.remote_error
            and request.status in statuses.USED_BY_NOVA):
        return Decision(
            Verdict.REFUSE, '%s, and the volume is encrypted.' % reason,
            request.remote_error)
    if request.initiator:
        return Decision(how, reason)
    return Decision(
        Verdict.REFUSE, '%s, and the request names no iSCSI '
        'initiator.' % reason)
