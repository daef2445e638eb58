# SPDX-License-Identifier: Apache-2.0
"""The driver's errors: what happened, what was undone, what to do.

``user_message`` names the entry of :mod:`cinder_localclone.messages` that
the owner of the volume gets to read (``openstack volume message list``);
the exception's own text, with hosts and devices, is for the operator's log.
"""

from cinder import exception
from cinder.i18n import _


class LocalCloneError(exception.VolumeDriverException):
    """Base of the driver's errors."""

    message = _('localclone: %(reason)s')
    user_message = 'FAILED'


class InvalidTransition(LocalCloneError):
    message = _('A move in phase "%(phase)s" (%(committed)s) cannot take '
                'the event "%(event)s". Nothing was changed.')
    user_message = 'MOVE_BUSY'


class InvalidToken(LocalCloneError):
    message = _('The move record "%(token)s" cannot be read: %(reason)s. '
                'It was left as it is.')


class StaleMove(LocalCloneError):
    message = _('The move of volume %(volume)s was changed by another '
                'service at the same moment. Nothing was changed here; the '
                'request may be sent again.')
    user_message = 'MOVE_BUSY'


class Refused(LocalCloneError):
    """A connection that is not served, decided before anything is touched."""

    message = _('Volume %(volume)s cannot be connected to %(host)s: '
                '%(reason)s Nothing was changed.')
    user_message = 'REFUSED'


class AttachedElsewhere(Refused):
    """Refused because another instance has the volume."""

    user_message = 'ATTACHED_ELSEWHERE'


class MoveUnderWay(Refused):
    """Refused because a move of the volume has to end first."""

    user_message = 'MOVE_BUSY'


class NotPossible(LocalCloneError):
    """What an operator asked for cannot be done."""

    message = _('Volume %(volume)s: %(reason)s Nothing was changed.')


class PeerUnreachable(LocalCloneError):
    message = _('The volume service %(host)s did not answer "%(method)s" '
                'within %(seconds)s s. Check that it runs and reaches the '
                'message bus.')
    user_message = 'PEER_UNREACHABLE'


class NoFreeSpace(LocalCloneError):
    message = _('%(host)s has no room for a volume of %(size)s GiB and its '
                'move metadata: %(reason)s. Nothing was created.')
    user_message = 'NO_FREE_SPACE'


class NotReady(LocalCloneError):
    message = _('%(host)s cannot take volumes: %(reason)s.')
    user_message = 'NOT_READY'


class SourceBusy(LocalCloneError):
    message = _('Volume %(volume)s is still open on %(host)s (%(count)s '
                'users of %(device)s). Close it there first; nothing was '
                'changed.')
    user_message = 'SOURCE_BUSY'


class DestinationWritten(LocalCloneError):
    message = _('The live move of volume %(volume)s is not rolled back: '
                'something was already written on %(host)s (%(regions)s '
                'regions), and going back would lose it. Nothing was '
                'changed. If the instance runs on %(host)s, "cinder-'
                'localclone resume" goes forward once the source is closed.')
    user_message = 'MOVE_BUSY'


class CloneFailed(LocalCloneError):
    message = _('The clone of volume %(volume)s on %(host)s is in mode '
                '"%(mode)s": its metadata or its disk failed, so what was '
                'written there cannot be told. Nothing was changed. Mend '
                'the disk and stop what uses the volume; it is then built '
                'anew.')
    user_message = 'MOVE_BUSY'


class WrongSource(LocalCloneError):
    message = _('What %(iqn)s delivered as %(device)s is not the source of '
                'the move: %(reason)s. It was not used.')
    user_message = 'WRONG_SOURCE'


class MissingData(LocalCloneError):
    """Something that must exist is gone; it is never made anew."""

    message = _('%(what)s of volume %(volume)s is missing on %(host)s. It '
                'was not created anew, because it would be empty. See '
                '"Losing a disk" in the administrator guide.')
    user_message = 'DATA_MISSING'


class MetadataTooSmall(LocalCloneError):
    message = _('%(device)s, which is to remember the copy of volume '
                '%(volume)s, has %(found)s bytes and needs %(needed)s: the '
                'kernel crashes when it is full. The volume was not given '
                'out. Extend it ("lvextend -L %(needed)sb %(device)s"), then '
                '"cinder-localclone repair".')
    user_message = 'DATA_MISSING'


class MetadataLost(LocalCloneError):
    message = _('%(device)s, which remembers what of volume %(volume)s has '
                'been copied, is blank: something has overwritten it. The '
                'volume was not given out, because all that was written '
                'since its move began would read as it was before. See '
                '"Losing a disk" in the administrator guide.')
    user_message = 'DATA_MISSING'


class CommandFailed(LocalCloneError):
    message = _('"%(command)s" failed with exit code %(code)s: %(stderr)s')


class CommandTimeout(LocalCloneError):
    message = _('"%(command)s" did not end within %(seconds)s s and was '
                'killed.')
    user_message = 'TIMEOUT'


class Busy(LocalCloneError):
    """Something is locked by other work on this node.

    :param what: such as "Volume <id>"
    """

    message = _('%(what)s is in use by another request on %(host)s; gave up '
                'after %(seconds)s s. Nothing was changed; try again.')
    user_message = 'MOVE_BUSY'


class ExportFailed(LocalCloneError):
    message = _('The iSCSI target of this node could not be changed: '
                '%(reason)s. It will be tried again.')


class LoginFailed(LocalCloneError):
    message = _('No disk came of the login to %(iqn)s at %(portal)s: '
                '%(reason)s What iscsiadm said is in the log of the volume '
                'service, the target\'s reason in the kernel log of the '
                'source.')
    user_message = 'PEER_UNREACHABLE'


class SourceUnreachable(LocalCloneError):
    message = _('The portal %(portal)s of the source does not accept '
                'connections: %(reason)s. It will be tried again; until then '
                'at most what is local already can be read.')
    user_message = 'PEER_UNREACHABLE'


class TargetTimeout(CommandTimeout):
    message = _('The iSCSI target of this node could not be changed within '
                '%(seconds)s s: this change, or one before it, hangs in the '
                'kernel, where it cannot be killed. Until it ends, this node '
                'can neither begin nor end exports. See its kernel log.')
