# SPDX-License-Identifier: Apache-2.0
"""What an error says beside its cause: to the operator, and to the owner.

An error class states both itself, see :class:`.exceptions.LocalCloneError`.
"""

import dataclasses
import enum

from cinder.i18n import _


class Outcome(str, enum.Enum):
    """What a request that failed has left, as the operator reads it."""

    #: The class does not tell: its text may, or the reason that it is given.
    UNKNOWN = ''
    UNCHANGED = _('Nothing was changed.')
    #: Of a request to create something.
    NOT_CREATED = _('Nothing was created.')
    #: Of a device with a header.
    NOT_WRITTEN = _('Nothing was written to it.')
    #: Of a request to the privileged process.
    NOT_DONE = _('Nothing was done.')
    #: A part of the request may have been done; to repeat it is harmless.
    NOT_COMPLETED = _('This request was not completed.')
    #: The volume has no handle on this node, on purpose.
    NOT_AVAILABLE = _('The volume was not made available.')
    #: A delete that has not begun to remove anything.
    NOT_REMOVED = _('None of its data was removed.')
    #: A delete that has.
    HALF_REMOVED = _('The volume can\'t be used any more.')
    NOT_USED = _('The driver did not use the disk.')
    #: A copy that lacks something goes on, with its source.
    SOURCE_KEPT = _('The source is kept.')


def in_words(problem: str, outcome: Outcome, remedy: str) -> str:
    """Return the text of an error.

    :param remedy: what the operator can do; one that begins with a small
        letter is a part of the sentence before it
    """
    if outcome and remedy[:1].islower():
        return '%s %s; %s' % (problem, outcome.value[:-1], remedy)
    return ' '.join(filter(None, (problem, outcome.value, remedy)))


@dataclasses.dataclass(frozen=True)
class UserMessage:
    """What the owner of a volume reads: :mod:`.service.messages` shows it.

    :param key: names it in metrics and log lines
    :param id: as Cinder stores it: never give one another meaning. The column
        holds ten characters
    :param text: names no host and no device
    """

    key: str
    id: str
    text: str

    @property
    def detail(self) -> tuple[str, str]:
        """The message as Cinder's table has it."""
        return self.id, self.text


#: All of them, by their keys.
USER_MESSAGES: dict[str, UserMessage] = {}


def owner_reads(key: str, id: str, text: str) -> UserMessage:
    """Register what the owner of a volume reads.

    :raises ValueError: if the key or the id is taken
    """
    if key in USER_MESSAGES or id in {each.id for each
                                      in USER_MESSAGES.values()}:
        raise ValueError('%s or %s is taken' % (key, id))
    USER_MESSAGES[key] = UserMessage(key, id, text)
    return USER_MESSAGES[key]


# What the owner reads of a request that has failed for a reason of which its
# error says nothing more precise. Others are with their errors.
CREATE_FAILED = owner_reads('CREATE_FAILED', 'LC20', _(
    'Nothing was created. The source is unchanged.'))
NOT_EXTENDED = owner_reads('NOT_EXTENDED', 'LC19', _(
    'The volume could not be extended; its data is unchanged.'))
NOT_MOVED = owner_reads('NOT_MOVED', 'LC26', _(
    'The volume could not be moved; it is unchanged where it was.'))
DELETE_FAILED = owner_reads('DELETE_FAILED', 'LC46', _(
    'The volume could not be deleted; an administrator has to examine it.'))
