# SPDX-License-Identifier: Apache-2.0
"""The further texts of an error: for the operator, and for the owner.

An error class states both itself, see :class:`.exceptions.LocalCloneError`.
"""

import dataclasses
import enum

from cinder.i18n import _


class Outcome(str, enum.Enum):
    """The state after a failed request, for the operator."""

    #: The class does not know; its text or its reason may say it.
    UNKNOWN = ''
    UNCHANGED = _('Nothing was changed.')
    #: Of a request to create something.
    NOT_CREATED = _('Nothing was created.')
    #: Of a device with a header.
    NOT_WRITTEN = _('Nothing was written to it.')
    #: Of a request to the privileged process.
    NOT_DONE = _('Nothing was done.')
    #: A part of the request may have been done; a repetition is harmless.
    NOT_COMPLETED = _('This request was not completed.')
    #: The volume has no handle on this node, on purpose.
    NOT_AVAILABLE = _('The volume was not made available.')
    #: A delete that has not begun to remove anything.
    NOT_REMOVED = _('None of its data was removed.')
    #: A delete that has begun to remove data.
    HALF_REMOVED = _('The volume can\'t be used any more.')
    NOT_USED = _('The driver did not use the disk.')
    #: An incomplete copy continues, and keeps its source.
    SOURCE_KEPT = _('The source is kept.')


def in_words(problem: str, outcome: Outcome, remedy: str) -> str:
    """Return the text of an error.

    :param remedy: the operator's action. With a small first letter it
        continues the sentence before it
    """
    if outcome and remedy[:1].islower():
        return '%s %s; %s' % (problem, outcome.value[:-1], remedy)
    return ' '.join(filter(None, (problem, outcome.value, remedy)))


@dataclasses.dataclass(frozen=True)
class UserMessage:
    """The message to the owner of a volume, sent by :mod:`.service.messages`.

    :param key: its name in metrics and log lines
    :param id: Cinder's key of the message: never give an id another meaning.
        The column holds ten characters
    :param text: names no host and no device
    """

    key: str
    id: str
    text: str

    @property
    def detail(self) -> tuple[str, str]:
        """The message in the form of Cinder's table."""
        return self.id, self.text


#: All messages, by their keys.
USER_MESSAGES: dict[str, UserMessage] = {}


def register_message(key: str, id: str, text: str) -> UserMessage:
    """Register a message to the owner of a volume.

    :raises ValueError: if the key or the id is taken
    """
    if key in USER_MESSAGES or id in {each.id for each
                                      in USER_MESSAGES.values()}:
        raise ValueError('%s or %s is taken' % (key, id))
    USER_MESSAGES[key] = UserMessage(key, id, text)
    return USER_MESSAGES[key]


# Messages for a failed request whose error has no message of its own. All
# others are with their errors.
CREATE_FAILED = register_message('CREATE_FAILED', 'LC20', _(
    'Nothing was created. The source is unchanged.'))
NOT_EXTENDED = register_message('NOT_EXTENDED', 'LC19', _(
    'The volume could not be extended; its data is unchanged.'))
NOT_MOVED = register_message('NOT_MOVED', 'LC26', _(
    'The volume was not moved. It is unchanged on its host.'))
DELETE_FAILED = register_message('DELETE_FAILED', 'LC46', _(
    'The volume could not be deleted; an administrator has to examine it.'))
